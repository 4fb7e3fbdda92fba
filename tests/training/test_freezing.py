"""What is frozen stays as it was to the bit, costs less, and is freed when it is due."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.core.errors import ConfigError
from regard.methods.prune.run import Plan, prune
from regard.methods.runs import run
from regard.models import FAMILIES
from regard.training import recipe as recipes
from regard.training.optimizer import GradualUnfreezing, freeze, held, levels, work
from tests.refusals import refuses
from tests.tasks import tuning
from tests.training.small import data, looped, recipe, resolved
from tests.training.test_never_lost import bits, figures, interrupted
from tests.training.test_parallel import work as under_torchrun


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuning.bert(tmp_path_factory.mktemp("models") / "bert", layers=3)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuning.write(tmp_path_factory.mktemp("data") / "reviews.jsonl", tuning.reviews(60))


def blank(family: str) -> Any:
    kind, config = FAMILIES[family].model, FAMILIES[family].config
    with torch.device("meta"):
        return kind(config())


# -- which weights


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_has_one_level_or_stands_above(family: str) -> None:
    model = blank(family)
    ids = [id(weight) for level in levels(model) for weight in level]
    assert len(ids) == len(set(ids)) and all(levels(model))
    above = [name for name, weight in model.named_parameters() if id(weight) not in ids]
    assert all(name.startswith(("heads.", "output.", "norm.", "decoder.norm.")) for name in above)


def test_levels_go_from_the_bottom_up() -> None:
    model = blank("bert")
    names = {id(weight): name for name, weight in model.named_parameters()}
    names_of = [[names[id(weight)] for weight in level] for level in levels(model)]
    assert all(name.startswith("embeddings.") for name in names_of[0])
    for place, level in enumerate(names_of[1:]):
        assert all(name.startswith(f"blocks.{place}.") for name in level)
    assert held(model, 0) == []
    assert len(held(model, 2)) == sum(map(len, names_of[:3]))


def test_what_an_objective_attaches_always_learns() -> None:
    model = blank("bert")
    before = sum(map(len, levels(model)))
    model.crf = torch.nn.Linear(2, 2)
    assert sum(map(len, levels(model))) == before


def test_an_encoder_lies_under_its_decoder() -> None:
    model = blank("t5")
    names = {id(weight): name for name, weight in model.named_parameters()}
    first = [names[id(weight)] for weight in held(model, model.config.layers)]
    assert all(name.startswith(("encoder.", "tokens.", "decoder.distances")) for name in first)
    assert "encoder.norm.weight" in first


def test_a_layer_is_freed_every_so_many_steps() -> None:
    model = blank("bert")
    thaw = GradualUnfreezing(model, 12, 10)
    for step, free in (
        (0, 0),
        (9, 0),
        (10, 1),
        (35, 3),
        (120, 12),
        (129, 12),
        (130, 13),
        (999, 13),
    ):
        thaw(step)
        learning = [all(p.requires_grad for p in level) for level in levels(model)]
        assert learning == [False] * (13 - free) + [True] * free, step
        assert all(p.requires_grad for p in model.heads.parameters())
    thaw(0)  # a function of the step, not of what was before
    assert not any(p.requires_grad for level in levels(model) for p in level)


# -- learning


def changed(before: Path, after: Path) -> set[str]:
    """The tensors that are not the same to the bit."""
    one, two = (load_file(path / "model.safetensors") for path in (before, after))
    return {name for name in one.keys() & two.keys() if not torch.equal(one[name], two[name])}


@pytest.mark.parametrize("optimizer", ["adamw", "bert-adam", "adafactor", "sgd", "muon"])
def test_frozen_weights_stay_to_the_bit(
    optimizer: str, bert: Path, reviews: Path, tmp_path: Path
) -> None:
    """Weight decay included, which would pull every weight it may touch."""
    run_recipe = tuning.recipe(
        bert,
        reviews,
        optimizer={"name": optimizer, "freeze_layers": 2, "weight_decay": 0.5, "lr": 0.01},
    )
    run(run_recipe, tmp_path / "run", display="silent")
    moved = changed(bert, tmp_path / "run")
    assert moved and all("layer.2." in name or "pooler" in name for name in moved), moved
    assert any("layer.2." in name for name in moved)
    after = load_file(tmp_path / "run" / "model.safetensors")
    assert after["classifier.weight"].abs().sum() > 0


@pytest.mark.parametrize("optimizer", ["adamw", "bert-adam", "adafactor", "sgd", "muon"])
def test_pruned_weights_stay_away(
    optimizer: str, bert: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a run that is stopped; what is left of their matrices learns."""
    prune(str(bert), tmp_path / "sparse", Plan(weights=0.5, repeats=0))
    options = {"name": optimizer, "weight_decay": 0.1, "lr": 0.01, "keep_sparsity": True}
    for name in ("whole", "parts"):
        run_recipe = tuning.recipe(tmp_path / "sparse", reviews, optimizer=options)
        if name == "parts":
            interrupted(run_recipe, tmp_path / name, [2], monkeypatch)
        else:
            run(run_recipe, tmp_path / name, display="silent")
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
    before, after = (load_file(tmp_path / n / "model.safetensors") for n in ("sparse", "whole"))
    empty = [k for k, v in before.items() if "layer." in k and v.dim() == 2 and (v == 0).any()]
    assert len(empty) == 3 * 6
    for name in empty:
        gone = before[name] == 0
        assert not after[name][gone].any(), name
        assert (after[name] != before[name])[~gone].double().mean() > 0.9, name
    free = tuning.recipe(tmp_path / "sparse", reviews, optimizer=options | {"keep_sparsity": False})
    run(free, tmp_path / "free", display="silent")
    filled = load_file(tmp_path / "free" / "model.safetensors")[empty[0]]
    assert filled[before[empty[0]] == 0].any()


