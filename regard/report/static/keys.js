// Arrow keys walk through the controls of a box, as readers of tool bars and tabs expect.

import { all } from "./dom.js";

const WAYS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

// `act` is what becomes of the control that is reached; a focus unless given.
export const walked = (box, selector, act = (control) => control.focus()) => {
  box.addEventListener("keydown", (event) => {
    const controls = all(selector, box), place = controls.indexOf(document.activeElement);
    if (place < 0 || event.target.matches("input[type=text], textarea")) return;
    const ends = { Home: 0, End: controls.length - 1 };
    const to = event.key in ends ? ends[event.key] : place + WAYS[event.key];
    if (!(to >= 0 && to < controls.length)) return;
    event.preventDefault();
    act(controls[to]);
  });
};
