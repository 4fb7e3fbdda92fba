"""How data are read is said alike to every command, and what the reader says is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.cli.main import main
from tests.tasks import tuning
from tests.tasks.world import World, texts


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A library `datasets` that knows one dataset; the names it was asked for."""
    names: list[str] = []

    class Rows(list[dict[str, Any]]):
        features = {"text": None, "label": SimpleNamespace(names=["bad", "good"])}

    def load_dataset(name: str, *_: Any, **__: Any) -> Rows:
        names.append(name)
        records = tuning.reviews(40)
        return Rows({"text": r["text"], "label": int(r["label"] == "good")} for r in records)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return names


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The examples table of the recipe that a command would run."""
    fast = ["--dry-run", "--json", "--epochs", "1", "batch.size=8", "engine.precision=fp32"]
    assert main(["finetune", *words, *fast]) == 0, capsys.readouterr().err
    result: dict[str, Any] = json.loads(capsys.readouterr().out)["recipe"]["examples"]
    return result


def test_finetune_names_columns(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "reviews.data"
    rows = [f"{i},{r['label']},{r['text']}\n" for i, r in enumerate(tuning.reviews(40))]
    file.write_text("id,text,label\n" + "".join(rows))  # a header that is wrong
    words = [world.model("bert"), "--task", "classify", "--data", str(file), "--out", "run"]
    words += ["--format", "csv"]
    result = planned(capsys, *words, "--header", "--field", "label=2", "examples.fields.text=3")
    assert result["fields"] == {"label": "2", "text": 3} and result["labels"] == ["bad", "good"]
    assert result["format"] == "csv" and result["header"] == "yes"
    file.write_text("".join(rows))
    result = planned(capsys, *words, "--no-header", "--field", "label=2", "--field", "text=3")
    assert result["header"] == "no" and result["labels"] == ["bad", "good"]
    assert main(["finetune", *words, "--field", "label"]) == 2
    assert "--field label is not ROLE=NAME" in capsys.readouterr().err


def test_a_number_as_a_field(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "reviews.csv"
    file.write_text("".join(f"{r['text']},{r['label']}\n" for r in tuning.reviews(40)))
    words = ["finetune", world.model("bert"), "--task", "classify", "--data", str(file)]
    words += ["examples.fields.text=1", "examples.fields.label=2", "budget.steps=1"]
    words += ["batch.size=8", "engine.precision=fp32", "engine.compile=no"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    out, err = capsys.readouterr()
    output = (out + err).replace("\n", " ")
    assert "tables whose first line names no known field (no-header): 1" in output
    assert output.count("no-header") == 1


def test_the_hub(
    world: World, tmp_path: Path, hub: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [world.model("bert"), "--task", "classify", "--data", "hub:some/reviews"]
    assert main(["finetune", *words, "--out", str(tmp_path / "run")]) == 2
    assert "allow it with --download" in capsys.readouterr().err and not hub
    result = planned(capsys, *words, "--out", "run", "--download")
    assert result["download"] is True and result["labels"] == ["bad", "good"]
    assert set(hub) == {"some/reviews"}
    test = ["evaluate", world.run("reviewer"), "hub:some/reviews", "--out", str(tmp_path / "test")]
    assert main(test) == 2
    assert "allow it with --download" in capsys.readouterr().err
    assert main([*test, "--download", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 40


def test_parallel_files_are_written_alike_everywhere(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [str(tmp_path / name) for name in ("a.en", "a.zh")]
    for side, seed in zip(sides, (4, 5), strict=True):
        Path(side).write_text("".join(f"{text}\n" for text in texts(6, seed)))
    result = []
    for data in (sides, [",".join(sides)]):
        words = ["evaluate", world.run("translator"), *data, "--max-new-tokens", "4", "--json"]
        assert main([*words, "--out", str(tmp_path / "out")]) == 0
        result.append(json.loads(capsys.readouterr().out))
    assert result[0]["figures"] == result[1]["figures"] and result[0]["examples"] == 6
    words = ["finetune", world.model("t5"), "--task", "translate", "--data", ",".join(sides)]
    words += ["--out", str(tmp_path / "run"), "budget.steps=1", "engine.precision=fp32"]
    assert main([*words, "--quiet", "batch.size=2", "engine.compile=no"]) == 0


def test_test_and_prompt_tell_what_the_reader_said(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [record | {"id": "same"} for record in tuning.reviews(4)]
    file = str(tuning.write(tmp_path / "r.jsonl", records))
    assert main(["evaluate", world.run("reviewer"), file, "--out", str(tmp_path / "out")]) == 0
    note = "note: ids that occur twice (duplicate-id): 3, the first is"
    assert note in capsys.readouterr().err
    prompted = ["evaluate", world.model("gpt"), file, "--task", "classify", "--shots", "0"]
    assert main(prompted) == 0
    assert note in capsys.readouterr().err
    assert main([*prompted, "--json"]) == 0
    assert "duplicate-id" in json.loads(capsys.readouterr().out)["notes"][0]
