// Numbers: how they are written, and where they stand on a scale.

const digits = (value, count = 3) => String(Number(value.toPrecision(count)));
const short = (value) => {
  for (const [unit, letter] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= unit) return digits(value / unit) + letter;
  return digits(value);
};
const seconds = (v) => v >= 7200 ? `${digits(v / 3600)} h` : v >= 120 ? `${digits(v / 60)} min`
  : v >= 1 || v === 0 ? `${digits(v)} s` : v >= 1e-3 ? `${digits(v * 1e3)} ms`
  : `${digits(v * 1e6)} µs`;
const bytes = (v) => short(v).replace(/[kMGTP]?$/, " $&B");
const percent = (v) => `${digits(100 * v, 4)}%`;

// Of each unit: beside a scale, and where a single number is looked at.
export const UNITS = {
  number: { tick: (v) => Math.abs(v) >= 1e4 ? short(v) : Math.abs(v) >= 1e3
    ? Math.round(v).toLocaleString("en") : digits(v, 4), full: (v) => digits(v, 5) },
  count: { tick: (v) => Math.abs(v) < 1e4 && v % 1 === 0 && v % 1e3
    ? v.toLocaleString("en") : short(v), full: (v) => v.toLocaleString("en") },
  operations: { tick: short, full: short },
  seconds: { tick: seconds, full: seconds },
  bytes: { tick: bytes, full: bytes },
  percent: { tick: percent, full: percent },
};

const even = (low, high, count) => {
  const rough = (high - low) / count, unit = 10 ** Math.floor(Math.log10(rough));
  return unit * [1, 2, 5, 10].find((k) => unit * k >= rough * 0.999);
};
const multiples = (step, low, high) => {
  const places = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    places.push(Number((i * step).toPrecision(12)));
  return places;
};
const factors = (low, high) => {
  for (const kinds of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    let places = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
      for (const k of kinds) {
        const value = Number((k * 10 ** p).toPrecision(6));
        if (value >= low * 0.999 && value <= high * 1.001) places.push(value);
      }
    const every = Math.ceil(places.length / 8);
    if (places.length >= 3) return places.filter((_, i) => i % every === 0);
  }
  return multiples(even(low, high, 4), low, high);
};

// From numbers to pixels. `covered`: the scale ends at round numbers.
export class Scale {
  constructor(values, { log, zero, span }, covered = false, count = 5) {
    let low = Math.min(...values), high = Math.max(...values);
    if (span) [low, high] = span;
    if (zero && !log) low = Math.min(0, low);
    if (low === high) {
      [low, high] = log ? [low / 2, high * 2]
        : [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
    }
    if (log && covered) {
      const air = (high / low) ** 0.06;
      [low, high] = [low / air, high * air];
    } else if (covered) {
      const step = even(low, high, count - 1);
      low = Math.floor(low / step + 1e-9) * step;
      high = Math.ceil(high / step - 1e-9) * step;
      this.step = step;
    }
    Object.assign(this, { low, high, log, count });
  }
  between(from, to) { return Object.assign(this, { from, to }); }
  at(value) {
    const { low, high, from, to, log } = this;
    const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
  ticks() {
    const { low, high, log, step = even(low, high, this.count - 1) } = this;
    return log ? factors(low, high) : multiples(step, low, high);
  }
}
