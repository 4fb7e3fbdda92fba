"""From hidden states to probabilities: in chunks, with shares, and by clusters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models import adaptive, output
from regard.models.adaptive import AdaptiveEmbedding, AdaptiveOutput
from regard.models.output import Output, Transform
from tests.models.small import small

ROWS, WIDTH, WORDS = 13, 16, 29


def rows(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, targets, and how much each counts."""
    torch.manual_seed(seed)
    hidden = torch.randn(ROWS, WIDTH, dtype=dtype, requires_grad=True)
    shares = torch.rand(ROWS, dtype=dtype)
    shares[3] = 0.0
    return hidden, torch.randint(0, WORDS, (ROWS,)), shares


def gradients(total: Tensor, of: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(total, of))


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "learned bias": {"bias": "learned"},
    "given bias": {"bias": "fixed"},
    "scaled": {"scale": 0.25},
    "transformed": {"bias": "learned", "transform": True},
}


def make(kind: str, dtype: torch.dtype = torch.float64) -> Output:
    torch.manual_seed(1)
    options = dict(KINDS[kind])
    if options.pop("transform", False):
        options["transform"] = Transform(WIDTH, "gelu", 1e-12)
    layer = Output(nn.Parameter(torch.randn(WORDS, WIDTH)), **options).to(dtype)
    if layer.bias is not None:
        with torch.no_grad():
            layer.bias.normal_()
    return layer


