"""How an example is written as a prompt, for a model that continues texts.

A template is a text with fields in braces, and its last field is the answer:

    Review: {text}\\nSentiment: {label}

A field is a name and nothing else: it has no attribute, index or format, so that nothing can be
executed. {{ and }} stand for braces. The text of a field is not read as a template.

| task | fields | answer |
| --- | --- | --- |
| classify, entail, similar | text, pair, labels (the words to choose from) | label |
| choose | premise, asks, stem (without its full stop), link (because, so) | choice, ending |
| answer | question, passage | answer |
| translate, summarize | source | target |
| converse | history (what was said, a line a turn) | reply |

An ending is a choice that starts with a small letter, as the rest of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.examples import Example
from regard.tasks import TASKS
from regard.tasks import task as find
from regard.tasks.base import Task

PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class TemplatePart(NamedTuple):
    """A field of a template, or a literal text."""

    text: str
    field: bool


class Template:
    """A template of one task. It is checked when it is built."""

    def __init__(self, text: str, task: Task) -> None:
        self.text, self.task, answers = text, prompted(task), task.answer_fields
        self.parts = split(text, known=(*task.fields, *answers), task=task.name)
        places = [i for i, (name, field) in enumerate(self.parts) if field and name in answers]
        if places != [len(self.parts) - 1]:
            ends = " or ".join(f"{{{name}}}" for name in answers)
            raise ConfigError(
                f"the template {text!r} must end with the answer, {ends}, and hold it once: what "
                "comes before it is what the model reads"
            )
        self.answer = self.parts[-1].text

    def context(self, values: Mapping[str, str]) -> str:
        """Returns the text before the answer."""
        return "".join(values[text] if field else text for text, field in self.parts[:-1])

    def check(self, example: Example, values: Mapping[str, str]) -> None:
        """Refuses an example that lacks a field of the template."""
        for name, field in self.parts[:-1]:
            if field and name not in values:
                raise InputError(
                    f"{example.place}: the example has no {name}, which the template "
                    f"{self.text!r} names; it has {', '.join(values)}"
                )


def split(text: str, known: Sequence[str], task: str) -> list[TemplatePart]:
    """Splits a template into its parts. Refuses anything but a known name in braces."""
    parts: list[TemplatePart] = []
    end = 0
    for match in PART.finditer(text):
        plain = text[end : match.start()]
        end = match.end()
        mark, name = match[0], match[1]
        if name is None and len(mark) == 1:
            raise ConfigError(
                f"the template {text!r} has a lone {mark!r} at character {match.start() + 1}; "
                f"write {mark * 2!r} for a brace that is meant as such"
            )
        if name is None:
            parts.append(TemplatePart(plain + mark[0], False))
            continue
        if name not in known:
            names = ", ".join(f"{{{each}}}" for each in known)
            raise ConfigError(
                f"the template {text!r} names {{{name}}}, which {task} does not know; its fields "
                f"are {names}"
            )
        parts += [TemplatePart(plain, False), TemplatePart(name, True)]
    parts.append(TemplatePart(text[end:], False))
    return [part for part in parts if part.text]


def prompted(task: Task) -> Task:
    """Returns the task. Refuses a task that has no prompt."""
    if not task.answer_fields:
        able = [name for name in TASKS if find(name).answer_fields]
        raise UnknownName("task", task.name, able, "(tasks of a prompt)")
    return task


# -- the words of labels


def words_for(task: Task, labels: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns a word for each label: the chosen one, or the word of the task."""
    for label, word in chosen.items():
        if label not in labels:
            raise UnknownName("label", label, labels, "(labels of the data)")
        if not word.strip():
            raise ConfigError(f"the word for the label {label!r} is empty; give a visible one")
    words = task.prompt_words(labels)
    order = list(words)
    words |= chosen
    for label in order:
        same = [other for other in order if words[other].strip() == words[label].strip()]
        if len(same) > 1:
            raise ConfigError(
                f"the labels {' and '.join(map(repr, same))} have the same word "
                f"{words[label]!r}; give each its own with --verbalizer LABEL=WORD"
            )
    return words


def listed(words: Sequence[str]) -> str:
    """Joins words as in "A, B, or C"."""
    if len(words) < 3:
        return " or ".join(words)
    return f"{', '.join(words[:-1])}, or {words[-1]}"
