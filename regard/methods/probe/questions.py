"""The questions that a model's layers can be asked: labels, trees, or what its heads attend to.

A question lists what it measures (`whats`), reads what it needs from a model, and reports the
figures of each layer as soon as they are ready.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.attention.recorder import record
from regard.core.errors import ConfigError, InputError
from regard.data.corpus import MARKER
from regard.data.examples import TaggedExample
from regard.data.files import needed
from regard.data.problems import Problems
from regard.formats.directory import Checkpoint
from regard.methods.probe.automatic import automatic, sampled
from regard.methods.probe.heads import STATISTICS, look_at_heads
from regard.methods.probe.learning import Epoch, ProbeSchedule
from regard.methods.probe.plan import ProbePlan
from regard.methods.probe.probes import MIX, Keep, fit, kind_of
from regard.methods.probe.reader import StateReader, TokenRow
from regard.methods.probe.states import States, Tell, chosen_layers, states_of
from regard.methods.probe.structure import PACE, Trees, fit_structure
from regard.methods.probe.tasks import (
    PARTS,
    UD,
    ProbeFileOptions,
    ProbeTask,
    in_parts,
    task_of_files,
    thinned,
)
from regard.methods.probe.tree_scores import baselines
from regard.methods.probe.trees import DependencyTree, read_trees

AUTO = "auto:"


@dataclass
class Frozen:
    """A model to probe, and its hidden states once they are needed."""

    loaded: Checkpoint
    plan: ProbePlan
    cache: Path | None
    tell: Tell
    states: States | None = None

    def __post_init__(self) -> None:
        self.reader = StateReader(self.loaded, self.plan.pooling, self.plan.length)

    def states_for(self, rows: Sequence[TokenRow], units: int) -> States:
        if self.states is None:
            layers = chosen_layers(self.plan.layers, self.reader.depth)
            self.states = states_of(self.reader, rows, units, layers, self.cache, self.tell)
        return self.states


class ProbeQuestion:
    name: str
    whats: list[str]
    control_of: dict[str, str]  # a measurement -> its control task
    pace: ProbeSchedule | None = None  # None: nothing is trained
    notes: list[str]
    reads: tuple[list[TokenRow], int]  # the result of `read`, the same for trained and untrained

    def layers(self, frozen: Frozen) -> list[int]:
        return chosen_layers(frozen.plan.layers, frozen.reader.depth)

    def check(self, frozen: Frozen) -> None:
        """Raises an error for a model that cannot be asked, before anything is written."""
        self.layers(frozen)
        self.reads = self.read(frozen.reader)

    def read(self, reader: StateReader) -> tuple[list[TokenRow], int]:
        """Returns the rows that the model reads, and how many vectors they give."""
        raise TypeError(f"{type(self).__name__} does not say what is read")

    def facts(self) -> dict[str, Any]:
        """Returns what is reported besides the layers: sizes and baselines."""
        raise TypeError(f"{type(self).__name__} does not say what it asks")

    def content(self) -> Any:
        """Returns all data that the question uses, for a digest."""
        raise TypeError(f"{type(self).__name__} does not say what it reads")

    def ask(
        self, what: str, seed: int, layers: Sequence[int], frozen: Frozen, keep: Keep, tell: Epoch
    ) -> None:
        raise TypeError(f"{type(self).__name__} does not say how it asks")

    def digest(self) -> str:
        text = json.dumps(self.content(), ensure_ascii=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def part_sizes(parts: Sequence[int], tested: str) -> dict[str, int]:
    """Returns the sizes of the parts. If the validation data are also the test data, there is no
    third part."""
    return dict(zip(PARTS if tested == "test" else PARTS[:2], parts, strict=False))


class LabelQuestion(ProbeQuestion):
    """A question about the labels of words, texts or pairs."""

    pace: ProbeSchedule

    def __init__(self, task: ProbeTask, plan: ProbePlan) -> None:
        self.task, self.name, self.notes = task, task.name, list(task.notes)
        self.kind = kind_of(plan.kind, plan.hidden_size, plan.dropout)
        self.pace = replace(ProbeSchedule(decay=plan.weight_decay), **epochs_option(plan))
        if plan.control and task.shape != "words":
            raise ConfigError(
                f"--control gives each word type its own label, but {task.name} labels "
                f"{'whole texts' if task.shape == 'texts' else 'pairs of texts'}; leave it out"
            )
        self.whats = ["task", *["control"] * plan.control]
        self.control_of = {"task": "control"} if plan.control else {}
        self.labels = task.labels()

    def layers(self, frozen: Frozen) -> list[int]:
        return [*super().layers(frozen), *[MIX] * frozen.plan.mix]

    def read(self, reader: StateReader) -> tuple[list[TokenRow], int]:
        return self.task.rows(reader)

    def facts(self) -> dict[str, Any]:
        own = self.labels
        sizes = [own.units(items) for items in (own.train, own.dev, own.test)]
        return {
            "of": self.task.shape,
            "classes": self.task.classes,
            "units": part_sizes(sizes, self.task.tested),
            "tested_on": self.task.tested,
            "baselines": {"task": {"accuracy": {"majority": self.labels.majority}}},
        }

    def content(self) -> Any:
        return [[part, [[i.texts, i.labels] for i in items]]
                for part, items in self.task.parts.items()]  # fmt: skip

    def ask(
        self, what: str, seed: int, layers: Sequence[int], frozen: Frozen, keep: Keep, tell: Epoch
    ) -> None:
        states = frozen.states_for(*self.reads)
        labels = self.task.control(seed) if what == "control" else self.labels
        fit(states, labels, layers, self.kind, self.pace, seed, keep, tell)


class TreeQuestion(ProbeQuestion):
    """A question about the distances, depths and heads of dependency trees."""

    pace: ProbeSchedule

    def __init__(self, plan: ProbePlan) -> None:
        if not plan.data:
            raise ConfigError("--data is missing; --task structure needs a CoNLL-U file")
        for library in ("scipy.stats", "scipy.sparse.csgraph"):  # raises now, not after an hour
            needed(library, "trees are measured", "tasks")
        self.name, self.notes = "structure", list[str]()
        self.rank, self.trees, self.tested = rank_of(plan.kind), *trees_of(plan, self.notes)
        self.pace = replace(PACE, decay=plan.weight_decay, **epochs_option(plan))
        self.whats = ["distance", "depth", "head", *["head control"] * plan.control]
        self.control_of = {"head": "head control"} if plan.control else {}

    def read(self, reader: StateReader) -> tuple[list[TokenRow], int]:
        sentences = [tree.words for tree in self.trees.trees]
        return reader.words(sentences), sum(map(len, sentences))

    def facts(self) -> dict[str, Any]:
        own = self.trees
        parts = [[own.trees[item] for item in items.tolist()]
                 for items in (own.train, own.dev, own.test)]  # fmt: skip
        return {
            "of": "trees",
            "units": part_sizes([*map(len, parts)], self.tested),
            "tested_on": self.tested,
            "baselines": baselines(parts[0], parts[2]),
        }

    def content(self) -> Any:
        return [[[t.words, t.heads, t.relations] for t in self.trees.trees],
                self.trees.train.tolist(), self.trees.dev.tolist()]  # fmt: skip

    def ask(
        self, what: str, seed: int, layers: Sequence[int], frozen: Frozen, keep: Keep, tell: Epoch
    ) -> None:
        states = frozen.states_for(*self.reads)
        kind, _, control = what.partition(" ")
        fit_structure(
            kind, states, self.trees, layers, self.rank, self.pace, seed, keep, tell,
            control=bool(control),
        )  # fmt: skip


def epochs_option(plan: ProbePlan) -> dict[str, int]:
    """Returns the number of epochs, if the plan sets one."""
    return {"epochs": plan.epochs} if plan.epochs else {}


def rank_of(kind: str) -> int:
    """Returns the rank of a structural probe; 0 stands for the model's width."""
    start, _, rank = kind.partition("-")
    if kind == "linear":
        return 0
    if start == "rank" and rank.isdecimal() and int(rank) > 0:
        return int(rank)
    raise ConfigError(f"--probe is {kind}; a structural probe is linear: choose linear or rank-N")


