// One side: a model, a text, its overview of heads, a picture and a readout.

import { clamp, element } from "./dom.js";
import { walked } from "./keys.js";
import { word } from "./language.js";
import { bytesOf, Head } from "./look-weights.js";
import { CanvasSurface } from "./look-surface.js";
import { Arcs, MARKS, Matrix } from "./look-picture.js";
import { paint, readOut } from "./look-readout.js";
import { deeper } from "./look-deeper.js";

export class Side {
  constructor(data, page) {
    Object.assign(this, { data, page, stack: 0, layer: 0, head: 0, all: false, heads: new Map() });
    this.focus = { row: null, column: null };
    this.held = false;
    this.box = element("section", { class: "side" });
    this.build();
  }
  get stackData() { return this.data.stacks[this.stack]; }
  get layers() { return this.stackData.layers; }
  get rows() { return this.data.tokens[this.stackData.rows]; }
  get columns() { return this.data.tokens[this.stackData.columns]; }
  // Heads of a layer, then their mean, then the rollout: the columns of the overview.
  entries(layer) {
    const { heads, mean, rolled } = this.layers[layer];
    return [...heads, mean, rolled];
  }
  widest() { return Math.max(...this.layers.map((layer) => layer.heads.length)); }
  kind(layer, index) {
    const count = this.layers[layer].heads.length;
    return index < count ? "head" : index === count ? "mean" : "rolled";
  }
  current() {
    const key = `${this.stack} ${this.layer} ${this.head}`;
    if (!this.heads.has(key)) {
      if (this.heads.size > 6) this.heads.clear();
      const packed = this.entries(this.layer)[this.head];
      this.heads.set(key, new Head(packed, this.rows.length, this.columns.length));
    }
    return this.heads.get(key);
  }
  title() {
    const layer = this.layer + 1, kind = this.kind(this.layer, this.head);
    if (kind === "mean") return word("layer_mean", { layer, count: this.head });
    if (kind === "rolled") return word("layer_rolled", { layer });
    return word("layer_head", { layer, head: this.head + 1 });
  }

  // What the rows of the picture are.
  told() {
    const { kind } = this.stackData;
    if (this.kind(this.layer, this.head) !== "rolled") return word(`about_${kind}`);
    const more = ["decoder", "cross", "query"].includes(kind) ? ` ${word(`rolled_${kind}`)}` : "";
    return word("about_rolled") + more;
  }

  // -- what stands there

