"""`regard quantize`: what is written, what is measured, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import load
from regard.cli.main import main
from regard.core.errors import ConfigError, InputError, StorageError, UnknownName
from regard.evaluation import test as testing
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.methods.quantize.run import Plan, quantize
from regard.methods.smaller import share_kept
from regard.models import create
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.world import World

QUICK = Plan(repeats=1)


@pytest.fixture(scope="module")
def reviewer(world: World) -> str:
    return world.run("reviewer")


@pytest.mark.parametrize("kind", ["int8", "int8-dynamic", "int4", "bf16"])
def test_a_task_keeps_its_score(world: World, reviewer: str, kind: str, tmp_path: Path) -> None:
    data = world.data("classify", 200)
    plan = Plan(kind=kind, data=[data], repeats=1)
    report = quantize(reviewer, tmp_path / "small", plan)
    score = report["score"]
    assert score["figure"] == "accuracy" and score["examples"] == 200
    assert score["before"] > 0.75 and score["kept"] >= 0.97
    own = testing.examine(
        str(tmp_path / "small"), [data], testing.Plan(out=tmp_path / "t", resamples=1)
    )
    assert own["figures"]["accuracy"] == score["after"]
    assert report["bytes"]["after"] < report["bytes"]["before"]
    assert report["speed"]["unit"] == "sentences/s" and report["speed"]["after"] > 0
    assert json.loads((tmp_path / "small" / "quantize.json").read_text()) == report


def test_what_belongs_to_a_model_comes_along(reviewer: str, tmp_path: Path) -> None:
    quantize(reviewer, tmp_path / "small", Plan(repeats=0))
    for name in ("task.json", "tokenizer.json", "recipe.toml"):
        assert (tmp_path / "small" / name).read_bytes() == Path(reviewer, name).read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small"]
    loaded = load(tmp_path / "small")
    again = loaded.save(tmp_path / "again")
    assert (again / "task.json").is_file()
    pair = [load(tmp_path / name).model.state_dict() for name in ("small", "again")]
    assert all(torch.equal(value, pair[1][name]) for name, value in pair[0].items())


def test_a_tagger_keeps_its_crf(tmp_path: Path, world: World) -> None:
    run = shutil.copytree(world.run("tagger"), tmp_path / "tagger")
    (run / "crf.safetensors").write_bytes(b"whatever it holds")
    quantize(str(run), tmp_path / "small", Plan(repeats=0))
    assert (tmp_path / "small" / "crf.safetensors").read_bytes() == b"whatever it holds"


def test_a_language_model(world: World, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    records = tuning.reviews(40, 3)
    text.write_text("\n\n".join(r["text"] for r in records) + "\n", encoding="utf-8")
    report = quantize(world.model("gpt"), tmp_path / "small", Plan(data=[str(text)], repeats=1))
    assert report["speed"]["unit"].startswith("tokens/s")
    score = report["score"]
    assert score["lower_is_better"] and score["figure"] == "perplexity"
    assert score["kept"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", ["xlnet", "longformer", "lstm", "t5"])
def test_other_families(world: World, name: str, tmp_path: Path) -> None:
    report = quantize(world.model(name), tmp_path / "small", QUICK)
    assert report["speed"]["before"] > 0
    assert any("layers.0.weight" in n for n in report["stays"]) == (name == "lstm")
    load(tmp_path / "small")


def test_excluded_layers_are_told(world: World, tmp_path: Path) -> None:
    plan = Plan(exclude=["output"], repeats=0)
    shape: dict[str, Any] = {"layers": 1, "width": 64, "heads": 2, "vocab_size": 300, "context": 16}
    save(create("gpt", **shape), tmp_path / "gpt")
    report = quantize(str(tmp_path / "gpt"), tmp_path / "small", plan)
    assert report["stays"] == ["tokens.weight"]


def test_never_twice(world: World, tmp_path: Path) -> None:
    quantize(world.model("gpt"), tmp_path / "small", Plan(repeats=0))
    with refuses(ConfigError, tmp_path / "small", "weight"):
        quantize(str(tmp_path / "small"), tmp_path / "smaller", Plan(repeats=0))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small"]


def test_nothing_is_overwritten(world: World, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "note").write_text("mine")
    for out in (tmp_path / "there", tmp_path / "there" / "note"):
        with refuses(StorageError, out, "--out"):
            quantize(world.model("gpt"), out, QUICK)
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["note"]


def test_a_test_that_fails_leaves_nothing(world: World, reviewer: str, tmp_path: Path) -> None:
    with refuses(InputError, tmp_path / "none"):
        quantize(reviewer, tmp_path / "small", Plan(data=[str(tmp_path / "none")], repeats=0))
    assert not list(tmp_path.iterdir())


def test_it_does_not_learn(world: World, tmp_path: Path) -> None:
    quantize(world.model("bert"), tmp_path / "small", Plan(repeats=0))
    recipe = tuning.recipe(
        tmp_path / "small", Path(world.data("classify", 20)), examples={"task": "classify"},
        budget={"steps": 1},
    )  # fmt: skip
    with refuses(ConfigError, "'int8'", "train"):
        finetune(recipe, tmp_path / "run", display="silent")


def test_a_model_that_reads_little_at_once(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"layers": 1, "width": 16, "heads": 2, "vocab_size": 30, "context": 8}
    save(create("gpt", **shape), tmp_path / "gpt")
    assert quantize(str(tmp_path / "gpt"), tmp_path / "small", Plan(repeats=1))["speed"]["after"]


def test_a_machine_without_native_code_is_told(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.methods.quantize.run.kernel", lambda name: None)
    for kind, count in (("int8", 1), ("int4", 1), ("bf16", 0)):
        plan = Plan(kind=kind, repeats=0)
        assert len(quantize(world.model("gpt"), tmp_path / kind, plan)["notes"]) == count


def test_what_is_left_of_a_score() -> None:
    assert share_kept(0.5, 0.4, falling=False) == pytest.approx(0.8)
    assert share_kept(4.0, 5.0, falling=True) == pytest.approx(0.8)
    assert share_kept(0.5, 0.0, falling=False) == 0.0
    assert share_kept(0.0, 0.1, falling=False) is None and share_kept(-0.1, 0.1, False) is None


def test_kinds_have_names() -> None:
    with refuses(UnknownName, "'int9'", "'int8'"):
        Plan(kind="int9")
    with refuses(ConfigError, "--limit is -1"):
        Plan(limit=-1)


def test_the_command(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quantize", world.model("gpt"), "--repeats", "1", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "a"), "--json", "--scheme", "bf16"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["kind"] == "bf16" and err == ""
    assert main([*words, "--out", str(tmp_path / "b"), "--exclude", "blocks.0.*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == [
        "size, MB", "tokens/s, decoding one text",
    ]  # fmt: skip
    assert main([*words, "--out", str(tmp_path / "b")]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


def test_data_are_read_as_the_options_say(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.csv"
    rows = tuning.reviews(8, 3)
    data.write_text("".join(f"{r['label']},{r['text']}\n" for r in rows), encoding="utf-8")
    words = ["quantize", world.run("reviewer"), "--out", str(tmp_path / "small"), "--repeats", "0",
             "--json", "--quiet", "--data", str(data), "--no-header", "--field", "label=1",
             "--field", "text=2", "--limit", "6", "--task", "classify"]  # fmt: skip
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["score"]["examples"] == 6
