// Light or dark: as the reader's system is, until the reader says otherwise.

import { remember } from "./dom.js";
import { word, onLanguage } from "./language.js";

const root = document.documentElement;
const listeners = [];
const system = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
export const onTheme = (listener) => { listeners.push(listener); };

// A color of the palette as numbers: red, green, blue.
const sample = document.createElement("i");
export const color = (name) => {
  if (!sample.isConnected) { sample.hidden = true; document.body.append(sample); }
  sample.style.color = `var(--${name})`;
  return getComputedStyle(sample).color.match(/[\d.]+/g).slice(0, 3).map(Number);
};

const button = document.getElementById("theme");
const tell = () => {
  button.textContent = isDark() ? "☀" : "☾";
  const hint = word(isDark() ? "to_light" : "to_dark");
  button.title = hint;
  button.setAttribute("aria-label", hint);
};
const change = () => { tell(); listeners.forEach((listener) => listener()); };

button.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  remember("regard-theme", root.dataset.theme);
  change();
});
system.addEventListener("change", change);
onLanguage(tell);
