"""The recipes that come along: every name in them is known, and the numbers are the papers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.cli.catalog import RECIPES
from regard.cli.main import main
from regard.models import family_of
from regard.objectives import objective
from regard.tasks import TASKS, objective_of
from regard.tasks.data import learners
from regard.training import recipe as recipes
from regard.training.data import options_of
from regard.training.optimizer import check as check_optimizer
from regard.training.recipe import Recipe
from regard.training.schedule import schedule
from tests.command import run as called
from tests.tasks import tuning

FILES = sorted(RECIPES.glob("*.toml"))
WANTED = """bert-glue bert-ner bert-squad1 bert-squad2 bert-swag gpt1-classify gpt1-multiple-choice
longformer-classify longformer-triviaqa t5-task transformer-base xlnet-imdb xlnet-race xlnet-squad2
xlnet-sts-b"""


def made(name: str) -> Recipe:
    return recipes.make(recipes.read(recipes.find(name)))


def test_they_are_there() -> None:
    assert set(WANTED.split()) <= {file.stem for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_word_is_known(file: Path) -> None:
    recipe = made(file.stem)
    task = recipe.examples.task
    assert not task or task in TASKS
    options = dict(recipe.objective)
    name = options.pop("name", objective_of(task or "") or "pairs")  # T5 learns every task as text
    options_of(objective(str(name), learners()), options)
    if recipe.model:
        family_of(recipe.model)
    limits = [n for n in ("steps", "tokens", "minutes", "epochs") if getattr(recipe.budget, n)]
    assert len(limits) == 1, limits
    assert recipe.batch.size % recipe.batch.grad_accum == 0 and recipe.batch.seq_len


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_optimizer_and_schedule_can_be_built(file: Path) -> None:
    chosen = made(file.stem).optimizer
    assert chosen.lr > 0
    name = chosen.name or "adamw"
    betas = tuple(chosen.betas or (0.9, 0.999))
    check_optimizer(name, chosen.lr, betas, chosen.eps or 0.0, chosen.weight_decay or 0.0)  # type: ignore[arg-type]
    planned = made(file.stem).schedule
    if planned.name is None:
        assert planned.warmup is None
        return
    steps = made(file.stem).budget.steps or 10_000
    rates = schedule(planned.name, lr=chosen.lr, warmup=planned.warmup, steps=steps, width=512)
    sampled = [rates(step) for step in range(1, steps + 1, max(1, steps // 500))]
    if planned.name != "noam":  # whose rate is a factor
        assert 0.9 * chosen.lr < max(sampled) <= chosen.lr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_first_line_names_the_paper(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    first = text.splitlines()[0]
    assert first.startswith("# ") and ("et al. 20" in first or "and Ruder 2018" in first)
    assert first.rstrip().endswith(").") and text.endswith("\n")


NUMBERS: dict[str, tuple[Any, ...]] = {
    # task, samples, length, rate, epochs, steps
    "bert-ner": ("tag", 16, 128, 2e-5, 5, None),
    "bert-glue": ("classify", 32, 128, 2e-5, 3, None),
    "bert-squad1": ("answer", 32, 384, 5e-5, 3, None),
    "bert-squad2": ("answer", 48, 384, 5e-5, 2, None),
    "bert-swag": ("choose", 16, 128, 2e-5, 3, None),
    "gpt1-classify": ("classify", 32, 512, 6.25e-5, 3, None),
    "xlnet-imdb": ("classify", 32, 512, 2e-5, None, 4000),
    "xlnet-squad2": ("answer", 48, 512, 3e-5, None, 8000),
    "xlnet-race": ("choose", 32, 512, 2e-5, None, 12000),
    "xlnet-sts-b": ("similar", 32, 128, 5e-5, None, 1200),
    "longformer-triviaqa": ("answer", 32, 4096, 3e-5, 4, None),
    "t5-task": (None, 128, 512, 1e-3, None, 2**18),
    "transformer-base": (None, 1024, 256, 1.0, None, 100_000),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    r = made(name)
    numbers: tuple[Any, ...] = (r.examples.task, r.batch.size, r.batch.seq_len, r.optimizer.lr)
    assert (*numbers, r.budget.epochs, r.budget.steps) == NUMBERS[name]


def test_a_recipe_is_overruled_by_what_stands_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the budgets too: steps in place of its epochs."""
    model = tuning.bert(tmp_path / "bert")
    data = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(40))
    words = ["finetune", model, "--config", "bert-glue", "--data", data, "--out", tmp_path / "run"]
    words += ["--dry-run", "--json", "batch.seq_len=32", "budget.steps=7"]
    assert main([str(word) for word in words]) == 0
    recipe = json.loads(capsys.readouterr().out)["recipe"]
    assert recipe["budget"]["steps"] == 7 and recipe["batch"] == {
        "size": 32, "seq_len": 32, "grad_accum": 1,
    }  # fmt: skip
    assert recipe["optimizer"]["lr"] == 2e-5 and recipe["objective"]["name"] == "classify"


# -- the command


def test_the_list() -> None:
    done = called("recipes")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and len(lines) == len(FILES)
    (line,) = [line for line in lines if line.startswith("bert-ner ")]
    assert "Named entities with BERT" in line and "(Devlin et al. 2018, 5.3)" in line
    rows = json.loads(called("recipes", "--json").stdout)["recipes"]
    assert [one["name"] for one in rows] == [file.stem for file in FILES]


def test_one_of_them() -> None:
    shown = called("recipes", "bert-swag").stdout
    assert shown == (RECIPES / "bert-swag.toml").read_text(encoding="utf-8")
    failed = called("recipes", "bert-swga")
    assert "'bert-swag'" in str(failed.exception)
