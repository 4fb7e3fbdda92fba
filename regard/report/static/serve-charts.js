// Charts that appear while the page is open: drawn again when language, colors or width change.

import { all, element } from "./dom.js";
import { onLanguage, say } from "./language.js";
import { onTheme } from "./theme.js";
import { hush } from "./pointer.js";
import { drawChart } from "./chart.js";

const specs = new WeakMap();

export const drawAll = () => {
  hush();
  for (const figure of all("figure.live")) {
    const spec = specs.get(figure);
    figure.querySelector("b").textContent = say(spec.title);
    drawChart(figure, spec);
  }
};
onLanguage(drawAll);
onTheme(hush);
let wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== wide) { wide = innerWidth; drawAll(); }
});

// A figure, to be drawn by `drawAll` once it is in the page.
export const figure = (spec) => {
  const node = element("figure", { class: "live" }, element("figcaption", {}, element("b")));
  specs.set(node, spec);
  return node;
};

const AXIS = { name: "", unit: "number", log: false, zero: true, span: null, ticks: [], key: "" };

// Bars of [name, value], the largest first; `high` is where the scale ends.
export const bars = (title, rows, unit = "percent", high = null) => figure({ kind: "bars", title,
  x: { ...AXIS, unit, span: high === null ? null : [0, high] },
  bars: rows.map(([name, value]) => ({ name, value, low: value, high: value, ink: 1 })) });

export const heat = (title, names, values) => figure({ kind: "heat", title, rows: names,
  columns: names, values, high: 1, headed: true });
