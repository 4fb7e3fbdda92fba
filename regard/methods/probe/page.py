"""The page of a probing: curves over the layers, maps of heads, and every figure, in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regard.core.text import Bilingual
from regard.methods.probe.heads import STATISTICS
from regard.methods.probe.report import Figures, cell, columns_of
from regard.report import pages
from regard.report.charts import ChartAxis, HeatChart, Line, LineChart, PageChart
from regard.report.pages import Figure, Text, filled, named

WORDS = pages.words("probe")
INKS = {"trained": 1, "untrained": 2, "control": 3}
LEVEL = 8  # the ink of what is the same in all layers
SHOWN = (
    ("task", "accuracy"), ("task", "macro_f1"), ("distance", "uuas"), ("distance", "spearman"),
    ("depth", "root"), ("depth", "spearman"), ("head", "accuracy"),
    *(("heads", name) for name in STATISTICS),
)  # fmt: skip


def page(result: Figures) -> str:
    curves, maps = charts(result), head_maps(result) if result["of"] == "heads" else {}
    columns = list(columns_of(result))
    units = ", ".join(f"{count:,} {part}" for part, count in result["units"].items())
    about: list[tuple[Text, Any]] = [
        (WORDS["family"], str(result["family"])),
        (WORDS["depth"], result["depth"]),
        (WORDS.get(f"of_{result['of']}") or str(result["of"]), units),
        (WORDS["seeds"], result["seeds"]),
        (WORDS["kind"], str(result["kind"])),
    ]
    drawn: dict[str, PageChart] = {**curves, **maps}
    return pages.page(
        "probe",
        filled(WORDS["title"], task=str(result["task"])),
        locales=["probe"],
        charts=drawn,
        data={"layers": result["layers"], "baselines": result["baselines"]},
        about=about,
        curves=list(curves),
        maps=list(maps),
        head=[WORDS["layer"], *(heading(result, *column) for column in columns)],
        rows=[
            [row["layer"], *(shown(row.get(source, {}).get(what, {}).get(name))
                             for _, source, what, name in columns)]
            for row in result["layers"]
        ],
        baselines=[
            [baseline(what, name, level), Figure(value, f"{value:.3f}")]
            for what, figures in result["baselines"].items()
            for name, levels in figures.items()
            for level, value in levels.items()
        ],
        relations=[relation(row) for row in result.get("relations", {}).get("trained", [[]])[0]],
        notes=[pages.translated(str(note)) for note in result["notes"]],
    )  # fmt: skip


def heading(result: Figures, title: str, source: str, what: str, name: str) -> Text:
    """What a column of the table holds."""
    if what in result["control"].values():
        return WORDS["control_majority" if name == "majority" else "control"]
    own = WORDS["selectivity"] if name == "selectivity" else WORDS.get(f"{what}_{name}")
    both = pages.both_of(own or named(title))
    if source == "trained":
        return both
    return Bilingual(f"{both.en}, {WORDS[source].en}", f"{both.zh}，{WORDS[source].zh}")


def baseline(what: str, name: str, level: str) -> Text:
    """What a number is that is the same in all layers."""
    figure = pages.both_of(WORDS.get(f"{what}_{name}") or named(name))
    own = pages.both_of(pages.translated(level, "probe"))
    return Bilingual(f"{figure.en}: {own.en}", f"{figure.zh}：{own.zh}")


def shown(figure: Figures | None) -> Figure | None:
    return Figure(figure["mean"], cell(figure)) if figure else None


def relation(row: Figures) -> list[Any]:
    best = f"{row['layer']}·{row['head']}"
    words, ratio, always = row["words"], row["accuracy"], row["baseline"]
    numbers = [Figure(ratio, f"{ratio:.3f}"), Figure(always, f"{row['offset']:+d}: {always:.3f}")]
    way = pages.translated(str(row["direction"]), "probe")
    return [row["relation"], Figure(words, f"{words:,}"), best, way, *numbers]


# -- charts


def charts(result: Figures) -> dict[str, LineChart]:
    """A chart for each figure that was measured."""
    rows = [row for row in result["layers"] if row["layer"] != "mix"]
    layers = [float(row["layer"]) for row in rows]
    drawn = {}
    for what, name in SHOWN:
        if not rows or name not in rows[0]["trained"].get(what, {}):
            continue
        lines = [
            curve(rows, source, what, name, source)
            for source in ("trained", "untrained")
            if source in rows[0]
        ]
        if name == "accuracy" and (control := result["control"].get(what)):
            lines.append(curve(rows, "trained", control, name, "control"))
        for level, value in result["baselines"].get(what, {}).get(name, {}).items():
            ends = [(layers[0], value), (layers[-1], value)]
            own = pages.both_of(pages.translated(level, "probe"))
            name_of_level = Bilingual(*(f"{each} {value:.3g}" for each in own))
            lines.append(Line(name_of_level, ends, LEVEL))
        x = ChartAxis(WORDS["layer"], "count", ticks=layers)
        drawn[f"{what}-{name}"] = LineChart(WORDS[f"{what}_{name}"], lines, x)
    return drawn


def curve(rows: Sequence[Figures], source: str, what: str, name: str, title: str) -> Line:
    """Means with a deviation to either side; of heads the band goes from the least to the most."""
    points, band = [], []
    for row in rows:
        figures = row[source][what]
        if name not in figures:
            continue
        mean, sd = figures[name]["mean"], figures[name]["sd"] or 0.0
        edges = [mean - sd, mean + sd]
        if "heads" in figures:
            edges = [head[name] for head in figures["heads"]]
        points.append((row["layer"], mean))
        band.append((row["layer"], min(edges), max(edges)))
    return Line(WORDS[title], points, INKS[title], band=band)


def head_maps(result: Figures) -> dict[str, HeatChart]:
    """A map for each statistic: layers down, heads across."""
    rows = [row["trained"]["heads"]["heads"] for row in result["layers"]]
    most = max(map(len, rows))
    layers = [filled(WORDS["layer_number"], number=str(row["layer"])) for row in result["layers"]]
    heads = [filled(WORDS["head"], number=str(n + 1)) for n in range(most)]
    return {
        f"map-{name}": HeatChart(
            WORDS[f"heads_{name}"], layers, heads,
            [[head[name] for head in row] + [math.nan] * (most - len(row)) for row in rows],
        )
        for name in STATISTICS
    }  # fmt: skip
