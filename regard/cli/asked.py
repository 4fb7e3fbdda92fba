"""What the commands that ask a model are given, and how its answers are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.api import WORD, tagging
from regard.cli.check import chosen
from regard.core.errors import ConfigError, InputError
from regard.data.examples import (
    Choice,
    Example,
    Labelled,
    Pair,
    Place,
    Problems,
    Question,
    Tagged,
)
from regard.data.files import TextFile, suffix_of
from regard.data.labelled import noted, of_entities
from regard.data.read_examples import Maker
from regard.data.read_fields import Fields
from regard.data.readers import BY_SUFFIX, read

READ_AS = {"embed": "classify"}  # other commands are read as the task of their name
PARTS = {  # texts of one example, in a line with tabs between them
    "classify": ("text", "pair"),
    "similar": ("text", "pair"),
    "answer": ("question", "passage"),
}
WHOLE = {"embed": "text", "translate": "source", "summarise": "source"}  # a line is one text
STDIN = "standard input"


def examples_given(
    command: str,
    texts: Sequence[str],
    file: Path | None,
    field: list[str],
    form: str | None,
    pair: str | None = None,
    asks: str | None = None,
) -> tuple[list[Any], list[str]]:
    """All examples without their right answers, and what a user should know of them."""
    if file is not None and texts:
        raise InputError("give texts or --file, not both")
    if pair is not None and len(texts) != 1:
        raise InputError(f"--pair belongs to one TEXT, and {len(texts)} were given")
    problems, fields = Problems(), chosen(field)
    task = READ_AS.get(command, command)
    found: list[Example]
    if file is not None and (form or BY_SUFFIX.get(suffix_of(file), "lines")) != "lines":
        found = read(
            str(file), task, problems=problems, fields=fields, form=form, classes=True,
            offsets=False,
        )  # fmt: skip
    else:
        make = Maker(task, Fields(task, fields), problems, classes=True, offsets=False)
        given: Iterator[tuple[Place, list[str] | dict[str, Any]]]
        given = arguments(command, texts, pair) if texts else lines_given(command, file, problems)
        made = [make(place, as_record(command, one, place, fields)) for place, one in given]
        problems.refuse()
        found = [example for example in made if example is not None]
    if asks is not None:
        found = [replace(one, asks=asks) if isinstance(one, Choice) else one for one in found]
    return [bare(example) for example in found], noted(problems)


def arguments(
    command: str, texts: Sequence[str], pair: str | None
) -> Iterator[tuple[Place, list[str] | dict[str, Any]]]:
    """The texts of each example; several commands take one example alone."""
    from regard.decoding.prompts import readable

    texts = [readable(text) for text in texts]
    if command in ("answer", "similar", "choose"):
        yield Place("the command line"), list(texts)
        return
    for number, text in enumerate(texts, 1):
        yield Place(f"text {number}"), [text] if pair is None else [text, pair]


def lines_given(
    command: str, file: Path | None, problems: Problems
) -> Iterator[tuple[Place, list[str] | dict[str, Any]]]:
    """The texts of each line, or the record that it holds."""
    if file is not None and not file.is_file():
        raise InputError(f"--file is {file}, which is no file")
    source = TextFile(file or Path(STDIN), STDIN if file is None else str(file), problems)
    for number, line in source.lines() if file is not None else standard_input(source):
        values, place = json_record(line), Place(source.name, number)
        if values is not None:
            yield place, source.mended(values, number)
        else:
            yield place, [line] if command in WHOLE or command == "tag" else line.split("\t")


def standard_input(source: TextFile) -> Iterator[tuple[int, str]]:
    if sys.stdin.isatty():
        raise InputError("TEXT is missing; give texts, --file, or lines on standard input")
    data = sys.stdin.buffer.read()  # as UTF-8, whatever the terminal speaks
    if not data.strip():
        raise InputError(f"{STDIN} is empty; give a text a line")
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        yield number, source.line(raw, number)


def json_record(line: str) -> dict[str, Any] | None:
    """None where a line is a text."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def as_record(
    command: str, given: list[str] | dict[str, Any], place: Place, fields: dict[str, str]
) -> dict[str, Any]:
    """Texts get the names of their roles, or those that --field has for them."""
    if isinstance(given, dict):
        return given
    values: dict[str, Any]
    if command == "tag":
        values = {"words": WORD.findall(given[0])}
    elif command in WHOLE:
        values = {WHOLE[command]: given[0]}
    elif command == "choose":
        if len(given) < 3:
            raise InputError(f"{place}: {len(given)} texts; give a premise and two choices or more")
        values = {"premise": given[0], "choices": given[1:]}
    else:
        roles = PARTS[command]
        if len(given) != len(roles) and (command, len(given)) != ("classify", 1):
            raise InputError(
                f"{place}: {len(given)} texts; give {' and '.join(roles)}, in a line with a tab "
                "between them"
            )
        values = dict(zip(roles, given, strict=False))
    return {fields.get(role, role): value for role, value in values.items()}


def bare(example: Example) -> Example:
    """Without its right answer, which is not asked for."""
    match example:
        case Labelled() | Choice():
            return replace(example, label=None)
        case Tagged():
            return replace(example, tags=None)
        case Question():
            return replace(example, answers=(), impossible=False)
        case Pair():
            return replace(example, target=None)
    return example


def check_pairs(examples: Sequence[Example], task: str, model: str) -> None:
    """A model that compares is given two texts."""
    for example in examples:
        if task in ("entail", "similar") and isinstance(example, Labelled) and example.pair is None:
            raise ConfigError(
                f"{example.place}: one text, and {model} has learned to compare two ({task}); give "
                "the second with --pair, or behind a tab"
            )


# -- answers


def in_line(example: Any, said: Any, labels: Sequence[str]) -> str:
    """For people: one line, whatever the answer holds."""
    value = said.value
    if isinstance(example, Tagged):
        made = tagging(example.words, said, labels)
        if of_entities(labels):
            return "\t".join(f"{e.kind}: {e.text}" for e in made.entities) or "(no entity)"
        return " ".join(f"{word}/{tag}" for word, tag in zip(made.words, made.tags, strict=True))
    if isinstance(example, Question):
        return " ".join(value.split()) or "(no answer)"
    if isinstance(example, Choice):
        value = chosen_text(example, value)
    text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if said.score is None else f"{text}\t{said.score:.4f}"


def chosen_text(example: Choice, value: int | str) -> str:
    """A model that writes its answer may have written none of them."""
    return value if isinstance(value, str) else example.choices[value]


def described(example: Any, said: Any, labels: Sequence[str]) -> dict[str, Any]:
    """For programs; what the model does not say is left out."""
    from regard.metrics.figures import jsonable

    row: dict[str, Any] = {} if example.id == str(example.place) else {"id": example.id}
    if isinstance(example, Tagged):
        made = tagging(example.words, said, labels)
        entities = [entity._asdict() for entity in made.entities]
        row |= {"words": made.words, "tags": made.tags, "entities": entities, "score": said.score}
    else:
        row |= {"value": said.value}
        row |= {"text": chosen_text(example, said.value)} if isinstance(example, Choice) else {}
        row |= {k: v for k, v in (("score", said.score), ("scores", said.scores)) if v is not None}
    result: dict[str, Any] = jsonable(row)
    return result
