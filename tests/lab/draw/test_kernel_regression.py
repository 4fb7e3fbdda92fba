"""Kernel regression is a weighted mean, and with a Gaussian it is dot-product attention."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard.core.errors import UnknownName
from regard.lab.draw.kernel_regression import (
    KERNELS,
    Regression,
    gaussian,
    leave_one_out,
    regress,
    weights,
)
from tests.attention.naive import close, few, numbers

bandwidths = st.sampled_from([1e-3, 0.05, 0.3, 1.0, 7.0, 1e4])
sizes = st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 3))  # queries, keys, width
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def data(size: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    queries, keys, width = size
    return (
        numbers(queries, width, seed=1, dtype=torch.float64),
        numbers(keys, width, seed=2, dtype=torch.float64),
        numbers(keys, 2, seed=3, dtype=torch.float64),
    )


def sine(noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """y = 2 sin x + x with noise, forty points between 0 and 5."""
    draw = torch.Generator().manual_seed(0)
    x = 5 * torch.rand(40, 1, generator=draw, dtype=torch.float64).sort(0).values
    rough = noise * torch.randn(40, 1, generator=draw, dtype=torch.float64)
    return x, 2 * torch.sin(x) + x + rough


@each_kernel
@few
@given(sizes, bandwidths)
def test_a_weighted_mean(kernel: str, size: tuple[int, int, int], h: float) -> None:
    """Weights are shares of one; the answer lies among the values and moves with them."""
    q, k, v = data(size)
    a = weights(q, k, h, kernel)
    assert (a >= 0).all() and torch.allclose(a.sum(-1), torch.ones(()).double())
    y = regress(q, k, v, h, kernel)
    assert (y >= v.min(0).values - 1e-9).all() and (y <= v.max(0).values + 1e-9).all()
    close(regress(q, k, v + 3.5, h, kernel), y + 3.5, 1e-12)
    close(regress(q + 2.0, k + 2.0, v, h, kernel), y, 1e-6)


FORMULAS = {
    "gaussian": lambda u: math.exp(-u * u / 2),
    "boxcar": lambda u: float(u <= 1),
    "triangular": lambda u: max(0.0, 1 - u),
    "epanechnikov": lambda u: max(0.0, 1 - u * u),
    "constant": lambda u: 1.0,
}


@each_kernel
def test_the_formula(kernel: str) -> None:
    q, k, v = data((5, 8, 2))
    h = 2.5  # every query has a key in reach
    for i in range(5):
        shares = [FORMULAS[kernel](math.dist(q[i].tolist(), key) / h) for key in k.tolist()]
        assert sum(shares) > 0
        expected = sum(share * v[j] for j, share in enumerate(shares)) / sum(shares)
        close(regress(q[i : i + 1], k, v, h, kernel)[0], expected, 1e-12)


@each_kernel
def test_out_of_reach_the_nearest_answers(kernel: str) -> None:
    """Without a key in reach there is no mean: the nearest key speaks, and no number is lost."""
    q, k = torch.tensor([[1e3], [-1e30]]), torch.tensor([[0.0], [1.0], [2.0]])
    v = torch.tensor([[10.0], [20.0], [30.0]])
    y = regress(q, k, v, 1e-6, kernel)
    expected = [20.0, 20.0] if kernel == "constant" else [30.0, 10.0]
    assert y[:, 0].tolist()[0] == pytest.approx(expected[0])
    assert y.isfinite().all()
    if (
        kernel != "gaussian"
    ):  # 1e30 squared is no float: all keys are equally far, the first is named
        assert y[1, 0].item() == pytest.approx(expected[1])


@few
@given(sizes)
def test_bandwidths_without_limit(size: tuple[int, int, int]) -> None:
    q, k, v = data(size)
    nearest = v[torch.cdist(q, k).argmin(-1)]
    close(regress(q, k, v, 1e-150), nearest, 1e-12)
    close(regress(q, k, v, 1e8), v.mean(0).expand_as(nearest), 1e-9)
    close(regress(q, k, v, 1.0, "constant"), v.mean(0).expand_as(nearest), 1e-12)


# ------------------------------------------------------------- it is attention


@few
@given(sizes, st.sampled_from([0.3, 1.0, 7.0]))
def test_gaussian_is_attention(size: tuple[int, int, int], h: float) -> None:
    q, k, v = data(size)
    close(gaussian(q, k, v, h), regress(q, k, v, h), 1e-9)


def test_gaussian_is_pytorchs_attention() -> None:
    """[q, 1] and [k, -‖k‖²/2] with scale one, h = 1."""
    q, k, v = data((4, 7, 3))
    wide = torch.cat([q, torch.ones(4, 1)], 1)[None]
    long = torch.cat([k, -k.square().sum(1, keepdim=True) / 2], 1)[None]
    close(
        regress(q, k, v, 1.0),
        F.scaled_dot_product_attention(wide, long, v[None], scale=1.0)[0],
        1e-12,
    )


def test_keys_of_one_length_need_no_correction() -> None:
    """On a sphere the kernel is the plain dot product with temperature h²."""
    q, k, v = data((4, 7, 3))
    k = F.normalize(k, dim=1)
    plain = torch.softmax(q @ k.T / 0.6**2, -1) @ v
    close(regress(q, k, v, 0.6), plain, 1e-12)


def test_far_from_the_origin_in_single_precision() -> None:
    """Differences of squares would drown in rounding there."""
    q, k, v = (x.float() for x in data((4, 7, 1)))
    far = gaussian(q + 1000.0, k + 1000.0, v, 0.5)
    close(far, regress((q + 1000.0).double(), (k + 1000.0).double(), v.double(), 0.5), 1e-4)


# --------------------------------------------------------------- leave one out


@pytest.mark.parametrize("h", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("kernel", ["gaussian", "constant", "triangular"])
def test_leave_one_out_is_the_shortcut(kernel: str, h: float) -> None:
    """Σ ((y - f(x)) / (1 - a_ii))² / n of the full smoother, where nobody is alone."""
    x, y = sine()
    a = weights(x, x, h, kernel)
    assert a.diagonal().max() < 1
    residual = (y - a @ y)[:, 0] / (1 - a.diagonal())
    close(leave_one_out(x, y, h, kernel), residual.square().mean(), 1e-10)


def test_leave_one_out_hides_each_from_itself_alone() -> None:
    x, y = sine()
    a = weights(x, x, 0.5, "gaussian", alone=True)
    assert not a.diagonal().any() and (a + torch.eye(40) > 0).all()
    others = torch.arange(40) != 3
    close(a[3:4] @ y, regress(x[3:4], x[others], y[others], 0.5), 1e-12)
    assert leave_one_out(x, y, 1e-9, "boxcar").isfinite()  # nobody in reach: the nearest other


def test_leave_one_out_finds_a_bandwidth() -> None:
    """Neither the nearest neighbor nor the mean: the best lies between."""
    x, y = sine()
    errors = {h: leave_one_out(x, y, h).item() for h in (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)}
    assert min(errors, key=errors.__getitem__) in (0.1, 0.3, 1.0)
    assert errors[0.3] < errors[0.01] and errors[0.3] < errors[10.0]


# -------------------------------------------------------------------- learning


def train(alone: bool, steps: int = 150) -> Regression:
    x, y = sine()
    model = Regression().double()
    optimizer = torch.optim.Adam(model.parameters(), 0.2)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x, x, y, alone) - y).square().mean().backward()
        assert model.w.grad is not None and model.w.grad.isfinite().all()
        optimizer.step()
    return model


def test_the_bandwidth_is_learned() -> None:
    model = train(alone=True)
    x, y = sine()
    h = 1 / model.w.item()
    best = min((0.05 * i for i in range(2, 40)), key=lambda h: leave_one_out(x, y, h).item())
    assert h == pytest.approx(best, abs=0.06)
    clean = sine(noise=0.0)[1]
    grid = model(x, x, y)
    assert (grid - clean).square().mean() < (y - clean).square().mean() / 2
    close(grid, regress(x, x, y, h), 1e-9)


def test_who_may_copy_learns_to_copy() -> None:
    """With each point among its own keys w grows without end and the answer is the noise."""
    assert train(alone=False).w.item() > 4 * train(alone=True).w.item()


def test_every_dimension_has_its_own_width() -> None:
    """A dimension that says nothing is learned to be ignored."""
    x, y = sine(noise=0.3)
    wide = torch.cat([x, numbers(40, 1, seed=9, dtype=torch.float64)], 1)
    model = Regression(2).double()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for _ in range(150):
        optimizer.zero_grad()
        (model(wide, wide, y, alone=True) - y).square().mean().backward()
        optimizer.step()
    told, silent = model.w.abs().tolist()
    assert told > 3 * silent


def test_an_unknown_kernel_names_the_nearest() -> None:
    q, k, v = data((1, 2, 1))
    with pytest.raises(UnknownName, match="epanechnikov"):
        regress(q, k, v, 1.0, "epanechikov")
