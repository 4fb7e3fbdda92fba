// The readout: the weights of what is pointed at, as numbers.

import { element } from "./dom.js";
import { word } from "./language.js";
import { nameOf } from "./look-picture.js";

const SHOWN = 8; // weights of a token that are listed at first

export const paint = (canvas, values, colors) => {
  const context = canvas.getContext("2d"), [r, g, b] = colors.rgb;
  const image = context.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < values.length; i++)
    image.data.set([r, g, b, Math.round(255 * Math.sqrt(values[i] / 255))], 4 * i);
  context.putImageData(image, 0, 0);
};

const numbered = (token, place) =>
  `${nameOf(token)} (${String(token.n || place + 1).replace("-", "−")})`;

const weightOf = (head, row, column) => {
  const most = head.bound(row, column);
  if (most === null) return head.value(row, column).toFixed(3);
  return `≤ ${Math.max(0.001, most).toFixed(3)}`;
};

export const readOut = (side) => {
  const { row, column } = side.focus, head = side.current();
  const parts = [];
  if (row === null && column === null)
    parts.push(element("p", { class: "soft small" }, word("hint")));
  if (row !== null && column !== null) {
    const told = word("cell", { row: numbered(side.rows[row], row),
      column: numbered(side.columns[column], column), weight: weightOf(head, row, column) });
    parts.push(element("p", { class: "cell", "data-row": row, "data-column": column }, told));
  }
  if (row !== null) {
    const found = [];
    head.each(row, (k, weight) => found.push([k, weight]));
    parts.push(weightList(side, "looks_at", numbered(side.rows[row], row), found, side.columns,
      "nothing", head.rest(row)));
  }
  if (column !== null) {
    const found = [];
    for (let r = 0; r < side.rows.length; r++) {
      const weight = head.value(r, column);
      if (weight > 0) found.push([r, weight]);
    }
    const list = weightList(side, "seen_by", numbered(side.columns[column], column), found,
      side.rows, "nobody", 0);
    if (head.packed.a === "top")
      list.append(element("p", { class: "soft small" }, word("kept_only")));
    parts.push(list);
  }
  side.readout.replaceChildren(...parts);
  side.readout.classList.toggle("held", side.held);
};

const weightList = (side, key, token, found, names, none, rest) => {
  found.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const most = found.length ? found[0][1] : 1;
  const line = (name, weight, options = {}) => element("li", options,
    element("span", { class: "token", dir: "auto" }, name),
    element("span", { class: "number" }, weight.toFixed(3)));
  const items = (side.all ? found : found.slice(0, SHOWN)).map(([k, weight]) => {
    const bar = element("span", { class: "bar" });
    bar.style.width = `${100 * weight / most}%`;
    const made = line(numbered(names[k], k), weight, { "data-key": k });
    made.append(bar);
    return made;
  });
  if (rest > 0.0005) items.push(line(word("rest"), rest, { class: "soft" }));
  const click = () => {
    side.all = !side.all;
    side.held = true;
    readOut(side);
    const again = side.readout.querySelector(`[data-all=${key}]`); // a new one: keys stay on it
    if (again) again.focus({ preventScroll: true });
  };
  const more = found.length > SHOWN ? element("button", { class: "plain", "data-all": key,
    on: { click } }, side.all ? word("few") : word("all", { count: found.length })) : "";
  return element("div", { class: `list ${key}` },
    element("h4", { dir: "auto" }, word(key, { token })),
    found.length ? element("ol", {}, ...items) : element("p", { class: "soft" }, word(none)), more);
};
