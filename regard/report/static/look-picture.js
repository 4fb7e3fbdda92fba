// Pictures: one head as arcs between two columns of tokens, or as a matrix
//
// `base` draws the weights (kept while only the focus moves), `over` tokens and focus. Both draw
// what lies in `eye`, a window {x, y, width, height} into the whole picture, and nothing else.

import { clamp } from "./dom.js";
import { word } from "./language.js";
import { FONT } from "./look-surface.js";

const PAD = 6;
const LINES = 480; // arcs drawn at a time: of each row in view its strongest
const SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉";
export const MARKS = ["memory", "global", "branch", "entity", "start", "special"];
const ruler = document.createElement("canvas").getContext("2d");
const segmenter = window.Intl && Intl.Segmenter ? new Intl.Segmenter() : null;
const letters = (text) =>
  segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : Array.from(text);

export const nameOf = (token) => {
  const part = token.p ? [...String(token.p[0])].map((d) => SUBSCRIPTS[+d]).join("") : "";
  return token.t + part + (token.r ? ` #${token.r}` : "");
};
const widthOf = (text, size) => {
  ruler.font = `${size}px ${FONT}`;
  return ruler.measureText(text).width;
};
const cuts = new Map();
const cut = (text, width, size) => {
  const key = `${size} ${Math.round(width)} ${text}`;
  if (!cuts.has(key)) {
    let shown = text;
    const parts = letters(text);
    while (parts.length > 1 && widthOf(shown, size) > width) {
      parts.pop();
      shown = parts.join("") + "…";
    }
    if (cuts.size > 20000) cuts.clear();
    cuts.set(key, shown);
  }
  return cuts.get(key);
};
const widths = new WeakMap(); // of lists of tokens, by size
const widest = (tokens, size) => {
  const known = widths.get(tokens) || widths.set(tokens, {}).get(tokens);
  if (!known[size]) {
    const long = tokens.map(nameOf).sort((a, b) => b.length - a.length).slice(0, 40);
    known[size] = Math.max(8, ...long.map((text) => widthOf(text, size)));
  }
  return known[size];
};

class Picture {
  constructor(head, rows, columns, kind) {
    Object.assign(this, { head, rows, columns });
    this.past = kind === "cross" ? 0 : Math.max(0, columns.length - rows.length);
    if (kind === "query") this.past = columns.filter((t) => (t.m || []).includes("memory")).length;
  }
  shade(weight) {
    return Math.sqrt(Math.min(1, weight / this.head.scale()));
  }
  token(surface, token, x, y, width, colors, { align, size, focus, turn = 0 }) {
    const mark = MARKS.find((name) => (token.m || []).includes(name));
    const color = mark ? colors[mark] : colors.ink;
    const text = cut(nameOf(token), focus ? width - 8 : width, size);
    surface.text(text, x, y, focus ? colors.accent : color, { align, size, bold: focus, turn });
  }
}

