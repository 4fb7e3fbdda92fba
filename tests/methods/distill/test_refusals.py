"""What cannot be distilled: refused before anything dear is done, with nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import models

import regard
from regard.api import load
from regard.core.errors import ConfigError, InputError, RegardError, UnknownName
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import save
from regard.methods.distill import sequence
from regard.methods.distill.run import Asked, distill
from regard.methods.finetune.run import finetune
from regard.training.recipe import Recipe
from tests.methods.distill.distilling import judge as judge  # fixtures, and what they need
from tests.methods.distill.distilling import masked as masked
from tests.methods.distill.distilling import quick, task
from tests.methods.distill.distilling import text as text
from tests.methods.distill.distilling import translator as translator
from tests.objectives.rules import tiny
from tests.refusals import refuses
from tests.tasks.tuning import bert, model, tokenizer


def test_what_cannot_be_distilled(
    masked: Path,
    text: Path,
    judge: tuple[Path, Path],
    translator: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    out, judges, file = tmp_path / "run", str(judge[0]), judge[1]

    half = Asked(str(masked), "layers=2")
    plain, odd = quick(text), quick(text, objective={"temperature": 0.0})
    pairs, gone, missing = replace(half, sequence=True), tmp_path / "gone", tmp_path / "no.jsonl"
    cases: list[tuple[Recipe, Asked, type[RegardError], list[object]]] = [
        (plain, replace(half, style="odd"), UnknownName, ["style", "'odd'"]),
        (plain, pairs, ConfigError, ["--sequence-level", text]),
        (task(file), replace(pairs, teacher=judges), ConfigError, ["--sequence-level", file]),
        (plain, replace(half, vocab_size=9), ConfigError, ["--vocab-size", text]),
        (plain, replace(half, teacher=str(gone)), ConfigError, ["teacher", gone]),
        (plain, replace(half, student=str(gone)), ConfigError, ["student", gone, "NAME=NUMBER"]),
        (quick(text, examples={"labels": ["x"]}), half, ConfigError, ["examples.labels", text]),
        # What is found out only on the way leaves no directory behind, either.
        (odd, half, ConfigError, ["objective.temperature is 0"]),
        (task(missing), replace(half, teacher=judges), InputError, [missing]),
        (task(file), Asked(str(translator[0]), "layers=1"), ConfigError, [translator[0], "text"]),
        (plain, replace(half, student="layers=7"), ConfigError, ["layers = 7", "4"]),
    ]
    for recipe, options, error, names in cases:
        with refuses(error, *names):
            distill(recipe, out, options, display="silent")
    assert not out.exists()
    occupied, empty = tmp_path / "occupied", tmp_path / "empty"
    occupied.mkdir()
    empty.mkdir()
    (occupied / "mine.txt").write_text("mine")
    with refuses(ConfigError, occupied, "--out"):
        distill(plain, occupied, half, display="silent")
    assert [entry.name for entry in occupied.iterdir()] == ["mine.txt"]
    with refuses(ConfigError, "objective.temperature is 0"):
        distill(odd, empty, half, display="silent")
    assert empty.is_dir() and not list(empty.iterdir())


# --- before something dear -----------------------------------------------------------------------


@pytest.fixture
def nothing_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """No teacher writes, and nobody learns."""
    monkeypatch.setattr(sequence, "generate", lambda *args, **more: pytest.fail("too late"))
    monkeypatch.setattr("regard.methods.distill.run.run", lambda *args, **more: pytest.fail("late"))


@pytest.mark.usefixtures("nothing_dear")
@pytest.mark.parametrize(
    ("style", "changes", "error", "name"),
    [
        ("", {"objective": {"smoothing": 2.0}}, ConfigError, "smoothing is 2"),
        # no teacher is asked
        ("", {"objective": {"temperature": 2.0}}, UnknownName, "objective.temperature"),
        ("hinton", {"objective": {"temperature": 0.0}}, ConfigError, "objective.temperature is 0"),
        ("", {"batch": {"size": 3, "grad_accum": 2}}, ConfigError, "batch.size is 3"),
        ("", {"batch": {"order": "streams"}}, ConfigError, 'batch.order is "streams"'),
        ("", {"optimizer": {"name": "odd"}}, UnknownName, "optimizer 'odd'"),
        ("", {"schedule": {"name": "odd"}}, UnknownName, "schedule 'odd'"),
        ("", {"budget": {"epochs": 2.0}}, ConfigError, "steps and epochs"),
        # no layers are learned before answers
        ("tinybert", {"objective": {"temperature": 0.0}}, ConfigError, "temperature is 0"),
        ("tinybert", {"objective": {"soft": 0.0}}, ConfigError, "weight 0"),
    ],
)
def test_nothing_dear_is_done_for_a_run_that_would_be_refused(
    translator: tuple[Path, Path],
    judge: tuple[Path, Path],
    tmp_path: Path,
    style: str,
    changes: dict[str, Any],
    error: type[RegardError],
    name: str,
) -> None:
    layers = style == "tinybert"
    teacher, data = judge if layers else translator
    recipe = task(data, **changes) if layers else quick(data, **changes)
    options = Asked(str(teacher), "layers=1", style=style, sequence=not layers)
    with refuses(error, name):
        distill(recipe, tmp_path / "run", options, display="silent")
    assert not (tmp_path / "run").exists()


# --- a student that is there already -------------------------------------------------------------


@pytest.mark.usefixtures("nothing_dear")
@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ({"width": 32}, ["32 wide", "16"]),
        ({"layers": 3}, ["encoder", "3 layers", "2"]),
        ({"decoder_layers": 3}, ["decoder", "3 layers", "2"]),
        ({"vocab_size": 41}, ["41 tokens", "40"]),
    ],
)
def test_a_student_that_is_larger_than_its_teacher(
    translator: tuple[Path, Path],
    tmp_path: Path,
    shape: dict[str, int],
    names: list[str],
) -> None:
    """Also where it only learns from what the teacher writes."""
    teacher, where = translator
    teacher_model = load(teacher).model
    save(
        type(teacher_model)(teacher_model.config.replace(**shape)).initialize(),
        tmp_path / "student",
    )
    options = Asked(str(teacher), str(tmp_path / "student"), sequence=True)
    with refuses(ConfigError, "student", "teacher", *names):
        distill(quick(where), tmp_path / "run", options, display="silent")
    assert not (tmp_path / "run").exists()


def test_a_student_of_a_directory_learns_what_its_teacher_writes(
    translator: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it reads the same tokens: as many others are not the same."""
    teacher, where = translator
    loaded = load(teacher)
    small = type(loaded.model)(loaded.config.replace(layers=1)).initialize()
    place = str(save(small, tmp_path / "student", loaded.tokenizer))
    options = Asked(str(teacher), place, sequence=True, num_beams=1)
    report = distill(quick(where), tmp_path / "run", options, display="silent")
    assert report["outcome"] == "done" and report["distilled"]["student"] == small.parameter_count()
    words = Fast(models.WordLevel({f"x{i}": i for i in range(40)}, unk_token="x2"))
    other = Tokenizer(words, {"tokenizer.json": words.to_str().encode()})
    place = str(save(small, tmp_path / "other", other))
    monkeypatch.setattr(sequence, "generate", lambda *args, **more: pytest.fail("too late"))
    options = Asked(str(teacher), place, sequence=True, num_beams=1)
    with refuses(RegardError, "another tokenizer"):
        distill(quick(where), tmp_path / "again", options, display="silent")
    assert not (tmp_path / "again").exists()


