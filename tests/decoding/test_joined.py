"""Continuous batching: who else is in the batch, and who comes and goes, changes no text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.api import LoadedModel
from regard.attention.native.decode import step_kernel
from regard.core.errors import InputError
from regard.decoding import generate
from regard.decoding.batcher import Batcher, Continuation, Ended, NewToken
from regard.decoding.generation import Decoder
from regard.decoding.generation_config import options_for
from regard.decoding.joined import HiddenTable, LearnedPositionsTable, RowTable, table_for
from regard.models.extensions import extend
from regard.models.state import compact_caches
from regard.models.step import Stepper, stepper_for
from tests.decoding.small import ALL, SHORT, draw, speaker, talking
from tests.laws.zoo import Specimen, model_of

NATIVE = ("gpt", "gpt-short", "llama", "t5", "transformer")
RELATIVE = ("transformer-xl", "transformer-xl-pre", "transformer-xl-same")
COMPACT = NATIVE + RELATIVE
ENDLESS: dict[str, Any] = {"eos_ids": []}
REMEMBERING: dict[str, Callable[[Any], int]] = {  # the most columns that a model remembers
    "transformer-xl": lambda config: config.mem_len,
    "transformer-xl-same": lambda config: config.mem_len,
    "xlnet": lambda config: 10**6,
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.2, "seed": 3},
    {"num_beams": 3, "num_return_sequences": 2},
    {"num_samples": 3, "top_k": 9, "repetition_penalty": 1.3, "seed": 5},
    {"top_p": 0.8, "no_repeat_ngram_size": 2, "min_new_tokens": 4, "eos_ids": [4, 5, 6]},
    {"num_beams": 2, "length_penalty": 0.0, "eos_ids": [7, 8, 9, 10]},
]


def load_of(loaded: LoadedModel, seed: int, count: int = 14) -> list[tuple[list[int], dict]]:
    dice = random.Random(seed)
    return [
        (
            draw(dice.randint(1, 10), dice.randint(0, 99)),
            dice.choice(OPTIONS) | {"max_new_tokens": dice.randint(1, 16), "suppress_tokens": [3]},
        )
        for _ in range(count)
    ]


def continued(loaded: LoadedModel, prompt: Any, options: dict[str, Any]) -> Continuation:
    decoder = Decoder(loaded, options_for(loaded, options))
    return Continuation(decoder, decoder.prompts.encode(prompt))


def run(batcher: Batcher, arriving: list[Continuation], seed: int) -> None:
    """Lets prompts arrive at random moments, and some of them leave before their end."""
    dice = random.Random(seed)
    waiting: list[Continuation] = []
    while arriving or waiting or batcher.running:
        for _ in range(dice.choice([0, 0, 1, 2, 4])):
            if arriving:
                waiting.append(arriving.pop(0))
        if chosen := batcher.fitting(waiting):
            batcher.join(chosen)
            del waiting[: len(chosen)]
        batcher.step()
        assert sum(each.rows for each in batcher.running) <= batcher.most


def texts_of(continuation: Continuation) -> list[Any]:
    ended = [event for event in continuation.events if isinstance(event, Ended)]
    return [event.generation for event in sorted(ended, key=lambda event: event.index)]


def check_joined(loaded: LoadedModel, seed: int) -> None:
    work = load_of(loaded, seed)
    continuations = [continued(loaded, *each) for each in work]
    run(Batcher(loaded.model, 9), list(continuations), seed)
    for (prompt, options), each in zip(work, continuations, strict=True):
        (alone,) = generate(loaded, prompt, **options)
        assert [x.ids for x in texts_of(each)] == [x.ids for x in alone]
        scores = [x.score for x in alone]
        assert [x.score for x in texts_of(each)] == pytest.approx(scores)


@pytest.mark.parametrize("form", ["bf16", "int8"])
@pytest.mark.parametrize("specimen", [each for each in ALL if str(each) in COMPACT], ids=str)
def test_compact_caches_are_joined(specimen: Specimen, form: str) -> None:
    loaded = LoadedModel(specimen.fresh(torch.float64, 0).eval())  # its caches change
    compact_caches(loaded.model, form)
    check_joined(loaded, 1)


@pytest.mark.parametrize("specimen", ALL, ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_text_is_the_same_whatever_else_is_written(specimen: Specimen, seed: int) -> None:
    check_joined(speaker(specimen), seed)


@pytest.mark.parametrize("specimen", [ALL[0], SHORT], ids=str)
def test_prompts_that_leave_disturb_nobody(specimen: Specimen) -> None:
    loaded = speaker(specimen)
    work = load_of(loaded, 7, 6)
    continuations = [continued(loaded, *each) for each in work]
    batcher = Batcher(loaded.model, 99)
    for each in continuations:
        batcher.join([each])
        batcher.step()
    gone = [each for each in continuations if each in batcher.running][::2]
    for each in gone:
        batcher.leave(each)
    while batcher.running:
        batcher.step()
    for (prompt, options), each in zip(work, continuations, strict=True):
        if each not in gone:
            (alone,) = generate(loaded, prompt, **options)
            assert [x.ids for x in texts_of(each)] == [x.ids for x in alone]


def test_what_fails_fails_alone() -> None:
    loaded = speaker(SHORT)
    words = loaded.config.vocab_size
    bad = continued(loaded, [1, 2], {"suppress_tokens": list(range(words))})
    good = continued(loaded, [1, 2], {"max_new_tokens": 5})
    run(Batcher(loaded.model, 4), [bad, good], 0)
    assert isinstance(bad.error, InputError) and good.error is None
    assert texts_of(good)[0].ids == generate(loaded, [1, 2], max_new_tokens=5)[0][0].ids


def test_what_cannot_begin_leaves_no_row() -> None:
    """Pieces of text need a tokenizer, which this model does not have."""
    loaded = speaker(SHORT)
    bad, good = (continued(loaded, [1, 2], {"max_new_tokens": 5}) for _ in range(2))
    bad.streams = True
    batcher = Batcher(loaded.model, 4)
    batcher.join([bad, good])
    assert isinstance(bad.error, InputError) and batcher.running == [good]
    assert len(batcher.table.slots) == 1
    while batcher.running:
        batcher.step()
    assert texts_of(good)[0].ids == generate(loaded, [1, 2], max_new_tokens=5)[0][0].ids


def test_pieces_and_alternatives() -> None:
    loaded = talking()
    options = {"max_new_tokens": 12, "num_samples": 2, "temperature": 1.0, "seed": 4,
               "top_logprobs": 3}  # fmt: skip
    whole = generate(loaded, "The cat", **options)[0]
    several = continued(loaded, "The cat", options)
    several.streams = True
    run(Batcher(loaded.model, 4), [several], 0)
    for index, text in enumerate(whole):
        own = [event for event in several.events if event.index == index]
        assert "".join(event.piece for event in own) == text.text
        tokens = [event for event in own if isinstance(event, NewToken)]
        assert [event.token for event in tokens] == text.ids
        assert [[i for i, _ in event.alternatives] for event in tokens] == [
            [i for i, _ in best] for best in text.top_logprobs
        ]
        for event in tokens:
            values = [value for _, value in event.alternatives]
            assert len(values) == 3 and values == sorted(values, reverse=True)
            known = dict(event.alternatives)
            assert event.logprob <= values[0] + 1e-9
            assert known.get(event.token, event.logprob) == pytest.approx(event.logprob)


def test_a_pointer_is_not_joined() -> None:
    model = model_of(SHORT, torch.float64)
    assert type(table_for(model, 3)) is LearnedPositionsTable
    fresh = SHORT.fresh(torch.float64, 0)
    extend(fresh, "pointer", {})
    assert type(table_for(fresh, 3)) is RowTable
    loaded = LoadedModel(fresh)
    work = load_of(loaded, 3, 6)
    continuations = [continued(loaded, *each) for each in work]
    run(Batcher(fresh, 9), list(continuations), 3)
    for (prompt, options), each in zip(work, continuations, strict=True):
        assert [x.ids for x in texts_of(each)] == [
            x.ids for x in generate(loaded, prompt, **options)[0]
        ]


def test_a_table_stays_as_large_as_its_rows_need() -> None:
    """The columns of a cache are used again, however many prompts come and go."""
    loaded = speaker(SHORT)
    batcher = Batcher(loaded.model, 4)
    options = {"max_new_tokens": 9, "eos_ids": []}
    arriving = [continued(loaded, draw(1 + i % 5, i), options) for i in range(40)]
    run(batcher, arriving, 5)
    rows, columns = batcher.table.cache.shape
    assert rows <= 4 and columns <= 2 * loaded.config.context + 16


@pytest.mark.parametrize("specimen", [x for x in ALL if x.name in REMEMBERING], ids=str)
def test_hidden_states_stay_as_many_as_the_rows_need(specimen: Specimen) -> None:
    """Texts that overlap without end never empty the table; what the gone ones filled goes."""
    loaded = speaker(specimen)
    most = REMEMBERING[specimen.name](loaded.config)
    batcher, running = Batcher(loaded.model, 4), []
    for number in range(30):
        running.append(
            continued(loaded, draw(1 + 3 * number % 7, number), {"max_new_tokens": 8, **ENDLESS})
        )
        batcher.join(running[-1:])
        for _ in range(5):
            batcher.step()
            lengths = [slot.rows.length for slot in batcher.table.slots]
            columns = batcher.table.reader.state.remembered()[0].size(1)
            assert lengths and columns == min(most, max(lengths))
    while batcher.running:
        batcher.step()
    for number, each in enumerate(running):
        (alone,) = generate(loaded, each.prompt, max_new_tokens=8, **ENDLESS)
        assert [x.ids for x in texts_of(each)] == [x.ids for x in alone], number


def test_hidden_states_are_joined() -> None:
    kinds = {specimen.name: type(table_for(speaker(specimen).model, 2)) for specimen in ALL}
    assert HiddenTable in kinds.values() and LearnedPositionsTable in kinds.values()


def test_a_quantized_model_takes_its_fast_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first rows have left, and the caches begin at a later column."""
    if step_kernel() is None:
        pytest.skip("there is no native code here")
    steps: list[int] = []
    read = Stepper.read
    monkeypatch.setattr(
        Stepper, "read", lambda self, x, *more: steps.append(len(x)) or read(self, x, *more)
    )
    model = extend(SHORT.fresh(torch.float32, 0).eval(), "int8", {"kind": "weight"})
    loaded = LoadedModel(model)
    prompts = [draw(8, 1), draw(2, 2), draw(5, 3)]
    most = [2, 9, 6]  # the longest row leaves first
    work = [
        continued(loaded, prompt, {"max_new_tokens": count, "eos_ids": []})
        for prompt, count in zip(prompts, most, strict=True)
    ]
    batcher = Batcher(model, 4)
    for each in work:
        batcher.join([each])
    reads = 0
    while batcher.running:
        batcher.step()
        reads += bool(batcher.running)
    assert batcher.table.starts == [] and len(steps) == reads
    for prompt, count, each in zip(prompts, most, work, strict=True):
        (alone,) = generate(loaded, prompt, max_new_tokens=count, eos_ids=[])
        assert [x.ids for x in texts_of(each)] == [x.ids for x in alone]


