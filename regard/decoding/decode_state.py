"""Decode states: they return the logits of the next token and hold the memory of a model.

There is one class for each kind of memory: a KV cache, an encoder's output, hidden states, XLNet's
states with a query row, or none. Prompts of different lengths are aligned at the right of one
table, with padding before them that no row sees. All rows grow together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.attention.memory import CrossKV
from regard.core.errors import InputError
from regard.decoding.prefix import ReadPrefix, begin_with, prefix_of, shared
from regard.decoding.processors import DecodedSoFar
from regard.models import FAMILIES
from regard.models.base import Model
from regard.models.state import State
from regard.models.step import Stepper, stepper_for


class DecodeState:
    """The base class. Subclasses say how prompts are read, and how one more token is read."""

    decoder_prefix: Sequence[int] = ()  # the first tokens of a decoder beside an encoder
    tokens: Tensor  # [rows, room]: the tokens read so far, and space for new ones
    padding: Tensor | None  # [rows]: the number of padding columns at the left; None: no padding

    def __init__(self, model: Any) -> None:
        self.model = model
        self.length = self.prompt = 0  # the columns read so far; the columns of the prompt

    @functools.cached_property
    def stepper(self) -> Stepper | None:
        """What reads one token natively; None: the model's forward does."""
        return stepper_for(self.model)

    def begin(self, prompts: Sequence[Sequence[int]], room: int, times: int = 1) -> Tensor:
        """Reads the prompts, for up to `room` new tokens and `times` continuations of each prompt.

        Returns the logits [prompts, V]: a prompt is read once, however many continuations it has.
        """
        self.lay_out(prompts, room)
        logits = self.read_prompts(room, times)
        if times > 1:
            self.tokens = self.tokens.repeat_interleave(times, 0)
            if self.padding is not None:
                self.padding = self.padding.repeat_interleave(times, 0)
            self.spread(times)
        return logits

    def lay_out(self, prompts: Sequence[Sequence[int]], room: int) -> None:
        longest = max(len(prompt) for prompt in prompts)
        table = torch.zeros(len(prompts), longest + room, dtype=torch.long)
        for row, prompt in zip(table, prompts, strict=True):
            row[longest - len(prompt) : longest] = torch.tensor(prompt)
        before = [longest - len(prompt) for prompt in prompts]
        device = self.model.device
        self.tokens = table.to(device)
        self.padding = torch.tensor(before, device=device) if any(before) else None
        self.length = self.prompt = longest

    def read(self, tokens: Tensor) -> Tensor:
        """Reads one more token per row [rows] and returns the logits of the next [rows, V]."""
        self.tokens[:, self.length] = tokens
        self.length += 1
        return self.read_one(tokens[:, None])

    def past(self) -> DecodedSoFar:
        seen = self.tokens[:, : self.length]
        return DecodedSoFar(seen, self.mask_of(0, self.length), self.length - self.prompt)

    def mask_of(self, start: int, end: int) -> Tensor | None:
        """Returns which of the columns start … end are not padding."""
        if self.padding is None:
            return None
        columns = torch.arange(start, end, device=self.padding.device)
        return columns >= self.padding[:, None]

    def keep(self, rows: Tensor) -> None:
        """Keeps only these rows."""
        self.tokens = self.tokens[rows]
        self.padding = None if self.padding is None else self.padding[rows]
        self.select(rows)

    def follow(self, chosen: Tensor) -> None:
        """Reorders beams: row i continues the text of row chosen[i], which has the same prompt."""
        here = torch.arange(chosen.numel(), device=chosen.device)
        moved = (chosen != here).nonzero()[:, 0]
        if moved.numel():
            source = chosen[moved]
            copy_rows(self.tokens[:, self.prompt : self.length], moved, source)
            self.move(moved, source)

    def read_prompts(self, room: int, times: int) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how it reads prompts")

    def read_one(self, tokens: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how it reads a token")

    def spread(self, times: int) -> None:
        """Repeats the memory of every row `times` times, side by side."""

    def select(self, rows: Tensor) -> None:
        """Keeps the memory of these rows only."""

    def move(self, moved: Tensor, source: Tensor) -> None:
        """Copies the memory of the rows `source` to the rows `moved`."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits of the last row only, in at least 32 bits."""
        y: Tensor = self.model.logits(hidden[:, -1])
        return y.float() if y.dtype in (torch.bfloat16, torch.float16) else y


def copy_rows(table: Tensor, moved: Tensor, source: Tensor) -> None:
    table.index_copy_(0, moved, table.index_select(0, source))


class CachedState(DecodeState):
    """A KV cache for each layer, allocated once."""

    state: State
    capacity: int  # the columns of the cache
    fixed: int  # the columns that are the same for all continuations of a prompt

    def spread(self, times: int) -> None:
        for layer in self.state.layers:
            layer.keys, layer.values = (
                stretched(part, times, layer.length, self.capacity)
                for part in (layer.keys, layer.values)
            )
        if self.state.attention_mask is not None:
            self.state.attention_mask = self.state.attention_mask.repeat_interleave(times, 0)

    def select(self, rows: Tensor) -> None:
        for layer in self.state.layers:
            layer.keys, layer.values = (
                selected(part, rows, layer.length) for part in (layer.keys, layer.values)
            )
        if self.state.attention_mask is not None:
            self.state.attention_mask = self.state.attention_mask[rows]

    def move(self, moved: Tensor, source: Tensor) -> None:
        for layer in self.state.layers:
            for part in (layer.keys, layer.values):
                copy_rows(part[:, :, self.fixed : layer.length], moved, source)


def stretched(part: Tensor, times: int, length: int, capacity: int) -> Tensor:
    """Returns a larger buffer in which every row is repeated `times` times."""
    batch, heads, _, size = part.shape
    buffer = part.new_zeros(batch, times, heads, capacity, size)
    buffer[:, :, :, :length] = part[:, None, :, :length]
    return buffer.flatten(0, 1)


def selected(part: Tensor, rows: Tensor, length: int) -> Tensor:
    buffer = part.new_zeros(rows.numel(), *part.shape[1:])
    buffer[:, :, :length] = part[:, :, :length].index_select(0, rows)
    return buffer


class LearnedPositionsState(CachedState):
    """The state of a GPT. When a text has filled the learned positions, it continues from its
    second half.

    That half is read again at positions from 0 on, and the cache starts anew. When this happens to
    a row depends only on its own tokens, never on the other rows.
    """

    known: ReadPrefix | None = None  # a text that was read before

    def read_prompts(self, room: int, times: int) -> Tensor:
        self.capacity = min(self.prompt + room - 1, self.model.config.context)
        self.fixed = self.prompt
        first = self.padding
        self.first = first if first is not None else self.tokens.new_zeros(self.tokens.size(0))
        self.state = self.model.start(
            self.tokens.size(0), self.prompt if times > 1 else self.capacity
        )
        padding = self.first.tolist()
        texts = [self.tokens[row, n : self.prompt] for row, n in enumerate(padding)]
        prefix = shared(self.model, texts, self.known)
        if prefix is not None:
            begin_with(self.state, prefix, padding)
        return self.window(self.prompt)

    def first_prompt(self) -> ReadPrefix | None:
        """Returns what was read of the first prompt, for prompts that begin like it."""
        start = int(self.first[0])
        return prefix_of(self.model, self.state, self.tokens[0, start : self.prompt], start)

    def window(self, width: int) -> Tensor:
        """Reads the last `width` columns, of which the state may hold the first ones."""
        start = self.length - width + self.state.length
        columns = torch.arange(start, self.length, device=self.tokens.device)
        attention_mask = columns >= self.first[:, None]
        marks = None if bool(attention_mask.all()) else attention_mask
        tokens = self.tokens[:, start : self.length]
        return self.logits(self.model(tokens, attention_mask=marks, state=self.state))

    def read_one(self, tokens: Tensor) -> Tensor:
        if self.state.length < self.capacity:
            if self.stepper is not None and self.stepper.serves(self.state):
                return self.stepper.read(tokens[:, 0], self.state)
            return self.logits(self.model(tokens, state=self.state))
        context = self.model.config.context
        half = self.length - max(1, context // 2)
        self.first = torch.where(self.length - self.first > context, half, self.first)
        for layer in self.state.layers:
            layer.length = 0
        self.state.length, self.state.attention_mask, self.fixed = 0, None, 0
        return self.window(self.length - int(self.first.min()))

    @property
    def room(self) -> int:
        """How many more tokens fit before the text continues from its second half."""
        return self.capacity - self.state.length

    def read_ahead(self, tokens: Tensor) -> Tensor:
        """Reads tokens [N] that follow each other in the only text; returns the logits after each
        [N, V]."""
        self.tokens[:, self.length : self.length + len(tokens)] = tokens
        self.length += len(tokens)
        if self.stepper is not None and self.stepper.serves(self.state):
            return self.stepper.read_ahead(tokens, self.state)
        logits: Tensor = self.model.logits(self.model(tokens[None], state=self.state)[0])
        return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits

    def forget(self, count: int) -> None:
        """Forgets the newest tokens."""
        self.length -= count
        self.state.length -= count
        for layer in self.state.layers:
            layer.length -= count

    def spread(self, times: int) -> None:
        super().spread(times)
        self.first = self.first.repeat_interleave(times, 0)

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self.first = self.first[rows]


class EncoderDecoderState(CachedState):
    """The state of an encoder-decoder: the source is encoded and projected once."""

    def begin(self, prompts: Sequence[Sequence[int]], room: int, times: int = 1) -> Tensor:
        self.sources = prompts
        first = list(self.decoder_prefix) or [self.model.config.start_id]
        return super().begin([first] * len(prompts), room, times)

    def read_prompts(self, room: int, times: int) -> Tensor:
        self.capacity, self.fixed = self.prompt + room - 1, self.prompt
        source, attention_mask = right_padded(self.sources, self.model.device)
        state = self.model.start(len(self.sources), self.prompt if times > 1 else self.capacity)
        projected = self.model.project_source(self.model.encode(source, attention_mask))
        state.source = [CrossKV(tuple(x.contiguous() for x in each.pairs)) for each in projected]
        state.source_attention_mask, self.state = attention_mask, state
        return self.read_one(self.tokens[:, : self.prompt])

    def read_one(self, tokens: Tensor) -> Tensor:
        state = self.state
        if tokens.size(1) == 1 and self.stepper is not None and self.stepper.serves(state):
            return self.stepper.read(tokens[:, 0], state)
        return self.logits(
            self.model.decode(tokens, state.source, state.source_attention_mask, None, state)
        )

    def spread(self, times: int) -> None:
        super().spread(times)
        state = self.state
        state.source = [CrossKV(tuple(repeated(x, times) for x in f.pairs)) for f in state.source]  # type: ignore[arg-type]
        if state.source_attention_mask is not None:
            state.source_attention_mask = state.source_attention_mask.repeat_interleave(times, 0)

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        state = self.state
        state.source = [fixed.reorder(rows) for fixed in state.source]
        state.source_attention_mask = (
            None if state.source_attention_mask is None else state.source_attention_mask[rows]
        )


def repeated(x: Tensor, times: int) -> Tensor:
    """Repeats every row `times` times; a single row is not copied."""
    return x.expand(times, -1, -1, -1) if x.size(0) == 1 else x.repeat_interleave(times, 0)


def right_padded(
    rows: Sequence[Sequence[int]], device: torch.device, filler: int = 0
) -> tuple[Tensor, Tensor | None]:
    """Returns a table of ids and its attention mask, which is None if there is no padding."""
    longest = max(len(row) for row in rows)
    table = torch.full((len(rows), longest), filler)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(row) for row in rows])
    attention_mask = torch.arange(longest) < lengths[:, None]
    return table.to(device), None if bool(attention_mask.all()) else attention_mask.to(device)


