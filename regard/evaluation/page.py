"""The page of a test: one file that needs nothing else, in English and Chinese.

Made from what `summarize` gives, and `compare` under the key "comparison". What is missing is left
out; what others wrote (texts, labels, names) only ever becomes text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.text import Bilingual, clean
from regard.report.charts import ChartAxis, Line, LineChart
from regard.report.pages import Figure, Text, both_of, filled, named, page, translated, words
from regard.training.progress import number
from regard.training.report import plain, replace

Result = Mapping[str, Any]
WORDS = words("test")
MOST_CLASSES = 40  # of a confusion matrix that can still be looked at
MOST_PAIRS = 20  # confusions listed instead
LONGEST = 1200  # characters of a text that are shown
LEVELS = 10  # shades of a cell


def write_page(path: Path | str, results: Result) -> Path:
    """Writes the page of a test: to a file, or as report.html into a directory.

    Beside what `summarize` gives, `results` may hold "title", "model" and "data" (texts), "notes"
    (a list of them), "units" (what examples are called) and "comparison".
    """
    file = Path(path)
    file = file / "report.html" if file.is_dir() else file
    task = str(results.get("task", ""))
    title = results.get("title")
    labels, matrix = (table_of(results, "confusion").get(k) or [] for k in ("labels", "matrix"))
    few = len(labels) <= MOST_CLASSES
    bins = table_of(results, "calibration").get("bins") or []
    error = decimals(table_of(results, "calibration").get("error"))
    columns = ("precision", "recall", "f1", "support", "predicted")
    text = page(
        "test",
        str(title) if title else filled(WORDS["title"], task=task_name(task)),
        locales=["test"],
        charts={"calibration": calibrated(bins)} if bins else {},
        data={"figures": numbers(results, "figures"), "intervals": numbers(results, "intervals")},
        about=about(results),
        figures=headline(results),
        bootstrap=bootstrap(results),
        notes=[translated(str(note)) for note in results.get("notes") or []],
        comparison=comparison(table_of(results, "comparison"), over(results)),
        class_columns=[WORDS["label"], *(WORDS.get(c) or named(c) for c in columns)],
        classes=[
            [str(r.get("label", "")), *(cell(r.get(c)) for c in columns)]
            for r in results.get("classes") or []
        ],
        phenomenon_columns=[WORDS["phenomenon"], WORDS["field"], WORDS["paradigms"],
                            WORDS["pair_count"], named("accuracy"), WORDS["interval"]],
        phenomena=[phenomenon(row) for row in results.get("phenomena") or []],
        confusion=confusion(labels, matrix) if labels and few else None,
        mixed_up=[] if few else mixed_up(labels, matrix),
        calibration_error=filled(WORDS["calibration_error"], error=error),
        bins=[
            [f"{r['from']:.0%} – {r['to']:.0%}", *map(cell, (r["count"], r["confidence"],
                                                              r["accuracy"]))]
            for r in bins
        ],
        thresholds=[(named(k), cell(v)) for k, v in table_of(results, "thresholds").items()],
        worst=[error_card(row, over(results)) for row in results.get("worst") or []],
        signatures=[(k, str(v)) for k, v in table_of(results, "signatures").items()],
    )  # fmt: skip
    return replace(file, text)


def task_name(task: str) -> Bilingual:
    """The command's own word, and what Chinese readers call it."""
    known = words("tasks").get(f"task_{task}")
    return Bilingual(task, known.zh if known else task)


# -- parts


def about(results: Result) -> list[Text]:
    facts: list[Text] = [str(results[key]) for key in ("model", "data") if results.get(key)]
    if plain(results.get("examples")):
        units, count = both_of(unit(str(results.get("units", "examples")))), results["examples"]
        facts.append(Bilingual(f"{number(count)} {units.en}", f"{number(count)} {units.zh}"))
    return facts


def over(results: Result) -> str:
    """What is counted: examples, documents or batches."""
    return str(results.get("units", "examples")).partition(" of ")[0]


def unit(name: str) -> Text:
    return WORDS.get(name, name)


def headline(results: Result) -> list[tuple[str, Figure | None, str]]:
    """Every figure with its interval, the most important one first."""
    spans = table_of(results, "intervals")
    rows = []
    for name, value in table_of(results, "figures").items():
        span = spans.get(name)
        between = f"{decimals(span[0])} – {decimals(span[1])}" if span else ""
        rows.append((name, Figure(value, decimals(value)) if plain(value) else None, between))
    return rows


def bootstrap(results: Result) -> Text:
    if not plain(results.get("level")) or not table_of(results, "intervals"):
        return ""
    one = both_of(unit(over(results)))
    units = Bilingual(one.en, both_of(unit(over(results).removesuffix("s"))).zh)
    level, resamples = f"{results['level']:.0%}", number(results.get("resamples"))
    return filled(WORDS["bootstrap"], level=level, units=units, resamples=resamples)


def comparison(result: Result, units: str) -> dict[str, Any] | None:
    rows = table_of(result, "figures")
    if not rows:
        return None
    lines = []
    for name, row in rows.items():
        low, high = row.get("low"), row.get("high")
        span = f"{decimals(low)} – {decimals(high)}" if plain(low) and plain(high) else ""
        cells = [cell(row.get(k)) for k in ("first", "second", "difference")]
        lines.append(
            [named(name), *cells, span, cell(row.get("p_value")), unit(row.get("test", ""))]
        )
    names = [str(name) for name in result.get("names", ("first", "second"))]
    keys = ("difference", "interval", "p_value", "test")
    count = number(result.get("differing"))
    return {
        "verdict": verdict(str(result.get("verdict", "")), str(result.get("main", ""))),
        "head": ["", *names, *(WORDS[key] for key in keys)],
        "rows": lines,
        "unlike": filled(WORDS["unlike"], count=count, units=unit(units)),
    }


