// Data: weights as they were packed, opened when they are first needed.

export const bytesOf = (text) => {
  const raw = atob(text), made = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) made[i] = raw.charCodeAt(i);
  return made;
};
const TYPES = { f4: Float32Array, u2: Uint16Array, u1: Uint8Array };
const LARGEST = { f4: 1, u2: 65535, u1: 255 };

// Rows of weights, all of the same width; each row may have its own largest one.
class Table {
  constructor(kind, text, rows, width) {
    const bytes = bytesOf(text), before = kind === "f4" ? 0 : 4 * rows;
    this.width = width;
    this.most = kind === "f4" ? null : new Float32Array(bytes.buffer, 0, rows);
    this.values = new TYPES[kind](bytes.buffer, before, rows * width);
    this.unit = LARGEST[kind];
  }
  at(row, column) {
    const value = this.values[row * this.width + column];
    return this.most ? value * this.most[row] / this.unit : value;
  }
  largest() {
    return (this.most || this.values).reduce((a, b) => Math.max(a, b), 0);
  }
}

// The matrix of one head: `each(row, see)` calls see(key, weight) for what a row sees.
export class Head {
  constructor(packed, rows, keys) {
    Object.assign(this, { packed, rows, keys, opened: false, pools: new Map() });
  }
  open() {
    if (this.opened) return this;
    const p = this.packed;
    this.opened = true;
    if (p.a === "top") {
      const bytes = bytesOf(p.d), n = this.rows;
      this.most = new Float32Array(bytes.buffer, 0, n);
      this.others = new Float32Array(bytes.buffer, 4 * n, n);
      this.places = new Uint16Array(bytes.buffer, 8 * n, n * p.k);
      this.parts = new Uint8Array(bytes.buffer, (8 + 2 * p.k) * n, n * p.k);
      this.largest = this.most.reduce((a, b) => Math.max(a, b), 0);
      return this;
    }
    if (p.band) {
      [this.before, this.after, this.step, this.far] = p.band;
      this.whole = new Map((p.r || []).map((row, i) => [row, i]));
      this.wholeRows = p.r ? new Table(p.a, p.w, p.r.length, this.keys) : null;
    }
    const width = p.band ? this.far.length + this.before + this.after + 1 : this.keys;
    this.table = new Table(p.a, p.d, this.rows, width);
    this.largest = this.table.largest();
    if (this.wholeRows) this.largest = Math.max(this.largest, this.wholeRows.largest());
    return this;
  }
  // What full color stands for: the largest weight of nine rows in ten, so that rows with little
  // to choose from (the first of a causal model) do not make all others pale; and at least four
  // times an even share, so that a head without a choice does not look like one that made it.
  scale() {
    if (this.full === undefined) {
      const step = Math.ceil(this.rows / 256), found = [];
      let seen = 0;
      for (let row = 0; row < this.rows; row += step) {
        found.push(this.strongest(row));
        if (this.rest(row) > 0) seen += this.keys;
        else this.each(row, () => { seen += 1; });
      }
      const even = found.length / Math.max(1, seen);
      found.sort((a, b) => a - b);
      const most = found[Math.floor(0.9 * (found.length - 1))] || this.open().largest || 1;
      this.full = Math.max(most, Math.min(1, 4 * even));
    }
    return this.full;
  }
  strongest(row) {
    let most = 0;
    this.each(row, (_, weight) => { most = Math.max(most, weight); });
    return most;
  }
  each(row, see) {
    this.open();
    const p = this.packed;
    if (p.a === "top") {
      for (let i = row * p.k; i < (row + 1) * p.k; i++)
        if (this.parts[i]) see(this.places[i], this.parts[i] * this.most[row] / 255);
    } else if (p.band && this.whole.has(row)) {
      const own = this.whole.get(row);
      for (let k = 0; k < this.keys; k++) this.tell(this.wholeRows.at(own, k), k, see);
    } else if (p.band) {
      const far = this.far.length;
      for (let c = 0; c < far; c++) this.tell(this.table.at(row, c), this.far[c], see);
      const first = row - this.before * this.step;
      for (let c = far, k = first; c < this.table.width; c++, k += this.step)
        if (k >= 0 && k < this.keys) this.tell(this.table.at(row, c), k, see);
    } else {
      for (let k = 0; k < this.keys; k++) this.tell(this.table.at(row, k), k, see);
    }
  }
  tell(weight, key, see) {
    if (weight > 0) see(key, weight);
  }
  value(row, key) {
    this.open();
    const p = this.packed;
    if (p.a === "top") {
      for (let i = row * p.k; i < (row + 1) * p.k; i++)
        if (this.places[i] === key && this.parts[i]) return this.parts[i] * this.most[row] / 255;
      return 0;
    }
    if (!p.band) return this.table.at(row, key);
    if (this.whole.has(row)) return this.wholeRows.at(this.whole.get(row), key);
    const far = this.far.indexOf(key), away = (key - row) / this.step;
    const near = Number.isInteger(away) && away >= -this.before && away <= this.after;
    return (far < 0 ? 0 : this.table.at(row, far)) +
      (near ? this.table.at(row, this.far.length + this.before + away) : 0);
  }
  // A weight that was left out is not nothing: what it is at most, or null where all are kept.
  bound(row, key) {
    if (this.rest(row) <= 0.0005 || this.value(row, key) > 0) return null;
    let least = this.others[row];
    this.each(row, (_, weight) => { least = Math.min(least, weight); });
    return least;
  }
  rest(row) {
    this.open();
    return this.others ? this.others[row] : 0;
  }
  // The strongest weight of each square of `size` rows and columns.
  pool(size) {
    if (!this.pools.has(size)) {
      const across = Math.ceil(this.keys / size), down = Math.ceil(this.rows / size);
      const made = new Float32Array(across * down);
      for (let row = 0; row < this.rows; row++) {
        const start = Math.floor(row / size) * across;
        this.each(row, (key, weight) => {
          const i = start + Math.floor(key / size);
          if (weight > made[i]) made[i] = weight;
        });
      }
      this.pools.set(size, { across, down, made });
    }
    return this.pools.get(size);
  }
}
