"""Muon: equal to torch's on each matrix that a weight holds, and AdamW for what is no matrix."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention.attention import Projection
from regard.training.optimizer import optimizer, set_rate, state_tensors
from regard.training.own_optimizers import POLYNOMIAL, ROUNDS, all_orthogonal, hidden_matrices
from tests.models.small import SMALL, small

BF16 = torch.bfloat16


def draw_gradients(model: nn.Module, step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        name: torch.randn(p.shape, generator=generator, dtype=p.dtype)
        for name, p in model.named_parameters()
    }


def references(model: nn.Module, parts: dict[Tensor, list[int]]) -> dict[str, list[nn.Parameter]]:
    """Each weight as the separate matrices that it holds."""
    return {
        name: [nn.Parameter(rows.clone()) for rows in p.detach().split(parts.get(p, [p.size(0)]))]
        for name, p in model.named_parameters()
    }


@pytest.mark.parametrize("name", ["gpt2", "transformer-base", "lstm-medium"])
def test_views_equal_separate_matrices_to_the_bit(name: str) -> None:
    """A projection as query, key and value, an LSTM as its gates; what is left follows AdamW."""
    model = small(name)
    parts = dict(hidden_matrices(model))
    assert {len(rows) for rows in parts.values()} == ({4} if "lstm" in name else {1, 3})
    ours = optimizer("muon", model, lr=1.0, betas=(0.9, 0.95), weight_decay=0.1, products=BF16)
    separate = references(model, parts)
    hidden = [m for k, p in model.named_parameters() if p in parts for m in separate[k]]
    vectors = {id(p) for g in ours.param_groups if g["name"] == "plain" for p in g["params"]}
    others: list[dict[str, Any]] = [
        {"params": separate[k], "weight_decay": 0.0 if id(p) in vectors else 0.1}
        for k, p in model.named_parameters()
        if p not in parts
    ]
    muon = torch.optim.Muon(hidden, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(others, betas=(0.9, 0.95), fused=True)
    for step in range(4):
        gradients = draw_gradients(model, step)
        for key, p in model.named_parameters():
            p.grad = gradients[key]
            for matrix, rows in zip(
                separate[key], p.grad.split(parts.get(p, [len(p)])), strict=True
            ):
                matrix.grad = rows.clone()
        for one in (ours, muon, adamw):
            set_rate(one, 0.02 / (step + 1))
            one.step()
    for key, p in model.named_parameters():
        assert torch.equal(p, torch.cat([m.detach() for m in separate[key]])), key


def test_parts_of_any_size() -> None:
    """Fewer keys and values than queries are smaller matrices of their own."""

    class Grouped(Projection):
        def parts(self) -> list[int]:
            return [12, 6, 6]

    model = nn.Module()
    model.layers = nn.ModuleList([Grouped(10, 4, 2, bias=False)])
    weight = model.layers[0].weight
    separate = [nn.Parameter(rows.clone()) for rows in weight.detach().split([12, 6, 6])]
    ours = optimizer("muon", model, lr=0.1, products=BF16)
    theirs = torch.optim.Muon(separate, lr=0.1, weight_decay=0, adjust_lr_fn="match_rms_adamw")
    weight.grad = torch.randn(24, 10)
    for matrix, rows in zip(separate, weight.grad.split([12, 6, 6]), strict=True):
        matrix.grad = rows
    ours.step(), theirs.step()
    assert torch.equal(weight, torch.cat([m.detach() for m in separate]))


@pytest.mark.parametrize("name", SMALL)
def test_which_weights_are_matrices(name: str) -> None:
    model = small(name)
    ours = optimizer("muon", model, lr=1e-3, weight_decay=0.1)
    groups = {id(p): g for g in ours.param_groups for p in g["params"]}
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for key, p in model.named_parameters():
        inside = "blocks." in key or key.startswith("layers.")
        matrix = inside and "weight" in key.rpartition(".")[2] and p.dim() == 2
        assert (groups[id(p)]["name"] == "hidden") == matrix, key
        assert not (matrix and id(p) in tables), key
        assert not matrix or groups[id(p)]["weight_decay"] == 0.1


def test_layers_can_have_lower_rates() -> None:
    model = small("bert-base-uncased")
    ours = optimizer("muon", model, lr=1.0, layer_decay=0.5)
    set_rate(ours, 0.02)
    rates = {id(p): g["lr"] for g in ours.param_groups for p in g["params"]}
    assert rates[id(model.blocks[1].feed_forward.layer.wide.weight)] == 0.02
    assert rates[id(model.blocks[0].feed_forward.layer.wide.weight)] == 0.01
    assert rates[id(model.blocks[0].feed_forward.norm.weight)] == 0.01
    assert rates[id(model.embeddings.tokens.weight)] == 0.005
    assert {g["lr"] for g in ours.others.param_groups} == {0.02, 0.01, 0.005}


@pytest.mark.parametrize("shape", [(9, 9), (12, 5), (5, 12), (1, 7)])
def test_singular_values_follow_the_polynomial(shape: tuple[int, int]) -> None:
    """The same singular vectors, by a decomposition; the values end near 1."""
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s, (a, b, c) = s / s.norm(), POLYNOMIAL
    for _ in range(ROUNDS):
        s = a * s + b * s**3 + c * s**5
    (whole,) = all_orthogonal([matrix], torch.float64)
    torch.testing.assert_close(whole, u * s @ v, rtol=0, atol=1e-12)
    assert s.min() > 0.6 and s.max() < 1.3
    assert not all_orthogonal([torch.zeros(shape)], torch.float32)[0].any()


def test_a_step_is_as_long_as_one_of_adamw() -> None:
    """By root mean square 0.2 of the rate, whatever the shape."""
    model = small("gpt2")
    before = {key: p.clone() for key, p in model.named_parameters()}
    ours = optimizer("muon", model, lr=1e-3)
    for key, gradient in draw_gradients(model, 0).items():
        model.get_parameter(key).grad = gradient
    ours.step()
    for key, p in model.named_parameters():
        if p in ours.parts:
            moved = (p - before[key]).square().mean().sqrt()
            assert 0.15e-3 < moved < 0.25e-3, key


def test_zeros_are_kept_where_they_are_to_be() -> None:
    """A step without them is not orthogonal, but it is the rest of one."""
    for keep in (True, False):
        model = small("gpt2")
        weight = model.blocks[0].attention.layer.project.weight
        with torch.no_grad():
            weight[weight.abs() < weight.abs().median()] = 0
        gone = weight == 0
        ours = optimizer("muon", model, lr=0.01, weight_decay=0.1, keep_zeros=keep)
        for step in range(3):
            for key, gradient in draw_gradients(model, step).items():
                model.get_parameter(key).grad = gradient
            weight.grad[gone] = 0
            ours.step()
        assert bool(weight[gone].any()) is not keep
        assert weight[~gone].all()


def test_what_has_no_gradient_stays_and_has_no_state() -> None:
    model = small("longformer-base-4096")
    idle = {k: p for k, p in model.named_parameters() if ".wide.project." in k}
    before = {key: p.clone() for key, p in idle.items()}
    ours = optimizer("muon", model, lr=0.1, weight_decay=0.1)
    for key, gradient in draw_gradients(model, 0).items():
        model.get_parameter(key).grad = None if key in idle else gradient
    ours.step()
    assert idle and all(torch.equal(p, before[key]) for key, p in idle.items())
    stored = state_tensors(ours, model)
    assert not any(key.rpartition("/")[0] in idle for key in stored)
    name = "blocks.0.attention.layer.local.project.weight"
    assert [key for key in stored if key.startswith(f"{name}/")] == [f"{name}/momentum_buffer"]
    assert "embeddings.tokens.weight/exp_avg_sq" in stored
    ours.state.clear()
    assert not ours.others.state, "both parts know one state"
