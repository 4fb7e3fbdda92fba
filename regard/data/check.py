"""What a file of labelled data holds and what is wrong with it, before any training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from regard.core.errors import InputError
from regard.data.example_views import fingerprint, inputs, is_labelled, labels_of, leaks, parts
from regard.data.examples import (
    SEVERITIES,
    Choice,
    Example,
    Labelled,
    Place,
    Preference,
    Problem,
    Problems,
    Tagged,
)
from regard.data.readers import Given, Options, Reader
from regard.data.tokenizer import Tokenizer

IMBALANCE = 10  # so many times larger than the smallest class
SHARES = {"median": 0.5, "95%": 0.95, "max": 1.0}
ENTITY = re.compile("[BIESLU]-.")


@dataclass
class Report:
    summary: dict[str, Any]
    problems: Problems

    @property
    def ok(self) -> bool:
        return not self.problems.count("error")

    def as_json(self) -> dict[str, Any]:
        kinds = [
            {"severity": severity, "kind": kind, "count": count}
            for (severity, kind), count in ranked(self.problems)
        ]
        return {
            "ok": self.ok,
            **self.summary,
            **{f"{severity}s": self.problems.count(severity) for severity in SEVERITIES},
            "kinds": kinds,
            "problems": [described(problem) for problem in self.problems.kept],
        }


def described(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.place.file,
        "line": problem.place.line or None,
        "kind": problem.kind,
        "severity": problem.severity,
        "message": problem.message,
    }


def ranked(problems: Problems) -> list[tuple[tuple[str, str], int]]:
    """The worst first, then the most."""
    return sorted(
        problems.counts.items(), key=lambda item: (SEVERITIES.index(item[0][0]), -item[1])
    )


@dataclass
class Other:
    """What is known of the data learned from: labels, and a fingerprint of each text."""

    data: list[str]
    labels: set[str] = field(default_factory=set)
    texts: dict[bytes, Place] = field(default_factory=dict)
    examples: int = 0
    errors: int = 0

    @classmethod
    def read(cls, given: Given, task: str, options: Options) -> Other:
        reader = Reader(given, task, options, Problems(keep=0))
        other = cls(reader.names)
        for example in reader:
            other.examples += 1
            other.labels.update(labels_of(example))
            for _, text in leaks(example):
                other.texts.setdefault(fingerprint(text), example.place)
        other.errors = reader.problems.count("error")
        return other


class Lengths:
    """How often each length occurs: the exact figures in little memory."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Counter[int]]] = {}

    def add(self, part: str, text: str) -> None:
        units = self.counts.setdefault(part, {"words": Counter(), "characters": Counter()})
        units["words"][len(text.split())] += 1
        units["characters"][len(text)] += 1

    def figures(self) -> dict[str, dict[str, dict[str, int]]]:
        return {
            part: {unit: figures(counts) for unit, counts in units.items()}
            for part, units in self.counts.items()
        }


