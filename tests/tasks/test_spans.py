"""Answers from scores: by hand, against enumeration, and against the official threshold rule."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.data.corpus import Special
from regard.data.examples import AnswerSpan, Question
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_classes import bert_pieces
from regard.data.windows import QuestionWindows
from regard.models import FAMILIES as CARDS
from regard.tasks.spans import (
    Spans,
    beam_spans,
    beam_starts,
    best_spans,
    null_scores,
    tune,
)
from tests.data.windowing import collate, cut, replies, text_of
from tests.refusals import refuses

PIECES = "[PAD] [UNK] [CLS] [SEP] a b c d e f q r 你 好".split()
PAD, _, CLS, SEP = range(4)
SPECIAL = Special(SEP, pad=PAD, cls=CLS, sep=SEP)
TOKENIZER = Tokenizer(bert_pieces(PIECES))
SHORT = replace(CARDS["bert"].passage_format, length=9, stride=2)  # [CLS] q r [SEP] + 4 + [SEP]


def read_of(passage: str, *answers: tuple[str, int]) -> QuestionWindows:
    spans = tuple(AnswerSpan(*answer) for answer in answers)
    return cut(Question("q r", passage, spans, id="one"), TOKENIZER, SPECIAL, SHORT)[0]


def batch_of(*reads: QuestionWindows) -> dict[str, Tensor]:
    windows = [window for read in reads for window in read.windows]
    return {k: torch.from_numpy(v) for k, v in collate(windows, PAD).items()}


def logits(*key: int | str, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(keyed("spans", *key).normal(size=shape))


def only(scores: Tensor, *values: tuple[int, int, float]) -> Tensor:
    """Zeros with some scores: window, position, value."""
    picked = torch.zeros_like(scores, dtype=torch.float64)
    for row, place, value in values:
        picked[row, place] = value
    return picked


# -- by hand


def test_two_windows_by_hand() -> None:
    """Windows a b c d and c d e f, passage at position 4.

    c counts in the first only and d in the second only: what the first says of d as a start is
    not heard, however loud.
    """
    read = read_of("a b c d e f")
    batch = batch_of(read)
    starts = only(batch["ids"], (0, 7, 9.0), (1, 5, 3.0), (0, 4, 2.0), (0, 1, 50.0))
    ends = only(batch["ids"], (0, 7, 1.0), (1, 7, 4.0), (1, 8, 50.0), (0, 3, 50.0))
    spans = best_spans(starts, ends, batch["fullest"], batch["passage"])
    (reply,) = replies([read], spans)
    best = reply.candidates[0]
    assert (best.text, best.begin, best.end, best.score) == ("d e f", 6, 11, 7.0)
    assert text_of(reply) == "d e f"
    assert {c.text for c in reply.candidates[1:3]} == {"e f", "f"}  # 4 each
    assert reply.null is None
    total = sum(math.exp(c.score) for c in reply.candidates)
    assert best.probability == pytest.approx(math.exp(7.0) / total)


def test_an_end_may_lie_in_its_windows_rim() -> None:
    """Only the start must have its fullest context (as in the authors' script)."""
    read = read_of("a b c d e f")
    batch = batch_of(read)
    starts = only(batch["ids"], (0, 6, 5.0))
    ends = only(batch["ids"], (0, 7, 5.0))
    spans = best_spans(starts, ends, batch["fullest"], batch["passage"])
    assert text_of(replies([read], spans)[0]) == "c d"


def test_same_text_counts_once() -> None:
    read = read_of("a b a")
    batch = batch_of(read)
    starts = only(batch["ids"], (0, 4, 1.0), (0, 6, 3.0))
    ends = only(batch["ids"], (0, 4, 1.0), (0, 6, 3.0))
    spans = best_spans(starts, ends, batch["fullest"], batch["passage"])
    (reply,) = replies([read], spans)
    assert [c.text for c in reply.candidates].count("a") == 1
    assert (reply.candidates[0].text, reply.candidates[0].begin) == ("a", 4)


def test_null_by_hand() -> None:
    """s_null = 4 in one window, 1 in the other: the least counts. s_best = 3, so 1 - 3 = -2."""
    read = read_of("a b c d e f")
    batch = batch_of(read)
    starts = only(batch["ids"], (0, 0, 4.0), (1, 0, 0.5), (0, 4, 2.0))
    ends = only(batch["ids"], (1, 0, 0.5), (0, 4, 1.0))
    nulls = null_scores(starts, ends, batch["cls"])
    assert nulls.tolist() == [4.0, 1.0]
    spans = best_spans(starts, ends, batch["fullest"], batch["passage"])
    (reply,) = replies([read], spans, nulls)
    assert reply.null == -2.0
    assert text_of(reply) == "a"
    assert text_of(reply, tau=-2.0) == "a"  # refused only above tau
    assert text_of(reply, tau=-2.1) == ""
    assert reply.found(tau=-2.1) is None
    total = sum(math.exp(c.score) for c in reply.candidates) + math.exp(1.0)
    assert reply.candidates[0].probability == pytest.approx(math.exp(3.0) / total)


def test_answerability_stands_alone() -> None:
    """XLNet's logit is compared with tau as it is."""
    read = read_of("a b c d e f")
    batch = batch_of(read)
    zero = only(batch["ids"])
    spans = best_spans(zero, zero, batch["fullest"], batch["passage"])
    (reply,) = replies([read], spans, torch.tensor([0.7, -0.3]), versus=False)
    assert reply.null == pytest.approx(-0.3)
    assert sum(c.probability for c in reply.candidates) == pytest.approx(1.0)


def test_passage_without_tokens() -> None:
    read = read_of("  ")
    batch = batch_of(read)
    zero = only(batch["ids"])
    spans = best_spans(zero, zero, batch["fullest"], batch["passage"])
    nulls = null_scores(zero, zero, batch["cls"])
    assert text_of(replies([read], spans)[0]) == ""
    (reply,) = replies([read], spans, nulls)
    assert (reply.candidates, reply.null, text_of(reply, 1e9)) == ((), math.inf, "")


def test_text_is_the_passages_own() -> None:
    """Case, spaces and accents as they stand, which no detokenizing would give back."""
    passage = "A  b\u00a0 Ç,你 好"
    read = read_of(passage)
    batch = batch_of(read)
    window = read.windows[0]
    starts = only(batch["ids"], (0, window.first, 5.0))
    ends = only(batch["ids"], (0, window.first + 2, 5.0))
    spans = best_spans(starts, ends, batch["fullest"], batch["passage"])
    assert text_of(replies([read], spans)[0]) == "A  b\u00a0 Ç"


def test_several_questions() -> None:
    reads = [
        read_of("a b c d e f"),
        read_of("c"),
        read_of("d e f a b"),
    ]
    batch = batch_of(*reads)
    starts, ends = logits("s", shape=batch["ids"].shape), logits("e", shape=batch["ids"].shape)
    nulls = null_scores(starts, ends, batch["cls"])
    spans = best_spans(starts, ends, batch["fullest"], batch["passage"])
    together = replies(reads, spans, nulls)
    at = 0
    for read, reply in zip(reads, together, strict=True):
        rows = slice(at, at + len(read.windows))
        (alone,) = replies([read], Spans(*(column[rows] for column in spans)), nulls[rows])
        assert alone == reply
        at += len(read.windows)


# -- against enumeration


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 10), st.integers(1, 12))
def test_best_spans_are_all_there_is(seed: int, length: int, longest: int, count: int) -> None:
    shape = (3, length)
    starts, ends = logits(seed, "s", shape=shape), logits(seed, "e", shape=shape)
    passage = torch.from_numpy(keyed(seed, "p").random(shape) < 0.7)
    fullest = torch.from_numpy(keyed(seed, "f").random(shape) < 0.7)
    spans = best_spans(starts, ends, fullest, passage, longest=longest, count=count)
    for w in range(3):
        every = sorted(
            (
                ((starts[w, i] + ends[w, j]).item(), i, j)
                for i, j in itertools.product(range(length), repeat=2)
                if fullest[w, i] and passage[w, i] and passage[w, j] and 0 <= j - i < longest
            ),
            reverse=True,
        )[:count]
        columns = [column[w].tolist() for column in spans]
        rows = [row for row in zip(*columns, strict=True) if row[0] > -math.inf]
        assert rows == every


