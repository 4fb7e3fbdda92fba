"""Entity linking, from a file to a page: candidates of a record, and of a graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.api import load
from regard.core.errors import InputError
from regard.data.knowledge.graph import Graph
from regard.evaluation.test import Plan, examine
from regard.methods.distill.run import distill
from regard.methods.finetune.run import finetune
from regard.methods.options import DistillOptions
from regard.tasks import read
from regard.tasks.link import EntityCandidate, Linking, Mention, candidates_in
from tests.methods.distill import distilling
from tests.tasks import tuning
from tests.tasks.tuning import OTHERS
from tests.tasks.tuning import stop as stop

COLD = {"name": "cold film", "description": "dull poor"}
POOR = {"name": "poor film", "description": "empty"}


def rows(count: int, candidates: bool = True) -> list[dict[str, Any]]:
    """The film that is described as great is meant; some mentions have a third candidate."""
    made = []
    for i in range(count):
        names = ["warm film", "cold film"][:: 1 if i % 2 == 0 or not candidates else -1]
        text = f"the film {OTHERS[i % 8]} {OTHERS[i // 8 % 8]}"
        row: dict[str, Any] = {"text": text, "mention": "film", "label": names[0]}
        if candidates:
            both = [{"name": names[0], "description": "great moving"},
                    {"name": names[1], "description": "dull poor"}]  # fmt: skip
            row["candidates"] = [*both[:: 1 if i % 3 else -1], *([POOR] if i % 5 == 0 else [])]
        made.append(row)
    return made


def data(place: Path, count: int = 60, candidates: bool = True) -> Path:
    lines = [json.dumps(row) for row in rows(count, candidates)]
    place.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mention": "Rome"}, "'Rome' is nowhere in the text"),
        ({"start": 3}, "'film' is not at character 3"),
        ({"label": "Rome"}, "'Rome' is none of the candidates"),
        ({"candidates": [COLD, COLD]}, "two candidates have one name"),
        ({"candidates": "cold"}, "the candidates are str"),
        ({"candidates": [{"text": "x"}]}, "candidate 1 has no name"),
        ({"label": ""}, "no name of an entity"),
    ],
)
def test_wrong_records_are_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(rows(1)[0] | changes), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read(str(file), "link")


def test_candidates_come_in_several_shapes(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    for given in (["a", "b"], {"a": "", "b": ""}, [{"id": "a"}, {"title": "b", "text": ""}]):
        row = {"text": "the film", "mention": "film", "candidates": given}
        file.write_text(json.dumps(row), encoding="utf-8")
        (found,) = read(str(file), "link")
        assert isinstance(found, Mention)
        assert found.candidates == (EntityCandidate("a"), EntityCandidate("b"))


def test_candidates_of_a_graph() -> None:
    graph = Graph(
        [("Paris", "is", "city"), ("Paris Hilton", "is", "person"), ("Rome", "is", "city")]
    )
    found = candidates_in(graph, "paris", 5)
    assert found == (
        EntityCandidate("Paris", "is city"),
        EntityCandidate("Paris Hilton", "is person"),
    )
    assert candidates_in(graph, "Paris", 1) == found[:1] and candidates_in(graph, "Oslo", 5) == ()


def test_figures() -> None:
    said = [["a", "b"], ["b", "a"], ["c", "d", "e", "f", "g", "a"], ["b"]]
    found = Linking(["a"] * 4, said).figures
    assert found == pytest.approx(
        {"accuracy": 0.25, "recall_at_5": 0.5, "reciprocal_rank": (1 + 0.5 + 1 / 6) / 4}
    )
    assert Linking(["a"], ["a"]).figures["accuracy"] == 1.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("link")
    recipe = tuning.recipe(
        tuning.bert(place / "bert"), data(place / "train.jsonl"),
        examples={"task": "link"}, budget={"steps": 80},
    )  # fmt: skip
    facts = finetune(recipe, place / "run", display="silent")
    assert facts["valid"]["accuracy"] > 0.8
    return place / "run"


def test_from_a_file_to_a_page(run: Path, tmp_path: Path) -> None:
    found = examine(str(run), [str(data(tmp_path / "test.jsonl", 20))], Plan(resamples=40))
    assert found["figures"]["accuracy"] > 0.8 and found["figures"]["recall_at_5"] == 1.0
    assert "recall at 5" in Path(found["out"], "report.html").read_text()
    record = rows(1)[0]
    said = load(run).predict(record)
    assert said.value == "warm film" and set(said.scores) == {"warm film", "cold film", "poor film"}
    assert sum(said.scores.values()) == pytest.approx(1.0)
    with pytest.raises(InputError, match="'film' has no candidates, and there is no graph"):
        load(run).predict({k: v for k, v in record.items() if k != "candidates"})


def test_a_student_learns_it_from_its_teacher(run: Path, tmp_path: Path) -> None:
    file = data(tmp_path / "train.jsonl")
    recipe = distilling.task(file, examples={"task": "link"}, budget={"steps": 40})
    facts = distill(recipe, tmp_path / "run", DistillOptions(str(run), "layers=1"),
                    display="silent")  # fmt: skip
    assert facts["objective"] == "distill" and facts["valid"]["accuracy"] > 0.8
    assert load(tmp_path / "run").predict(rows(1)[0]).value == "warm film"


def test_a_graph_goes_along_with_the_model(tmp_path: Path) -> None:
    graph = tmp_path / "graph.tsv"
    graph.write_text("warm film\tis\tgreat moving\ncold film\tis\tdull poor\n", encoding="utf-8")
    recipe = tuning.recipe(
        tuning.bert(tmp_path / "bert"), data(tmp_path / "train.jsonl", 40, candidates=False),
        examples={"task": "link"}, objective={"graph": str(graph)}, budget={"steps": 60},
    )  # fmt: skip
    finetune(recipe, tmp_path / "run", display="silent")
    graph.unlink()
    said = load(tmp_path / "run").predict({"text": "the film was great", "mention": "film"})
    assert said.value == "warm film" and set(said.scores) == {"warm film", "cold film"}
