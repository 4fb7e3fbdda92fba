// A conversation: what was said, and the answer as it is written.

import { element } from "./dom.js";
import { grown } from "./serve-client.js";
import { clean, tell, told } from "./serve-words.js";

export class Chat {
  constructor(model, { changed, again }) {
    Object.assign(this, { model, changed, messages: [], prompt: [], plain: "" });
    this.list = element("ol", { class: "talk" });
    tell(this.list, "conversation", { model: clean(model) }, "aria-label");
    const begin = () => { this.messages = []; this.list.replaceChildren(); again(); };
    this.over = told("button", { type: "button", class: "plain", on: { click: begin } },
      "start_over");
    this.box = element("div", { class: "writing" }, this.list, this.over);
  }
  turn(role, text) {
    const said = element("p", { dir: "auto" }, clean(text));
    this.list.append(element("li", { class: role }, told("b", {}, `role_${role}`), said));
    return said;
  }
  async write({ message, system, ...body }, signal) {
    const turns = [...this.messages, { role: "user", content: message }];
    const start = system ? [{ role: "system", content: system }] : [];
    this.request = { ...body, model: this.model, messages: [...start, ...turns],
      stream: true, return_token_ids: true };
    this.turn("user", message);
    const said = this.turn("assistant", "");
    const reply = { role: "assistant", content: "" };
    this.box.setAttribute("aria-busy", "true");
    try {
      for await (const event of grown("/v1/chat/completions", this.request, signal)) {
        this.seed = event.seed;
        for (const { delta, prompt_token_ids: prompt } of event.choices) {
          if (prompt) this.prompt = prompt;
          reply.content += delta.content || "";
        }
        said.textContent = clean(reply.content.trimStart());
        this.plain = reply.content;
        this.changed(this);
      }
      if (!reply.content) said.replaceWith(told("p", { class: "soft" }, "nothing_written"));
      this.messages = [...turns, reply];
    } catch (error) {
      if (reply.content) this.messages = [...turns, reply];
      else { // nothing was answered: the turn is not part of the conversation
        said.parentElement.previousElementSibling.remove();
        said.parentElement.remove();
      }
      throw error;
    } finally {
      this.box.setAttribute("aria-busy", "false");
    }
  }
}
