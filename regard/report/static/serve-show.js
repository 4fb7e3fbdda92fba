// Answers that come as a whole: classes, tags, marked passages, choices, blanks, vectors.

import { element } from "./dom.js";
import { bars, heat } from "./serve-charts.js";
import { both, clean, percent, short, tell, told } from "./serve-words.js";

const text = (name, words, attributes = {}) =>
  element(name, { dir: "auto", ...attributes }, clean(words));
const number = (value) => String(Number(value.toPrecision(4)));

// A candidate with its probability, which can be pressed.
export const option = (words, share, { on, ...attributes } = {}) => {
  const bar = element("i", { class: "bar" });
  bar.style.width = `${Math.max(1, 100 * share)}%`;
  return element("button", { type: "button", class: "option", ...attributes, on },
    text("span", words), element("span", { class: "number" }, percent(share)), bar);
};
// Candidates as [words, probability]: what is read for the pressed one is shown below the answer.
const candidates = (title, rows, best, pick) => {
  const buttons = rows.map(([words, share], i) => option(words, share,
    { "aria-pressed": String(i === best), on: { click: () => press(i) } }));
  const press = (i) => {
    buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(i === j)));
    pick(i);
  };
  const group = element("div", { class: "options ranked", role: "group" }, ...buttons);
  tell(group, title, {}, "aria-label");
  return element("div", {}, told("h4", {}, title), group,
    told("p", { class: "soft small" }, "press_candidate"));
};
const headed = (words, share) => element("p", { class: "answer" }, text("strong", words), " ",
  element("span", { class: "soft number" }, percent(share)));

export const classify = ({ value, score, scores }) => {
  const rows = scores && !Array.isArray(scores)
    ? Object.entries(scores).map(([label, share]) => [clean(label), share])
      .sort((a, b) => b[1] - a[1]) : [];
  if (!rows.length && typeof value === "number") return [element("p", { class: "answer" },
    element("strong", {}, number(value)), " ",
    told("span", { class: "soft" }, "similarity"))];
  if (!rows.length) return [text("p", value, { class: "answer" })];
  const labels = Array.isArray(value) ? value.join(", ") || "–" : value;
  const head = score === null || Array.isArray(value)
    ? element("p", { class: "answer" }, text("strong", labels)) : headed(labels, score);
  return [head, bars(both("probabilities"), rows, "percent", 1)];
};

// Spans of words, each kind in its own ink.
export const tag = ({ words, tags, entities }) => {
  const kinds = [...new Set(entities.map((entity) => entity.kind))].sort();
  const ink = (kind) => kinds.indexOf(kind) % 10 + 1;
  const marked = element("p", { class: "written spans", dir: "auto" });
  for (let i = 0; i < words.length; i++) {
    const entity = entities.find(({ first }) => first === i);
    if (i) marked.append(" ");
    if (!entity) { marked.append(clean(words[i])); continue; }
    marked.append(element("mark", { class: `i${ink(entity.kind)}`, "data-kind": entity.kind },
      element("span", {}, clean(words.slice(i, entity.last + 1).join(" "))),
      element("small", {}, clean(entity.kind))));
    i = entity.last;
  }
  const rows = words.map((each, i) => element("tr", {}, text("th", each, { scope: "row" }),
    text("td", tags[i])));
  const table = element("details", {}, told("summary", {}, "all_tags"),
    element("div", { class: "wide", tabindex: 0 }, element("table", { class: "pairs" },
      element("tbody", {}, ...rows))));
  const none = entities.length ? [] : [told("p", { class: "soft" }, "no_entities")];
  return [marked, ...none, table];
};

export const answer = ({ value, score, scores }, { passage }) => {
  const candidates = scores && scores.candidates ? scores.candidates : [];
  const letters = [...passage]; // places are counted in characters, as Python does
  const known = candidates.find((candidate) => candidate[0] === value);
  const part = (from, to) => clean(letters.slice(from, to).join(""));
  const marked = element("p", { class: "written spans", dir: "auto" });
  if (value && known && letters.slice(known[1], known[2]).join("") === value) {
    marked.append(part(0, known[1]), element("mark", { class: "i1" }, part(known[1], known[2])),
      part(known[2], letters.length));
  } else marked.append(clean(passage));
  const head = value ? text("p", value, { class: "answer" })
    : told("p", { class: "answer" }, "no_answer");
  if (value && score !== null) head.append(" ", element("span", { class: "soft number" },
    percent(score)));
  const rows = candidates.slice(0, 5).map(([words, , , share]) => [short(words), share]);
  return [head, marked, ...(rows.length ? [bars(both("candidates"), rows)] : [])];
};

