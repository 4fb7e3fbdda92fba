"""Cleans examples as the code of Wei & Zou does before it makes variants: lowercase letters from a
to z and single spaces. That code writes the original examples in this form, too.

A text with letters of another script stays unchanged: of a Chinese text with a Latin name in it,
only the name would be left.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

from regard.core.errors import ConfigError
from regard.data.examples import Example, LabeledExample, MultipleChoice, Question


def clean_example(example: Example) -> Example:
    """Cleans an example; refuses one whose tags, answers or translations would no longer fit."""
    match example:
        case LabeledExample():
            pair = None if example.pair is None else clean_text(example.pair)
            return replace(example, text=clean_text(example.text), pair=pair)
        case MultipleChoice():
            choices = tuple(map(clean_text, example.choices))
            if len(set(choices)) < len(set(example.choices)):  # choices such as years
                choices = example.choices
            return replace(example, premise=clean_text(example.premise), choices=choices)
        case Question() if not example.answers:
            question, passage = clean_text(example.question), clean_text(example.passage)
            return replace(example, question=question, passage=passage)
    raise ConfigError(
        f"{example.place}: --clean is for texts with a label, but tags, answers and translations "
        "need the words as they are written; leave --clean out"
    )


def clean_text(text: str) -> str:
    """Cleans a text; a text of which nothing would be left stays unchanged."""
    if any(c.isalpha() and not unicodedata.name(c, "").startswith("LATIN") for c in text):
        return text
    small = text.replace("’", "").replace("'", "").lower()
    return re.sub("[^a-z]+", " ", small).strip() or text
