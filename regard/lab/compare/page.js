// Language, pictures, and what a pointer or a key shows. Everything is drawn from the JSON that the
// page holds, and becomes text or numbers, never markup.
(() => {
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const root = document.documentElement, tip = document.getElementById('tip');
const NS = 'http://www.w3.org/2000/svg';
const $ = (selector) => [...document.querySelectorAll(selector)];
const word = (key) => data.words[root.dataset.language][key];

const node = (parent, name, attributes, text) => {
  const made = document.createElementNS(NS, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
};
const canvas = (host, width, height, label) => {
  host.replaceChildren();
  return node(host, 'svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img',
    tabindex: 0, 'aria-label': label });
};

// -- numbers

const digits = (value, count = 3) => String(Number(value.toPrecision(count)));
const short = (value) => {
  for (const [unit, letter] of [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']])
    if (Math.abs(value) >= unit) return digits(value / unit) + letter;
  return digits(value);
};
const shown = {
  seconds: (v) => v >= 7200 ? digits(v / 3600) + ' h' : v >= 120 ? digits(v / 60) + ' min'
    : v >= 1 || v === 0 ? digits(v) + ' s' : v >= 1e-3 ? digits(v * 1e3) + ' ms'
    : digits(v * 1e6) + ' µs',
  bytes: (v) => short(v).replace(/[kMGTP]?$/, ' $&B'),
  tokens: short, operations: short, length: (v) => String(v), value: (v) => digits(v, 4),
};
const exactly = {
  seconds: (v) => shown.seconds(v), bytes: (v) => shown.bytes(v),
  tokens: (v) => v.toLocaleString('en'), operations: (v) => short(v),
  length: (v) => v.toLocaleString('en'), value: (v) => digits(v, 5),
};

// -- ticks

const even = (low, high, count) => {
  const rough = (high - low) / count, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((k) => unit * k >= rough * 0.999), made = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    made.push(Number((i * step).toPrecision(12)));
  return made;
};
const factors = (low, high) => {
  for (const kinds of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const made = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
      for (const k of kinds) {
        const value = Number((k * 10 ** p).toPrecision(6));
        if (value >= low * 0.999 && value <= high * 1.001) made.push(value);
      }
    if (made.length >= 3) return made;
  }
  return even(low, high, 4);
};

class Axis {
  constructor(values, from, to, log, zero) {
    let low = Math.min(...values), high = Math.max(...values);
    if (zero) low = Math.min(0, low);
    if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
    else if (!zero) {
      const air = log ? (high / low) ** 0.05 : (high - low) * 0.06;
      [low, high] = log ? [low / air, high * air] : [low - air, high + air];
    }
    Object.assign(this, { low, high, from, to, log });
  }
  at(value) {
    const { low, high, from, to, log } = this;
    const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
  ticks(count) {
    return this.log ? factors(this.low, this.high) : even(this.low, this.high, count);
  }
}

// -- what is under the pointer, or chosen by keys

const say = (text, x, y) => {
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x - width / 2), innerWidth - width - 8);
  tip.style.left = left + 'px';
  tip.style.top = (y - height - 14 > 4 ? y - height - 14 : y + 18) + 'px';
};
const hush = () => { tip.hidden = true; };

const pointed = (svg, items, ring, limit) => {
  let chosen = -1;
  const choose = (i) => {
    chosen = i;
    const item = items[i], box = svg.getBoundingClientRect();
    ring(item);
    say(item.text(), box.left + item.x, box.top + item.y);
  };
  const leave = () => { chosen = -1; ring(null); hush(); };
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = limit * limit;
    items.forEach((item, i) => {
      const far = (item.x - x) ** 2 + (item.y - y) ** 2;
      if (far < least) { least = far; best = i; }
    });
    if (best < 0) leave(); else choose(best);
  });
  svg.addEventListener('pointerleave', leave);
  svg.addEventListener('blur', leave);
  svg.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { leave(); return; }
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[
      event.key];
    if (!way || !items.length) return;
    event.preventDefault();
    if (chosen < 0) { choose(0); return; }
    const now = items[chosen];
    let best = chosen, least = Infinity;
    items.forEach((item, i) => {
      const along = (item.x - now.x) * way[0] + (item.y - now.y) * way[1];
      const aside = Math.abs((item.x - now.x) * way[1]) + Math.abs((item.y - now.y) * way[0]);
      if (along > 0.5 && along + 2 * aside < least) { least = along + 2 * aside; best = i; }
    });
    choose(best);
  });
};

