// Requests to this server. The key that a person types in is kept in this variable alone: it is in
// no address and in no storage, and is gone with the page.

let key = "";
export const useKey = (text) => { key = text.trim(); };
export const hasKey = () => key !== "";

// Why there is no answer: the status (0: nobody answered), the server's sentence, and after how
// many seconds another try makes sense.
class Refusal extends Error {
  constructor(status, message, wait = 0) {
    super(message);
    Object.assign(this, { status, wait });
  }
}

const bytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));
const sent = async (route, body, signal) => {
  const headers = key ? { authorization: `Bearer ${bytes(key)}` } : {};
  const options = { headers, signal, credentials: "omit", referrerPolicy: "no-referrer" };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(route, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refusal(0, "");
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  const wait = Number(answer.headers.get("retry-after")) || 0;
  throw new Refusal(answer.status, error ? error.message : answer.statusText, wait);
};

export const ask = async (route, body, signal) => (await sent(route, body, signal)).json();

// The events of an answer that grows, as objects.
export const grown = async function* grown(route, body, signal) {
  const answer = await sent(route, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Refusal(0, "");
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts.filter((each) => each.startsWith("data: "))) {
      if (part === "data: [DONE]") return;
      const event = JSON.parse(part.slice(6));
      if (event.error) throw new Refusal(500, event.error.message);
      yield event;
    }
  }
};
