// A text that a model writes, token by token: the color of a token says how sure the model was; a
// click shows what else it could have been, and another click goes on from there.

import { element } from "./dom.js";
import { walked } from "./keys.js";
import { grown } from "./serve-client.js";
import { option } from "./serve-show.js";
import { clean, percent, tell, told } from "./serve-words.js";

const seen = (text, id) => text === "" ? `#${id}` : clean(text).replaceAll("\n", "↵");
export const nameOf = ({ text, id, others = [] }) => {
  const known = others.find((other) => other.id === id);
  return seen(text || (known ? known.token : ""), id).trim() || "␣";
};

export class Writing {
  // `changed(writing)` is called after each token; `branch(writing)` asks to go on.
  constructor(model, { changed, branch }) {
    Object.assign(this, { model, changed, branch, prompt: [], tokens: [], undone: [], plain: "" });
    this.chosen = null;
    this.before = element("span", { class: "soft", dir: "auto" });
    this.text = element("p", { class: "written tokens", role: "group", dir: "auto" });
    tell(this.text, "written_by", { model: clean(model) }, "aria-label");
    walked(this.text, ".token");
    this.facts = element("p", { class: "soft small" });
    const keydown = (event) => {
      if (event.key !== "Escape") return;
      const button = this.buttons()[this.chosen];
      this.close();
      button.focus();
    };
    this.choices = element("div", { class: "choices", on: { keydown } });
    this.choices.hidden = true;
    this.box = element("div", { class: "writing" }, this.text, this.choices, this.facts);
  }
  ids() { return [...this.prompt, ...this.tokens.map((token) => token.id)]; }

  // Writes on: from the prompt, or from the tokens that are there already.
  async write(body, signal) {
    const start = this.tokens.length, room = body.max_tokens - start;
    const request = { ...body, model: this.model, stream: true, logprobs: 5,
      return_token_ids: true };
    if (start) Object.assign(request, { prompt: this.ids(), max_tokens: Math.max(1, room) });
    if (!start) {
      this.plain = "";
      this.before.textContent = typeof body.prompt === "string" ? clean(body.prompt) : "";
      this.text.replaceChildren(this.before);
    }
    this.box.setAttribute("aria-busy", "true");
    try {
      for await (const event of grown("/v1/completions", request, signal)) {
        this.seed = event.seed;
        event.choices.forEach((choice) => this.take(choice, start));
        this.changed(this);
      }
    } finally {
      this.box.setAttribute("aria-busy", "false");
    }
  }
  take({ prompt_token_ids: prompt, text, logprobs, finish_reason: reason }, start) {
    if (prompt && !start) this.prompt = prompt;
    this.plain += text;
    (logprobs ? logprobs.tokens : []).forEach((token, i) => this.add({ text: token,
      id: logprobs.token_ids[i], logprob: logprobs.token_logprobs[i],
      others: logprobs.top_tokens[i] }));
    if (!this.tokens.length) this.text.replaceChildren(this.before, clean(this.plain));
    if (reason) this.ended(reason);
  }
  ended(reason) {
    const surprise = this.tokens.reduce((sum, token) => sum - token.logprob, 0);
    const values = { count: this.tokens.length,
      perplexity: Math.exp(surprise / (this.tokens.length || 1)).toPrecision(3) };
    tell(this.facts, reason === "length" ? "ended_length" : "ended_stop", values);
  }
  add(token) {
    if (!this.tokens.length) this.text.replaceChildren(this.before);
    this.tokens.push(token);
    this.text.append(...this.parts(token, this.tokens.length - 1));
  }
  // A token, and the line breaks that it holds.
  parts(token, place) {
    return [this.button(token, place), token.text.replace(/[^\n]/g, "")];
  }
  button(token, place) {
    const share = Math.exp(token.logprob);
    const text = token.text ? seen(token.text, token.id) : nameOf(token);
    const node = element("button", { type: "button", class: "token", "aria-expanded": "false",
      tabindex: place ? "-1" : "0", "data-place": place,
      "data-id": token.id, on: {
        click: () => this.open(place),
        focus: () => this.buttons().forEach((each) => { each.tabIndex = each === node ? 0 : -1; }),
      } }, text);
    if (token.forced) node.classList.add("forced");
    node.style.setProperty("--share", `${Math.round(4 + 41 * share)}%`);
    tell(node, "token_share", { token: nameOf(token), share: percent(share) }, "aria-label");
    node.title = percent(share);
    return node;
  }
  buttons() { return [...this.text.querySelectorAll(".token")]; }

  // -- what else a token could have been

  open(place) {
    const same = this.chosen === place && !this.choices.hidden;
    this.close();
    if (same) return;
    const token = this.tokens[place], button = this.buttons()[place];
    this.chosen = place;
    button.setAttribute("aria-expanded", "true");
    const others = token.others.some((other) => other.id === token.id) ? token.others
      : [...token.others, { id: token.id, token: token.text, logprob: token.logprob }];
    const options = others.map((other) => this.option(other, other.id === token.id, place));
    const list = element("div", { class: "options", role: "group" }, ...options);
    tell(list, "instead_hint", {}, "aria-label");
    const undo = this.undone.length
      ? told("button", { type: "button", class: "plain", on: { click: () => this.undo() } }, "undo")
      : "";
    this.choices.replaceChildren(told("p", { class: "soft small" }, "instead",
      { token: nameOf(token) }), list, undo);
    this.choices.hidden = false;
    this.changed(this);
  }
  close() {
    this.choices.hidden = true;
    this.chosen = null;
    this.buttons().forEach((each) => each.setAttribute("aria-expanded", "false"));
  }
  option({ id, token, logprob }, current, place) {
    const click = () => {
      if (current) { this.close(); this.buttons()[place].focus(); return; }
      this.instead(place, { id, text: token, logprob, others: this.tokens[place].others });
    };
    return option(nameOf({ text: token, id }), Math.exp(logprob),
      { "aria-current": String(current), on: { click } });
  }
  instead(place, token) {
    this.undone.push(this.tokens);
    this.put([...this.tokens.slice(0, place), { ...token, forced: true }]);
    this.branch(this);
  }
  undo() {
    this.put(this.undone.pop());
    this.changed(this);
    this.buttons()[0].focus();
  }
  put(tokens) {
    this.close();
    this.tokens = tokens;
    this.plain = tokens.map((token) => token.text).join("");
    this.text.replaceChildren(this.before, ...tokens.flatMap((token, i) => this.parts(token, i)));
  }
}
