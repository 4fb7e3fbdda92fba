"""The page of a test: one file that needs nothing else, in English and Chinese.

Made from what `summarize` gives, and `compare` under the key "comparison". What is missing is left
out; what others wrote (texts, labels, names) only ever becomes text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from regard.evaluation.page_words import CHINESE, NAMES
from regard.report import clean
from regard.report.curves import STYLE, CurveLine, Panel, inline
from regard.training.progress import number
from regard.training.report import PAGE, plain, replace, words

Result = Mapping[str, Any]
MOST_CLASSES = 40  # of a confusion matrix that can still be looked at
MOST_PAIRS = 20  # confusions listed instead
LONGEST = 1200  # characters of a text that are shown

LOOK = """
  .switch { float: right; font-size: .9rem } .zh { display: none }
  body:has(#zh:checked) .zh { display: inline } body:has(#zh:checked) .en { display: none }
  .figures { display: grid; gap: .75rem; margin: 1rem 0;
    grid-template-columns: repeat(auto-fit, minmax(min(100%, 10.5rem), 1fr)) }
  .figure { border: 1px solid var(--rule); border-radius: 6px; padding: .6rem .8rem }
  .figure b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums }
  .figure small { color: var(--soft); font-variant-numeric: tabular-nums }
  .figure:first-child { background: var(--inset) }
  .heat td, .heat th { padding: .3rem .5rem; text-align: right; white-space: nowrap }
  .heat td { border: 1px solid var(--rule) } .heat th[scope=row] { text-align: left }
  .error { border: 1px solid var(--rule); border-radius: 6px; padding: .6rem .8rem;
    margin: 0 0 .6rem }
  .error p { margin: 0 0 .4rem; white-space: pre-wrap; overflow-wrap: anywhere }
  .error dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: 0 }
  .error dt { color: var(--soft) } .error dd { margin: 0; overflow-wrap: anywhere }
  .curves { max-width: 34rem }"""


def write_page(path: Path | str, results: Result) -> Path:
    """Writes the page of a test: to a file, or as report.html into a directory.

    Beside what `summarize` gives, `results` may hold "title", "model" and "data" (texts), "notes"
    (a list of them), "units" (what examples are called) and "comparison".
    """
    file = Path(path)
    file = file / "report.html" if file.is_dir() else file
    title = clean(str(results.get("title") or f"Test: {results.get('task', '')}"))
    parts = [
        '<label class="switch"><input type="checkbox" id="zh"> 中文</label>',
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{about(results)}</p>',
        headline(results),
        section("Notes", listed(results.get("notes") or [])),
        section("Comparison", comparison(table_of(results, "comparison"), over(results))),
        section("Classes", classes(results.get("classes") or [])),
        section("Confusion", confusion(table_of(results, "confusion"))),
        section("Calibration", calibrated(table_of(results, "calibration"))),
        section("Thresholds", thresholds(table_of(results, "thresholds"))),
        section("Worst errors", worst(results.get("worst") or [], over(results))),
        section("Signatures", signatures(table_of(results, "signatures"))),
    ]
    page = PAGE.format(
        title=escape(title), style=STYLE + LOOK, body="\n".join(p for p in parts if p)
    )
    return replace(file, page)


# -- sections


def about(results: Result) -> str:
    facts = [safe(results[key]) for key in ("model", "data") if results.get(key)]
    if plain(results.get("examples")):
        facts.append(f"{safe(results['examples'])} {said(str(results.get('units', 'examples')))}")
    return " · ".join(facts)


def over(results: Result) -> str:
    """What is counted: examples, documents or batches."""
    return str(results.get("units", "examples")).partition(" of ")[0]


def headline(results: Result) -> str:
    """Every figure with its interval, the most important one first."""
    spans = table_of(results, "intervals")
    cards = []
    for name, value in table_of(results, "figures").items():
        span = spans.get(name)
        below = f"{number(span[0])} – {number(span[1])}" if span else ""
        shown = number(value) if plain(value) else said("undefined")
        cards.append(
            f'<div class="figure">{said(words(name))}<b>{shown}</b><small>{below}</small></div>'
        )
    if not cards:
        return ""
    note = ""
    if plain(results.get("level")) and spans:
        drawn = f"intervals by bootstrap over {over(results)}"
        note = (
            f'<p class="soft">{results["level"]:.0%} {said(drawn)}'
            f" ({safe(results.get('resamples'))} {said('resamples')})</p>"
        )
    return f'<div class="figures">{"".join(cards)}</div>{note}'


def listed(notes: Iterable[Any]) -> str:
    lines = "".join(f"<li>{safe(note)}</li>" for note in notes)
    return f"<ul>{lines}</ul>" if lines else ""


def comparison(result: Result, units: str) -> str:
    rows = table_of(result, "figures")
    if not rows:
        return ""
    first, second = (safe(name) for name in result.get("names", ("first", "second")))
    lines = []
    for name, row in rows.items():
        low, high = row.get("low"), row.get("high")
        span = f"{number(low)} – {number(high)}" if plain(low) and plain(high) else ""
        cells = [number(row.get(k)) for k in ("first", "second", "difference")]
        cells += [span, number(row.get("p_value")), safe(row.get("test", ""))]
        lines.append([said(words(name)), *cells])
    head = ["", first, second, *map(said, ("difference", "interval", "p-value", "test"))]
    unlike = f"{units} were answered differently"
    alike = f"{safe(result.get('differing', ''))} {said(unlike)}"
    return (
        f'<p class="verdict">{safe(result.get("verdict", ""))}</p>{grid(head, lines)}'
        f'<p class="soft">{alike}. {said("Each row is a test of its own.")}</p>'
    )


def classes(rows: Sequence[Result]) -> str:
    columns = ("precision", "recall", "f1", "support", "predicted")
    lines = [[safe(r.get("label", "")), *(number(r.get(c)) for c in columns)] for r in rows]
    return grid([said("label"), *map(said, columns)], lines) if lines else ""


def confusion(result: Result) -> str:
    """A heat map: color is the share of the row. Of very many classes, the commonest mix-ups."""
    labels, matrix = result.get("labels") or [], result.get("matrix") or []
    if not labels:
        return ""
    if len(labels) > MOST_CLASSES:
        return mixed_up(labels, matrix)
    head = "".join(f'<th scope="col">{safe(x)}</th>' for x in labels)
    lines = [f"<tr><th>{said('gold')} ↓ {said('predicted')} →</th>{head}</tr>"]
    for i, (label, row) in enumerate(zip(labels, matrix, strict=True)):
        total = sum(row) or 1
        cells = "".join(heat(count, count / total, i == j) for j, count in enumerate(row))
        lines.append(f'<tr><th scope="row">{safe(label)}</th>{cells}</tr>')
    return f'<div class="wide"><table class="heat">{"".join(lines)}</table></div>'


def heat(count: int, share: float, right: bool) -> str:
    """Mistakes are shown stronger than their share: a few in a hundred should be seen."""
    ink, depth = ("34 139 94", share) if right else ("217 84 28", share**0.5)
    style = f' style="background: rgb({ink} / {0.6 * depth:.2f})"' if count else ""
    return f'<td{style} title="{share:.1%}">{count:,}</td>'


def mixed_up(labels: Sequence[Any], matrix: Sequence[Sequence[int]]) -> str:
    pairs = [
        (count, labels[i], labels[j])
        for i, row in enumerate(matrix)
        for j, count in enumerate(row)
        if count and i != j
    ]
    pairs.sort(key=lambda pair: -pair[0])
    lines = [[safe(a), safe(b), f"{count:,}"] for count, a, b in pairs[:MOST_PAIRS]]
    return grid([said("gold"), said("predicted"), said("count")], lines) if lines else ""


def calibrated(result: Result) -> str:
    rows = result.get("bins") or []
    if not rows:
        return ""
    seen = [(100 * r["confidence"], 100 * r["accuracy"]) for r in rows]
    lines = [
        CurveLine("as sure as right", [(0.0, 0.0), (100.0, 100.0)], 3, faint=True),
        CurveLine("model", seen, 1, dots=True),
    ]
    panel = Panel("Right answers, %", lines, zero=True, across="confidence, %", span=(0, 100))
    cells = [
        [f"{r['from']:.0%} – {r['to']:.0%}", f"{r['count']:,}",
         number(r["confidence"]), number(r["accuracy"])]
        for r in rows
    ]  # fmt: skip
    head = ["", *map(said, ("count", "confidence", "accuracy"))]
    error = f"<p>{said('expected calibration error')}: {number(result.get('error'))}</p>"
    return f'{error}<div class="curves">{inline(panel)}</div>{grid(head, cells)}'


def thresholds(result: Result) -> str:
    lines = [[said(words(name)), number(value)] for name, value in result.items()]
    if not lines:
        return ""
    note = said("Chosen on these very examples: on others expect less.")
    return f'{grid(["", ""], lines)}<p class="soft">{note}</p>'


def worst(rows: Iterable[Result], units: str) -> str:
    one = units.removesuffix("s")
    cards = []
    for row in rows:
        facts = [("gold", shown(row.get("gold"))), ("predicted", shown(row.get("predicted")))]
        facts += [(k, number(row[k])) for k in ("loss", "confidence", "score") if plain(row.get(k))]
        facts += [(one, number(row["index"] + 1))] if plain(row.get("index")) else []
        facts += [("place", safe(row["place"]))] if row.get("place") else []
        inside = "".join(f"<dt>{said(k)}</dt><dd>{v}</dd>" for k, v in facts)
        text = f"<p>{shown(row['text'])}</p>" if row.get("text") is not None else ""
        cards.append(f'<div class="error">{text}<dl>{inside}</dl></div>')
    return "".join(cards)


def signatures(result: Result) -> str:
    lines = [[safe(name), f"<code>{safe(value)}</code>"] for name, value in result.items()]
    return grid(["", ""], lines) if lines else ""


# -- small parts


def section(title: str, inside: str) -> str:
    return f"<h2>{said(title)}</h2>\n{inside}" if inside else ""


def said(text: str) -> str:
    """Our own words, in both languages where Chinese is known."""
    english = escape(clean(NAMES.get(text, text)))
    if text not in CHINESE:
        return english
    return f'<span class="en">{english}</span><span class="zh" lang="zh">{CHINESE[text]}</span>'


def safe(value: Any) -> str:
    """The words of others, or a number."""
    return number(value) if plain(value) else escape(clean(str(value)))


def shown(value: Any) -> str:
    """A text, a number, a list of texts or a table of them."""
    if isinstance(value, Mapping):
        return " · ".join(f"{safe(k)}: {shown(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return " · ".join(map(shown, value)) or "–"
    if value is None or plain(value):
        return "–" if value is None else number(value)
    lines = str(value)
    short = lines if len(lines) <= LONGEST else lines[: LONGEST - 1] + "…"
    return "\n".join(escape(clean(line)) for line in short.split("\n"))


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are already safe; all but the first column are set right."""
    lines = ["".join(f'<th scope="col">{cell}</th>' for cell in head)] if any(head) else []
    for first, *rest in rows:
        cells = "".join(f'<td class="number">{cell}</td>' for cell in rest)
        lines.append(f'<th scope="row">{first}</th>{cells}')
    inside = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table>{inside}</table></div>'


def table_of(results: Result, key: str) -> Result:
    value = results.get(key)
    return value if isinstance(value, Mapping) else {}
