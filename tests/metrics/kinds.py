"""Every metric by a short name, so that laws are tested of all of them alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.metrics import figures, significance
from regard.metrics.answers import Answers
from regard.metrics.base import Figures, TaskMetric
from regard.metrics.labels import ChoiceAccuracy, Classification, TaggingMetric, TokenAccuracy
from regard.metrics.numbers import LanguageModelMetric, Similarity
from regard.metrics.text import RougeMetric, TranslationMetric

KINDS: dict[str, type[TaskMetric]] = {
    "classify": Classification,
    "choose": ChoiceAccuracy,
    "tag": TaggingMetric,
    "words": TokenAccuracy,
    "answer": Answers,
    "similar": Similarity,
    "translate": TranslationMetric,
    "summarize": RougeMetric,
    "model": LanguageModelMetric,
}


def measured(
    kind: str, gold: Sequence[Any], predicted: Sequence[Any], **options: Any
) -> TaskMetric:
    return KINDS[kind](gold, predicted, **options)


def figures_of(kind: str, *sides: Sequence[Any], **options: Any) -> Figures:
    return measured(kind, *sides, **options).figures


def each(kind: str, *sides: Sequence[Any], **options: Any) -> list[float]:
    return measured(kind, *sides, **options).each


def summarize(kind: str, *sides: Sequence[Any], **options: Any) -> dict[str, Any]:
    return {"task": kind} | figures.summarize(KINDS[kind], *sides, **options)


def compare(kind: str, *sides: Sequence[Any], **options: Any) -> dict[str, Any]:
    return significance.compare(KINDS[kind], *sides, **options)
