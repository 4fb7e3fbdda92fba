"""The loss of rows of logits and its gradient in one pass: against fp64, and as torch has it."""

import pytest
import torch

from regard.attention.native import library, passes
from regard.models import output
from regard.models.output import SoftTarget, losses

pytestmark = pytest.mark.skipif(library() is None, reason="needs a compiler")
SOFTS = {
    "plain": None,
    "smoothed": SoftTarget(0.9, 0.1 / 2999),
    "one word left out": SoftTarget(0.8, 0.2 / 2998, 7),
    "z": SoftTarget(1.0, 0.0, None, 1e-2),
    "all": SoftTarget(0.7, 0.3 / 2998, 7, 1e-2),
}
BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 8e-3}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", SOFTS)
@pytest.mark.parametrize("dtype", BOUNDS)
def test_values_and_gradient_are_those_of_fp64(dtype, name, shared, monkeypatch):
    torch.manual_seed(0)
    table = (3 * torch.randn(9, 3100)).to(dtype)  # rows may begin at other places than a line
    scores, targets = table[:, :3000], torch.randint(0, 3000, (9,))
    targets[4] = 7
    shares = torch.rand(9) if shared else None
    exact, weights = scores.double(), None if shares is None else shares.double()
    costs = losses(scores, targets, shares, SOFTS[name], True)
    wanted = losses(exact, targets, weights, SOFTS[name], True)
    assert (costs - wanted).abs().max() <= 2e-6 * wanted.abs().max()
    assert (scores - exact).abs().max() <= BOUNDS[dtype] * exact.abs().max()


def test_without_learning_the_logits_stay():
    scores, targets = torch.randn(5, 40), torch.arange(5)
    before = scores.clone()
    costs = losses(scores, targets, None, None, False)
    assert torch.equal(scores, before)
    assert torch.allclose(
        costs, torch.nn.functional.cross_entropy(scores, targets, reduction="none")
    )


def test_what_is_no_number_is_seen():
    scores = torch.randn(3, 40)
    scores[1, 5], scores[2, 6] = torch.nan, -torch.inf
    costs = losses(scores, torch.zeros(3, dtype=torch.long), None, None, True)
    assert costs[1].isnan() and costs[[0, 2]].isfinite().all()
    assert scores[2, 6] == 0


def test_the_number_of_threads_changes_nothing(monkeypatch):
    targets, results = torch.arange(64), []
    for threads in (1, 3):
        torch.manual_seed(0)
        scores = torch.randn(64, 1000)
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        results.append((losses(scores, targets, None, None, True), scores))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_without_native_code_torch_computes_the_same(monkeypatch):
    targets, results = torch.arange(6), []
    for plain in (False, True):
        torch.manual_seed(0)
        scores = torch.randn(6, 100)
        if plain:
            monkeypatch.setattr(passes, "serves", lambda x: False)
        results.append((output.losses(scores, targets, None, SOFTS["smoothed"], True), scores))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a.flatten(), b.flatten(), rtol=1e-5, atol=1e-6)
