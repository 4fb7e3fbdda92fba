// Runs before anything is seen: the language and the colors of the reader. No module, for modules
// wait until the page is read.
(() => {
  "use strict";
  const recall = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
  const root = document.documentElement;
  const language = recall("regard-language") || navigator.language || "en";
  root.lang = /^zh/i.test(language) ? "zh-Hans" : "en";
  const theme = recall("regard-theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
})();
