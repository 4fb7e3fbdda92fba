"""Joined decoding: the rows of many prompts share each step of one model (continuous batching).

A prompt is read by a DecodeState of its own, as in `generate`. Then its memory moves into a table
whose rows come and go between any two tokens:

    table = table_for(model, most=32)
    rows, logits = table.begin(decoder.reader(), [prompt], [100])[0]
    scores = table.read([(rows, tokens), (other_rows, other_tokens)])  # one call of the model
    table.release(rows)

Rows of different lengths are aligned at the right, with padding before them that no row sees. So a
row gets the same logits as alone, up to the rounding of sums whose order depends on the batch.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.memory import CrossKV, KVCache
from regard.decoding.decode_state import (
    DecodeState,
    LearnedPositionsState,
    copy_rows,
    reader_for,
)
from regard.decoding.joined_rows import Begun, JoinedTable, RowTable
from regard.decoding.prefix import ReadPrefix
from regard.models.state import State

# Not shared with other processes; Windows has no such flags.
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


class HiddenTable(JoinedTable):
    """What Transformer-XL remembers (keys and values), or XLNet or an LSTM (hidden states). Prompts
    are read one by one: where a segment ends must not depend on others."""

    def take(self, reader: DecodeState, lengths: Sequence[int]) -> None:
        new: State = reader.state  # type: ignore[attr-defined]
        if not self.slots:
            self.reader.state = new
            return
        old: State = self.reader.state
        marks = [marks_of(state, count) for state, count in ((old, len(self.slots)),
                                                             (new, len(lengths)))]  # fmt: skip
        mask = torch.cat(aligned(marks))
        joined = State(length=mask.size(1), attention_mask=None if mask.all() else mask)
        self.let_go()
        for layers in each_of(old.layers, new.layers):
            pairs = [[part.transpose(1, 2) for part in layer.recent()] for layer in layers]
            keys, values = (torch.cat(aligned(parts)) for parts in zip(*pairs, strict=True))
            form = type(layers[0])
            joined.layers.append(form.holding(keys.transpose(1, 2), values.transpose(1, 2)))
        joined.hidden = [torch.cat(aligned(parts)) for parts in each_of(old.hidden, new.hidden)]
        self.reader.state = joined

    def copy(self, target: Tensor, source: Tensor, newest: int | None) -> None:
        state = self.reader.state
        for part in state.remembered(newest):
            copy_rows(part, target, source)
        if state.attention_mask is not None:
            copy_rows(state.attention_mask, target, source)

    def cut(self, count: int) -> None:
        """The first columns go where all rows that filled them have left: else rows that overlap
        would let the table grow for ever."""
        state: State = self.reader.state
        mask = state.attention_mask
        if mask is not None and count:
            first = int(mask[:count].any(0).int().argmax())
            state.drop_first(first)
            mask = mask[:, first:]
            state.attention_mask = None if mask[:count].all() else mask
        state.reorder(torch.arange(count))

    def step(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.reader.read_one(tokens)
        return logits


def each_of(*lists: list[Any]) -> Iterator[tuple[Any, ...]]:
    """Takes the first elements out of the lists, again and again: each is freed after its use."""
    while all(lists):
        yield tuple(part.pop(0) for part in lists)


def marks_of(state: State, rows: int) -> Tensor:
    if state.attention_mask is not None:
        return state.attention_mask
    return torch.ones(rows, state.remembered()[0].size(1), dtype=torch.bool)


def aligned(parts: Sequence[Tensor]) -> list[Tensor]:
    """Returns tables [rows, M, …] of one M: shorter ones get zeros at the left."""
    most = max(part.size(1) for part in parts)
    return [
        F.pad(part, (*(0, 0) * (part.dim() - 2), most - part.size(1), 0)) if part.size(1) < most
        else part
        for part in parts
    ]  # fmt: skip


def zeros_apart(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Returns a tensor of zeros in memory of its own, which the system gives page by page as it is
    written, and takes back at once. From the heap, each growth of a table would leave a hole that
    the next, larger one cannot use: twice the memory in the end."""
    count = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or not count:
        return like.new_zeros(shape)
    return torch.frombuffer(mmap.mmap(-1, count, **PRIVATE), dtype=like.dtype).view(shape)


