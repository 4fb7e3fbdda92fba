"""Every family on the registry is trained, asked, fine-tuned, looked into and compared alike.

Nothing here names a family: what one can do is on its card and among its capabilities.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from regard.api import load
from regard.core.errors import RegardError
from regard.data.prepare import PreparePlan, SplitShares, prepare
from regard.evaluation.test import examine
from regard.lab.compare.comparison import begin
from regard.lab.compare.lineup import ModelBudget
from regard.lab.compare.report import write_report
from regard.lab.look.page import page
from regard.lab.look.recorded import look
from regard.methods.finetune.run import finetune
from regard.models import FAMILIES
from regard.training.recipe import make
from regard.training.run import train
from tests.lab.compare.test_whole import Inside, plan_of

SHAPE = {"layers": 1, "width": 16, "heads": 2, "ffn_size": 32, "head_size": 8, "window": 8,
         "windows": [8], "mem_len": 8, "cutoffs": [], "ratio": 1}  # fmt: skip
FAST = {
    "budget": {"steps": 2},
    "batch": {"size": 4, "seq_len": 48},
    "engine": {"precision": "fp32", "compile": "no"},
}
SENTENCES = [
    f"Film {i} was {'good' if i % 2 else 'bad'} , and Anna saw {('Rome', 'Oslo')[i % 2]} ."
    for i in range(120)
]
RECORDS: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": s, "label": "good" if "good" in s else "bad"} for s in SENTENCES[:40]],
    "tag": [
        {"tokens": ["Anna", "saw", "Rome", str(i)], "tags": ["B-PER", "O", "B-LOC", "O"]}
        for i in range(40)
    ],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared text, and the records of two tasks beside it."""
    place = tmp_path_factory.mktemp("families")
    text = "\n\n".join(" ".join(SENTENCES[i : i + 4]) for i in range(0, len(SENTENCES), 4))
    (place / "text.txt").write_text(text, encoding="utf-8")
    shares = SplitShares(0.2, 0.0)
    prepare(PreparePlan((str(place / "text.txt"),), place / "text", vocab_size=400, shares=shares))
    for task, records in RECORDS.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (place / f"{task}.jsonl").write_text(lines, encoding="utf-8")
    return place


@pytest.fixture(scope="module", params=FAMILIES)
def trained(request: pytest.FixtureRequest, data: Path) -> Path:
    """A run of two steps on plain text."""
    fields = FAMILIES[request.param].config.__dataclass_fields__
    shape = {name: value for name, value in SHAPE.items() if name in fields}
    table = {"model": request.param, "data": str(data / "text"), "shape": shape}
    train(make(table, FAST), data / request.param, display="silent")
    return data / request.param


def test_what_was_learned_is_asked(trained: Path) -> None:
    loaded = load(trained)
    assert loaded.model.family.name == trained.name
    if loaded.model.decoding:
        assert loaded.generate("Film 3 was", max_new_tokens=3).ids
    if loaded.model.fills:
        assert loaded.fill("Film 3 was ____ .").blanks
    assert loaded.embed("Film 3 was good .").shape == (SHAPE["width"],)
    if loaded.model.attends:
        assert "<html" in page(look(loaded, "Film 3 was good ."))


@pytest.mark.parametrize("task", RECORDS)
def test_a_task_is_learned_and_tested(trained: Path, task: str, tmp_path: Path) -> None:
    card = FAMILIES[trained.name]
    file = trained.parent / f"{task}.jsonl"
    recipe = make({"model": str(trained), "data": str(file), "examples": {"task": task}}, FAST)
    if card.input_format is None and not (card.writes_tasks and task == "classify"):
        with pytest.raises(RegardError):
            finetune(recipe, tmp_path / "run", display="silent")
        return
    finetune(recipe, tmp_path / "run", display="silent")
    loaded = load(tmp_path / "run")
    if task == "classify":
        value = loaded.classify("Film 3 was good .").value
        assert value in ("good", "bad") or card.writes_tasks  # which may write anything
    else:
        assert len(loaded.tag("Anna saw Rome .").tags) == 4
    assert examine(str(tmp_path / "run"), [str(file)])


@pytest.mark.slow
def test_all_are_compared(data: Path) -> None:
    plan = plan_of(str(data / "text.txt"), *FAMILIES, blanks=4, pairs=4)
    plan = dataclasses.replace(plan, budget=ModelBudget("tokens", 1000))
    begin(plan, data / "compared")
    comparison = Inside(plan, data / "compared", lambda name, record: None)
    report = write_report(comparison.go(), comparison.out)
    assert report["missing"] == []
    assert {*report["costs"]["curves"]} == {*FAMILIES}
