"""Read piece by piece or at once: the same. What was read may be remembered, reordered and cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.core.errors import InputError
from regard.models.base import EncoderDecoder
from regard.models.gpt import GPT
from regard.models.lstm import LSTM
from regard.models.state import State
from regard.models.t5 import T5
from regard.models.transformer import Transformer
from tests.laws.zoo import (
    CLOSE,
    STEPWISE,
    XL,
    XLNET,
    ZOO,
    Reader,
    Specimen,
    close,
    collate,
    few,
    model_of,
)
from tests.refusals import refuses

each = pytest.mark.parametrize("specimen", STEPWISE, ids=str)
both = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
PIECES = st.lists(st.integers(1, 9), min_size=1, max_size=7)  # lengths, to be repeated as needed


def cuts(pieces: list[int], length: int) -> list[tuple[int, int]]:
    edges, turn = [0], 0
    while edges[-1] < length:
        edges.append(min(length, edges[-1] + pieces[turn % len(pieces)]))
        turn += 1
    return list(pairwise(edges))


def in_pieces(
    model: object, inputs: dict[str, Tensor], pieces: list[int], spare: int = 0
) -> Tensor:
    length = inputs["decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"].size(1)
    reader = Reader(model, inputs, length + spare)
    return torch.cat([reader.read(*cut) for cut in cuts(pieces, length)], 1)


@each
@both
@few(6)
@given(PIECES, st.integers(1, 3), st.integers(1, 11), st.integers(0, 4), st.integers(0, 99))
def test_cached_is_uncached(
    specimen: Specimen,
    dtype: torch.dtype,
    pieces: list[int],
    count: int,
    length: int,
    spare: int,
    seed: int,
) -> None:
    model = model_of(specimen, dtype)
    texts = [specimen.text(length, seed) for _ in range(count)]
    inputs = collate(texts, marks=False).inputs
    close(in_pieces(model, inputs, pieces, spare), model(**inputs), CLOSE[dtype])


@each
@both
@few(8)
@given(
    PIECES,
    st.lists(st.integers(1, 9), min_size=2, max_size=3),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 99),
)
def test_cached_is_uncached_beside_padding(
    specimen: Specimen,
    dtype: torch.dtype,
    pieces: list[int],
    lengths: list[int],
    left: bool,
    extra: int,
    seed: int,
) -> None:
    model = model_of(specimen, dtype)
    texts = [specimen.text(length, seed + i) for i, length in enumerate(lengths)]
    batch = collate(texts, left, extra)
    read = in_pieces(model, batch.inputs, pieces)
    for rows, text in zip(batch.of(read), texts, strict=True):
        close(rows, model(**collate([text], marks=False).inputs)[0], CLOSE[dtype])


CACHING = (Transformer, GPT, T5)  # the others remember a number of rows, or all in a vector
COUNTING = [s for s in STEPWISE if s.kind in (Transformer, GPT, LSTM)]


@pytest.mark.parametrize("specimen", COUNTING, ids=str)
@few(5)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=3), st.integers(1, 3), st.integers(0, 99))
def test_padding_between_what_was_read_and_what_follows(
    specimen: Specimen, lengths: list[int], more: int, seed: int
) -> None:
    """Models that number their tokens may go on behind padding on the right. Where distances are
    those of rows (Transformer-XL, XLNet, T5), a text that is to go on has its padding on the left.
    """
    model, name = model_of(specimen), specimen.main
    texts = [specimen.text(length, seed + i) for i, length in enumerate(lengths)]
    inputs = collate(texts).inputs
    width = inputs[name].size(1)
    new = torch.arange(more).expand(len(texts), more)
    for field, value in (
        (name, new),
        ("decoder_attention_mask" if specimen.pair else "attention_mask", new >= 0),
    ):
        inputs[field] = torch.cat([inputs[field], value], 1)
    reader = Reader(model, inputs, width + more)
    reader.read(0, width)
    following = reader.read(width, width + more)
    for rows, text in zip(following, texts, strict=True):
        whole = text | {name: torch.cat([text[name], new[0]])}
        close(rows, model(**collate([whole], marks=False).inputs)[0, -more:], CLOSE[torch.float32])


@each
@few(5)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_beams_may_be_reordered(
    specimen: Specimen, lengths: list[int], choice: list[int], more: int, seed: int
) -> None:
    """After some steps every beam goes on as another's copy, as if it had always been that one."""
    model = model_of(specimen)
    texts = [specimen.text(length, seed + i) for i, length in enumerate(lengths)]
    inputs = collate(texts, left=True).inputs
    name, chosen = specimen.main, torch.tensor(choice) % len(texts)
    width = inputs[name].size(1)
    reader = Reader(model, inputs, width + 2 * more)
    reader.read(0, width)
    ways = [chosen, torch.arange(chosen.numel()).flip(0)]
    for way in ways:
        reader.state.reorder(way)
        inputs = {field: value[way] for field, value in inputs.items()}
        dice = torch.Generator().manual_seed(seed)
        new = torch.randint(specimen.config.vocab_size, (way.numel(), more), generator=dice)
        for field, value in (
            (name, new),
            ("decoder_attention_mask" if specimen.pair else "attention_mask", new >= 0),
        ):
            inputs[field] = torch.cat([inputs[field], value], 1)
        reader.inputs = inputs
        length = inputs[name].size(1)
        steps = torch.cat([reader.read(i, i + 1) for i in range(length - more, length)], 1)
        close(steps, model(**inputs)[:, -more:], CLOSE[torch.float32])


