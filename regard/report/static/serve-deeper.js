// Looking deeper, live: what each layer would answer, what changes without heads or layers, what
// brings an answer back, and what it depends on. Every number is computed by the server.

import { element } from "./dom.js";
import { walked } from "./keys.js";
import { onLanguage } from "./language.js";
import { changes, VIEWS } from "./look-deeper.js";
import { ask } from "./serve-client.js";
import { clean, short, tell, told } from "./serve-words.js";

const KINDS = ["lens", "ablate", "patch", "attribute"], METHODS = ["zero", "mean"];
const line = (id, value) => element("input", { id, value, type: "text", dir: "auto",
  autocomplete: "off", spellcheck: "false" });
// The tokens of a text as the model reads it. A text that is given by ids says all by itself.
const names = async (body, text) => {
  const { verb, ...plain } = body;
  const read = Array.isArray(body.text) ? plain : body;
  const { results: [{ tokens }] } = await ask("/attention", { ...read, text, form: "side" });
  return (tokens.text || tokens.source).map(({ t }) => t);
};

export class Deeper {
  constructor(box, trouble) {
    Object.assign(this, { box, trouble, kind: "lens", subject: null, off: new Set(), shown: null,
      method: "zero", baseline: "", corrupted: "" });
    this.tabs = element("div", { class: "tabs", role: "tablist" });
    tell(this.tabs, "deeper", {}, "aria-label");
    walked(this.tabs, "[role=tab]", (tab) => { tab.focus(); tab.click(); });
    this.about = element("p", { class: "soft subject", dir: "auto" });
    this.row = element("select", { id: "deep-row", on: { change: () => this.begin() } });
    this.token = element("input", { id: "deep-token", type: "text", autocomplete: "off",
      spellcheck: "false", on: { change: () => this.begin() } });
    this.place = element("span", { class: "group" },
      told("label", { for: "deep-row" }, "deep_row"), this.row);
    this.asks = element("div", { class: "asks" }, this.place,
      told("label", { for: "deep-token" }, "deep_token"), this.token);
    this.panel = element("div", { id: "deep-panel", role: "tabpanel", class: "deep" });
    this.out = element("div", { class: "deep-out", "aria-live": "polite" });
    box.append(told("p", { class: "soft" }, "about_deeper"), this.about, this.asks, this.tabs,
      this.panel, this.out);
    onLanguage(() => { if (this.shown) this.shown(); });
  }
  // `subject` is { model, text, …, token, position }: what the server is asked about.
  put(model, subject) {
    const other = this.model !== model;
    Object.assign(this, { model, subject, rows: null });
    if (other) this.off.clear();
    this.kinds = KINDS.filter((kind) => model.verbs.includes(kind));
    if (!this.kinds.includes(this.kind)) [this.kind] = this.kinds;
    this.token.value = "";
    this.row.replaceChildren();
    this.place.hidden = true;
    this.asks.hidden = subject.ids === true;
    if (subject.named) tell(this.about, "subject_token", { token: short(subject.named) });
    else tell(this.about, "subject_text", { text: short(subject.label || "", 80) });
    this.speakTabs();
    return this.begin();
  }
  speakTabs() {
    this.tabs.replaceChildren(...this.kinds.map((kind) => {
      const on = kind === this.kind;
      const click = () => { this.kind = kind; this.speakTabs(); this.focus(); this.begin(); };
      return told("button", { type: "button", role: "tab", "aria-selected": on, id: `deep-${kind}`,
        "aria-controls": "deep-panel", tabindex: on ? 0 : -1, "data-kind": kind, on: { click } },
      `deep_${kind}`);
    }));
    this.panel.setAttribute("aria-labelledby", `deep-${this.kind}`);
  }
  focus() { this.tabs.querySelector("[aria-selected=true]").focus({ preventScroll: true }); }

