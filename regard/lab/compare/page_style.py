"""How a comparison's page looks: in light and dark, from a telephone to a wide screen.

The ten inks stay apart for readers who see few colours (they differ in lightness, too, and each has
a shape of its own).
"""

from __future__ import annotations

LIGHT = ("#2028eb", "#e76f0b", "#477757", "#8a2890", "#943b00", "#2c93ff", "#440d03", "#899756",
         "#583b54", "#d96eaa")  # fmt: skip
DARK = ("#2f78fe", "#e44142", "#2db27a", "#b17fcd", "#faa51b", "#9be3ff", "#a55180", "#ffcd73",
        "#bcdace", "#fff4be")  # fmt: skip


def inks(colours: tuple[str, ...]) -> str:
    return "; ".join(f"--i{i}: {colour}" for i, colour in enumerate(colours, 1))


STYLE = """
:root { color-scheme: light dark; --ground: #fbfaf7; --paper: #ffffff; --ink: #1c2430;
  --soft: #5d6675; --rule: #e3e0d8; --inset: #f3f1ea; --accent: #0b5cad; --heat: #0b5cad;
  LIGHT_INKS }
@media (prefers-color-scheme: dark) {
  :root { --ground: #11151b; --paper: #181d25; --ink: #e9e7e2; --soft: #a1aab8; --rule: #2e3642;
    --inset: #1f252f; --accent: #82c3ff; --heat: #82c3ff; DARK_INKS }
}
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.6;
  font-size: 1.0625rem; font-family: system-ui, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK SC',
  'PingFang SC', 'Microsoft YaHei', 'Noto Color Emoji', sans-serif }
header, main { max-width: 76rem; margin: 0 auto; padding: 0 clamp(1rem, 4vw, 3rem) }
header { padding-top: 1rem } main { padding-bottom: 5rem }
h1, h2, h3, .lead, q { font-family: ui-serif, 'Iowan Old Style', Georgia, 'Noto Serif',
  'Noto Serif CJK SC', 'Songti SC', serif; font-weight: 600; line-height: 1.25;
  text-wrap: balance }
h1 { font-size: clamp(1.9rem, 1.3rem + 2.6vw, 3.2rem); margin: 1.5rem 0 1.25rem;
  letter-spacing: -.01em; overflow-wrap: anywhere } h1 .zh, h2 .zh { word-break: keep-all }
h2 { font-size: clamp(1.35rem, 1.15rem + .9vw, 1.8rem); margin: 0 0 .6rem }
h3 { font-size: 1.12rem; margin: 1.6rem 0 .4rem } h4 { font-size: 1rem; margin: 0 0 .4rem }
section { margin-top: clamp(2.75rem, 5vw, 4.5rem) }
section > p { max-width: 46rem; margin: 0 0 1rem }
.soft, small { color: var(--soft) } small { font-size: .85em }
p.soft { font-size: .95rem; margin: .5rem 0 }
a { color: var(--accent); text-underline-offset: .15em }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px }
[data-language=en] .zh, [data-language=zh] .en { display: none }
q { font-weight: 400; quotes: '“' '”' }
.shapes { position: absolute } svg use, symbol path { fill: currentColor; fill-rule: evenodd }

.bar { display: flex; justify-content: flex-end; gap: 1rem; align-items: center }
button { font: inherit; font-size: .95rem; color: var(--ink); background: var(--paper);
  border: 1px solid var(--rule); border-radius: 999px; padding: .3rem 1rem; cursor: pointer }
button:hover { border-color: var(--accent) }
.skip { position: absolute; left: -99rem } .skip:focus { position: static }
.facts { display: grid; gap: 1rem 1.75rem; margin: 0; padding: 1.1rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 8.5rem), 1fr));
  border-block: 1px solid var(--rule) }
.facts dt { color: var(--soft); font-size: .85rem } .facts small { display: block }
.facts dd { margin: 0; font-weight: 600; overflow-wrap: anywhere }
.facts dd small { font-weight: 400 }

.verdict .lead { font-size: clamp(1.25rem, 1.05rem + 1.1vw, 1.7rem); font-weight: 400;
  line-height: 1.4; max-width: 52rem; margin: 0 0 1rem; text-wrap: pretty }
.verdict h2 { font-size: 1rem; font-family: inherit; color: var(--soft); font-weight: 400 }
.verdict ul { margin: 0; padding-left: 1.1rem; max-width: 50rem } .verdict li { margin: .35rem 0 }
.verdict li::marker { color: var(--soft) }

.two { display: grid; gap: 1.5rem 3rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)) }
.two h3 { margin-top: .5rem }
.wide { overflow-x: auto; max-width: 100%; overscroll-behavior-x: contain }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 1rem }
th, td { padding: .42rem 1.6rem .42rem 0; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; font-weight: 400 }
th:first-child { text-align: left } thead th { color: var(--soft); font-size: .88rem;
  vertical-align: bottom; white-space: normal; line-height: 1.3; min-width: 6.2em }
tbody th { position: sticky; left: 0; background: var(--ground); padding-right: 1.25rem }
td:has(.range), th:has(.ends) { padding-right: 0 } b, .lead b { font-weight: 700 }
details td { white-space: normal; text-align: left; overflow-wrap: anywhere }
details td:has(data) { text-align: right; white-space: nowrap }
.model { display: inline-flex; align-items: center; gap: .5rem; overflow-wrap: anywhere }
.model svg { flex: none; overflow: visible }
.ngram { color: var(--soft); padding-left: 1.25rem }
.range, .ends { position: relative; display: block; width: clamp(9rem, 26vw, 24rem);
  height: 1.1rem; margin-inline: .4rem }
.two .range, .two .ends { width: clamp(6rem, 9vw, 10rem) }
.ends { display: flex; justify-content: space-between; height: auto }
.range::before { content: ''; position: absolute; inset: 50% 0 auto; border-top: 1px solid
  var(--rule) }
.range i { position: absolute; display: block; top: 50% }
.range .bar { height: .5rem; margin-top: -.25rem; background: currentColor; opacity: .32;
  border-radius: .25rem; min-width: 2px }
.range .dot { width: .75rem; height: .75rem; margin: -.375rem; border-radius: 50%;
  background: currentColor; border: 2px solid var(--ground) }
.range .seed { width: 2px; height: .9rem; margin: -.45rem -1px; background: currentColor;
  opacity: .7 }
.range .limit { top: -.55rem; height: 2.2rem; border-left: 2px dashed var(--soft);
  margin-left: -1px }

.switch { border: 0; padding: 0; margin: 0 0 .25rem; display: flex; flex-wrap: wrap; gap: .4rem;
  align-items: center } .switch legend { float: left; color: var(--soft); padding: 0 .6rem 0 0 }
.switch label { cursor: pointer } .switch input { position: absolute; opacity: 0 }
.switch label span { display: inline-block } .switch label > span { padding: .2rem .9rem;
  border: 1px solid var(--rule); border-radius: 999px; background: var(--paper) }
.switch input:checked + span { background: var(--ink); color: var(--ground);
  border-color: var(--ink) }
.switch input:focus-visible + span { outline: 2px solid var(--accent); outline-offset: 2px }
.keys { margin: .25rem 0 1rem }
.charts { display: grid; gap: 2rem 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)) }
.charts .first { grid-column: 1 / -1 }
figure { margin: 0; min-width: 0 } figcaption b { font-weight: 600 }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: 0;
  margin: .2rem 0 .4rem; font-size: .92rem } .legend li { display: flex; align-items: center }
.dash { width: 1.4rem; border-top: 2px dashed var(--soft) }
.chart { position: relative; background: var(--paper); border: 1px solid var(--rule);
  border-radius: 8px; min-height: 12rem; overflow: hidden; touch-action: pan-y }
.chart svg, .heat svg { display: block } .below { text-align: right; color: var(--soft);
  font-size: .88rem; margin: .25rem 0 0 }
.chart text, .heat text { fill: var(--soft); font-size: 12px; font-family: inherit }
.chart .rule { stroke: var(--rule) } .chart .limit { stroke: var(--soft); stroke-width: 1.5;
  stroke-dasharray: 6 5 } .chart .named { fill: var(--ink) }
.chart .line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round }
.chart .more { opacity: .6; stroke-width: 1.5 } .chart .again { stroke-dasharray: 5 3 }
.chart .here { fill: none; stroke: var(--ink); stroke-width: 2 }
[data-axis=seconds] .axis:not(.seconds), [data-axis=tokens] .axis:not(.tokens),
[data-axis=operations] .axis:not(.operations) { display: none }
#tip { position: fixed; z-index: 2; pointer-events: none; background: var(--ink);
  color: var(--ground); padding: .45rem .7rem; border-radius: 6px; font-size: .9rem;
  line-height: 1.4; max-width: min(20rem, 90vw); white-space: pre-line; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums }

.cards { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 15.5rem), 1fr)) }
#samples h3 { margin: 2rem 0 .7rem; font-size: 1.25rem }
.card { background: var(--paper); border: 1px solid var(--rule); border-radius: 8px;
  padding: .9rem 1rem; min-width: 0 } .card h4 { display: flex; justify-content: space-between;
  gap: 1rem; align-items: baseline } .card small { font-weight: 400 }
.written { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .95rem }
mark { background: var(--inset); color: inherit; font-weight: 600; border-radius: 3px;
  padding: 0 .15em }
.sentence { font-size: 1.2rem }
.looks { display: grid; gap: 1.75rem 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)) }
.maps > div { display: flex; flex-wrap: wrap; gap: 1rem }
.maps figure { flex: 1 1 15rem; max-width: 19rem } .maps figcaption { color: var(--soft);
  font-size: .88rem; text-align: right }
.heat { min-height: 8rem } .heat rect { fill: var(--heat) } .heat .frame { fill: none;
  stroke: var(--rule) } .heat .here { fill: none; stroke: var(--ink); stroke-width: 2 }
.heat text { font-size: 11px }

pre { background: var(--inset); border-radius: 8px; padding: 1rem 1.1rem; overflow-x: auto;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .92rem; line-height: 1.5 }
code { font-family: ui-monospace, 'Cascadia Mono', 'Noto Sans Mono', Menlo, Consolas, monospace }
details { border-top: 1px solid var(--rule); padding: .6rem 0 } details:last-of-type {
  border-bottom: 1px solid var(--rule) } summary { cursor: pointer }
.links { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem }
INK_CLASSES
@media (max-width: 34rem) {
  body { font-size: 1rem } table { font-size: .95rem } th, td { padding-right: 1.1rem }
  .switch { font-size: .95rem } .switch label > span { padding: .2rem .7rem }
  .switch legend { padding-right: .2rem }
}
@media print { button, .switch, .keys { display: none } details { break-inside: avoid } }
"""
STYLE = STYLE.replace("LIGHT_INKS", inks(LIGHT)).replace("DARK_INKS", inks(DARK))
STYLE = STYLE.replace(
    "INK_CLASSES", " ".join(f".i{i} {{ color: var(--i{i}) }}" for i in range(1, len(LIGHT) + 1))
)