@dataclass
class CacheRows:
    """Buffers [rows, heads, columns, D], two for each layer, of which some rows are in use."""

    parts: list[Tensor] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.parts[0].size(0), self.parts[0].size(2)) if self.parts else (0, 0)

    def place(self, rows: int, columns: int, live: tuple[int, slice], to: int) -> None:
        """Gives the buffers this size and moves the columns of the live rows to column `to`."""
        count, where = live
        width = where.stop - where.start
        same = (rows, columns) == self.shape
        for i, part in enumerate(self.parts):
            window = part[:count, :, where]
            if same:
                window = window.clone()
            else:
                part = zeros_apart(part, (rows, part.size(1), columns, part.size(3)))
            part[:count, :, to : to + width] = window
            self.parts[i] = part

    def views(self, rows: int, columns: slice) -> list[tuple[Tensor, Tensor]]:
        cut = [part[:rows, :, columns] for part in self.parts]
        return list(zip(cut[::2], cut[1::2], strict=True))

    def add(self, at: int, column: int, new: Sequence[Tensor]) -> None:
        for part, rows in zip(self.parts, new, strict=True):
            part[at : at + rows.size(0), :, column : column + rows.size(2)] = rows

    def copy(self, target: Tensor, source: Tensor, columns: slice) -> None:
        for part in self.parts:
            copy_rows(part[:, :, columns], target, source)


class CacheTable(JoinedTable):
    """KV caches that are allocated for many rows, and grow. All rows write the same column; a row
    begins at a column of its own. The columns before the first row are not read."""

    together = True

    def __init__(self, model: Any, most: int) -> None:
        super().__init__(model, most)
        self.cache = CacheRows()
        self.form: type[KVCache] = KVCache
        self.starts: list[int] = []  # the first column of each row
        self.views: tuple[tuple[int, int], list[KVCache]] | None = None  # of the last step
        self.end = 0  # the column that is written next

    @property
    def first(self) -> int:
        return min(self.starts, default=self.end)

    def take(self, reader: DecodeState, lengths: Sequence[int]) -> None:
        layers: list[KVCache] = reader.state.layers  # type: ignore[attr-defined]
        new = [
            part[:, :, : layer.length] for layer in layers for part in (layer.keys, layer.values)
        ]
        self.form = type(layers[0])
        if not self.cache.parts:
            self.cache.parts = [part.new_zeros(0, part.size(1), 0, part.size(3)) for part in new]
        self.make_room(len(lengths), new[0].size(2))
        self.cache.add(len(self.slots), self.end - new[0].size(2), new)
        self.starts += [self.end - length for length in lengths]

    def make_room(self, more: int, columns: int) -> None:
        """Makes room for more rows, which have filled this many columns, and for one column more.
        Live columns move to the left end; the room beside them is as large as they are, so that
        they seldom have to move."""
        live, first = len(self.slots), self.first
        end = max(self.end - first, columns)
        rows, width = self.cache.shape
        if live + more <= rows and columns <= self.end < width:
            return
        if live + more > rows:
            rows = max(live + more, min(2 * rows, self.most))
        if columns > self.end or self.end == width:
            width = max(width, 2 * end, 16)
        else:
            end = self.end
        to = end - (self.end - first)
        self.let_go()
        self.cache.place(rows, width, (live, slice(first, self.end)), to)
        self.starts = [start - first + to for start in self.starts]
        self.end = end

    def copy(self, target: Tensor, source: Tensor, newest: int | None) -> None:
        start = self.first if newest is None else max(self.first, self.end - newest)
        self.cache.copy(target, source, slice(start, self.end))
        if newest is None:
            for into, out in zip(target.tolist(), source.tolist(), strict=True):
                self.starts[into] = self.starts[out]

    def cut(self, count: int) -> None:
        del self.starts[count:]
        if not count:
            self.end = 0

    def step(self, tokens: Tensor) -> Tensor:
        self.make_room(0, 0)
        self.reader.state = self.state()
        self.end += 1
        logits: Tensor = self.reader.read_one(tokens)
        return logits

    def state(self) -> State:
        """Returns the live columns as the state of one batch; nothing is copied."""
        first, count = self.first, len(self.slots)
        length, mask = self.end - first, None
        if any(start > first for start in self.starts):
            starts = torch.tensor(self.starts, device=self.model.device)
            mask = torch.arange(first, self.end, device=starts.device) >= starts[:, None]
        if self.views is None or self.views[0] != (first, count):
            pairs = self.cache.views(count, slice(first, None))
            self.views = (first, count), [self.form(*pair) for pair in pairs]
        for layer in self.views[1]:
            layer.length = length
        return State(list(self.views[1]), attention_mask=mask, length=length)

    def let_go(self) -> None:
        super().let_go()
        self.views = None


