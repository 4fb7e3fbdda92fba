"""The kinds of problems that labeled data can have, and where they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.core.errors import InputError, UnknownName


class FileLine(NamedTuple):
    """A line of a file, counted from 1; line 0 means the file as a whole."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = FileLine()

KINDS = {
    "malformed-record": "lines that are not a record of this format",
    "missing-field": "records without a field that the task needs",
    "wrong-type": "fields whose type is not what the task needs",
    "empty-text": "texts without a visible character",
    "missing-label": "records without a label in a file with labels",
    "ragged-line": "lines with a different number of columns, or with unequal words and tags",
    "tag-sequence": "tags that cannot follow one another",
    "answer-offset": "answers that are not at their offset",
    "contradiction": "facts of one record that exclude each other",
    "not-a-number": "scores that are not numbers",
    "label-range": "labels that point to no choice",
    "uneven-choices": "questions with a different number of choices than the first",
    "short-dialogue": "dialogues in which nobody replies",
    "equal-replies": "pairs whose chosen and rejected replies are the same",
    "unequal-files": "parallel files of different length",
    "duplicate-id": "ids that occur twice",
    "duplicate-text": "texts that occur twice",
    "leaked-text": "texts that are in the other file as well",
    "unknown-label": "labels that are not in the other file",
    "single-class": "data with only one class",
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
    """A problem of a record. An error drops its record; a warning or a note does not."""

    place: FileLine
    kind: str
    message: str
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass
class Problems:
    """Collects the problems of the data, so that a reader sees all of them at once.

    Counts are exact. Only the first `keep` problems of each kind and severity are stored (None:
    all), so that a file in which every line is wrong costs no more memory than another.
    """

    keep: int | None = 1000
    kept: list[Problem] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by severity and kind

    def add(self, place: FileLine, kind: str, message: str, severity: str = "error") -> None:
        assert kind in KINDS and severity in SEVERITIES, (kind, severity)
        self.counts[severity, kind] += 1
        if self.keep is None or self.counts[severity, kind] <= self.keep:
            self.kept.append(Problem(place, kind, message, severity))

    def count(self, severity: str) -> int:
        return sum(count for (each, _), count in self.counts.items() if each == severity)

    def ranked(self) -> list[tuple[tuple[str, str], int]]:
        """Returns kinds and counts, the most severe first, then the most frequent."""
        return sorted(
            self.counts.items(), key=lambda item: (SEVERITIES.index(item[0][0]), -item[1])
        )

    def notes(self, split: str = "") -> list[str]:
        """Returns one line for each kind of problem that the reader did not refuse."""
        lines, where = [], f" of the {split} data" if split else ""
        for (severity, kind), count in self.ranked():
            if severity == "error":
                lines.append(
                    f"{count:,} records were left out{where}: {kind} (as --skip {kind} asks)"
                )
            else:
                first = self.of(severity, kind)[0]
                lines.append(f"{KINDS[kind]} ({kind}): {count:,}, the first is {first}")
        return lines

    def of(self, severity: str, kind: str) -> list[Problem]:
        return [p for p in self.kept if (p.severity, p.kind) == (severity, kind)]

    def refuse(self, skip: Collection[str] = (), shown: int = 10) -> None:
        """Raises an error if there is an error of a kind that is not in `skip`."""
        for kind in skip:
            if kind not in KINDS:
                raise UnknownName("kind of problem", kind, KINDS)
        counts = {k: n for (s, k), n in self.counts.items() if s == "error" and k not in skip}
        if not counts:
            return
        errors = [p for p in self.kept if p.severity == "error" and p.kind in counts]
        total = sum(counts.values())
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in counts.items())
        lines = [f"the data has {total:,} error{'s' if total > 1 else ''} ({kinds}):"]
        lines += [f"  {problem}" for problem in errors[:shown]]
        if total > shown:
            lines.append(f"  and {total - shown:,} more; `regard check` lists them")
        raise InputError("\n".join(lines))
