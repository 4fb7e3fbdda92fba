"""The norm of Llama and T5 in native code: value and gradients against fp64."""

import pytest
import torch
from torch import nn

from regard.attention.native import library
from regard.attention.norms import RMSNorm

BOUND = 2e-6  # of the largest number


@pytest.mark.skipif(library() is None, reason="needs a compiler")
@pytest.mark.parametrize("shape", [(1, 1, 5), (3, 7, 48), (2, 100, 130)])
def test_value_and_gradients_are_those_of_fp64(shape):
    torch.manual_seed(0)
    ours, exact = RMSNorm(shape[-1], 1e-6), nn.RMSNorm(shape[-1], 1e-6).double()
    nn.init.normal_(ours.weight)
    exact.load_state_dict(ours.state_dict())
    x = (3 * torch.randn(shape)).requires_grad_()
    wide = x.detach().double().requires_grad_()
    y, z = ours(x), exact(wide)
    assert y.grad_fn.name().startswith("FusedNorm")
    pairs = [(y, z)]
    for part in zip(
        torch.autograd.grad((y**3).sum(), [x, ours.weight]),
        torch.autograd.grad((z**3).sum(), [wide, exact.weight]),
        strict=True,
    ):
        pairs.append(part)
    for a, b in pairs:
        assert (a.double() - b).abs().max() <= BOUND * b.abs().max()


def test_other_dtypes_stay_with_torch():
    for dtype in (torch.float64, torch.bfloat16):
        norm, x = RMSNorm(8, 1e-6).to(dtype), torch.randn(3, 8, dtype=dtype)
        assert torch.equal(norm(x), nn.functional.rms_norm(x, [8], norm.weight, 1e-6))


def test_rows_without_order_in_memory():
    norm, x = RMSNorm(8, 1e-6), torch.randn(8, 5).t()
    assert torch.allclose(norm(x), nn.functional.rms_norm(x, [8], norm.weight, 1e-6), atol=1e-6)
