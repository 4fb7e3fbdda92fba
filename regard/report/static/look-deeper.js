// Below the attention: what was computed by changing the model, or by its gradients.

import { clamp, element } from "./dom.js";
import { word } from "./language.js";

const LAST = 256; // columns of the lens; of a longer text the last ones
const STRONGEST = 45; // percent of the tone under a text, which stays easy to read on it
const percent = (share) => `${Math.round(STRONGEST * clamp(Math.abs(share), 0, 1))}%`;
const digits = (value, count = 4) =>
  value.toFixed(count).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
const signed = (value, count = 4) => `${value > 0 ? "+" : ""}${digits(value, count)}`;
const row = (kind, ...cells) => element("tr", {}, ...cells.map((cell) =>
  element(kind, { dir: "auto" }, cell)));
const table = (head, rows) => element("table", { class: "numbers" },
  element("thead", {}, row("th", ...head)), element("tbody", {}, ...rows));

// A matrix of buttons: `cells` are { share from -1 to 1, text, label, show }. A click, or Enter,
// shows what a cell holds in the box behind it; arrow keys move.
const heat = (name, rows, columns, cells) => {
  const out = element("div", { class: "held-cell", "aria-live": "polite" });
  const buttons = cells.map((line, r) => line.map((cell, c) => {
    const button = element("button", { role: "gridcell", title: cell.label, tabindex: "-1",
      "aria-label": cell.label, "data-row": r, "data-column": c,
      class: cell.share < 0 ? "minus" : "", on: { click: () => choose(r, c) } }, cell.text);
    button.style.setProperty("--share", percent(cell.share));
    return button;
  }));
  const choose = (r, c) => {
    buttons.flat().forEach((button) => {
      button.setAttribute("aria-selected", button === buttons[r][c]);
      button.tabIndex = button === buttons[r][c] ? 0 : -1;
    });
    out.replaceChildren(...cells[r][c].show());
  };
  const keydown = (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key], on = event.target.closest("button");
    if (!step || !on) return;
    event.preventDefault();
    const r = clamp(+on.dataset.row + step[0], 0, buttons.length - 1);
    const to = buttons[r][clamp(+on.dataset.column + step[1], 0, buttons[r].length - 1)];
    on.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  };
  const line = (...parts) => element("div", { role: "row", class: "line" }, ...parts);
  const head = (role, text) => element("span", { role, class: "soft", dir: "auto" }, text);
  const grid = element("div", { class: "heat", role: "grid", "aria-label": name, on: { keydown } },
    line(head("columnheader", ""), ...columns.map((text) => head("columnheader", text))),
    ...buttons.map((some, r) => line(head("rowheader", rows[r]), ...some)));
  grid.style.setProperty("--columns", columns.length);
  const first = buttons.flat()[0];
  if (first) first.tabIndex = 0;
  return element("div", { class: "matrix" }, element("h4", {}, name),
    element("div", { class: "scroll" }, grid), out);
};

const shares = (likely) => table([word("token"), word("probability")],
  likely.map((one) => row("td", one.text, digits(one.probability))));
export const changes = (cell) => [
  element("p", { class: "what" }, word("without", { off: cell.off.join(", ") || "–" })),
  table([word("token"), word("before"), word("after"), word("difference")],
    cell.changes.map((one) => row("td", one.text, digits(one.before), digits(one.after),
      signed(one.after - one.before)))),
];

const lens = ({ tokens, layers }) => {
  const start = Math.max(0, tokens.length - LAST), all = layers.flat(2);
  // A head with one output has no likeliest token: its number itself is shown.
  const single = layers.flat().every((some) => some.length === 1) && all.every(({ id }) => !id);
  const most = Math.max(...all.map((one) => Math.abs(one.probability))) || 1;
  const cells = layers.map((layer, l) => layer.slice(start).map((likely, c) => {
    const { text, probability } = likely[0], token = tokens[start + c];
    const label = word(single ? "lens_score_cell" : "lens_cell",
      { layer: l, token, text, share: digits(probability) });
    if (single) return { share: probability / most, text: digits(probability, 3), label,
      show: () => [element("p", { class: "what", dir: "auto" }, label)] };
    return { share: probability, text, label,
      show: () => [element("p", { class: "what", dir: "auto" }, label), shares(likely)] };
  }));
  const parts = [element("p", { class: "soft" }, word("about_lens"))];
  if (start) parts.push(element("p", { class: "soft small" }, word("lens_last", { count: LAST })));
  const names = layers.map((_, l) => word("after_layer", { layer: l }));
  return [...parts, heat(word(single ? "lens_score" : "lens"), names, tokens.slice(start), cells)];
};

