"""What a row may not see changes nothing in it; what it may see does. Looking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.attention import pattern
from regard.attention.attention import Attention
from regard.attention.pattern import Pattern
from regard.attention.position import Distances, View, sinusoids
from regard.core.errors import InputError
from regard.models.longformer_characters import CharacterLongformer
from regard.models.lstm import LSTM
from tests.laws.zoo import (
    ATTENTIVE,
    CLOSE,
    STEPWISE,
    VOCABULARY,
    ZOO,
    Reader,
    Specimen,
    close,
    collate,
    few,
    model_of,
)
from tests.refusals import refuses

each = pytest.mark.parametrize("specimen", ZOO, ids=str)
attentive = pytest.mark.parametrize("specimen", ATTENTIVE, ids=str)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@few(3)
@given(st.integers(2, 8), st.integers(0, 99))
def test_only_what_is_seen_can_change_a_row(
    specimen: Specimen, dtype: torch.dtype, length: int, seed: int
) -> None:
    """Copies of a text, each with another token changed: a row blind to it stays, to the bit."""
    model, text = model_of(specimen, dtype), specimen.text(length, seed)
    for name, seen in specimen.sees(text).items():
        count = seen.size(1)
        inputs = collate([text] * count, marks=False).inputs
        before = model(**inputs)
        changed = inputs[name].clone()
        changed.diagonal().add_(7).remainder_(VOCABULARY)
        moved = (model(**inputs | {name: changed}) != before).any(-1).T  # [row, token]
        assert not moved[~seen].any(), f"{name} {(moved & ~seen).nonzero().tolist()} leak"
        assert (moved.any(0) == seen.any(0)).all(), f"{name}: seen, and yet nothing changes"


@each
@few(3)
@given(st.integers(2, 8), st.integers(0, 99))
def test_gradients_reach_what_is_seen_and_nothing_else(
    specimen: Specimen, length: int, seed: int
) -> None:
    """Copies of a text, a different row of each is asked: on which vectors does it depend?"""
    model, text = specimen.fresh(torch.float64), specimen.text(length, seed)
    for name, seen in specimen.sees(text).items():
        rows = seen.size(0)
        with looked_up(model, specimen) as vectors:
            hidden = model(**collate([text] * rows, marks=False).inputs)
        vector = vectors[name]
        loss = (hidden.diagonal().T * torch.linspace(1.0, 2.0, hidden.size(2))).sum()
        (slope,) = torch.autograd.grad(loss, vector)
        reached = (slope != 0.0).any(-1)
        assert torch.equal(reached, seen), f"{name} {(reached ^ seen).nonzero().tolist()}"


@each
@few(2)
@given(st.integers(2, 8), st.booleans(), st.integers(0, 99))
def test_no_gradient_reaches_padding(
    specimen: Specimen, length: int, left: bool, seed: int
) -> None:
    model = specimen.fresh()
    batch = collate([specimen.text(length, seed), specimen.text(2, seed + 1)], left, extra=3)
    with looked_up(model, specimen) as vectors:
        hidden = model(**batch.inputs)
    torch.cat(batch.of(hidden)).square().sum().backward()
    for name, mark in (
        ("input_ids", "attention_mask"),
        ("decoder_input_ids", "decoder_attention_mask"),
    ):
        if name in vectors:
            slope = vectors[name].grad
            assert slope.isfinite().all() and not slope[~batch.inputs[mark]].any()


@contextmanager
def looked_up(model: Any, specimen: Specimen) -> Iterator[dict[str, Tensor]]:
    """The vectors of the tokens, by the name of the field they come from, as they are looked up."""
    vectors: dict[str, Tensor] = {}
    waiting = iter(["input_ids", "decoder_input_ids"] if specimen.pair else ["input_ids"])

    def note(module: Any, inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        vectors[next(waiting)] = output

    handle = model.get_submodule(specimen.embedding).register_forward_hook(note)
    try:
        yield vectors
    finally:
        handle.remove()


@attentive
@pytest.mark.parametrize("learning", [False, True], ids=["reading", "learning"])
@few(6)
@given(
    st.integers(1, 10),
    st.booleans(),
    st.integers(0, 4),
    st.integers(0, 99),
    st.sampled_from([3, 128]),
)
def test_every_pattern_is_its_dense_reference(
    specimen: Specimen, learning: bool, length: int, left: bool, extra: int, seed: int, block: int
) -> None:
    model = specimen.fresh() if learning else model_of(specimen)
    batch = collate([specimen.text(length, seed), specimen.text(3, seed + 1)], left, extra)
    inputs = batch.inputs if extra else collate([specimen.text(length, seed)], marks=False).inputs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pattern, "CAUSAL_BLOCK", block)
        shortest = model(**inputs)
    with dense(model):
        reference = model(**inputs)
    close(shortest, reference, CLOSE[torch.float32])
    if learning:
        direction = torch.linspace(-1.0, 1.0, shortest.numel()).view_as(shortest)
        weights = [p for p in model.parameters() if p.requires_grad]
        slopes, wanted = (
            torch.autograd.grad(y, weights, direction, allow_unused=True)
            for y in (shortest, reference)
        )
        for (name, _), a, b in zip(model.named_parameters(), slopes, wanted, strict=True):
            assert (a is None) == (b is None), name
            if a is not None:
                close(a, b, 2e-4, name)


@pytest.mark.parametrize("specimen", [s for s in STEPWISE if s in ATTENTIVE], ids=str)
@few(3)
@given(st.integers(2, 8), st.integers(1, 3), st.integers(0, 99))
def test_every_pattern_of_a_later_piece_is_its_dense_reference(
    specimen: Specimen, length: int, piece: int, seed: int
) -> None:
    model = model_of(specimen)
    texts = [specimen.text(length, seed), specimen.text(length, seed + 1)]
    inputs = collate(texts, left=True).inputs
    width = inputs[specimen.main].size(1)

    def last() -> Tensor:
        reader = Reader(model, inputs, width)
        reader.read(0, max(1, width - piece))
        return reader.read(max(1, width - piece), width)

    fast = last()
    with dense(model):
        close(fast, last(), CLOSE[torch.float32])


class Dense(Pattern):
    """Another pattern's predicate with the kernel that knows nothing but the predicate."""

    def __init__(self, inner: Pattern) -> None:
        self.visible = inner.visible  # type: ignore[method-assign]