  build() {
    this.heading = element("h2", {}, this.data.model);
    if (this.data.family !== this.data.model)
      this.heading.append(element("span", { class: "soft" }, ` ${this.data.family}`));
    const long = this.data.text.length > 300;
    this.text = element("p", { class: long ? "given long" : "given", dir: "auto" }, this.data.text);
    this.more = long ? element("button", { class: "plain", on: { click: () => {
      const less = this.text.classList.toggle("long");
      this.more.textContent = word(less ? "show_all" : "show_less");
    } } }) : "";
    this.notes = element("ul", { class: "notes" });
    this.tabs = element("div", { class: "tabs", role: "tablist" });
    walked(this.tabs, "[role=tab]", (tab) => tab.click());
    this.about = element("p", { class: "soft about" });
    const keydown = (event) => this.move(event);
    this.grid = element("div", { class: "grid", role: "grid", on: { keydown } });
    this.hint = element("p", { class: "soft small" });
    this.name = element("h3", { "aria-live": "polite" });
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.spacer = element("div", { class: "spacer" }, this.canvas);
    this.frame = element("div", { class: "view", tabindex: "0", role: "application", on: {
      scroll: () => this.later(), pointermove: (e) => this.point(e),
      pointerleave: () => { if (!this.held) this.look({ row: null, column: null }); },
      click: (e) => this.hold(e), keydown: (e) => this.key(e),
    } }, this.spacer);
    this.legend = element("p", { class: "marks small" });
    this.readout = element("div", { class: "readout", "aria-live": "polite" });
    this.facts = element("div", { class: "known" });
    this.deeper = element("div", { class: "deeper" });
    this.box.append(this.heading, this.text, this.more, this.notes,
      element("div", { class: "body" },
        element("div", { class: "over" }, this.tabs, this.about, this.grid, this.hint, this.facts),
        element("div", { class: "one" },
          element("div", {}, this.name, this.frame, this.legend), this.readout)), this.deeper);
    new ResizeObserver(() => this.later()).observe(this.frame);
  }
  // All words again: another language, or another stack.
  speak() {
    const stacks = this.data.stacks;
    if (this.more)
      this.more.textContent = word(this.text.classList.contains("long") ? "show_all" : "show_less");
    this.tabs.setAttribute("aria-label", word("stack"));
    this.legend.setAttribute("aria-label", word("legend"));
    const { notes, facts } = this.data;
    this.notes.replaceChildren(...notes.map((n) => element("li", {}, word(`note_${n.key}`, n))));
    const tab = (stack, i) => element("button", { tabindex: i === this.stack ? 0 : -1,
      role: "tab", "aria-selected": i === this.stack, "data-stack": stack.kind,
      on: { click: () => this.page.choose(this, { stack: stack.kind }) } }, word(stack.kind));
    const held = this.tabs.contains(document.activeElement);
    this.tabs.replaceChildren(...(stacks.length > 1 ? stacks.map(tab) : []));
    if (held) this.tabs.children[this.stack].focus({ preventScroll: true });
    this.hint.textContent = word("heads_hint");
    const told = facts.map((fact) => element("li", { dir: "auto" }, fact));
    const listed = [element("h3", {}, word("facts")), element("ul", {}, ...told)];
    this.facts.replaceChildren(...(told.length ? listed : []));
    this.deeper.replaceChildren(...deeper(this.data.deeper));
    this.overview();
    this.marks();
    this.change();
  }
  marks() {
    const tokens = [...this.rows, ...this.columns];
    const found = MARKS.filter((mark) => tokens.some((t) => (t.m || []).includes(mark)));
    if (tokens.some((t) => t.r)) found.push("rank");
    if (tokens.some((t) => t.p)) found.push("part");
    this.legend.replaceChildren(...found.map((mark) =>
      element("span", { class: `mark ${mark}` }, word(`mark_${mark}`))));
  }

  // -- the overview