export const choose = ({ value, scores }, { choices }, pick) => {
  const best = typeof value === "number" ? value : choices.indexOf(value);
  const words = choices[best] ?? String(value);
  if (!Array.isArray(scores) || best < 0) return [text("p", words, { class: "answer" })];
  return [headed(words, scores[best]),
    candidates("probabilities", scores.map((share, i) => [choices[i], share]), best, pick)];
};

// The words in question marked in their text, and the entities that they may mean. Those of a graph
// are known by their names alone.
export const link = ({ value, score, scores }, { text: whole, mention, candidates: all }, pick) => {
  const start = whole.indexOf(mention), end = start + mention.length;
  const marked = element("p", { class: "written spans", dir: "auto" }, clean(whole.slice(0, start)),
    element("mark", { class: "i1" }, clean(mention)), clean(whole.slice(end)));
  if (!all.length) {
    const rows = Object.entries(scores).map(([name, share]) => [short(name), share]);
    return [marked, headed(value, score), bars(both("probabilities"), rows, "percent", 1)];
  }
  const rows = all.map(({ name, description }) =>
    [description ? `${name} – ${description}` : name, scores[name]]);
  return [marked, headed(value, score),
    candidates("probabilities", rows, all.findIndex(({ name }) => name === value), pick)];
};

// Passages, the one that fits a query best first.
export const rerank = (ranks, { passages }, pick) => [candidates("relevance",
  ranks.map(({ index, score }) => [passages[index], score]), 0, (i) => pick(ranks[i].index))];

// A click on a candidate puts it into its blank.
export const fill = ({ blanks }, { text: question }) => {
  const parts = question.split(/\[MASK\]|<mask>|_{3,}/), chosen = blanks.map(() => 0);
  const line = element("p", { class: "written spans", dir: "auto", "aria-live": "polite" });
  const buttons = [];
  const show = () => {
    const word = (i) => clean(blanks[i][chosen[i]].text.trim() || "␣");
    line.replaceChildren(...parts.flatMap((part, i) => [clean(part), ...(i < blanks.length
      ? [element("mark", { class: "i1" }, word(i))] : [])]));
    buttons.forEach((group, i) => group.forEach((button, j) =>
      button.setAttribute("aria-pressed", String(j === chosen[i]))));
  };
  const boxes = blanks.map((blank, i) => {
    buttons.push(blank.map((candidate, j) =>
      option(candidate.text.trim() || "␣", candidate.probability,
        { on: { click: () => { chosen[i] = j; show(); } } })));
    const group = element("div", { class: "options", role: "group" }, ...buttons[i]);
    tell(group, "blank", { number: i + 1 }, "aria-label");
    return element("div", {}, told("h4", {}, "blank", { number: i + 1 }), group);
  });
  show();
  return [line, element("div", { class: "blanks" }, ...boxes)];
};

export const wrote = ({ value, finish_reason: reason, tokens }) => [
  value ? text("p", value, { class: "answer written" })
    : told("p", { class: "soft" }, "nothing_written"),
  told("p", { class: "soft small" }, reason === "length" ? "cut_length" : "ended_whole",
    { count: tokens }),
];

// How similar texts are: the cosine of their vectors.
export const embed = ({ data }, { texts }) => {
  const vectors = data.map(({ embedding }) => embedding);
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const size = vectors.map((vector) => Math.sqrt(dot(vector, vector)) || 1);
  const values = vectors.map((a, i) => vectors.map((b, j) => dot(a, b) / (size[i] * size[j])));
  const names = texts.map((each, i) => `${i + 1} ${short(each, 30)}`);
  const pairs = values.flatMap((row, i) => row.slice(0, i).map((value, j) => [i, j, value]))
    .sort((a, b) => b[2] - a[2]).slice(0, 10);
  const rows = pairs.map(([i, j, value]) => element("tr", { "data-pair": `${j + 1} ${i + 1}` },
    text("th", short(texts[j], 40), { scope: "row" }), text("td", short(texts[i], 40)),
    element("td", { class: "number" }, value.toFixed(4))));
  const head = element("thead", {}, element("tr", {}, ...["first_text", "second_text",
    "similarity"].map((key) => told("th", { scope: "col" }, key))));
  const table = element("div", { class: "wide", tabindex: 0 },
    element("table", { class: "similar" }, head, element("tbody", {}, ...rows)));
  return [told("p", { class: "soft small" }, "vectors", { count: vectors[0].length }),
    heat(both("similarities"), names, values), ...(rows.length ? [table] : [])];
};
