"""Teachers to distill from, each with its data, and recipes for their students."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.methods.finetune.run import finetune
from regard.training.recipe import Recipe, changed, replaced
from regard.training.recipe import read as read_recipe
from regard.training.run import train
from tests.tasks.tuning import bert, reviews, write
from tests.tasks.tuning import recipe as task_recipe
from tests.training.small import data
from tests.training.small import recipe as text_recipe


def quick(where: Path, **changes: Any) -> Recipe:
    """What decides a student's run, but for its model."""
    return replaced(text_recipe("bert", where, **changes), model="", shape={})


def task(file: Path, **changes: Any) -> Recipe:
    quickly = {"batch": {"size": 16}, "optimizer": {"lr": 0.005}}
    recipe = task_recipe(Path(), file, validation={"every": 10**6}, **quickly)
    return changed(recipe, {"model": ""} | changes)


def recipes_of(out: Path) -> dict[str, Any]:
    return read_recipe(out / "recipe.toml")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def masked(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of four layers that has read the text."""
    out = tmp_path_factory.mktemp("masked") / "run"
    shape = {"layers": 4, "width": 16, "heads": 2, "ffn_size": 32}
    train(
        text_recipe("bert", text, shape=shape, objective={"name": "masked"}), out, display="silent"
    )
    return out


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A BERT that has learned to tell good reviews from bad ones, and its examples."""
    place = tmp_path_factory.mktemp("judge")
    file = write(place / "reviews.jsonl", reviews(160))
    base = bert(place / "bert", layers=3, dropout=0.0)
    finetune(task(file, model=str(base), budget={"steps": 48}), place / "run", display="silent")
    return place / "run", file


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("translator")
    where = data(place / "pairs", documents=20, kind="pairs")
    recipe = text_recipe("transformer", where, objective={"name": "pairs"})
    train(recipe, place / "run", display="silent")
    return place / "run", where
