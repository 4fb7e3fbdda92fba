"""Recipes: read, overruled word by word, checked, and written so that they read back the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.models import FAMILIES
from regard.training.recipe import Recipe, make, overrides, read, write
from tests.refusals import Refusal, refuses
from tests.training.small import resolved


def test_later_tables_overrule_earlier_ones() -> None:
    recipe = make({"batch": {"size": 4, "seq_len": 16}}, {"batch": {"size": 8}})
    assert (recipe.batch.size, recipe.batch.seq_len) == (8, 16)


def test_words_become_tables() -> None:
    words = ["batch.size=16", "optimizer.lr=5e-4", "model=gpt2", "shape.window=[8, 16]"]
    recipe = make(overrides(words))
    assert recipe.batch.size == 16 and recipe.optimizer.lr == 5e-4
    assert recipe.model == "gpt2" and recipe.shape == {"window": [8, 16]}


def test_a_recipe_reads_back_as_it_was(tmp_path: Path) -> None:
    recipe = make(
        {
            "model": "xlnet",
            "seed": 7,
            "objective": {"name": "mixture", "parts": [{"objective": "causal", "weight": 0.5}]},
            "optimizer": {"betas": [0.9, 0.98], "lr": 1e-3},
            "shape": {"layers": 3, "window": [8, 8, 16]},
        }
    )
    write(recipe, tmp_path / "recipe.toml")
    assert make(read(tmp_path / "recipe.toml")) == recipe
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.toml"]


@pytest.mark.parametrize(
    ("table", "refusal"),
    [
        ({"optimiser": {}}, (UnknownName, "optimiser", "'optimizer'")),
        ({"optimizer": {"rat": 1.0}}, (UnknownName, "rat", "'optimizer.lr'")),
        ({"batch": {"size": "many"}}, (ConfigError, "batch.size", "'many'", "int")),
        ({"batch": {"size": True}}, (ConfigError, "batch.size", True)),
        ({"batch": 5}, (ConfigError, "batch", 5, "size, seq_len, grad_accum")),
        ({"shape": 5}, (ConfigError, "shape", 5)),
        ({"engine": {"precision": "bf61"}}, (UnknownName, "bf61", "'bf16'")),
    ],
)
def test_refusals(table: dict[str, Any], refusal: Refusal) -> None:
    with refuses(*refusal):
        make(table)


def test_whole_numbers_serve_as_fractions() -> None:
    assert make({"optimizer": {"lr": 1}}).optimizer.lr == 1.0


@pytest.mark.parametrize("word", ["batch.size", "=4", "samples 4"])
def test_what_is_no_override(word: str) -> None:
    with refuses(ConfigError, repr(word), "KEY=VALUE"):
        overrides([word])


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    with refuses(FormatError, "none.toml"):
        read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("model = ")
    with refuses(FormatError, "bad.toml", "TOML"):
        read(tmp_path / "bad.toml")


def test_defaults_stand_alone() -> None:
    assert make() == Recipe()


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("schedule.decay", "schedule.decay_fraction"),
        ("schedule.floor", "schedule.min_lr_ratio"),
        ("batch.length", "batch.seq_len"),
        ("warmdown_ratio", "schedule.decay_fraction"),
    ],
)
def test_an_old_or_foreign_key_is_answered_with_ours(key: str, ours: str) -> None:
    with refuses(UnknownName, key, ours):
        make(overrides([f"{key}=0.5"]))


def test_their_word_for_segments_is_known() -> None:
    with refuses(UnknownName, "type_vocab_size", "segments"):
        FAMILIES["bert"].config().replace(type_vocab_size=2)


def test_an_unknown_schedule_is_refused_before_anything_is_built() -> None:
    with refuses(UnknownName, "'linaer'", "'linear'"):
        resolved({"schedule": {"name": "linaer"}})
