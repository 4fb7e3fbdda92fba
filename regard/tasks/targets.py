"""Right answers: what an example says of them, and how a task's answers are read and measured."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.data.example_views import labels_of, prompt_text
from regard.data.examples import (
    Choice,
    Dialogue,
    Example,
    Labelled,
    Pair,
    Preference,
    Question,
    Tagged,
)
from regard.data.labelled import of_entities
from regard.data.tags import OUTSIDE, entities, repair, scheme_of, split
from regard.evaluation.predictors import ALIKE
from regard.metrics.answers import HAN
from regard.metrics.figures import measured
from regard.tasks.labelled import Prediction
from regard.tasks.paper_defaults import TEXT

if TYPE_CHECKING:
    from regard.evaluation.predictors import Asked
    from regard.evaluation.test import Plan

SPOKEN = (*TEXT, "answer")  # measured by a language's own rules
SEQEVAL = {"bio": "IOB2", "bioes": "IOBES", "bilou": "IOBES"}  # bilou is measured as bioes
LETTERS = {"L": "E", "U": "S"}
LETTER = re.compile(r"[^\W\d_]")
HAN_LETTER = re.compile(f"[{HAN}]")
NAMED = 10  # labels that a note lists
NONE = "(none of the labels)"  # stands for every text that is none


def gold_of(example: Example, labels: Sequence[str]) -> Any:
    """The right answer, as the metrics want it."""
    match example:
        case Labelled(label=label):
            return label
        case Tagged(tags=tags):
            given = tags or ()
            return repair(given, scheme_of(labels)) if of_entities(labels) else list(given)
        case Question():
            return list(dict.fromkeys(answer.text for answer in example.answers))
        case Choice(label=label):
            return label
        case Pair(target=target):
            return target
        case Dialogue(turns=turns):
            return turns[-1]
        case Preference():
            return 0  # of the two replies the chosen one stands first


def values_of(
    asked: Asked, said: Sequence[Prediction], gold: Sequence[Any]
) -> tuple[list[Any], int]:
    """What is compared with the right answers, and how much of it means nothing.

    A text that is no label of the model's is NONE, also if it happens to be the right one: the
    model never learned that. A text where a score was asked for is -1, as T5's authors count it.
    """
    values = [one.value for one in said]
    kind = kind_of(asked)
    if kind == "classify":
        known = {*asked.labels} or {*gold}  # a published model that writes names none
        void = [value not in known for value in values]
    elif kind == "similar":
        void = [not math.isfinite(value) for value in values]
    elif kind == "choose":
        return values, sum(isinstance(value, str) for value in values)
    else:
        return values, 0
    instead: Any = NONE if kind == "classify" else -1.0
    return [instead if bad else v for v, bad in zip(values, void, strict=True)], sum(void)


def void_note(asked: Asked, void: int) -> str:
    """What became of answers that mean nothing."""
    what = {
        "classify": f"none of the labels and count as wrong, as {NONE!r}",
        "choose": "none of the choices and count as wrong",
        "similar": "no number and count as -1",
    }
    return f"{void:,} answers were {what[kind_of(asked)]}"


def kind_of(asked: Asked) -> str:
    """How a task is measured: entailment, and similarity in classes, as classes are; tags of no
    entities by words; preferences as a choice of two.
    """
    if asked.task == "tag" and not of_entities(asked.labels):
        return "words"
    if asked.task == "prefer":
        return "choose"
    classes = asked.task in ALIKE or (asked.task == "similar" and asked.labels)
    return "classify" if classes else asked.task


def options_of(kind: str, asked: Asked, gold: Sequence[Any], plan: Plan) -> dict[str, Any]:
    if kind == "tag" and plan.strict:
        return {"mode": "strict", "scheme": SEQEVAL[scheme_of(asked.labels)]}
    if kind in SPOKEN:
        return {"language": plan.language or language_of(gold)}
    return {}


def language_of(gold: Sequence[Any]) -> str:
    """Chinese where most letters are Han; all others are cut as English is."""
    texts = [text for one in gold for text in ([one] if isinstance(one, str) else one)]
    sample = "".join(texts[:1000])
    return "zh" if 2 * len(HAN_LETTER.findall(sample)) > len(LETTER.findall(sample)) else "en"


def scores_of(kind: str, said: Sequence[Prediction]) -> list[Any] | None:
    """What the model thought of its answers, where the metrics have a use for it."""
    if kind in ("classify", "choose"):
        found = [one.score if one.scores is None else one.scores for one in said]
        return None if any(one is None for one in found) else found
    return None


def thresholds(
    gold: Sequence[Any], said: Sequence[Prediction], options: dict[str, Any]
) -> dict[str, Any]:
    """Which thresholds of no answer would have been best, where the model can say that."""
    held = [one.scores for one in said if isinstance(one.scores, dict)]
    if len(held) < len(said) or not all(isinstance(x.get("null"), int | float) for x in held):
        return {}
    best = [x["candidates"][0][0] if x.get("candidates") else "" for x in held]
    nulls = [float(x["null"]) for x in held]
    low = min(nulls) - 1e-6  # scores may lie below 0, where probabilities do not
    asked = measured("answer", gold, best, silence=[null - low for null in nulls], **options)
    found = asked.details["thresholds"]
    return {"thresholds": {k: v + low if k.endswith("_threshold") else v for k, v in found.items()}}


def text_of(example: Example) -> Any:
    """What is shown of an example among the worst."""
    match example:
        case Labelled(pair=None):
            return example.text
        case Labelled():
            return {"text": example.text, "pair": example.pair}
        case Tagged():
            return list(example.words)
        case Question():
            return {"question": example.question, "passage": example.passage}
        case Choice():
            asks = {"asks": example.asks} if example.asks else {}
            return {"premise": example.premise, **asks, "choices": list(example.choices)}
        case Pair():
            return example.source
        case Dialogue():
            return list(example.turns[:-1])
        case Preference():
            replies = [example.chosen, example.rejected]
            return {"prompt": prompt_text(example), "replies": replies}


# -- tags


def readable(kind: str, values: Sequence[Any]) -> list[Any]:
    """As seqeval reads tags: it has no L and no U unless it is strict."""
    if kind != "tag":
        return list(values)

    def spoken(tag: str) -> str:
        letter, hyphen, rest = tag.partition("-")
        return f"{LETTERS.get(letter, letter)}{hyphen}{rest}"

    return [[spoken(tag) for tag in row] for row in values]


# -- labels that training never saw


def unseen_labels(examples: Sequence[Example], known: Sequence[str]) -> dict[str, int]:
    """Right answers that the model cannot give, and how often they occur; they count as wrong."""
    if not known:
        return {}
    entity = of_entities(known)
    kinds = {split(tag)[1] for tag in known} if entity and OUTSIDE in known else set()
    found: Counter[str] = Counter()
    for example in examples:
        if isinstance(example, Tagged) and not entity:
            found.update(tag for tag in example.tags or () if tag not in known)
        elif isinstance(example, Tagged):
            found.update(kind for kind, _, _ in entities(example.tags or ()) if kind not in kinds)
        elif isinstance(example, Labelled):
            found.update(label for label in labels_of(example) if label not in known)
    return dict(found.most_common())


def unseen_note(unseen: dict[str, int], examples: int, asked: Asked) -> str:
    total, known = sum(unseen.values()), some(asked.labels)
    what = f"of {examples:,} labels are such"
    if asked.task == "tag":
        what = "entities are of kinds" if of_entities(asked.labels) else "words have tags"
    told = ", ".join(f"{label!r} {count:,}" for label, count in [*unseen.items()][:NAMED])
    more = ", …" if len(unseen) > NAMED else ""
    note = f"{total:,} {what} that the model never learned ({told}{more}); they count as wrong"
    if asked.task != "tag" and total == examples:
        note += f": no label of the data is one of the model's ({known})"
    return note


def some(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels[:NAMED])) + (", …" if len(labels) > NAMED else "")