@contextmanager
def dense(model: Any) -> Iterator[None]:
    """Every attention from the whole table of who sees whom; biases are then laid out whole too."""
    with pytest.MonkeyPatch.context() as patch:
        for part in model.modules():
            if isinstance(part, Attention):
                patch.setattr(part, "kernel", Pattern.attend)
        if isinstance(model, CharacterLongformer):
            own = model.view

            def view(x: Tensor, *kind: Any) -> View:
                length = x.size(1)
                table = sinusoids(torch.arange(length - 1, -2, -1), x.size(2)).to(x.dtype)[None]
                whole = Dense(own(x, *kind).pattern)
                return View(whole, distances=Distances(table, length, length))

            patch.setattr(model, "view", view)
        yield


@attentive
@few(2)
@given(st.integers(1, 8), st.booleans(), st.integers(0, 99))
def test_looking_changes_nothing(
    specimen: Specimen, length: int, training: bool, seed: int
) -> None:
    model = specimen.fresh().train(training)
    inputs = collate([specimen.text(length, seed), specimen.text(2, seed + 1)], extra=2).inputs
    torch.manual_seed(seed)
    unseen = model(**inputs)
    torch.manual_seed(seed)
    with regard.record(model) as seen:
        watched = model(**inputs)
    assert torch.equal(watched, unseen)
    torch.manual_seed(seed)
    assert torch.equal(model(**inputs), unseen), "and leaves nothing behind"
    named = {name for name, part in model.named_modules() if isinstance(part, Attention)}
    wide = inputs.get("global_tokens")
    if wide is None or not (wide & inputs["attention_mask"]).any():
        named = {name for name in named if not name.endswith(".wide")}
    assert {one.name for one in seen} == named
    for one in seen:
        total = one.weights.sum(-1)
        ones = torch.isclose(total, torch.ones(()), atol=1e-5)
        assert (ones | (total == 0.0)).all(), "a row's weights are shares, or it sees nothing"
        table = one.pattern.dense(*one.queries.shape[:1], *one.weights.shape[2:], total.device)
        assert not one.weights.masked_select(~table[:, None]).any(), (
            "and none go where it cannot see"
        )


def test_a_model_without_attention_cannot_be_looked_at() -> None:
    lstm = next(specimen for specimen in ZOO if specimen.kind is LSTM)
    with refuses(InputError, "LSTM"), regard.record(model_of(lstm)):
        pass


@few(4)
@given(st.integers(1, 8), st.integers(0, 99))
def test_a_row_that_sees_nothing_is_zero_and_finite(length: int, seed: int) -> None:
    """XLNet's first question, without a memory: it knows its place and nothing else."""
    specimen = next(s for s in ZOO if s.name == "xlnet-asking")
    model = specimen.fresh()
    tokens = specimen.text(length, seed)["input_ids"][None]
    order = torch.arange(length)[None]
    with regard.record(model) as seen:
        hidden = model(tokens, order=order, targets=torch.tensor([[0, length - 1]]))
    assert hidden.isfinite().all()
    for one in seen:
        blind = one.weights[:, :, length]  # the first row that asks
        assert not blind.any() and not one.output[:, :, length].any()
    hidden[0, 0].sum().backward()
    slopes = {name: p.grad for name, p in model.named_parameters()}
    assert all(slope is None or slope.isfinite().all() for slope in slopes.values())
    assert not slopes["tokens.weight"].any(), "nothing was read, so no word can matter"
    assert slopes["query"].any()
    assert not any(slopes[f"blocks.{i}.attention.layer.project.weight"].any() for i in range(2))
