// One model's answer: the request that was sent, what came back, and what the model read.

import { element } from "./dom.js";
import { ask } from "./serve-client.js";
import { Chat } from "./serve-chat.js";
import { WAYS } from "./serve-ways.js";
import { nameOf, Writing } from "./serve-write.js";
import { clean, told } from "./serve-words.js";

const STREAMS = { complete: Writing, chat: Chat };
// The last tokens of a text: as many as the server looks into, and the model reads.
const last = (ids, { context }) => ids.slice(-Math.min(256, context || 256));

export class Column {
  // `headed`: there is another beside it. `app.grew(column)` is called as a text grows.
  constructor(app, way, model, headed) {
    Object.assign(this, { app, way, model, values: {}, answer: null, picked: null });
    const head = headed ? [element("h3", {}, clean(model.id),
      element("span", { class: "soft" }, ` ${model.family}`))] : [];
    this.out = element("div", { class: "out" });
    this.box = element("section", { class: "column", "data-model": model.id }, ...head, this.out);
    this.flow = STREAMS[way] && new STREAMS[way](model.id, { changed: () => app.grew(this),
      branch: () => app.run(() => this.on()), again: () => app.grew(this) });
    if (this.flow) this.out.append(this.flow.box);
  }
  request(values) { return WAYS[this.way].ask(values, this.model.id); }
  async run(values, signal) {
    this.values = values;
    const { route, body } = this.request(values);
    this.sent = { route, body };
    if (this.flow) {
      if (this.way === "complete") { this.flow.put([]); this.flow.undone = []; }
      await this.flow.write(this.way === "chat" ? values : body, signal);
    } else {
      this.answer = await ask(route, body, signal);
      this.picked = null;
      const pick = (i) => { this.picked = i; this.app.looks(); };
      this.out.replaceChildren(...WAYS[this.way].show(this.answer, values, pick));
    }
  }
  // Goes on from a token that a reader chose.
  on() { return (signal) => this.flow.write(this.sent.body, signal); }

  // The same request for a program; a drawn seed stands in it, so that the answer is the same.
  code() {
    const { route, body } = this.sent, seed = this.flow && this.flow.seed;
    const { stream, return_token_ids: ids, ...own } =
      (this.way === "chat" && this.flow.request) || body;
    const sampled = own.temperature > 0 || this.way === "chat";
    return { route, body: { ...own, ...(sampled && seed !== undefined ? { seed } : {}) } };
  }
  // What is announced when it is done.
  spoken() { return this.flow ? this.flow.plain || "" : this.out.innerText; }

  // What a person would call what was read.
  label() {
    const { text, pair, prompt, question, texts } = this.values, { named } = WAYS[this.way];
    if (this.way === "complete") return prompt + this.flow.plain;
    if (named) return named(this.values, this.reading());
    if (text && pair) return `${text} · ${pair}`;
    return text || question || this.values.message || texts.split("\n")[0];
  }
  // Whether there is attention to look at: an encoder-decoder embeds with its encoder alone, and
  // what a graph says of an entity is not known.
  get readable() {
    if (this.answer && this.way === "link") return this.read() !== null;
    return this.model.kind !== "encoder-decoder" || this.way !== "embed";
  }
  read() { return WAYS[this.way].read(this.values, this.answer, this.picked); }
  // What the model read, for the attention and for looking deeper, and the stack to show first.
  reading() {
    const pair = this.model.kind === "encoder-decoder";
    if (this.way === "chat") return { text: last(this.flow.prompt, this.model) };
    if (this.way !== "complete") {
      const { position, ...read } = this.read();
      return pair ? { ...read, stack: "cross" } : { ...read, ...(position ? { position } : {}) };
    }
    const { prompt, tokens } = this.flow, ids = tokens.map((token) => token.id);
    if (!prompt.length) return { text: this.values.prompt };
    if (pair) return { text: prompt, ...(ids.length ? { target: ids } : {}), stack: "cross" };
    return { text: last([...prompt, ...ids], this.model) };
  }
  subject() {
    if (this.way !== "complete" || !this.flow.tokens.length) {
      const { stack, ...read } = this.reading();
      const plain = typeof read.text === "string" ? read.text : this.values.text || "";
      const first = stack ? { position: read.fills ? 2 : 1 } : {}; // what was written first
      return { ...first, ...read, label: this.label(), plain };
    }
    const { prompt, tokens, chosen } = this.flow, place = chosen ?? tokens.length - 1;
    const ids = tokens.map((token) => token.id), token = ids[place];
    const own = { token, ids: true, named: nameOf(tokens[place]) };
    const plain = this.values.prompt + tokens.slice(0, place).map((each) => each.text).join("");
    if (this.model.kind === "encoder-decoder")
      return { ...own, text: prompt, target: ids.slice(0, place + 1), position: place + 1,
        plain: this.values.prompt };
    return { ...own, text: last([...prompt, ...ids.slice(0, place)], this.model), plain };
  }
}

// A line that says why there is no answer, in the reader's language, and what the server said.
const LEADS = { 0: "trouble_0", 401: "trouble_401", 408: "trouble_408", 413: "trouble_413",
  429: "trouble_429", 503: "trouble_503", 504: "trouble_504" };
export const trouble = (error, again = null) => {
  const key = LEADS[error.status] || (error.status >= 500 ? "trouble_500" : "trouble_400");
  const line = element("p", { class: "trouble", role: "alert" }, told("strong", {}, key), " ",
    element("span", { dir: "auto" }, clean(error.message)));
  if (!again || error.status === 401) return line;
  const button = told("button", { type: "button", on: { click: again } }, "try_again");
  line.append(" ", button);
  if (error.wait) {
    const end = Date.now() + 1000 * error.wait;
    const left = () => Math.ceil((end - Date.now()) / 1000);
    const count = told("span", { class: "soft number" }, "wait", { seconds: left });
    button.disabled = true;
    line.append(" ", count);
    const timer = setInterval(() => {
      if (left() > 0) { count.textContent = count.textContent.replace(/\d+/, left()); return; }
      clearInterval(timer);
      count.remove();
      button.disabled = false;
    }, 250);
  }
  return line;
};
