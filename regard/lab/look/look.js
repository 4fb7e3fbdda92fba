// -- the page: what both sides share

const COLOURS = ["ink", "soft", "ground", "rule", "weight", "accent", ...MARKS];
const dark = window.matchMedia("(prefers-color-scheme: dark)");

class Page {
  constructor(data) {
    this.data = data;
    this.language = /^zh/i.test(navigator.language || "") ? 1 : 0;
    Object.assign(this, { view: "arcs", zoom: null, numbers: false, linked: true });
    this.words = (key, values = {}) =>
      (this.data.words[key] || [key, key])[this.language].replace(/\{(\w+)\}/g, (all, name) =>
        values[name] === undefined ? all : values[name]);
    this.paint();
    this.sides = data.sides.map((side) => new Side(side, this));
    this.build();
    this.speak();
    dark.addEventListener("change", () => { this.paint(); this.speak(); });
  }
  paint() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colors = Object.fromEntries(COLOURS.map((name) => [name, value(name)]));
    this.colors.rgb = [1, 3, 5].map((i) => parseInt(this.colors.weight.slice(i, i + 2), 16));
    this.theme = dark.matches;
  }
  build() {
    const button = (name, click, more = {}) =>
      element("button", { "data-w": name, ...more, on: { click } });
    this.title = element("h1");
    this.tongue = element("button", { id: "language", on: { click: () => {
      this.language = 1 - this.language;
      this.speak();
    } } });
    this.views = ["arcs", "matrix"].map((id) => button(id, () => this.show(id), { id }));
    this.number = element("input", { type: "checkbox", id: "numbers", on: { change: () => {
      this.numbers = this.number.checked;
      if (this.numbers) this.show("matrix");
      this.redraw();
    } } });
    const change = () => { this.linked = this.link.checked; };
    this.link = element("input", { type: "checkbox", id: "linked", checked: "", on: { change } });
    const group = (...parts) => element("span", { class: "group" }, ...parts);
    const labeled = (input, name) =>
      element("label", {}, input, " ", element("span", { "data-w": name }));
    const zoom = (id, sign, step) =>
      element("button", { id, on: { click: () => this.resize(step) } }, sign);
    const save = (id) => button(id, () => this.save(id), { id });
    this.bar = element("div", { class: "bar-of-tools", role: "toolbar" },
      group(...this.views),
      group(zoom("smaller", "−", -1), zoom("larger", "+", 1),
        button("fit", () => this.resize(0), { id: "fit" })),
      group(labeled(this.number, "numbers")),
      ...(this.sides.length > 1 ? [group(labeled(this.link, "linked"))] : []),
      group(save("svg"), save("png")));
    this.exact = element("p", { class: "small soft", id: "precision" });
    const boxes = this.sides.map((side) => side.box);
    document.getElementById("page").append(
      element("header", {}, this.title, this.tongue), this.bar,
      element("div", { class: `sides of-${boxes.length}` }, ...boxes),
      element("footer", {}, this.exact));
  }
  speak() {
    document.documentElement.lang = this.language ? "zh-Hans" : "en";
    this.title.textContent = this.words("title");
    this.tongue.textContent = this.words("language");
    this.tongue.setAttribute("lang", this.language ? "en" : "zh-Hans");
    this.tongue.title = this.words("language_hint");
    this.bar.querySelectorAll("[data-w]").forEach((part) => {
      part.textContent = this.words(part.dataset.w);
    });
    for (const id of ["smaller", "larger"]) {
      const part = this.bar.querySelector(`#${id}`);
      part.title = this.words(id);
      part.setAttribute("aria-label", this.words(id));
    }
    for (const id of ["svg", "png"])
      this.bar.querySelector(`#${id}`).title = this.words("export_hint");
    this.number.title = this.words("numbers_hint");
    this.bar.setAttribute("aria-label", this.words("view"));
    const told = new Set(this.sides.flatMap((side) => {
      const { kind, count } = side.data.precision;
      const layers = side.data.stacks.flatMap((stack) => stack.layers);
      const part = kind !== "top" && layers.some((l) => l.rolled.a === "top");
      const all = this.words(`precision_${kind}`, { count });
      return part ? [all, this.words("precision_rolled")] : [all];
    }));
    this.exact.textContent =
      `${this.words("precision")}: ${[...told].join(" ")} ${this.words("weights_note")}`;
    this.sides.forEach((side) => side.speak());
    this.pressed();
  }
  pressed() {
    this.views.forEach((button) => button.setAttribute("aria-pressed", button.id === this.view));
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
        const made = side.paintOn((w, h) => new SvgSurface(w, h)).file(title);
        return download(new Blob([made], { type: "image/svg+xml" }), name);
      }
      const canvas = document.createElement("canvas");
      side.paintOn((w, h) => {
        const scale = Math.max(w, h) > 2000 ? 1 : 2;
        [canvas.width, canvas.height] = [Math.ceil(w * scale), Math.ceil(h * scale)];
        return new CanvasSurface(canvas.getContext("2d"), w, h, scale);
      });
      canvas.toBlob((blob) => download(blob, name), "image/png");
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

new Page(JSON.parse(document.getElementById("data").textContent));
