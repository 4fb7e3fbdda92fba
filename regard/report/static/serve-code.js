// The same request from a program: as curl and as Python, to copy.

import { element } from "./dom.js";
import { hasKey } from "./serve-client.js";
import { escaped, tell, told } from "./serve-words.js";

const OPENAI = { "/v1/completions": "completions", "/v1/chat/completions": "chat.completions",
  "/v1/embeddings": "embeddings" };
const KNOWN = ["model", "prompt", "messages", "input", "max_tokens", "temperature", "top_p", "seed",
  "stop", "n", "stream"]; // fields that the client of OpenAI knows by name

const curl = ({ route, body }) => {
  const text = JSON.stringify(body, null, 1).replace(/\n\s*/g, " ").replaceAll("'", "'\\''");
  const key = hasKey() ? [`  -H "Authorization: Bearer $REGARD_API_KEY"`] : [];
  return [`curl -s '${location.origin}${route}'`, ...key,
    "  -H 'Content-Type: application/json'", `  -d '${text}'`].join(" \\\n");
};

// A value as Python writes it: JSON, but for its three constants.
const python = (value) => {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "object") {
    const rows = Object.entries(value)
      .map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`);
    return `{${rows.join(", ")}}`;
  }
  return JSON.stringify(value);
};
const NAME = { false: '"none"', true: 'os.environ["REGARD_API_KEY"]' };

const openai = ({ route, body }) => {
  const own = Object.entries(body).filter(([name]) => KNOWN.includes(name));
  const more = Object.entries(body).filter(([name]) => !KNOWN.includes(name));
  const fields = [...own.map(([name, value]) => `    ${name}=${python(value)},`),
    ...(more.length ? [`    extra_body=${python(Object.fromEntries(more))},`] : [])];
  const shown = { "/v1/completions": "print(answer.choices[0].text)",
    "/v1/chat/completions": "print(answer.choices[0].message.content)",
    "/v1/embeddings": "print([row.embedding[:4] for row in answer.data])" }[route];
  return [...(hasKey() ? ["import os", ""] : []), "from openai import OpenAI", "",
    `client = OpenAI(base_url="${location.origin}/v1", api_key=${NAME[hasKey()]})`,
    `answer = client.${OPENAI[route]}.create(`, ...fields, ")", shown].join("\n");
};
const requests = ({ route, body }) => {
  const key = hasKey() ? [`    headers={"Authorization": "Bearer " + ${NAME.true}},`] : [];
  return [...(hasKey() ? ["import os", ""] : []), "import requests", "",
    "answer = requests.post(", `    "${location.origin}${route}",`, ...key,
    `    json=${python(body)},`, ")", "print(answer.json())"].join("\n");
};

const copied = async (text, button) => {
  try {
    await navigator.clipboard.writeText(text);
    tell(button, "copied");
  } catch {
    tell(button, "copy_failed");
  }
  setTimeout(() => tell(button, "copy"), 2000);
};

const block = (name, text) => {
  const button = told("button", { type: "button", on: { click: () => copied(text, button) } },
    "copy");
  return element("div", { class: "code", "data-code": name },
    element("h4", {}, name, " ", button), element("pre", { tabindex: 0 }, text));
};

export const codeOf = (request) => [block("curl", escaped(curl(request))),
  block("Python", escaped(OPENAI[request.route] ? openai(request) : requests(request)))];
