"""Gated residual paths: what they compute, where they start, and that everything else goes on."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention.block import PostNorm, PreNorm
from regard.core.errors import ConfigError
from regard.models import create
from regard.models.extensions import extend
from regard.models.extensions.gates import GRU, Gates, Highway, Sigmoid
from regard.training.run import train
from tests.laws.zoo import ATTENTIVE, STEPWISE, Specimen, close, collate
from tests.models.extensions.shared import cached_is_uncached, comes_back
from tests.refusals import refuses
from tests.training import small

each = pytest.mark.parametrize("specimen", ATTENTIVE, ids=str)
kinds = pytest.mark.parametrize("kind", ["sigmoid", "highway", "gru"])


def gated(specimen: Specimen, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """With gates that do something."""
    model = extend(specimen.fresh(dtype), "gates", options)
    dice = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if ".gate." in name and "feed_forward.layer" not in name:
                value.normal_(0.0, 0.2, generator=dice)
    return model


@each
def test_open_gates_are_the_plain_model(specimen: Specimen) -> None:
    model = specimen.fresh(torch.float64)
    batch = collate([specimen.text(5, 0), specimen.text(3, 1)])
    with_gates = extend(deepcopy(model), "gates", {"open": 40.0})
    for one, other in zip(
        batch.of(with_gates(**batch.inputs)), batch.of(model(**batch.inputs)), strict=True
    ):
        close(one, other, 1e-12)
    usual = extend(deepcopy(model), "gates")
    assert usual.parameter_count() > model.parameter_count()
    assert not torch.equal(usual(**batch.inputs), model(**batch.inputs))


@kinds
def test_shut_gates_let_nothing_in(kind: str) -> None:
    """A pre-norm stack of shut gates hands its embeddings to the last norm; so highway and gru."""
    torch.manual_seed(1)
    model = create("gpt", layers=2, width=16, heads=2, vocab_size=30, context=16).eval()
    extend(model, "gates", {"kind": kind, "open": -60.0})
    tokens = torch.arange(9)[None]
    expected = model.norm(model.tokens(tokens) + model.positions.weight[:9])
    close(model(tokens), expected, 1e-6)


def test_the_formulas() -> None:
    torch.manual_seed(1)
    x, y = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 3, 8, dtype=torch.float64)
    gates = {kind: kind(8).double() for kind in (Sigmoid, Highway, GRU)}
    g = torch.sigmoid(x @ gates[Sigmoid].gate.weight.T + gates[Sigmoid].gate.bias)
    close(gates[Sigmoid](x, y), x + g * y, 1e-14)
    g = torch.sigmoid(x @ gates[Highway].gate.weight.T + gates[Highway].gate.bias)
    close(gates[Highway](x, y), g * y + (1 - g) * x, 1e-14)
    gru: Any = gates[GRU]
    cell = nn.GRUCell(8, 8, dtype=torch.float64)  # whose z keeps, where ours lets in
    (wz, wr, wh), (bz, br, bh) = gru.found.weight.chunk(3), gru.found.bias.chunk(3)
    uz, ur = gru.stream.weight.chunk(2)
    z = torch.sigmoid(y @ wz.T + x @ uz.T + bz)
    r = torch.sigmoid(y @ wr.T + x @ ur.T + br)
    h = torch.tanh(y @ wh.T + bh + (r * x) @ gru.reset.weight.T)
    close(gru(x, y), (1 - z) * x + z * h, 1e-14)
    with torch.no_grad():  # torch resets after the product: the same where U of h is diagonal
        scale = torch.linspace(0.5, 1.5, 8, dtype=torch.float64)
        gru.reset.weight.copy_(torch.diag(scale))
        cell.weight_ih.copy_(torch.cat([wr, -wz, wh]))
        cell.weight_hh.copy_(torch.cat([ur, -uz, torch.diag(scale)]))
        cell.bias_ih.copy_(torch.cat([br, -bz, bh]))
        cell.bias_hh.zero_()
    close(gru(x, y).flatten(0, 1), cell(y.flatten(0, 1), x.flatten(0, 1)), 1e-14)


@pytest.mark.parametrize(
    ("place", "gated"),
    [("both", {"attention", "cross", "feed_forward"}), ("attention", {"attention", "cross"}),
     ("feed_forward", {"feed_forward"})],
)  # fmt: skip
def test_the_places(place: str, gated: set[str]) -> None:
    model = create("transformer", vocab_size=20, width=16, layers=1, heads=2, ffn_size=16)
    extend(model, "gates", {"place": place})
    block = model.decoder_blocks[0]
    assert {n for n, part in block.named_children() if hasattr(part, "gate")} == gated
    assert all(isinstance(part, PostNorm) for part in block.children())


def test_a_pre_norm_stays_one() -> None:
    model = extend(create("gpt", layers=1, width=16, heads=2, vocab_size=30, context=16), "gates")
    assert isinstance(model.blocks[0].attention, PreNorm)


@pytest.mark.parametrize("specimen", [s for s in STEPWISE if s in ATTENTIVE], ids=str)
def test_cached_is_uncached(specimen: Specimen) -> None:
    cached_is_uncached(specimen, gated(specimen, kind="gru"), [0.5])


@each
def test_saved_and_loaded_is_the_same(specimen: Specimen, tmp_path: Path) -> None:
    model = gated(specimen, torch.float32, kind="highway", place="attention")
    comes_back(model, collate([specimen.text(5, 0)]).inputs, tmp_path)


@kinds
def test_gradients_reach_every_gate(kind: str) -> None:
    specimen = next(s for s in ATTENTIVE if s.name == "t5-v1_1")
    model = gated(specimen, kind=kind)
    specimen.loss(model, collate([specimen.text(5, 0)])).backward()

    def seen(value: Tensor) -> bool:
        return value.grad is not None and bool(value.grad.abs().sum() > 0)

    assert all(seen(p) for n, p in model.named_parameters() if ".gate." in n)


def test_a_recipe_with_gates_learns(tmp_path: Path) -> None:
    where = small.data(tmp_path / "data")
    recipe = small.recipe("gpt", where, extensions={"gates": {"kind": "gru"}}, budget={"steps": 4})
    train(recipe, tmp_path / "run", display="silent")
    loaded = regard.load(tmp_path / "run")
    assert loaded.model.extensions["gates"]["kind"] == "gru"
    bias = loaded.model.blocks[0].attention.gate.found.bias
    assert not torch.equal(bias[:16], torch.full((16,), -2.0)), "it has learned"


def test_refusals() -> None:
    with refuses(ConfigError, "LSTM", "both"):
        extend(create("lstm", vocab_size=20, width=16, layers=1), "gates")
    assert Gates.of({}).table() == {"place": "both", "kind": "sigmoid", "open": None}