// -- lines

const inked = (model) => {
  const place = data.models.indexOf(model);
  return { number: place % 10 + 1, again: place >= 10 ? ' again' : '' };
};

const chart = (host, spec) => {
  const width = host.clientWidth;
  if (!width) return;
  const tall = Math.round(Math.min(Math.max(width * 0.5, 220), 400));
  const svg = canvas(host, width, tall, spec.label);
  const all = spec.lines.flatMap((line) => line.points);
  const ys = all.map((p) => p[1]).concat(spec.limit === null ? [] : [spec.limit]);
  const across = new Axis(all.map((p) => p[0]), 62, width - 20, spec.logX, !spec.logX);
  const up = new Axis(ys, tall - 30, 16, spec.logY, false);
  for (const tick of up.ticks(5)) {
    const y = up.at(tick);
    node(svg, 'line', { class: 'rule', x1: 62, x2: width - 12, y1: y, y2: y });
    node(svg, 'text', { x: 54, y: y + 4, 'text-anchor': 'end' }, shown[spec.y](tick));
  }
  let last = -Infinity;
  for (const tick of spec.xTicks || across.ticks(width < 480 ? 4 : 8)) {
    const x = across.at(tick);
    if (x - last < 44 || x > width - 10) continue;
    last = x;
    node(svg, 'text', { x, y: tall - 10, 'text-anchor': 'middle' }, shown[spec.x](tick));
  }
  if (spec.limit !== null) {
    const y = up.at(spec.limit);
    node(svg, 'line', { class: 'limit', x1: 62, x2: width - 12, y1: y, y2: y });
    node(svg, 'text', { class: 'named', x: width - 16, y: y - 6, 'text-anchor': 'end' },
      `${word('ngram')} ${shown.value(spec.limit)}`);
  }
  const items = [];
  for (const line of spec.lines) {
    const { number, again } = inked(line.model);
    const group = node(svg, 'g', { class: `i${number}` });
    const places = line.points.map((p) => [across.at(p[0]), up.at(p[1])]);
    if (places.length > 1) node(group, 'path', {
      class: `line${again}${line.seed > 1 ? ' more' : ''}`,
      d: places.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('') });
    const every = places.length <= 24;
    places.forEach(([x, y], i) => {
      if (every || i === places.length - 1)
        node(group, 'use', { href: `#m${number}`, x: x - 4.5, y: y - 4.5, width: 9, height: 9 });
      const [a, b] = line.points[i];
      items.push({ x, y, text: () => [line.model + (line.seed ? ` · ${word('seed')} ${line.seed}` :
        ''), exactly[spec.y](b), `${exactly[spec.x](a)} ${spec.x === 'seconds' ? '' :
        word(spec.x)}`.trim()].join('\n') });
    });
  }
  const circle = node(svg, 'circle', { class: 'here', r: 8, visibility: 'hidden' });
  pointed(svg, items, (item) => {
    circle.setAttribute('visibility', item ? 'visible' : 'hidden');
    if (item) { circle.setAttribute('cx', item.x); circle.setAttribute('cy', item.y); }
  }, 48);
};

