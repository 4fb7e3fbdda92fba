"""Checks a file of labeled data before any training: what it holds, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from regard.data.examples import Example, fingerprint
from regard.data.problems import SEVERITIES, FileLine, Problems
from regard.data.readers import ExampleReader, Given, ReaderOptions
from regard.data.tokenizer import Tokenizer
from regard.tasks import task as find
from regard.tasks.base import Task

SHARES = {"median": 0.5, "95%": 0.95, "max": 1.0}


@dataclass
class CheckReport:
    summary: dict[str, Any]
    problems: Problems

    @property
    def ok(self) -> bool:
        return not self.problems.count("error")

    def as_json(self) -> dict[str, Any]:
        kinds = [
            {"severity": severity, "kind": kind, "count": count}
            for (severity, kind), count in self.problems.ranked()
        ]
        return {
            "ok": self.ok,
            **self.summary,
            **{f"{severity}s": self.problems.count(severity) for severity in SEVERITIES},
            "kinds": kinds,
            "problems": [
                {
                    "file": problem.place.file,
                    "line": problem.place.line or None,
                    "kind": problem.kind,
                    "severity": problem.severity,
                    "message": problem.message,
                }
                for problem in self.problems.kept
            ],
        }


@dataclass
class LearnedData:
    """The labels of the training data, and a fingerprint of each of its texts."""

    data: list[str]
    labels: set[str] = field(default_factory=set)
    texts: dict[bytes, FileLine] = field(default_factory=dict)
    examples: int = 0
    errors: int = 0

    @classmethod
    def read(cls, data: Given, task: Task, options: ReaderOptions) -> LearnedData:
        reader = ExampleReader(data, task, options, Problems(keep=0))
        other = cls(reader.names)
        for example in reader:
            other.examples += 1
            other.labels.update(example.labels())
            for _, text in example.leaks():
                other.texts.setdefault(fingerprint(text), example.place)
        other.errors = reader.problems.count("error")
        return other


def length_quantiles(counts: Counter[int]) -> dict[str, int]:
    """Returns quantiles of the lengths by nearest rank, so that each is a length that occurs."""
    total, result = counts.total(), {}
    for name, share in SHARES.items():
        reached = 0
        for length in sorted(counts):
            reached += counts[length]
            if reached >= share * total:
                result[name] = length
                break
    return result


class Checker:
    """Checks a file in one pass. The task adds checks of each example and of the whole file."""

    def __init__(
        self,
        task: Task,
        reader: ExampleReader,
        other: LearnedData | None,
        measure: TokenCounter | None,
    ) -> None:
        self.task, self.reader, self.problems = task, reader, reader.problems
        self.other, self.measure = other, measure
        self.examples = self.labeled = 0
        self.labels: Counter[str] = Counter()
        self.scores: list[float] = []
        self.texts: dict[bytes, tuple[FileLine, tuple[str, ...]]] = {}
        self.lengths: dict[str, dict[str, Counter[int]]] = {}  # by part, then by unit
        self.tags: list[tuple[FileLine, tuple[str, ...]]] = []
        self.scheme: str | None = None

    def run(self) -> dict[str, Any]:
        for example in self.reader:
            self.take(example)
        self.finish()
        return self.summary()

    def take(self, example: Example) -> None:
        self.examples += 1
        self.labeled += example.labeled
        self.labels.update(example.labels())
        for part, text in example.parts():
            if part != "asks":
                units = self.lengths.setdefault(part, {"words": Counter(), "characters": Counter()})
                units["words"][len(text.split())] += 1
                units["characters"][len(text)] += 1
        self.repeated(example)
        if self.other is not None:
            self.compared(example, self.other)
        self.task.check_example(self, example)
        if self.measure is not None:
            self.measure.take(example, self.problems)

    def repeated(self, example: Example) -> None:
        key = fingerprint("\0".join(text for _, text in example.parts()))
        labels = tuple(example.labels())
        if key not in self.texts:
            self.texts[key] = example.place, labels
            return
        place, before = self.texts[key]
        message = f"the same text as {place}"
        if labels != before and not self.task.partly:
            shown = [" ".join(each)[:60] or "none" for each in (before, labels)]
            message += f", with another label ({shown[0]} there, {shown[1]} here)"
        self.problems.add(example.place, "duplicate-text", message, "warning")

    def compared(self, example: Example, other: LearnedData) -> None:
        for part, text in example.leaks():
            place = other.texts.get(fingerprint(text))
            if place is not None:
                message = f"the {part} is also at {place}"
                self.problems.add(example.place, "leaked-text", message, "warning")

    def check_known(self, example: Example) -> None:
        """Reports labels that are not in the training data, if the task learns them there."""
        if self.other is None or not self.other.labels:
            return
        for label in dict.fromkeys(example.labels()):
            if label not in self.other.labels:
                known = sorted(self.other.labels)
                some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
                data = ", ".join(self.other.data)
                message = f"the label {label!r} is never seen in {data} ({some})"
                self.problems.add(example.place, "unknown-label", message)

    def finish(self) -> None:
        """Reports the problems that concern the file as a whole."""
        whole = FileLine(", ".join(self.reader.names))
        if not self.examples:
            self.problems.add(whole, "no-examples", f"no example for {self.task.name}")
        if 0 < self.labeled < self.examples:
            missing = self.examples - self.labeled
            message = f"{missing:,} of {self.examples:,} examples have no label"
            self.problems.add(whole, "missing-label", message)
        self.task.check_whole(self, whole)

    def summary(self) -> dict[str, Any]:
        reader = self.reader
        facts: dict[str, Any] = {
            "data": reader.names,
            "task": self.task.name,
            "formats": list(dict.fromkeys(reader.forms.values())),
            "fields": reader.fields,
            "examples": self.examples,
            "labeled": self.labeled,
            "labels": dict(self.labels.most_common()),
            "lengths": {
                part: {unit: length_quantiles(counts) for unit, counts in units.items()}
                for part, units in self.lengths.items()
            },
        }
        if self.scores:
            mean = sum(self.scores) / len(self.scores)
            facts["scores"] = {"min": min(self.scores), "mean": mean, "max": max(self.scores)}
        if self.scheme is not None:
            facts["scheme"] = self.scheme
        if self.measure is not None:
            facts["model"] = self.measure.summary()
        if self.other is not None:
            facts["against"] = {
                "data": self.other.data,
                "examples": self.other.examples,
                "errors": self.other.errors,
            }
        return facts


class TokenCounter:
    """Counts tokens with the tokenizer of a model."""

    def __init__(self, directory: str, tokenizer: Tokenizer, context: int | None) -> None:
        self.directory, self.tokenizer, self.context = directory, tokenizer, context
        self.counts: Counter[int] = Counter()
        self.over = 0

    def take(self, example: Example, problems: Problems) -> None:
        count = max(len(self.tokenizer.encode(*texts)) for texts in example.inputs())
        self.counts[count] += 1
        if self.context is not None and count > self.context:
            self.over += 1
            message = f"the text has {count:,} tokens; the model reads {self.context:,}"
            problems.add(example.place, "too-long", message, "warning")

    def summary(self) -> dict[str, Any]:
        return {
            "directory": self.directory,
            "context": self.context,
            "too_long": self.over,
            "tokens": length_quantiles(self.counts),
        }


def check(
    data: Given,
    task: str,
    options: ReaderOptions | None = None,
    *,
    against: Given | None = None,
    measure: TokenCounter | None = None,
    keep: int | None = 1000,
) -> CheckReport:
    """Checks all examples of the data. `against` is the training data; `measure` counts tokens."""
    chosen = options or ReaderOptions()
    problems = Problems(keep)
    kind = find(task)
    reader = ExampleReader(data, kind, chosen, problems)
    other = None if against is None else LearnedData.read(against, kind, chosen)
    return CheckReport(Checker(kind, reader, other, measure).run(), problems)
