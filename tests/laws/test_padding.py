"""Padding never matters, on either side and however much; nor does who else is in the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.zoo import CLOSE, ZOO, Specimen, close, collate, few, model_of

each = pytest.mark.parametrize("specimen", ZOO, ids=str)
LENGTHS = st.lists(st.integers(1, 11), min_size=1, max_size=3)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@few(5)
@given(LENGTHS, st.booleans(), st.integers(0, 5), st.integers(0, 99))
def test_a_padded_text_in_company_is_the_text_alone(
    specimen: Specimen, dtype: torch.dtype, lengths: list[int], left: bool, extra: int, seed: int
) -> None:
    model = model_of(specimen, dtype)
    texts = [specimen.text(length, seed + i) for i, length in enumerate(lengths)]
    batch = collate(texts, left, extra)
    hidden = model(**batch.inputs)
    assert hidden.dtype == dtype and hidden.isfinite().all(), "padded rows are finite too"
    for i, (text, rows) in enumerate(zip(texts, batch.of(hidden), strict=True)):
        alone = model(**collate([text], marks=False).inputs)[0]
        close(rows, alone, CLOSE[dtype], f"text {i} of {len(texts)}")


@each
@few(2)
@given(LENGTHS, st.booleans(), st.integers(1, 5), st.integers(0, 99))
def test_padding_does_not_change_what_is_learnt(
    specimen: Specimen, lengths: list[int], left: bool, extra: int, seed: int
) -> None:
    model = specimen.fresh(torch.float64)
    texts = [specimen.text(length, seed + i) for i, length in enumerate(lengths)]
    sum(specimen.loss(model, collate([text], marks=False)) for text in texts).backward()
    alone = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    specimen.loss(model, collate(texts, left, extra)).backward()
    for name, parameter in model.named_parameters():
        if alone[name] is not None:
            close(parameter.grad, alone[name], 1e-10, name)


@each
def test_padding_alone_gives_no_nan(specimen: Specimen) -> None:
    """A batch may hold a row without a single real token: the last of a sharded epoch does."""
    model = specimen.fresh()
    batch = collate([specimen.text(5, 0), specimen.text(3, 1)])
    for name in ("attention_mask", "decoder_attention_mask"):
        if name in batch.inputs:
            batch.inputs[name][1] = False
    hidden = model(**batch.inputs)
    assert hidden.isfinite().all()
    batch.of(hidden)[0].sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@each
def test_a_batch_may_be_empty(specimen: Specimen) -> None:
    model = model_of(specimen)
    for marks in (False, True):
        inputs = collate([specimen.text(5, 0)], marks=marks).inputs
        full = model(**inputs)
        empty = model(**{name: value[:0] for name, value in inputs.items()})
        assert empty.shape == (0, *full.shape[1:])
        assert model.logits(empty).shape == (0, full.size(1), specimen.config.vocab_size)


@each
def test_no_targets_no_surprisal(specimen: Specimen) -> None:
    model = specimen.fresh()
    hidden = model(**collate([specimen.text(5, 0)]).inputs)
    nothing = model.output.surprisal(hidden[0, :0], torch.zeros(0, dtype=torch.long))
    assert nothing.item() == 0.0
    nothing.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


@each
@few(3)
@given(st.integers(0, 99), st.booleans())
def test_one_token_is_enough(specimen: Specimen, seed: int, marks: bool) -> None:
    text = specimen.text(1, seed * specimen.stretch + specimen.stretch - 1)
    assert text[specimen.main].numel() == 1
    hidden = model_of(specimen)(**collate([text], marks=marks).inputs)
    assert hidden.shape[:2] == (1, 1) and hidden.isfinite().all()


def test_cross_attention_must_not_see_the_padding_of_the_source() -> None:
    """If it does, a translation depends on the longest sentence of its batch."""
    specimen = next(one for one in ZOO if one.name == "transformer")
    model = model_of(specimen, torch.float64)
    texts = sorted((specimen.text(4, seed) for seed in range(4)), key=lambda t: len(t["input_ids"]))
    longest = len(texts[-1]["input_ids"])
    inputs = collate(texts).inputs
    source = model.project_source(model.encode(inputs["input_ids"], inputs["attention_mask"]))
    hidden, seen = (model.decode(inputs["decoder_input_ids"], source, mask)
                    for mask in (inputs["attention_mask"], None))  # fmt: skip
    for text, right, wrong in zip(texts, hidden, seen, strict=True):
        alone = model(**collate([text], marks=False).inputs)[0]
        close(right, alone, CLOSE[torch.float64])
        assert torch.allclose(wrong, alone) == (len(text["input_ids"]) == longest)
    assert len(texts[0]["input_ids"]) < longest