@pytest.mark.skipif(step_kernel() is None, reason="there is no native code here")
@pytest.mark.parametrize("specimen", [x for x in ALL if x.name in NATIVE + RELATIVE], ids=str)
def test_native_steps_are_joined(specimen: Specimen, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 32 bits, rows that come and go are read natively, and write what each writes alone."""
    steps: list[int] = []
    loaded = LoadedModel(specimen.fresh(torch.float32, 0).eval())
    kind = type(stepper_for(loaded.model))
    read = kind.read
    monkeypatch.setattr(
        kind, "read", lambda self, x, *more: steps.append(len(x)) or read(self, x, *more)
    )
    batcher, prompts = Batcher(loaded.model, 6), [draw(7, 1), draw(2, 2), draw(5, 3)]
    options: list[dict[str, Any]] = [{"max_new_tokens": 4}, {"num_beams": 2}, {"num_samples": 2}]
    options = [{"max_new_tokens": 12, "eos_ids": []} | each for each in options]
    work = [continued(loaded, *pair) for pair in zip(prompts, options, strict=True)]
    for each in work:
        batcher.join([each])
        batcher.step()
    while batcher.running:
        batcher.step()
    assert max(steps) == 5
    for prompt, chosen, each in zip(prompts, options, work, strict=True):
        (alone,) = generate(loaded, prompt, **chosen)
        assert [x.ids for x in texts_of(each)] == [x.ids for x in alone]
