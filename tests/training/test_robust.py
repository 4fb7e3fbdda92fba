"""Stochastic depth: whole layers, in the shares of the paper, and nothing of it after learning.
And a task that is learned in spite of all that can stand in the way at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention.block import Block, CrossBlock
from regard.core.errors import ConfigError
from regard.methods.finetune.run import finetune
from regard.models import FAMILIES
from regard.training.recipe import Recipe
from regard.training.recipe_parts import Robust
from regard.training.robust import DropPath, deepen, passes
from regard.training.robust import DropPathMask as Depth
from regard.training.train_module import blocks
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.tuning import stop as stop
from tests.training.small import SHAPES, loop_of
from tests.training.test_never_lost import bits


def model(family: str = "gpt", layers: int = 4) -> Any:
    torch.manual_seed(0)
    kind, config = FAMILIES[family].model, FAMILIES[family].config
    shape: dict[str, Any] = {"vocab_size": 40, "width": 16, "heads": 2, "ffn_size": 32}
    shape |= SHAPES.get(family, {}) | {"layers": layers}
    build: Any = kind
    return build(config(**shape)).initialize()


def still(module: Any) -> Any:
    for part in module.modules():
        if hasattr(part, "rate"):
            part.rate = 0.0
        if isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0
    return module


def rates(module: Any) -> list[float]:
    return [block.attention.dropout.path.rate for block in blocks(module)]


def test_the_last_layer_is_left_out_most_often() -> None:
    deep = model()
    deepen(deep, 0.4)
    assert rates(deep) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    both = model("t5", 2)
    deepen(both, 0.5)
    assert rates(both) == pytest.approx([0.25, 0.5, 0.25, 0.5])
    for block in blocks(both):
        parts = [block.attention, block.feed_forward]
        parts += [block.cross] if isinstance(block, CrossBlock) else []
        assert {id(part.dropout.path) for part in parts} == {id(parts[0].dropout.path)}


def test_what_is_kept_makes_up_for_what_is_not() -> None:
    torch.manual_seed(0)
    skip = DropPath(torch.nn.Identity(), Depth(0.3), first=True)
    x = torch.randn(20_000, 2, 3, dtype=torch.float64)
    y = skip(x)
    gone = (y == 0).all(2).all(1)
    assert float(gone.double().mean()) == pytest.approx(0.3, abs=0.015)
    assert torch.allclose(y[~gone], x[~gone] / 0.7)
    assert float((y - x).mean(0).abs().max()) < 0.05
    skip.eval()
    assert torch.equal(skip(x), x)


def test_a_layer_goes_as_a_whole_and_for_each_text_by_itself() -> None:
    """Pre-norm: where a layer is left out, its input comes out as it was."""
    deep = still(model(layers=2)).double()
    deepen(deep, 0.8)
    seen: list[tuple[Tensor, Tensor]] = []
    for block in blocks(deep):
        assert isinstance(block, Block)
        block.register_forward_hook(lambda module, args, y: seen.append((args[0], y)))
    torch.manual_seed(0)
    deep(torch.randint(0, 40, (64, 5)))
    for (before, after), rate in zip(seen, (0.4, 0.8), strict=True):
        same = (before == after).all(2).all(1)
        assert float(same.double().mean()) == pytest.approx(rate, abs=0.15)
        assert not (before == after)[~same].all(2).any()  # elsewhere no sub-layer was left out


@pytest.mark.parametrize("family", ["bert", "gpt", "t5", "transformer-xl", "xlnet"])
def test_a_model_that_has_learned_is_used_as_it_is(family: str) -> None:
    plain, deep = model(family, 2).eval(), model(family, 2)
    deepen(deep, 0.5)
    deep.eval()
    tokens = torch.randint(7, 30, (2, 8))
    inputs = (tokens, tokens) if family == "t5" else (tokens,)
    assert torch.equal(plain(*inputs), deep(*inputs))
    assert list(plain.state_dict()) == list(deep.state_dict())
    deep.train()
    torch.manual_seed(1)
    assert not torch.equal(plain.train()(*inputs), deep(*inputs))


def test_a_depth_of_0_changes_no_bit(where: Path) -> None:
    plain, none = loop_of("bert", where), loop_of("bert", where, robust={"drop_path": 0.0})
    assert plain.step(4) == none.step(4)
    assert not any(isinstance(part, DropPath) for part in none.model.modules())


def test_forgotten_activations_leave_out_the_same_layers(where: Path) -> None:
    remembering, forgotten = (
        loop_of("bert", where, robust={"drop_path": 0.5}, engine={"checkpointing": again})
        for again in (False, True)
    )
    assert remembering.step(4) == forgotten.step(4)
    for one, two in zip(remembering.model.parameters(), forgotten.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_step_is_a_function_of_seed_and_step(where: Path) -> None:
    one, two = (loop_of("gpt", where, robust={"drop_path": 0.5}) for _ in range(2))
    torch.manual_seed(99)
    assert one.step(4) == two.step(4)
    assert one.step(4).loss != loop_of("gpt", where, seed=2, robust={"drop_path": 0.5}).step(4).loss


def test_an_lstm_has_no_layer_to_spare(where: Path) -> None:
    with refuses(ConfigError, "robust.drop_path", "LSTM"):
        loop_of("lstm", where, robust={"drop_path": 0.5})


def test_gates_that_take_away(where: Path) -> None:
    extensions = {"gates": {"kind": "highway"}}
    with refuses(ConfigError, "robust.drop_path", "highway"):
        loop_of("gpt", where, robust={"drop_path": 0.5}, extensions=extensions)


def test_the_work_of_a_step() -> None:
    assert passes(Robust()) == 1 and passes(Robust(rdrop=1.0)) == 2
    assert passes(Robust(adversary="fgm")) == 2
    assert passes(Robust(adversary="freelb", adv_steps=3, rdrop=0.5)) == 6
    assert passes(Robust(adversary="pgd", adv_steps=1)) == 2
    assert 3 < passes(Robust(adversary="pgd", adv_steps=3)) < 4


def test_a_task_is_learned_and_resumed(tmp_path: Path, stop: list[int]) -> None:
    model = tuning.bert(tmp_path / "bert")
    file = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(160))
    near = {"adversary": "freelb", "adv_radius": 0.05, "adv_lr": 0.02, "adv_init": 0.02}
    changes: dict[str, Any] = {
        "robust": near | {"rdrop": 0.5, "drop_path": 0.1, "token_noise": 0.05, "neftune": 0.1},
        "optimizer": {"lr": 0.01},
        "batch": {"size": 16},
        "budget": {"steps": 48},
    }
    run_recipes = [tuning.recipe(model, file, **changes) for _ in range(2)]
    whole = finetune(run_recipes[0], tmp_path / "whole", display="silent")
    assert whole["valid"]["accuracy"] >= 0.9
    stop += [48 + 20]
    facts = finetune(run_recipes[1], tmp_path / "parts", display="silent")
    assert facts["outcome"] == "interrupted"
    finetune(Recipe(), tmp_path / "parts", resume=True, display="silent")
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
