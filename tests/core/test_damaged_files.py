"""Every JSON or TOML file that is read, damaged in every way: an error of ours that names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from regard.core.errors import RegardError
from regard.data.corpus import Corpus
from regard.decoding.templates import template_of
from regard.formats.directory import load
from regard.lab.claims.engine.run import read_facts
from regard.lab.compare.comparison import ComparisonPlan, read_cell
from regard.lab.compare.lineup import LineupEntry, ModelBudget
from regard.methods.probe.experiment import read_cells
from regard.methods.runs import ended
from regard.training.checkpoint import Checkpoints, SavedCheckpoint
from regard.training.progress import read_metrics
from regard.training.recipe import read_resolved
from tests.command import run

DEEP = "[" * 100_000
HUGE = "1" + "0" * 5000


def damages(text: str, keys: list[str]) -> Iterator[tuple[str, bytes]]:
    """A file with JSON in so many ways, and each of these keys with another type."""
    yield "deep", f'{{"a": {DEEP}'.encode()
    yield "closed deep", f'{{"a": {DEEP}{"]" * len(DEEP)}}}'.encode()
    yield "list", b"[1, 2]"
    yield "null", b"null"
    yield "number", b"17"
    yield "string", b'"text"'
    yield "NaN", b'{"a": NaN}'
    yield "infinity", b'{"a": 1e999}'
    yield "huge", f'{{"a": {HUGE}}}'.encode()
    yield "UTF-8", b'{"a": "\xff"}'
    yield "empty", b""
    yield "truncated", text.encode()[: len(text.encode()) // 2]
    table = json.loads(text)
    for key in keys:
        for value in ([[]], {"x": []}, "a word", 5.5, True, None, -(10**30)):
            if same(value, table[key]):
                continue
            yield f"{key} {value!r}", json.dumps(table | {key: value}).encode()
        deep = json.dumps(table | {key: "DEEP"}).replace('"DEEP"', "[" * 400 + "]" * 400)
        yield f"{key} deep", deep.encode()


def same(value: Any, known: Any) -> bool:
    """Does a value have the type of the right one?"""
    numbers = (int, float)
    return type(value) is type(known) or (isinstance(value, numbers) and isinstance(known, numbers))


@dataclass
class FileKind:
    """A file, what reads it, and the keys whose types are checked."""

    file: Path
    read: Callable[[], object]
    keys: list[str] = field(default_factory=list)
    passes: tuple[str, ...] = ()  # damage that this file may have

    def check(self) -> None:
        right = self.file.read_bytes()
        self.read()
        wrong: list[tuple[str, bytes]] = list(damages(right.decode(), self.keys))
        if "repeated" not in self.passes:
            key = next(iter(json.loads(right)))
            wrong.append(("repeated", b'{"%s": 1, ' % key.encode() + right.lstrip()[1:]))
        try:
            for name, content in wrong:
                if name in self.passes:
                    continue
                self.file.write_bytes(content)
                with pytest.raises(RegardError) as caught:
                    self.read()
                    raise AssertionError(f"{self.file.name} {name} was read")
                assert self.file.name in str(caught.value), (name, str(caught.value))
        finally:
            self.file.write_bytes(right)


def asked(*words: object) -> Callable[[], None]:
    """The command, whose refusal is raised."""

    def ask() -> None:
        result = run(*words)
        if result.exception is not None:
            raise result.exception

    return ask


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared text, and a run on it."""
    place = tmp_path_factory.mktemp("files")
    (place / "text.txt").write_text("The cat sat on the mat.\n\n" * 40, "utf-8")
    words = ["--tokenizer", "bytes", "--quiet"]
    assert run("prepare", place / "text.txt", "--out", place / "data", *words).exit_code == 0
    shape = ["--size", "tiny", "--steps", "2", "batch.seq_len=16", "batch.size=2", "--quiet"]
    done = run("train", "gpt", place / "data", "--out", place / "run", *shape)
    assert done.exit_code == 0, done.output
    return place


def test_data_json(home: Path) -> None:
    kinds = ["vocab_size", "dtype", "special", "splits"]
    file = home / "data" / "data.json"
    FileKind(file, lambda: Corpus.open(home / "data", "train"), kinds).check()
    about = json.loads(file.read_text("utf-8"))
    for split in ("documents", "sentences", "tokens", "shards"):
        for value in ([[]], "x", None, 5.5):
            table = json.loads(json.dumps(about))
            table["splits"]["train"][split] = value
            file.write_text(json.dumps(table), "utf-8")
            with pytest.raises(RegardError) as caught:
                run_train(home)
            assert "data.json" in str(caught.value)
    file.write_text(json.dumps(about), "utf-8")


def run_train(home: Path) -> None:
    asked("train", "gpt", home / "data", "--out", home / "new", "--dry-run")()


