"""Switches heads or whole layers off and shows what changes in the answer.

A head is switched off where its output goes into the output projection: it is replaced by zeros, or
by its mean over the rows of the text. A layer that is off leaves the residual stream as it is; by
its mean, it adds to all rows what it adds on average.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.errors import InputError, UnknownName
from regard.core.text import Bilingual
from regard.decoding.decode_state import at_rest
from regard.formats.directory import Checkpoint
from regard.lab.deeper.hooks import Change, ChangeOutput, LayerParts, changed, stacks_of
from regard.lab.deeper.question import AskedText, Text, check_attends
from regard.lab.look.reading import LookOptions

METHODS = ("zero", "mean")
SHOWN = 5  # of the likeliest tokens before, and as many after

Place = int | str | Sequence[Any]  # 3, (3, 2), ("cross", 3, 2) or "cross.3.2"


class ProbabilityChange(NamedTuple):
    """A token or label with its probability before and after; of a single score, the score."""

    text: str
    id: int
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class Ablation:
    """What changes in the answer without some heads or layers."""

    off: list[str]  # "3.2" is head 2 of layer 3; "3" is the whole layer
    method: str
    row: str  # the token at the row of the answer
    token: ProbabilityChange  # the token or label that is followed
    logits: tuple[float, float]  # its logit before and after
    changes: list[ProbabilityChange]  # the likeliest before and after, the largest change first
    before: np.ndarray  # [classes]: all probabilities
    after: np.ndarray

    def facts(self) -> dict[str, Any]:
        return {
            "off": self.off, "method": self.method, "row": self.row, "logits": list(self.logits),
            "token": self.token._asdict(), "changes": [one._asdict() for one in self.changes],
        }  # fmt: skip

    def _repr_html_(self) -> str:
        from regard.report import notebook

        words = ", ".join(self.off)
        title = Bilingual(f"Without {words} ({self.method})", f"去掉 {words}（{self.method}）")
        return notebook.rendered(title, changes_table(self.changes))


@dataclass(frozen=True)
class AblationTable:
    """Every head switched off alone: `cells[kind][layer][head]`, counted from 0 here."""

    method: str
    row: str
    cells: dict[str, list[list[Ablation]]]

    def effects(self, kind: str) -> list[list[float]]:
        """Returns how much each head changes the probability of the followed token."""
        return [[cell.token.difference for cell in layer] for layer in self.cells[kind]]

    def facts(self) -> dict[str, Any]:
        heads = {
            kind: [[cell.facts() for cell in layer] for layer in layers]
            for kind, layers in self.cells.items()
        }
        return {"method": self.method, "row": self.row, "heads": heads}

    def _repr_html_(self) -> str:
        from regard.report import notebook

        first = next(iter(self.cells.values()))[0][0]
        matrices = []
        for kind in self.cells:
            values = self.effects(kind)
            most = max(abs(value) for row in values for value in row) or 1.0
            rows = [f"{kind} {number}" for number in range(1, len(values) + 1)]
            widest = max(map(len, values))
            columns = [str(number) for number in range(1, widest + 1)]
            even = [row + [0.0] * (widest - len(row)) for row in values]
            axes = Bilingual("layer", "层"), Bilingual("head switched off", "关闭的头")
            matrices.append(notebook.Matrix(kind, even, rows, columns, axes, (-most, most)))
        name = first.token.text
        title = Bilingual(
            f"Change of the probability of {name!r} without each head",
            f"去掉各个头时“{name}”的概率变化",
        )
        return notebook.rendered(title, notebook.Matrices(matrices))


def changes_table(changes: Iterable[ProbabilityChange]) -> Any:
    from regard.report import notebook

    head = [Bilingual("token", "词元"), Bilingual("before", "之前"), Bilingual("after", "之后"),
            Bilingual("difference", "差")]  # fmt: skip
    rows = [
        [one.text, f"{one.before:.4f}", f"{one.after:.4f}", f"{one.difference:+.4f}"]
        for one in changes
    ]
    return notebook.Table(head, rows)


def ablate(
    loaded: Checkpoint,
    text: Text,
    *,
    heads: Sequence[Place] | str = (),
    layers: Sequence[Place] = (),
    method: str = "zero",
    token: int | str | None = None,
    position: int | None = None,
    **options: Any,
) -> Ablation | AblationTable:
    """Returns what changes without these heads and layers together; with heads="all", without each
    head alone.

    A head is (layer, head) or "3.2"; in a model with a decoder (kind, layer, head) or "cross.3.2",
    where the kind is encoder, decoder or cross. A layer is 3 or "encoder.3". `token` is the token
    or label to follow, by default the likeliest.
    """
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    check_attends(loaded, "ablation")
    stacks = stacks_of(loaded.model)
    with torch.no_grad(), at_rest(loaded.model):
        question = AskedText.of(loaded, text, LookOptions(**options), position)
        before = question.answer()
        if heads == "all" and layers:
            raise InputError("heads is 'all' and layers are given; each head is switched off alone")
        if heads != "all":
            chosen = [place_in(stacks, place, 2) for place in heads]
            blocks = [place_in(stacks, place, 1) for place in layers]
            return without(question, stacks, [*chosen, *blocks], method, before, token)
        cells = {
            kind: [
                [without(question, stacks, [(kind, layer, head)], method, before, token)
                 for head in range(1, parts.heads(layer) + 1)]
                for layer in range(1, len(parts.blocks) + 1)
            ]
            for kind, parts in stacks.items()
        }  # fmt: skip
    return AblationTable(method, question.rows[question.need_row()].text, cells)


def place_in(
    stacks: dict[str, LayerParts], place: Place, count: int
) -> tuple[str, *tuple[int, ...]]:
    """Returns (kind, layer, head) or, if `count` is 1, (kind, layer), and refuses what is not in
    the model."""
    parts: list[Any] = [place] if isinstance(place, int) else list(place)
    if isinstance(place, str):
        parts = [int(part) if part.isdecimal() else part for part in place.split(".")]
    kind = parts.pop(0) if parts and isinstance(parts[0], str) else usual_kind(stacks)
    if kind not in stacks:
        raise UnknownName("kind of attention", str(kind), stacks, "(of this model)")
    if len(parts) != count or not all(isinstance(part, int) for part in parts):
        form = "a layer and a head, such as 3.2" if count == 2 else "a layer, such as 3"
        raise InputError(f"{place!r} is not {form}; numbers are counted from 1")
    if count == 2:
        stacks[kind].outputs_of(*parts)
    else:
        stacks[kind].check_layer(*parts)
    return kind, *parts


def usual_kind(stacks: dict[str, LayerParts]) -> str:
    return "decoder" if "decoder" in stacks else "self"


def without(
    question: AskedText,
    stacks: dict[str, LayerParts],
    places: Sequence[tuple[Any, ...]],
    method: str,
    before: Tensor,
    token: int | str | None,
) -> Ablation:
    """Runs the model once without these parts."""
    inputs: list[tuple[nn.Module, Change]] = []
    outputs: list[tuple[nn.Module, ChangeOutput]] = []
    for kind, layer, *head in places:
        if head:
            part, number = stacks[kind].outputs_of(layer, head[0])
            inputs.append((part.out, silenced(number, part.size, method)))
        else:
            outputs.append((stacks[kind].blocks[layer - 1], skipped(method)))
    with changed(inputs, outputs):
        after = question.answer()
    name = [place[1:] if place[0] == "self" else place for place in places]
    return compared(
        question, [".".join(map(str, one)) for one in name], method, before, after, token
    )


def silenced(head: int, size: int, method: str) -> Change:
    def change(x: Tensor) -> Tensor:
        """Replaces the output of one head among those side by side [B, rows, heads · size]."""
        y, part = x.clone(), slice(head * size, (head + 1) * size)
        y[..., part] = x[..., part].mean(-2, keepdim=True) if method == "mean" else 0.0
        return y

    return change


def skipped(method: str) -> ChangeOutput:
    def change(x: Tensor, y: Tensor) -> Tensor:
        return x + (y - x).mean(-2, keepdim=True) if method == "mean" else x

    return change


def compared(
    question: AskedText, off: list[str], method: str, before: Tensor, after: Tensor,
    token: int | str | None,
) -> Ablation:  # fmt: skip
    """Returns two answers side by side."""
    followed = question.token(token, before)
    old, new = question.probabilities(before), question.probabilities(after)
    ids = [one.id for shares in (old, new) for one in question.likely(shares, SHOWN)]

    def change(id: int) -> ProbabilityChange:
        return ProbabilityChange(question.name(id), id, float(old[id]), float(new[id]))

    changes = [change(id) for id in dict.fromkeys([*ids, followed])]
    changes.sort(key=lambda one: -abs(one.difference))
    return Ablation(
        off, method, question.rows[question.need_row()].text, change(followed),
        (float(before[followed]), float(after[followed])), changes,
        old.cpu().numpy(), new.cpu().numpy(),
    )  # fmt: skip
