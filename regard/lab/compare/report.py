"""Writes the results of a comparison: report.html, report.json, report.md.

The page is for people, the JSON for programs, the Markdown for a README or a terminal; all three
hold the same numbers. Each file is written whole or not at all. The report may be written again at
any time, also for a comparison that is not finished.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from regard.lab.compare.comparison import ComparisonPlan
from regard.lab.compare.estimate import in_words
from regard.lab.compare.lineup import NGRAM
from regard.lab.compare.page import page
from regard.lab.compare.repeat import recipe
from regard.lab.compare.verdict import (
    BITS,
    MEASURES,
    RANKED,
    Bilingual,
    RankedMetric,
    above_guessing,
    guessing,
    leaders,
    scores,
    verdict,
)
from regard.metrics.figures import jsonable
from regard.training.progress import duration, size
from regard.training.report import replace

FORMAT = 1
SPENT = ("parameters", "tokens", "flops", "seconds", "tokens_per_second")


def write_report(record: dict[str, Any], out: Path) -> dict[str, Any]:
    """Writes the three files into `out` and returns the content of report.json."""
    report = report_of(record, out)
    replace(out / "report.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    replace(out / "report.md", markdown(report))
    replace(out / "report.html", page(report))
    return report


def report_of(record: dict[str, Any], out: Path) -> dict[str, Any]:
    plan = ComparisonPlan.of(record["plan"])
    contents = {
        "format": FORMAT,
        "out": str(out),
        "title": title(plan)._asdict(),
        "models": [entry.name for entry in plan.entries],
        "verdict": [sentence._asdict() for sentence in verdict(record)],
        "time_words": [sentence._asdict() for sentence in time_words(record)],
        "tables": {measure.key: table(record, measure) for measure in MEASURES},
        "spent": spent(record, plan),
        "recipe": recipe(plan, out),
        **record,
        "cells": {name: without_examples(cell) for name, cell in record["cells"].items()},
    }
    report: dict[str, Any] = jsonable(contents)
    return report | {"summary": summary(report)}


def time_words(record: dict[str, Any]) -> list[Bilingual]:
    """Returns the time that was estimated, and what it took so far."""
    known = record.get("time", {})
    kinds = (("estimate", "time_estimate"), ("took", "time_took"))
    return [in_words(known[name], key) for name, key in kinds if known.get(name)]


def without_examples(cell: dict[str, Any]) -> dict[str, Any]:
    """Returns a cell without the figures of single examples, which stay in the cell's own file."""
    return {key: value for key, value in cell.items() if not key.endswith("_each")}


def title(plan: ComparisonPlan) -> Bilingual:
    count = len(plan.entries)
    if count == 1:
        name = plan.entries[0].name
        return Bilingual(f"{name} and one text", f"{name} 与一份文本")
    return Bilingual(
        f"{numeral(count)} models, one text, one budget", f"{count} 个模型，一份文本，一样的预算"
    )


def numeral(count: int) -> str:
    words = "Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve".split()
    return words[count - 2] if count - 2 < len(words) else str(count)


# -- a row for each model, over its seeds


def table(record: dict[str, Any], measure: RankedMetric) -> list[dict[str, Any]]:
    """Returns a row for each model that has the metric, the best first."""
    ranked = scores(record, measure)
    able = above_guessing(ranked, guessing(record, measure))
    best = leaders(able) if measure in RANKED else []
    return [
        {
            "model": score.model,
            "mean": score.mean,
            "values": list(score.values),
            "deviation": score.deviation,
            "interval": score.interval,
            "best": score in best,
        }
        for score in ranked
    ]


def spent(record: dict[str, Any], plan: ComparisonPlan) -> list[dict[str, Any]]:
    """Returns the cost of each model, in the order of the plan: means over seeds, and the peak
    memory."""
    rows = []
    for entry in plan.entries:
        cells = cells_of(record, entry.name)
        if cells:
            means = {key: statistics.fmean(cell[key] for cell in cells) for key in SPENT}
            memory = max(cell["peak_memory"] for cell in cells)
            rows.append({"model": entry.name, **means, "peak_memory": memory})
    return rows


def cells_of(record: dict[str, Any], model: str) -> list[dict[str, Any]]:
    """Returns the cells of a model, one for each finished seed."""
    return [cell for name, cell in record["cells"].items() if name.rpartition("-")[0] == model]


# -- Markdown


