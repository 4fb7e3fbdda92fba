"""Knowledge in the rows of a task: `objective.knowledge` of a recipe, which `--knowledge` sets.

"tree" (K-BERT): branches are inserted into a row as far as there is room, with soft positions and a
visible matrix; the model has no new weights. "bias": the row stays as it is, and rules
(`regard.models.extensions.guidance`), such as which entities are related, guide the model's
attention. A model directory holds the graph beside the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.attention.tree_pattern import Branches
from regard.core.errors import ConfigError, FormatError, InputError, UnknownName
from regard.data.batching import Ragged, Rows
from regard.data.knowledge.graph import Graph
from regard.data.knowledge.options import FILE, OF_GRAPH, KnowledgeOptions
from regard.data.knowledge.source import ANY, KnowledgeSource, open_source
from regard.data.tags import IGNORED
from regard.models import FAMILIES
from regard.models.extensions import extend, extension
from regard.models.extensions.guide import GuideInputs, RuleGuide, rules
from regard.models.extensions.tree_knowledge import Knowledge
from regard.tasks import TASKS, objective_of
from regard.tasks import task as find

TREE = np.dtype([(name, np.int32) for name in ("soft", "line", "word", "owner")])
ENTITY = np.dtype([("entity", np.int32)])  # the number of an entity's name; 0 means no entity
FILLS = {"soft": 0, "line": 0, "word": -2, "owner": -1, "entity": 0}  # the values of padding


class KnowledgeRow(NamedTuple):
    """The token ids of a row, and the knowledge about each token."""

    ids: np.ndarray
    segments: np.ndarray
    facts: np.ndarray  # of type TREE or ENTITY
    labels: np.ndarray
    left_out: int = 0  # the number of branches without room


def joined(rows: Sequence[KnowledgeRow]) -> KnowledgeRow:
    """Concatenates the rows of a sample."""
    ids, segments, facts, labels = (
        np.concatenate(tables) for tables in zip(*(row[:4] for row in rows), strict=True)
    )
    return KnowledgeRow(ids, segments, facts, labels)


def sizes_of(rows: Sequence[KnowledgeRow]) -> np.ndarray:
    return np.array([len(row.ids) for row in rows], np.int64)


class KnowledgeInputs:
    """The knowledge that an objective uses in addition to its examples."""

    def __init__(self, objective: Any, options: KnowledgeOptions) -> None:
        o = self.options = options
        corpus, self.frame = objective.corpus, objective.frame
        self.tree = o.mode == "tree"
        file = Path(corpus.path, o.file) if o.file else Path(o.graph) if o.graph else None
        grow = {"branches": o.branches, "depth": o.depth, "predicate": o.predicate}
        self.source: KnowledgeSource = open_source(
            file,
            corpus.tokenizer,
            corpus.special.unknown,
            o.skip,
            o.most,
            everything=not self.tree,
            **grow,
        )
        self.graph: Graph = self.source.graph
        self.check_digest(file)
        self.rules = () if self.tree else rules(o.rules)
        parts = [name.partition(":") for name in o.rules]
        self.predicates = tuple(name for kind, _, name in parts if kind == "relation")
        self.classes = self.source.kinds() if any(k == "kinds" for k, _, _ in parts) else None
        if "same-sentence" in o.rules and not self.tree and not self.frame.segments:
            raise ConfigError("the rule 'same-sentence' needs a model with segments, as bert has")
        for name in self.predicates:
            if name not in self.graph.predicates:
                raise UnknownName("relation", name, self.graph.predicates, f"(in {file})")
        self.tables = Ragged([])
        self.held = self.grown = self.branches = self.left_out = 0

    @classmethod
    def of(cls, objective: Any) -> KnowledgeInputs | None:
        """Builds the knowledge of an objective, or returns None if its options name none."""
        options = getattr(objective.options, "knowledge", None)
        if not options:
            return None
        check_use(objective.options.family, objective.corpus.task)
        return cls(objective, KnowledgeOptions.of(dict(options)))

    def check_digest(self, file: Path | None) -> None:
        wanted, digest = self.options.digest, self.graph.digest
        if wanted and wanted != digest:
            error = FormatError if self.options.file else InputError
            raise error(
                f"{file} is not the graph that this model was trained with; restore it, or start a "
                "new run"
            )

    # -- rows

    def inform(self, objective: Any, rows: Rows, segments: Rows) -> tuple[Rows, Rows]:
        """Adds knowledge to the rows of an objective. Branches make a row longer, and also its
        segments, its labels and, if a sample has several rows, its lengths."""
        labels: Ragged | None = getattr(objective, "labels", None)
        several: bool = getattr(objective, "several", False)
        samples: list[KnowledgeRow] = []
        for place, (ids, sides) in enumerate(zip(rows, segments, strict=True)):
            sizes = objective.lengths[place] if several else [len(ids)]
            own = None if labels is None else labels[place]
            grown = self.parts(np.asarray(ids), np.asarray(sides), own, sizes, objective.seq_len)
            if several:
                objective.lengths[place] = sizes_of(grown)
            self.count(grown)
            samples.append(joined(grown))
        if labels is not None:
            objective.labels = Ragged([row.labels for row in samples])
        if self.options.matrix or not self.tree:
            kind: Any = TREE if self.tree else ENTITY
            self.tables = Ragged([row.facts for row in samples], kind)
        return [row.ids for row in samples], [row.segments for row in samples]

    def varied(self, sample: dict[str, np.ndarray], objective: Any) -> dict[str, np.ndarray] | None:
        """Adds knowledge to a variant of a sample. Returns None if it would be too long."""
        ids, sides, labels = sample["tokens"], sample["segments"], sample.get("labels")
        sizes = sample.get("lengths", [len(ids)])
        grown = self.parts(ids, sides, labels, sizes, objective.seq_len)
        row = joined(grown)
        if len(row.ids) > objective.max_len or max(sizes_of(grown)) > objective.longest:
            return None
        variant = sample | {"tokens": row.ids, "segments": row.segments}
        variant |= {"facts": row.facts} if len(self.tables) else {}
        variant |= {"lengths": sizes_of(grown)} if "lengths" in sample else {}
        return variant | ({} if labels is None else {"labels": row.labels.astype(labels.dtype)})

    def parts(
        self,
        ids: np.ndarray,
        segments: np.ndarray,
        labels: np.ndarray | None,
        sizes: Sequence[int] | np.ndarray,
        length: int,
    ) -> list[KnowledgeRow]:
        """Returns the rows of a sample, each with its own knowledge."""
        ends = np.cumsum(sizes)[:-1]
        own = np.full(len(ids), IGNORED) if labels is None else labels
        split = (np.split(table, ends) for table in (ids, segments, own))
        return [self.row(a, b, c, length) for a, b, c in zip(*split, strict=True)]

    def row(
        self, ids: np.ndarray, segments: np.ndarray, labels: np.ndarray, length: int
    ) -> KnowledgeRow:
        if not self.tree:
            facts_of_row = np.zeros(len(ids), ENTITY)
            for start, end, name in self.source.find(ids.tolist()):
                facts_of_row["entity"][start:end] = self.source.numbers[name]
            return KnowledgeRow(ids, segments, facts_of_row, labels)
        flat = self.source.tree(ids.tolist()).flatten(length)
        tags, facts = np.array(flat.tags, bool), np.empty(len(flat.tokens), TREE)
        for name in TREE.names or ():
            facts[name] = getattr(flat, name)
        trunk = np.cumsum(~tags) - 1  # the row's token at each position, or the last one before it
        tokens, own = np.array(flat.tokens, ids.dtype), np.where(tags, IGNORED, labels[trunk])
        return KnowledgeRow(tokens, segments[trunk], facts, own, flat.left_out)

    def count(self, rows: Sequence[KnowledgeRow]) -> None:
        """Counts the rows with knowledge and their branches, for the notes."""
        name = "line" if self.tree else "entity"
        self.held += len(rows)
        self.grown += sum(bool(row.facts[name].any()) for row in rows)
        self.left_out += sum(row.left_out for row in rows)
        if self.tree:
            self.branches += sum(int(row.facts["line"].max(initial=0)) for row in rows)

    def sample(self, index: int) -> dict[str, np.ndarray]:
        return {"facts": self.tables[index]} if len(self.tables) else {}

    # -- batches

    def collate(self, samples: Sequence[Any], tokens: np.ndarray) -> dict[str, Any]:
        """Returns the knowledge of a batch. If it is empty, the plain model runs."""
        rows = [sample["facts"] for sample in samples if "facts" in sample]
        if not rows:
            return {}
        tables = {
            name: self.table(rows, name, tokens.shape[1]) for name in rows[0].dtype.names or ()
        }
        if self.tree:
            return {"facts": tensors(tables)} if tables["line"].any() else {}
        if not tables["entity"].any() and self.of_graph_alone:
            return {}
        tables["entity"], tables["edges"] = self.edges(tables["entity"])
        if self.classes is not None:
            tables["kinds"] = self.classes[tokens]
        return {"facts": tensors(tables)}

    @property
    def of_graph_alone(self) -> bool:
        return all(name.partition(":")[0] in OF_GRAPH for name in self.options.rules)

    def table(self, rows: Sequence[np.ndarray], name: str, width: int) -> np.ndarray:
        filled = np.full((len(rows), width), FILLS[name], np.int64)
        for line, row in zip(filled, rows, strict=True):
            size = len(row)
            line[slice(width - size, width) if self.frame.left else slice(size)] = row[name]
        return filled

    def edges(self, entity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns entities, numbered within each row, and their relations [B, R, M, M]."""
        local, tables = np.zeros_like(entity), []
        for i, row in enumerate(entity):
            numbers = [number for number in np.unique(row).tolist() if number]
            for place, number in enumerate(numbers, 1):
                local[i][row == number] = place
            names = [self.source.listed[number] for number in numbers]
            tables.append(self.source.related(names, self.predicates))
        size = max(table.shape[1] for table in tables)
        edges = np.zeros((len(tables), 1 + len(self.predicates), size, size), np.uint8)
        for line, table in zip(edges, tables, strict=True):
            line[:, : table.shape[1], : table.shape[2]] = table
        return local, edges

    # -- the model

    def given(self, batch: dict[str, Any]) -> dict[str, Knowledge]:
        """Returns the keyword arguments that give the knowledge of a batch to the model."""
        if "facts" not in batch:
            return {}
        facts, attention_mask = batch["facts"], batch["attention_mask"]
        if self.tree:
            branches = Branches(facts["line"], facts["word"], facts["owner"], attention_mask)
            return {"known": Knowledge(facts["soft"], branches)}
        tokens = GuideInputs(
            batch["tokens"],
            batch.get("segments"),
            facts.get("kinds"),
            facts["entity"],
            facts["edges"],
            (ANY, *self.predicates),
        )
        return {"known": Knowledge(guide=RuleGuide(tokens, self.rules))}

    def fitted(self, model: Any) -> Any:
        """Returns the model. In the mode "bias" its attention scores can be guided."""
        if self.tree:
            return model
        options = dict(self.options.guidance) | {"rules": self.options.rules}
        present = model.extensions.get("guidance")
        if present is None:
            return extend(model, "guidance", options)
        wanted = extension("guidance").of(options).table()
        for name in self.options.guidance:
            if wanted[name] != present[name]:
                raise ConfigError(
                    f"objective.knowledge.guidance.{name} is {wanted[name]!r}, but this model is "
                    f"already guided with {present[name]!r}; leave the option out, or start from "
                    "the model before its guidance"
                )
        return model

    def check(self, model: Any) -> None:
        present = model.extensions.get("guidance", {}).get("rules")
        if not self.tree and present != self.options.rules:
            raise ConfigError(
                f"this model is guided by the rules {present}, but objective.knowledge.rules is "
                f"{self.options.rules}; give the same rules"
            )

    # -- what is said and kept

    def notes(self, split: str, learning: bool) -> Iterator[str]:
        if learning:  # not a second time for the validation set
            yield from self.source.notes()
        if not self.grown and len(self.graph):
            yield f"no entity of the graph occurs in the {split} data"
        if self.branches:
            yield (
                f"{self.grown:,} of {self.held:,} rows of the {split} data have {self.branches:,} "
                "branches of knowledge"
            )
        if self.left_out:
            yield f"{self.left_out:,} branches were left out: there was no room for them"

    def settled(self) -> dict[str, Any]:
        return asdict(self.options) | {"digest": self.graph.digest}

    def keep(self, out: Path) -> dict[str, Any]:
        """Writes the graph beside a model and returns the entry about it in task.json."""
        self.graph.write(out / FILE)
        return self.settled() | {"file": FILE}


def check_use(family: str, task: str) -> None:
    """Refuses models that cannot use knowledge, and tasks whose rows cannot hold it."""
    able = [name for name, card in FAMILIES.items() if "known" in card.model.accepts]
    if family not in able:
        raise ConfigError(
            f"knowledge is for encoders ({', '.join(able)}); this model is a {family}"
        )
    kinds = {name: find(name).objective() for name in TASKS if objective_of(name)}
    informed = [name for name, kind in kinds.items() if hasattr(kind.Options(), "knowledge")]
    if task not in informed:
        raise ConfigError(f"knowledge is for {', '.join(informed)}; this is {task}")


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in arrays.items()}
