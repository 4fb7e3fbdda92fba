// What can be done with a model: the fields of each way, its request, and how its answer is shown.
//
// `ask(values, model)` is the request; `read(values, answer, picked)` is what the server is to look
// into: a text, and the verb that it was read for. `picked` is the candidate that a reader pressed,
// by its number; null: the best one.

import { answer, choose, classify, embed, fill, link, rerank, tag, wrote } from "./serve-show.js";

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const number = (name, value, min, max, step = 1) =>
  ({ name, kind: "number", value, min, max, step });
const LENGTH = (count) => number("max_tokens", count, 1, 1024);
const SAMPLING = [number("temperature", 0.8, 0, 100, "any"), number("top_p", "", 0, 1, "any"),
  number("top_k", "", 1, 1e6), number("seed", "", 0, 2 ** 31 - 1)];
const PAIRS = ["entail", "similar"]; // tasks whose text has a second one
const area = (name, rows = 3) => ({ name, kind: "area", rows });
const line = (name, optional = false) => ({ name, kind: "line", optional });
// Entities, one in each line: a name, and after a bar what it is.
const entities = (text = "") => lines(text).map((each) => {
  const [name, ...rest] = each.split(/\s*[|｜]\s*/);
  return { name, description: rest.join(" ") };
});
const written = (route) => ({
  fields: () => [area("text")],
  settings: [LENGTH(64), number("num_beams", "", 1, 64), line("prefix", true)],
  ask: ({ text, ...more }, model) => ({ route, body: { model, texts: [text], ...more } }),
  show: ({ results }) => wrote(results[0]),
  read: (_, { results: [row] }) => ({ text: row.source_ids,
    ...(row.ids.length ? { target: row.ids } : {}), stack: "cross" }),
});

export const WAYS = {
  classify: {
    fields: (model) => PAIRS.includes(model.task) ? [area("text", 2), area("pair", 2)]
      : [area("text")],
    settings: (model) => PAIRS.includes(model.task) ? [] : [line("pair", true)],
    ask: ({ text, pair }, model) => ({ route: "/classify",
      body: { model, texts: [text], ...(pair ? { pairs: [pair] } : {}) } }),
    show: ({ results }) => classify(results[0]),
    read: ({ text, pair }) => ({ text, verb: "classify", ...(pair ? { pair } : {}) }),
  },
  tag: {
    fields: () => [area("text")],
    ask: ({ text }, model) => ({ route: "/tag", body: { model, texts: [text] } }),
    show: ({ results }) => tag(results[0]),
    read: (_, { results: [{ words }] }) => ({ text: words.join(" "), verb: "tag", position: 2 }),
  },
  answer: {
    fields: () => [line("question"), area("passage", 5)],
    ask: ({ question, passage }, model) => ({ route: "/answer",
      body: { model, question, passage } }),
    show: ({ results }, values) => answer(results[0], values),
    read: ({ question, passage }) => ({ text: question, pair: passage, verb: "answer" }),
  },
  choose: {
    fields: () => [area("premise", 2), area("choices", 3), line("asks", true)],
    ask: ({ premise, choices, asks }, model) => ({ route: "/choose",
      body: { model, premise, choices: lines(choices), ...(asks ? { asks } : {}) } }),
    show: ({ results }, { choices }, pick) => choose(results[0], { choices: lines(choices) }, pick),
    read: ({ premise, choices, asks }, { results: [{ value }] }, picked) => {
      const all = lines(choices), best = typeof value === "number" ? value : all.indexOf(value);
      return { text: premise, verb: "choose", choices: all, choice: picked ?? Math.max(0, best),
        ...(asks ? { asks } : {}) };
    },
    // What is looked into: the premise with one of the choices.
    named: ({ premise }, { choices, choice }) => `${premise} → ${choices[choice]}`,
  },
  link: {
    fields: () => [area("text"), line("mention"), { ...area("candidates", 4), optional: true }],
    ask: ({ text, mention, candidates }, model) => ({ route: "/link", body: { model, text, mention,
      ...(candidates ? { candidates: entities(candidates) } : {}) } }),
    show: ({ results }, { candidates, ...values }, pick) =>
      link(results[0], { ...values, candidates: entities(candidates) }, pick),
    // As the task reads it. What a graph of the model says of an entity is not known here.
    read: ({ text, mention, candidates }, { results: [{ value }] }, picked) => {
      const all = entities(candidates);
      const best = all.findIndex((each) => each.name === value);
      const { name, description } = all[picked ?? best] || {};
      return name ? { text: `${mention} : ${text}`,
        pair: description ? `${name} : ${description}` : name } : null;
    },
    named: ({ mention }, { pair }) => `${mention} → ${pair}`,
  },
  rerank: {
    fields: () => [line("query"), area("passages", 5)],
    ask: ({ query, passages }, model) => ({ route: `/rerank?model=${encodeURIComponent(model)}`,
      body: { query, texts: lines(passages) } }),
    show: (ranks, { passages }, pick) => rerank(ranks, { passages: lines(passages) }, pick),
    read: ({ query, passages }, [{ index }], picked) =>
      ({ text: query, pair: lines(passages)[picked ?? index] }),
    named: ({ query }, { pair }) => `${query} → ${pair}`,
  },
  translate: written("/translate"),
  summarize: written("/summarize"),
  complete: {
    fields: () => [area("prompt")],
    settings: [LENGTH(40), ...SAMPLING, line("stop", true)],
    ask: ({ prompt, ...more }, model) => ({ route: "/v1/completions",
      body: { model, prompt, ...more } }),
    streams: true,
  },
  chat: {
    fields: () => [area("message", 2)],
    settings: [line("system", true), LENGTH(60), ...SAMPLING],
    ask: (values, model) => ({ route: "/v1/chat/completions", body: { model, ...values } }),
    streams: true,
  },
  fill: {
    fields: () => [area("text")],
    settings: [number("top_k", 5, 1, 64)],
    ask: ({ text, top_k: count }, model) => ({ route: "/fill",
      body: { model, texts: [text], ...(count ? { top_k: count } : {}) } }),
    show: ({ results }, values) => fill(results[0], values),
    read: ({ text }, { results: [{ blanks }] }) => ({ text, verb: "fill",
      fills: blanks.map(([best]) => best.ids) }),
  },
  embed: {
    fields: () => [area("texts", 5)],
    ask: ({ texts }, model) => ({ route: "/v1/embeddings",
      body: { model, input: lines(texts) } }),
    show: (result, { texts }) => embed(result, { texts: lines(texts) }),
    read: ({ texts }) => ({ text: lines(texts)[0] }),
  },
};

// The ways of a model, the one it was trained for first.
export const waysOf = (model) => {
  const talks = model.chat_template || model.task === "converse";
  const known = Object.keys(WAYS).filter((way) => model.verbs.includes(way)
    && (way !== "chat" || talks));
  const first = { entail: "classify", similar: "classify", converse: "chat" }[model.task]
    || model.task;
  return known.includes(first) ? [first, ...known.filter((way) => way !== first)] : known;
};
// The words of a way: two texts are classified in words of their own.
export const wordsOf = (way, model) =>
  way === "classify" && PAIRS.includes(model.task) ? model.task : way;
export const settingsOf = (way, model) => {
  const { settings = [] } = WAYS[way];
  return typeof settings === "function" ? settings(model) : settings;
};
