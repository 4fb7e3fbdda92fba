"""Joined decoding: the rows of many prompts share each step of one model (continuous batching).

A prompt is read by a DecodeState of its own, as in `generate`. Then its memory moves into a table
whose rows come and go between any two tokens:

    table = table_for(model, most=32)
    rows, logits = table.begin(decoder.reader(), [prompt], [100])[0]
    logits = table.read([(rows, tokens), (other_rows, other_tokens)])  # one call of the model
    table.release(rows)

Rows of different lengths are aligned at the right, with padding before them that no row sees. So a
row gets the same logits as alone, up to the rounding of sums whose order depends on the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.memory import CrossKV, KVCache
from regard.decoding.decode_state import DecodeState, copy_rows, reader_for
from regard.models.state import State

Begun = tuple[DecodeState, Tensor]  # the rows of a prompt, and the logits [1, V] after it


@dataclass(eq=False)
class Slot:
    """A row of a table: where it is now, and whose it is."""

    at: int
    rows: JoinedRows
    number: int  # its number among the rows of its prompt


class JoinedRows(DecodeState):
    """The rows of one prompt, in a table with the rows of others."""

    padding = None

    def __init__(self, table: JoinedTable, tokens: Tensor, room: int) -> None:
        self.table, self.prompt = table, tokens.size(1)
        self.length = self.prompt
        self.tokens = F.pad(tokens, (0, room))
        self.slots: list[Slot] = []

    def places(self) -> list[int]:
        return [slot.at for slot in self.slots]

    def add(self, tokens: Tensor) -> None:
        self.tokens[:, self.length] = tokens
        self.length += 1

    def select(self, rows: Tensor) -> None:
        staying = [self.slots[i] for i in rows.tolist()]
        self.table.drop([slot for slot in self.slots if slot not in staying])
        self.slots = staying
        for number, slot in enumerate(staying):
            slot.number = number

    def move(self, moved: Tensor, source: Tensor) -> None:
        at = torch.tensor(self.places())
        self.table.copy(at[moved.cpu()], at[source.cpu()], self.length - self.prompt)


class RowTable:
    """The base class, and the table of models whose rows cannot be joined: every prompt keeps a
    DecodeState of its own."""

    together = False  # whether several prompts may be read in one call

    def __init__(self, model: Any, most: int) -> None:
        self.model, self.most = model, most

    @torch.inference_mode()
    def begin(
        self,
        reader: DecodeState,
        prompts: Sequence[Sequence[int]],
        rooms: Sequence[int],  # the most new tokens of each prompt
        times: int = 1,
    ) -> list[Begun]:
        """Reads prompts; `times` rows continue each of them."""
        return [(reader, reader.begin(prompts, rooms[0], times))]

    @torch.inference_mode()
    def read(self, pairs: Sequence[tuple[Any, Tensor]]) -> list[Tensor]:
        """Reads one more token for every row, and returns the logits of the next token."""
        return [reader.read(tokens) for reader, tokens in pairs]

    def release(self, reader: Any) -> None:
        """Removes the rows of a prompt."""


class JoinedTable(RowTable):
    """Rows that share a memory. Subclasses say how it takes rows, loses them, and is read."""

    def __init__(self, model: Any, most: int) -> None:
        super().__init__(model, most)
        self.reader: Any = reader_for(model)
        self.slots: list[Slot] = []

    @torch.inference_mode()
    def begin(
        self,
        reader: DecodeState,
        prompts: Sequence[Sequence[int]],
        rooms: Sequence[int],
        times: int = 1,
    ) -> list[Begun]:
        logits = reader.begin(prompts, 1, times)
        padding = [0] * len(prompts) if reader.padding is None else reader.padding[::times].tolist()
        self.take(reader, [reader.length - before for before in padding for _ in range(times)])
        begun: list[Begun] = []
        for i, (before, room) in enumerate(zip(padding, rooms, strict=True)):
            own = reader.tokens[i * times : (i + 1) * times, before : reader.length]
            rows = JoinedRows(self, own, room)
            rows.slots = [Slot(len(self.slots) + n, rows, n) for n in range(times)]
            self.slots += rows.slots
            begun.append((rows, logits[i : i + 1]))
        return begun

    @torch.inference_mode()
    def read(self, pairs: Sequence[tuple[Any, Tensor]]) -> list[Tensor]:
        feed = torch.zeros(len(self.slots), dtype=torch.long, device=self.model.device)
        for rows, tokens in pairs:
            rows.add(tokens)
            feed[rows.places()] = tokens
        logits = self.step(feed[:, None])
        return [logits[rows.places()] for rows, _ in pairs]

    def release(self, reader: Any) -> None:
        self.drop(reader.slots)
        reader.slots = []

    @torch.inference_mode()
    def drop(self, gone: Sequence[Slot]) -> None:
        """Removes rows; the last rows move to their places."""
        leaving = {slot.at for slot in gone}
        count = len(self.slots) - len(leaving)
        holes = sorted(at for at in leaving if at < count)
        movers = [at for at in range(count, len(self.slots)) if at not in leaving]
        if holes:
            self.copy(torch.tensor(holes), torch.tensor(movers), None)
        for hole, mover in zip(holes, movers, strict=True):
            self.slots[hole] = self.slots[mover]
            self.slots[hole].at = hole
        del self.slots[count:]
        self.cut(count)

    def take(self, reader: DecodeState, lengths: Sequence[int]) -> None:
        """Takes over the memory of a state; `lengths` are the tokens of its rows."""
        raise TypeError(f"{type(self).__name__} does not say how it takes rows")

    def copy(self, target: Tensor, source: Tensor, newest: int | None) -> None:
        """Copies rows, or only what they remember of their newest tokens."""
        raise TypeError(f"{type(self).__name__} does not say how it copies rows")

    def cut(self, count: int) -> None:
        """Keeps the first `count` rows."""
        raise TypeError(f"{type(self).__name__} does not say how it loses rows")

    def step(self, tokens: Tensor) -> Tensor:
        """Reads one token for each row [rows, 1]."""
        raise TypeError(f"{type(self).__name__} does not say how it reads")


class HiddenTable(JoinedTable):
    """Hidden states: the memory of Transformer-XL, XLNet or an LSTM. Prompts are read one by one:
    where a segment ends must not depend on others."""

    def take(self, reader: DecodeState, lengths: Sequence[int]) -> None:
        new: State = reader.state  # type: ignore[attr-defined]
        if not self.slots:
            self.reader.state = new
            return
        old: State = self.reader.state
        marks = [marks_of(state, count) for state, count in ((old, len(self.slots)),
                                                             (new, len(lengths)))]  # fmt: skip
        hidden = [torch.cat(aligned(pair)) for pair in zip(old.hidden, new.hidden, strict=True)]
        mask = torch.cat(aligned(marks))
        self.reader.state = State(
            hidden=hidden, length=hidden[0].size(1), attention_mask=None if mask.all() else mask
        )

    def copy(self, target: Tensor, source: Tensor, newest: int | None) -> None:
        state = self.reader.state
        for hidden in state.hidden:
            copy_rows(hidden, target, source)
        if state.attention_mask is not None:
            copy_rows(state.attention_mask, target, source)

    def cut(self, count: int) -> None:
        self.reader.state.reorder(torch.arange(count))

    def step(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.reader.read_one(tokens)
        return logits


def marks_of(state: State, rows: int) -> Tensor:
    if state.attention_mask is not None:
        return state.attention_mask
    return torch.ones(rows, state.hidden[0].size(1), dtype=torch.bool)


def aligned(parts: Sequence[Tensor]) -> list[Tensor]:
    """Returns tables [rows, M, …] of one M: shorter ones get zeros at the left."""
    most = max(part.size(1) for part in parts)
    return [
        F.pad(part, (*(0, 0) * (part.dim() - 2), most - part.size(1), 0)) if part.size(1) < most
        else part
        for part in parts
    ]  # fmt: skip


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
                part = part.new_zeros(rows, part.size(1), columns, part.size(3))
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
        self.starts: list[int] = []  # the first column of each row
        self.end = 0  # the column that is written next

    @property
    def first(self) -> int:
        return min(self.starts, default=self.end)

    def take(self, reader: DecodeState, lengths: Sequence[int]) -> None:
        layers: list[KVCache] = reader.state.layers  # type: ignore[attr-defined]
        new = [
            part[:, :, : layer.length] for layer in layers for part in (layer.keys, layer.values)
        ]
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
        views = self.cache.views(count, slice(first, None))
        layers = [KVCache(keys, values, length) for keys, values in views]
        return State(layers, attention_mask=mask, length=length)


class LearnedPositionsTable(CacheTable):
    """The table of a GPT: a row that has filled the positions is read again from its second half,
    as LearnedPositionsState does."""

    def __init__(self, model: Any, most: int) -> None:
        super().__init__(model, most)
        self.reader.capacity = model.config.context  # no row is longer, so it starts nothing anew

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
