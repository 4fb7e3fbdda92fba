"""Turns gold answers and predictions into metrics with confidence intervals.

    Classification(gold, predicted).figures           the metrics, by the field's own libraries
    Classification(gold, predicted).each              one value for each example
    summarize(Classification, gold, predicted, …)     metrics, intervals, classes, the worst errors

What `gold` and `predicted` hold for each example:
    Classification         a label
    ChoiceAccuracy         the number of the right choice
    TaggingMetric          a list of tags for each sentence; options mode, scheme
    TokenAccuracy          the same, for tags that mark no entities, such as parts of speech
    Answers                a list of accepted answers (empty: none), a text; option language
    Similarity             numbers; if similarity is a label, measure it as Classification
    TranslationMetric      a text or a list of references, a text; options language, tokenizer
    RougeMetric            the same; options language, stemmer
    LanguageModelMetric    (tokens, bytes) and the nats of each document
Shares lie between 0 and 1; BLEU and chrF between 0 and 100. The libraries come with regard[tasks].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.metrics.base import TaskMetric
from regard.metrics.bootstrap import intervals


def summarize(
    metric: type[TaskMetric],
    gold: Sequence[Any],
    predicted: Sequence[Any],
    *,
    scores: Sequence[Any] | None = None,
    texts: Sequence[Any] | None = None,
    seed: int = 0,
    resamples: int = 1000,
    level: float = 0.95,
    worst: int = 20,
    **options: Any,
) -> dict[str, Any]:
    """Returns all results of a test as plain values for JSON; an undefined metric is None.

    `scores` is the model's own score of each example. For labels and choices it is the probability
    of the predicted one, or of each (a dict by label, a list by number). For answers it is the
    probability that there is none. For all other tasks it is the loss. `texts` are shown with the
    worst errors.
    """
    for values in (scores, texts):
        if values is not None and len(values) != len(gold):
            raise InputError(
                f"there are {len(gold):,} examples but {len(values):,} scores or texts; give one "
                "for each example"
            )
    if metric.scored is not None and scores is not None:
        options = {metric.scored: scores} | options
    measured = metric(gold, predicted, **options)
    drawing: dict[str, Any] = {"seed": seed, "resamples": resamples, "level": level}
    spans = intervals(measured.weighted, measured.count, **drawing)
    result = {
        "examples": measured.count,
        "main": next(iter(measured.figures)),
        "falling": measured.falling,
        "figures": measured.figures,
        "intervals": {k: [v.low, v.high] if v else None for k, v in spans.items()},
        **drawing,
        **measured.details,
    }
    if scores is not None and measured.calibrates:
        sure = [measured.belief(row, label) for row, label in zip(scores, predicted, strict=True)]
        result["calibration"] = calibration(sure, measured.each)
    result["worst"] = worst_errors(measured, scores, texts, worst)
    plain: dict[str, Any] = jsonable(result)
    return plain


# -- calibration


def calibration(sure: Sequence[float], right: Sequence[float], bins: int = 10) -> dict[str, Any]:
    """Returns how often the model is right at each level of confidence, in bins of equal width.

    The error is the mean distance between confidence and accuracy, weighted by the bins' counts
    (Guo et al. 2017, eq. 3).
    """
    trust, good = np.asarray(sure, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if ((trust < 0) | (trust > 1 + 1e-6) | ~np.isfinite(trust)).any():
        raise InputError("a score is not a probability; give numbers from 0 to 1")
    place = np.minimum((trust * bins).astype(np.int64), bins - 1)
    rows, error = [], 0.0
    for i in range(bins):
        inside = place == i
        if count := int(inside.sum()):
            mean, share = float(trust[inside].mean()), float(good[inside].mean())
            error += abs(mean - share) * count / len(good)
            rows.append({
                "from": i / bins, "to": (i + 1) / bins,
                "confidence": mean, "accuracy": share, "count": count,
            })  # fmt: skip
    return {"error": error, "bins": rows}


# -- the worst errors


def worst_errors(
    measured: TaskMetric, scores: Sequence[Any] | None, texts: Sequence[Any] | None, most: int
) -> list[dict[str, Any]]:
    """Returns the examples that went most wrong: by loss if it is known, else by confidence or
    value."""
    rows: list[dict[str, Any]] = [
        {"index": i, "score": value, **({} if scores is None else measured.thought(i, scores[i]))}
        for i, value in enumerate(measured.each)
        if value < measured.flawless - 1e-9
    ]
    rows.sort(key=lambda row: (-row.get("loss", row.get("confidence", 0.0)), row["score"]))
    for row in rows[:most]:
        text = texts[row["index"]] if texts is not None else None
        row |= ({} if text is None else {"text": text}) | measured.sides(row["index"], text)
    return rows[:most]


def jsonable(value: Any) -> Any:
    """Converts values to plain JSON values; a number that is not finite becomes None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return [jsonable(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
