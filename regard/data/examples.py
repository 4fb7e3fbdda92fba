"""The kinds of labeled examples.

An example knows its texts, its labels and its gold answer. `regard.tasks` (one file per task) says
what a task does with it; a task may define its own kind of example.
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
    """Returns a hash that is equal for texts that differ only in white space."""
    plain = SPACE.sub(" ", text).strip()
    return hashlib.blake2b(plain.encode("utf-8", "replace"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Example:
    """The interface of every kind of example. A subclass defines at least its `parts`, and either
    the field of its gold answer or `gold` itself."""

    answer_field: ClassVar[str] = ""  # the field of the gold answer, which is None if unknown

    if TYPE_CHECKING:  # the last two fields of every kind

        @property
        def place(self) -> FileLine: ...
        @property
        def id(self) -> str: ...

    @property
    def gold(self) -> Any:
        """The gold answer, in the form the metrics expect."""
        return getattr(self, self.answer_field)

    @property
    def labeled(self) -> bool:
        """Whether the gold answer is known."""
        return self.gold is not None

    def without_gold(self) -> Self:
        return replace(self, **{self.answer_field: None}) if self.answer_field else self

    def renamed(self, name: str) -> Self:
        return replace(self, id=name)  # type: ignore[call-arg]

    def labels(self) -> list[str]:
        """Returns the classes or tags that the example has."""
        return []

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yields the example's texts as (role, text)."""
        raise NotImplementedError

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        """Yields each input of the model: one text, or a pair of texts."""
        first, *rest = (text for _, text in self.parts())
        yield first, rest[0] if rest else None

    def leaks(self) -> Iterator[tuple[str, str]]:
        """Yields the texts that must not be in both splits; by default the whole input."""
        yield "text", "\0".join(text for _, text in self.parts())

    def group(self) -> str:
        """Returns the example's group; examples of one group stay in the same split."""
        return "\0".join(text for _, text in self.leaks())

    def stratum(self) -> str:
        """Returns the value that a split of the data should spread evenly (stratification)."""
        return next(iter(self.labels()), "")

    def asked(self) -> str:
        """Returns all texts but the answer; equal for two examples that ask the same question."""
        return "\0".join(text for part, text in self.parts() if part != "target")

    def texts(self) -> list[str]:
        """Returns the texts that are read, without targets and choices."""
        hidden = ("target", "choice")
        return [text for part, text in self.parts() if part not in hidden and text.strip()]

    def record(self) -> Iterator[tuple[str, Any]]:
        """Yields (role, value) pairs as a file of records holds them."""
        yield from self.parts()
        if self.answer_field and self.labeled:
            yield self.answer_field, self.gold

    def shown(self) -> Any:
        """Returns what a page shows of the example beside its gold answer."""
        parts = dict(self.parts())
        return parts if len(parts) > 1 else next(iter(parts.values()))


class AnswerSpan(NamedTuple):
    """An answer inside a passage; `start` is the index of its first character, counted from 0."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class LabeledExample(Example):
    """One or two texts with a class (a name) or a score (a number); None if there is no label."""

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
    """The words of a sentence and one tag for each word."""

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
        """Returns the kinds of entities in the sentence."""
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
    """A question about a passage. `impossible` says that the passage does not answer it; otherwise,
    an empty `answers` means that the answers are not known."""

    question: str
    passage: str
    answers: tuple[AnswerSpan, ...] = ()
    impossible: bool = False
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> list[str]:
        """The texts of the accepted answers; empty if the passage does not answer the question."""
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
    """A premise with several choices. `asks` is the question about the premise, such as cause or
    effect; `label` is the index of the right choice, counted from 0."""

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
        if self.label is not None:  # a number that is also a choice would be read as that choice
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
        """Yields source and target: neither may be in both splits."""
        yield from ((part, f"{part}\0{text}") for part, text in self.parts())

    def shown(self) -> Any:
        return self.source


@dataclass(frozen=True, slots=True)
class DialogueExample(Example):
    """The turns of a dialogue in order; `roles` names the speakers if the file does."""

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
        """Returns all turns as one text."""
        return ["\n".join(self.turns)]

    def record(self) -> Iterator[tuple[str, Any]]:
        yield "turns", list(self.turns)

    def shown(self) -> Any:
        return list(self.turns[:-1])


@dataclass(frozen=True, slots=True)
class Preference(Example):
    """A prompt with the reply that people chose and the reply they rejected; without replies it is
    a prompt alone. The prompt of a dialogue is the turns before the reply, with `roles` if known.
    """

    prompt: str | tuple[str, ...] = ""
    chosen: str | None = None
    rejected: str | None = None
    roles: tuple[str, ...] | None = None
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> int:
        return 0  # the chosen reply comes first

    @property
    def labeled(self) -> bool:
        return self.chosen is not None and self.rejected is not None

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
        """Yields the prompt if there is one, else the whole input."""
        if self.prompt:
            yield "prompt", self.prompt_text
        else:
            yield "text", "\0".join(text for _, text in self.parts())

    def shown(self) -> Any:
        return {"prompt": self.prompt_text, "replies": [self.chosen, self.rejected]}
