"""The rows of many prompts in one table: whose each is, and how they come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.decode_state import DecodeState, reader_for
from regard.decoding.sampling import StepScores

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
    def read(self, pairs: Sequence[tuple[Any, Tensor]]) -> list[StepScores]:
        """Reads one more token for every row, and returns the scores of the next token."""
        return [StepScores.of(reader.read(tokens)) for reader, tokens in pairs]

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
    def read(self, pairs: Sequence[tuple[Any, Tensor]]) -> list[StepScores]:
        feed = [0] * len(self.slots)
        for rows, tokens in pairs:
            rows.add(tokens)
            for place, token in zip(rows.places(), tokens.tolist(), strict=True):
                feed[place] = token
        scores = StepScores.of(self.step(torch.tensor(feed, device=self.model.device)[:, None]))
        return [scores.rows(rows.places()) for rows, _ in pairs]

    def let_go(self) -> None:
        """Drops what the last step has kept of memory that is about to be replaced."""
        self.reader.state = None
        if self.reader.stepper is not None:
            self.reader.stepper.forget()

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