def test_files_of_a_model(home: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(home / "run", model, ignore=shutil.ignore_patterns("checkpoints"))
    others = ("repeated",)  # transformers reads them, too
    info = asked("info", model)
    open_type = (*others, "model_type None")  # the class says it
    FileKind(model / "config.json", info, ["model_type"], open_type).check()
    tokens = asked("prepare", home / "text.txt", "--out", tmp_path / "x", "--force", "--quiet",
                   "--tokenizer", model)  # fmt: skip
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if not (model / name).is_file():
            (model / name).write_text('{"eos_token": "<|endoftext|>"}', "utf-8")
        FileKind(model / name, tokens, [], others).check()
    config = model / "tokenizer_config.json"
    table = json.loads(config.read_text("utf-8"))
    for value in (5, [["x"]], True, 1.5):
        config.write_text(json.dumps(table | {"eos_token": value}), "utf-8")
        with pytest.raises(RegardError):
            tokens()
    config.write_text(json.dumps(table | {"chat_template": "{{ messages[0].content }}"}), "utf-8")
    read = lambda: template_of(load(model).tokenizer)  # type: ignore[arg-type] # noqa: E731
    FileKind(config, read, ["chat_template"], ("repeated", "chat_template None")).check()


def test_task_json(home: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(home / "run", model, ignore=shutil.ignore_patterns("checkpoints"))
    file = model / "task.json"
    objective = {"name": "classes"}
    facts = {"task": "classify", "objective": objective, "labels": ["a", "b"], "length": 8}
    file.write_text(json.dumps(facts), "utf-8")
    from regard.evaluation.predict import facts_of

    FileKind(file, lambda: facts_of(load(model)), list(facts)).check()
    asking = asked("predict", model, "the cat")
    for _, content in damages(json.dumps(facts), list(facts)):
        file.write_bytes(content)
        with pytest.raises(RegardError):
            asking()
    for wrong in ({}, {"nam": "classes"}, {"name": 3}, {"name": None}, {"name": "nothing"}):
        file.write_text(json.dumps(facts | {"objective": wrong}), "utf-8")
        with pytest.raises(RegardError):
            asking()


def test_recipe_toml(home: Path) -> None:
    file = home / "run" / "recipe.toml"
    right = file.read_bytes()
    import tomllib

    table = tomllib.loads(right.decode())
    deep = "a = " + DEEP
    wrong = [deep.encode(), b"\xff", b"= =", b"[1, 2]", right[: len(right) // 2], b"",
             f"seed = {HUGE}".encode(), b"seed = 1\n" + right, b"seed = nan\n"]  # fmt: skip
    for key, value in (("seed", "x"), ("batch", 5), ("batch", []), ("model", 3), ("nonsense", 1)):
        wrong.append(tomli_w.dumps(table | {key: value}).encode())
    wrong.append(tomli_w.dumps(table | {"optimizer": {"lr": float("nan")}}).encode())
    read_resolved(file)
    for content in wrong:
        file.write_bytes(content)
        with pytest.raises(RegardError) as caught:
            read_resolved(file)
        assert file.name in str(caught.value)
        with pytest.raises(RegardError) as caught:
            asked("train", "--resume", home / "run", "--quiet")()
            raise AssertionError(content[:80])
        assert file.name in str(caught.value)
    file.write_bytes(right)


def test_files_of_a_run(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "run", out := tmp_path / "run")
    point = Checkpoints(out / "checkpoints").latest()
    assert point is not None
    keys = ["step", "best", "files"]
    FileKind(point.path / "checkpoint.json", lambda: SavedCheckpoint.open(point.path), keys).check()
    facts = point.path / "facts.json"
    FileKind(
        facts, lambda: SavedCheckpoint.open(point.path, verify=True), [], ("NaN", "infinity")
    ).check()
    numbers = ("NaN", "infinity")
    FileKind(out / "run.json", lambda: ended(out), ["outcome", "progress"],
             (*numbers, "outcome None", "progress None")).check()  # fmt: skip
    metrics = out / "metrics.jsonl"
    line = metrics.read_text("utf-8").splitlines()[0]
    for name, content in damages(line, ["step", "loss"]):
        if name == "loss None":
            continue
        metrics.write_bytes(content.replace(b"\n", b" ") + b"\n" + line.encode() + b"\n")
        with pytest.raises(RegardError) as caught:
            read_metrics(metrics)
        assert "metrics.jsonl:1" in str(caught.value), name


def test_files_of_comparisons_claims_and_probes(tmp_path: Path) -> None:
    plan = ComparisonPlan(("a.txt",), (LineupEntry("gpt", "causal"),), ModelBudget("minutes", 1.0))
    file = tmp_path / "compare.json"
    file.write_text(json.dumps(plan.table()), "utf-8")
    from regard.lab.compare.comparison import again

    assert again(tmp_path) == plan
    FileKind(
        file, lambda: again(tmp_path), ["sources", "entries", "budget", "seeds", "size"]
    ).check()
    file.write_text("[]", "utf-8")
    assert "compare.json" in run("compare", "--resume", tmp_path).output
    numbers = ("NaN", "infinity")
    cell = tmp_path / "gpt-1.json"
    cell.write_text(json.dumps({"model": "gpt", "parameters": 5, "curve": [{"step": 1}]}), "utf-8")
    kinds = ["model", "parameters", "curve"]
    FileKind(cell, lambda: read_cell(cell), kinds,
             (*numbers, *(f"{key} None" for key in kinds))).check()  # fmt: skip
    claim = tmp_path / "heads" / "claim.json"
    claim.parent.mkdir()
    facts: dict[str, Any] = {
        "verdict": "reproduced", "because": "x", "effort": 1.0, "seeds": 1, "cells": [],
        "cause": "", "plan": "abc", "changed": [], "parts": [],
    }  # fmt: skip
    claim.write_text(json.dumps(facts | {"format": 2}), "utf-8")
    FileKind(claim, lambda: read_facts(tmp_path, "heads"), list(facts), ()).check()
    for words in (["show", "heads"], ["list"]):
        FileKind(claim, asked("claims", *words, "--out", tmp_path), list(facts), ()).check()
    probe = tmp_path / "cells.jsonl"
    row = {"source": "run", "what": "tag", "seed": 1, "layer": 0, "figures": {"accuracy": 0.5}}
    for name, content in damages(json.dumps(row), ["source", "what", "seed", "figures"]):
        if name in ("NaN", "infinity"):
            continue
        probe.write_bytes(content + b"\n")
        with pytest.raises(RegardError):
            read_cells(probe)