const axes = ['seconds', 'tokens', 'operations'];
const panel = (host) => {
  const own = data.panels[host.dataset.panel], axis = host.closest('.charts').dataset.axis;
  const which = axes.indexOf(axis);
  const lines = own.lines.map((line) => ({ ...line, points: line.points
    .filter((p) => p[which] !== null).map((p) => [p[which], p[3]]) }));
  chart(host, { lines, x: axis, y: 'value', logX: false, logY: own.factors, limit: own.line,
    label: host.closest('figure').querySelector('figcaption').innerText });
};
const cost = (host) => {
  const key = host.dataset.cost;
  const lines = data.models.filter((model) => data.costs.curves[model]).map((model) => ({ model,
    seed: 0, points: data.costs.curves[model].map((p) => [p.length, p[key]]) }));
  chart(host, { lines, x: 'length', y: key, logX: true, logY: true, limit: null,
    xTicks: data.costs.lengths,
    label: host.closest('figure').querySelector('figcaption').innerText });
};

// -- attention

const visible = (token) => token.trim() === '' ? '␣' : token.trim().replace(/\s+/g, '␣');
const heat = (host) => {
  const width = host.clientWidth;
  if (!width) return;
  const own = data.attention[host.dataset.model], layer = own.layers[host.dataset.layer];
  const count = own.tokens.length, left = Math.min(86, width * 0.32);
  const cell = Math.max(4, Math.floor((width - left - 2) / count));
  const svg = canvas(host, width, cell * count + 2, `${own.model}, ${layer.name}`);
  const most = Math.max(4 / count, ...layer.weights.flat()), items = [];  // even stays pale
  own.tokens.forEach((token, i) => {
    const letters = [...visible(token)], room = Math.floor(left / (
      letters.some((c) => c > '\u2e80') ? 12 : 7));
    node(svg, 'text', { x: left - 6, y: cell * (i + 0.5) + 5, 'text-anchor': 'end' },
      letters.length > room ? letters.slice(0, room - 1).join('') + '…' : letters.join(''));
  });
  node(svg, 'rect', { class: 'frame', x: left, y: 1, width: cell * count, height: cell * count });
  layer.weights.forEach((row, i) => row.forEach((weight, j) => {
    const x = left + cell * j, y = 1 + cell * i;
    if (weight > 0) node(svg, 'rect', { x, y, width: cell, height: cell,
      'fill-opacity': (weight / most).toFixed(3), 'data-weight': weight });
    items.push({ x: x + cell / 2, y: y + cell / 2, text: () =>
      `${visible(own.tokens[i])} → ${visible(own.tokens[j])}\n${weight.toFixed(4)}` });
  }));
  const frame = node(svg, 'rect', { class: 'here', width: cell, height: cell,
    visibility: 'hidden' });
  pointed(svg, items, (item) => {
    frame.setAttribute('visibility', item ? 'visible' : 'hidden');
    if (item) { frame.setAttribute('x', item.x - cell / 2);
      frame.setAttribute('y', item.y - cell / 2); }
  }, cell);
};

// -- everything

const kinds = [['[data-panel]', panel], ['[data-cost]', cost], ['.heat', heat]];
const draw = () => { for (const [selector, make] of kinds) $(selector).forEach(make); };

const button = document.getElementById('language');
const speak = (language) => {
  root.dataset.language = language;
  root.lang = language === 'zh' ? 'zh-Hans' : 'en';
  document.title = data.title[language];
  const other = language === 'zh' ? 'English' : '中文';
  button.textContent = other;
  button.setAttribute('aria-label', other);
  button.lang = language === 'zh' ? 'en' : 'zh-Hans';
  hush();
  draw();
};
button.addEventListener('click', () => speak(root.dataset.language === 'zh' ? 'en' : 'zh'));
$('[name=axis]').forEach((choice) => choice.addEventListener('change', () => {
  choice.closest('section').querySelector('.charts').dataset.axis = choice.value;
  $('[data-panel]').forEach(panel);
}));
let wide = innerWidth;
addEventListener('resize', () => { if (innerWidth !== wide) { wide = innerWidth; draw(); } });
addEventListener('scroll', hush, { passive: true });
speak((navigator.language || 'en').toLowerCase().startsWith('zh') ? 'zh' : 'en');
})();
