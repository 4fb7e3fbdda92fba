"""Activation patching (Vig et al. 2020; Meng et al. 2022): a model reads a corrupted text, and one
of its inner states is replaced by the state that it had when it read the clean text. Where this
brings the clean answer back, the model holds what makes the two texts differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.errors import InputError, UnknownName
from regard.core.text import Bilingual
from regard.decoding.decode_state import at_rest
from regard.formats.directory import Checkpoint
from regard.lab.deeper.hooks import (
    Change,
    ChangeOutput,
    HeadOutputs,
    LayerParts,
    changed,
    on_output,
    stacks_of,
    stored,
)
from regard.lab.deeper.question import AskedText, Text, check_attends
from regard.lab.look.reading import LookOptions

STATES = ("residual", "heads")
Rows = list[tuple[int, int]]  # a row of the clean text, and the row of the corrupted text


class PatchEffect(NamedTuple):
    """The followed token's probability and logit; of a single score, the score twice."""

    probability: float
    logit: float


@dataclass(frozen=True)
class PatchTable:
    """The effect of every patch of one stack; a row is a layer."""

    kind: str  # self, encoder, decoder or cross
    layers: list[int]  # counted from 1; 0 is the input of the first layer
    columns: list[str]  # tokens of the corrupted text, or the numbers of heads
    cells: list[list[PatchEffect]]


@dataclass(frozen=True)
class Patching:
    """How much of the clean answer comes back."""

    of: str
    token: str
    id: int
    row: str
    clean: PatchEffect
    corrupted: PatchEffect
    tables: list[PatchTable] = field(default_factory=list)
    together: PatchEffect | None = None  # the effect of all patches at once

    def recovered(self, effect: PatchEffect) -> float:
        """Returns the share of the difference of logits that a patch brings back: 0 is the
        corrupted answer, 1 the clean one."""
        span = self.clean.logit - self.corrupted.logit
        return (effect.logit - self.corrupted.logit) / span if span else 0.0

    def facts(self) -> dict[str, Any]:
        tables = [
            {"kind": table.kind, "layers": table.layers, "columns": table.columns,
             "cells": [[list(cell) for cell in row] for row in table.cells]}
            for table in self.tables
        ]  # fmt: skip
        return {
            "of": self.of, "token": self.token, "id": self.id, "row": self.row,
            "clean": list(self.clean), "corrupted": list(self.corrupted), "tables": tables,
            "together": None if self.together is None else list(self.together),
        }  # fmt: skip

    def _repr_html_(self) -> str:
        from regard.report import notebook

        facts = [(Bilingual("clean", "干净文本"), self.clean.probability),
                 (Bilingual("corrupted", "改动文本"), self.corrupted.probability)]  # fmt: skip
        if self.together is not None:
            facts.append((Bilingual("patched", "修补后"), self.together.probability))
        axes = Bilingual("layer", "层"), Bilingual("patched", "修补处")
        matrices = [
            notebook.Matrix(
                table.kind, [[self.recovered(cell) for cell in row] for row in table.cells],
                [str(layer) for layer in table.layers], table.columns, axes, (-1.0, 1.0),
            )
            for table in self.tables
        ]  # fmt: skip
        title = Bilingual(f"How much of {self.token!r} comes back", f"“{self.token}”恢复了多少")
        return notebook.rendered(title, notebook.Facts(facts), notebook.Matrices(matrices))


