"""Cuts a question and a passage into windows that fit a model's context (SQuAD).

A passage longer than the room beside the question is read through windows that move by `stride`
tokens. A token may stand in several windows; it counts where its context is fullest. Positions map
to characters of the passage, so that an answer is always a piece of the text itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from regard.core.errors import ConfigError
from regard.data.corpus import Special
from regard.data.examples import AnswerSpan, Question
from regard.data.input_formats import PassageFormat
from regard.data.tokenizer import Tokenizer

Offsets = tuple[tuple[int, int], ...]  # the characters of each token as (begin, end)
TEXTS = ("question", "passage")
TOGETHER = 1024  # questions that are encoded together


def bare(layout: PassageFormat) -> PassageFormat:
    """Returns the layout without special tokens, as other libraries feed texts to GPT-2. "No
    answer" is then the first position."""
    pairs = zip(layout.parts, layout.segments, strict=True)
    parts, segments = zip(
        *((part, segment) for part, segment in pairs if part in TEXTS), strict=True
    )
    return replace(layout, parts=parts, segments=segments)


@dataclass(frozen=True)
class PassageWindow:
    ids: tuple[int, ...]
    segments: tuple[int, ...]
    cls: int  # the position that stands for "no answer"
    question: tuple[int, int]  # the positions of the question as (begin, end)
    first: int  # the position of its first passage token
    start: int  # the index of that token in the passage
    count: int  # the number of passage tokens
    fullest: tuple[bool, ...]  # tokens with no fuller context in another window; contiguous
    target: tuple[int, int]  # positions of the answer's first and last token; else cls twice
    answered: bool  # whether the whole answer is in this window

    def token(self, position: int) -> int:
        """Returns the index of the passage token at a position."""
        return self.start + position - self.first


@dataclass(frozen=True)
class QuestionWindows:
    """A question, cut into windows."""

    example: Question
    offsets: Offsets  # the offsets of the passage's tokens
    windows: tuple[PassageWindow, ...]
    gold: tuple[int, int] | None  # passage tokens of the answer, the last one included
    cut: bool = False  # whether the question has lost its end

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Returns the characters from one token to another, without white space around them."""
        begin, end = self.offsets[first][0], self.offsets[last][1]
        return trimmed(self.example.passage, begin, end)


@dataclass(frozen=True)
class MissingAnswer:
    """An answer that is not at its offset."""

    id: str
    answer: AnswerSpan
    found: str  # the text at that offset

    def __str__(self) -> str:
        return (
            f"{self.id}: the answer {self.answer.text!r} is not at character {self.answer.start}, "
            f"where the passage reads {self.found!r}, or gives no token"
        )


# -- characters and tokens


def trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """Returns the range without white space at its ends, or unchanged if it is all white space."""
    inner = text[begin:end]
    if not (inner[:1].isspace() or inner[-1:].isspace()) or inner.isspace():
        return begin, end
    return begin + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def encode_all(tokenizer: Tokenizer, texts: list[str]) -> list[tuple[list[int], Offsets]]:
    """Returns the ids of each text, and the characters of each id without the space that some
    pieces have in front. Pieces of one character (the bytes of an emoji) each have all of it."""
    encodings = tokenizer.ready.encode_batch(texts, add_special_tokens=False)
    return [
        (one.ids, tuple(trimmed(text, begin, end) for begin, end in one.offsets))
        for text, one in zip(texts, encodings, strict=True)
    ]


def locate(passage: str, answer: AnswerSpan) -> tuple[int, int] | None:
    """Returns the characters of an answer at its offset; white space may differ."""
    words = answer.text.split()
    if not words or answer.start < 0:
        return None
    if answer.text == answer.text.strip() and passage.startswith(answer.text, answer.start):
        return answer.start, answer.start + len(answer.text)
    pattern = re.compile(r"\s*(" + r"\s+".join(map(re.escape, words)) + ")")
    match = pattern.match(passage, answer.start)
    return match.span(1) if match else None


def tokens_of(offsets: Offsets, begin: int, end: int) -> tuple[int, int] | None:
    """Returns the first and the last token that share a character with a range."""
    inside = [i for i, (left, right) in enumerate(offsets) if left < end and right > begin]
    return (inside[0], inside[-1]) if inside else None


# -- windows


def slide(count: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Returns (start, length) of each window over `count` tokens; one empty window over 0."""
    if room < 1 or stride < 1:
        raise ConfigError(
            f"windows have {room} tokens and move by {stride}; both must be 1 or more"
        )
    spans = [(0, min(count, room))]
    while sum(spans[-1]) < count:
        start = spans[-1][0] + min(spans[-1][1], stride)
        spans.append((start, min(count - start, room)))
    return spans