def test_nothing_is_frozen_by_default(bert: Path, reviews: Path, tmp_path: Path) -> None:
    run(tuning.recipe(bert, reviews), tmp_path / "run", display="silent")
    assert any("word_embeddings" in name for name in changed(bert, tmp_path / "run"))


def test_thawed_layers_learn_from_their_step_on(bert: Path, reviews: Path, tmp_path: Path) -> None:
    for steps, layers in ((4, set()), (5, {2}), (9, {1, 2}), (13, {0, 1, 2})):
        run_recipe = tuning.recipe(
            bert, reviews, optimizer={"unfreeze_every": 4}, budget={"steps": steps},
            schedule={"name": "constant", "warmup": 0},
            validation={"every": steps},
        )  # fmt: skip
        run(run_recipe, tmp_path / str(steps), display="silent")
        moved = changed(bert, tmp_path / str(steps))
        assert {int(n.split("layer.")[1][0]) for n in moved if "layer." in n} == layers
        assert not any("embeddings" in name for name in moved)
        stored = recipes.read(tmp_path / str(steps) / "recipe.toml")["optimizer"]
        assert stored["freeze_layers"] == 3 and stored["unfreeze_every"] == 4


@pytest.mark.parametrize("optimizer", ["adamw", "bert-adam", "adafactor", "sgd", "muon"])
@pytest.mark.parametrize(
    "frozen",
    [{"freeze_layers": 1}, {"unfreeze_every": 2}, {"freeze_layers": 2, "unfreeze_every": 3}],
)
def test_resumed_equals_uninterrupted(
    frozen: dict[str, int],
    optimizer: str,
    bert: Path,
    reviews: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {"optimizer": {"name": optimizer, "weight_decay": 0.0, "lr": 0.01} | frozen}
    run(tuning.recipe(bert, reviews, **changes), tmp_path / "whole", display="silent")
    run_recipe = tuning.recipe(bert, reviews, **changes)
    interrupted(run_recipe, tmp_path / "parts", [1, 3, 6], monkeypatch)
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")


def test_pretraining_can_be_frozen_too(tmp_path: Path) -> None:
    """Every family, with outputs that are tied to frozen embeddings."""
    where = data(tmp_path / "data")
    for family in ("gpt", "xlnet", "transformer-xl", "lstm", "t5"):
        loop = looped(recipe(family, where, optimizer={"freeze_layers": 1, "lr": 0.01}))
        before = [weight.clone() for weight in held(loop.model, 1)]
        rest = {id(weight) for weight in held(loop.model, 1)}
        others = [w.clone() for w in loop.model.parameters() if id(w) not in rest]
        for _ in range(2):
            loop.step(4)
        assert all(map(torch.equal, before, held(loop.model, 1))), family
        now = [w for w in loop.model.parameters() if id(w) not in rest]
        assert not all(map(torch.equal, others, now)), family


def test_a_rehearsal_of_a_thawing_run_leaves_no_trace(bert: Path, reviews: Path) -> None:
    """It takes steps with all weights, which must not be remembered."""
    changes: dict[str, Any] = {"optimizer": {"unfreeze_every": 2}, "validation": {"every": 1000}}
    tried = looped(tuning.recipe(bert, reviews, budget={"steps": 60}, **changes))
    fresh = looped(tuning.recipe(bert, reviews, budget={"steps": 49}, **changes))
    fresh.rate = tried.rate
    assert [tried.step(60).loss for _ in range(5)] == [fresh.step(60).loss for _ in range(5)]
    assert len(tried.optimizer.state) == len(fresh.optimizer.state)


# -- what it saves


def test_frozen_layers_cost_less(tmp_path: Path) -> None:
    """Nothing goes back through them: two thirds of their share of a step."""
    model = tuning.bert(tmp_path / "bert", layers=8, width=128, ffn_size=512)
    file = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(200))
    spent = {}
    for frozen in (0, 8):
        run_recipe = tuning.recipe(
            model, file, batch={"size": 64}, optimizer={"freeze_layers": frozen}
        )
        loop = looped(run_recipe)
        with FlopCounterMode(display=False) as counted:
            loop.step(100)
        spent[frozen] = counted.get_total_flops()
        assert len(loop.optimizer.state) < len(list(loop.model.parameters())) or not frozen
    assert spent[8] < 0.4 * spent[0], spent