def patch(
    loaded: Checkpoint,
    clean: Text,
    corrupted: Text,
    *,
    of: str = "residual",
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    alignment: Sequence[tuple[int, int]] | None = None,
    together: bool = False,
    token: int | str | None = None,
    position: int | None = None,
    corrupted_memory: Text | None = None,
    **options: Any,
) -> Patching:
    """Patches states of the clean text into the corrupted text, one after the other.

    `of` is "residual" (the residual stream at each layer and position; layer 0 is the input of the
    first layer) or "heads" (the output of each head at all positions). `layers` and `positions`, of
    the corrupted text, choose some of them. With `together`, all are patched in one run. `token` is
    followed, by default the likeliest of the clean text.

    Both texts have the same number of tokens, unless `alignment` names the pairs (clean, corrupted)
    of positions that belong together. A model with a decoder reads the same target for both texts;
    a recurrent model may read another memory before the corrupted one (`corrupted_memory`).
    """
    if of not in STATES:
        raise UnknownName("state", of, STATES)
    if of == "heads" and positions is not None:
        raise InputError("positions are for the residual stream; heads are patched at all of them")
    check_attends(loaded, "patching")
    look = LookOptions(**options)
    with torch.no_grad(), at_rest(loaded.model):
        if loaded.model.kind == "encoder-decoder" and look.target is None:
            look, position = replace(look, target=written_by(loaded, clean)), position or 1
        first = AskedText.of(loaded, clean, look, position)
        before = look.memory if corrupted_memory is None else corrupted_memory
        second = AskedText.of(loaded, corrupted, replace(look, memory=before), position)
        if first.kind == "span" and len(first.labels) != len(second.labels):
            raise InputError(
                f"the answer is a place in the text, and the texts have {len(first.labels)} and "
                f"{len(second.labels)} tokens; give texts with the same number"
            )
        patcher = Patcher(first, second, of, alignment, token)
        columns = None if positions is None else [place - 1 for place in positions]
        sites = patcher.sites(layers, columns)
        result = Patching(of, first.name(patcher.id), patcher.id,
                          second.rows[second.need_row()].text, patcher.effect(first, []),
                          patcher.effect(second, []))  # fmt: skip
        if together:
            every = [site for _, _, rows in sites for row in rows for site in row]
            return replace(result, together=patcher.effect(second, every))
        return replace(result, tables=[patcher.table(*one) for one in sites])


def written_by(loaded: Checkpoint, text: Text) -> list[int]:
    """Returns the ids that an encoder-decoder writes for a text, without the end."""
    from regard.decoding.generation import generate
    from regard.lab.look.reading import NEW

    written = list(generate(loaded, text, max_new_tokens=NEW)[0][0].ids)
    written = written[:-1] if written[-1:] == [loaded.config.eos_id] else written
    if not written:
        raise InputError("the model writes nothing for the clean text; give a target")
    return written


class PatchSite(NamedTuple):
    """One state of one stack: rows of the residual stream after a layer, or a head of a layer."""

    kind: str
    layer: int
    column: int  # a row of the corrupted text, or a head, from 0


