"""Metrics of question answering: exact match and F1 as SQuAD 2.0's evaluation script defines them.

English text is lowercased, loses its punctuation and articles, and is compared by words. Chinese
text is lowercased, loses its punctuation (of every script), and is compared by characters; runs of
other letters stay whole words, as in MLQA. The values are shares of 1; the script prints percent.
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

Gold = Sequence[Sequence[str]]  # accepted answers of each question; an empty list: unanswerable

ARTICLES = re.compile(r"\b(a|an|the)\b")
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
PIECE = re.compile(f"[{HAN}]|[^\\s{HAN}]+")
BY_CHARACTERS = {"zh"}


def pieces(text: str, language: str = "en") -> list[str]:
    """Returns the words (or Chinese characters) of a normalized answer, which are compared."""
    text = text.lower()
    if tongue(language) in BY_CHARACTERS:
        return PIECE.findall("".join(c for c in text if not mark(c)))
    text = "".join(c for c in text if c not in string.punctuation)
    return ARTICLES.sub(" ", text).split()


def tongue(language: str) -> str:
    """Returns the language of a code such as zh-CN or zh_Hans (here: zh)."""
    return re.split("[-_]", language.lower())[0]


def mark(character: str) -> bool:
    """Tells punctuation. ASCII's own list holds characters that Unicode calls symbols."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def exact(gold: str, predicted: str, language: str = "en") -> float:
    return float(pieces(gold, language) == pieces(predicted, language))


def overlap(gold: str, predicted: str, language: str = "en") -> float:
    """Returns the F1 of two bags of pieces. If one bag is empty, returns whether both are."""
    real, claimed = pieces(gold, language), pieces(predicted, language)
    if not real or not claimed:
        return float(real == claimed)
    same = sum((Counter(real) & Counter(claimed)).values())
    return 2 * same / (len(real) + len(claimed))


class Answers(TaskMetric):
    """The metric of question answering; of several accepted answers, the best match counts.

    `silence` is the model's probability that there is no answer. Above the threshold, the
    prediction counts as "no answer". An accepted answer of which normalization leaves nothing
    counts as "no answer" too.
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
                    f"the gold answer of question {i:,} is the text {accepted!r}; give a list of "
                    "accepted answers (an empty list if the question has no answer)"
                )
        self.answerable = [any(accepted) for accepted in gold]

    @cached_property
    def raw(self) -> tuple[list[float], list[float]]:
        """Exact match and F1 of every prediction, before the threshold is applied."""
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
        """Both metrics over all questions and, if both kinds of questions occur, over each kind."""
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
        """The best thresholds. They are chosen on these very questions, so they are too good."""
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
        """Answers the surest questions first and stops where the sum of the scores is highest.

        Answering no question gives a point for every question without an answer; each question that
        is answered adds its score, or takes that point back.
        """
        now = float(self.count - sum(self.answerable))
        best, threshold = now, 0.0
        for i in sorted(range(self.count), key=lambda i: silence[i]):
            now += values[i] if self.answerable[i] else -float(bool(self.predicted[i]))
            if now > best:
                best, threshold = now, float(silence[i])
        return best / self.count, threshold
