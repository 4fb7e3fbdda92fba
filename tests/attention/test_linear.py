"""Products in fp32 by oneDNN against fp64, and where they are not used."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import linear
from regard.attention.linear import Linear
from regard.attention.native import library

BOUND = 2e-6  # of the largest number: what fp32 leaves of sums of some hundred products


@pytest.fixture
def by_onednn(monkeypatch):
    """Any processor can compute these products; only on some are they chosen."""
    if linear.OPERATION is None or not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(linear, "onednn", lambda: linear.OPERATION)


def near(a, b):
    assert (a.double() - b).abs().max() <= BOUND * b.abs().max()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [4, 5, 130])
def test_values_and_both_gradients_are_those_of_fp64(by_onednn, rows, bias):
    torch.manual_seed(0)
    ours, exact = Linear(96, 200, bias), nn.Linear(96, 200, bias).double()
    exact.load_state_dict(ours.state_dict())
    x = torch.randn(1, rows, 96, requires_grad=True)
    sides = []
    for part, rows_in in ((ours, x), (exact, x.detach().double().requires_grad_())):
        weights = [rows_in, *part.parameters()]
        first = torch.autograd.grad((part(rows_in) ** 3).sum(), weights, create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), [rows_in, part.weight])
        sides.append([*first, *second])
    assert linear.serves(x[0], ours.weight)
    for a, b in zip(*sides, strict=True):
        near(a, b)


def test_the_counter_of_operations_sees_them(by_onednn):
    with FlopCounterMode(display=False) as counter:
        Linear(8, 4)(torch.randn(10, 8)).sum().backward()
    assert counter.get_total_flops() == 2 * (2 * 10 * 8 * 4)  # no gradient for the input


def test_what_stays_with_torch(by_onednn):
    x, weight = torch.randn(10, 8), torch.randn(4, 8)
    assert linear.serves(x, weight)
    assert not linear.serves(x.double(), weight.double())
    assert not linear.serves(x.bfloat16(), weight.bfloat16())
    assert not linear.serves(x[:2], weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert not linear.serves(x, weight)
        assert Linear(8, 4)(x).dtype == torch.bfloat16


def test_who_made_the_processor(tmp_path):
    facts = tmp_path / "cpuinfo"
    assert linear.is_intel(facts)  # nothing is known
    facts.write_text("vendor_id : AuthenticAMD\n", encoding="utf-8")
    assert not linear.is_intel(facts)
    facts.write_text("vendor_id : GenuineIntel\n", encoding="utf-8")
    assert linear.is_intel(facts)


def test_the_environment_switches_it_off():
    code = "from regard.attention.linear import onednn; print(onednn())"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env={"REGARD_NATIVE": "0"}, capture_output=True, text=True)
    assert done.stdout.strip() == "None", done.stderr


@pytest.mark.skipif(library() is None, reason="needs a compiler")
@pytest.mark.parametrize("turned", ["", "a", "b"])
@pytest.mark.parametrize("sizes", [(3, 4, 1, 5), (2, 7, 400, 70), (1, 100, 64, 130)])
def test_batches_of_products_and_their_gradients(by_onednn, sizes, turned):
    torch.manual_seed(0)
    batch, m, k, n = sizes
    a, b = torch.randn(batch, m, k), torch.randn(batch, k, n)
    a = a.mT.contiguous().mT if turned == "a" else a
    b = b.mT.contiguous().mT if turned == "b" else b
    sides = []
    for ours, (x, y) in ((True, (a, b)), (False, (a.double(), b.double()))):
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        z = linear.products(x, y) if ours else torch.bmm(x, y)
        sides.append([z, *torch.autograd.grad((z**2).sum(), [x, y])])
    assert sides[0][0].grad_fn.name().startswith("ProductsBackward")
    for one, other in zip(*sides, strict=True):
        near(one, other)
