// Lines, bars and heat maps as SVG, drawn from plain data and as wide as their place.
//
// Every drawing has a name (its caption) and a description, and can be walked through by keys.

import { clamp, draw, element } from "./dom.js";
import { say, word } from "./language.js";
import { Scale, UNITS } from "./scale.js";
import { pointed } from "./pointer.js";

const INKS = 10, LETTER = 6.9, MARKED = 24, REACH = 48, APART = 16;
let charts = 0;

const inked = (ink) => ({ number: (ink - 1) % INKS + 1, again: ink > INKS });
const wide = (text) => [...text].reduce((sum, c) => sum + (c > "\u2e7f" ? 12.5 : LETTER), 0);
const cut = (text, room) => {
  if (wide(text) <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && wide(letters.join("")) > room - LETTER) letters.pop();
  return `${letters.join("")}…`;
};
const seen = (text) => text.trim() === "" ? "␣" : text.trim();

// The figure keeps its caption; all else is made again.
const canvas = (figure, width, height, about) => {
  const caption = figure.querySelector("figcaption");
  if (!caption.id) caption.id = `chart-${++charts}`;
  const plot = figure.querySelector(".plot");
  const svg = draw(plot, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    tabindex: 0, "aria-labelledby": caption.id, "aria-describedby": `${caption.id}-about` });
  draw(svg, "desc", { id: `${caption.id}-about` }, `${about} ${word("chart_keys")}`);
  return svg;
};

const key = (ink, name, kind = "") => {
  const item = element("li", { class: `model ${kind}` });
  if (ink) {
    const mark = draw(item, "svg", { class: `i${inked(ink).number}`, viewBox: "0 0 12 12",
      width: 12, height: 12, "aria-hidden": true });
    draw(mark, "use", { href: `#m${inked(ink).number}` });
  } else item.append(element("i", { class: "dash" }));
  item.append(name);
  return item;
};

// -- lines

const lines = (figure, spec) => {
  const width = figure.querySelector(".plot").clientWidth;
  const chosen = figure.closest("[data-axis]")?.dataset.axis;
  const place = Math.max(0, spec.x.findIndex((axis) => axis.key === chosen));
  const axis = spec.x[place], unit = { x: UNITS[axis.unit], y: UNITS[spec.y.unit] };
  const shown = spec.lines.map((line) => ({ ...line, points: line.points
    .filter((p) => p[place] !== null).map((p) => [p[place], p.at(-1)]) }));
  const points = shown.flatMap((line) => line.points);
  const clear = shown.filter((line) => !line.faint);
  const heights = (clear.length ? clear : shown).flatMap((line) =>
    [...line.points.map((p) => p[1]), ...line.band.flatMap((b) => b.slice(1))]);
  if (spec.limit) heights.push(spec.limit[1]);
  const height = Math.round(clamp(width * 0.46, 190, 400));
  const svg = canvas(figure, width, height, word("chart_lines", { count: spec.lines.length,
    names: spec.lines.map((line) => say(line.name)).join(", "),
    low: unit.y.full(Math.min(...heights)), high: unit.y.full(Math.max(...heights)) }));
  const up = new Scale(heights, spec.y, true).between(height - 30, 16);
  const labels = up.ticks().map(unit.y.tick);
  const ends = named(shown, up, width, height);
  const left = Math.max(40, 18 + Math.max(...labels.map(wide)));
  const edge = ends ? width - ends.room : width - 12, right = edge - 8;
  const across = new Scale(points.map((p) => p[0]), axis, false, width < 480 ? 5 : 8)
    .between(left + 8, right);

  let lowest = Infinity;
  up.ticks().forEach((tick, i) => {
    const y = up.at(tick);
    if (lowest - y < 15) return; // or the numbers would touch
    lowest = y;
    draw(svg, "line", { class: "rule", x1: left, x2: edge, y1: y, y2: y });
    draw(svg, "text", { x: left - 8, y: y + 4, "text-anchor": "end" }, labels[i]);
  });
  let last = -Infinity;
  for (const tick of axis.ticks.length ? axis.ticks : across.ticks()) {
    const text = unit.x.tick(tick), half = wide(text) / 2;
    const x = Math.min(across.at(tick), width - 4 - half);
    if (x - half < last + 8) continue;
    last = x + half;
    draw(svg, "text", { x, y: height - 10, "text-anchor": "middle" }, text);
  }
  if (spec.limit) {
    const y = up.at(spec.limit[1]);
    draw(svg, "line", { class: "limit", x1: left, x2: edge, y1: y, y2: y });
    draw(svg, "text", { class: "named", x: edge - 4, y: y - 6, "text-anchor": "end" },
      `${say(spec.limit[0])} ${unit.y.tick(spec.limit[1])}`);
  }
  const clip = `${svg.getAttribute("aria-labelledby")}-clip`;
  draw(draw(svg, "clipPath", { id: clip }), "rect", { x: left, y: 8, width: edge + 4 - left,
    height: height - 34 });
  const items = shown.flatMap((line, number) => drawnLine(svg, line, across, up, clip, unit,
    axis, number));
  for (const end of ends ? ends.names : []) {
    const { number } = inked(end.line.ink), mark = draw(svg, "g", { class: `i${number}` });
    draw(mark, "use", { href: `#m${number}`, x: edge + 6, y: end.y - 4.5, width: 9, height: 9 });
    draw(svg, "text", { class: "named end", x: edge + 19, y: end.y + 4 }, end.text);
  }
  const circle = draw(svg, "circle", { class: "here", r: 8, visibility: "hidden" });
  pointed(svg, items, (item) => {
    circle.setAttribute("visibility", item ? "visible" : "hidden");
    if (item) { circle.setAttribute("cx", item.x); circle.setAttribute("cy", item.y); }
  }, (item, way) => besides(items, item, way), REACH);
  below(figure, spec, axis, ends !== null);
};

