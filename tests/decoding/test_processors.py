"""Each processor against the one of transformers, on random scores."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation import logits_process as theirs

from regard.decoding import processors as ours
from regard.decoding.options import DecodingOptions
from regard.decoding.processors import DecodedSoFar

WORDS, LENGTH = 700, 40


def scores(seed: int, dtype: torch.dtype = torch.float64, spread: float = 3.0) -> Tensor:
    dice = torch.Generator().manual_seed(seed)
    return (torch.randn(5, WORDS, generator=dice, dtype=torch.float64) * spread).to(dtype)


def past(seed: int, words: int = WORDS, new: int = 7) -> DecodedSoFar:
    dice = torch.Generator().manual_seed(seed + 100)
    return DecodedSoFar(torch.randint(words, (5, LENGTH), generator=dice), None, new)


PAIRS: list[tuple[str, ours.Processor, Any]] = [
    ("temperature", ours.temperature(0.7), theirs.TemperatureLogitsWarper(0.7)),
    ("top_k", ours.top_k(40), theirs.TopKLogitsWarper(40)),
    ("top_k of few", ours.top_k(10_000), theirs.TopKLogitsWarper(10_000)),
    ("top_p", ours.top_p(0.9), theirs.TopPLogitsWarper(0.9)),
    ("top_p small", ours.top_p(0.01), theirs.TopPLogitsWarper(0.01)),
    ("top_p large", ours.top_p(0.9999), theirs.TopPLogitsWarper(0.9999)),
    ("typical", ours.typical(0.9), theirs.TypicalLogitsWarper(0.9)),
    ("typical small", ours.typical(0.2), theirs.TypicalLogitsWarper(0.2)),
    ("repetition", ours.repetition(1.3), theirs.RepetitionPenaltyLogitsProcessor(1.3)),
    ("less than 1", ours.repetition(0.8), theirs.RepetitionPenaltyLogitsProcessor(0.8)),
    ("no_repeat 1", ours.no_repeat(1), theirs.NoRepeatNGramLogitsProcessor(1)),
    ("no_repeat 2", ours.no_repeat(2), theirs.NoRepeatNGramLogitsProcessor(2)),
    ("no_repeat 3", ours.no_repeat(3), theirs.NoRepeatNGramLogitsProcessor(3)),
    ("no_repeat 99", ours.no_repeat(99), theirs.NoRepeatNGramLogitsProcessor(99)),
    ("suppressed", ours.suppressed([3, 5]), theirs.SuppressTokensLogitsProcessor([3, 5])),
    (
        "minimum",
        ours.at_least(9, [1, 4]),
        theirs.MinNewTokensLengthLogitsProcessor(LENGTH - 7, 9, [1, 4]),
    ),
    (
        "minimum reached",
        ours.at_least(7, [1, 4]),
        theirs.MinNewTokensLengthLogitsProcessor(LENGTH - 7, 7, [1, 4]),
    ),
]


@pytest.mark.parametrize("name,mine,their", PAIRS, ids=[name for name, *_ in PAIRS])
@pytest.mark.parametrize("words", [WORDS, 6])
def test_equal_to_transformers(name: str, mine: ours.Processor, their: Any, words: int) -> None:
    """Pasts of many words and of few, where n-grams do come again."""
    for seed in range(4):
        logits, sofar = scores(seed), past(seed, words)
        before = logits.clone()
        processed = mine(logits, sofar)
        expected = their(sofar.tokens, before.clone())
        assert torch.equal(processed.isneginf(), expected.isneginf())
        torch.testing.assert_close(processed, expected, rtol=1e-12, atol=0)
        assert torch.equal(logits, before)


def test_the_chain_is_that_of_transformers() -> None:
    chosen = DecodingOptions.of(
        {"repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "min_new_tokens": 9,
         "temperature": 0.8, "top_k": 50,
         "top_p": 0.8, "typical_p": 0.9}
    )  # fmt: skip
    mine = chosen.processors([1], [3], 100, 9)
    their = LogitsProcessorList(
        [
            theirs.RepetitionPenaltyLogitsProcessor(1.2),
            theirs.NoRepeatNGramLogitsProcessor(2),
            theirs.SuppressTokensLogitsProcessor([3]),
            theirs.MinNewTokensLengthLogitsProcessor(LENGTH - 7, 9, 1),
            theirs.TemperatureLogitsWarper(0.8),
            theirs.TopKLogitsWarper(50),
            theirs.TopPLogitsWarper(0.8),
            theirs.TypicalLogitsWarper(0.9),
        ]
    )
    assert mine is not None
    for seed in range(6):
        logits, sofar = scores(seed), past(seed, 9)
        processed, expected = mine(logits, sofar), their(sofar.tokens, logits.clone())
        torch.testing.assert_close(processed, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("make", [lambda: ours.repetition(1.7), lambda: ours.no_repeat(2)])
def test_padding_is_not_a_past(make: Any) -> None:
    """Unlike in transformers, what stands in padding is neither punished nor forbidden."""
    process, logits, sofar = make(), scores(1), past(1)
    sofar.tokens[sofar.tokens == 2] = 3
    sofar.tokens[:, -1] = 2
    padded = torch.cat([torch.full((5, 9), 2), sofar.tokens], 1)
    attention_mask = torch.arange(9 + LENGTH).expand(5, -1) >= 9
    assert torch.equal(
        process(logits, DecodedSoFar(padded, attention_mask, 7)), process(logits, sofar)
    )


def test_a_nucleus_larger_than_the_shortlist() -> None:
    flat = scores(2, spread=0.01)
    processed, expected = (
        ours.top_p(0.95)(flat, past(1)), theirs.TopPLogitsWarper(0.95)(past(1).tokens, flat)
    )  # fmt: skip
    assert int((~processed.isneginf()).sum(-1).min()) > ours.SHORTLIST[0]
    assert torch.equal(processed, expected)


def test_ties_stay_together() -> None:
    tied = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]])
    for process in (ours.top_k(1), ours.top_p(0.1)):
        assert process(tied, past(1)).tolist() == [[-math.inf, 2.0, 2.0, 2.0, -math.inf]]
