"""Changes what flows through a model while it runs, by hooks: the model itself stays as it is, and
other threads that run it meanwhile see nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.core.errors import InputError
from regard.lab.look.recorded import kind_of, place_of

Change = Callable[[Tensor], Tensor | None]  # None: nothing changes
ChangeOutput = Callable[[Tensor, Tensor], Tensor | None]  # of (the first input, the output)
KINDS = ("self", "encoder", "decoder", "cross")


@contextmanager
def changed(
    inputs: Sequence[tuple[nn.Module, Change]] = (),
    outputs: Sequence[tuple[nn.Module, ChangeOutput]] = (),
) -> Iterator[None]:
    """Changes the first input, or the output, of modules inside the `with` block."""
    here = get_ident()

    def before(change: Change) -> Callable[..., Any]:
        def hook(_: nn.Module, values: tuple[Any, ...]) -> Any:
            new = change(values[0]) if get_ident() == here else None
            return None if new is None else (new, *values[1:])

        return hook

    def after(change: ChangeOutput) -> Callable[..., Any]:
        def hook(_: nn.Module, values: tuple[Any, ...], y: Tensor) -> Tensor | None:
            return change(values[0], y) if get_ident() == here else None

        return hook

    hooks = [part.register_forward_pre_hook(before(change)) for part, change in inputs]
    hooks += [part.register_forward_hook(after(change)) for part, change in outputs]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def stored(store: list[Tensor]) -> Change:
    """Returns a change that changes nothing and keeps every tensor that it sees."""

    def keep(x: Tensor) -> None:
        store.append(x)

    return keep


def on_output(change: Change) -> ChangeOutput:
    """Returns the change of an output that does not depend on the input."""
    return lambda _, y: change(y)


@dataclass(frozen=True)
class HeadOutputs:
    """Heads whose outputs, side by side, are the input of one output projection."""

    out: nn.Module
    heads: int
    size: int  # the width of a head


@dataclass(frozen=True)
class LayerParts:
    """The layers of one stack: blocks, and the attentions of one kind inside them."""

    kind: str
    blocks: list[nn.Module]
    attentions: list[list[HeadOutputs]]  # of each layer; some layers have two

    def heads(self, layer: int) -> int:
        """Returns the number of heads of a layer, counted from 1."""
        return sum(part.heads for part in self.attentions[layer - 1])

    def check_layer(self, layer: int, least: int = 1) -> None:
        if not least <= layer <= len(self.blocks):
            raise InputError(
                f"the layer is {layer}; this model has the layers {least} to {len(self.blocks)}"
                + ("" if self.kind == "self" else f" ({self.kind})")
            )

    def outputs_of(self, layer: int, head: int) -> tuple[HeadOutputs, int]:
        """Returns the projection that a head goes into, and its number there, from 0."""
        self.check_layer(layer)
        if not 1 <= head <= self.heads(layer):
            raise InputError(
                f"the head is {head}; layer {layer} has the heads 1 to {self.heads(layer)}"
            )
        place = head - 1
        for part in self.attentions[layer - 1]:
            if place < part.heads:
                return part, place
            place -= part.heads
        raise AssertionError("the heads of a layer are those of its parts")


def stacks_of(model: Any) -> dict[str, LayerParts]:
    """Returns the stacks of a model by kind: "self", or "encoder", "decoder" and "cross"."""
    places: dict[str, list[HeadOutputs]] = {}
    for name, part in model.named_modules():
        if isinstance(part, Attention):
            outputs = places.setdefault(place_of(name), [])
            if all(part.out is not other.out for other in outputs):  # a Longformer shares it
                outputs.append(HeadOutputs(part.out, part.project.heads, part.project.size))
    stacks = model.stacks()
    kinds: dict[str, LayerParts] = {}
    for kind in KINDS:
        own = [outputs for place, outputs in places.items() if kind_of(place) == kind]
        if own:
            blocks = stacks.get("decoder" if kind == "cross" else kind) or stacks[""]
            kinds[kind] = LayerParts(kind, list(blocks), own)
    return kinds
