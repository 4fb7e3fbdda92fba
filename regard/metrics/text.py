"""Metrics of generated text: BLEU and chrF by sacreBLEU (0 … 100, as it prints them), and ROUGE by
rouge-score.

A gold text is one reference or a list of references. The language decides how a text is tokenized:
sacreBLEU has a tokenizer for Chinese. rouge-score's own tokenizer keeps only a … z and 0 … 9 and
would give every other script zero, so texts that are not English are cut into words of any script
and single Han or kana characters. The signatures say which tokenizer was used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from regard.core.errors import InputError, UnknownName
from regard.data.files import needed
from regard.metrics.answers import HAN, tongue
from regard.metrics.base import Array, Figures, TaskMetric, Weighted, mean, ratio

Gold = Sequence[str | Sequence[str]]
ROUGE = ("rouge1", "rouge2", "rougeL")
ORDERS = 4  # BLEU's n-grams
BETA = 2  # chrF weighs recall twice as much
SINGLE = f"{HAN}\u3040-\u30ff"
LETTER = re.compile(r"[^\W\d_]")
HAN_LETTER = re.compile(f"[{HAN}]")
WORD = re.compile(f"[{SINGLE}]|(?:(?![{SINGLE}_])\\w)+")


def language_of(gold: Sequence[Any]) -> str:
    """Returns "zh" if most letters are Han, else "en": other languages are cut as English is."""
    texts = [text for one in gold for text in ([one] if isinstance(one, str) else one)]
    sample = "".join(texts[:1000])
    return "zh" if 2 * len(HAN_LETTER.findall(sample)) > len(LETTER.findall(sample)) else "en"


def references(gold: Gold) -> list[list[str]]:
    lists = [[x] if isinstance(x, str) else list(x) for x in gold]
    for i, texts in enumerate(lists, 1):
        if not texts:
            raise InputError(f"example {i:,} has no reference; give at least one text")
    return lists


def streams(lists: list[list[str]]) -> list[list[str | None]]:
    """Returns sacreBLEU's order: the first references of all examples, then the second ones, …"""
    most = max(map(len, lists))
    return [[x[i] if i < len(x) else None for x in lists] for i in range(most)]


# -- BLEU and chrF


def bleu(language: str = "en", tokenizer: str = "") -> Any:
    """Returns sacreBLEU's scorer for a language, or with the given tokenizer."""
    library = needed("sacrebleu.metrics", "translations are measured", "tasks")
    if tokenizer and tokenizer not in library.BLEU.TOKENIZERS:
        raise UnknownName("tokenizer of sacreBLEU", tokenizer, library.BLEU.TOKENIZERS)
    try:
        return library.BLEU(tokenize=tokenizer or None, trg_lang=tongue(language))
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"sacreBLEU cannot tokenize language {language!r} ({error}); install what it names, "
            'or choose a tokenizer, such as tokenizer="char"'
        ) from None


def chrf() -> Any:
    return needed("sacrebleu.metrics", "translations are measured", "tasks").CHRF()


class TranslationMetric(TaskMetric):
    """BLEU and chrF of the whole corpus, not the mean over texts: the counts are summed first."""

    libraries = ("sacrebleu.metrics",)
    flawless = 100.0

    def __init__(
        self, gold: Gold, predicted: Sequence[str], *, language: str = "en", tokenizer: str = ""
    ) -> None:
        super().__init__(gold, predicted)
        self.references = references(gold)
        self.scorers = {"bleu": bleu(language, tokenizer), "chrf": chrf()}

    @classmethod
    def check_language(cls, language: str) -> None:
        bleu(language)  # sacreBLEU needs further libraries for some languages

    @cached_property
    def rows(self) -> dict[str, list[list[int]]]:
        """A row of counts for each text; sacreBLEU itself sums these rows for its bootstrap."""
        references, texts = streams(self.references), list(self.predicted)
        return {
            name: scorer._extract_corpus_statistics(texts, references)
            for name, scorer in self.scorers.items()
        }

    @cached_property
    def figures(self) -> Figures:
        return {
            name: float(scorer._aggregate_and_compute(self.rows[name]).score)
            for name, scorer in self.scorers.items()
        }

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        words, letters = (np.array(self.rows[name], dtype=np.float64) for name in ("bleu", "chrf"))
        return {
            "bleu": lambda weights: bleu_of(weights @ words),
            "chrf": lambda weights: chrf_of(weights @ letters),
        }

    @cached_property
    def each(self) -> list[float]:
        """The chrF of each text; BLEU of a single sentence says little."""
        return [float(x) for x in chrf_of(np.array(self.rows["chrf"], dtype=np.float64))]

    @cached_property
    def details(self) -> dict[str, Any]:
        """sacreBLEU's signatures. They name the number of references, which the counting finds."""
        signatures = {name: str(self.scorers[name].get_signature()) for name in self.rows}
        return {"signatures": signatures}


