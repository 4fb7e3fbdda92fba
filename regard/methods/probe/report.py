"""Summarizes cells: means and deviations over seeds, selectivity, and a table in lines."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.methods.probe.control import selectivity
from regard.methods.probe.probes import MIX

Key = tuple[str, str, int, int]  # source, what, seed, layer
Figures = dict[str, Any]
ASIDE = ("heads", "shares", "gamma", "selectivity", "majority", "epochs")  # left out of the table


def spread(values: Sequence[float]) -> Figures:
    """Returns the mean, the standard deviation (None for a single value), and the values."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": deviation, "values": list(values)}


def summary(
    cells: Mapping[Key, Figures], question: Any, plan: Any, layers: Sequence[int], facts: Figures
) -> Figures:
    """Returns the content of probe.json."""
    sources = ["trained", *["untrained"] * plan.untrained]
    rows = []
    for layer in layers:
        row: Figures = {"layer": "mix" if layer == MIX else layer}
        for source in sources:
            row[source] = {
                what: averaged([cells[key] for key in sorted(cells)
                                if (key[0], key[1], key[3]) == (source, what, layer)])
                for what in question.whats
            }  # fmt: skip
            for what, control in question.control_of.items():
                pairs = zip(row[source][what]["accuracy"]["values"],
                            row[source][control]["accuracy"]["values"], strict=True)  # fmt: skip
                row[source][what]["selectivity"] = spread([selectivity(a, b) for a, b in pairs])
        rows.append(row)
    result = {
        "task": question.name,
        **facts,
        **question.facts(),
        "kind": plan.kind,
        "seeds": plan.seeds,
        "pooling": plan.pooling,
        "control": dict(question.control_of),
        "layers": rows,
    }
    relations = [(key, figures) for key, figures in cells.items() if "relations" in figures]
    if relations:
        result["relations"] = {
            source: [figures["relations"] for key, figures in relations if key[0] == source]
            for source in sources
        }
    return result


def averaged(figures: Sequence[Figures]) -> Figures:
    """Returns the mean and the deviation of each figure. For heads, it returns the records of the
    first seed."""
    means: Figures = {}
    for name in figures[0] if figures else ():
        values = [each[name] for each in figures]
        if name == "heads":
            means[name] = values[0]
        elif name == "shares":
            means[name] = [statistics.fmean(column) for column in zip(*values, strict=True)]
        elif name != "relations" and all(isinstance(value, int | float) for value in values):
            means[name] = spread(values)
    return means


# -- the table


def in_lines(result: Figures) -> Iterator[str]:
    """Yields the lines of a table for people: one line for each layer, compared values side by
    side."""
    units = ", ".join(f"{count:,} {part}" for part, count in result["units"].items())
    yield f"{result['task']} · {result['family']}, {result['depth']} layers · {units}"
    columns = list(columns_of(result))
    heads = ["layer", *(title for title, *_ in columns)]
    lines = [heads]
    for row in result["layers"]:
        cells = [cell(row.get(source, {}).get(what, {}).get(name)) for _, source, what, name in
                 columns]  # fmt: skip
        lines.append([str(row["layer"]), *cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    for line in lines:
        yield "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
    for what, figures in result["baselines"].items():
        for name, levels in figures.items():
            values = ", ".join(f"{key} {value:.3f}" for key, value in levels.items())
            yield f"baseline of {name if what == 'task' else f'{what} {name}'}: {values}"
    for row in result.get("relations", {}).get("trained", [[]])[0]:
        yield (
            f"{row['relation']:<12} {row['words']:>7,} words  layer {row['layer']} head "
            f"{row['head']} ({row['direction']}) {row['accuracy']:.3f}, always "
            f"{row['offset']:+d}: {row['baseline']:.3f}"
        )


def columns_of(result: Figures) -> Iterator[tuple[str, str, str, str]]:
    """Yields the columns of the table as (title, source, what, figure)."""
    sources = [s for s in ("trained", "untrained") if result["layers"] and s in result["layers"][0]]
    first = result["layers"][0]["trained"] if result["layers"] else {}
    several = len([what for what in first if what not in result["control"].values()]) > 1
    for source in sources:
        for what, figures in first.items():
            if what in result["control"].values():
                continue
            for name in figures:
                if name in ASIDE:
                    continue
                title = f"{what} {name}" if several else name.replace("_", " ")
                yield f"{title}, untrained" if source == "untrained" else title, source, what, name
                if name == "accuracy" and what in result["control"] and source == "trained":
                    control = result["control"][what]
                    yield "control", source, control, name
                    if "majority" in first[control]:
                        yield "its majority", source, control, "majority"
                    yield "selectivity", source, what, "selectivity"


def cell(figure: Figures | None) -> str:
    if not figure:
        return "–"
    sd = "" if figure["sd"] is None else f" ± {figure['sd']:.3f}"
    return f"{figure['mean']:.3f}{sd}"
