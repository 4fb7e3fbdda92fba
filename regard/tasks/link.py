"""The task `link` (entity linking): the model decides which entity a mention in a text means.

Each candidate is one row with one score, and a softmax runs over the candidates, of which there may
be any number (as the cross-encoder of Wu et al. 2020, 3.3). A candidate is a name with a
description. It comes with the record, or from a knowledge graph (objective.graph): then all
entities whose name holds the words of the mention are candidates, described by their triples in the
graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from regard.core.errors import ConfigError, InputError
from regard.data.examples import Example
from regard.data.input_formats import FormattedInput
from regard.data.knowledge.graph import Graph, split
from regard.data.problems import NOWHERE, FileLine
from regard.data.read_fields import ID, BadRecord, FieldRecord, short
from regard.metrics.base import TaskMetric, Weighted, mean
from regard.tasks.base import Prediction, Task
from regard.tasks.choose import Choose, ChooseOptions

GRAPH = "entities.tsv"  # is saved beside a model that was trained with a graph
AMONG = 5  # recall is also measured among the best 5 candidates


class EntityCandidate(NamedTuple):
    name: str
    description: str = ""

    def __str__(self) -> str:
        return f"{self.name} : {self.description}" if self.description else self.name


@dataclass(frozen=True, slots=True)
class Mention(Example):
    """Some words of a text, and the entities that they may mean (empty: a graph gives them)."""

    text: str
    mention: str
    candidates: tuple[EntityCandidate, ...] = ()
    label: str | None = None  # the name of the right candidate
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> str | None:
        return self.label

    def without_gold(self) -> Self:
        return replace(self, label=None)

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "text", self.text
        yield "mention", self.mention
        yield from (("choice", str(candidate)) for candidate in self.candidates)

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        yield from (
            (mention_and_text(self), str(candidate)) for candidate in self.candidates or ("",)
        )

    def record(self) -> Iterator[tuple[str, Any]]:
        yield from (("text", self.text), ("mention", self.mention))
        if self.candidates:
            yield "candidates", [candidate._asdict() for candidate in self.candidates]
        if self.label is not None:
            yield "label", self.label

    def shown(self) -> Any:
        names = [candidate.name for candidate in self.candidates]
        return {"text": self.text, "mention": self.mention, "candidates": names}


def mention_and_text(example: Mention) -> str:
    """Returns the mention followed by its text, as a question stands before its passage."""
    return f"{example.mention} : {example.text}"


# -- what learns it


@lru_cache(2)
def open_graph(path: str, changed: int) -> Graph:
    return Graph.read(path)


def candidates_in(graph: Graph, mention: str, most: int) -> tuple[EntityCandidate, ...]:
    """Returns the entities whose name holds all words of the mention. Names with the fewest other
    words come first."""
    words = {word.casefold() for word in split(mention)}
    able = []
    for name in graph.entities:
        own = {word.casefold() for word in split(name)}
        if words and words <= own:
            able.append((len(own), name))
    return tuple(
        EntityCandidate(name, description_of(graph, name)) for _, name in sorted(able)[:most]
    )


def description_of(graph: Graph, name: str) -> str:
    return " ; ".join(f"{t.predicate} {t.object}" for t in graph.of_entity(name))


@dataclass(frozen=True)
class LinkOptions(ChooseOptions):
    graph: str = ""  # a file of triples, for mentions without candidates
    most: int = 16  # the maximum number of candidates that a graph gives to one mention


class Link(Choose):
    Options: ClassVar[type] = LinkOptions
    name = "link"
    varies = False

    def answers(self) -> np.ndarray:
        """Returns the index of the right candidate; -1: not known, or not a candidate."""
        if self.options.most < 2:
            raise ConfigError(f"objective.most is {self.options.most}; it must be at least 2")
        examples: Any = self.corpus.examples
        self.candidates = [self.candidates_of(example) for example in examples]
        places = []
        for example, candidates in zip(examples, self.candidates, strict=True):
            names = [candidate.name for candidate in candidates]
            places.append(names.index(example.label) if example.label in names else -1)
        if self.corpus.split in ("train", "valid") and max(places, default=-1) < 0:
            raise InputError(
                f"no mention of the {self.corpus.split} data has its entity among the candidates"
            )
        return np.array(places, np.int64)

    def candidates_of(self, example: Mention) -> tuple[EntityCandidate, ...]:
        candidates = example.candidates
        if not candidates and self.graph is not None:
            candidates = candidates_in(self.graph, example.mention, self.options.most)
        if not candidates:
            where = str(example.place) or repr(example.mention)
            reason = "the graph has no entity of this name" if self.graph else "there is no graph"
            raise InputError(
                f"{where}: {short(example.mention)} has no candidates, and {reason}; give "
                "candidates, or a file of triples with objective.graph=FILE"
            )
        return candidates

    @cached_property
    def graph(self) -> Graph | None:
        """The graph that was saved beside the model, or the one that the options name."""
        own = Path(self.corpus.path, GRAPH)
        file = own if own.is_file() and not self.learning else Path(self.options.graph)
        if not self.options.graph:
            return None
        if not file.is_file():
            raise InputError(f"objective.graph is {file}, which is not a file; give its path")
        return open_graph(str(file), file.stat().st_mtime_ns)

    def groups(self) -> Iterator[list[FormattedInput]]:
        examples: Any = self.corpus.examples
        firsts = self.texts([mention_and_text(example) for example in examples])
        flat = iter(self.texts([str(one) for candidates in self.candidates for one in candidates]))
        for first, candidates in zip(firsts, self.candidates, strict=True):
            yield [self.row(first, next(flat), False) for _ in candidates]

    def merge(self, outputs: list[Any]) -> list[Prediction]:
        predictions = []
        for row, candidates in zip(outputs, self.candidates, strict=True):
            scores = {one.name: share for one, share in zip(candidates, row, strict=True)}
            best = max(scores, key=scores.__getitem__)
            predictions.append(Prediction(best, scores[best], scores))
        return predictions

    def save_extras(self, model: Any, out: Path) -> None:
        super().save_extras(model, out)
        if self.graph is not None:
            self.graph.write(out / GRAPH)


# -- what measures it


class Linking(TaskMetric):
    """The metric of linking. `predicted` is one name, or all names with the best first."""

    shares = ("accuracy",)

    def __init__(self, gold: Sequence[str], predicted: Sequence[str | Sequence[str]]) -> None:
        super().__init__(gold, predicted)
        ranked = [[one] if isinstance(one, str) else list(one) for one in predicted]
        pairs = zip(gold, ranked, strict=True)
        self.ranks = [row.index(right) if right in row else -1 for right, row in pairs]
        self.first = [row[0] if row else "" for row in ranked]

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        return {
            "accuracy": mean(self.each),
            f"recall_at_{AMONG}": mean([float(0 <= rank < AMONG) for rank in self.ranks]),
            "reciprocal_rank": mean([0.0 if rank < 0 else 1 / (rank + 1) for rank in self.ranks]),
        }

    @cached_property
    def each(self) -> list[float]:
        return [float(rank == 0) for rank in self.ranks]

    def thought(self, i: int, row: Any) -> dict[str, float]:
        return {}

    def sides(self, i: int, text: Any) -> dict[str, Any]:
        return {"gold": self.gold[i], "predicted": self.first[i]}


# -- the task


class LinkTask(Task):
    name = "link"
    example = Mention
    roles: ClassVar[Mapping[str, str]] = {
        "text": "text context sentence passage",
        "mention": "mention span surface",
        "start": "start offset mention_start",
        "candidates": "candidates entities choices options",
        "label": "label entity answer gold target",
        "id": ID,
    }
    needed = ("text", "mention")
    learned_by = Link
    measured_by = Linking
    writable = False
    fields = ("text", "mention")
    answer_fields = ("entity",)
    chooses = True
    record_texts = ("text", "mention")
    needs_records = True

    def parse(self, record: FieldRecord) -> Example:
        text, mention = record.text("text"), record.text("mention")
        start = record.get("start")
        if start not in (None, "") and not text.startswith(mention, place_of(start)):
            raise BadRecord(
                "answer-offset", f"{short(mention)} is not at character {start} of the text"
            )
        if mention not in text:
            raise BadRecord("answer-offset", f"{short(mention)} is nowhere in the text")
        candidates = read_candidates(record.get("candidates"))
        names = [candidate.name for candidate in candidates]
        if len(set(names)) < len(names):
            raise BadRecord("contradiction", f"two candidates have one name: {', '.join(names)}")
        label = record.get("label") if record.has("label") else None
        if record.has("label") and (not isinstance(label, str) or not label.strip()):
            raise BadRecord("missing-label", "no name of an entity in the label")
        if label is not None and names and label not in names:
            raise BadRecord(
                "label-range", f"{label!r} is none of the candidates ({', '.join(names)})"
            )
        return Mention(text, mention, candidates, label, record.place, record.id)

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        """Returns all candidates of each example, the best first."""
        rows: list[Any] = []
        for one in predictions:
            scores = one.scores or {one.value: 1.0}
            rows.append(sorted(scores, key=scores.__getitem__, reverse=True))
        return rows, 0

    # -- by a prompt

    def template(self, examples: Sequence[Any]) -> str:
        return "{text}\nQ: Who or what is {mention}?\nA: {entity}"

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        return {"text": example.text, "mention": example.mention}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        label: str | None = example.label
        return label

    def completions(self, example: Any, field: str, words: Mapping[str, str]) -> dict[Any, str]:
        return {candidate.name: candidate.name for candidate in example.candidates}

    def check_prompted(self, example: Any) -> None:
        if not example.candidates:
            raise InputError(f"{example.place}: a prompt chooses among candidates; give some")


def place_of(start: Any) -> int:
    if isinstance(start, int) and not isinstance(start, bool):
        return start
    if isinstance(start, str) and start.strip().isdecimal():
        return int(start)
    raise BadRecord("wrong-type", f"the place of the mention is {start!r}, not a number")


def read_candidates(value: Any) -> tuple[EntityCandidate, ...]:
    """Reads candidates from a list of names, a list of objects with a name and a description, or a
    table of descriptions by name."""
    if value is None or value == "":
        return ()
    if isinstance(value, dict):
        value = [{"name": name, "description": text} for name, text in value.items()]
    if not isinstance(value, list):
        raise BadRecord("wrong-type", f"the candidates are {type(value).__name__}, not a list")
    candidates = []
    for number, one in enumerate(value, 1):
        table = {"name": one} if isinstance(one, str) else one
        if not isinstance(table, dict):
            raise BadRecord("wrong-type", f"candidate {number} is {type(one).__name__}, not a name")
        keys = ("name", "id", "entity", "title")
        name = next((table[key] for key in keys if key in table), None)
        text = table.get("description", table.get("text")) or ""
        if not isinstance(name, str) or not name.strip() or not isinstance(text, str):
            raise BadRecord(
                "wrong-type", f"candidate {number} has no name, or no text to describe it"
            )
        candidates.append(EntityCandidate(name, text))
    return tuple(candidates)


TASK = LinkTask()
