"""Runs that are too short, too fast, or on too little text: what they do and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import Diverged, InputError
from regard.formats.directory import load
from regard.methods.runs import run
from regard.models import FAMILIES
from regard.training import loop as loops
from regard.training.recipe import make
from regard.training.resolve import (
    DataFacts,
    MachineFacts,
    ModelFacts,
    RunFacts,
    resolve,
    with_budget,
    with_steps,
)
from regard.training.schedule import SCHEDULES, schedule, warmup_steps
from tests.refusals import refuses
from tests.tasks import tuning
from tests.training.small import data, recipe


def frozen(table: dict[str, Any], width: int = 768, card: str = "bert") -> Any:
    """A fine-tuning that is resolved by facts alone."""
    base = {"model": card, "examples": {"task": "classify"}}
    family, model = FAMILIES[card], ModelFacts(width, True, 512)
    config = resolve(make(base, table), DataFacts("classify"), family, MachineFacts(), model)
    paper, facts = family.finetuned("classify"), RunFacts(100, 16.0, 2, 1.0, True, "metric")
    return with_steps(with_budget(config, paper, facts), paper, facts)


# -- few steps


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize("warmup", [0.1, 1, 2.0, 100, 10_000])
def test_a_few_steps_warm_up_within_them(steps: int, name: str, warmup: float) -> None:
    chosen = {"name": name, "warmup": warmup}
    config = frozen({"budget": {"steps": steps}, "schedule": chosen, "optimizer": {"lr": 0.5}})
    assert 1 <= warmup_steps(config.schedule.warmup, steps) <= steps
    rate = schedule(name, lr=config.optimizer.lr, warmup=config.schedule.warmup, steps=steps,
                    width=768)  # fmt: skip
    assert max(rate(t) for t in range(1, steps + 1)) > 0


@pytest.mark.parametrize("card", [name for name, one in FAMILIES.items() if one.finetuning])
def test_what_a_card_leaves_open_warms_up_within_a_few_steps(card: str) -> None:
    for steps in (1, 3, 5, 10):
        planned = frozen({"budget": {"steps": steps}}, card=card).schedule
        rate = schedule(planned.name, lr=1.0, warmup=planned.warmup, steps=steps, width=768,
                        power=planned.power)  # fmt: skip
        assert any(rate(t) > 0 for t in range(1, steps + 1))
        assert warmup_steps(planned.warmup, steps) <= max(1, steps // 2)


def test_a_longer_warm_up_that_fits_is_left_alone() -> None:
    assert frozen({"budget": {"steps": 50}, "schedule": {"warmup": 40}}).schedule.warmup == 40


def test_a_short_run_says_so(
    bert: Path, reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tuning.recipe(bert, reviews, budget={"steps": 3}, schedule={"warmup": 100})
    run(short, tmp_path / "short", display="plain")
    shown = capsys.readouterr().err
    assert "3 steps are few" in shown and "a warm-up of 100 steps" in shown
    lines = map(json.loads, (tmp_path / "short" / "metrics.jsonl").read_text().splitlines())
    rates = [line["lr"] for line in lines if "lr" in line]
    assert max(rates) == pytest.approx(0.003)
    run(tuning.recipe(bert, reviews, budget={"steps": 30}), tmp_path / "long", display="plain")
    assert "are few" not in capsys.readouterr().err


# -- the rates of papers on narrow models


@pytest.mark.parametrize(("width", "times"), [(768, 1), (1024, 1), (384, 2), (128, 4), (16, 4)])
def test_a_narrow_model_is_fine_tuned_at_a_higher_rate(width: int, times: int) -> None:
    paper = FAMILIES["bert"].finetuned("classify").lr
    assert frozen({}, width).optimizer.lr == pytest.approx(times * paper)
    assert frozen({"optimizer": {"lr": 1e-5}}, width).optimizer.lr == 1e-5


def test_the_run_says_which_rate_it_takes(
    bert: Path, reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, optimizer, words in (
        ("open", {"lr": None}, "4 times that, 8e-05"),
        ("paper", {"lr": 2e-5}, "--lr 8e-05"),
    ):
        chosen = make(tuning.recipe(bert, reviews).table(), {"budget": {"steps": 2}})
        run(make(chosen.table() | {"optimizer": {}}, {"optimizer": optimizer}), tmp_path / name,
            display="plain")  # fmt: skip
        assert words in capsys.readouterr().err


def test_a_narrow_model_that_learns_by_its_paper_says_so(
    where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, words in (("paper", "4 times that, 0.0024 "), ("budget", "")):
        table = {"model": "gpt", "data": str(where), "size": "tiny", "recipe": name,
                 "batch": {"size": 2, "seq_len": 32}, "budget": {"steps": 2}}  # fmt: skip
        run(make(table), tmp_path / name, display="plain")
        shown = capsys.readouterr().err
        assert words in shown and ("for a wider model" in shown) == bool(words)


# -- divergence


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(("lr", "lower"), [(3.0, "--lr 1,"), (30.0, "--lr 10,")])
def test_a_rate_that_diverges_keeps_the_best_model(
    optimizer: str, lr: float, lower: str, where: Path, tmp_path: Path
) -> None:
    """At 3 the loss explodes, at 30 it is soon no number any more."""
    chosen = recipe("gpt", where, optimizer={"name": optimizer, "lr": lr}, budget={"steps": 120},
                    schedule={"name": "constant"}, checkpoint={"every": 1},
                    validation={"every": 1, "samples": 4})  # fmt: skip
    with refuses(Diverged, lower, f"a third of {lr:g}", tmp_path / "run", "the model of step"):
        run(chosen, tmp_path / "run", display="silent")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["outcome"] == "diverged" and facts["progress"]["step"] < 120
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    valid = {line["step"]: line["valid"]["bits_per_byte"] for line in lines if "valid" in line}
    assert facts["best"]["step"] == min(valid, key=lambda step: valid[step])
    weights = load(tmp_path / "run").model.state_dict().values()
    assert all(torch.isfinite(weight).all() for weight in weights)


def stepping(losses: list[float]) -> int:
    """At which step a run with these losses ends; 0: at none."""
    loop = loops.Loop.__new__(loops.Loop)
    loop.progress = loops.RunProgress()
    loop.optimizer = loops.torch.optim.SGD([loops.torch.zeros(1, requires_grad=True)], lr=0.3)
    for number, loss in enumerate(losses):
        try:
            loop.refuse_explosion(number, loss)
        except Diverged as error:
            assert "--lr 0.1," in str(error)
            return number + 1
    return 0


def test_an_explosion_is_a_loss_that_stays_far_above_the_first_ones() -> None:
    start = [3.0, *[2.5] * 9]
    assert stepping(start + [13.0] * 40) == 10 + loops.RISEN
    assert stepping(start + [11.0] * 40) == 0  # less than four times
    assert stepping(([*start, *[90.0] * 19, 2.0] + [90.0] * 19) * 3) == 0  # it comes back
    assert stepping([1e-9] * 10 + [4.0] * 100) == 0  # hardly anything to begin with
    assert stepping([50.0] * 10 + [49.0] * 100) == 0


# -- too little text, too little time


def test_a_text_that_is_shorter_than_a_batch_is_refused(tmp_path: Path) -> None:
    where = data(tmp_path / "data", documents=12)
    with refuses(InputError, where, "samples of 32 tokens", "--batch-size", "--seq-len"):
        run(recipe("gpt", where, batch={"size": 64}), tmp_path / "run", display="silent")
    with refuses(InputError, "too few for one sample of 4096", "--seq-len"):
        run(recipe("gpt", where, batch={"seq_len": 4096}), tmp_path / "run", display="silent")
    assert not (tmp_path / "run").exists()


def test_few_examples_are_no_text_and_learn(bert: Path, tmp_path: Path) -> None:
    file = tuning.write(tmp_path / "few.jsonl", tuning.reviews(6))
    few = tuning.recipe(bert, file, budget={"steps": 2}, batch={"size": 32})
    assert run(few, tmp_path / "run", display="silent")["outcome"] == "done"


def test_a_budget_shorter_than_the_start_says_so(
    where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = make(recipe("gpt", where).table(), {"validation": {"every": 1}})
    table = chosen.table() | {"budget": {"minutes": 0.0005}}
    facts = run(make(table), tmp_path / "run", display="plain")
    assert "longer than the budget of 0 s" in capsys.readouterr().err
    assert facts["progress"]["step"] >= 1