def homes(spans: Sequence[tuple[int, int]], count: int) -> np.ndarray:
    """Returns for each token the window where it has maximum context: the largest min(left, right)
    + 0.01 length, the first of equals (`_check_is_max_context` of google-research/bert)."""
    home = np.zeros(count, np.int64)
    best = np.full(count, -1.0)
    for number, (start, length) in enumerate(spans):
        inside = slice(start, start + length)
        left = np.arange(length)
        context = np.minimum(left, length - 1 - left) + 0.01 * length
        home[inside] = np.where(context > best[inside], number, home[inside])
        best[inside] = np.maximum(context, best[inside])
    return home


def cuts(
    examples: Iterable[Question], tokenizer: Tokenizer, special: Special, layout: PassageFormat
) -> Iterator[tuple[QuestionWindows, list[MissingAnswer]]]:
    """Yields the windows of each example, and its answers that are not at their offsets.

    The first answer that is found is the training target. A passage that several questions share is
    encoded once.
    """
    rest, fast = iter(examples), tokenizer.ready
    while part := list(islice(rest, TOGETHER)):
        different = list(dict.fromkeys(example.passage for example in part))
        passages = dict(zip(different, encode_all(tokenizer, different), strict=True))
        texts = [example.question for example in part]
        questions = fast.encode_batch_fast(texts, add_special_tokens=False)
        for example, question in zip(part, questions, strict=True):
            yield cut_encoded(example, question.ids, *passages[example.passage], special, layout)


def cut_encoded(
    example: Question,
    question: list[int],
    ids: list[int],
    offsets: Offsets,
    special: Special,
    layout: PassageFormat,
) -> tuple[QuestionWindows, list[MissingAnswer]]:
    whole, question = len(question), question[: layout.question]
    gold, missing = None, []
    for answer in () if example.impossible else example.answers:
        place = locate(example.passage, answer)
        span = tokens_of(offsets, *place) if place else None
        if span is None:
            there = example.passage[max(answer.start, 0) :][: len(answer.text)]
            missing.append(MissingAnswer(example.id, answer, there))
        gold = gold or span
    marks = len(layout.parts) - len(TEXTS)
    room = layout.length - len(question) - marks
    if room < 1:
        raise ConfigError(
            f"a length of {layout.length} has no room for a passage beside a question of "
            f"{len(question)} tokens and {marks} special tokens; give a larger length or a shorter "
            "question"
        )
    spans = slide(len(ids), room, min(layout.stride, max(1, room // 2)))
    best = homes(spans, len(ids))
    windows = [
        place_window(
            layout, special, question, ids, span, gold, best[span[0] : sum(span)] == number
        )
        for number, span in enumerate(spans)
    ]
    return QuestionWindows(example, offsets, tuple(windows), gold, len(question) < whole), missing


def place_window(
    layout: PassageFormat,
    special: Special,
    question: list[int],
    ids: list[int],
    span: tuple[int, int],
    gold: tuple[int, int] | None,
    fullest: np.ndarray,  # for each passage token of the window
) -> PassageWindow:
    start, count = span
    texts = {"question": question, "passage": ids[start : start + count]}
    row: list[int] = []
    segments: list[int] = []
    at: dict[str, int] = {"cls": 0}
    for part, segment in zip(layout.parts, layout.segments, strict=True):
        at[part] = len(row)
        row += texts[part] if part in texts else [special.need(part)]
        segments += [segment] * (len(row) - at[part])
    answered = gold is not None and start <= gold[0] and gold[1] < start + count
    shift = at["passage"] - start
    return PassageWindow(
        tuple(row),
        tuple(segments),
        at["cls"],
        (at["question"], at["question"] + len(question)),
        at["passage"],
        start,
        count,
        tuple(fullest.tolist()),
        (gold[0] + shift, gold[1] + shift) if gold and answered else (at["cls"], at["cls"]),
        answered,
    )


def teaches(read: QuestionWindows, window: PassageWindow, refuse: bool) -> bool:
    """Tells whether the target of this window is known.

    SQuAD 1.1 drops windows without the answer; 2.0 (`refuse`) points them to cls. A question of
    which no answer was found gives no target: it is not an impossible question.
    """
    return window.answered or (refuse and (read.gold is not None or read.example.impossible))


def as_text(question: str, passage: str) -> str:
    """Returns T5's input; its target is the text of the answer."""
    return f"question: {question} context: {passage}"