// The names of lines beside their ends, apart from each other; null where a legend says them
// better: beside one line, on too small a picture.
const named = (shown, up, width, height) => {
  const groups = Map.groupBy(shown.filter((line) => !line.faint && line.points.length),
    (line) => say(line.group));
  const room = 28 + Math.max(0, ...[...groups.keys()].map(wide));
  const top = 16, bottom = height - 34;
  if (groups.size < 2 || room > width * 0.3 || groups.size * APART > bottom - top) return null;
  const names = [...groups].map(([text, [line, ...others]]) => {
    const last = [line, ...others].map((each) => up.at(each.points.at(-1)[1]));
    return { text, line, y: last.reduce((sum, y) => sum + y) / last.length };
  }).sort((a, b) => a.y - b.y);
  names.forEach((each, i) => { each.y = Math.max(each.y, i ? names[i - 1].y + APART : top); });
  names.toReversed().forEach((each, i, all) => {
    each.y = Math.min(each.y, i ? all[i - 1].y - APART : bottom);
  });
  return { names, room };
};

const drawnLine = (svg, line, across, up, clip, unit, axis, number) => {
  const { number: ink, again } = inked(line.ink), name = say(line.name);
  const group = draw(svg, "g", { class: `i${ink}`, "clip-path": `url(#${clip})` });
  const path = (places) => places.map(([x, y], i) =>
    `${i ? "L" : "M"}${across.at(x).toFixed(1)} ${up.at(y).toFixed(1)}`).join("");
  if (line.band.length) {
    const edge = [...line.band.map(([x, , high]) => [x, high]),
      ...line.band.toReversed().map(([x, low]) => [x, low])];
    draw(group, "path", { class: "band", d: `${path(edge)}Z` });
  }
  const kinds = ["line", ...(again ? ["again"] : []), ...(line.faint ? ["faint"] : []),
    ...(line.light ? ["light"] : [])];
  if (line.points.length > 1) draw(group, "path", { class: kinds.join(" "), d: path(line.points) });
  const marks = draw(svg, "g", { class: `i${ink}` });
  return line.points.map(([a, b], i) => {
    const x = across.at(a), y = up.at(b), end = i === line.points.length - 1;
    if (!line.faint && (line.points.length <= MARKED || end))
      draw(marks, "use", { href: `#m${ink}`, x: x - 4.5, y: y - 4.5, width: 9, height: 9 });
    const where = axis.unit === "seconds" ? "" : ` ${say(axis.name)}`;
    return { x, y, line: number, text: () =>
      [name, unit.y.full(b), `${unit.x.full(a)}${where}`].filter(Boolean).join("\n") };
  });
};

