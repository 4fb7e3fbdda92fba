"""What an example holds, whatever its task: its texts, its labels, a fingerprint."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

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

SPACE = re.compile(r"\s+")


def inputs(example: Example) -> Iterator[tuple[str, str | None]]:
    """What a model is given at once: a text, or two."""
    match example:
        case Labelled():
            yield example.text, example.pair
        case Tagged():
            yield " ".join(example.words), None
        case Question():
            yield example.question, example.passage
        case Choice():
            for choice in example.choices:
                yield example.premise, choice
        case Pair():
            yield example.source, None
            if example.target is not None:
                yield example.target, None
        case Dialogue():
            yield "\n".join(example.turns), None
        case Preference():
            prompt = prompt_text(example)
            for reply in (example.chosen, example.rejected):
                yield f"{prompt}{reply or ''}", None


def parts(example: Example) -> Iterator[tuple[str, str]]:
    """The texts by what they are."""
    match example:
        case Labelled():
            yield "text", example.text
            if example.pair is not None:
                yield "pair", example.pair
        case Tagged():
            yield "sentence", " ".join(example.words)
        case Question():
            yield "question", example.question
            yield "passage", example.passage
        case Choice():
            yield "premise", example.premise
            if example.asks is not None:
                yield "asks", example.asks
            for choice in example.choices:
                yield "choice", choice
        case Pair():
            yield "source", example.source
            if example.target is not None:
                yield "target", example.target
        case Dialogue():
            for turn in example.turns:
                yield "turn", turn
        case Preference():
            yield "prompt", prompt_text(example)
            if example.chosen is not None and example.rejected is not None:
                yield from (("chosen", example.chosen), ("rejected", example.rejected))


def prompt_text(example: Preference) -> str:
    return example.prompt if isinstance(example.prompt, str) else "\n".join(example.prompt)


def leaks(example: Example) -> Iterator[tuple[str, str]]:
    """What must not be in both files: the input as a whole; of a pair either side; of preferences
    the prompt, if there is one.
    """
    if isinstance(example, Pair):
        yield from ((part, f"{part}\0{text}") for part, text in parts(example))
    elif isinstance(example, Preference) and example.prompt:
        yield "prompt", prompt_text(example)
    else:
        yield "text", "\0".join(text for _, text in parts(example))


def labels_of(example: Example) -> list[str]:
    match example:
        case Labelled(label=str(label)):
            return [label]
        case Tagged(tags=tuple(tags)):
            return list(tags)
        case Choice(label=int(label)):
            return [str(label)]
        case Question() if is_labelled(example):
            return ["no answer" if example.impossible else "answer"]
    return []


def is_labelled(example: Example) -> bool:
    match example:
        case Labelled() | Choice():
            return example.label is not None
        case Tagged():
            return example.tags is not None
        case Question():
            return example.impossible or bool(example.answers)
        case Pair():
            return example.target is not None
        case Preference():
            return example.chosen is not None
    return True


def fingerprint(text: str) -> bytes:
    """The same for texts that differ in white space alone."""
    plain = SPACE.sub(" ", text).strip()
    return hashlib.blake2b(plain.encode("utf-8", "replace"), digest_size=16).digest()