def test_answer_length_counts_tokens() -> None:
    ones = torch.ones(1, 40, dtype=torch.bool)
    starts, ends = torch.zeros(1, 40), torch.zeros(1, 40)
    starts[0, 2] = ends[0, 31] = ends[0, 32] = 9.0
    ends[0, 32] = 10.0
    spans = best_spans(starts, ends, ones, ones)
    assert (spans.starts[0, 0].item(), spans.ends[0, 0].item()) == (2, 31)  # 30 tokens
    assert spans.scores.shape == (1, 20)


def test_half_precision_is_widened() -> None:
    ones = torch.ones(1, 4, dtype=torch.bool)
    starts = torch.tensor([[100.0, 0, 0, 0]]).bfloat16()
    ends = torch.tensor([[0.25, 0.5, 0, 0]]).bfloat16()  # lost beside 100 in 8 bits
    spans = best_spans(starts, ends, ones, ones)
    assert spans.scores[0, 0].item() == 100.5


@pytest.mark.parametrize("seed", range(5))
def test_beam_against_enumeration(seed: int) -> None:
    """With a beam as wide as the window nothing is lost; a narrow one holds the best starts."""
    length, longest = 7, 3
    starts = logits(seed, "bs", shape=(2, length))
    end_scores = logits(seed, "be", shape=(2, length, length))  # of the end, for each start
    passage = torch.tensor([[1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0]]).bool()
    fullest = passage & torch.tensor([[1, 1, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1, 1]]).bool()
    eligible = passage.clone()
    eligible[:, 6] = True  # cls
    for beam in (2, length):
        known, places = beam_starts(starts, fullest, eligible, count=beam)
        ends = end_scores.gather(1, places[:, :, None].expand(-1, -1, length))
        spans = beam_spans(known, places, ends, passage, eligible, longest=longest, count=beam)
        for w in range(2):
            p = starts[w].masked_fill(~eligible[w], -math.inf).softmax(0)
            firsts = [i for i in p.argsort(descending=True).tolist() if fullest[w, i]][:beam]
            every = []
            for i in firsts:
                q = end_scores[w, i].masked_fill(~eligible[w], -math.inf).softmax(0)
                lasts = [j for j in range(i, min(i + longest, length)) if passage[w, j]]
                lasts = sorted(lasts, key=lambda j: -q[j])[:beam]
                every += [((p[i] * q[j]).item(), i, j) for j in lasts]
            every.sort(reverse=True)
            columns = [column[w].tolist() for column in spans]
            rows = [row for row in zip(*columns, strict=True) if row[0] > -math.inf]
            assert [row[1:] for row in rows] == [row[1:] for row in every]
            assert [math.exp(row[0]) for row in rows] == pytest.approx([row[0] for row in every])


