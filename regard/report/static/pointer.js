// What is under the pointer, or chosen by arrow keys, says its numbers beside itself.

const tip = document.getElementById("tip");

const say = (text, x, y) => {
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(Math.max(8, x - width / 2), innerWidth - width - 8)}px`;
  tip.style.top = `${y - height - 14 > 4 ? y - height - 14 : y + 18}px`;
};
export const hush = () => { tip.hidden = true; };

// `items` are { x, y, text() } in the pixels of a drawing. `ring` marks one of them, or with null
// none; `step(item, key)` is the one to which an arrow leads; `reach` is how far a pointer catches.
export const pointed = (svg, items, ring, step, reach) => {
  let chosen = null;
  const leave = () => { chosen = null; ring(null); hush(); };
  const choose = (item) => {
    if (!item) return;
    const box = svg.getBoundingClientRect();
    chosen = item;
    ring(item);
    say(item.text(), box.left + item.x, box.top + item.y);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = reach * reach;
    for (const item of items) {
      const far = (item.x - x) ** 2 + (item.y - y) ** 2;
      if (far < least) [least, best] = [far, item];
    }
    if (best) choose(best); else leave();
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return leave();
    const known = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];
    if (!known.includes(event.key) || !items.length) return undefined;
    event.preventDefault();
    const ends = { Home: items[0], End: items.at(-1) };
    return choose(chosen ? ends[event.key] || step(chosen, event.key) || chosen : items[0]);
  });
};

addEventListener("scroll", hush, { passive: true });