def trees_of(plan: ProbePlan, notes: list[str]) -> tuple[Trees, str]:
    """Reads the train, dev and test parts from one file or several, and returns which part is
    tested. `plan.limit` applies to the training part."""

    def read(name: str, part: str) -> list[DependencyTree]:
        problems = Problems()
        trees = read_trees(name, plan.skip, problems, plan.max_bytes)
        notes.extend(problems.notes(part))
        return trees

    def example_of(tree: DependencyTree) -> TaggedExample:
        return TaggedExample(tree.words, ("",) * len(tree.words), tree.place)

    parts, tested = in_parts(plan.data or "", plan.valid, plan.test, read, notes, example_of)
    parts["train"] = thinned(parts["train"], plan.limit)
    every = [tree for part in PARTS for tree in parts.get(part, [])]
    ends = np.cumsum([len(parts[part]) for part in ("train", "dev")])
    train, dev, test = np.split(np.arange(len(every)), ends)
    return Trees(every, train, dev, test if tested == "test" else dev), tested


class HeadQuestion(ProbeQuestion):
    """A question about what every head attends to, on plain text or, with trees, along
    relations."""

    def __init__(self, plan: ProbePlan) -> None:
        if not plan.data:
            raise ConfigError("--data is missing; --task heads needs a text file, a prepared "
                              "directory or a CoNLL-U file")  # fmt: skip
        self.name, self.notes, self.whats, self.control_of = "heads", [], ["heads"], {}
        self.trees: list[DependencyTree] = []
        self.texts: list[str] = []
        if plan.control:
            raise ConfigError("--control is for trained probes, and --task heads trains none; "
                              "leave it out")  # fmt: skip
        check_split(plan)
        if any(suffix.lower() in UD for suffix in Path(plan.data).suffixes):
            problems = Problems()
            trees = read_trees(plan.data, plan.skip, problems, plan.max_bytes)
            self.trees = thinned(trees, plan.limit)
            self.notes += problems.notes()
            return
        if plan.skip:
            raise ConfigError(f"--skip leaves out wrong sentences of CoNLL-U, but {plan.data} is "
                              "plain text; leave it out")  # fmt: skip
        sentences = sampled(plan.data, plan.split, plan.limit, 0, max_bytes=plan.max_bytes)
        self.texts = [each.text for each in sentences]
        if not self.texts:
            raise InputError(f"{plan.data} has no sentence of 4 to 64 words; give another text")

    def check(self, frozen: Frozen) -> None:
        with record(frozen.loaded.model):  # raises an error for a model without attention
            pass
        if not self.layers(frozen):
            raise ConfigError(
                "--layers 0 are the embeddings, which have no heads; choose layers from 1"
            )
        super().check(frozen)

    def layers(self, frozen: Frozen) -> list[int]:
        """Returns the layers that have heads: 1 and above."""
        return [layer for layer in super().layers(frozen) if layer > 0]

    def read(self, reader: StateReader) -> tuple[list[TokenRow], int]:
        """Returns the rows and 0 vectors: only the attention is used."""
        if self.trees:
            return reader.words([tree.words for tree in self.trees]), 0
        return reader.texts(self.texts), 0

    def facts(self) -> dict[str, Any]:
        return {"of": "heads", "units": {"test": len(self.trees) or len(self.texts)},
                "tested_on": "test", "baselines": {}}  # fmt: skip

    def content(self) -> Any:
        return [self.texts, [[t.words, t.heads, t.relations] for t in self.trees]]

    def ask(
        self, what: str, seed: int, layers: Sequence[int], frozen: Frozen, keep: Keep, tell: Epoch
    ) -> None:
        """Reports the statistics of each layer. The relations are reported once, with the first
        layer, for the best heads of all requested layers, whichever layers are still missing."""
        heads = look_at_heads(frozen.reader, self.reads[0], self.trees, frozen.tell)
        every, wanted = heads.rows(), self.layers(frozen)
        first = min((row["layer"] for row in every if row["layer"] in wanted), default=0)
        for layer in layers:
            own = [row for row in every if row["layer"] == layer]
            if not own:
                continue
            figures: dict[str, Any] = {
                name: float(np.mean([row[name] for row in own])) for name in STATISTICS
            }
            figures["heads"] = own
            if layer == first and self.trees:
                figures["relations"] = heads.relations(wanted)
            keep(layer, figures)


