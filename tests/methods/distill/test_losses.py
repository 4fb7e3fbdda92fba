"""What a student loses where it is not like its teacher: each loss by hand, words in chunks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.core.errors import ConfigError
from regard.methods.distill import losses as losses
from regard.models.adaptive import AdaptiveEmbedding, AdaptiveOutput
from regard.models.output import Output
from tests.refusals import refuses


def test_divergence_by_hand() -> None:
    """Teacher (3/4, 1/4), student (1/2, 1/2); at temperature 2 logits twice as far apart are the
    same two distributions, and T² is 4.
    """
    wanted = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    student, teacher = torch.zeros(1, 2), torch.tensor([[math.log(3.0), 0.0]])
    assert losses.divergence(student, teacher, 1.0).item() == pytest.approx(wanted, rel=1e-6)
    assert losses.divergence(student, 2 * teacher, 2.0).item() == pytest.approx(4 * wanted)


def test_divergence_is_the_library_s() -> None:
    student, teacher = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(1))
    ours = losses.divergence(student, teacher, 3.0).mean()
    scores = F.log_softmax(student / 3, -1), F.softmax(teacher / 3, -1)
    theirs = F.kl_div(*scores, reduction="batchmean") * 9
    torch.testing.assert_close(ours, theirs)


def test_t_squared_keeps_the_size_of_the_gradient() -> None:
    """For large T it is (z_s - z_t) / K, of logits whose mean is 0 (Hinton et al. 2015, 2.1)."""
    z = torch.tensor([[1.0, -2.0, 1.0]], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([[2.0, 0.0, -2.0]], dtype=torch.float64)
    values = {}
    for temperature in (1.0, 100.0, 1000.0):
        (values[temperature],) = torch.autograd.grad(
            losses.divergence(z, teacher, temperature).sum(), z
        )
    torch.testing.assert_close(values[1000.0], ((z - teacher) / 3).detach(), rtol=0.01, atol=0.0)
    torch.testing.assert_close(values[100.0], values[1000.0], rtol=0.03, atol=0.0)
    assert 0.2 < values[1.0].norm() / values[1000.0].norm() < 5


def test_choices_that_are_not_there_cost_nothing() -> None:
    mask = torch.tensor([[True, True, False]])
    student = torch.tensor([[0.0, 0.0, 9.0]], requires_grad=True)
    teacher = torch.tensor([[math.log(3.0), 0.0, -5.0]])
    lost = losses.divergence(losses.among(student, mask), losses.among(teacher, mask), 1.0)
    assert lost.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-5)
    (grad,) = torch.autograd.grad(lost.sum(), student)
    assert grad[0, 2] == 0 and torch.isfinite(grad).all()


def test_squares_and_angles_by_hand() -> None:
    ours, theirs = torch.tensor([[1.0, 3.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    assert losses.squares(ours, theirs).tolist() == [2.5, 2.5]
    assert losses.angles(ours, theirs).tolist() == pytest.approx([1 - 3 / 10**0.5, 1.0])


def test_scores_by_hand() -> None:
    """Two heads, two rows, three keys of which the third is padding; the first row sees the first
    key alone, so the second counts as equal.
    """
    ours = torch.zeros(1, 2, 2, 3)
    theirs = torch.tensor([[[[2.0, 9, 9], [1, 3, 9]], [[0.0, 9, 9], [1, 1, 9]]]])
    seen = torch.tensor([[[True, False, False], [True, True, False]]])
    error = losses.score_squares(ours, theirs, seen)
    assert error.tolist() == [[(4 + 0) / 2 / 2, ((1 + 9) / 2 + (1 + 1) / 2) / 2]]


def test_scores_of_other_shapes_are_refused() -> None:
    """One head beside two would be taken for both of them."""
    seen = torch.ones(1, 2, 3, dtype=torch.bool)
    for heads, keys in ((1, 3), (3, 3), (2, 1)):
        with refuses(ConfigError, "attention = 0"):
            losses.score_squares(torch.zeros(1, heads, 2, keys), torch.zeros(1, 2, 2, 3), seen)


def outputs() -> dict[str, tuple[Any, Any]]:
    """Of a student 4 wide and of a teacher 6 wide, over 11 words."""
    torch.manual_seed(0)

    def plain(width: int) -> Output:
        transform = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        weight = nn.Parameter(torch.randn(11, width))
        return Output(weight, bias="learned", transform=transform).double()

    def adaptive(width: int) -> AdaptiveOutput:
        output = AdaptiveOutput(AdaptiveEmbedding(11, (4, 7), width, 2, width), width, False)
        for parameter in output.parameters():
            nn.init.normal_(parameter)
        return output.double()

    return {"plain": (plain(4), plain(6)), "adaptive": (adaptive(4), adaptive(6))}


@pytest.mark.parametrize("kind", ["plain", "adaptive"])
def test_words_in_chunks_are_the_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sum and gradients, and never more than a few rows of logits."""
    student, teacher = outputs()[kind]
    rows = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    hidden, shares = torch.randn(9, 6, dtype=torch.float64), torch.rand(9, dtype=torch.float64)
    weights = [rows, *student.parameters()]
    whole = (losses.divergence(student(rows), teacher(hidden), 2.0) * shares).sum()
    wanted = torch.autograd.grad(whole, weights, allow_unused=True)
    monkeypatch.setattr(losses, "CHUNK", 2 * 11 * losses.ALIVE)
    sizes = []
    student.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    divergence = losses.word_divergence(student, teacher, (rows, hidden), shares, 2.0)
    torch.testing.assert_close(divergence, whole)
    assert sizes == [2, 2, 2, 2, 1]
    for mine, want in zip(torch.autograd.grad(3 * divergence, weights), wanted, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if want is None else 3 * want)
    with torch.no_grad():
        torch.testing.assert_close(
            losses.word_divergence(student, teacher, (rows, hidden), shares, 2.0), whole
        )