@each
def test_a_cache_in_mixed_precision(specimen: Specimen) -> None:
    model, inputs = model_of(specimen), collate([specimen.text(9, 0)] * 2, marks=False).inputs
    with torch.autocast("cpu", torch.bfloat16):
        close(in_pieces(model, inputs, [3, 1, 2]), model(**inputs), CLOSE[torch.bfloat16])


@pytest.mark.parametrize("specimen", [s for s in STEPWISE if s.kind in CACHING], ids=str)
def test_a_cache_says_when_it_is_full(specimen: Specimen) -> None:
    model, inputs = model_of(specimen), collate([specimen.text(5, 0)], marks=False).inputs
    reader = Reader(model, inputs, 3)
    reader.read(0, 3)
    with refuses(InputError, 3):
        reader.read(3, 4)


REMEMBERING = [s for s in STEPWISE if s.config.__class__ in (type(XL), type(XLNET))]


@pytest.mark.parametrize("specimen", REMEMBERING, ids=str)
@few(5)
@given(PIECES, st.integers(2, 11), st.integers(0, 99))
def test_a_long_memory_is_one_long_pass_in_every_layer(
    specimen: Specimen, pieces: list[int], length: int, seed: int
) -> None:
    model, text = specimen.fresh(), specimen.text(length, seed)
    tokens = collate([text], marks=False).inputs["input_ids"]
    whole, parts = State(), State()
    model(tokens, state=whole)
    for start, end in cuts(pieces, length):
        model(tokens[:, start:end], state=parts)
    assert whole.length == parts.length == length
    for layer, (a, b) in enumerate(zip(parts.hidden, whole.hidden, strict=True)):
        assert not a.requires_grad, "nothing flows back into a memory"
        close(a, b, CLOSE[torch.float32], f"layer {layer}")


def test_every_layer_is_in_the_memory_and_no_more_rows_than_asked() -> None:
    specimen = next(s for s in ZOO if s.name == "transformer-xl")
    model = type(model_of(specimen))(XL.replace(mem_len=5)).initialize().eval()
    state, tokens = State(), torch.arange(12)[None] % 7
    for start in range(0, 12, 3):
        model(tokens[:, start : start + 3], state=state)
        assert [h.shape for h in state.hidden] == [(1, min(5, start + 3), 16)] * XL.layers


def test_no_memory_is_every_segment_for_itself() -> None:
    specimen = next(s for s in ZOO if s.name == "transformer-xl")
    model = type(model_of(specimen))(XL.replace(mem_len=0))
    model.load_state_dict(model_of(specimen).state_dict())
    state, tokens = State(), torch.arange(12)[None] % 7
    for start in range(0, 12, 4):
        piece = tokens[:, start : start + 4]
        close(model.eval()(piece, state=state), model_of(specimen)(piece), CLOSE[torch.float32])


@few(8)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 99),
)
def test_xlnet_segments_are_one_pass_whose_order_goes_on(
    lengths: list[int], asking: bool, padding: int, seed: int
) -> None:
    """What is remembered saw nothing of what came later: in one pass, its ranks are the lower."""
    specimen = next(s for s in ZOO if s.name == "xlnet-asking")
    model, state = model_of(specimen), State()
    dice = torch.Generator().manual_seed(seed)
    segments = []
    for i, length in enumerate(lengths):
        order = torch.stack([torch.randperm(length, generator=dice) for _ in range(2)])
        tokens = torch.randint(specimen.config.vocab_size, (2, length), generator=dice)
        attention_mask = torch.ones(2, length, dtype=torch.bool)
        if i == 0:
            attention_mask[0, : min(padding, length - 1)] = False
        segments.append((tokens, attention_mask, order))
    parts = [
        model(t, attention_mask=r, order=o, targets=at_all(o) if asking else None, state=state)
        for t, r, o in segments
    ]
    starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
    order = torch.cat([o + s for (_, _, o), s in zip(segments, starts, strict=False)], 1)
    tokens, attention_mask = (torch.cat([segment[i] for segment in segments], 1) for i in (0, 1))
    whole = model(
        tokens,
        attention_mask=attention_mask,
        order=order,
        targets=at_all(order) if asking else None,
    )
    close(torch.cat(parts, 1)[attention_mask], whole[attention_mask], CLOSE[torch.float32])


def at_all(order: Tensor) -> Tensor:
    return torch.arange(order.size(1)).expand_as(order)


@few(4)
@given(st.integers(1, 9), st.integers(0, 99))
def test_xlnet_reads_backwards_in_the_second_half_of_a_batch(length: int, seed: int) -> None:
    specimen = next(s for s in ZOO if s.name == "xlnet")
    model = type(model_of(specimen))(XLNET.replace(two_directions=True)).eval()
    model.load_state_dict(model_of(specimen).state_dict())
    text = specimen.text(length, seed)
    pair = [torch.stack([text[name], text[name].flip(0)]) for name in ("input_ids", "segments")]
    forwards, backwards = model(pair[0], segments=pair[1])
    close(backwards.flip(0), forwards, CLOSE[torch.float32])


@pytest.mark.parametrize("specimen", [s for s in ZOO if s.pair], ids=str)
def test_a_source_is_read_once(specimen: Specimen) -> None:
    model = model_of(specimen)
    assert isinstance(model, EncoderDecoder)
    inputs = collate([specimen.text(4, 0)], marks=False).inputs
    reader = Reader(model, inputs, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "encode", None)
        close(reader.read(0, 4), specimen.fresh()(**inputs), CLOSE[torch.float32])