const ablation = (data) => {
  const about = element("p", { class: "soft" }, word("about_ablate"), " ",
    word(`method_${data.method}`));
  if (!data.heads) return [about, element("h4", {}, word("ablate")), ...changes(data)];
  const tables = Object.entries(data.heads).map(([kind, layers]) => {
    const effect = (cell) => cell.token.after - cell.token.before;
    const most = Math.max(...layers.flat().map((cell) => Math.abs(effect(cell)))) || 1;
    const wide = Math.max(...layers.map((layer) => layer.length));
    const places = clamp(1 - Math.floor(Math.log10(most)), 3, 4); // or small changes would be 0
    const cells = layers.map((layer, l) => layer.map((cell, h) => ({
      share: effect(cell) / most, text: signed(effect(cell), places), show: () => changes(cell),
      label: word("ablate_cell", { layer: l + 1, head: h + 1, token: cell.token.text,
        change: signed(effect(cell)) }) })));
    const name = word("ablate_all", { kind: word(kind), token: layers[0][0].token.text });
    return heat(name, layers.map((_, l) => String(l + 1)),
      [...Array(wide).keys()].map((h) => String(h + 1)), cells);
  });
  return [about, ...tables];
};

const patching = (data) => {
  const span = data.clean[1] - data.corrupted[1];
  const back = (cell) => span ? (cell[1] - data.corrupted[1]) / span : 0;
  const facts = word("patch_ends", { token: data.token, clean: digits(data.clean[0]),
    corrupted: digits(data.corrupted[0]) });
  const tables = data.tables.map(({ kind, layers, columns, cells }) => heat(
    word("patch_name", { kind: word(kind), token: data.token }),
    layers.map((layer) => word("after_layer", { layer })), columns,
    cells.map((line, r) => line.map((cell, c) => {
      const label = word("patch_cell", { layer: layers[r], column: columns[c],
        share: digits(cell[0]), back: digits(back(cell), 3) });
      return { share: back(cell), text: digits(back(cell), 2), label,
        show: () => [element("p", { class: "what", dir: "auto" }, label)] };
    }))));
  return [element("p", { class: "soft" }, word("about_patch")), element("p", {}, facts), ...tables];
};

const attribution = (data) => {
  const every = Object.values(data.scores).flat();
  const most = Math.max(...every.map(Math.abs)) || 1;
  const token = (text, value) => {
    const node = element("span", { class: value < 0 ? "given minus" : "given", dir: "auto" }, text,
      element("small", {}, signed(value)));
    node.style.setProperty("--share", percent(value / most));
    return node;
  };
  const texts = Object.entries(data.scores).map(([name, scores]) => element("div", {},
    ...(Object.keys(data.scores).length > 1 ? [element("h5", {}, word(`of_${name}`))] : []),
    element("p", { class: "attributed", "data-text": name },
      ...scores.map((value, i) => token(data.tokens[name][i], value)))));
  const sums = word("attribute_sums", { measure: word(`measure_${data.measure}`),
    output: digits(data.output), baseline: digits(data.baseline), gap: digits(data.gap) });
  return [element("p", { class: "soft" }, word("about_attribute")),
    element("h4", {}, word("attribute", { token: data.token, row: data.row })), ...texts,
    element("p", { class: "soft small" }, sums)];
};

export const VIEWS = { lens, ablate: ablation, patch: patching, attribute: attribution };

// What a side has, in the language of the page.
export const deeper = (data) => {
  const parts = Object.entries(VIEWS).filter(([name]) => data[name]);
  if (!parts.length) return [];
  return [element("h3", {}, word("deeper")), element("p", { class: "soft" }, word("about_deeper")),
    ...parts.map(([name, view]) => element("section", { class: `deep ${name}` },
      ...view(data[name])))];
};