def bleu_of(sums: Array) -> Array:
    """Computes BLEU from summed counts [R, 10]: length, reference length, and the matches and
    n-grams of orders 1 … 4.

    It uses the "exp" smoothing of mteval-v13a: the k-th order without a match counts as 1 / 2^k
    matches.
    """
    length, target = sums[:, 0], sums[:, 1]
    matches, grams = sums[:, 2 : 2 + ORDERS], sums[:, 2 + ORDERS :]
    empty = (matches == 0) & (grams > 0)
    smoothed = np.where(empty, 0.5 ** np.cumsum(empty, axis=1), matches)
    precisions = ratio(smoothed, grams)
    fine = (matches.sum(1) > 0) & (precisions > 0).all(1)
    logs = np.log(np.where(fine[:, None], precisions, 1.0)).mean(1)
    brevity = np.minimum(0.0, 1.0 - target / np.maximum(length, 1.0))
    return np.where(fine, 100.0 * np.exp(logs + brevity), 0.0)


def chrf_of(sums: Array) -> Array:
    """Computes chrF from summed counts [R, 3 · orders]: n-grams of the text, of the reference,
    shared.

    Precision and recall are averaged over the orders that both texts are long enough for.
    """
    claimed, real, shared = np.moveaxis(sums.reshape(len(sums), -1, 3), 2, 0)
    both = (claimed > 0) & (real > 0)
    orders = both.sum(1).astype(np.float64)
    precision = ratio((ratio(shared, claimed) * both).sum(1), orders)
    recall = ratio((ratio(shared, real) * both).sum(1), orders)
    factor = float(BETA**2)
    return 100.0 * ratio((1 + factor) * precision * recall, factor * precision + recall)


# -- ROUGE


class AnyScriptTokenizer:
    """A tokenizer for rouge-score: words of any script, and single Han or kana characters."""

    def tokenize(self, text: str) -> list[str]:
        return WORD.findall(text.lower())


class RougeMetric(TaskMetric):
    """The mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L; for each, a text's best reference counts."""

    libraries = ("rouge_score.rouge_scorer",)

    def __init__(
        self, gold: Gold, predicted: Sequence[str], *, language: str = "en", stemmer: bool = False
    ) -> None:
        super().__init__(gold, predicted)
        self.references = references(gold)
        self.english, self.stemmer = tongue(language) == "en", stemmer

    @cached_property
    def scores(self) -> dict[str, list[float]]:
        library = needed("rouge_score.rouge_scorer", "summaries are measured", "tasks")
        cut = None if self.english else AnyScriptTokenizer()
        scorer = library.RougeScorer(list(ROUGE), use_stemmer=self.stemmer, tokenizer=cut)
        pairs = zip(self.references, self.predicted, strict=True)
        scores = [scorer.score_multi(texts, text) for texts, text in pairs]
        return {name: [float(x[name].fmeasure) for x in scores] for name in ROUGE}

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        return {name: mean(values) for name, values in self.scores.items()}

    @cached_property
    def each(self) -> list[float]:
        return self.scores["rougeL"]

    @cached_property
    def details(self) -> dict[str, Any]:
        cut = "rouge-score (a-z, 0-9)" if self.english else "words of any script, single Han, kana"
        stemmed = "yes" if self.stemmer and self.english else "no"
        return {"signatures": {"rouge": f"F1|tok:{cut}|stemmer:{stemmed}"}}
