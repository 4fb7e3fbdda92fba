"""What cannot be distilled: refused before anything dear is done, with nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import models

import regard
from regard.api import load
from regard.core.errors import ConfigError, RegardError
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
from tests.tasks.tuning import bert, model, tokenizer


def test_what_cannot_be_distilled(
    masked: Path,
    text: Path,
    judge: tuple[Path, Path],
    translator: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    out, file = tmp_path / "run", judge[1]

    def refused(recipe: Recipe, asked: Asked, said: str) -> None:
        with pytest.raises(RegardError, match=said):
            distill(recipe, out, asked, display="silent")

    refused(quick(text), Asked(str(masked), "layers=2", style="odd"), "style of distillation")
    refused(quick(text), Asked(str(masked), "layers=2", sequence=True), "no prepared pairs")
    refused(task(file), Asked(str(judge[0]), "layers=2", sequence=True), "no prepared pairs")
    refused(quick(text), Asked(str(masked), "layers=2", vocab_size=9), "has to stay")
    refused(quick(text), Asked(str(tmp_path / "gone"), "layers=2"), "there is no model")
    refused(quick(text), Asked(str(masked), str(tmp_path / "gone")), "no model directory")
    labeled = quick(text, examples={"labels": ["good", "bad"]})
    refused(labeled, Asked(str(masked), "layers=2"), "examples.labels is for a file of labeled")
    # What is found out only on the way leaves no directory behind, either.
    odd = quick(text, objective={"temperature": 0.0})
    refused(odd, Asked(str(masked), "layers=2"), "temperature is 0")
    refused(task(tmp_path / "gone.jsonl"), Asked(str(judge[0]), "layers=2"), "does not exist")
    refused(task(file), Asked(str(translator[0]), "layers=1"), "learned its task as text")
    refused(quick(text), Asked(str(masked), "layers=7"), "nor deeper")
    assert not out.exists()
    place = tmp_path / "held"
    place.mkdir()
    (place / "mine.txt").write_text("kept")
    with pytest.raises(ConfigError, match="exists already"):
        distill(quick(text), place, Asked(str(masked), "layers=2"), display="silent")
    assert [held.name for held in place.iterdir()] == ["mine.txt"]
    place = tmp_path / "empty"
    place.mkdir()
    with pytest.raises(ConfigError, match="temperature is 0"):
        distill(odd, place, Asked(str(masked), "layers=2"), display="silent")
    assert place.is_dir() and not list(place.iterdir())


# --- before something dear -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("style", "changes", "said"),
    [
        ("", {"objective": {"smoothing": 2.0}}, "smoothing is 2"),
        ("", {"objective": {"temperature": 2.0}}, "objective.temperature"),  # no teacher is asked
        ("hinton", {"objective": {"temperature": 0.0}}, "temperature is 0"),
        ("", {"batch": {"size": 3, "grad_accum": 2}}, "divisible"),
        ("", {"batch": {"order": "streams"}}, "streams"),
        ("", {"optimizer": {"name": "odd"}}, "optimizer"),
        ("", {"schedule": {"name": "odd"}}, "schedule"),
        ("", {"budget": {"epochs": 2.0}}, "choose one"),  # beside steps
    ],
)
def test_a_teacher_writes_nothing_for_a_run_that_would_be_refused(
    translator: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    style: str,
    changes: dict[str, Any],
    said: str,
) -> None:
    teacher, where = translator
    monkeypatch.setattr(sequence, "generate", lambda *given, **more: pytest.fail("too late"))
    asked = Asked(str(teacher), "layers=1", style=style, sequence=True)
    with pytest.raises(RegardError, match=said):
        distill(quick(where, **changes), tmp_path / "run", asked, display="silent")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("objective", "said"), [({"temperature": 0.0}, "temperature is 0"), ({"soft": 0.0}, "weight 0")]
)
def test_no_layers_are_learned_before_answers_that_would_be_refused(
    judge: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    objective: dict[str, float],
    said: str,
) -> None:
    teacher, file = judge
    monkeypatch.setattr(
        "regard.methods.distill.run.run", lambda *given, **more: pytest.fail("late")
    )
    asked = Asked(str(teacher), "layers=1", style="tinybert")
    with pytest.raises(ConfigError, match=said):
        distill(task(file, objective=objective), tmp_path / "run", asked, display="silent")
    assert not (tmp_path / "run").exists()


# --- a student that is there already -------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"width": 32}, "no wider"),
        ({"layers": 3}, "encoder of the student has 3 layers"),
        ({"decoder_layers": 3}, "decoder of the student has 3 layers"),
        ({"vocab_size": 41}, "same vocabulary"),
    ],
)
def test_a_student_that_is_larger_than_its_teacher(
    translator: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: dict[str, int],
    said: str,
) -> None:
    """Also where it only learns from what the teacher writes."""
    teacher, where = translator
    held = load(teacher).model
    save(type(held)(held.config.replace(**shape)).initialize(), tmp_path / "student")
    monkeypatch.setattr(sequence, "generate", lambda *given, **more: pytest.fail("too late"))
    asked = Asked(str(teacher), str(tmp_path / "student"), sequence=True)
    with pytest.raises(ConfigError, match=said):
        distill(quick(where), tmp_path / "run", asked, display="silent")
    assert not (tmp_path / "run").exists()


def test_a_student_of_a_directory_learns_what_its_teacher_writes(
    translator: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it reads the same tokens: as many others are not the same."""
    teacher, where = translator
    held = load(teacher)
    small = type(held.model)(held.config.replace(layers=1)).initialize()
    place = str(save(small, tmp_path / "student", held.tokenizer))
    asked = Asked(str(teacher), place, sequence=True, num_beams=1)
    found = distill(quick(where), tmp_path / "run", asked, display="silent")
    assert found["outcome"] == "done" and found["distilled"]["student"] == small.parameter_count()
    words = Fast(models.WordLevel({f"x{i}": i for i in range(40)}, unk_token="x2"))
    other = Tokenizer(words, {"tokenizer.json": words.to_str().encode()})
    place = str(save(small, tmp_path / "other", other))
    monkeypatch.setattr(sequence, "generate", lambda *given, **more: pytest.fail("too late"))
    asked = Asked(str(teacher), place, sequence=True, num_beams=1)
    with pytest.raises(RegardError, match="another tokenizer"):
        distill(quick(where), tmp_path / "again", asked, display="silent")
    assert not (tmp_path / "again").exists()


def test_a_student_with_other_words(masked: Path, text: Path, tmp_path: Path) -> None:
    """A directory of its own, and a teacher that reads other tokens than the text has."""
    student = bert(tmp_path / "student")
    with pytest.raises(RegardError, match="same vocabulary"):
        distill(quick(text), tmp_path / "run", Asked(str(masked), str(student)), display="silent")
    save(tiny("bert"), tmp_path / "teacher", tokenizer())
    with pytest.raises(RegardError, match="same tokens"):
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
    asked = Asked(str(tmp_path / "teacher"), str(begun))
    found = distill(task(file, **few), tmp_path / "run", asked, display="silent")
    assert found["outcome"] == "done"
    assert regard.load(tmp_path / "run").config.vocab_size == after