class RecurrentState(DecodeState):
    """The last rows, as keys and values (Transformer-XL), or two vectors per layer (LSTM), without
    limit."""

    state: State

    def read_prompts(self, room: int, times: int) -> Tensor:
        self.state = self.model.start(self.tokens.size(0), 0)
        step = getattr(self.model.config, "mem_len", 0) or self.prompt
        for start in range(0, self.prompt, step):
            end = min(start + step, self.prompt)
            attention_mask = self.mask_of(start, end)
            hidden = self.model(
                self.tokens[:, start:end], attention_mask=attention_mask, state=self.state
            )
        if hasattr(self.model, "projected"):
            self.state = self.model.projected(self.state)
        return self.logits(hidden)

    def read_one(self, tokens: Tensor) -> Tensor:
        state = self.state
        if state.attention_mask is not None and bool(state.attention_mask.all()):
            state.attention_mask = None  # the padding has left the memory
        if state.layers and self.stepper is not None and self.stepper.serves(state):
            return self.stepper.read(tokens[:, 0], state)
        return self.logits(self.model(tokens, state=state))

    def spread(self, times: int) -> None:
        rows = torch.arange(self.tokens.size(0), device=self.tokens.device) // times
        self.state.reorder(rows)

    def select(self, rows: Tensor) -> None:
        self.state.reorder(rows)

    def move(self, moved: Tensor, source: Tensor) -> None:
        for part in self.state.remembered(self.length - self.prompt):
            copy_rows(part, moved, source)