@pytest.mark.parametrize("chunk", [1, WORDS, 3 * WORDS, 13 * WORDS, 2**24])
@pytest.mark.parametrize("shared", [False, True], ids=["all alike", "with shares"])
@pytest.mark.parametrize("kind", KINDS)
def test_surprisal_is_cross_entropy(
    kind: str, shared: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and gradients, for chunks of one row, of a few with a rest, of all."""
    monkeypatch.setattr(output, "CHUNK", chunk)
    hidden, targets, shares = rows()
    layer = make(kind)
    learned = [hidden, *layer.parameters()]
    each = F.cross_entropy(layer(hidden), targets, reduction="none")
    expected = (each * shares).sum() if shared else each.sum()
    loss = layer.surprisal(hidden, targets, shares if shared else None)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    pairs = zip(gradients(3 * loss, learned), gradients(3 * expected, learned), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(layer.each(hidden, targets), each.float().detach())


@pytest.mark.parametrize("count", [0, 1, 7, 667, 668, 2048, 100_000])
@pytest.mark.parametrize("words", [1, 300, 50257, 2**26])
def test_chunks_are_about_equal(count: int, words: int) -> None:
    """Never much above the limit, in as few chunks as that allows, and none with a few rows."""
    rows = output.chunk_rows(count, words)
    assert rows * words <= max(output.MORE * output.CHUNK + words, words)
    chunks = -(-count // max(rows, 1))
    assert chunks <= -(-count // max(1, output.CHUNK // words))
    assert chunks * rows - count < max(chunks, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_targets_have_no_gradient(dtype: torch.dtype) -> None:
    layer, hidden = make("learned bias", dtype), torch.randn(0, WIDTH, dtype=dtype)
    learned = [hidden.requires_grad_(), *layer.parameters()]
    loss = layer.surprisal(hidden, torch.zeros(0, dtype=torch.long))
    assert loss == 0.0
    for weight, slope in zip(learned, gradients(loss, learned), strict=True):
        assert slope.shape == weight.shape and not slope.any()


@pytest.mark.parametrize("kind", KINDS)
def test_in_fp32(kind: str) -> None:
    hidden, targets, _ = rows(torch.float32)
    layer = make(kind, torch.float32)
    learned = [hidden, *layer.parameters()]
    expected = F.cross_entropy(layer(hidden), targets, reduction="sum")
    loss = layer.surprisal(hidden, targets)
    torch.testing.assert_close(loss, expected)
    for mine, theirs in zip(gradients(loss, learned), gradients(expected, learned), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_in_bf16(kind: str, shared: bool) -> None:
    """Under autocast: products in bf16, the sum of surprisals in fp32, gradients in fp32."""
    hidden, targets, shares = rows(torch.float32)
    layer = make(kind, torch.float32)
    learned = [hidden, *layer.parameters()]
    with torch.autocast("cpu", torch.bfloat16):
        each = F.cross_entropy(layer(hidden).float(), targets, reduction="none")
        expected = (each * shares).sum() if shared else each.sum()
        loss = layer.surprisal(hidden, targets, shares if shared else None)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=1e-2)
    for mine, theirs in zip(gradients(loss, learned), gradients(expected, learned), strict=True):
        assert mine.dtype == torch.float32
        assert (mine - theirs).norm() <= 0.02 * theirs.norm()


def test_only_what_learns_gets_a_gradient() -> None:
    """A frozen table, frozen rows, or a bias alone."""
    hidden, targets, _ = rows()
    layer = make("learned bias")
    layer.weight.requires_grad_(False)
    layer.surprisal(hidden, targets).backward()
    assert layer.weight.grad is None and hidden.grad is not None
    assert layer.bias is not None and layer.bias.grad is not None
    alone = layer.bias.grad.clone()
    layer.bias.grad = None
    layer.surprisal(hidden.detach(), targets).backward()
    torch.testing.assert_close(layer.bias.grad, alone)
    with torch.no_grad():
        assert not layer.surprisal(hidden, targets).requires_grad


def test_no_targets_cost_nothing() -> None:
    layer = make("learned bias")
    hidden = torch.empty(0, WIDTH, dtype=torch.float64, requires_grad=True)
    total = layer.surprisal(hidden, torch.empty(0, dtype=torch.long))
    total.backward()
    assert total == 0 and layer.weight.grad is not None and not layer.weight.grad.any()


@pytest.mark.parametrize("name", ["gpt2", "t5-small", "bert-base-uncased", "xlnet-base"])
def test_probabilities_sum_to_one(name: str) -> None:
    model = small(name).eval()
    logits = model.logits(torch.randn(3, 64))
    torch.testing.assert_close(logits.double().softmax(-1).sum(-1), torch.ones(3).double())


# --- by clusters ----------------------------------------------------------------------------

LAYOUTS: dict[str, dict[str, Any]] = {
    "three clusters": {"cutoffs": (8, 17), "size": WIDTH, "ratio": 2},
    "narrower than the model": {"cutoffs": (8, 17), "size": 12, "ratio": 2},
    "own projections": {"cutoffs": (8, 17), "size": WIDTH, "ratio": 2, "shared": False},
    "one table, three clusters": {"cutoffs": (8, 17), "size": WIDTH, "ratio": 1},
    "one table, projected": {"cutoffs": (8, 17), "size": 12, "ratio": 1},
    "no clusters": {"cutoffs": (), "size": WIDTH, "ratio": 1},
    "two clusters, one word each side": {"cutoffs": (1, 28), "size": WIDTH, "ratio": 2},
}
LAYOUT = pytest.mark.parametrize("layout", LAYOUTS)


def clusters(layout: str) -> tuple[AdaptiveEmbedding, AdaptiveOutput]:
    torch.manual_seed(2)
    options = dict(LAYOUTS[layout])
    shared = options.pop("shared", True)
    table = AdaptiveEmbedding(WORDS, options["cutoffs"], options["size"], options["ratio"], WIDTH)
    layer = AdaptiveOutput(table, options["size"], shared)
    with torch.no_grad():
        for parameter in [*table.parameters(), *layer.parameters()]:
            parameter.normal_(std=0.4)
    return table.double(), layer.double()


@LAYOUT
def test_adaptive_probabilities_sum_to_one(layout: str) -> None:
    log_p = clusters(layout)[1](rows()[0])
    assert log_p.shape == (ROWS, WORDS)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(ROWS).double())


@pytest.mark.parametrize("chunk", [1, 50, 2**24])
@pytest.mark.parametrize("shared", [False, True], ids=["all alike", "with shares"])
@LAYOUT
def test_adaptive_surprisal_is_that_of_its_probabilities(
    layout: str, shared: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "CHUNK", chunk)
    monkeypatch.setattr(adaptive, "CHUNK", chunk)
    hidden, targets, shares = rows()
    layer = clusters(layout)[1]
    learned = [hidden, *layer.parameters()]
    each = -layer(hidden).gather(1, targets[:, None])[:, 0]
    expected = (each * shares).sum() if shared else each.sum()
    loss = layer.surprisal(hidden, targets, shares if shared else None)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    mine = torch.autograd.grad(loss, learned, allow_unused=True)
    theirs = torch.autograd.grad(expected, learned, allow_unused=True)
    for a, b in zip(mine, theirs, strict=True):
        a, b = (torch.zeros(()) if g is None else g for g in (a, b))
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(layer.each(hidden, targets), each.detach())


@pytest.mark.parametrize("inside", [(0, 8), (8, 17), (17, 29)], ids=["first", "second", "third"])
def test_targets_of_one_cluster_only(inside: tuple[int, int]) -> None:
    hidden, layer = rows()[0], clusters("three clusters")[1]
    targets = torch.randint(*inside, (ROWS,))
    expected = -layer(hidden).gather(1, targets[:, None]).sum()
    torch.testing.assert_close(layer.surprisal(hidden, targets), expected)


@pytest.mark.parametrize("layout", ["three clusters", "narrower than the model"])
def test_adaptive_is_torch_s_own(layout: str) -> None:
    """torch has the same softmax without biases in the tails: with those at zero it agrees."""
    hidden, targets, _ = rows()
    layer = clusters(layout)[1]
    theirs = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, WORDS, [8, 17], head_bias=True).double()
    with torch.no_grad():
        for bias in list(layer.biases)[1:]:
            bias.zero_()
        weight, bias = layer.cluster(0)
        theirs.head.weight.copy_(weight @ layer.projections[0].mT)
        theirs.head.bias.copy_(bias)
        for i in (1, 2):
            narrow = nn.Linear(WIDTH, layer.projections[i].size(1), bias=False)
            narrow.weight = nn.Parameter(layer.projections[i].mT.clone())
            wide = nn.Linear(narrow.out_features, layer.tables[i].num_embeddings, bias=False)
            wide.weight = nn.Parameter(layer.tables[i].weight.clone())
            theirs.tail[i - 1] = nn.Sequential(narrow, wide)
    torch.testing.assert_close(layer(hidden), theirs.log_prob(hidden))
    torch.testing.assert_close(
        layer.surprisal(hidden, targets), theirs(hidden, targets).loss * ROWS
    )


@LAYOUT
def test_adaptive_input_by_hand(layout: str) -> None:
    """Each word's row of its own cluster's table, projected, times √width."""
    table = clusters(layout)[0]
    tokens = torch.arange(WORDS)[None]
    expected = []
    for word in range(WORDS):
        i = next(i for i, (start, end) in enumerate(table.ranges) if start <= word < end)
        row = table.tables[i].weight[word - table.ranges[i][0]]
        expected.append(table.projections[i] @ row if len(table.projections) else row)
    torch.testing.assert_close(table(tokens)[0], torch.stack(expected) * WIDTH**0.5)


def test_adaptive_gradients_reach_every_table() -> None:
    """Rows of a cluster that no token is in stay untouched; shared projections learn twice."""
    table, layer = clusters("three clusters")
    tokens = torch.tensor([[1, 9, 3]])
    hidden = table(tokens)[0]
    layer.surprisal(hidden, torch.tensor([2, 10, 20])).backward()
    assert all(t.weight.grad is not None for t in table.tables)
    assert layer.projections[1] is table.projections[1]
    assert layer.projections[0] is not table.projections[0]
    assert table.projections[0].grad is not None and table.projections[0].grad.any()


def test_adaptive_in_bf16() -> None:
    hidden, targets, _ = rows(torch.float32)
    layer = clusters("three clusters")[1].float()
    exact = layer.surprisal(hidden, targets)
    with torch.autocast("cpu", torch.bfloat16):
        loss = layer.surprisal(hidden, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=1e-2, atol=1e-2)
    loss.backward()
    assert hidden.grad is not None and hidden.grad.dtype == torch.float32