export class Arcs extends Picture {
  layout(width, zoom) {
    this.height = zoom || 24;
    this.size = clamp(Math.round(this.height * 0.62), 9, 15);
    this.top = 26;
    this.side = Math.min(width * 0.34, 150);
    this.left = Math.max(48, Math.min(this.side, widest(this.rows, this.size) + 14));
    this.right = Math.max(64, Math.min(this.side, widest(this.columns, this.size) + 14));
    const across = Math.min(width, this.left + this.right + 640);
    this.width = across;
    const count = Math.max(this.rows.length + this.past, this.columns.length);
    return { width: across, height: this.top + count * this.height + PAD };
  }
  rowAt(row, eye) { return this.top + (row + this.past + 0.5) * this.height - eye.y; }
  columnAt(column, eye) { return this.top + (column + 0.5) * this.height - eye.y; }
  span(eye, shift, count) {
    const first = Math.floor((eye.y) / this.height) - shift;
    const last = Math.ceil((eye.y + eye.height - this.top) / this.height) - shift;
    return [clamp(first, 0, count), clamp(last, 0, count)];
  }
  line(surface, row, column, weight, eye, color, strength, full = this.head.scale()) {
    const part = Math.min(1, weight / full);
    surface.curve(this.left, this.rowAt(row, eye), this.width - this.right,
      this.columnAt(column, eye), color, part * strength, 0.5 + 2.7 * part);
  }
  base(surface, eye, colors, strength = 0.75) {
    const [first, last] = this.span(eye, this.past, this.rows.length);
    const most = clamp(Math.round(LINES / (last - first + 1)), 6, 64);
    this.head.open();
    surface.clip(0, this.top, eye.width, eye.height - this.top, () => {
      for (let row = first; row < last; row++) {
        const seen = [];
        this.head.each(row, (key, weight) => {
          if (this.shade(weight) > 0.1) seen.push([key, weight]);
        });
        seen.sort((a, b) => b[1] - a[1]).splice(most);
        for (const [key, weight] of seen.reverse()) {
          const y = this.columnAt(key, eye), away = y < this.top || y > eye.height;
          this.line(surface, row, key, weight, eye, colors.weight, strength * (away ? 0.25 : 1));
        }
      }
    });
  }
  over(surface, eye, colors, focus) {
    const { row, column } = focus, most = row === null ? 1 : this.head.strongest(row) || 1;
    const end = this.width - this.right;
    surface.clip(0, this.top, eye.width, eye.height - this.top, () => {
      if (row !== null) {
        this.head.each(row, (key, weight) => {
          if (weight > 0.01 * most)
            this.line(surface, row, key, weight, eye, colors.accent, 1, most);
        });
      } else if (column !== null) {
        const [first, last] = this.span(eye, this.past, this.rows.length);
        for (let r = first; r < last; r++) {
          const weight = this.head.value(r, column);
          if (weight > 0) this.line(surface, r, column, weight, eye, colors.accent, 1);
        }
      }
      let [first, last] = this.span(eye, this.past, this.rows.length);
      for (let r = first; r < last; r++)
        this.token(surface, this.rows[r], this.left - 6, this.rowAt(r, eye), this.left - 12,
          colors, { align: "right", size: this.size, focus: r === row });
      [first, last] = this.span(eye, 0, this.columns.length);
      for (let c = first; c < last; c++) {
        if (row !== null) {
          const weight = this.head.value(row, c);
          surface.rect(end + 2, this.columnAt(c, eye) - this.height * 0.42, this.right - 4,
            this.height * 0.84, colors.accent, 0.35 * Math.sqrt(weight / most));
        }
        this.token(surface, this.columns[c], end + 6, this.columnAt(c, eye), this.right - 12,
          colors, { align: "left", size: this.size, focus: c === column });
      }
    });
    surface.text(cut(word("asking"), this.left - 8, 11), this.left - 6, 13, colors.soft,
      { align: "right", size: 11 });
    surface.text(cut(word("read"), this.right - 8, 11), end + 6, 13, colors.soft, { size: 11 });
  }
  hit(x, y, eye) {
    if (y < this.top) return null;
    const place = Math.floor((y - this.top + eye.y) / this.height);
    if (x <= (this.left + this.width - this.right) / 2) {
      const row = place - this.past;
      return row >= 0 && row < this.rows.length ? { row, column: null } : null;
    }
    return place >= 0 && place < this.columns.length ? { row: null, column: place } : null;
  }
  show(row, column) {
    const place = row !== null ? row + this.past : column;
    return { top: place * this.height, bottom: this.top + (place + 1) * this.height + PAD };
  }
}

