"""Examples as the code of Wei & Zou prepares them, before any variant is made: small letters from a
to z and single spaces. It writes the originals so, too.

A text with letters of another script stays as it is: of Chinese with a name in it the name alone
would be left.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

from regard.core.errors import ConfigError
from regard.data.examples import Example, LabeledExample, MultipleChoice, Question


def clean_example(example: Example) -> Example:
    """Refuses those whose tags, answers or translations would no longer fit."""
    match example:
        case LabeledExample():
            pair = None if example.pair is None else clean_text(example.pair)
            return replace(example, text=clean_text(example.text), pair=pair)
        case MultipleChoice():
            choices = tuple(map(clean_text, example.choices))
            if len(set(choices)) < len(set(example.choices)):  # such as years
                choices = example.choices
            return replace(example, premise=clean_text(example.premise), choices=choices)
        case Question() if not example.answers:
            question, passage = clean_text(example.question), clean_text(example.passage)
            return replace(example, question=question, passage=passage)
    raise ConfigError(
        f"{example.place}: --clean is for texts with a label; tags, answers and translations are "
        "about the words as they are written: leave it out"
    )


def clean_text(text: str) -> str:
    """A text of which nothing would be left stays."""
    if any(c.isalpha() and not unicodedata.name(c, "").startswith("LATIN") for c in text):
        return text
    small = text.replace("’", "").replace("'", "").lower()
    return re.sub("[^a-z]+", " ", small).strip() or text
