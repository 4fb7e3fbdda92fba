"""What labeled data holds: an example of each kind.

An example knows what it holds: its texts, its labels, its right answer. What a task makes of it is
said in `regard.tasks`, one file a task; a task may bring a kind of example of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from regard.data.problems import NOWHERE, FileLine

SPACE = re.compile(r"\s+")


def fingerprint(text: str) -> bytes:
    """The same for texts that differ in white space alone."""
    plain = SPACE.sub(" ", text).strip()
    return hashlib.blake2b(plain.encode("utf-8", "replace"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Example:
    """What every kind of example can be asked. A kind says at least its `parts`, and either the
    field of its right answer or its `gold`.
    """

    answer_field: ClassVar[str] = ""  # holds the right answer; None where it is not known

    if TYPE_CHECKING:  # the last two fields of every kind

        @property
        def place(self) -> FileLine: ...
        @property
        def id(self) -> str: ...

    @property
    def gold(self) -> Any:
        """The right answer, as the metrics want it."""
        return getattr(self, self.answer_field)

    @property
    def labeled(self) -> bool:
        """Is the right answer known?"""
        return self.gold is not None

    def without_gold(self) -> Self:
        return replace(self, **{self.answer_field: None}) if self.answer_field else self

    def renamed(self, name: str) -> Self:
        return replace(self, id=name)  # type: ignore[call-arg]

    def labels(self) -> list[str]:
        """The classes or tags that it shows."""
        return []

    def parts(self) -> Iterator[tuple[str, str]]:
        """The texts by what they are."""
        raise NotImplementedError

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        """What a model is given at once: a text, or two."""
        first, *rest = (text for _, text in self.parts())
        yield first, rest[0] if rest else None

    def leaks(self) -> Iterator[tuple[str, str]]:
        """What must not be in both files: the input as a whole."""
        yield "text", "\0".join(text for _, text in self.parts())

    def group(self) -> str:
        """Examples of one group stay together where data are divided."""
        return "\0".join(text for _, text in self.leaks())

    def stratum(self) -> str:
        """What should be spread evenly where data are divided."""
        return next(iter(self.labels()), "")

    def asked(self) -> str:
        """All but the answer: the same for two examples that ask the same."""
        return "\0".join(text for part, text in self.parts() if part != "target")

    def texts(self) -> list[str]:
        """What is read, not what is to be answered or chosen."""
        hidden = ("target", "choice")
        return [text for part, text in self.parts() if part not in hidden and text.strip()]

    def record(self) -> Iterator[tuple[str, Any]]:
        """The values by their roles, as a file of records holds them."""
        yield from self.parts()
        if self.answer_field and self.labeled:
            yield self.answer_field, self.gold

    def shown(self) -> Any:
        """What a page shows of it, beside the right answer."""
        parts = dict(self.parts())
        return parts if len(parts) > 1 else next(iter(parts.values()))


class AnswerSpan(NamedTuple):
    """Some characters of a passage; `start` counts characters from 0."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class LabeledExample(Example):
    """A text or two with a class (a name) or a score (a number); None: without label."""

    answer_field: ClassVar[str] = "label"
    text: str
    pair: str | None = None
    label: str | float | None = None
    place: FileLine = NOWHERE
    id: str = ""

    def labels(self) -> list[str]:
        return [self.label] if isinstance(self.label, str) else []

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "text", self.text
        if self.pair is not None:
            yield "pair", self.pair


@dataclass(frozen=True, slots=True)
class TaggedExample(Example):
    """The words of a sentence and a tag for each."""

    answer_field: ClassVar[str] = "tags"
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> list[str] | None:
        return None if self.tags is None else list(self.tags)

    def labels(self) -> list[str]:
        return list(self.tags or ())

    def stratum(self) -> str:
        """Which kinds of entities a sentence holds."""
        from regard.data.tags import kinds_of

        return " ".join(sorted(kinds_of(self.tags or ())))

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "sentence", " ".join(self.words)

    def record(self) -> Iterator[tuple[str, Any]]:
        yield "words", list(self.words)
        if self.tags is not None:
            yield "tags", list(self.tags)

    def shown(self) -> Any:
        return list(self.words)


