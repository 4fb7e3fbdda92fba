"""Label smoothing in its three ways, against the plain formula, torch's own and known figures."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.errors import ConfigError, UnknownName
from regard.models import output
from regard.models.output import Output, SoftTarget
from regard.objectives.smoothing import KINDS, entropy, smoothing
from tests.refusals import Refusal, refuses

WORDS, WIDTH, ROWS, PAD = 29, 16, 13, 2


def smoothed(epsilon: float, words: int, kind: str, target: Tensor, pad: int = PAD) -> Tensor:
    """q [N, words], written out."""
    spread = {"others": words - 1, "all": words, "no-pad": words - 2}[kind]
    q = torch.full((len(target), words), epsilon / spread, dtype=torch.float64)
    if kind == "no-pad":
        q[:, pad] = 0.0
    own = 1 - epsilon + (epsilon / words if kind == "all" else 0.0)
    return q.scatter(1, target[:, None], own)


def rows(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, WIDTH, dtype=dtype, requires_grad=True)
    targets = torch.randint(PAD + 1, WORDS, (ROWS,))
    return hidden, targets, torch.rand(ROWS, dtype=dtype)


def layer(dtype: torch.dtype = torch.float64, **options: Any) -> Output:
    torch.manual_seed(1)
    return Output(nn.Parameter(torch.randn(WORDS, WIDTH)), **options).to(dtype)


class Given(Output):
    """Logits as they are: the rows themselves."""

    def __init__(self, words: int) -> None:
        super().__init__(nn.Parameter(torch.eye(words, dtype=torch.float64)))


@pytest.mark.parametrize(
    ("kind", "cross", "divergence"),
    [("others", 0.7619379396, 0.2982255301), ("all", 0.7244379396, 0.3347650190)],
)
def test_known_figures(kind: str, cross: float, divergence: float) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, 0.5]], dtype=torch.float64)
    loss = Given(5).softened(logits, torch.tensor([0]), smoothing(0.1, 5, kind))
    assert float(loss.detach()) == pytest.approx(cross, abs=1e-10)
    assert float(loss.detach()) - entropy(0.1, 5, kind) == pytest.approx(divergence, abs=1e-10)
    if kind == "others":
        assert entropy(0.1, 5, kind) == pytest.approx(0.4637124095, abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.6])
def test_q_is_a_distribution(kind: str, epsilon: float) -> None:
    target = torch.tensor([5])
    soft = smoothing(epsilon, WORDS, kind, PAD)
    q = torch.full((1, WORDS), soft.other, dtype=torch.float64)
    if soft.without is not None:
        q[:, soft.without] = 0.0
    q[0, 5] += soft.own
    torch.testing.assert_close(q, smoothed(epsilon, WORDS, kind, target))
    assert float(q.sum()) == pytest.approx(1.0)
    expected = -sum(x * math.log(x) for x in q[0].tolist() if x > 0)
    assert entropy(epsilon, WORDS, kind) == pytest.approx(expected)


@pytest.mark.parametrize("chunk", [1, 3 * WORDS, 2**24])
@pytest.mark.parametrize("shared", [False, True], ids=["all alike", "with shares"])
@pytest.mark.parametrize("z", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradients(
    kind: str, z: float, shared: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "CHUNK", chunk)
    hidden, targets, shares = rows()
    model = layer(bias="learned", scale=0.5)
    learned = [hidden, *model.parameters()]
    logits = model(hidden)
    each = -(smoothed(0.2, WORDS, kind, targets) * logits.log_softmax(-1)).sum(-1)
    each = each + z * logits.logsumexp(-1) ** 2
    expected = (each * shares).sum() if shared else each.sum()
    soft = smoothing(0.2, WORDS, kind, PAD)._replace(z=z)
    loss = model.softened(hidden, targets, soft, shares if shared else None)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    for mine, theirs in zip(
        torch.autograd.grad(3 * loss, learned),
        torch.autograd.grad(3 * expected, learned),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_by_differences(kind: str) -> None:
    """Central differences in random directions (the gradient may be taken only once, so torch's
    own gradcheck cannot be used).
    """
    hidden, targets, shares = rows()
    model, soft = layer(bias="learned"), smoothing(0.2, WORDS, kind, PAD)._replace(z=0.1)
    assert model.bias is not None
    inputs = [hidden, model.weight, model.bias]

    def total(values: list[Tensor]) -> Tensor:
        return output.surprisal(*values, targets, shares, soft)

    slopes = torch.autograd.grad(total(inputs), inputs)
    with torch.no_grad():
        for _ in range(5):
            ways = [torch.randn_like(x) for x in inputs]
            step = [1e-5 * way for way in ways]
            high = total([x + d for x, d in zip(inputs, step, strict=True)])
            low = total([x - d for x, d in zip(inputs, step, strict=True)])
            expected = sum((slope * way).sum() for slope, way in zip(slopes, ways, strict=True))
            torch.testing.assert_close((high - low) / 2e-5, expected, rtol=1e-7, atol=1e-7)


def test_all_is_torch_s_own() -> None:
    hidden, targets, _ = rows()
    model = layer()
    expected = F.cross_entropy(model(hidden), targets, reduction="sum", label_smoothing=0.1)
    loss = model.softened(hidden, targets, smoothing(0.1, WORDS, "all"))
    torch.testing.assert_close(loss, expected)


def test_the_two_conventions_meet() -> None:
    """ "all" with ε · K / (K - 1) is "others" with ε."""
    hidden, targets, _ = rows()
    one = layer().softened(hidden, targets, smoothing(0.1, WORDS, "others"))
    two = layer().softened(hidden, targets, smoothing(0.1 * WORDS / (WORDS - 1), WORDS, "all"))
    torch.testing.assert_close(one, two)


def test_nothing_smoothed_is_surprisal() -> None:
    hidden, targets, _ = rows()
    for kind in KINDS:
        loss = layer().softened(hidden, targets, smoothing(0.0, WORDS, kind, PAD))
        torch.testing.assert_close(loss, layer().surprisal(hidden, targets))
        assert entropy(0.0, WORDS, kind) == 0.0


def test_in_bf16() -> None:
    hidden, targets, _ = rows(torch.float32)
    model, soft = layer(torch.float32), SoftTarget(0.8, 0.2 / WORDS, z=0.01)
    exact = model.softened(hidden, targets, soft)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.softened(hidden, targets, soft)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=1e-2, atol=1e-2)
    mine, theirs = (torch.autograd.grad(x, hidden)[0] for x in (loss, exact))
    assert (mine - theirs).norm() <= 0.02 * theirs.norm()


def test_compiled_is_eager() -> None:
    hidden, targets, shares = rows(torch.float32)
    model, soft = layer(torch.float32), smoothing(0.1, WORDS, "no-pad", PAD)._replace(z=0.1)
    fast = torch.compile(model.softened, backend="eager", fullgraph=True)
    loss, expected = (f(hidden, targets, soft, shares) for f in (fast, model.softened))
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("epsilon", "words", "kind", "refusal"),
    [
        (0.1, WORDS, "other", (UnknownName, "'other'", "'others'")),
        (-0.1, WORDS, "all", (ConfigError, "smoothing is -0.1")),
        (1.0, WORDS, "all", (ConfigError, "smoothing is 1.0")),
        (0.1, WORDS, "no-pad", (ConfigError, "'no-pad'", "padding")),
        (0.1, 1, "others", (ConfigError, "vocabulary of 1")),
    ],
)
def test_refusals(epsilon: float, words: int, kind: str, refusal: Refusal) -> None:
    with refuses(*refusal):
        smoothing(epsilon, words, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_cross_entropy_is_the_divergence_plus_a_constant(kind: str) -> None:
    """For soft targets as well, whatever the model says; so both teach the same."""
    constants = []
    for seed in range(3):
        torch.manual_seed(seed)
        logits = torch.randn(ROWS, WORDS, dtype=torch.float64, requires_grad=True)
        target = torch.randint(PAD + 1, WORDS, (ROWS,))
        log_probs, q = logits.log_softmax(-1), smoothed(0.1, WORDS, kind, target)
        loss = Given(WORDS).softened(logits, target, smoothing(0.1, WORDS, kind, PAD))
        divergence = F.kl_div(log_probs, q, reduction="sum")
        constants.append(float((loss.sum() - divergence).detach()) / ROWS)
        slopes = [torch.autograd.grad(x, logits, retain_graph=True)[0]
                  for x in (loss.sum(), divergence)]  # fmt: skip
        torch.testing.assert_close(*slopes)
    assert constants == pytest.approx([constants[0]] * 3) and constants[0] > 0.1
