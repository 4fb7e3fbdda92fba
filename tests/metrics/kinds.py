"""Every metric by a short name, so that laws are tested of all of them alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.metrics import figures, significance
from regard.metrics.answers import Answers
from regard.metrics.base import Figures, Measured
from regard.metrics.labels import Choice, Classification, Tagging, Words
from regard.metrics.numbers import Modelling, Similarity
from regard.metrics.text import Summary, Translation

KINDS: dict[str, type[Measured]] = {
    "classify": Classification,
    "choose": Choice,
    "tag": Tagging,
    "words": Words,
    "answer": Answers,
    "similar": Similarity,
    "translate": Translation,
    "summarise": Summary,
    "model": Modelling,
}


def measured(kind: str, gold: Sequence[Any], predicted: Sequence[Any], **options: Any) -> Measured:
    return KINDS[kind](gold, predicted, **options)


def figures_of(kind: str, *sides: Sequence[Any], **options: Any) -> Figures:
    return measured(kind, *sides, **options).figures


def each(kind: str, *sides: Sequence[Any], **options: Any) -> list[float]:
    return measured(kind, *sides, **options).each


def summarise(kind: str, *sides: Sequence[Any], **options: Any) -> dict[str, Any]:
    return {"task": kind} | figures.summarise(KINDS[kind], *sides, **options)


def compare(kind: str, *sides: Sequence[Any], **options: Any) -> dict[str, Any]:
    return significance.compare(KINDS[kind], *sides, **options)