def figures(counts: Counter[int]) -> dict[str, int]:
    """Nearest rank: a length that occurs, such that a share of all is no longer."""
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
    """One pass over the examples of a file."""

    def __init__(self, reader: Reader, other: Other | None, measure: Measure | None) -> None:
        self.reader, self.problems = reader, reader.problems
        self.other, self.measure = other, measure
        self.examples = self.labelled = 0
        self.labels: Counter[str] = Counter()
        self.scores: list[float] = []
        self.texts: dict[bytes, tuple[Place, tuple[str, ...]]] = {}
        self.lengths = Lengths()
        self.tags: list[tuple[Place, tuple[str, ...]]] = []
        self.scheme: str | None = None

    def run(self) -> dict[str, Any]:
        for example in self.reader:
            self.take(example)
        self.finish()
        return self.summary()

    def take(self, example: Example) -> None:
        self.examples += 1
        found = labels_of(example)
        self.labelled += is_labelled(example)
        self.labels.update(found)
        if isinstance(example, Labelled) and isinstance(example.label, float):
            self.scores.append(example.label)
        if isinstance(example, Tagged) and example.tags is not None:
            self.tags.append((example.place, example.tags))
        for part, text in parts(example):
            if part != "asks":
                self.lengths.add(part, text)
        self.repeated(example, tuple(found))
        if isinstance(example, Preference) and example.chosen is not None:
            self.turned(example)
        if self.other is not None:
            self.compared(example, found, self.other)
        if self.measure is not None:
            self.measure.take(example, self.problems)

    def repeated(self, example: Example, labels: tuple[str, ...]) -> None:
        print_ = fingerprint("\0".join(text for _, text in parts(example)))
        if print_ not in self.texts:
            self.texts[print_] = example.place, labels
            return
        place, before = self.texts[print_]
        message = f"the same text as {place}"
        if isinstance(example, Labelled | Choice | Tagged) and labels != before:
            told = [" ".join(each) or "none" for each in (before, labels)]
            message += f", with another label ({told[0][:60]} there, {told[1][:60]} here)"
        self.problems.add(example.place, "duplicate-text", message, "warning")

    def turned(self, example: Preference) -> None:
        """The same pair the other way round?"""
        other = replace(example, chosen=example.rejected, rejected=example.chosen)
        print_ = fingerprint("\0".join(text for _, text in parts(other)))
        if print_ in self.texts:
            message = f"{self.texts[print_][0]} chose what is rejected here"
            self.problems.add(example.place, "contradiction", message, "warning")

    def compared(self, example: Example, labels: list[str], other: Other) -> None:
        for part, text in leaks(example):
            place = other.texts.get(fingerprint(text))
            if place is not None:
                message = f"the {part} is also at {place}"
                self.problems.add(example.place, "leaked-text", message, "warning")
        if isinstance(example, Labelled | Tagged) and other.labels:
            for label in dict.fromkeys(labels):
                if label not in other.labels:
                    known = sorted(other.labels)
                    some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
                    self.problems.add(
                        example.place,
                        "unknown-label",
                        f"the label {label!r} is never seen in {', '.join(other.data)} ({some})",
                    )

    def finish(self) -> None:
        """What can only be said of the file as a whole."""
        whole = Place(", ".join(self.reader.names))
        if not self.examples:
            message = f"no example for {self.reader.task}"
            self.problems.add(whole, "no-examples", message)
        if 0 < self.labelled < self.examples:
            missing = self.examples - self.labelled
            message = f"{missing:,} of {self.examples:,} examples have no label"
            self.problems.add(whole, "missing-label", message)
        if self.reader.task in ("classify", "entail") or self.reader.options.classes:
            self.balance(whole)
        if any(ENTITY.match(tag) for tag in self.labels) and self.tags:
            self.sequences(whole)

    def balance(self, whole: Place) -> None:
        ordered = self.labels.most_common()
        if len(ordered) == 1:
            self.problems.add(
                whole,
                "single-class",
                f"every label is {ordered[0][0]!r}; a classifier needs two classes",
                "error" if self.other is None else "warning",
            )
        elif ordered and ordered[0][1] >= IMBALANCE * ordered[-1][1]:
            (most, many), (least, few) = ordered[0], ordered[-1]
            self.problems.add(
                whole,
                "imbalance",
                f"{many:,} of {most!r} but {few:,} of {least!r}; accuracy hides the small class, "
                "so look at F1, and consider class weights",
                "note",
            )

    def sequences(self, whole: Place) -> None:
        """BIO and its kin; other tags, such as parts of speech, may follow one another freely."""
        from regard.data import tags as sequences

        try:
            self.scheme = sequences.detect(tags for _, tags in self.tags)
        except InputError as error:
            self.problems.add(whole, "tag-sequence", str(error))
            return
        for place, tags in self.tags:
            for wrong in sequences.problems(tags, self.scheme):
                try:
                    repaired = sequences.repair(tags, self.scheme)
                except InputError:
                    told, severity = "it cannot be repaired", "error"
                else:
                    told, severity = f"repaired: {changes(tags, repaired)}", "warning"
                word = f"word {min(wrong.place, len(tags) - 1) + 1}"
                self.problems.add(
                    place, "tag-sequence", f"{word}: {wrong.message}; {told}", severity
                )

    def summary(self) -> dict[str, Any]:
        reader = self.reader
        found: dict[str, Any] = {
            "data": reader.names,
            "task": reader.task,
            "formats": list(dict.fromkeys(reader.forms.values())),
            "fields": reader.fields,
            "examples": self.examples,
            "labelled": self.labelled,
            "labels": dict(self.labels.most_common()),
            "lengths": self.lengths.figures(),
        }
        if self.scores:
            mean = sum(self.scores) / len(self.scores)
            found["scores"] = {"min": min(self.scores), "mean": mean, "max": max(self.scores)}
        if self.scheme is not None:
            found["scheme"] = self.scheme
        if self.measure is not None:
            found["model"] = self.measure.summary()
        if self.other is not None:
            found["against"] = {
                "data": self.other.data,
                "examples": self.other.examples,
                "errors": self.other.errors,
            }
        return found


def changes(before: Iterable[str], after: Iterable[str]) -> str:
    both = enumerate(zip(before, after, strict=True), 1)
    changed = [f"word {i} becomes {new} instead of {old}" for i, (old, new) in both if old != new]
    return ", ".join(changed[:5]) + (", …" if len(changed) > 5 else "")


class Measure:
    """Counts tokens as a model would see them."""

    def __init__(self, directory: str, tokenizer: Tokenizer, context: int | None) -> None:
        self.directory, self.tokenizer, self.context = directory, tokenizer, context
        self.counts: Counter[int] = Counter()
        self.over = 0

    def take(self, example: Example, problems: Problems) -> None:
        count = max(len(self.tokenizer.encode(*texts)) for texts in inputs(example))
        self.counts[count] += 1
        if self.context is not None and count > self.context:
            self.over += 1
            message = f"{count:,} tokens; the model reads {self.context:,}"
            problems.add(example.place, "too-long", message, "warning")

    def summary(self) -> dict[str, Any]:
        return {
            "directory": self.directory,
            "context": self.context,
            "too_long": self.over,
            "tokens": figures(self.counts),
        }


def check(
    given: Given,
    task: str,
    options: Options | None = None,
    *,
    against: Given | None = None,
    measure: Measure | None = None,
    keep: int | None = 1000,
) -> Report:
    """Reads everything once. `against` is the data learned from; `measure` counts tokens."""
    chosen = options or Options()
    problems = Problems(keep)
    reader = Reader(given, task, chosen, problems)
    other = None if against is None else Other.read(against, task, chosen)
    return Report(Checker(reader, other, measure).run(), problems)