@dataclass(frozen=True, slots=True)
class Question(Example):
    """`impossible`: the passage does not answer it. No answers otherwise: they are not known."""

    question: str
    passage: str
    answers: tuple[AnswerSpan, ...] = ()
    impossible: bool = False
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> list[str]:
        """Empty where the passage does not answer it."""
        return list(dict.fromkeys(answer.text for answer in self.answers))

    @property
    def labeled(self) -> bool:
        return self.impossible or bool(self.answers)

    def without_gold(self) -> Self:
        return replace(self, answers=(), impossible=False)

    def labels(self) -> list[str]:
        return ["no answer" if self.impossible else "answer"] if self.labeled else []

    def group(self) -> str:
        return self.passage

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "question", self.question
        yield "passage", self.passage

    def record(self) -> Iterator[tuple[str, Any]]:
        yield from self.parts()
        if self.labeled:
            texts = [answer.text for answer in self.answers]
            starts = [answer.start for answer in self.answers]
            yield "answers", {"text": texts, "answer_start": starts}
            yield "impossible", self.impossible


@dataclass(frozen=True, slots=True)
class MultipleChoice(Example):
    """`asks` is what is asked of the premise, such as cause or effect; `label` counts from 0."""

    answer_field: ClassVar[str] = "label"
    premise: str
    choices: tuple[str, ...]
    asks: str | None = None
    label: int | None = None
    place: FileLine = NOWHERE
    id: str = ""

    def labels(self) -> list[str]:
        return [] if self.label is None else [str(self.label)]

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "premise", self.premise
        if self.asks is not None:
            yield "asks", self.asks
        for choice in self.choices:
            yield "choice", choice

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        for choice in self.choices:
            yield self.premise, choice

    def record(self) -> Iterator[tuple[str, Any]]:
        yield "premise", self.premise
        if self.asks is not None:
            yield "asks", self.asks
        yield "choices", list(self.choices)
        if self.label is not None:  # a number that is also a choice would be taken for the choice
            among = str(self.label) in self.choices
            yield "label", self.choices[self.label] if among else self.label

    def shown(self) -> Any:
        asks = {"asks": self.asks} if self.asks else {}
        return {"premise": self.premise, **asks, "choices": list(self.choices)}


@dataclass(frozen=True, slots=True)
class TextPair(Example):
    """A text and its translation or summary."""

    answer_field: ClassVar[str] = "target"
    source: str
    target: str | None = None
    place: FileLine = NOWHERE
    id: str = ""

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "source", self.source
        if self.target is not None:
            yield "target", self.target

    record = parts

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        yield from ((text, None) for _, text in self.parts())

    def leaks(self) -> Iterator[tuple[str, str]]:
        """Either side."""
        yield from ((part, f"{part}\0{text}") for part, text in self.parts())

    def shown(self) -> Any:
        return self.source


@dataclass(frozen=True, slots=True)
class DialogueExample(Example):
    """Turns in their order; `roles` says who speaks, where the file does."""

    turns: tuple[str, ...]
    roles: tuple[str, ...] | None = None
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> str:
        return self.turns[-1]

    def parts(self) -> Iterator[tuple[str, str]]:
        yield from (("turn", turn) for turn in self.turns)

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        yield "\n".join(self.turns), None

    def asked(self) -> str:
        return "\0".join(self.turns[:-1])

    def texts(self) -> list[str]:
        """The turns stay together."""
        return ["\n".join(self.turns)]

    def record(self) -> Iterator[tuple[str, Any]]:
        yield "turns", list(self.turns)

    def shown(self) -> Any:
        return list(self.turns[:-1])


@dataclass(frozen=True, slots=True)
class Preference(Example):
    """The reply to a prompt that people chose, and the one they rejected; without them a prompt
    alone. The prompt of a dialogue is the turns before the reply, with `roles` where known.
    """

    prompt: str | tuple[str, ...] = ""
    chosen: str | None = None
    rejected: str | None = None
    roles: tuple[str, ...] | None = None
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> int:
        return 0  # of the two replies the chosen one stands first

    @property
    def labeled(self) -> bool:
        return self.chosen is not None

    @property
    def prompt_text(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else "\n".join(self.prompt)

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "prompt", self.prompt_text
        if self.chosen is not None and self.rejected is not None:
            yield from (("chosen", self.chosen), ("rejected", self.rejected))

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        for reply in (self.chosen, self.rejected):
            yield f"{self.prompt_text}{reply or ''}", None

    def leaks(self) -> Iterator[tuple[str, str]]:
        """The prompt, if there is one."""
        if self.prompt:
            yield "prompt", self.prompt_text
        else:
            yield "text", "\0".join(text for _, text in self.parts())

    def shown(self) -> Any:
        return {"prompt": self.prompt_text, "replies": [self.chosen, self.rejected]}