def test_a_student_with_other_words(masked: Path, text: Path, tmp_path: Path) -> None:
    """A directory of its own, and a teacher that reads other tokens than the text has."""
    student = bert(tmp_path / "student")
    with refuses(RegardError, "vocabulary"):
        distill(quick(text), tmp_path / "run", Asked(str(masked), str(student)), display="silent")
    save(tiny("bert"), tmp_path / "teacher", tokenizer())
    with refuses(RegardError, "same tokens"):
        distill(
            quick(text), tmp_path / "other", Asked(str(tmp_path / "teacher"), "layers=1"),
            display="silent",
        )  # fmt: skip


def test_marks_of_a_task_are_words_that_a_student_is_given(
    judge: tuple[Path, Path], tmp_path: Path
) -> None:
    """A GPT that has learned a task has tokens more than it began with; its student begins so."""
    begun, file = model(tmp_path / "gpt", "gpt"), judge[1]
    few = {"budget": {"steps": 1}}
    finetune(task(file, model=str(begun), **few), tmp_path / "teacher", display="silent")
    before, after = (regard.load(p).config.vocab_size for p in (begun, tmp_path / "teacher"))
    assert before < after
    options = Asked(str(tmp_path / "teacher"), str(begun))
    report = distill(task(file, **few), tmp_path / "run", options, display="silent")
    assert report["outcome"] == "done"
    assert regard.load(tmp_path / "run").config.vocab_size == after