def summary(report: dict[str, Any]) -> str:
    """Returns what a terminal shows: the findings and one table."""
    lines = [f"# {report['title']['en']}", ""]
    lines += [f"- {sentence['en']}" for sentence in report["verdict"]]
    return "\n".join([*lines, "", *overview(report)])


def overview(report: dict[str, Any]) -> list[str]:
    """Returns a table of all models and their main metrics. A pseudo-likelihood and the bits after
    a prefix have columns of their own."""
    shown = [measure for measure in MEASURES if report["tables"][measure.key]]
    figures = {
        measure.key: {
            row["model"]: format_score(row, measure) for row in report["tables"][measure.key]
        }
        for measure in shown
    }
    costs = {row["model"]: row for row in report["spent"]}
    head = ["model", *(measure.name.en for measure in shown), "tokens/s", "memory", "parameters"]
    rows = []
    for model in report["models"]:
        if model in costs:
            own = costs[model]
            rows.append([
                model, *(figures[measure.key].get(model, "") for measure in shown),
                f"{own['tokens_per_second']:,.0f}", size(own["peak_memory"]),
                f"{own['parameters']:,.0f}",
            ])  # fmt: skip
    ngram = report["cells"].get(NGRAM)
    if ngram is not None and BITS in shown:
        own = [BITS.shown(ngram["bits_per_byte"]) if m is BITS else "" for m in shown]
        rows.append([f"{ngram['order']}-gram", *own, "", "", ""])
    return grid(head, rows) if rows else []


def format_score(row: dict[str, Any], measure: RankedMetric) -> str:
    """Formats a metric with the deviation over its seeds."""
    value = measure.shown(row["mean"])
    value = f"**{value}**" if row["best"] else value
    return value if row["deviation"] is None else f"{value} ± {measure.shown(row['deviation'])}"


def markdown(report: dict[str, Any]) -> str:
    """Returns the summary, every interval, and how to repeat the comparison."""
    parts = [report["summary"], "", "## 结论", ""]
    parts += [f"- {sentence['zh']}" for sentence in report["verdict"]]
    for measure in MEASURES:
        rows = report["tables"][measure.key]
        if rows:
            name = measure.name.en
            parts += ["", f"## {name[0].upper()}{name[1:]}", "", *intervals(rows, measure)]
    if report["spent"]:
        parts += ["", "## What it cost", "", *cost_rows(report["spent"])]
    again, hashes = report["recipe"], report.get("text", {})
    facts = {**again["versions"], **again["machine"]}
    facts |= {f"sha256 of {name}": own for name, own in hashes.items()}
    parts += ["", *(f"- {sentence['en']}" for sentence in report["time_words"])]
    parts += ["", "## Do it again", "", "```", again["command"], "```", ""]
    parts += [f"- {key}: {value}" for key, value in facts.items()]
    parts += [
        f"- [{run['name']}]({run['report']})" for run in again["runs"] if run["report"] is not None
    ]
    return "\n".join(parts) + "\n"


def intervals(rows: list[dict[str, Any]], measure: RankedMetric) -> list[str]:
    lines = []
    for row in rows:
        span = row["interval"]
        between = "" if span is None else f"{measure.shown(span[0])} – {measure.shown(span[1])}"
        seeds = ", ".join(measure.shown(value) for value in row["values"])
        lines.append([row["model"], format_score(row, measure), between, seeds])
    return grid(["model", measure.name.en, "95% interval (first seed)", "every seed"], lines)


def cost_rows(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        [
            row["model"], f"{row['parameters']:,.0f}", f"{row['tokens']:,.0f}",
            f"{row['flops']:.3g}", duration(row["seconds"]), f"{row['tokens_per_second']:,.0f}",
            size(row["peak_memory"]),
        ]
        for row in rows
    ]  # fmt: skip
    head = ["model", "parameters", "tokens", "operations", "time", "tokens/s", "memory"]
    return grid(head, lines)


def grid(head: list[str], rows: list[list[str]]) -> list[str]:
    """Returns a Markdown table whose columns also line up in a terminal; all columns but the first
    are aligned right."""
    safe = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in safe) for i in range(len(head))]

    def line(row: list[str]) -> str:
        first, *rest = (
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "| " + " | ".join(
        "-" * (width - 1) + ":" if i else "-" * width for i, width in enumerate(widths)
    ) + " |"  # fmt: skip
    return [line(safe[0]), rule, *map(line, safe[1:])]
