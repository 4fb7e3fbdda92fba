// The page of a server: its models, what each can do, and what lies behind an answer.

import { all, data, element } from "./dom.js";
import { begin, onLanguage, word } from "./language.js";
import { walked } from "./keys.js";
import { LookPage } from "./look-page.js";
import { ask, useKey } from "./serve-client.js";
import { drawAll } from "./serve-charts.js";
import { codeOf } from "./serve-code.js";
import { Column, trouble } from "./serve-column.js";
import { Deeper } from "./serve-deeper.js";
import { Form } from "./serve-form.js";
import { Run } from "./serve-run.js";
import { clean, tell, told } from "./serve-words.js";
import { waysOf, wordsOf } from "./serve-ways.js";

const part = (id) => document.getElementById(id);
const taskOf = ({ task }) => (data.words[`task_${task}`] ? word(`task_${task}`) : task);
const SPEAK = 1500; // milliseconds between two pieces that are read aloud

class App {
  constructor() {
    Object.assign(this, { models: [], model: null, way: "", columns: [], stopper: null, told: 0 });
    this.form = new Form(part("fields"), part("settings"), part("examples"));
    this.deeper = new Deeper(part("deeper"), (error) => this.refused(error));
    this.story = new Run(part("story"));
    this.folds = { attention: () => this.attend(), looking: () => this.deepen(),
      run: () => this.tellRun(), code: () => this.tellCode() };
    for (const name of Object.keys(this.folds))
      part(`fold-${name}`).addEventListener("toggle", () => this.unfold(name));
    part("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      useKey(part("key").value);
      part("key").value = "";
      this.start();
    });
    part("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    part("stop").addEventListener("click", () => this.stopper && this.stopper.abort());
    part("beside").addEventListener("change", () => this.clear());
    part("ask").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) part("ask").requestSubmit();
    });
    walked(part("ways"), "[role=tab]", (tab) => { tab.focus(); tab.click(); });
    document.addEventListener("toggle", drawAll, true);
    addEventListener("resize", () => this.reveal());
    onLanguage(() => this.speak());
  }
  async start() {
    part("trouble").replaceChildren();
    try {
      const { data } = await ask("/v1/models");
      this.models = data;
      part("key-form").hidden = true;
      part("app").hidden = false;
      this.pick(data[0]);
      this.picker();
    } catch (error) {
      part("trouble").replaceChildren(this.refused(error, () => this.start()));
    }
  }
  refused(error, again = null) {
    if (error.status === 401) {
      part("key-form").hidden = false;
      part("key").focus();
    }
    return trouble(error, again);
  }

  // -- which model, and which way

  picker() {
    const cards = this.models.map((model) => {
      const input = element("input", { type: "radio", name: "model", value: model.id,
        on: { change: () => this.pick(model) } });
      input.checked = model === this.model;
      return element("label", { class: "pick" }, input, element("span", {},
        element("b", { dir: "auto" }, clean(model.id)),
        element("small", {}, `${model.family} · ${this.size(model.parameters)}`)));
    });
    part("models").replaceChildren(...cards);
    part("models").closest("fieldset").hidden = this.models.length < 2;
    this.reveal();
  }
  // On a narrow screen the models stand in one line; the chosen one is in view.
  reveal() {
    const box = part("models"), chosen = box.querySelector(":checked");
    if (!chosen) return;
    const room = box.getBoundingClientRect();
    const place = chosen.closest(".pick").getBoundingClientRect();
    if (place.left < room.left) box.scrollLeft -= room.left - place.left + 24;
    if (place.right > room.right) box.scrollLeft += place.right - room.right + 24;
  }
  size(count) {
    return new Intl.NumberFormat(document.documentElement.lang,
      { notation: "compact", maximumSignificantDigits: 3 }).format(count);
  }
  pick(model) {
    this.model = model;
    this.reveal();
    const ways = waysOf(model);
    const tabs = ways.map((way) => told("button", { type: "button", role: "tab", id: `way-${way}`,
      "data-way": way, "aria-controls": "way", on: { click: () => this.go(way) } },
    `way_${wordsOf(way, model)}`));
    part("ways").replaceChildren(...tabs);
    part("ways").hidden = ways.length < 2;
    part("no-way").hidden = ways.length > 0;
    part("way").hidden = !ways.length;
    this.about();
    if (ways.length) this.go(ways.includes(this.way) ? this.way : ways[0]);
    this.unfold("run");
  }
  about() {
    const { model } = this, facts = [clean(model.id), model.family,
      word("facts_parameters", { count: model.parameters.toLocaleString("en") })];
    if (model.task) facts.push(word("facts_task", { task: taskOf(model) }));
    if (model.context) facts.push(word("facts_context", { count: model.context }));
    part("about").textContent = [...facts, model.precision].join(" · ");
  }
  go(way) {
    this.way = way;
    for (const tab of all("[role=tab]", part("ways"))) {
      const on = tab.dataset.way === way;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
    }
    part("way").setAttribute("aria-labelledby", `way-${way}`);
    tell(part("way-about"), `about_${wordsOf(way, this.model)}`);
    this.form.put(way, this.model);
    const others = this.models.filter((model) => model !== this.model
      && waysOf(model).includes(way));
    const before = part("beside").value;
    part("beside").replaceChildren(told("option", { value: "" }, "nobody"),
      ...others.map((model) => element("option", { value: model.id }, clean(model.id))));
    part("beside").value = others.some((model) => model.id === before) ? before : "";
    part("with").hidden = !others.length;
    tell(part("go"), `go_${wordsOf(way, this.model)}`);
    this.clear();
  }
  clear() {
    if (this.stopper) this.stopper.abort();
    const other = this.models.find((model) => model.id === part("beside").value);
    const models = other ? [this.model, other] : [this.model];
    this.columns = models.map((model) => new Column(this, this.way, model, models.length > 1));
    part("answers").className = `answers of-${models.length}`;
    part("answers").replaceChildren(...this.columns.map((column) => column.box));
    part("behind").hidden = true;
    this.offer();
    part("answers").hidden = true;
    part("refused").replaceChildren();
  }
  // What can be looked into.
  offer() {
    const [first] = this.columns, able = (verb) => this.model.verbs.includes(verb);
    part("fold-attention").hidden = !first.readable || !able("attention");
    part("fold-looking").hidden = !first.readable
      || !["lens", "ablate", "patch", "attribute"].some(able);
  }
  speak() {
    if (!this.model) return;
    this.picker();
    this.about();
  }

  // -- asking

  submit() {
    const talked = this.columns.some(({ flow }) => flow && flow.messages && flow.messages.length);
    if (!talked) this.form.fillEmpty();
    if (!part("ask").reportValidity()) return;
    const values = this.form.values();
    this.run(() => (signal) => Promise.all(this.columns.map((column) =>
      column.run(values, signal))), () => this.form.set("message", ""));
  }
  // Runs what `make` returns; the stop button ends it.
  async run(make, done = () => {}) {
    if (this.stopper) this.stopper.abort();
    const stopper = this.stopper = new AbortController();
    this.busy(true);
    part("refused").replaceChildren();
    part("answers").hidden = false;
    this.announce(word("working"));
    this.spoken = this.columns.map(() => 0);
    try {
      await make()(stopper.signal);
      done();
      if (this.stopper === stopper) this.finished();
    } catch (error) {
      if (this.stopper !== stopper) return;
      if (error.name === "AbortError") {
        this.announce(word("stopped"));
        this.finished();
      } else {
        part("refused").replaceChildren(this.refused(error, () => this.run(make, done)));
      }
    } finally {
      if (this.stopper === stopper) { this.stopper = null; this.busy(false); }
    }
  }
  busy(on) {
    part("stop").hidden = !on;
    part("answers").setAttribute("aria-busy", on);
  }
  finished() {
    this.announce(this.columns.map((column, i) =>
      column.spoken().slice(this.spoken[i])).join("\n"));
    part("behind").hidden = !this.columns.some((column) => column.answer || column.flow);
    this.offer();
    drawAll();
    if (["translate", "summarize"].includes(this.way) && !part("fold-attention").hidden)
      part("fold-attention").open = true;
    this.looks();
    this.unfold("code");
  }
  looks() { for (const name of ["attention", "looking"]) this.unfold(name); }
  // A text grows, or a reader chose a token: what grows is read aloud, but not letter by letter.
  grew(column) {
    if (!this.stopper) {
      if (part("fold-looking").open) this.deepen();
      return;
    }
    const i = this.columns.indexOf(column), text = column.spoken();
    if (i < 0 || Date.now() - this.told < SPEAK) return;
    this.announce(text.slice(this.spoken[i]));
    this.spoken[i] = text.length;
  }
  announce(text) {
    this.told = Date.now();
    part("aloud").textContent = clean(text);
  }

  // -- what lies behind an answer

  async unfold(name) {
    const fold = part(`fold-${name}`);
    if (!fold.open || fold.hidden) return;
    const line = fold.querySelector(".fold-trouble");
    line.replaceChildren();
    fold.setAttribute("aria-busy", "true");
    try {
      await this.folds[name]();
    } catch (error) {
      line.replaceChildren(this.refused(error, () => this.unfold(name)));
    } finally {
      fold.setAttribute("aria-busy", "false");
    }
  }
  get done() { return this.columns.filter((column) => column.sent); }
  async attend() {
    const able = this.done.filter(({ model, readable }) =>
      readable && model.verbs.includes("attention"));
    if (!able.length || part("behind").hidden) return;
    const readings = able.map((column) => column.reading());
    const sides = await Promise.all(readings.map(async ({ stack, position, ...read }, i) =>
      (await ask("/attention", { model: able[i].model.id, ...read, form: "side" })).results[0]));
    sides.forEach((side, i) => { side.text = clean(able[i].label()); });
    if (this.look) this.look.put(sides); else this.look = new LookPage(sides);
    part("linked").closest("label").hidden = sides.length < 2;
    this.look.speak();
    const { stack } = readings[0];
    if (stack) this.look.choose(this.look.sides[0], { stack });
  }
  async deepen() {
    const [column] = this.done;
    if (column && !part("behind").hidden) await this.deeper.put(column.model, column.subject());
  }
  async tellRun() { await this.story.put(this.model.id); }
  tellCode() {
    const [column] = this.done;
    if (column) part("code").replaceChildren(...codeOf(column.code()));
  }
}

const app = new App();
begin();
app.start();