class QueryRowState(RecurrentState):
    """The state of XLNet: a query row predicts the word after the text and sees content rows.

    The factorization order is: the prompt, whose words see each other, then word after word.
    Content rows never change by what follows them, so their hidden states are kept as a memory. The
    position of the next word holds a dummy token that no other row sees; it is not remembered.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model.unlimited())

    def read_prompts(self, room: int, times: int) -> Tensor:
        self.state = State()
        attention_mask = self.mask_of(0, self.prompt)
        seen = self.tokens[:, : self.prompt]
        return self.ask(seen, torch.full_like(seen, -1), attention_mask)

    def read_one(self, tokens: Tensor) -> Tensor:
        return self.ask(tokens, torch.zeros_like(tokens), None)

    def ask(self, tokens: Tensor, order: Tensor, attention_mask: Tensor | None) -> Tensor:
        unknown = torch.zeros_like(tokens[:, :1])
        order = torch.cat([order, order[:, -1:] + 1], 1)
        target = torch.full_like(unknown, tokens.size(1))
        if attention_mask is not None:
            attention_mask = torch.cat([attention_mask, torch.ones_like(attention_mask[:, :1])], 1)
        rows, state = torch.cat([tokens, unknown], 1), self.state
        hidden = self.model(
            rows, attention_mask=attention_mask, order=order, targets=target, state=state
        )
        state.hidden = [layer[:, :-1] for layer in state.hidden]
        state.attention_mask = (
            None if state.attention_mask is None else state.attention_mask[:, :-1]
        )
        return self.logits(hidden)


class Recomputing(DecodeState):
    """The state of a model without a memory: each step reads all rows that can matter."""

    def read_prompts(self, room: int, times: int) -> Tensor:
        return self.read_one(self.tokens)

    def read_one(self, tokens: Tensor) -> Tensor:
        reach = self.model.reach
        start = 0 if reach is None else max(0, self.length - 1 - reach)
        attention_mask = self.mask_of(start, self.length)
        seen = self.tokens[:, start : self.length]
        return self.logits(self.model(seen, attention_mask=attention_mask))


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """Switches dropout off inside the context; afterwards the model is in its previous mode."""
    training = model.training
    if training:
        model.eval()
    try:
        yield
    finally:
        if training:
            model.train()


READERS: dict[str, type[DecodeState]] = {  # by `Model.decoding`
    "kv_cache": LearnedPositionsState,
    "cross": EncoderDecoderState,
    "recurrent": RecurrentState,
    "queries": QueryRowState,
    "recompute": Recomputing,
}


def reader_for(model: Any) -> DecodeState:
    """Returns the decode state for a model; a model that cannot continue a text is refused."""
    if model.decoding:
        return READERS[model.decoding](model)
    heads = ", ".join(getattr(model, "heads", {})) or "none"
    if hasattr(model, "output"):
        does = "it fills blanks ('regard fill') and cannot continue a text"
    else:
        does = f"it has no output for words (its heads: {heads}) and cannot generate"
    goes_on = [n for n, card in FAMILIES.items() if card.model.decoding is not Model.decoding]
    able = ", ".join(goes_on)
    raise InputError(f"this model is a {type(model).__name__}: {does}; generate with one of {able}")
