"""How an example is written for a model that goes on with texts.

A template is a text with fields in braces, and its last field is the answer:

    Review: {text}\\nSentiment: {label}

A field is a name and nothing else: no attribute, no index, no format, so that nothing can be
executed. {{ and }} stand for braces. What a field holds is not read as a template.

| task | fields | answer |
| --- | --- | --- |
| classify, entail, similar | text, pair, labels (the words to choose from) | label |
| choose | premise, asks, stem (without its full stop), link (because, so) | choice, ending |
| answer | question, passage | answer |
| translate, summarise | source | target |
| converse | history (what was said, a line a turn) | reply |

An ending is a choice with a small initial, as the rest of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.examples import Choice, Dialogue, Example, Labelled, Pair, Question

LABELLED = (("text", "pair", "labels"), ("label",))
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # of a task: to read; to answer
    "classify": LABELLED,
    "entail": LABELLED,
    "similar": LABELLED,
    "choose": (("premise", "asks", "stem", "link"), ("choice", "ending")),
    "answer": (("question", "passage"), ("answer",)),
    "translate": (("source",), ("target",)),
    "summarise": (("source",), ("target",)),
    "converse": (("history",), ("reply",)),
}
LINKS = {"cause": "because", "effect": "so"}  # COPA's questions (Brown et al. 2020, appendix G)
ENTAILED = {  # and the words for them, in the order in which a prompt names them
    "entailment": "True",
    "contradiction": "False",
    "not_entailment": "False",
    "neutral": "Neither",
}
UNANSWERABLE = "unanswerable"  # the answer to a question that its passage does not answer
PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Part(NamedTuple):
    """A field, or a text that stands as it is."""

    text: str
    field: bool


class Template:
    """A template of one task, checked when it is made."""

    def __init__(self, text: str, task: str) -> None:
        if task not in FIELDS:
            raise UnknownName("task", task, FIELDS, "(tasks of a prompt)")
        self.text, self.task = text, task
        readable, answers = FIELDS[task]
        self.parts = split(text, known=(*readable, *answers), task=task)
        places = [i for i, (name, field) in enumerate(self.parts) if field and name in answers]
        if places != [len(self.parts) - 1]:
            ends = " or ".join(f"{{{name}}}" for name in answers)
            raise ConfigError(
                f"the template {text!r} must end with the answer, {ends}, and hold it once: what "
                "comes before it is what the model reads"
            )
        self.answer = self.parts[-1].text

    def context(self, values: Mapping[str, str]) -> str:
        """All that stands before the answer."""
        return "".join(values[text] if field else text for text, field in self.parts[:-1])

    def check(self, example: Example, values: Mapping[str, str]) -> None:
        """Refuses an example that lacks what the template names."""
        for name, field in self.parts[:-1]:
            if field and name not in values:
                raise InputError(
                    f"{example.place}: the example has no {name}, which the template "
                    f"{self.text!r} names; it has {', '.join(values)}"
                )


def split(text: str, known: Sequence[str], task: str) -> list[Part]:
    """The parts of a template; anything but a known name in braces is refused."""
    parts: list[Part] = []
    end = 0
    for found in PART.finditer(text):
        plain = text[end : found.start()]
        end = found.end()
        mark, name = found[0], found[1]
        if name is None and len(mark) == 1:
            raise ConfigError(
                f"the template {text!r} has a lone {mark!r} at character {found.start() + 1}; "
                f"write {mark * 2!r} for a brace that is meant as such"
            )
        if name is None:
            parts.append(Part(plain + mark[0], False))
            continue
        if name not in known:
            names = ", ".join(f"{{{each}}}" for each in known)
            raise ConfigError(
                f"the template {text!r} names {{{name}}}, which {task} does not know; its fields "
                f"are {names}"
            )
        parts += [Part(plain, False), Part(name, True)]
    parts.append(Part(text[end:], False))
    return [part for part in parts if part.text]


# -- what examples hold


def values_of(example: Example, labels: str = "") -> dict[str, str]:
    """The fields of an example that are there to be read."""
    match example:
        case Labelled():
            made = {"text": example.text, "pair": example.pair, "labels": labels}
        case Choice():
            link = LINKS.get(example.asks or "")
            stem = example.premise.rstrip().removesuffix(".")
            made = {"premise": example.premise, "asks": example.asks, "stem": stem, "link": link}
        case Question():
            made = {"question": example.question, "passage": example.passage}
        case Pair():
            made = {"source": example.source}
        case Dialogue():
            made = {"history": "\n".join(example.turns[:-1])}
        case _:
            made = {}
    return {name: value for name, value in made.items() if value is not None}


def answer_of(example: Example, template: Template, words: Mapping[str, str]) -> str:
    """The right answer, as a demonstration writes it; the example must have one."""
    match example:
        case Labelled(label=str(label)):
            return words[label]
        case Choice(label=int(label)):
            return alternatives(example, template)[label]
        case Question():
            return example.answers[0].text if example.answers else UNANSWERABLE
        case Pair(target=str(target)):
            return target
        case Dialogue():
            return example.turns[-1]
    raise InputError(f"{example.place}: the example has no answer, so nothing can be shown by it")


def alternatives(example: Choice, template: Template) -> list[str]:
    if template.answer == "choice":
        return list(example.choices)
    return [lowered(choice) for choice in example.choices]


def lowered(text: str) -> str:
    """As the rest of a sentence: with a small initial, but for "I"."""
    if re.match(r"I\b", text):
        return text
    return text[:1].lower() + text[1:]


# -- what is done unless asked otherwise


def usual_template(task: str, examples: Sequence[Example]) -> str:
    """The published forms where there are some.

    translate, answer and summarise are GPT-2's (Radford et al. 2019, 3.5 to 3.8), entail is GPT-3's
    for ANLI and RTE, choose is GPT-3's for COPA, Story Cloze and HellaSwag (Brown et al. 2020,
    appendix G); classify and similar take the form of entail.
    """
    if task not in FIELDS:
        raise UnknownName("task", task, FIELDS, "(tasks of a prompt)")
    if task == "choose":
        asks = {e.asks for e in examples if isinstance(e, Choice)}
        if asks <= set(LINKS):
            return "{stem} {link} {ending}"
        return "{premise} {choice}" if None in asks else "{premise}\nQ: {asks}\nA: {choice}"
    paired = all(isinstance(e, Labelled) and e.pair is not None for e in examples)
    return {
        "classify": "{text}\n" + "{pair}\n" * paired + "Question: {labels}?\nAnswer: {label}",
        "entail": "{text}\nQuestion: {pair} {labels}?\nAnswer: {label}",
        "similar": "{text}\n{pair}\nQuestion: {labels}?\nAnswer: {label}",
        "answer": "{passage}\nQ: {question}\nA: {answer}",
        "translate": "{source} = {target}",
        "summarise": "{source}\nTL;DR: {target}",
        "converse": "{history}\n{reply}",
    }[task]


def usual_separator(template: str) -> str:
    """Between demonstrations: one line break, two where each has lines of its own."""
    return "\n\n" if "\n" in template else "\n"


def usual_neutral(template: Template) -> str:
    """A context that asks for an answer and says nothing else (Brown et al. 2020, 2.4)."""
    return "A:" if template.text.endswith(f"A: {{{template.answer}}}") else "Answer:"


def words_for(task: str, labels: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """A word for each label: as chosen, GPT-3's for entailment, or the label itself."""
    for label, word in chosen.items():
        if label not in labels:
            raise UnknownName("label", label, labels, "(labels of the data)")
        if not word.strip():
            raise ConfigError(f"the word for the label {label!r} is empty; give a visible one")
    order = list(labels)
    made = {label: label for label in order}
    if task == "entail" and all(label.lower() in ENTAILED for label in order):
        order.sort(key=lambda label: list(ENTAILED).index(label.lower()))
        made = {label: ENTAILED[label.lower()] for label in order}
    made |= chosen
    for label in order:
        same = [other for other in order if made[other].strip() == made[label].strip()]
        if len(same) > 1:
            raise ConfigError(
                f"the labels {' and '.join(map(repr, same))} have the same word "
                f"{made[label]!r}; give each its own with --label LABEL=WORD"
            )
    return made


def listed(words: Sequence[str]) -> str:
    """A, B, or C."""
    if len(words) < 3:
        return " or ".join(words)
    return f"{', '.join(words[:-1])}, or {words[-1]}"
