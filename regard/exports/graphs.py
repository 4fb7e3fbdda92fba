"""The graphs of a model: plain functions of tensors, as exchange formats need them.

A text model is one graph. A model with a memory of rows receives it as an input and returns it as
an output. An encoder-decoder is two graphs, so that the source is read once. The names of inputs
and outputs are those of the published libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.exports.base import ExportSample, ExportSource, Runtime
from regard.models.state import State

LENGTH = 40  # the tokens of the example that is traced; any other number works in the graph
BATCH, ROWS = 0, 1  # the dynamic dimensions of most inputs


@dataclass
class TracedGraph:
    """A module to be traced, and example inputs by name with their dynamic dimensions."""

    name: str
    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    dynamic: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def dimensions(self) -> dict[str, dict[int, Any]]:
        """Returns what `torch.export` expects of every input."""
        return {
            name: dict.fromkeys(self.dynamic.get(name, (BATCH, ROWS)), torch.export.Dim.DYNAMIC)
            for name in self.inputs
        }


class Answering(nn.Module):
    """From tokens to the answer: logits of the output or of a head, or the hidden states."""

    def __init__(self, source: ExportSource) -> None:
        super().__init__()
        self.model: Any = source.model
        self.head, self.plain = source.head, source.quantity == "hidden states"

    def answer(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        if self.plain:
            return hidden
        y: Tensor = (
            self.model.logits(hidden)
            if self.head is None
            else self.model.read(self.head, hidden, attention_mask)
        )
        return y


class TextGraph(Answering):
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        global_tokens: Tensor | None = None,
    ) -> Tensor:
        marks = attention_mask.bool()
        named = {"segments": token_type_ids, "global_tokens": global_tokens}
        more = {name: value for name, value in named.items() if value is not None}
        return self.answer(self.model(input_ids, marks, **more), marks)


class MemoryGraph(Answering):
    """The memory [layers, B, mem_len, width] has a fixed length; the mask [B, mem_len + T] hides
    the part of it that is not filled yet."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        marks, past = attention_mask.bool(), memory.size(2)
        state = State(hidden=list(memory.unbind(0)), attention_mask=marks[:, :past])
        hidden = self.model(input_ids, marks[:, past:], state=state)
        return self.answer(hidden, marks[:, past:]), torch.stack(state.hidden)


class SourceGraph(Answering):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        y: Tensor = self.model.encode(input_ids, attention_mask.bool())
        return y


class TargetGraph(Answering):
    def forward(
        self,
        decoder_input_ids: Tensor,
        encoder_hidden_states: Tensor,
        encoder_attention_mask: Tensor,
    ) -> Tensor:
        pairs = self.model.project_source(encoder_hidden_states)
        hidden = self.model.decode(decoder_input_ids, pairs, encoder_attention_mask.bool())
        return self.answer(hidden, None)


