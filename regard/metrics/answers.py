"""Answers: exact match and F1 as SQuAD 2.0's evaluation script defines them.

English loses its case, punctuation and articles and is compared by words. Chinese loses its case
and punctuation (of every script) and is compared by characters, runs of other letters staying
words, as MLQA does. Figures are shares of 1; the script prints percent.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from regard.core.errors import InputError
from regard.metrics.base import Figures, TaskMetric, Weighted, mean, paired

Gold = Sequence[Sequence[str]]  # the accepted answers of each question; none: not answerable

ARTICLES = re.compile(r"\b(a|an|the)\b")
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
PIECE = re.compile(f"[{HAN}]|[^\\s{HAN}]+")
BY_CHARACTERS = {"zh"}


def pieces(text: str, language: str = "en") -> list[str]:
    """What is compared of an answer."""
    text = text.lower()
    if tongue(language) in BY_CHARACTERS:
        return PIECE.findall("".join(c for c in text if not mark(c)))
    text = "".join(c for c in text if c not in string.punctuation)
    return ARTICLES.sub(" ", text).split()


def tongue(language: str) -> str:
    """The language of a code such as zh-CN or zh_Hans."""
    return re.split("[-_]", language.lower())[0]


def mark(character: str) -> bool:
    """Is it punctuation? ASCII's own list holds signs that Unicode calls symbols."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def exact(gold: str, predicted: str, language: str = "en") -> float:
    return float(pieces(gold, language) == pieces(predicted, language))


def overlap(gold: str, predicted: str, language: str = "en") -> float:
    """F1 of the two bags of pieces; where one is empty, whether both are."""
    real, claimed = pieces(gold, language), pieces(predicted, language)
    if not real or not claimed:
        return float(real == claimed)
    same = sum((Counter(real) & Counter(claimed)).values())
    return 2 * same / (len(real) + len(claimed))


class Answers(TaskMetric):
    """The best of the accepted answers counts.

    `silence` is the model's probability that there is no answer; above the threshold the
    prediction counts as none. Accepted answers of which nothing is left count as no answer.
    """

    scored = "silence"

    def __init__(
        self,
        gold: Gold,
        predicted: Sequence[str],
        *,
        language: str = "en",
        silence: Sequence[float] | None = None,
        threshold: float = 1.0,
    ) -> None:
        super().__init__(gold, predicted)
        if silence is not None:
            paired(gold, silence)
        self.language, self.silence, self.threshold = language, silence, threshold
        for i, accepted in enumerate(gold, 1):
            if isinstance(accepted, str):
                raise InputError(
                    f"the gold of question {i:,} is the text {accepted!r}; "
                    "expected a list of accepted answers, empty where there is none"
                )
        self.answerable = [any(accepted) for accepted in gold]

    @cached_property
    def raw(self) -> tuple[list[float], list[float]]:
        """Exact match and F1 of every prediction as it stands."""
        exacts, overlaps = [], []
        for accepted, answer in zip(self.gold, self.predicted, strict=True):
            golds = [x for x in accepted if pieces(x, self.language)] or [""]
            exacts.append(max(exact(x, answer, self.language) for x in golds))
            overlaps.append(max(overlap(x, answer, self.language) for x in golds))
        return exacts, overlaps

    def silenced(self, values: list[float]) -> list[float]:
        if self.silence is None:
            return values
        return [
            float(not answerable) if silence > self.threshold else value
            for value, silence, answerable in zip(
                values, self.silence, self.answerable, strict=True
            )
        ]

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        """Both figures over all questions and, where there are both kinds, over each kind."""
        exacts, overlaps = map(self.silenced, self.raw)
        figures = {"f1": mean(overlaps), "exact_match": mean(exacts)}
        if 0 < sum(self.answerable) < self.count:
            figures["answerable_f1"] = mean(overlaps, self.answerable)
            figures["answerable_exact_match"] = mean(exacts, self.answerable)
            figures["unanswerable_accuracy"] = mean(overlaps, [not x for x in self.answerable])
        return figures

    @cached_property
    def each(self) -> list[float]:
        return self.silenced(self.raw[1])

    def thought(self, i: int, row: Any) -> dict[str, float]:
        return {}

    @cached_property
    def details(self) -> dict[str, Any]:
        """The thresholds that would have been best; chosen on these very questions: too good."""
        if self.silence is None:
            return {}
        best_figures: Figures = {}
        for name, values in zip(("exact_match", "f1"), self.raw, strict=True):
            best, threshold = self.best_threshold(values, self.silence)
            best_figures |= {f"best_{name}": best, f"best_{name}_threshold": threshold}
        return {"thresholds": best_figures}

    def best_threshold(
        self, values: Sequence[float], silence: Sequence[float]
    ) -> tuple[float, float]:
        """Answer the surest questions first and stop where the sum is highest.

        Answering none gives a point for every question without answer; each one answered adds
        its score, or takes the point back.
        """
        now = float(self.count - sum(self.answerable))
        best, threshold = now, 0.0
        for i in sorted(range(self.count), key=lambda i: silence[i]):
            now += values[i] if self.answerable[i] else -float(bool(self.predicted[i]))
            if now > best:
                best, threshold = now, float(silence[i])
        return best / self.count, threshold
