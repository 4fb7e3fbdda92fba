"""From gold answers and predictions to honest figures, for every task.

    METRICS["classify"](gold, predicted)        the figures, by the field's own libraries
    each("classify", gold, predicted)           one value for each example
    summarise("classify", gold, predicted, …)   figures, intervals, classes, the worst errors

What gold and predicted are:
    classify, entail       a label for each example
    choose                 the number of the right alternative
    tag                    a list of tags for each sentence; options mode, scheme
    words                  the same, of tags that are no entities', such as parts of speech
    answer                 a list of accepted answers (empty: none), a text; option language
    similar                numbers; where similarity is a label, measure it as classify
    translate, converse    a text or a list of references, a text; options language, tokenizer
    summarise              the same; options language, stemmer
    model                  (tokens, bytes) and the nats of each document
Shares lie between 0 and 1; BLEU and chrF between 0 and 100. The libraries come with regard[tasks].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from regard.core.errors import InputError, UnknownName
from regard.metrics.answers import Answers
from regard.metrics.base import Figures, Measured
from regard.metrics.bootstrap import intervals
from regard.metrics.labels import Choice, Classification, Tagging, Words
from regard.metrics.numbers import Modelling, Similarity
from regard.metrics.text import Summary, Translation

KINDS: dict[str, Callable[..., Measured]] = {
    "classify": Classification,
    "entail": Classification,
    "choose": Choice,
    "tag": Tagging,
    "words": Words,
    "answer": Answers,
    "similar": Similarity,
    "translate": Translation,
    "converse": Translation,
    "summarise": Summary,
    "model": Modelling,
}
SMALLEST = 1e-12  # a probability of 0 would be an endless loss


def measured(task: str, gold: Sequence[Any], predicted: Sequence[Any], **options: Any) -> Measured:
    """The examples of a task, ready to be asked."""
    if task not in KINDS:
        raise UnknownName("task", task, KINDS)
    return KINDS[task](gold, predicted, **options)


def metric(task: str) -> Callable[..., Figures]:
    return lambda gold, predicted, **options: measured(task, gold, predicted, **options).figures


METRICS: dict[str, Callable[..., Figures]] = {task: metric(task) for task in KINDS}


def each(task: str, gold: Sequence[Any], predicted: Sequence[Any], **options: Any) -> list[float]:
    """One value for each example, higher is better: right or wrong, F1, chrF, ROUGE-L, …"""
    return measured(task, gold, predicted, **options).each


def summarise(
    task: str,
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
    """Everything a test has to say, as plain values for JSON; an undefined figure is None.

    `scores` is what the model thought of each example. Labels and choices: the probability of the
    predicted one, or of each (a table by label, a list by number). Answers: the probability that
    there is none. All other tasks: the loss. `texts` are shown with the worst errors.
    """
    for given in (scores, texts):
        if given is not None and len(given) != len(gold):
            raise InputError(
                f"{len(gold):,} examples but {len(given):,} scores or texts; give one for each"
            )
    if task == "answer" and scores is not None:
        options = {"silence": scores} | options
    asked = measured(task, gold, predicted, **options)
    spans = intervals(asked.weighted, asked.count, seed=seed, resamples=resamples, level=level)
    result = {
        "task": task,
        "examples": asked.count,
        "main": next(iter(asked.figures)),
        "falling": asked.falling,
        "figures": asked.figures,
        "intervals": {k: [v.low, v.high] if v else None for k, v in spans.items()},
        "level": level,
        "resamples": resamples,
        "seed": seed,
        **asked.details,
    }
    if scores is not None and isinstance(asked, Classification):
        sure = [belief(row, label) for row, label in zip(scores, predicted, strict=True)]
        result["calibration"] = calibration(sure, asked.each)
    result["worst"] = worst_errors(asked, scores, texts, worst)
    made: dict[str, Any] = jsonable(result)
    return made


# -- calibration


def belief(row: Any, label: Any) -> float:
    """The probability of a label; a single number is that of the predicted one."""
    if isinstance(row, int | float | np.number):
        return float(row)
    if isinstance(row, Mapping):
        return float(row.get(label, 0.0))
    return float(row[label])


def calibration(sure: Sequence[float], right: Sequence[float], bins: int = 10) -> dict[str, Any]:
    """How often the model is right when it is so sure: bins of equal width.

    The error is the mean distance between the two, weighted by the bins (Guo et al. 2017, eq. 3).
    """
    trust, good = np.asarray(sure, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if ((trust < 0) | (trust > 1 + 1e-6) | ~np.isfinite(trust)).any():
        raise InputError("a score is no probability; expected numbers from 0 to 1")
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
    asked: Measured, scores: Sequence[Any] | None, texts: Sequence[Any] | None, most: int
) -> list[dict[str, Any]]:
    """The examples that went most wrong: by loss if it is known, else by confidence or value."""
    rows: list[dict[str, Any]] = [
        {"index": i, "score": value, **thought(asked, scores, i)}
        for i, value in enumerate(asked.each)
        if value < asked.flawless - 1e-9
    ]
    rows.sort(key=lambda row: (-row.get("loss", row.get("confidence", 0.0)), row["score"]))
    for row in rows[:most]:
        text = texts[row["index"]] if texts is not None else None
        row |= sides(asked, row["index"], text)
    return rows[:most]


def thought(asked: Measured, scores: Sequence[Any] | None, i: int) -> dict[str, float]:
    """What the model's own score says of an example."""
    if scores is None or isinstance(asked, Answers):
        return {}
    row = scores[i]
    if not isinstance(asked, Classification):
        return {"loss": float(row)}
    made = {"confidence": belief(row, asked.predicted[i])}
    if not isinstance(row, int | float | np.number):
        made["loss"] = -math.log(max(belief(row, asked.gold[i]), SMALLEST))
    return made


def sides(asked: Measured, i: int, text: Any) -> dict[str, Any]:
    """The text, what was right and what was said; of tags only the entities."""
    gold, predicted = asked.gold[i], asked.predicted[i]
    if isinstance(asked, Tagging):
        words = text if isinstance(text, list | tuple) and len(text) == len(gold) else None
        gold, predicted = (named(side[i], words) for side in asked.spans)
    made = {"gold": gold, "predicted": predicted}
    return made if text is None else {"text": text, **made}


def named(spans: set[tuple[str, int, int]], words: Sequence[str] | None) -> list[str]:
    """Entities in words, or by the places of theirs where the words are not known."""
    made = []
    for kind, first, last in sorted(spans, key=lambda span: span[1:]):
        inside = f"{first}–{last}" if words is None else " ".join(words[first : last + 1])
        made.append(f"{kind}: {inside}")
    return made


def jsonable(value: Any) -> Any:
    """Plain values; None for what is not a finite number."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return [jsonable(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