def verdict(text: str, main: str) -> Text:
    """What `significance.verdict` says, in both languages."""
    figure = Bilingual(main.replace("_", " "), both_of(named(main)).zh)
    for key in ("better", "alike", "not_defined"):
        form = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(WORDS[key].en))
        if parts := re.fullmatch(form, text):
            values: dict[str, Text] = dict(parts.groupdict()) | {"figure": figure}
            evidence = re.sub(r" ([<=]) ", "\u00a0\\1\u00a0", str(values.get("evidence", "")))
            chinese = evidence.replace(figure.en, figure.zh, 1).replace(", ", "，")
            chinese = re.sub(r" interval (\S+) to ", r" 区间 \1 至 ", chinese)
            return filled(WORDS[key], **values | {"evidence": Bilingual(evidence, chinese)})
    return text


def phenomenon(row: Result) -> list[Any]:
    """A row of the table of minimal pairs."""
    low, high = row["interval"]
    counts = [cell(row[key]) for key in ("paradigms", "pairs", "accuracy")]
    return [row["label"], row["field"] or "–", *counts, f"{decimals(low)} – {decimals(high)}"]


def confusion(labels: Sequence[Any], matrix: Sequence[Sequence[int]]) -> dict[str, Any]:
    """A table whose colors are the shares of a row. Mistakes are shown stronger than their share: a
    few in a hundred should be seen.
    """
    rows = []
    for i, (label, counts) in enumerate(zip(labels, matrix, strict=True)):
        total, cells = sum(counts) or 1, []
        for j, count in enumerate(counts):
            share = count / total
            depth = share if i == j else share**0.5
            cells.append({
                "count": Figure(count, f"{count:,}"), "right": i == j, "share": f"{share:.1%}",
                "level": math.ceil(LEVELS * depth),
            })  # fmt: skip
        rows.append((str(label), cells))
    return {"labels": [str(label) for label in labels], "rows": rows}


def mixed_up(labels: Sequence[Any], matrix: Sequence[Sequence[int]]) -> list[list[Any]]:
    """Of very many classes, the commonest mix-ups."""
    pairs = [
        (count, labels[i], labels[j])
        for i, row in enumerate(matrix)
        for j, count in enumerate(row)
        if count and i != j
    ]
    pairs.sort(key=lambda pair: -pair[0])
    return [[str(a), str(b), cell(count)] for count, a, b in pairs[:MOST_PAIRS]]


def calibrated(bins: Sequence[Result]) -> LineChart:
    ends = Line(WORDS["as_sure"], [(0.0, 0.0), (1.0, 1.0)], 3, faint=True)
    model = Line(WORDS["model"], [(r["confidence"], r["accuracy"]) for r in bins])
    x = ChartAxis(WORDS["confidence"], "percent", span=(0.0, 1.0))
    return LineChart(WORDS["calibration_chart"], [ends, model], x,
                     ChartAxis(unit="percent", span=(0.0, 1.0)))  # fmt: skip


def error_card(row: Result, units: str) -> tuple[str, list[tuple[Text, Any]]]:
    """A text that was answered wrongly, and what is known of it."""
    facts: list[tuple[Text, Any]] = [
        (WORDS["gold"], shown(row.get("gold"))),
        (WORDS["predicted"], shown(row.get("predicted"))),
    ]
    facts += [(named(k) if k == "loss" else WORDS[k], cell(row[k]))
              for k in ("loss", "confidence") if plain(row.get(k))]  # fmt: skip
    if row.get("score"):  # of what is wrong altogether it is 0
        facts.append((WORDS["score"], cell(row["score"])))
    if plain(row.get("index")):
        facts.append((unit(units.removesuffix("s")), cell(row["index"] + 1)))
    if row.get("place"):
        facts.append((WORDS["place"], str(row["place"])))
    return shown(row["text"]) if row.get("text") is not None else "", facts


# -- small parts


def cell(value: Any) -> Figure | str:
    return Figure(value, decimals(value)) if plain(value) else "–"


def decimals(value: Any) -> str:
    """As the terminal writes it, so that a column reads as one: a share has four decimals."""
    fixed = isinstance(value, float) and (value == 0 or 1e-4 <= abs(value) < 10)
    return f"{value:.4f}" if fixed else number(value)


def numbers(results: Result, key: str) -> dict[str, Any]:
    """Figures for whoever reads the page by a program; what is no number is null."""

    def known(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [known(each) for each in value]
        return value if plain(value) and math.isfinite(value) else None

    return {name: known(value) for name, value in table_of(results, key).items()}


def shown(value: Any) -> str:
    """A text, a number, a list of texts or a table of them."""
    if isinstance(value, Mapping):
        return " · ".join(f"{clean(str(k))}: {shown(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return " · ".join(map(shown, value)) or "–"
    if value is None or plain(value):
        return "–" if value is None else number(value)
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def table_of(results: Result, key: str) -> Result:
    value = results.get(key)
    return value if isinstance(value, Mapping) else {}