def check_split(plan: ProbePlan) -> None:
    """Raises ConfigError if --split is given for data that has no splits."""
    if "split" in plan.changed() and not Path(plan.data or "", MARKER).is_file():
        raise ConfigError(f"--split {plan.split} is for a prepared directory, and {plan.data} is "
                          "none; leave it out")  # fmt: skip


def question(plan: ProbePlan) -> ProbeQuestion:
    """Builds the question of the plan's task: "heads", "structure", auto:NAME, or a file."""
    if plan.task == "heads":
        return HeadQuestion(plan)
    if plan.task == "structure":
        return TreeQuestion(plan)
    if plan.task.startswith(AUTO):
        if not plan.data:
            raise ConfigError(f"--data is missing; {plan.task} needs a text file or a prepared "
                              "directory")  # fmt: skip
        check_split(plan)
        name = plan.task.removeprefix(AUTO)
        task = automatic(
            name, plan.data, split=plan.split, limit=plan.limit, max_bytes=plan.max_bytes
        )
        return LabelQuestion(task, plan)
    if plan.data:
        raise ConfigError(
            f"--task is the file {plan.task}, and --data {plan.data} is given as well; labeled "
            "files are given as --task, --valid and --test: leave --data out"
        )
    reading = ProbeFileOptions(
        dict(plan.fields),
        plan.form,
        plan.header,
        plan.download,
        tuple(plan.skip),
        plan.max_bytes,
    )
    return LabelQuestion(task_of_files(plan.task, plan.valid, plan.test, reading, plan.limit), plan)
