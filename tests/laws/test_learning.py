"""A step follows from weights, data and seed, may be taken in parts, and reaches every weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.models import output
from regard.models.state import State
from regard.models.transformer_xl import TransformerXL
from regard.training.optimizer import NAMES, optimizer
from tests.laws.zoo import ZOO, Specimen, Text, close, collate, few

each = pytest.mark.parametrize("specimen", ZOO, ids=str)


def gradients(model: Any) -> dict[str, Tensor | None]:
    return {name: p.grad for name, p in model.named_parameters()}


def texts_of(specimen: Specimen, lengths: list[int], seed: int) -> list[Text]:
    return [specimen.text(length, seed + i) for i, length in enumerate(lengths)]


@each
@few(4)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=5),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([2**24, 100]),
    st.integers(0, 99),
)
def test_accumulated_steps_are_the_whole_step(
    specimen: Specimen, lengths: list[int], size: int, left: bool, chunk: int, seed: int
) -> None:
    """Batches of `size` texts, each padded to its own longest, with as many tokens as they hold."""
    model, texts = specimen.fresh(torch.float64), texts_of(specimen, lengths, seed)
    whole = specimen.loss(model, collate(texts, left))
    whole.backward()
    together = gradients(model)
    model.zero_grad()
    total = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "CHUNK", chunk)  # logits at a time
        for start in range(0, len(texts), size):
            part = specimen.loss(model, collate(texts[start : start + size], left))
            part.backward()
            total += part.item()
    assert total == pytest.approx(whole.item(), rel=1e-12)
    for name, slope in gradients(model).items():
        if slope is not None:
            close(slope, together[name], 1e-10, name)


@each
@few(2)
@given(st.integers(0, 2**40), st.integers(3, 9))
def test_a_step_is_a_function_of_its_seed(specimen: Specimen, seed: int, length: int) -> None:
    model = specimen.fresh().train()
    batch = collate(texts_of(specimen, [length, 2], seed % 97))

    def step(seed: int) -> tuple[Tensor, dict[str, Tensor | None]]:
        model.zero_grad()
        torch.manual_seed(seed)
        loss = specimen.loss(model, batch)
        loss.backward()
        return loss.detach(), gradients(model)

    (first, slopes), (again, same), (other, _) = step(seed), step(seed), step(seed + 1)
    assert torch.equal(first, again)
    for name, slope in slopes.items():
        assert slope is None or torch.equal(slope, same[name]), name
    assert first != other, "dropout does something"
    assert specimen.loss(model.eval(), batch) == specimen.loss(model, batch)


# Weights that this specimen's texts cannot reach, by how their names end.
IDLE = {
    "xlnet": ("query",),  # no row asks
    "xlnet-ordered": ("query",),
    "xlnet-left": ("query", "score.s", "score.segment"),  # no segments are told
    "longformer": ("wide.project.weight", "wide.project.bias"),  # no token is global
}


@each
def test_every_weight_is_reached(specimen: Specimen) -> None:
    model = specimen.fresh().train()
    torch.manual_seed(0)
    specimen.loss(model, collate(texts_of(specimen, [9, 8, 7, 9, 8], 3))).backward()
    slopes = gradients(model)
    assert all(slope is None or slope.isfinite().all() for slope in slopes.values())
    idle = {name for name, slope in slopes.items() if slope is None or not slope.any()}
    expected = {name for name in slopes if name.endswith(IDLE.get(specimen.name, ()))}
    assert idle == expected if specimen.name in IDLE else not idle, idle


@each
def test_a_step_downhill_goes_down(specimen: Specimen) -> None:
    """Not only the direction: the slope along the gradient is the gradient's own square."""
    model = specimen.fresh(torch.float64)
    batch = collate(texts_of(specimen, [6, 4], 5))
    specimen.loss(model, batch).backward()
    weights = [p for p in model.parameters() if p.grad is not None]
    square = sum(p.grad.square().sum() for p in weights).item()
    size, losses = 1e-5 / square**0.5, []
    with torch.no_grad():
        for sign in (1, -2):
            for p in weights:
                p.add_(p.grad, alpha=sign * size)
            losses.append(specimen.loss(model, batch).item())
    assert (losses[0] - losses[1]) / (2 * size) == pytest.approx(square, rel=1e-4)


@each
@pytest.mark.parametrize("name", NAMES)
def test_a_first_step_of_every_optimizer_goes_down(specimen: Specimen, name: str) -> None:
    """It moves every weight that has a gradient, and no other."""
    model = specimen.fresh(torch.float64)
    batch = collate(texts_of(specimen, [6, 4], 5))
    before = specimen.loss(model, batch)
    before.backward()
    weights = {key: p.detach().clone() for key, p in model.named_parameters()}
    optimizer(name, model, lr=1e-6, eps=1e-30 if name == "adafactor" else 1e-12).step()
    assert specimen.loss(model, batch).item() < before.item()
    for key, p in model.named_parameters():
        reached = p.grad is not None and bool(p.grad.any())
        assert torch.equal(p, weights[key]) is not reached, key


REMEMBERING = [s for s in ZOO if "mem_len" in s.config.__dataclass_fields__ and s.stepwise]


@pytest.mark.parametrize("specimen", REMEMBERING, ids=str)
def test_what_is_remembered_does_not_learn(specimen: Specimen) -> None:
    """Each segment learns as if its memory had been given: no gradient, and no graph is kept."""
    model, state = specimen.fresh(), State()
    tokens = torch.arange(12)[None] * 5 % specimen.config.vocab_size
    for start in range(0, 12, 4):
        copied = State(hidden=[h.clone() for h in state.hidden], length=state.length)
        slopes = []
        for memory in (copied, state):
            model.zero_grad()
            hidden = model(tokens[:, start : start + 4], state=memory)
            model.output.surprisal(hidden[0, :-1], tokens[0, start + 1 : start + 4]).backward()
            slopes.append(gradients(model))
        for name, slope in slopes[0].items():
            assert slope is None or torch.equal(slope, slopes[1][name]), name
    assert not any(h.requires_grad for h in state.hidden)


def test_a_memory_of_zeros_is_attended_to() -> None:
    specimen = next(s for s in ZOO if s.kind is TransformerXL)
    model, tokens = specimen.fresh(), torch.arange(6)[None]
    first = model(tokens, state=model.zeros(1))
    assert first.isfinite().all() and not torch.allclose(first, model(tokens))
