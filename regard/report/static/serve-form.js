// The form of a way: its fields with their labels, its settings, and examples to press.

import { element } from "./dom.js";
import { onLanguage, word } from "./language.js";
import { settingsOf, WAYS, wordsOf } from "./serve-ways.js";
import { clean, short, tell, told } from "./serve-words.js";

const EXAMPLES = 3, BETWEEN = "\n---\n";

const control = ({ name, kind, rows, value = "", min, max, step, optional }) => {
  const id = `field-${name}`;
  const attributes = { id, "data-field": name, autocomplete: "off", spellcheck: "false" };
  const input = kind === "area" ? element("textarea", { ...attributes, rows, dir: "auto" })
    : kind === "line" ? element("input", { ...attributes, type: "text", dir: "auto" })
      : element("input", { ...attributes, type: "number", min, max, step, value,
        inputmode: "decimal" });
  if (!optional && kind !== "number") input.required = true;
  return element("div", { class: `field field-${kind}` },
    told("label", { for: id }, `field_${name}`), input);
};

export class Form {
  constructor(box, settings, examples) {
    Object.assign(this, { box, settings, examples, way: "", kept: new Map() });
    onLanguage(() => this.speak());
  }
  // What a reader wrote stays when another model, or another way, has the same field.
  put(way, model) {
    this.keep();
    Object.assign(this, { way, words: wordsOf(way, model) });
    this.names = WAYS[way].fields(model).map(({ name }) => name);
    const fields = WAYS[way].fields(model).map(control), more = settingsOf(way, model).map(control);
    this.box.replaceChildren(...fields);
    this.settings.querySelector(".more").replaceChildren(...more);
    this.settings.hidden = !more.length;
    for (const input of this.inputs()) {
      const text = this.kept.get(this.key(input));
      if (text !== undefined) input.value = text;
    }
    this.speak();
  }
  key(input) { return `${this.way} ${input.dataset.field}`; }
  inputs() {
    return [...this.box.querySelectorAll("[data-field]"),
      ...this.settings.querySelectorAll("[data-field]")];
  }
  keep() {
    for (const input of this.inputs()) this.kept.set(this.key(input), input.value);
  }
  values() {
    const pairs = this.inputs().filter((input) => input.value.trim() !== "").map((input) =>
      [input.dataset.field, input.type === "number" ? Number(input.value) : input.value]);
    return Object.fromEntries(pairs);
  }
  // What is shown in empty fields: the first example, which an empty form asks.
  get example() { return word(`example_${this.words}_1`).split(BETWEEN); }
  hint() {
    this.names.forEach((name, i) => {
      const input = this.inputs().find((each) => each.dataset.field === name);
      input.placeholder = clean(this.example[i] || "");
    });
  }
  fillEmpty() {
    const fields = this.inputs().filter((input) => input.required);
    if (fields.every((input) => !input.value.trim()))
      this.names.forEach((name, i) => this.set(name, this.example[i] || ""));
  }
  set(name, text) {
    const input = this.inputs().find((each) => each.dataset.field === name);
    if (input) input.value = text;
  }
  speak() {
    if (!this.way) return;
    const buttons = [...Array(EXAMPLES).keys()].map((i) => {
      const parts = word(`example_${this.words}_${i + 1}`).split(BETWEEN);
      const click = () => {
        this.names.forEach((name, j) => this.set(name, parts[j] || ""));
        this.box.closest("form").requestSubmit();
      };
      return element("button", { type: "button", class: "example", on: { click } },
        short(parts[0], 34));
    });
    this.hint();
    const label = told("span", { class: "soft small" }, "try_one");
    this.examples.replaceChildren(label, ...buttons);
    tell(this.examples, "examples", {}, "aria-label");
  }
}