// The next point of a line, or the nearest of the line above or below.
const besides = (items, item, way) => {
  const own = items.filter((each) => each.line === item.line), place = own.indexOf(item);
  if (way === "ArrowLeft") return own[place - 1];
  if (way === "ArrowRight") return own[place + 1];
  const sign = way === "ArrowUp" ? -1 : 1, nearest = new Map();
  for (const each of items) {
    const known = nearest.get(each.line);
    if (!known || Math.abs(each.x - item.x) < Math.abs(known.x - item.x))
      nearest.set(each.line, each);
  }
  const order = [...nearest.values()].sort((a, b) => a.y - b.y || a.line - b.line);
  return order[order.findIndex((each) => each.line === item.line) + sign];
};

const below = (figure, spec, axis, named) => {
  const legend = figure.querySelector(".legend"), name = figure.querySelector(".below");
  const inks = new Map(spec.lines.filter((line) => line.faint || !named)
    .map((line) => [say(line.group), line]));
  const items = [...inks].map(([text, line]) => key(line.ink, text, line.faint ? "faint" : ""));
  if (spec.limit && !named) items.push(key(0, say(spec.limit[0])));
  const told = items.length === 1 && say(spec.title).includes([...inks.keys()][0]);
  legend.replaceChildren(...(told ? [] : items));
  name.textContent = say(axis.name);
};

// -- bars

const ROW = 30;
const bars = (figure, spec) => {
  const width = figure.querySelector(".plot").clientWidth, unit = UNITS[spec.x.unit];
  const known = spec.bars.filter((bar) => bar.value !== null), height = ROW * spec.bars.length + 38;
  const values = known.flatMap((bar) => [bar.value, bar.low, bar.high]);
  const svg = canvas(figure, width, height, word("chart_bars", { count: spec.bars.length }));
  const names = spec.bars.map((bar) => say(bar.name));
  const room = Math.min(width * 0.42, Math.max(...names.map(wide)) + 2), left = room + 20;
  const lone = values.length ? values : [0, 1];
  const scale = new Scale(spec.x.log ? [Math.min(...lone) / 2, ...lone] : lone, spec.x, true,
    width < 480 ? 4 : 6).between(left, width - 80);
  let last = -Infinity;
  for (const tick of scale.ticks()) {
    const x = scale.at(tick), text = unit.tick(tick), half = wide(text) / 2;
    draw(svg, "line", { class: "rule", x1: x, x2: x, y1: 10, y2: height - 28 });
    if (x - half < last + 8) continue;
    last = x + half;
    draw(svg, "text", { x, y: height - 10, "text-anchor": "middle" }, text);
  }
  const items = spec.bars.flatMap((bar, i) => {
    const y = 10 + ROW * i, middle = y + ROW / 2;
    draw(svg, "text", { class: "named", x: left - 8, y: middle + 4, "text-anchor": "end" },
      cut(names[i], room));
    const number = bar.value === null ? "–" : unit.tick(bar.value);
    draw(svg, "text", { class: "named", x: width - 70, y: middle + 4 }, number);
    if (bar.value === null) return [];
    const zero = spec.x.log ? scale.low : Math.max(0, scale.low);
    const from = scale.at(zero), to = scale.at(bar.value);
    draw(svg, "rect", { class: `bar i${inked(bar.ink).number}`, x: Math.min(from, to), y: y + 5,
      width: Math.max(1, Math.abs(to - from)), height: ROW - 10, rx: 3, "data-value": bar.value });
    draw(svg, "line", { class: "spread", x1: scale.at(bar.low), x2: scale.at(bar.high),
      y1: middle, y2: middle });
    return [{ x: to, y: middle, text: () => [names[i], unit.full(bar.value),
      ...(bar.low < bar.high ? [`${unit.full(bar.low)} … ${unit.full(bar.high)}`] : [])]
      .join("\n") }];
  });
  const circle = draw(svg, "circle", { class: "here", r: 8, visibility: "hidden" });
  pointed(svg, items, (item) => {
    circle.setAttribute("visibility", item ? "visible" : "hidden");
    if (item) { circle.setAttribute("cx", item.x); circle.setAttribute("cy", item.y); }
  }, (item, way) => items[items.indexOf(item) + (/Up|Left/.test(way) ? -1 : 1)], width);
  figure.querySelector(".below").textContent = say(spec.x.name);
};