def test_the_share_of_the_work() -> None:
    model = blank("bert")
    assert work(model) == 1.0
    for weight in held(model, 6):
        weight.requires_grad_(False)
    assert work(model) == pytest.approx(2 / 3)
    for weight in held(model, 12):
        weight.requires_grad_(False)
    assert work(model) == pytest.approx(1 / 3)


# -- what is refused


@pytest.mark.parametrize(
    ("optimizer", "processes", "named"),
    [
        ({"freeze_layers": 13}, 1, ("freeze_layers is 13", "12")),
        ({"freeze_layers": -1}, 1, ("freeze_layers is -1", "12")),
        ({"unfreeze_every": -1}, 1, ("unfreeze_every is -1",)),
        ({"freeze_layers": 2, "unfreeze_every": 5}, 2, ("optimizer.unfreeze_every", "processes")),
    ],
)
def test_what_is_refused(optimizer: dict[str, int], processes: int, named: tuple[str, ...]) -> None:
    with refuses(ConfigError, *named):
        resolved({"optimizer": optimizer}, processes=processes)


def test_zeros_that_cannot_be_kept(bert: Path) -> None:
    dealt = {"optimizer": {"keep_sparsity": True}, "engine": {"parallel": "fsdp"}}
    with refuses(ConfigError, "optimizer.keep_sparsity", "engine.parallel=ddp"):
        resolved(dealt, processes=2)
    freeze(resolved(dealt), blank("bert"))
    with refuses(ConfigError, "keep_sparsity"):
        freeze(resolved(dealt), regard.load(bert).model)


def test_a_model_needs_something_that_learns() -> None:
    model = blank("transformer")  # its output is its embedding
    with refuses(ConfigError, "optimizer.freeze_layers", 12):
        freeze(resolved({"optimizer": {"unfreeze_every": 5}}), model)
    freeze(resolved({"optimizer": {"unfreeze_every": 5, "freeze_layers": 11}}), model)
    with refuses(ConfigError, "optimizer.unfreeze_every", "engine.compile=no"):
        resolved({"optimizer": {"unfreeze_every": 5}, "engine": {"compile": "yes"}})


# -- several processes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [("ddp", "adamw"), ("fsdp", "adamw"), ("fsdp", "muon"), ("local-sgd", "adamw")],
)
def test_frozen_under_several_processes(
    kind: str, optimizer: str, bert: Path, reviews: Path, tmp_path: Path
) -> None:
    chosen = {"freeze_layers": 2, "name": optimizer}
    run_recipe = tuning.recipe(
        bert, reviews, optimizer=chosen, engine={"parallel": kind, "sync_warmup": 2,
         "sync_every": 2},
        checkpoint={"every": 4}, budget={"steps": 8},
    )  # fmt: skip
    file = tmp_path / "frozen.toml"
    recipes.write(run_recipe, file)
    under_torchrun("train", tmp_path / "runs", [file], 2)
    run = tmp_path / "runs" / "frozen"
    moved = changed(bert, run)
    assert moved and all("layer.2." in name or "pooler" in name for name in moved), moved
    whole = bits(run)
    shutil.rmtree(max((run / "checkpoints").glob("step-*")))
    under_torchrun("train", tmp_path / "runs", [file], 2)  # goes on from step 4
    assert bits(run) == whole
