// The picture of attention with its tool bar: what both sides share.

import { clamp, element } from "./dom.js";
import { onLanguage, word } from "./language.js";
import { color, isDark, onTheme } from "./theme.js";
import { walked } from "./keys.js";
import { CanvasSurface, SvgSurface } from "./look-surface.js";
import { Side } from "./look-side.js";

// What is drawn, and its color in the palette.
const COLORS = { ink: "ink", soft: "soft", ground: "paper", rule: "rule", weight: "accent",
  accent: "focus", memory: "open", global: "yes", branch: "other", entity: "other", start: "soft",
  special: "soft" };
const hex = (rgb) => `#${rgb.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
const part = (id) => document.getElementById(id);

export class LookPage {
  constructor(sides) {
    Object.assign(this, { view: "arcs", zoom: null, numbers: false, linked: true, sides: [] });
    this.bar = document.querySelector(".tools");
    this.number = part("numbers");
    this.paint();
    this.put(sides);
    this.listen();
    onLanguage(() => this.speak());
    onTheme(() => { this.paint(); this.speak(); });
  }
  // One side, or two; others make room.
  put(sides) {
    this.sides = sides.map((side) => new Side(side, this));
    part("sides").replaceChildren(...this.sides.map((side) => side.box));
    part("sides").className = `sides of-${sides.length}`;
  }
  paint() {
    this.colors = Object.fromEntries(Object.entries(COLORS)
      .map(([name, of]) => [name, hex(color(of))]));
    this.colors.rgb = color(COLORS.weight);
    this.theme = isDark();
  }
  listen() {
    const click = (id, act) => part(id).addEventListener("click", act);
    for (const id of ["arcs", "matrix"]) click(id, () => this.show(id));
    for (const [id, step] of [["smaller", -1], ["larger", 1], ["fit", 0]])
      click(id, () => this.resize(step));
    for (const id of ["svg", "png"]) click(id, () => this.save(id));
    this.number.addEventListener("change", () => {
      this.numbers = this.number.checked;
      if (this.numbers) this.show("matrix");
      this.redraw();
    });
    const link = part("linked");
    if (link) link.addEventListener("change", () => { this.linked = link.checked; });
    walked(this.bar, "button, input");
  }
  speak() {
    for (const id of ["smaller", "larger"]) {
      part(id).title = word(id);
      part(id).setAttribute("aria-label", word(id));
    }
    for (const id of ["svg", "png"]) part(id).title = word("export_hint");
    this.number.title = word("numbers_hint");
    this.bar.setAttribute("aria-label", word("view"));
    const told = new Set(this.sides.flatMap((side) => {
      const { kind, count } = side.data.precision;
      const layers = side.data.stacks.flatMap((stack) => stack.layers);
      const some = kind !== "top" && layers.some((l) => l.rolled.a === "top");
      const every = word(`precision_${kind}`, { count });
      return some ? [every, word("precision_rolled")] : [every];
    }));
    const gap = document.documentElement.lang === "en" ? " " : "";
    part("precision").textContent =
      word("precision", { all: [...told, word("weights_note")].join(gap) });
    this.sides.forEach((side) => side.speak());
    this.pressed();
  }
  pressed() {
    for (const id of ["arcs", "matrix"]) part(id).setAttribute("aria-pressed", id === this.view);
  }
  show(view) {
    if (this.view !== view) this.zoom = null;
    this.view = view;
    if (view === "arcs") this.numbers = this.number.checked = false;
    this.pressed();
    this.redraw();
  }
  resize(step) {
    const shown = this.sides[0].shown;
    const now = shown ? shown.cell || shown.height : 24;
    const least = this.view === "arcs" ? 10 : 0.05;
    this.zoom = step ? clamp(now * (step > 0 ? 1.4 : 1 / 1.4), least, 64) : null;
    if (!step) this.numbers = this.number.checked = false;
    this.sides.forEach((side) => side.zoomed());
  }
  redraw() {
    this.sides.forEach((side) => { side.kept = null; side.later(); });
  }
  choose(from, what) {
    (this.linked ? this.sides : [from]).forEach((side) => side.choose(what));
  }

  // -- export: a file for each side

  save(kind) {
    this.sides.forEach((side, i) => {
      const model = side.data.model.replace(/[^\p{L}\p{N}.-]+/gu, "-");
      const head = `${side.kind(side.layer, side.head)}${side.head + 1}`;
      const parts = [model, side.stackData.kind, side.layer + 1, head, ...(i ? [i + 1] : [])];
      const name = `${parts.join("-")}.${kind}`;
      const title = `${side.data.model} · ${side.title()}`;
      if (kind === "svg") {
        const file = side.paintOn((w, h) => new SvgSurface(w, h)).file(title);
        return download(new Blob([file], { type: "image/svg+xml" }), name);
      }
      const canvas = document.createElement("canvas");
      side.paintOn((w, h) => {
        const scale = Math.max(w, h) > 2000 ? 1 : 2;
        [canvas.width, canvas.height] = [Math.ceil(w * scale), Math.ceil(h * scale)];
        return new CanvasSurface(canvas.getContext("2d"), w, h, scale);
      });
      return canvas.toBlob((blob) => download(blob, name), "image/png");
    });
  }
}

const download = (blob, name) => {
  const url = URL.createObjectURL(blob);
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
};
