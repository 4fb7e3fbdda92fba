"""Windows and answers of questions, one after the other: what batches are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from regard.data.corpus import Special
from regard.data.examples import Question
from regard.data.input_formats import PassageFormat
from regard.data.tokenizer import Tokenizer
from regard.data.windows import (
    MissingAnswer,
    Offsets,
    PassageWindow,
    QuestionWindows,
    cuts,
    encode_all,
    teaches,
)
from regard.tasks.spans import SpanAnswer, Spans, reply


def encode(tokenizer: Tokenizer, text: str) -> tuple[list[int], Offsets]:
    return encode_all(tokenizer, [text])[0]


def cut(
    example: Question, tokenizer: Tokenizer, special: Special, layout: PassageFormat
) -> tuple[QuestionWindows, list[MissingAnswer]]:
    return next(cuts([example], tokenizer, special, layout))


def to_learn(reads: Iterable[QuestionWindows], *, refuse: bool) -> list[PassageWindow]:
    return [window for read in reads for window in read.windows if teaches(read, window, refuse)]


def collate(
    windows: Sequence[PassageWindow], pad: int, beyond: int = 0, length: int | None = None
) -> dict[str, np.ndarray]:
    """Rows padded on the right to the longest window, or to `length`."""
    shape = (len(windows), length or max(len(window.ids) for window in windows))
    kinds = ("attention_mask", "passage", "fullest", "eligible", "question")
    batch = {
        "ids": np.full(shape, pad, np.int64),
        "segments": np.full(shape, beyond, np.int64),
        **{k: np.zeros(shape, bool) for k in kinds},
        "cls": np.array([window.cls for window in windows], np.int64),
        "start": np.array([window.target[0] for window in windows], np.int64),
        "end": np.array([window.target[1] for window in windows], np.int64),
    }
    for row, window in enumerate(windows):
        inside = slice(window.first, window.first + window.count)
        batch["ids"][row, : len(window.ids)] = window.ids
        batch["segments"][row, : len(window.ids)] = window.segments
        batch["attention_mask"][row, : len(window.ids)] = True
        batch["passage"][row, inside] = batch["eligible"][row, inside] = True
        batch["fullest"][row, inside] = window.fullest
        batch["eligible"][row, window.cls] = True
        batch["question"][row, slice(*window.question)] = True
    return batch


def replies(
    reads: Sequence[QuestionWindows],
    spans: Spans,
    nulls: Tensor | None = None,
    *,
    versus: bool = True,
) -> list[SpanAnswer]:
    """The windows of each question merged; `spans` are those of all windows, in order."""
    merged, at = [], 0
    for read in reads:
        own = slice(at, at + len(read.windows))
        at += len(read.windows)
        columns = [column[own].tolist() for column in spans]
        rows = [list(zip(*row, strict=True)) for row in zip(*columns, strict=True)]
        null = None if nulls is None else float(nulls[own].min())
        merged.append(reply(read, rows, null, versus=versus, count=20))
    assert at == len(spans.scores)
    return merged


def text_of(one: SpanAnswer, tau: float = 0.0) -> str:
    answer = one.found(tau)
    return answer.text if answer else ""
