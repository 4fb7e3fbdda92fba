// The script of every page that only shows: language, colors, and the charts it carries.

import { all, data } from "./dom.js";
import { begin, onLanguage } from "./language.js";
import { onTheme } from "./theme.js";
import { hush } from "./pointer.js";
import { drawChart } from "./chart.js";

const figures = all("[data-chart]");
const drawAll = () => {
  hush();
  for (const figure of figures) drawChart(figure, data.charts[figure.dataset.chart]);
};

// Which of several things the charts of a section go along.
all("[name=axis]").forEach((choice) => choice.addEventListener("change", () => {
  choice.closest("section").querySelector(".charts").dataset.axis = choice.value;
  drawAll();
}));
all("details").forEach((fold) => fold.addEventListener("toggle", drawAll));

let wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== wide) { wide = innerWidth; drawAll(); }
});
onLanguage(drawAll);
onTheme(hush);
begin();