class LearnedPositionsTable(CacheTable):
    """The table of a GPT: a row that has filled the positions is read again from its second half,
    as LearnedPositionsState does."""

    def __init__(self, model: Any, most: int) -> None:
        super().__init__(model, most)
        self.reader.capacity = model.config.context  # no row is longer, so it starts nothing anew
        self.known: ReadPrefix | None = None  # the newest prompt: others may begin like it

    def begin(
        self,
        reader: DecodeState,
        prompts: Sequence[Sequence[int]],
        rooms: Sequence[int],
        times: int = 1,
    ) -> list[Begun]:
        assert isinstance(reader, LearnedPositionsState)
        reader.known = self.known
        begun = super().begin(reader, prompts, rooms, times)
        self.known = reader.first_prompt()
        return begun

    def step(self, tokens: Tensor) -> Tensor:
        for at, start in enumerate(self.starts):
            if self.end - start == self.model.config.context:
                self.read_again(at)
        return super().step(tokens)

    def read_again(self, at: int) -> None:
        """Leaves half of a row, without its newest token, which is about to be read."""
        slot, half = self.slots[at], max(1, self.model.config.context // 2)
        end = slot.rows.length - 1
        text = slot.rows.tokens[slot.number, None, end - half + 1 : end]
        self.starts[at] = self.end - (half - 1)
        if half > 1:
            state = self.model.start(1, half - 1)
            self.model(text, state=state)
            parts = [part for layer in state.layers for part in (layer.keys, layer.values)]
            self.cache.add(at, self.starts[at], parts)


class CrossTable(CacheTable):
    """The table of an encoder-decoder: the projected sources have rows and columns of their own."""

    def __init__(self, model: Any, most: int) -> None:
        super().__init__(model, most)
        self.sources = CacheRows()
        self.lengths: list[int] = []  # of the sources

    def take(self, reader: DecodeState, lengths: Sequence[int]) -> None:
        state: State = reader.state  # type: ignore[attr-defined]
        new = [part for source in state.source for part in source.pairs]
        count, live = len(lengths), len(self.slots)
        rows, columns = new[0].size(0), new[0].size(2)
        if not self.sources.parts:
            self.sources.parts = [part.new_zeros(0, part.size(1), 0, part.size(3)) for part in new]
        known, width = self.sources.shape
        if live + count > known or columns > width:
            self.let_go()
            known = known if live + count <= known else max(live + count, min(2 * known, self.most))
            used = max(self.lengths, default=0)
            self.sources.place(known, max(width, columns), (live, slice(0, used)), 0)
        self.sources.add(live, 0, new)
        mask = state.source_attention_mask
        self.lengths += [columns] * rows if mask is None else mask.sum(1).tolist()
        super().take(reader, lengths)

    def copy(self, target: Tensor, source: Tensor, newest: int | None) -> None:
        super().copy(target, source, newest)
        if newest is None:  # beams of one prompt have the same source
            self.sources.copy(target, source, slice(0, max(self.lengths)))
            for into, out in zip(target.tolist(), source.tolist(), strict=True):
                self.lengths[into] = self.lengths[out]

    def cut(self, count: int) -> None:
        super().cut(count)
        del self.lengths[count:]

    def state(self) -> State:
        state, longest = super().state(), max(self.lengths)
        views = self.sources.views(len(self.slots), slice(0, longest))
        state.source = [CrossKV(pair) for pair in views]
        if min(self.lengths) < longest:
            lengths = torch.tensor(self.lengths, device=self.model.device)
            state.source_attention_mask = (
                torch.arange(longest, device=lengths.device) < lengths[:, None]
            )
        return state


TABLES: dict[str, type[RowTable]] = {  # by `Model.decoding`
    "kv_cache": LearnedPositionsTable,
    "cross": CrossTable,
    "recurrent": HiddenTable,
    "queries": HiddenTable,
    "recompute": RowTable,
}


def table_for(model: Any, most: int) -> RowTable:
    """Returns an empty table for up to `most` rows of a model that can generate. A pointer
    remembers words by their columns, so the rows of a model with one are not joined."""
    reader_for(model)  # refuses a model that cannot generate
    return (RowTable if "pointer" in model.extensions else TABLES[model.decoding])(model, most)