def test_beam_by_hand() -> None:
    """p(start) = 0.6, 0.4; p(end | start) = 0.5 at most for the first, 0.9 for the second.

    The joint 0.36 of the second beats 0.3: the likeliest start does not win alone.
    """
    passage = torch.tensor([[True, True, False]])
    eligible = torch.ones(1, 3, dtype=torch.bool)
    starts = torch.tensor([[0.6, 0.4, 1e-30]]).log()
    known, places = beam_starts(starts, passage, eligible)
    assert places[0, :2].tolist() == [0, 1]
    ends = torch.tensor([[[0.5, 0.3, 0.2], [0.05, 0.9, 0.05], [0.4, 0.3, 0.3]]]).log()
    spans = beam_spans(known, places, ends, passage, eligible)
    assert (spans.starts[0, 0].item(), spans.ends[0, 0].item()) == (1, 1)
    chances = spans.scores[0].exp()
    assert chances[:3].tolist() == pytest.approx([0.36, 0.3, 0.18], abs=1e-6)
    assert (spans.scores[0, 3:] == -math.inf).all()


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 5))
def test_gold_comes_back(first: int, more: int, stride: int) -> None:
    """Scores that point at the gold positions give the answer back, wherever a window holds it."""
    passage = "a b c d e f"
    text = passage[2 * first : 2 * (first + more) + 1]
    layout = replace(SHORT, stride=stride)
    question = Question("q r", passage, (AnswerSpan(text, 2 * first),), id="one")
    read, _ = cut(question, TOKENIZER, SPECIAL, layout)
    batch = batch_of(read)
    for row, window in enumerate(read.windows):
        if window.answered and window.fullest[window.target[0] - window.first]:
            starts = only(batch["ids"], (row, window.target[0], 1.0))
            ends = only(batch["ids"], (row, window.target[1], 1.0))
            spans = best_spans(starts, ends, batch["fullest"], batch["passage"])
            best = replies([read], spans)[0].candidates[0]
            assert (best.text, best.begin, best.end) == (text, 2 * first, 2 * first + len(text))


