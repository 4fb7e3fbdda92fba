"""What labelled data holds: an example of each kind of task, and what can be wrong with a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from regard.core.errors import InputError, UnknownName


class Place(NamedTuple):
    """A line of a file, counted from 1; line 0 is the file as a whole."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Place()


class Answer(NamedTuple):
    """Some characters of a passage; `start` counts characters from 0."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text or two with a class (a name) or a score (a number); None: without label."""

    text: str
    pair: str | None = None
    label: str | float | None = None
    place: Place = NOWHERE
    id: str = ""


@dataclass(frozen=True, slots=True)
class Tagged:
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    place: Place = NOWHERE
    id: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """`impossible`: the passage does not answer it. No answers otherwise: they are not known."""

    question: str
    passage: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False
    place: Place = NOWHERE
    id: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """`asks` is what is asked of the premise, such as cause or effect; `label` counts from 0."""

    premise: str
    choices: tuple[str, ...]
    asks: str | None = None
    label: int | None = None
    place: Place = NOWHERE
    id: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A text and its translation or summary."""

    source: str
    target: str | None = None
    place: Place = NOWHERE
    id: str = ""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Turns in their order; `roles` says who speaks, where the file does."""

    turns: tuple[str, ...]
    roles: tuple[str, ...] | None = None
    place: Place = NOWHERE
    id: str = ""


@dataclass(frozen=True, slots=True)
class Preference:
    """The reply to a prompt that people chose, and the one they rejected; without them a prompt
    alone. The prompt of a dialogue is the turns before the reply, with `roles` where known.
    """

    prompt: str | tuple[str, ...] = ""
    chosen: str | None = None
    rejected: str | None = None
    roles: tuple[str, ...] | None = None
    place: Place = NOWHERE
    id: str = ""


Example: TypeAlias = Labelled | Tagged | Question | Choice | Pair | Dialogue | Preference

TASKS: dict[str, type[Example]] = {
    "classify": Labelled,
    "entail": Labelled,
    "similar": Labelled,
    "tag": Tagged,
    "answer": Question,
    "choose": Choice,
    "translate": Pair,
    "summarise": Pair,
    "converse": Dialogue,
    "prefer": Preference,
}

KINDS = {
    "malformed-record": "lines that are no record of this format",
    "missing-field": "records without a field that the task needs",
    "wrong-type": "fields that hold something else than the task needs",
    "empty-text": "texts without a visible character",
    "missing-label": "records without a label in a file with labels",
    "ragged-line": "lines with another number of columns, or words and tags that do not match",
    "tag-sequence": "tags that cannot follow one another",
    "answer-offset": "answers that are not where their offset says",
    "contradiction": "facts of one record that exclude each other",
    "not-a-number": "scores that are no numbers",
    "label-range": "labels that point to no choice",
    "uneven-choices": "questions with another number of choices than the first",
    "short-dialogue": "dialogues in which nobody replies",
    "equal-replies": "pairs whose chosen and rejected replies are the same",
    "unequal-files": "parallel files of different length",
    "duplicate-id": "ids that occur twice",
    "duplicate-text": "texts that occur twice",
    "leaked-text": "texts that the other file holds as well",
    "unknown-label": "labels that the other file never shows",
    "single-class": "data of one class",
    "imbalance": "classes of very different size",
    "too-long": "texts longer than the model's context",
    "broken-utf8": "bytes that are no UTF-8",
    "blank-line": "lines without content",
    "no-header": "tables whose first line names no known field",
    "no-examples": "data without a single example",
}
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error leaves its record out; a warning or a note is about an example that is kept."""

    place: Place
    kind: str
    message: str
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass
class Problems:
    """Collects what is wrong, so that all of it is seen at once.

    Counts are exact. Of each kind and severity only the first `keep` are kept (None: all), so that
    a file in which every line is wrong costs no more memory than another.
    """

    keep: int | None = 1000
    kept: list[Problem] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by severity and kind

    def add(self, place: Place, kind: str, message: str, severity: str = "error") -> None:
        assert kind in KINDS and severity in SEVERITIES, (kind, severity)
        self.counts[severity, kind] += 1
        if self.keep is None or self.counts[severity, kind] <= self.keep:
            self.kept.append(Problem(place, kind, message, severity))

    def count(self, severity: str) -> int:
        return sum(count for (found, _), count in self.counts.items() if found == severity)

    def of(self, severity: str, kind: str) -> list[Problem]:
        return [p for p in self.kept if (p.severity, p.kind) == (severity, kind)]

    def refuse(self, skip: Collection[str] = (), shown: int = 10) -> None:
        """Raises if there is an error of a kind that is not to be skipped."""
        for kind in skip:
            if kind not in KINDS:
                raise UnknownName("kind of problem", kind, KINDS)
        counts = {k: n for (s, k), n in self.counts.items() if s == "error" and k not in skip}
        if not counts:
            return
        found = [p for p in self.kept if p.severity == "error" and p.kind in counts]
        total = sum(counts.values())
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in counts.items())
        lines = [f"the data has {total:,} error{'s' if total > 1 else ''} ({kinds}):"]
        lines += [f"  {problem}" for problem in found[:shown]]
        if total > shown:
            lines.append(f"  and {total - shown:,} more; `regard check` lists them")
        raise InputError("\n".join(lines))