class Patcher:
    """Keeps the states of the clean text and puts them into runs of the corrupted text."""

    def __init__(
        self,
        clean: AskedText,
        corrupted: AskedText,
        of: str,
        alignment: Sequence[tuple[int, int]] | None,
        token: int | str | None,
    ) -> None:
        self.of, self.corrupted = of, corrupted
        stacks = stacks_of(clean.loaded.model)
        self.stacks = {k: v for k, v in stacks.items() if of == "heads" or k != "cross"}
        self.names = {
            kind: [part.text for name in row_names(kind, corrupted) for part in name]
            for kind in self.stacks
        }
        self.rows = {kind: self.aligned(kind, clean, alignment) for kind in self.stacks}
        self.residual: dict[str, list[Tensor]] = {kind: [] for kind in self.stacks}
        self.outputs: dict[int, list[Tensor]] = {}  # by the output projection, a call after another
        self.id = clean.token(token, self.recorded(clean))

    def aligned(
        self, kind: str, clean: AskedText, alignment: Sequence[tuple[int, int]] | None
    ) -> Rows:
        counts = [sum(map(len, row_names(kind, text))) for text in (clean, self.corrupted)]
        if alignment is None or kind in ("decoder", "cross"):
            if counts[0] != counts[1]:
                raise InputError(
                    f"the clean text has {counts[0]} tokens and the corrupted text has "
                    f"{counts[1]}; give texts with the same number of tokens, or an alignment"
                )
            return [(i, i) for i in range(counts[0])]
        for pair in alignment:
            if not all(1 <= place <= count for place, count in zip(pair, counts, strict=True)):
                raise InputError(
                    f"the alignment has the pair {tuple(pair)}; positions go from 1 to {counts[0]} "
                    f"in the clean text and to {counts[1]} in the corrupted text"
                )
        return [(a - 1, b - 1) for a, b in alignment]

    def recorded(self, clean: AskedText) -> Tensor:
        """Runs the clean text, keeps its states, and returns its answer."""
        inputs: list[tuple[nn.Module, Change]] = []
        outputs: list[tuple[nn.Module, ChangeOutput]] = []
        for kind, parts in self.stacks.items():
            keep = stored(self.residual[kind])
            inputs.append((parts.blocks[0], keep))
            outputs += [(block, on_output(keep)) for block in parts.blocks]
            for part in (part for layer in parts.attentions for part in layer):
                inputs.append((part.out, stored(self.outputs.setdefault(id(part.out), []))))
        with changed(inputs, outputs):
            return clean.answer()

    def sites(
        self, layers: Sequence[int] | None, columns: Sequence[int] | None
    ) -> list[tuple[LayerParts, list[int], list[list[PatchSite]]]]:
        """Returns for each stack its layers, and the patches of each layer."""
        sites = []
        for kind, parts in self.stacks.items():
            least = 0 if self.of == "residual" else 1
            chosen = [*range(least, len(parts.blocks) + 1)] if layers is None else list(layers)
            for layer in chosen:
                parts.check_layer(layer, least)
            places = [b for _, b in self.rows[kind]]
            for column in columns or ():
                if column not in places:
                    raise InputError(
                        f"the position is {column + 1}; the positions that can be patched are "
                        f"{', '.join(str(place + 1) for place in places)}"
                    )
            own = places if columns is None else list(columns)
            sites.append((parts, chosen, [
                [PatchSite(kind, layer, column)
                 for column in (own if self.of == "residual" else range(parts.heads(layer)))]
                for layer in chosen
            ]))  # fmt: skip
        return sites

    def table(
        self, parts: LayerParts, layers: list[int], rows: list[list[PatchSite]]
    ) -> PatchTable:
        cells = [[self.effect(self.corrupted, [site]) for site in row] for row in rows]
        widest = max(rows, key=len)
        if self.of == "residual":
            columns = [self.names[parts.kind][site.column] for site in widest]
        else:
            columns = [str(site.column + 1) for site in widest]
        return PatchTable(parts.kind, layers, columns, cells)

    def effect(self, text: AskedText, sites: Sequence[PatchSite]) -> PatchEffect:
        """Runs a text with these patches."""
        inputs: list[tuple[nn.Module, Change]] = []
        outputs: list[tuple[nn.Module, ChangeOutput]] = []
        by_layer: dict[tuple[str, int], list[int]] = {}
        for kind, layer, column in sites:
            by_layer.setdefault((kind, layer), []).append(column)
        for (kind, layer), columns in by_layer.items():
            parts = self.stacks[kind]
            if self.of == "heads":
                for column in columns:
                    part, head = parts.outputs_of(layer, column + 1)
                    inputs.append((part.out, self.head_change(kind, part, head)))
                continue
            pairs = [(a, b) for a, b in self.rows[kind] if b in columns]
            change = partial(moved, self.residual[kind][layer], pairs)
            if layer == 0:
                inputs.append((parts.blocks[0], change))
            else:
                outputs.append((parts.blocks[layer - 1], on_output(change)))
        with changed(inputs, outputs):
            scores = text.answer()
        shares = text.probabilities(scores)
        return PatchEffect(float(shares[self.id]), float(scores[self.id]))

    def head_change(self, kind: str, part: HeadOutputs, head: int) -> Change:
        """Returns the change of one head. A projection may be called twice: the global rows of a
        Longformer come after the others, and are patched as a whole."""
        calls = iter(self.outputs[id(part.out)])
        width = slice(head * part.size, (head + 1) * part.size)

        def change(x: Tensor) -> Tensor:
            clean, y = next(calls), x.clone()
            whole = clean.shape == x.shape and x.size(1) != len(self.names[kind])
            rows = [(i, i) for i in range(x.size(1))] if whole else self.rows[kind]
            y[..., width] = moved(clean[..., width], rows, x[..., width])
            return y

        return change


def moved(clean: Tensor, pairs: Rows, x: Tensor) -> Tensor:
    """Returns x with some rows of the clean state in the place of its own."""
    y = x.clone()
    y[:, [b for _, b in pairs]] = clean[:, [a for a, _ in pairs]]
    return y


def row_names(kind: str, text: AskedText) -> list[Sequence[Any]]:
    """Returns the names of the rows of a stack: XLNet's query rows come after its content rows."""
    names = text.reading.names
    by_kind = {"encoder": ["source"], "decoder": ["target"], "cross": ["target"]}
    keys = by_kind.get(kind) or ["text", *(["asked"] if "asked" in names else [])]
    return [names[key] for key in keys]