export class Matrix extends Picture {
  layout(width, zoom, numbers) {
    const most = Math.min(130, width * 0.3);
    this.left = Math.min(most, widest(this.rows, 13) + 14);
    this.top = Math.min(110, widest(this.columns, 13) + 16);
    const fit = (width - this.left - PAD) / Math.max(1, this.columns.length);
    this.cell = zoom || Math.min(fit, 40);
    if (numbers) this.cell = Math.max(this.cell, 38);
    return {
      width: this.left + this.columns.length * this.cell + PAD,
      height: this.top + this.rows.length * this.cell + PAD,
    };
  }
  span(start, size, shift, count) {
    const first = Math.floor(start / this.cell);
    return [clamp(first, 0, count), clamp(Math.ceil((start + size - shift) / this.cell), 0, count)];
  }
  visible(eye) {
    return [...this.span(eye.y, eye.height, this.top, this.rows.length),
      ...this.span(eye.x, eye.width, this.left, this.columns.length)];
  }
  base(surface, eye, colors, strength = 1) {
    const [r1, r2, c1, c2] = this.visible(eye), cell = this.cell;
    const x = this.left - eye.x, y = this.top - eye.y;
    this.head.open();
    surface.clip(this.left, this.top, eye.width - this.left, eye.height - this.top, () => {
      if (cell >= 2) {
        const gap = cell > 8 ? 1 : 0;
        for (let r = r1; r < r2; r++)
          this.head.each(r, (c, weight) => {
            if (c < c1 || c >= c2) return;
            const shade = this.shade(weight);
            if (shade > 0.02)
              surface.rect(x + c * cell, y + r * cell, cell - gap, cell - gap, colors.weight,
                shade * strength);
          });
        return;
      }
      const size = Math.ceil(2 / cell), { across, made } = this.head.pool(size), big = size * cell;
      for (let i = 0; i < made.length; i++) {
        const shade = this.shade(made[i]);
        if (shade < 0.02) continue;
        surface.rect(x + (i % across) * big, y + Math.floor(i / across) * big, big, big,
          colors.weight, shade * strength);
      }
    });
  }
  over(surface, eye, colors, focus, numbers) {
    const [r1, r2, c1, c2] = this.visible(eye), cell = this.cell, { row, column } = focus;
    const x = this.left - eye.x, y = this.top - eye.y;
    const right = Math.min(eye.width, x + this.columns.length * cell);
    const bottom = Math.min(eye.height, y + this.rows.length * cell);
    surface.frame(this.left - 0.5, this.top - 0.5, right - this.left + 0.5, bottom - this.top + 0.5,
      colors.rule);
    surface.clip(this.left, this.top, eye.width - this.left, eye.height - this.top, () => {
      const thick = Math.max(cell, 1.5);
      if (row !== null)
        surface.rect(this.left, y + row * cell, right - this.left, thick, colors.accent, 0.16);
      if (column !== null)
        surface.rect(x + column * cell, this.top, thick, bottom - this.top, colors.accent, 0.16);
      if (row !== null && column !== null && cell > 4)
        surface.frame(x + column * cell, y + row * cell, cell - 1, cell - 1, colors.accent, 2);
      if (numbers && cell >= 34) this.numbers(surface, r1, r2, c1, c2, x, y, colors);
    });
    const size = clamp(Math.round(cell * 0.75), 10, 13), step = Math.ceil(13 / cell);
    const middle = cell / 2 - (cell > 8 ? 0.5 : 0);
    surface.clip(0, this.top - 7, this.left, eye.height - this.top + 7, () => {
      for (let r = r1 - r1 % step; r < r2; r += step) {
        if (row !== null && r !== row && Math.abs(r - row) * cell < 12) continue;
        this.token(surface, this.rows[r], this.left - 7, y + r * cell + middle, this.left - 12,
          colors, { align: "right", size, focus: r === row });
      }
      if (row !== null && row % step)
        this.token(surface, this.rows[row], this.left - 7, y + row * cell + middle, this.left - 12,
          colors, { align: "right", size, focus: true });
    });
    surface.clip(this.left - 7, 0, eye.width - this.left + 7, this.top, () => {
      const draw = (c) => this.token(surface, this.columns[c], x + c * cell + middle, this.top - 7,
        this.top - 10, colors, { align: "left", size, focus: c === column, turn: -90 });
      for (let c = c1 - c1 % step; c < c2; c += step)
        if (column === null || c === column || Math.abs(c - column) * cell >= 12) draw(c);
      if (column !== null && column % step) draw(column);
    });
  }
  numbers(surface, r1, r2, c1, c2, x, y, colors) {
    for (let r = r1; r < r2; r++)
      this.head.each(r, (c, weight) => {
        if (c < c1 || c >= c2) return;
        const color = this.shade(weight) > 0.6 ? colors.ground : colors.ink;
        surface.text(weight.toFixed(3), x + (c + 0.5) * this.cell, y + (r + 0.5) * this.cell,
          color, { align: "center", size: 11 });
      });
  }
  hit(x, y, eye) {
    const row = Math.floor((y - this.top + eye.y) / this.cell);
    const column = Math.floor((x - this.left + eye.x) / this.cell);
    const across = x >= this.left && column < this.columns.length;
    const down = y >= this.top && row < this.rows.length;
    if (!across && !down) return null;
    return { row: down ? row : null, column: across ? column : null };
  }
  show(row, column) {
    const made = {};
    if (row !== null) {
      made.top = row * this.cell;
      made.bottom = this.top + (row + 1) * this.cell + PAD;
    }
    if (column !== null) {
      made.left = column * this.cell;
      made.right = this.left + (column + 1) * this.cell + PAD;
    }
    return made;
  }
}
