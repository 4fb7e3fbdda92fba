"""A text as a model reads it for a task: looking inside is about what was really computed.

A model that writes its answers reads a prefix and the names of fields around a text, one that fills
blanks by writing them reads marks in their places, and one that chooses reads its question with one
of the choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.api import LoadedModel, predictor
from regard.core.errors import RequestError
from regard.data.examples import (
    Example,
    LabeledExample,
    MultipleChoice,
    Question,
    TaggedExample,
)
from regard.decoding.filling import SpanFiller, filler_for
from regard.decoding.prompts import Prompts
from regard.evaluation.text_predictor import TextPredictor
from regard.serve.models import TASKS
from regard.tasks.choose import joined, question, question_with_choice
from regard.tasks.tag import WORD

Text = str | list[int]


@dataclass(frozen=True)
class TaskReading:
    """What stands around a text: the verb that read it, and what else it was given."""

    verb: str
    pair: str | None = None
    choices: Sequence[str] = ()
    choice: int = 0  # of the choices, from 0
    asks: str | None = None
    fills: Sequence[Sequence[int]] = ()  # the tokens that were written into each blank


Read = tuple[Text, list[int] | None, str | None]  # the text, the target, the second text
EXAMPLES: dict[str, Callable[[str, TaskReading], Example]] = {
    "classify": lambda text, how: LabeledExample(text, how.pair),
    "tag": lambda text, how: TaggedExample(tuple(WORD.findall(text))),
    "answer": lambda text, how: Question(text, how.pair or ""),
    "choose": lambda text, how: MultipleChoice(text, tuple(how.choices), how.asks),
}


def as_read(loaded: LoadedModel, text: Text, how: TaskReading) -> Read:
    """Returns what the model read when it answered `how.verb`."""
    if not isinstance(text, str):
        raise RequestError(
            f"the text is given by its ids, and for {how.verb} it is a text; leave out the verb",
            param="verb",
        )
    if how.verb == "fill":
        return filled(loaded, text, how)
    answers: Any = predictor(loaded, TASKS[how.verb], {})
    if isinstance(answers, TextPredictor):
        (ids,), _ = answers.scribe.sources([EXAMPLES[how.verb](text, how)], answers.room)
        return ids, None, None
    if how.verb == "choose":
        return chosen(loaded, text, how)
    return text, None, how.pair


def written(loaded: LoadedModel, verb: str, source: Text) -> list[int] | None:
    """Returns the tokens of the answer that an encoder-decoder writes for a source, without the
    end; None if nothing is known of it."""
    if verb == "fill" or loaded.model.kind != "encoder-decoder" or isinstance(source, str):
        return None
    answers: Any = predictor(loaded, TASKS[verb], {})
    with answers.decoder.ready():
        ids = list(answers.decoder.run([source], [0])[0][0].ids)
    return (ids[:-1] if ids[-1:] == [loaded.config.eos_id] else ids) or None


def filled(loaded: LoadedModel, text: str, how: TaskReading) -> Read:
    filler = filler_for(loaded, 1, "confident", 1)
    if not isinstance(filler, SpanFiller):
        return text, None, how.pair
    source, _ = filler.marked(text)
    pairs = zip(filler.marks, how.fills, strict=False)
    target = [token for mark, fill in pairs for token in (mark, *fill)]
    return Prompts(loaded).encode(source), target or None, None


def chosen(loaded: LoadedModel, text: str, how: TaskReading) -> Read:
    if not 0 <= how.choice < len(how.choices):
        raise RequestError(
            f"the choice is {how.choice}, and there are {len(how.choices)} choices, counted from 0",
            param="choice",
        )
    one, choice = MultipleChoice(text, tuple(how.choices), how.asks), how.choices[how.choice]
    if loaded.model.causal:
        return joined(text, question(one)), None, choice
    return text, None, question_with_choice(one, choice)
