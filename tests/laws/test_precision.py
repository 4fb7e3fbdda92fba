"""The models in half, mixed and double precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.laws.zoo import ZOO, Specimen, close, collate, model_of

each = pytest.mark.parametrize("specimen", ZOO, ids=str)


def apart(actual: Tensor, expected: Tensor) -> float:
    """The error as a share of what is expected, over all numbers."""
    return ((actual.double() - expected.double()).norm() / expected.double().norm()).item()


def batch_of(specimen: Specimen):  # type: ignore[no-untyped-def]
    return collate([specimen.text(8, 1), specimen.text(5, 2), specimen.text(3, 3)], left=True)


@each
def test_half_precision_is_near(specimen: Specimen) -> None:
    batch = batch_of(specimen)
    exact = torch.cat(batch.of(model_of(specimen)(**batch.inputs)))
    half = model_of(specimen, torch.bfloat16)(**batch.inputs)
    assert half.dtype == torch.bfloat16
    assert model_of(specimen, torch.bfloat16).logits(half).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model_of(specimen)(**batch.inputs)
    for rounded in (half, mixed):
        assert rounded.isfinite().all()
        assert apart(torch.cat(batch.of(rounded)), exact) < 0.05


@each
def test_mixed_precision_learns(specimen: Specimen) -> None:
    """Under autocast gradients are of the weights' own type and point where those of fp32 do."""
    batch, slopes = batch_of(specimen), []
    model = specimen.fresh()
    for mixed in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss = specimen.loss(model, batch)
        assert loss.dtype == torch.float32
        loss.backward()
        assert all(p.grad.dtype == p.dtype for p in model.parameters() if p.grad is not None)
        slopes.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert slopes[0].keys() == slopes[1].keys()
    assert all(slope.isfinite().all() for slope in slopes[1].values())
    flat = [torch.cat([s.flatten() for s in part.values()]) for part in slopes]
    assert apart(flat[1], flat[0]) < 0.1


@each
def test_half_precision_learns(specimen: Specimen) -> None:
    model = specimen.fresh(torch.bfloat16).train()
    specimen.loss(model, batch_of(specimen)).backward()
    for name, p in model.named_parameters():
        assert p.grad is None or (p.grad.dtype == p.dtype and p.grad.isfinite().all()), name


@each
def test_mixed_precision_with_dropout(specimen: Specimen) -> None:
    model = specimen.fresh().train()
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        specimen.loss(model, batch_of(specimen)).backward()
    for name, p in model.named_parameters():
        assert p.grad is None or p.grad.isfinite().all(), name


@each
def test_double_precision_is_nearer(specimen: Specimen) -> None:
    """No constant is made in single precision where it would show."""
    batch = batch_of(specimen)
    double = model_of(specimen, torch.float64)(**batch.inputs)
    assert double.dtype == torch.float64
    single = model_of(specimen)(**batch.inputs)
    for a, b in zip(batch.of(single), batch.of(double), strict=True):
        close(a, b, 1e-4)
    losses = [specimen.loss(specimen.fresh(t), batch) for t in (torch.float32, torch.float64)]
    assert losses[1].dtype == torch.float64
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
