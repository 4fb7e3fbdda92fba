"""Probing: what the page says of curves, and when the goal is missed."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from probe import TASKS, drawn, section, verdict

from tests.benchmarks.bilingual import check_chinese

Values = float | tuple[float, float]  # of both seeds, or of each


def spread(*values: float) -> dict[str, Any]:
    return {"mean": sum(values) / len(values), "sd": 0.01, "values": list(values)}


def cell(name: str, trained: list[Values], untrained: list[Values]) -> dict[str, Any]:
    def figures(values: Values) -> Any:
        first, second = values if isinstance(values, tuple) else (values, values)
        own = {"accuracy": spread(first, second), "macro_f1": spread(first, second)}
        if TASKS[name].control:
            own["selectivity"] = spread(0.1, 0.1)
            return {"task": own, "control": {"accuracy": spread(first - 0.1, second - 0.1)}}
        return {"task": own}

    layers: list[dict[str, Any]] = [
        {"layer": i, "trained": figures(a), "untrained": figures(b)}
        for i, (a, b) in enumerate(zip(trained, untrained, strict=True))
    ]
    return {
        "name": name, "task": name, "of": "words", "classes": ["a", "b"], "seconds": 90.0,
        "units": {"train": 1000, "dev": 100, "test": 100}, "layers": layers, "depth": 2,
        "baselines": {"task": {"accuracy": {"majority": 0.5}}}, "notes": [],
        "control": {"task": "control"} if TASKS[name].control else {},
    }  # fmt: skip


def missed(trained: list[Values], untrained: list[Values]) -> bool:
    return "(missed)" in verdict(cell("capital", trained, untrained))


def test_a_trained_model_that_knows_no_more_is_a_miss() -> None:
    assert not missed([0.6, 0.9, 0.8], [0.6, 0.7, 0.7])
    assert "best trained layer 1" in verdict(cell("capital", [0.6, 0.9, 0.8], [0.6, 0.7, 0.7]))
    assert missed([0.6, 0.7, 0.8], [0.6, 0.7, 0.9])
    assert missed([0.9, 0.8, 0.8], [0.6, 0.7, 0.7])
    assert missed([0.3, 0.4, 0.4], [0.2, 0.2, 0.2])


def test_every_seed_is_above_the_embeddings() -> None:
    """Not their means alone."""
    assert missed([(0.7, 0.8), (0.95, 0.79)], [0.6, 0.6])
    assert not missed([(0.7, 0.8), (0.79, 0.95)], [0.6, 0.6])  # each beside its own


def test_every_layer_of_every_untrained_model_counts() -> None:
    """The highest is not in the layer whose mean is best."""
    trained: list[Values] = [0.6, (0.85, 0.95)]
    assert missed(trained, [(0.3, 0.87), 0.8])
    assert not missed(trained, [(0.3, 0.84), 0.8])
    sentence = verdict(cell("capital", trained, [(0.3, 0.84), 0.8]))
    assert "best of the untrained models: 0.840 (layer 0)" in sentence
    row = cell("capital", [*trained, 0.99], [(0.3, 0.84), 0.8, 0.99])
    row["layers"][2]["layer"] = "mix"
    assert "best trained layer 1" in verdict(row) and "(missed)" not in verdict(row)


def test_a_cell_says_what_its_limit_is_of() -> None:
    """Of files only what learns is limited; tasks from plain text are made as large as asked."""
    settings = {name: task.settings(3, 0) for name, task in TASKS.items()}
    assert {name for name, own in settings.items() if own.get("limited") == "train"} == {"wnut17"}


def test_the_page_has_a_table_and_a_panel_for_each_task() -> None:
    rows = [cell(name, [0.6, 0.9], [0.6, 0.7]) for name in TASKS]
    page = section(rows)
    check_chinese("probing", page)
    assert page.count("### ") == len(TASKS) and page.count("| 1 | 0.900") == len(TASKS)
    assert "1.5 minutes" in page and "probing.svg" in page
    root = ElementTree.fromstring(drawn(rows))
    axes = [e for e in root.iter() if re.fullmatch(r"axes_\d+", e.get("id", ""))]
    assert len(axes) == len(TASKS)
    chinese = drawn(rows, "zh")
    assert all(word in chinese for word in ("大写的词：准确率", "宏平均 F1", "未训练", "层"))
    assert "untrained" not in chinese