  // What is asked of a text: all that was read, and which answer.
  asked() {
    const { label, plain, named, ids, token, position, ...read } = this.subject;
    const row = this.row.value ? Number(this.row.value) : position;
    const follow = this.token.value || token;
    return { model: this.model.id, ...read, ...(row ? { position: row } : {}),
      ...(follow === undefined ? {} : { token: follow }) };
  }
  async call(route, body) {
    this.out.setAttribute("aria-busy", "true");
    const number = this.count = (this.count || 0) + 1;
    if (!this.shown) this.out.replaceChildren(told("p", { class: "soft" }, "working"));
    try {
      const { results: [facts] } = await ask(route, body);
      return number === this.count ? facts : null;
    } catch (error) {
      if (number === this.count) this.out.replaceChildren(this.trouble(error));
      return null;
    } finally {
      if (number === this.count) this.out.setAttribute("aria-busy", "false");
    }
  }
  show(make) {
    this.shown = () => this.out.replaceChildren(...make());
    this.shown();
  }
  async begin() {
    this.panel.replaceChildren();
    this.out.replaceChildren();
    this.shown = null;
    if (!this.subject || !this.kind) return;
    await this[this.kind]();
    await this.places();
  }
  // The rows of the answer, where another part than the lens was asked first.
  async places() {
    const { subject, kinds } = this;
    if (subject.ids || this.row.options.length || !kinds.includes("lens")) return;
    const { token, position, ...body } = this.asked();
    const { results: [facts] } = await ask("/lens", { ...body, top_k: 1 });
    if (subject === this.subject) this.rowsAre(facts.tokens);
  }
  async lens() {
    const { token, position, ...body } = this.asked();
    const facts = await this.call("/lens", body);
    if (!facts) return;
    this.rowsAre(facts.tokens);
    this.show(() => VIEWS.lens(facts));
  }
  // The rows from which an answer can be chosen, told by the lens.
  rowsAre(tokens) {
    this.place.hidden = tokens.length < 2;
    if (this.row.options.length) return;
    const option = (value, name) => element("option", { value }, name);
    this.row.append(told("option", { value: "" }, "usual"),
      ...tokens.map((token, i) => option(i + 1, `${i + 1} ${short(token, 24)}`)));
    if (this.subject.position) this.row.value = String(this.subject.position);
  }
  attribute() {
    const input = line("deep-baseline", this.baseline || "");
    const change = () => { this.baseline = input.value.trim(); this.attributed(); };
    input.addEventListener("change", change);
    this.panel.replaceChildren(element("div", { class: "asks" },
      told("label", { for: input.id }, "deep_baseline"), input));
    return this.attributed();
  }
  async attributed() {
    const baseline = this.baseline ? { baseline: this.baseline } : {};
    const facts = await this.call("/attribute", { ...this.asked(), ...baseline });
    if (facts) this.show(() => VIEWS.attribute(facts));
  }

  // -- switching off

