"""Records the attention of a model that reads a text: plain arrays, for a page or for a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.attention.recorder import AttentionCall, record
from regard.core.errors import InputError, StorageError
from regard.decoding.decode_state import at_rest
from regard.formats.directory import Checkpoint
from regard.lab.look.packing import Packed, Precision, pack, thumbnail
from regard.lab.look.reading import (
    AttentionReading,
    LookOptions,
    Note,
    StackPart,
    check_lengths,
    read,
)
from regard.lab.look.rollout import CrossRollout, Rollout
from regard.lab.look.tokens import LookToken
from regard.lab.look.weights import HeadWeights, matrices, shape

if TYPE_CHECKING:
    from regard.lab.deeper.page import DeeperLook, DeeperOptions

WHERE = re.compile(r"(.*\.(?:attention|cross))\.layer")
Tell = Callable[[int, int], None]  # (layers done, all layers)
WRITTEN = 512 * 512  # `facts` writes the averaged weights of a layer up to this number


@dataclass
class Layer:
    """The heads of one layer, their mean, and the rollout up to this layer."""

    name: str
    heads: list[Packed]
    mean: Packed
    rolled: Packed
    pictures: list[tuple[np.ndarray, tuple[int, int]]]  # thumbnails of heads, mean, rollout

    def weights(self, head: int) -> np.ndarray:
        """Returns the weights [rows, columns] of a head, counted from 0, in the stored
        precision."""
        return self.heads[head].unpack()

    @property
    def average(self) -> np.ndarray:
        return self.mean.unpack()

    @property
    def rollout(self) -> np.ndarray:
        return self.rolled.unpack()


@dataclass
class LayerStack:
    """Layers with the same rows and columns: an encoder, a decoder, a stream."""

    kind: str
    rows: str  # a key of the side's tokens
    columns: str
    layers: list[Layer] = field(default_factory=list)


@dataclass
class LookSide:
    """The record of one model with one text."""

    model: str
    family: str
    text: str
    tokens: dict[str, list[LookToken]]
    stacks: list[LayerStack]
    precision: Precision
    notes: list[Note]
    facts: list[str]  # of a knowledge graph
    deeper: DeeperLook

    def stack(self, kind: str) -> LayerStack:
        return next(stack for stack in self.stacks if stack.kind == kind)


@dataclass
class Recorded:
    sides: list[LookSide]

    def html(self) -> str:
        """Returns one page that needs no other file."""
        from regard.lab.look.page import page

        return page(self)

    def save(self, path: Path | str, *, force: bool = False) -> Path:
        """Writes the page. An existing file is not overwritten, unless `force` is true."""
        from regard.training.report import replace

        file = Path(path)
        if file.exists() and not force:
            raise StorageError(f"{file} exists already; choose another name, or use --force")
        if not file.parent.is_dir():
            raise StorageError(
                f"there is no directory {file.parent} to write {file.name} into; create it"
            )
        return replace(file, self.html())

    def _repr_html_(self) -> str:
        from regard.lab.look.notebook import display

        return display(self)

    def facts(self) -> dict[str, Any]:
        """Returns tokens, layers, heads, and the averaged weights of each layer (None if they are
        too many to be written), for programs."""
        return {"sides": [side_facts(side) for side in self.sides]}


def side_facts(side: LookSide) -> dict[str, Any]:
    def numbers(table: np.ndarray) -> list[list[float]] | None:
        return None if table.size > WRITTEN else [[round(float(x), 6) for x in r] for r in table]

    return {
        "model": side.model,
        "family": side.family,
        "text": side.text,
        "tokens": {name: [t.text for t in tokens] for name, tokens in side.tokens.items()},
        "precision": side.precision.kind,
        "facts": side.facts,
        **side.deeper.facts(),
        "stacks": [
            {
                "kind": stack.kind,
                "rows": stack.rows,
                "columns": stack.columns,
                "layers": len(stack.layers),
                "heads": [len(layer.heads) for layer in stack.layers],
                "average": [numbers(layer.average) for layer in stack.layers],
            }
            for stack in side.stacks
        ],
    }


def look(
    loaded: Checkpoint,
    text: str | Sequence[int],
    *,
    second: str | Sequence[int] | None = None,
    against: Checkpoint | None = None,
    target: str | Sequence[int] | None = None,
    order: int | Sequence[int] | None = None,
    memory: str | Sequence[int] | None = None,
    knowledge: bool = False,
    global_tokens: Sequence[int] | None = None,
    pair: str | None = None,
    tell: Tell | None = None,
    **deeper: Any,
) -> Recorded:
    """Records every head of a model that reads a text.

    `second` is another text, `against` another model: give one of them for a page with two sides.
    `target` is the decoder's text (otherwise the model writes it). `order` is for XLNet: a seed, or
    the tokens to predict, counted from 1. `memory` is a text that is read before (Transformer-XL,
    XLNet). `knowledge` adds what the run's knowledge graph says. `global_tokens` are a
    Longformer's, counted from 1; by default the first. `pair` is the second text of an encoder that
    reads two texts at once. `tell` is called after each layer, because a
    long text takes a while. `deeper` are the fields of `DeeperOptions`: lens, ablate, patch, …

    >>> look(regard.load("my-gpt"), "the cat sat").save("cat.html")
    """
    if second is not None and against is not None:
        raise InputError("give a second text or a second model, not both")
    from regard.lab.deeper.page import DeeperOptions

    options = LookOptions(target, order, memory, knowledge, global_tokens, pair)
    further = DeeperOptions(**deeper)
    pairs = [(loaded, text)]
    if second is not None:
        pairs.append((loaded, second))
    if against is not None:
        pairs.append((against, text))
    for model, own_text in pairs:
        check_lengths(model, [own_text, target, memory, pair])
    names = titles([each for each, _ in pairs])
    sides = []
    for name, (model, own_text) in zip(names, pairs, strict=True):
        sides.append(side_of(model, own_text, options, further, name, 1 / len(pairs), tell))
    return Recorded(sides)


def titles(models: Sequence[Checkpoint]) -> list[str]:
    """Returns the names of the directories; if two are the same, with their parent directories."""
    names = [m.model.family.name if m.path is None else m.path.resolve().name for m in models]
    if len(set(names)) < len(models) and len({id(m) for m in models}) == len(models):
        names = [
            name if m.path is None else "/".join(m.path.resolve().parts[-2:])
            for name, m in zip(names, models, strict=True)
        ]
    return names


def side_of(
    loaded: Checkpoint,
    text: str | Sequence[int],
    options: LookOptions,
    deeper: DeeperOptions,
    name: str,
    room: float,
    tell: Tell | None = None,
) -> LookSide:
    from regard.lab.deeper.page import look_deeper

    further = look_deeper(loaded, text, options, deeper)
    with at_rest(loaded.model):
        reading = read(loaded, text, options)
        survey = RecordingSizes()
        run_recorded(loaded, reading, survey.add)
        precision = Precision.of(*survey.count(), room)
        total = len(survey.parts)
        keeper = LayerPacker(
            reading, precision, lambda done: None if tell is None else tell(done, total)
        )
        run_recorded(loaded, reading, keeper.add)
        keeper.finish()
    shown = text if isinstance(text, str) else " ".join(map(str, text))
    return LookSide(
        name, loaded.model.family.name, shown, reading.names, list(keeper.stacks.values()),
        precision, reading.notes, reading.facts, further,
    )  # fmt: skip


def run_recorded(
    loaded: Checkpoint, reading: AttentionReading, take: Callable[[AttentionCall], None]
) -> None:
    """Runs the model and passes each attention on as it is recorded, without keeping it."""
    with torch.no_grad(), record(loaded.model) as recording:
        recording.layers = StreamedCalls(take)
        reading.run()


class StreamedCalls(list[AttentionCall]):
    """A list that keeps nothing, because the keys and biases of all layers may not fit into
    memory."""

    def __init__(self, take: Callable[[AttentionCall], None]) -> None:
        super().__init__()
        self.take = take

    def append(self, seen: AttentionCall) -> None:
        self.take(seen)


def place_of(name: str) -> str:
    """Returns the attention that a recorded call belongs to: one layer may record two calls."""
    match = WHERE.match(name)
    return match[1] if match else name


def kind_of(place: str) -> str:
    if place.endswith(".cross"):
        return "cross"
    return next((kind for kind in ("encoder", "decoder") if place.startswith(kind)), "self")


class RecordingSizes:
    """Counts the weights that will be stored."""

    def __init__(self) -> None:
        self.parts: dict[str, list[tuple[int, int, int, int]]] = {}

    def add(self, seen: AttentionCall) -> None:
        if not seen.name.endswith(".wide"):
            self.parts.setdefault(place_of(seen.name), []).append(shape([seen]))

    def count(self) -> tuple[int, int]:
        """Returns the number of weights and of rows, over all heads, means and rollouts."""
        cells = rows = 0
        for parts in self.parts.values():
            count = sum(part[0] for part in parts)
            _, down, _, keys = parts[0]
            width = max(part[2] for part in parts)
            cells += (count + 1) * down * width + (down * keys if width == keys else 0)
            rows += (count + 2) * down
        return cells, rows


class LayerPacker:
    """Packs the layers one after the other as they are recorded."""

    def __init__(
        self, reading: AttentionReading, precision: Precision, tell: Callable[[int], None]
    ) -> None:
        self.reading, self.precision, self.tell = reading, precision, tell
        self.done = 0
        self.stacks: dict[str, LayerStack] = {}
        self.rollouts: dict[str, Rollout] = {}
        self.waiting: list[AttentionCall] = []

    def add(self, seen: AttentionCall) -> None:
        if self.waiting and place_of(self.waiting[0].name) != place_of(seen.name):
            self.finish()
        self.waiting.append(seen)

    def finish(self) -> None:
        if not self.waiting:
            return
        place, seen = place_of(self.waiting[0].name), self.waiting
        self.waiting = []
        kind = kind_of(place)
        parts = self.reading.parts[kind]
        heads: list[list[Packed]] = [[] for _ in parts]
        pictures: list[list[tuple[np.ndarray, tuple[int, int]]]] = [[] for _ in parts]
        mean = Mean()
        banded = False

        def keep(matrix: HeadWeights) -> list[Packed]:
            packed = []
            for part, small in zip(parts, pictures, strict=True):
                own = matrix if len(parts) == 1 else matrix.part(part.start, part.end or 0)
                small.append(thumbnail(own))
                packed.append(pack(own, self.precision.beside(own, banded)))
            return packed

        for matrix in matrices(seen):
            banded = banded or matrix.band is not None
            mean.add(matrix)
            for own, packed in zip(heads, keep(matrix), strict=True):
                own.append(packed)
        averaged = mean.matrix()
        means = keep(averaged)
        rolled = keep(HeadWeights(self.rolled(kind, parts, averaged.dense()), averaged.keys))
        for i, part in enumerate(parts):
            stack = self.stacks.setdefault(
                part.kind, LayerStack(part.kind, part.rows, part.columns)
            )
            stack.layers.append(Layer(place, heads[i], means[i], rolled[i], pictures[i]))
        self.done += 1
        self.tell(self.done)

    def rolled(self, kind: str, parts: Sequence[StackPart], mean: np.ndarray) -> np.ndarray:
        """Adds one more attention to the rollout and returns the shares of the columns in
        the rows."""
        if kind == "cross":
            below = self.rollouts["decoder"]
            assert isinstance(below, CrossRollout)
            return below.cross(mean)
        if kind not in self.rollouts:
            rows, *asking = (len(self.reading.names[part.rows]) for part in parts)
            self.rollouts[kind] = (
                CrossRollout(rows, self.rollouts["encoder"])
                if kind == "decoder"
                else Rollout(rows, self.reading.past, sum(asking))
            )
        return self.rollouts[kind].add(mean)


class Mean:
    """The mean of heads: in their band while they share one, otherwise as a full matrix."""

    def __init__(self) -> None:
        self.total: HeadWeights | None = None
        self.count = 0

    def add(self, matrix: HeadWeights) -> None:
        self.count += 1
        total = self.total
        if total is None:
            whole = None if matrix.whole is None else matrix.whole.copy()
            self.total = HeadWeights(
                matrix.values.copy(), matrix.keys, matrix.band, matrix.rows, whole
            )
            return
        if total.band != matrix.band:
            total = self.total = HeadWeights(total.dense(), total.keys)
        if total.band is None:
            total.values[:] += matrix.dense()
            return
        total.values[:] += matrix.values
        if total.whole is not None and matrix.whole is not None:
            total.whole[:] += matrix.whole

    def matrix(self) -> HeadWeights:
        assert self.total is not None
        self.total.values[:] /= self.count
        if self.total.whole is not None:
            self.total.whole[:] /= self.count
        return self.total
