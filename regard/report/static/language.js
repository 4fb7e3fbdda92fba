// English or Chinese: one switch for all that a page says.

import { data, remember } from "./dom.js";

const root = document.documentElement;
const listeners = [];

// A text is [English, Chinese], or one for both; {name} is filled in.
export const say = (text, values = {}) =>
  String(Array.isArray(text) ? text[root.lang === "en" ? 0 : 1] : text)
    .replace(/\{(\w+)\}/g, (all, name) => values[name] === undefined ? all : values[name]);
export const word = (key, values = {}) => say(data.words[key] || key, values);
export const onLanguage = (listener) => { listeners.push(listener); };

const button = document.getElementById("language");
const speak = (language) => {
  root.lang = language;
  document.title = say(data.title);
  button.textContent = word("language");
  button.lang = language === "en" ? "zh-Hans" : "en";
  button.title = word("language_hint");
  listeners.forEach((listener) => listener());
};

button.addEventListener("click", () => {
  speak(root.lang === "en" ? "zh-Hans" : "en");
  remember("regard-language", root.lang);
});

// To be called once all listeners are there.
export const begin = () => speak(root.lang);
