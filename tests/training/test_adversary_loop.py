"""Adversaries in the loop: exact over micro-batches, pure functions of the step, and no trace."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.models.state import State
from regard.training import recipe as recipes
from regard.training.adversary import word_embedding
from regard.training.loop import Loop
from tests.tasks import tuning
from tests.training.small import STILL, gradients, looped, recipe, same
from tests.training.test_parallel import work


@pytest.mark.parametrize("family", [*STILL, "longformer", "longformer-characters", "transformer"])
def test_every_family_has_an_embedding(family: str, where: Path) -> None:
    plan = looped(recipe(family, where, robust={"adversary": "fgm", "neftune": 1.0}))
    loss = plan.step(4).loss
    assert math.isfinite(loss) and word_embedding(plan.model)


def exactly(family: str, where: Path, accumulate: int = 1, **robust: Any) -> Loop:
    """Without dropout, in double precision, with the gradient as it is."""
    changes: dict[str, Any] = {
        "batch": {"grad_accum": accumulate, "size": 8 if family == "xlnet" else 4},
        "engine": {"precision": "fp64"},
        "shape": STILL[family],
        "optimizer": {"grad_clip": 0.0},
        "robust": robust,
    }
    return looped(recipe(family, where, **changes))


ATTACKS: list[dict[str, Any]] = [
    {"adversary": "fgm"},
    {"adversary": "pgd", "adv_radius": 0.5},
    {"adversary": "freelb", "adv_init": 0.0, "adv_steps": 3},
]


@pytest.mark.parametrize("robust", ATTACKS, ids=lambda robust: robust["adversary"])
@pytest.mark.parametrize("family", STILL)
def test_micro_batches_add_up_to_the_batch(
    family: str, robust: dict[str, Any], where: Path
) -> None:
    """Norms are those of each text, so it does not matter which others it is read with."""
    whole, parts = (gradients(exactly(family, where, n, **robust)) for n in (1, 4))
    same(whole, parts, 1e-10)


def test_texts_of_other_lengths_add_up_as_well(tmp_path: Path) -> None:
    """How far a text is padded depends on its micro-batch."""
    still = {"dropout": 0.0, "dropout_attention": 0.0}
    model = tuning.bert(tmp_path / "bert", **still)
    file = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(40))
    slopes = []
    for accumulate in (1, 4):
        run_recipe = tuning.recipe(
            model, file, robust={"adversary": "pgd"}, engine={"precision": "fp64"},
            optimizer={"grad_clip": 0.0}, batch={"grad_accum": accumulate},
        )  # fmt: skip
        slopes.append(gradients(looped(run_recipe)))
    same(slopes[0], slopes[1], 1e-10)


def test_without_a_radius_it_is_the_plain_gradient(where: Path) -> None:
    plain = gradients(exactly("bert", where))
    twice = {name: 2 * value for name, value in plain.items()}
    same(gradients(exactly("bert", where, adversary="fgm", adv_radius=0.0)), twice, 1e-12)
    same(gradients(exactly("bert", where, adversary="pgd", adv_radius=0.0)), twice, 1e-12)
    none = {"adv_init": 0.0, "adv_lr": 0.0}
    same(gradients(exactly("bert", where, adversary="freelb", **none)), plain, 1e-12)
    near = gradients(exactly("bert", where, adversary="fgm", adv_radius=1e-6))
    same(near, twice, 1e-4)
    assert any(not torch.equal(near[name], value) for name, value in twice.items())


def passes_of(loop: Loop) -> list[float]:
    """The losses of all passes of one step."""
    losses: list[float] = []
    plain = loop.go

    def go(*args: Any, **more: Any) -> dict[str, Tensor]:
        parts = plain(*args, **more)
        losses.append(sum(float(value.detach()) for value in parts.values()))
        return parts

    loop.go = go  # type: ignore[method-assign]
    loop.step(1)
    return losses


@pytest.mark.parametrize("robust", ATTACKS, ids=lambda robust: robust["adversary"])
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_the_loss_rises_and_the_clean_one_is_told(
    family: str, robust: dict[str, Any], where: Path
) -> None:
    """Dropout is on: were it another in each pass, the loss would go up and down with it."""
    options = robust | ({"adv_radius": 0.2} if robust["adversary"] == "fgm" else {})
    plain = passes_of(looped(recipe(family, where)))
    loop = looped(recipe(family, where, robust=options))
    losses = passes_of(loop)
    assert losses[0] == pytest.approx(plain[0], rel=1e-6)
    assert len(losses) == {"fgm": 2, "pgd": 4, "freelb": 3}[robust["adversary"]]
    assert sorted(losses) == losses and losses[-1] > losses[0] * 1.001


def test_a_memory_is_that_of_the_clean_pass(where: Path) -> None:
    plain, chased = (
        looped(recipe("transformer-xl", where, robust=robust))
        for robust in ({}, {"adversary": "pgd", "adv_radius": 5.0})
    )
    plain.step(4)
    chased.step(4)
    states: list[State] = [loop.states[0] for loop in (plain, chased)]  # type: ignore[misc]
    assert states[0].length == states[1].length
    for one, two in zip(states[0].hidden, states[1].hidden, strict=True):
        assert torch.equal(one, two)


def weights(loop: Loop) -> list[list[float]]:
    return [p.flatten().tolist() for p in loop.model.parameters()]


ALL = {"rdrop": 0.5, "drop_path": 0.3, "token_noise": 0.1, "neftune": 2.0}


@pytest.mark.parametrize("adversary", ["fgm", "pgd", "freelb"])
@pytest.mark.parametrize("family", ["bert", "transformer-xl"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(
    family: str, adversary: str, where: Path
) -> None:
    run_recipe = recipe(family, where, robust={"adversary": adversary, **ALL})
    through, first, second = (looped(run_recipe) for _ in range(3))
    steps = [through.step(4) for _ in range(4)]
    for _ in range(2):
        first.step(4)
    state = {
        kind: {name: value.clone() for name, value in part.items()}
        for kind, part in first.tensors().items()
    }
    second.restore(state, first.facts())
    torch.manual_seed(99)
    assert [second.step(4) for _ in range(2)] == steps[2:]
    assert weights(second) == weights(through)


@pytest.mark.parametrize("robust", [{}, *ATTACKS], ids=lambda r: r.get("adversary", "plain"))
def test_only_the_very_last_pass_of_a_step_is_shared(robust: dict[str, Any], where: Path) -> None:
    loop = looped(recipe("bert", where, batch={"grad_accum": 2}, robust=robust))
    shared: list[bool] = []
    plain = loop.engine.sync

    def sync(last: bool) -> Any:
        shared.append(last)
        return plain(last)

    loop.engine.sync = sync  # type: ignore[method-assign]
    loop.step(4)
    passes = {"fgm": 2, "pgd": 4, "freelb": 3}.get(robust.get("adversary", ""), 1)
    assert shared == [False] * (2 * passes - 1) + [True]


@pytest.mark.slow
def test_one_process_equals_two(where: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"engine": {"precision": "fp64"}, "optimizer": {"grad_clip": 0.0}}
    files = []
    batch = {"size": 8, "grad_accum": 2}
    for robust, name in product(ATTACKS, ("bert", "t5")):
        files.append(tmp_path / f"{name}-{robust['adversary']}.toml")
        written = recipe(name, where, shape=STILL[name], batch=batch, robust=robust, **changes)
        recipes.write(written, files[-1])
    for processes in (1, 2):
        work("gradients", tmp_path / str(processes), files, processes)
    for file in files:
        one, two = (load_file(tmp_path / n / f"{file.stem}.safetensors") for n in ("1", "2"))
        same(one, two, 1e-10)


def test_a_scaled_loss_moves_words_no_further(where: Path) -> None:
    plain, scaled = (
        looped(recipe("bert", where, robust={"adversary": "pgd"}, optimizer={"grad_clip": 0.0}))
        for _ in range(2)
    )
    scaled.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    one, two = gradients(plain), gradients(scaled)
    for name, value in one.items():
        assert (two[name] - value).norm() <= 1e-5 * value.norm() + 1e-8, name


def test_evaluation_finds_the_model_as_it_is(where: Path) -> None:
    loop = looped(recipe("bert", where, robust={"adversary": "freelb", **ALL}))
    plain = looped(recipe("bert", where))
    tokens = torch.randint(7, 30, (2, 12))
    loop.model.eval()
    plain.model.eval()
    assert torch.equal(loop.model(tokens), plain.model(tokens))
    assert loop.model.state_dict().keys() == plain.model.state_dict().keys()


@pytest.mark.parametrize("extension", ["characters", "pointer", "gates"])
def test_extended_models_are_disturbed_as_others(extension: str, where: Path) -> None:
    """Of words that are mixed with their characters, the mixture is moved."""
    loop = looped(
        recipe("gpt", where, extensions={extension: {}}, robust={"adversary": "fgm", **ALL})
    )
    seen: list[Tensor] = []
    word_embedding(loop.model).register_forward_hook(lambda module, args, y: seen.append(y))
    losses = loop.step(4).losses
    assert len(seen) == 4  # two passes that agree, twice
    assert losses["causal_apart"] > 0 and math.isfinite(losses["causal"])


def test_words_in_half_precision(where: Path) -> None:
    run_recipe = recipe(
        "gpt", where, engine={"precision": "bf16"}, robust={"adversary": "pgd", **ALL}
    )
    losses = looped(run_recipe).step(4).losses
    assert set(losses) == {"causal", "causal_apart"} and 0 < losses["causal_apart"] < 1
