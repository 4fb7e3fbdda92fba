// Parts that say something in the language of the page, also after it has changed; and what others
// wrote, made harmless.

import { all, data, element } from "./dom.js";
import { onLanguage, say, word } from "./language.js";

const known = new WeakMap(); // what a part says: as its text (""), or as an attribute
const filled = (values) => Object.fromEntries(Object.entries(values)
  .map(([name, value]) => [name, typeof value === "function" ? value() : value]));
const speak = (node) => {
  for (const [place, [key, values]] of known.get(node)) {
    const text = word(key, filled(values));
    if (place) node.setAttribute(place, text); else node.textContent = text;
  }
};
onLanguage(() => all("[data-told]").forEach(speak));

export const tell = (node, key, values = {}, place = "") => {
  if (!known.has(node)) known.set(node, new Map());
  known.get(node).set(place, [key, values]);
  node.dataset.told = "";
  speak(node);
  return node;
};
export const told = (name, attributes, key, values = {}) =>
  tell(element(name, attributes), key, values);

// A sentence in both languages, for a chart.
export const both = (key, values = {}) =>
  [0, 1].map((i) => say((data.words[key] || [key, key])[i], values));

// Control characters, and those that turn the direction of writing, are made visible.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
export const clean = (text) => String(text).replace(HIDDEN, (c) =>
  c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : "\ufffd");
// The same in JSON and in Python, which read such an escape back.
export const escaped = (text) => text.replace(HIDDEN, (c) =>
  `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
export const short = (text, most = 48) => {
  const letters = [...clean(text).replace(/\s+/g, " ").trim()];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
};
export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 2 : 1)}%`;
