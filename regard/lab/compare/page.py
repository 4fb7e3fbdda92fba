"""The page of a comparison: one file that needs nothing else, in English and Chinese.

What others wrote (texts, names, paths) only ever becomes text.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from typing import Any

from regard.core.text import Bilingual
from regard.lab.compare.lineup import NGRAM, ModelBudget, validates_exactly
from regard.lab.compare.verdict import (
    BITS,
    HIDDEN,
    PAIRS,
    PREFIX,
    PROBE,
    PSEUDO,
    RankedMetric,
    above_untrained,
    guessing,
    say,
)
from regard.report import pages
from regard.report.charts import ChartAxis, HeatChart, Line, LineChart, PageChart
from regard.report.pages import lines
from regard.training.progress import duration, number, size
from regard.training.report import plain

Report = dict[str, Any]

WORDS = pages.words("compare")
BREAK = "↵"
POINTS = 200  # of a line; more cannot be seen


def page(report: Report) -> str:
    ngram = report["cells"].get(NGRAM)
    limit = ngram["bits_per_byte"] if ngram else None
    apart = [(key, ranking(report, m)) for m, key in ((PREFIX, "prefix"), (PSEUDO, "pseudo"))]
    hidden, pairs = (ranking(report, m, guessing(report, m)) for m in (HIDDEN, PAIRS))
    firsts = {model: own[0][1] for model, own in models_of(report).items()}
    attention = attention_of(firsts)
    return pages.page(
        "compare",
        Bilingual(**report["title"]),
        locales=["compare"],
        styles=["compare"],
        charts=charts(report, attention),
        report=report,
        verdict=[Bilingual(**sentence) for sentence in report["verdict"]],
        time=[Bilingual(**sentence) for sentence in report["time_words"]],
        budget=allowance(ModelBudget(**report["plan"]["budget"])),
        exact=ranking(report, BITS, limit, ngram),
        apart=[(key, own) for key, own in apart if own],
        measured=[(key, own) for key, own in (("hidden", hidden), ("pairs", pairs)) if own],
        probe=ranking(report, PROBE, more={"untrained": "probe_untrained",
                                           "majority": "probe_majority"}),
        gained=gained(report),
        samples=samples_of(firsts),
        attention=attention,
        without=[model for model, cell in firsts.items() if cell.get("attention", 0) is None],
        command=unfolded(report["recipe"]["command"]),
        breaks=breaks, count=number, duration=duration, json=json.dumps, operations=operations,
        seconds=seconds, size=size,
    )  # fmt: skip


def models_of(report: Report) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """(seed, cell) of each model, in the order of the plan."""
    cells: dict[str, list[tuple[int, dict[str, Any]]]] = {m: [] for m in report["models"]}
    for name, cell in report["cells"].items():
        model, _, seed = name.rpartition("-")
        if name != NGRAM and model in cells:
            cells[model].append((int(seed), cell))
    return {model: sorted(own, key=lambda each: each[0]) for model, own in cells.items() if own}


def allowance(budget: ModelBudget) -> Bilingual:
    """The budget in words."""
    whole = budget.amount >= 1
    chinese = {
        "minutes": f"{budget.amount:g} 分钟" if whole else f"{budget.amount * 60:g} 秒",
        "tokens": f"{budget.amount:,.0f} 个词元",
        "flops": f"{budget.amount:.3g} FLOP",
    }
    return Bilingual(str(budget), chinese[budget.kind])


# -- measures


def ranking(
    report: Report,
    measure: RankedMetric,
    line: float | None = None,
    ngram: dict[str, Any] | None = None,
    more: dict[str, str] | None = None,
) -> dict[str, Any]:
    """What a table of one measure shows; `line` is drawn through all its pictures, `more` names
    figures of each model that stand beside it. Empty where no model has the measure.
    """
    rows = [{**row, "ngram": False} for row in report["tables"][measure.key]]
    if not rows:
        return {}
    values = [x for row in rows for x in (*row["values"], *(row["interval"] or ()))]
    values += [] if line is None else [line]
    low, high = min(values), max(values)
    air = (high - low) * 0.06 or abs(high) * 0.05 or 0.5

    def at(x: float) -> float:  # in percent of the width of the picture
        return 100 * (x - low + air) / (high - low + 2 * air)

    cells = {name.rpartition("-")[0]: cell for name, cell in reversed(report["cells"].items())}
    for row in rows:
        row |= {key: cells[row["model"]].get(name) for key, name in (more or {}).items()}
    best = any(row["best"] for row in rows) and len(rows) > 1
    spans = any(row["interval"] for row in rows)
    if ngram is not None:
        name, mean = f"{ngram['order']}-gram", ngram["bits_per_byte"]
        rows.append({"model": name, "mean": mean, "ngram": True, "deviation": None, "best": False,
                     "interval": None, "values": [], **dict.fromkeys(more or {})})  # fmt: skip
        rows.sort(key=lambda row: row["mean"])
    return {
        "measure": measure,
        "rows": rows,
        "best": best,
        "spans": spans,
        "seeds": report["plan"]["seeds"] > 1,
        "more": list(more or {}),
        "ends": (low, high),
        "line": line,
        "at": lambda x: f"{at(x):.2f}",
        "wide": lambda span: f"{at(span[1]) - at(span[0]):.2f}",
    }


def gained(report: Report) -> Bilingual:
    """Which models know more than their first weights did."""
    models = above_untrained(report)
    return say("above", models=models) if models else say("none_above")


def operations(count: float) -> str:
    for unit, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if count >= unit:
            return f"{count / unit:.3g} {letter}FLOP"
    return f"{count:,.0f} FLOP"


def seconds(count: float) -> str:
    if count >= 1:
        return f"{count:.3g} s"
    return f"{count * 1e3:.3g} ms" if count >= 1e-3 else f"{count * 1e6:.3g} µs"


def unfolded(command: str) -> str:
    """A line for each option; a shell reads it as one."""
    parts: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word.startswith("--") and parts[-1] and parts[-1] != ["--prompt"]:
            parts.append([])
        parts[-1].append(word)
    return " \\\n  ".join(map(shlex.join, parts))


# -- pictures and texts


def charts(report: Report, attention: list[dict[str, Any]]) -> dict[str, PageChart]:
    """Curves of learning, costs over lengths, and maps of attention."""
    drawn: dict[str, PageChart] = {}
    inks = {model: place for place, model in enumerate(report["models"], 1)}
    along = [ChartAxis(WORDS["seconds"], "seconds", zero=True, key="seconds"),
             ChartAxis(WORDS["tokens"], "count", zero=True, key="tokens"),
             ChartAxis(WORDS["operations"], "operations", zero=True, key="operations")]  # fmt: skip
    for i, panel in enumerate(curve_panels(report)):
        lines = [
            Line(Bilingual(*(f"{each['model']} · {word} {each['seed']}" for word in WORDS["seed"])),
                 each["points"], inks[each["model"]], light=each["seed"] > 1, group=each["model"])
            for each in panel["lines"]
        ]  # fmt: skip
        limit = None if panel["line"] is None else (WORDS["ngram"], panel["line"])
        title = WORDS.get(f"objective_{panel['group']}", panel["group"])
        drawn[f"panel-{i}"] = LineChart(title, lines, along, ChartAxis(log=panel["factors"]), limit,
                                        pages.named(panel["measure"]))  # fmt: skip
    costs = report.get("costs") or {}
    for key in ("seconds", "bytes") if costs.get("curves") else ():
        x = ChartAxis(WORDS["length"], "count", log=True, ticks=costs["lengths"])
        lines = [
            Line(model, [(p["length"], p[key]) for p in costs["curves"][model]], ink)
            for model, ink in inks.items()
            if model in costs["curves"]
        ]
        drawn[f"costs-{key}"] = LineChart(
            WORDS[f"growth_{key}"], lines, x, ChartAxis(unit=key, log=True)
        )
    for i, own in enumerate(attention):
        for j, layer in enumerate(own["layers"]):
            title = Bilingual(f"layer {layer['number']}", f"第 {layer['number']} 层")
            largest = max((x for row in layer["weights"] for x in row), default=0.0)
            drawn[f"attention-{i}-{j}"] = HeatChart(
                title, own["tokens"], own["tokens"], layer["weights"], headed=False,
                high=max(4 / len(own["tokens"]), largest),  # what is even stays pale
            )  # fmt: skip
    return drawn


def curve_panels(report: Report) -> list[dict[str, Any]]:
    """One picture for each thing that is validated: lines of different things are never together.

    A point is [seconds, tokens, operations, value].
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for model, own in models_of(report).items():
        for seed, cell in own:
            key = measured_by(cell["curve"])
            points = [
                [each.get("seconds"), each["tokens"],
                 cell["flops"] / max(cell["steps"], 1) * each["step"], each[key]]
                for each in cell["curve"] if plain(each.get(key))
            ]  # fmt: skip
            if points:
                group = "exact" if validates_exactly(cell["objective"]) else cell["objective"]
                step = math.ceil(len(points) / POINTS)  # more points than these cannot be seen
                points = points if step == 1 else [*points[:-1:step], points[-1]]
                line = {"model": model, "seed": seed, "points": points}
                groups.setdefault((group, key), []).append(line)
    ngram = report["cells"].get(NGRAM)
    order = sorted(groups, key=lambda each: (each[0] != "exact", each))
    return [
        {
            "group": group,
            "measure": key,
            "lines": groups[group, key],
            "line": ngram["bits_per_byte"] if ngram and group == "exact" else None,
            "factors": "perplexity" in key,
        }
        for group, key in order
    ]