  ablate() {
    const grids = Object.entries(this.model.heads).map(([kind, layers]) => this.grid(kind, layers));
    const every = told("button", { type: "button", id: "each-head",
      on: { click: () => this.each() } }, "each_head");
    const none = told("button", { type: "button", id: "all-on",
      on: { click: () => { this.off.clear(); this.ablate(); } } }, "all_on");
    const methods = METHODS.map((name) => told("option", { value: name }, `off_${name}`));
    const method = element("select", { id: "deep-method",
      on: { change: () => { this.method = method.value; this.without(); } } }, ...methods);
    method.value = this.method;
    this.panel.replaceChildren(told("p", { class: "soft" }, "about_switches"), ...grids,
      element("div", { class: "asks" }, none, every,
        told("label", { for: "deep-method" }, "deep_method"), method));
    return this.without();
  }
  grid(kind, layers) {
    const several = Object.keys(this.model.heads).length > 1;
    const name = (...parts) => (kind === "self" ? parts : [kind, ...parts]).join(".");
    const toggle = (place, label, text, values) => {
      const click = (event) => {
        if (!this.off.delete(place)) this.off.add(place);
        event.currentTarget.setAttribute("aria-pressed", String(this.off.has(place)));
        this.without();
      };
      const node = element("button", { type: "button", class: "switch", "data-place": place,
        "aria-pressed": String(this.off.has(place)), on: { click } }, text);
      return tell(node, label, values, "aria-label");
    };
    const lines = layers.map((heads, l) => element("div", { class: "switches" },
      kind === "cross" ? element("span", { class: "soft" }, String(l + 1))
        : toggle(name(l + 1), "switch_layer", `${l + 1}`, { layer: l + 1 }),
      ...[...Array(heads).keys()].map((h) => toggle(name(l + 1, h + 1), "switch_head",
        `${h + 1}`, { layer: l + 1, head: h + 1 }))));
    const box = element("div", { class: "switchboard" }, ...lines);
    walked(box, ".switch");
    return element("div", {}, several ? told("h4", {}, kind) : "", box);
  }
  async without() {
    if (!this.off.size) {
      this.count = (this.count || 0) + 1;
      this.show(() => [told("p", { class: "soft" }, "nothing_off")]);
      return;
    }
    const places = [...this.off], numbers = (place) => place.match(/\d+/g).length;
    const facts = await this.call("/ablate", { ...this.asked(), method: this.method,
      heads: places.filter((place) => numbers(place) > 1),
      layers: places.filter((place) => numbers(place) === 1) });
    if (facts) this.show(() => changes(facts));
  }
  async each() {
    const facts = await this.call("/ablate", { ...this.asked(), method: this.method,
      heads: "all" });
    if (facts) this.show(() => VIEWS.ablate(facts));
  }

  // -- patching

  patch() {
    const text = line("deep-corrupted", this.corrupted || this.subject.plain || "");
    const pairs = line("deep-alignment", "");
    pairs.placeholder = "1-1 2-2 4-3";
    const submit = (event) => {
      event.preventDefault();
      this.corrupted = text.value;
      if (text.value.trim()) this.patched(pairs);
    };
    text.addEventListener("input", () => { pairs.value = ""; });
    const form = element("form", { class: "asks", on: { submit } },
      told("label", { for: text.id }, "corrupted"), text,
      told("label", { for: pairs.id }, "alignment"), pairs,
      told("button", { type: "submit" }, "compute"));
    this.panel.replaceChildren(told("p", { class: "soft" }, "about_corrupted",
      { text: clean(this.subject.plain || "") }), form);
  }
  async patched(field) {
    const body = { ...this.asked(), corrupted: this.corrupted };
    if (!field.value.trim()) field.value = await this.aligned();
    const alignment = [...field.value.matchAll(/(\d+)\s*[-:–]\s*(\d+)/g)]
      .map(([, clean, other]) => [Number(clean), Number(other)]);
    const facts = await this.call("/patch", { ...body,
      ...(alignment.length ? { alignment } : {}) });
    if (facts) this.show(() => VIEWS.patch(facts));
  }
  // Of texts with different numbers of tokens, the beginnings and the ends that are the same.
  async aligned() {
    if (!this.model.verbs.includes("attention")) return "";
    const { token, position, target, ...body } = this.asked();
    const both = await Promise.all([body.text, this.corrupted].map((text) => names(body, text)
      .catch(() => [])));
    const [first, other] = both, [least, most] = [first, other].map((all) => all.length)
      .sort((a, b) => a - b);
    if (least === most || !least) return "";
    let start = 0, end = 0;
    while (start < least && first[start] === other[start]) start++;
    while (end < least - start && first.at(-1 - end) === other.at(-1 - end)) end++;
    return [...Array(start).keys()].map((i) => `${i + 1}-${i + 1}`).concat([...Array(end).keys()]
      .map((i) => `${first.length - end + i + 1}-${other.length - end + i + 1}`)).join(" ");
  }
}