// -- heat maps

// The ink that stands out more on a cell: on the light page until 76 % of the tone, on the dark one
// until 56 %.
const inkOn = (share) => share > 0.76 ? "strong" : share > 0.56 ? "middle" : "named";

const heat = (figure, spec) => {
  const width = figure.querySelector(".plot").clientWidth;
  const rows = spec.rows.map((name) => seen(say(name)));
  const columns = spec.columns.map((name) => seen(say(name)));
  const left = Math.min(width * 0.32, Math.max(...rows.map(wide)) + 10);
  const top = spec.headed ? Math.min(90, Math.max(...columns.map(wide)) + 10) : 1;
  const cell = Math.max(4, Math.floor(Math.min(46, (width - left - 2) / columns.length)));
  const svg = canvas(figure, width, top + cell * rows.length + 2,
    word("chart_heat", { rows: rows.length, columns: columns.length }));
  rows.forEach((name, i) => draw(svg, "text", { x: left - 6, y: top + cell * (i + 0.5) + 4,
    "text-anchor": "end" }, cut(name, left - 8)));
  const every = Math.ceil(13 / cell);
  columns.forEach((name, j) => {
    if (!spec.headed || j % every) return;
    const x = left + cell * (j + 0.5) + 4, y = top - 6;
    draw(svg, "text", { transform: `translate(${x} ${y}) rotate(-90)` }, cut(name, top - 8));
  });
  draw(svg, "rect", { class: "frame", x: left, y: top, width: cell * columns.length,
    height: cell * rows.length });
  const items = spec.values.flatMap((row, i) => row.map((value, j) => {
    const x = left + cell * j, y = top + cell * i;
    if (value) draw(svg, "rect", { class: "cell", x, y, width: cell, height: cell, "data-value":
      value, "fill-opacity": clamp(value / (spec.high || 1), 0, 1).toFixed(3) });
    return { x: x + cell / 2, y: y + cell / 2, i, j, text: () =>
      `${rows[i]} → ${columns[j]}\n${value === null ? "–" : value.toFixed(4)}` };
  }));
  const places = clamp(-Math.floor(Math.log10((spec.high || 1) * 0.999)) + 1, 0, 9);
  const numbers = spec.values.map((row) => row.map((v) => v === null ? "" : v.toFixed(places)));
  if (cell > 30 && numbers.flat().every((text) => wide(text) < cell))
    for (const { x, y, i, j } of items)
      draw(svg, "text", { class: inkOn(spec.values[i][j] / (spec.high || 1)), x, y: y + 4,
        "text-anchor": "middle" }, numbers[i][j]);
  const frame = draw(svg, "rect", { class: "here", width: cell, height: cell,
    visibility: "hidden" });
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  pointed(svg, items, (item) => {
    frame.setAttribute("visibility", item ? "visible" : "hidden");
    if (item) {
      frame.setAttribute("x", item.x - cell / 2);
      frame.setAttribute("y", item.y - cell / 2);
    }
  }, (item, way) => items.find((each) =>
    each.i === item.i + steps[way][0] && each.j === item.j + steps[way][1]), cell);
};

// Draws, or draws again; what is not seen (in a closed fold) is drawn when it is.
export const drawChart = (figure, spec) => {
  let plot = figure.querySelector(".plot");
  if (!plot) {
    plot = element("div", { class: "plot" });
    figure.append(element("ul", { class: "legend" }), plot, element("p", { class: "below" }));
  }
  if (!plot.clientWidth) return;
  const focused = plot.contains(document.activeElement);
  plot.replaceChildren();
  ({ lines, bars, heat })[spec.kind](figure, spec);
  if (focused) plot.querySelector("svg").focus({ preventScroll: true });
};