def measured_by(curve: list[dict[str, Any]]) -> str:
    """Of what a run validates: the bits, else a perplexity, else the first."""
    known = [k for k in (curve[0] if curve else {}) if k not in ("step", "tokens", "seconds")]
    chosen = [k for k in known if k == "bits_per_byte"] or [k for k in known if "perplexity" in k]
    return (chosen or known or [""])[0]


def samples_of(
    cells: dict[str, dict[str, Any]],
) -> list[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Every prompt, and what each model wrote; those that go on with it stand first."""
    every = [(model, own) for model, cell in cells.items() for own in cell.get("samples") or []]
    return [
        (prompt, sorted((each for each in every if each[1]["given"] == prompt),
                        key=lambda each: each[1]["kind"] != "generated"))
        for prompt in dict.fromkeys(own["given"] for _, own in every)
    ]  # fmt: skip


def breaks(text: str) -> Any:
    """Lines that are empty in a row become a sign and their number: weak models write many."""
    from markupsafe import Markup

    parts = re.split(r"(\n(?:[ \t]*\n)+)", text.rstrip("\n"))
    sign = Markup('<span class="soft"> {}{}</span>\n')
    return Markup("").join(
        sign.format(BREAK, part.count("\n")) if i % 2 else lines(part)
        for i, part in enumerate(parts)
    )


def attention_of(cells: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Tokens and layers of every model that has attention, in the order of the plan."""
    seen = ((model, cell.get("attention")) for model, cell in cells.items())
    return [{"model": model, **own} for model, own in seen if own and own["layers"]]