  overview() {
    const count = this.widest();
    const names = [...Array(count).keys()].map((i) => String(i + 1));
    names.push(word("mean"), word("rolled"));
    this.grid.style.setProperty("--columns", names.length);
    this.grid.setAttribute("aria-label", word("heads"));
    const line = (...cells) => element("div", { role: "row", class: "row" }, ...cells);
    const header = line(element("span", { role: "columnheader" }), ...names.map((name) =>
      element("span", { role: "columnheader", class: "soft" }, name)));
    this.buttons = [];
    const lines = this.layers.map((layer, l) => {
      const small = bytesOf(layer.small), [down, across] = layer.size;
      const cells = this.entries(l).map((_, i) => {
        const kind = this.kind(l, i), at = kind === "head" ? i : count + (kind === "rolled");
        const label = kind === "head" ? word("layer_head", { layer: l + 1, head: i + 1 })
          : word(`layer_${kind}`, { layer: l + 1, count: layer.heads.length });
        const canvas = element("canvas", { width: across || 1, height: down || 1 });
        const own = small.subarray(i * down * across, (i + 1) * down * across);
        paint(canvas, own, this.page.colors);
        const button = element("button", { role: "gridcell", title: label, "aria-label": label,
          "data-layer": l, "data-head": i, tabindex: "-1",
          on: { click: () => this.page.choose(this, { layer: l, head: i, kind }) } }, canvas);
        button.style.gridColumn = at + 2;
        this.buttons.push(button);
        return button;
      });
      return line(element("span", { role: "rowheader", class: "soft" }, String(l + 1)), ...cells);
    });
    this.grid.replaceChildren(header, ...lines);
  }
  button(layer, head) {
    return this.buttons.find((b) => +b.dataset.layer === layer && +b.dataset.head === head);
  }
  move(event) {
    const on = event.target.closest("button");
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!on || !steps[event.key]) return;
    event.preventDefault();
    const layer = clamp(+on.dataset.layer + steps[event.key][0], 0, this.layers.length - 1);
    const head = clamp(+on.dataset.head + steps[event.key][1], 0, this.entries(layer).length - 1);
    this.buttons.forEach((button) => { button.tabIndex = -1; });
    const to = this.button(layer, head);
    to.tabIndex = 0;
    to.focus();
  }
  // `kind` tells a head from the mean and the rollout: another side may have more heads, or fewer.
  choose({ stack, layer, head, kind }) {
    const place = stack === undefined ? this.stack
      : this.data.stacks.findIndex((s) => s.kind === stack);
    if (place >= 0 && place !== this.stack) {
      this.stack = place;
      this.held = false;
      this.focus = { row: null, column: null };
      this.layer = this.head = 0;
      this.frame.scrollTo(0, 0);
      this.speak();
    }
    if (layer !== undefined) this.layer = clamp(layer, 0, this.layers.length - 1);
    if (head !== undefined) {
      const count = this.layers[this.layer].heads.length;
      this.head = { head: Math.min(head, count - 1), mean: count, rolled: count + 1 }[kind];
    }
    this.change();
  }
  change() {
    this.buttons.forEach((button) => {
      const on = +button.dataset.layer === this.layer && +button.dataset.head === this.head;
      button.setAttribute("aria-selected", on);
      button.tabIndex = on ? 0 : -1;
    });
    this.name.textContent = this.title();
    this.about.textContent = this.told();
    this.frame.setAttribute("aria-label", word("picture", { what: this.title() }));
    this.kept = null;
    this.later();
    readOut(this);
  }

  // -- the picture

  picture() {
    const kind = this.page.view === "matrix" ? Matrix : Arcs;
    const made = new kind(this.current(), this.rows, this.columns, this.stackData.kind);
    made.head.open();
    this.whole = made.layout(this.frame.clientWidth || 320, this.page.zoom, this.page.numbers);
    return made;
  }
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }
  eye() {
    const { clientWidth, clientHeight, scrollLeft, scrollTop } = this.frame;
    return { x: scrollLeft, y: scrollTop, width: clientWidth, height: clientHeight };
  }
  draw() {
    if (!this.frame.clientWidth) return; // in a closed fold, or no longer in the page
    const picture = this.shown = this.picture();
    this.spacer.style.width = `${this.whole.width}px`;
    this.spacer.style.height = `${this.whole.height}px`;
    const eye = this.eye(), scale = window.devicePixelRatio || 1;
    eye.height = Math.min(eye.height, this.whole.height);
    const size = [Math.round(eye.width * scale), Math.round(eye.height * scale)];
    if (this.canvas.width !== size[0] || this.canvas.height !== size[1]) {
      [this.canvas.width, this.canvas.height] = size;
      this.canvas.style.width = `${eye.width}px`;
      this.canvas.style.height = `${eye.height}px`;
    }
    const key = JSON.stringify([eye, size, this.page.view, this.page.zoom, this.page.numbers,
      this.page.theme]);
    if (!this.kept || this.kept.key !== key) {
      const canvas = this.kept ? this.kept.canvas : document.createElement("canvas");
      [canvas.width, canvas.height] = size;
      const surface = new CanvasSurface(canvas.getContext("2d"), eye.width, eye.height, scale);
      picture.base(surface, eye, this.page.colors);
      this.kept = { key, canvas };
    }
    const context = this.canvas.getContext("2d");
    const surface = new CanvasSurface(context, eye.width, eye.height, scale);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalAlpha = this.dim();
    context.drawImage(this.kept.canvas, 0, 0);
    context.globalAlpha = 1;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    picture.over(surface, eye, this.page.colors, this.focus, this.page.numbers);
  }
  // Draws with another zoom; what was in the middle stays there.
  zoomed() {
    const f = this.frame, before = this.whole || { width: 1, height: 1 };
    const x = (f.scrollLeft + f.clientWidth / 2) / before.width;
    const y = (f.scrollTop + f.clientHeight / 2) / before.height;
    this.kept = null;
    this.draw();
    f.scrollLeft = x * this.whole.width - f.clientWidth / 2;
    f.scrollTop = y * this.whole.height - f.clientHeight / 2;
    this.reveal();
    this.later();
  }
  dim() {
    const { row, column } = this.focus;
    return this.page.view === "arcs" && (row !== null || column !== null) ? 0.15 : 1;
  }
  // The whole picture, or where it is very large what is in view.
  paintOn(surfaceOf) {
    const picture = this.picture(), { width, height } = this.whole, eye = this.eye();
    const large = width > 4000 || height > 4000;
    const part = { ...eye, height: Math.min(eye.height, height) };
    const seen = large ? part : { x: 0, y: 0, width, height };
    const surface = surfaceOf(seen.width, seen.height), colors = this.page.colors;
    surface.rect(0, 0, seen.width, seen.height, colors.ground);
    picture.base(surface, seen, colors, (this.page.view === "arcs" ? 0.75 : 1) * this.dim());
    picture.over(surface, seen, colors, this.focus, this.page.numbers);
    return surface;
  }

  // -- pointing, by mouse and by keys

  point(event) {
    if (this.held || !this.shown) return;
    this.look(this.under(event));
  }
  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const found = this.shown.hit(event.clientX - box.left, event.clientY - box.top, this.eye());
    return found || { row: null, column: null };
  }
  hold(event) {
    if (!this.shown) return;
    const to = this.under(event), some = to.row !== null || to.column !== null;
    const same = to.row === this.focus.row && to.column === this.focus.column;
    this.held = some && !(this.held && same);
    this.look(to);
  }
  key(event) {
    const steps = { ArrowUp: ["row", -1], ArrowDown: ["row", 1], ArrowLeft: ["column", -1],
      ArrowRight: ["column", 1] };
    const to = { ...this.focus };
    if (steps[event.key]) {
      const [axis, step] = steps[event.key];
      const count = (axis === "row" ? this.rows : this.columns).length;
      to[axis] = to[axis] === null ? 0 : clamp(to[axis] + step, 0, count - 1);
      this.held = true;
    } else if (event.key === "Escape") {
      to.row = to.column = null;
      this.held = false;
    } else if (event.key === "Enter") {
      this.held = !this.held && (to.row !== null || to.column !== null);
    } else if ("+-=0".includes(event.key) && !event.ctrlKey && !event.metaKey) {
      this.page.resize(event.key === "0" ? 0 : event.key === "-" ? -1 : 1);
    } else return;
    event.preventDefault();
    this.look(to);
    this.reveal();
  }
  reveal() {
    if (!this.shown) return;
    const { row, column } = this.focus;
    if (row === null && column === null) return;
    const { top, bottom, left, right } = this.shown.show(row, column), f = this.frame;
    if (top !== undefined) f.scrollTop = clamp(f.scrollTop, bottom - f.clientHeight, top);
    if (left !== undefined) f.scrollLeft = clamp(f.scrollLeft, right - f.clientWidth, left);
  }
  look(to) {
    if (to.row === this.focus.row && to.column === this.focus.column) return readOut(this);
    this.focus = to;
    this.all = false;
    this.later();
    readOut(this);
  }
}
