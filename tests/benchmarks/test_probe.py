"""Probing: what the page says of curves, and when the goal is missed."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from probe import TASKS, drawn, section, verdict


def spread(*values: float) -> dict[str, Any]:
    return {"mean": sum(values) / len(values), "sd": 0.01, "values": list(values)}


def cell(name: str, trained: list[float], untrained: list[float]) -> dict[str, Any]:
    def figures(value: float) -> Any:
        own = {"accuracy": spread(value, value), "macro_f1": spread(value, value)}
        if TASKS[name].control:
            own["selectivity"] = spread(0.1, 0.1)
            return {"task": own, "control": {"accuracy": spread(value - 0.1, value - 0.1)}}
        return {"task": own}

    layers = [
        {"layer": i, "trained": figures(a), "untrained": figures(b)}
        for i, (a, b) in enumerate(zip(trained, untrained, strict=True))
    ]
    return {
        "name": name, "task": name, "of": "words", "classes": ["a", "b"], "seconds": 90.0,
        "units": {"train": 1000, "dev": 100, "test": 100}, "layers": layers, "depth": 2,
        "baselines": {"task": {"accuracy": {"majority": 0.5}}}, "notes": [],
        "control": {"task": "control"} if TASKS[name].control else {},
    }  # fmt: skip


def test_a_trained_model_that_knows_no_more_is_a_miss() -> None:
    assert "(missed)" not in verdict(cell("capital", [0.6, 0.9, 0.8], [0.6, 0.7, 0.7]))
    assert "best trained layer 1" in verdict(cell("capital", [0.6, 0.9, 0.8], [0.6, 0.7, 0.7]))
    assert "(missed)" in verdict(cell("capital", [0.6, 0.7, 0.8], [0.6, 0.7, 0.9]))
    assert "(missed)" in verdict(cell("capital", [0.9, 0.8, 0.8], [0.6, 0.7, 0.7]))
    assert "(missed)" in verdict(cell("capital", [0.3, 0.4, 0.4], [0.2, 0.2, 0.2]))


def test_the_page_has_a_table_and_a_panel_for_each_task() -> None:
    rows = [cell(name, [0.6, 0.9], [0.6, 0.7]) for name in TASKS]
    page = section(rows)
    assert page.count("### ") == len(TASKS) and page.count("| 1 | 0.900") == len(TASKS)
    assert "1.5 minutes" in page and "probing.svg" in page
    root = ElementTree.fromstring(drawn(rows))
    assert len([e for e in root.iter() if e.tag.endswith("}g")]) == len(TASKS)
