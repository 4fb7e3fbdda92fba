// Small parts: what the page carries, elements, and what a reader chose.

export const data = JSON.parse(document.getElementById("data").textContent);
export const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
export const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

export const element = (name, { on = {}, ...attributes } = {}, ...children) => {
  const node = document.createElement(name);
  for (const [event, act] of Object.entries(on)) node.addEventListener(event, act);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

// An element of a drawing, put into its parent.
export const draw = (parent, name, attributes = {}, text = undefined) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
};

export const remember = (key, value) => {
  try { localStorage.setItem(key, value); } catch { /* a page without storage forgets it */ }
};
