// How a model was trained: the figures and curves of its run, and its card.

import { element } from "./dom.js";
import { onLanguage, say } from "./language.js";
import { drawAll, figure } from "./serve-charts.js";
import { ask } from "./serve-client.js";
import { clean, told } from "./serve-words.js";

// The few forms of Markdown that a model card has, as elements; all else stays text.
// A link leads away from this page: its address is said, not followed.
const unlinked = (text) => text.replace(/\[([^\]]+)\]\(([^)\s]+)\)/g,
  (all, name, place) => (name === place ? name : `${name} (${place})`));
const inline = (text) => unlinked(clean(text)).split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) =>
  /^`.+`$/.test(part) ? element("code", {}, part.slice(1, -1))
    : /^\*\*.+\*\*$/.test(part) ? element("b", {}, part.slice(2, -2)) : part);
const cellsOf = (line) => line.replace(/^\||\|\s*$/g, "").split(/(?<!\\)\|/)
  .map((cell) => cell.trim().replaceAll("\\|", "|"));
const tableOf = (lines) => {
  const rows = lines.filter((line) => !/^\|[\s:|-]+$/.test(line)).map(cellsOf);
  const row = (cells, name) => element("tr", {}, ...cells.map((cell) =>
    element(name, {}, ...inline(cell))));
  return element("div", { class: "wide", tabindex: 0 }, element("table", {},
    element("thead", {}, row(rows[0] || [], "th")),
    element("tbody", {}, ...rows.slice(1).map((cells) => row(cells, "td")))));
};
const kindOf = (line) => line.startsWith("|") ? "table" : /^[-*] /.test(line) ? "list"
  : line.trim() ? "text" : "";

const card = (text) => {
  const parts = [], lines = text.split("\n");
  for (let i = 0; i < lines.length;) {
    const head = /^(#+) (.*)/.exec(lines[i]), fence = /^(`{3,})/.exec(lines[i]);
    let end = i + 1;
    if (fence) {
      while (end < lines.length && !lines[end].startsWith(fence[1])) end++;
      parts.push(element("pre", { tabindex: 0 }, clean(lines.slice(i + 1, end).join("\n"))));
      i = end + 1;
      continue;
    }
    if (head) {
      parts.push(element("h4", {}, ...inline(head[2])));
      i = end;
      continue;
    }
    const kind = kindOf(lines[i]);
    while (end < lines.length && kindOf(lines[end]) === kind && !/^(#+ |```)/.test(lines[end]))
      end++;
    const block = lines.slice(i, end);
    if (kind === "table") parts.push(tableOf(block));
    if (kind === "list") parts.push(element("ul", {}, ...block.map((line) =>
      element("li", {}, ...inline(line.slice(2))))));
    if (kind === "text") parts.push(element("p", {}, ...inline(block.join(" "))));
    i = end;
  }
  return parts;
};

export class Run {
  constructor(box) {
    Object.assign(this, { box, story: null });
    onLanguage(() => this.show());
  }
  async put(model) {
    const story = await ask(`/run?model=${encodeURIComponent(model)}`);
    this.story = story;
    this.show();
  }
  show() {
    if (!this.story) return;
    const { verdict, paper, figures, charts, card: text } = this.story;
    const rows = figures.map(([name, value]) => element("div", {},
      element("dt", {}, say(name)), element("dd", {}, clean(say(value)))));
    const drawn = Object.entries(charts).map(([name, spec]) => {
      const node = figure(spec);
      node.dataset.chart = name;
      return node;
    });
    const nothing = verdict || text ? [] : [told("p", { class: "soft" }, "no_run")];
    const fold = text ? [element("details", { class: "card-of" }, told("summary", {}, "card"),
      ...card(text))] : [];
    this.box.replaceChildren(...nothing,
      ...(verdict ? [element("p", {}, clean(say(verdict)))] : []),
      ...(paper ? [element("p", { class: "soft small" }, clean(say(paper)))] : []),
      ...(rows.length ? [element("dl", { class: "facts" }, ...rows)] : []),
      element("div", { class: "charts" }, ...drawn), ...fold);
    drawAll();
  }
}