# -- the threshold


def official(
    nulls: list[float], scores: list[float], answerable: list[bool]
) -> tuple[float, float]:
    """find_best_thresh of SQuAD 2.0's evaluation, all predictions being texts."""
    current = best = float(sum(not known for known in answerable))
    threshold = 0.0
    for i in sorted(range(len(nulls)), key=lambda i: nulls[i]):
        current += scores[i] if answerable[i] else -1
        if current > best:
            best, threshold = current, nulls[i]
    return threshold, best / len(nulls)


def test_tau_by_hand() -> None:
    """Answer up to -1: 0.8 and 1.0 are earned, and one refusal is right: 2.8 of 4."""
    nulls = [-3.0, -1.0, 2.0, 5.0]
    scores = [0.8, 1.0, 0.0, 0.3]
    answerable = [True, True, False, True]
    assert tune(nulls, scores, answerable) == (-1.0, pytest.approx(2.8 / 4))


def test_tau_that_refuses_all() -> None:
    """The official script would say 0 and answer the first question after all."""
    tau, score = tune([-3.0, 1.0], [0.0, 0.0], [False, False])
    assert (tau < -3.0, score) == (True, 1.0)


def test_equals_are_answered_together() -> None:
    """No tau answers the one and refuses the other."""
    tau, score = tune([1.0, 1.0], [1.0, 0.0], [True, False])
    assert tau < 1.0
    assert score == 0.5
    assert official([1.0, 1.0], [1.0, 0.0], [True, False])[1] == 1.0


def test_tau_of_nothing() -> None:
    assert tune([], [], []) == (0.0, 0.0)
    with refuses(InputError, "1 nulls", "0 scores"):
        tune([1.0], [], [True])


QUESTIONS = st.tuples(st.integers(0, 8), st.sampled_from([0.0, 0.25, 1.0]), st.booleans())


@settings(deadline=None)
@given(st.lists(QUESTIONS, min_size=1, max_size=8))
def test_tau_is_the_best(questions: list[tuple[int, float, bool]]) -> None:
    nulls, scores, answerable = (list(column) for column in zip(*questions, strict=True))
    tau, score = tune(nulls, scores, answerable)

    def mean(tau: float) -> float:
        earned = [
            (s if known else 0.0) if null <= tau else float(not known)
            for null, s, known in zip(nulls, scores, answerable, strict=True)
        ]
        return sum(earned) / len(earned)

    assert mean(tau) == pytest.approx(score)
    assert score == pytest.approx(max(mean(t) for t in [-1, *nulls]))
    if len(set(nulls)) == len(nulls):
        assert official(nulls, scores, answerable)[1] == pytest.approx(score)