def graphs(source: ExportSource) -> Iterator[TracedGraph]:
    """Yields the graphs of a model."""
    rows = min(LENGTH, source.context or LENGTH)
    ids = torch.arange(2 * rows).reshape(2, rows) % source.config.vocab_size
    marks = torch.ones_like(ids)
    marks[1, rows // 2 :] = 0
    inputs = {"input_ids": ids, "attention_mask": marks}
    outputs = ("logits",) if source.quantity == "logits" else ("last_hidden_state",)
    if source.kind == "encoder-decoder":
        yield TracedGraph("encoder", SourceGraph(source), inputs, ("last_hidden_state",))
        hidden = torch.randn(2, rows, source.config.width)
        decoder = {
            "decoder_input_ids": ids[:, : rows // 2],
            "encoder_hidden_states": hidden,
            "encoder_attention_mask": marks,
        }
        yield TracedGraph("decoder", TargetGraph(source), decoder, outputs)
    elif has_memory(source):
        past = source.config.mem_len
        memory = torch.randn(source.config.layers, 2, past, source.config.width)
        inputs = {
            "input_ids": ids,
            "attention_mask": torch.cat([marks.new_zeros(2, past), marks], 1),
            "memory": memory,
        }
        names = (*outputs, "new_memory")
        yield TracedGraph("model", MemoryGraph(source), inputs, names, {"memory": (1,)})
    else:
        yield TracedGraph("model", TextGraph(source), inputs | more_inputs(source, ids), outputs)


def has_memory(source: ExportSource) -> bool:
    return bool(source.model.causal and source.model.remembers == "rows" and source.config.mem_len)


def more_inputs(source: ExportSource, ids: Tensor) -> dict[str, Tensor]:
    """Returns the inputs that only some models have, for texts without anything special."""
    accepts, inputs = source.model.accepts, {}
    if "segments" in accepts and getattr(source.config, "segments", 2) > 1:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    if "global_tokens" in accepts:  # positions; -1 is none
        inputs["global_tokens"] = torch.full((ids.size(0), 2), -1)
    return inputs


class GraphRuntime(Runtime):
    """A runtime that computes graphs: it calls `run(name, inputs)`, which a subclass has."""

    batches = True

    def __init__(self, source: ExportSource) -> None:
        self.source, self.quantity = source, source.quantity

    def run(self, name: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        raise TypeError(f"{type(self).__name__} does not say how it runs a graph")

    def rows(self, sample: ExportSample) -> np.ndarray:
        return self.batch([sample])[0]

    def batch(self, samples: list[ExportSample]) -> list[np.ndarray]:
        ids, marks = padded([sample.input_ids for sample in samples], self.source.pad_id)
        if samples[0].decoder_input_ids is not None:
            answer, lengths = self.pairs(samples, ids, marks), [len(s.written) for s in samples]
        else:
            answer, lengths = self.texts(ids, marks), [len(s.input_ids) for s in samples]
        if answer.ndim == 2:  # one answer for a text
            return [row[None] for row in answer]
        return [rows[:length] for rows, length in zip(answer, lengths, strict=True)]

    def pairs(self, samples: list[ExportSample], ids: np.ndarray, marks: np.ndarray) -> np.ndarray:
        written, _ = padded([sample.written for sample in samples], self.source.pad_id)
        hidden = self.run("encoder", {"input_ids": ids, "attention_mask": marks})[0]
        inputs = {
            "decoder_input_ids": written,
            "encoder_hidden_states": hidden,
            "encoder_attention_mask": marks,
        }
        return self.run("decoder", inputs)[0]

    def texts(self, ids: np.ndarray, marks: np.ndarray) -> np.ndarray:
        if has_memory(self.source):
            return self.segments(ids, marks)
        more = more_inputs(self.source, torch.from_numpy(ids))
        arrays = {name: value.numpy() for name, value in more.items()}
        return self.run("model", {"input_ids": ids, "attention_mask": marks} | arrays)[0]

    def segments(self, ids: np.ndarray, marks: np.ndarray) -> np.ndarray:
        """Reads a text in two segments, the second with the memory of the first: the memory that
        goes out and in is compared, too."""
        c = self.source.config
        memory = np.zeros((c.layers, len(ids), c.mem_len, c.width), np.float32)
        seen = np.zeros((len(ids), c.mem_len), np.int64)
        first = max(1, min(ids.shape[1] // 2, c.mem_len))
        parts = []
        for part in (slice(0, first), slice(first, None)):
            if ids[:, part].shape[1] == 0:
                continue
            seen = np.concatenate([seen, marks[:, part]], 1)
            inputs = {"input_ids": ids[:, part], "attention_mask": seen, "memory": memory}
            answer, memory = self.run("model", inputs)
            seen = seen[:, -c.mem_len :]
            parts.append(answer)
        return np.concatenate(parts, 1)


def padded(rows: list[list[int]], fill: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of tokens as one table, padded on the right, and its mask."""
    table = np.full((len(rows), max(map(len, rows))), fill, np.int64)
    marks = np.zeros_like(table)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
        marks[i, : len(row)] = 1
    return table, marks
