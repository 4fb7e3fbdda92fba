"""The task `entail`: the class of a premise and a hypothesis. It is learned and measured as
`classify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.data.read_fields import BadRecord, FieldRecord
from regard.tasks.classify import LabeledText

WORDS = {  # GPT-3's words, in the order of its prompt (Brown et al. 2020, appendix G)
    "entailment": "True",
    "contradiction": "False",
    "not_entailment": "False",
    "neutral": "Neither",
}


class Entail(LabeledText):
    name = "entail"
    pseudo = True
    asked_as = ("classify",)
    # T5 reads "mnli hypothesis: B premise: A" and writes the label, as in the code of its authors.
    # `TextTask.source` in classify.py joins them; a recipe sets another prefix: examples.prefix.
    prefix = "mnli "
    sides = ("premise", "hypothesis")
    second_first = True

    def label_of(self, value: Any, record: FieldRecord) -> str | float:
        if value == "-":
            raise BadRecord("missing-label", "the label is '-': the annotators did not agree")
        return super().label_of(value, record)

    def template(self, examples: Sequence[Any]) -> str:
        """Returns the template of prompts. See `prefix` for the text that T5 reads."""
        return "{text}\nQuestion: {pair} {labels}?\nAnswer: {label}"

    def prompt_words(self, labels: Sequence[str]) -> dict[str, str]:
        if not all(label.lower() in WORDS for label in labels):
            return super().prompt_words(labels)
        order = sorted(labels, key=lambda label: list(WORDS).index(label.lower()))
        return {label: WORDS[label.lower()] for label in order}


TASK = Entail()
