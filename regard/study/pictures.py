"""Pictures of what models are made of: positions, rates, masks, orders, counts.

Each function gives a picture with .svg(), .png(), .text() and .data(): for a page, a document, a
terminal and a program. Everything shown is asked of the parts themselves: masks of their Patterns,
rates of their schedules, counts of the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import InputError, StorageError, UnknownName
from regard.study.drawings import WIDEST, Bars, Curves, Heat, Picture, check_range
from regard.study.masks import masks, order

__all__ = ["masks", "operations", "order", "parameters", "positions", "schedules", "write"]

# -- positions


def positions(
    model: str = "", length: int = 32, width: int = 64, layout: str = "interleaved"
) -> Heat:
    """Sinusoids, or the learned table of a model directory: a row is a position."""
    import torch

    from regard.attention.position import sinusoids

    check_range("length", length, 1, WIDEST)
    if model:
        table, title = learned(model)
        table = table[:length, :width]
    else:
        check_range("width", width, 2, WIDEST)
        if width % 2:
            raise InputError(f"width is {width}; sines and cosines come in pairs, so make it even")
        if layout not in LAYOUTS:
            raise UnknownName("layout", layout, LAYOUTS)
        table, title = sinusoids(torch.arange(length), width, layout), f"sinusoids, {layout}"
    most = float(table.abs().max()) or 1.0
    rows, columns = ([str(i) for i in range(n)] for n in table.shape)
    note = "a row is a position, a column one of its numbers"
    return Heat(title, table.tolist(), rows, columns, -most, most, note)


LAYOUTS = ("interleaved", "halves", "tensor2tensor")


def learned(model: str) -> tuple[Any, str]:
    from regard.exchange.directory import load

    found = load(model).model
    for name, value in found.named_parameters():
        if name in ("positions.weight", "embeddings.positions.weight"):
            return value.detach().float()[:, :WIDEST], f"learned positions of {Path(model).name}"
    raise InputError(
        f"{model} has no learned table of positions ({type(found).__name__} counts them in another "
        "way); leave the model out for sinusoids"
    )


# -- schedules


def schedules(
    names: Sequence[str],
    steps: int = 1000,
    warmup: float = 0.1,
    rate: float = 1.0,
    width: int = 512,
    power: float = 1.0,
) -> Curves:
    """The rate at every step. Noam's curve and its like are shares of their own highest rate."""
    from regard.training.schedule import BY_WIDTH, SCHEDULES, schedule

    check_range("steps", steps, 2, 10**7)
    if not names:
        raise InputError(f"no schedule is named; choose of {', '.join(SCHEDULES)}")
    lines = {}
    for name in names:
        at = schedule(name, rate=rate, warmup=warmup, steps=steps, width=width, power=power)
        places = sorted({1 + (steps - 1) * i // 400 for i in range(401)})
        values = [at(t) for t in places]
        if name in BY_WIDTH:
            values = [rate * value / max(values) for value in values]
        lines[name] = [(float(t), value) for t, value in zip(places, values, strict=True)]
    return Curves(f"learning rate, {steps:,} steps", lines)


# -- counts


def outline(name: str) -> Any:
    """A model without memory for its weights, by its directory or its published size."""
    import torch

    from regard.exchange.directory import configure, heads_of, locate, read_config
    from regard.exchange.empty import empty, extensions_of
    from regard.exchange.formats import format_of
    from regard.models import create

    if Path(name).exists() or "/" in name:
        given = read_config(locate(name, False))
        found = format_of(given["model_type"])
        held = heads_of(found, given)
        return empty(found, configure(found, given), held, extensions_of(given))
    with torch.device("meta"):
        return create(name, initialise=False)


def parameters(name: str) -> Bars:
    """Weights of each layer and of what stands around them; shared ones count once."""
    from regard.training.freezing import levels

    model = outline(name)
    counts: dict[str, float] = {}
    listed = 0
    for place, weights in enumerate(levels(model)):
        count = sum(weight.numel() for weight in weights)
        counts["embeddings" if place == 0 else f"layer {place}"] = float(count)
        listed += count
    total = sum(weight.numel() for weight in model.parameters())
    if total > listed:
        counts["heads and the rest"] = float(total - listed)
    return Bars(f"parameters of {Path(name).name}", counts, "parameters")


def operations(name: str, length: int = 512) -> Bars:
    """Operations of one text going forward, by layer; a decoder reads as many tokens again."""
    check_range("length", length, 1, 10**6)
    counts = by_layer(outline(name), length)
    return Bars(f"operations of {Path(name).name}, {length:,} tokens, forward", counts, "FLOP")


def by_layer(model: Any, length: int) -> dict[str, float]:
    """The products that `step_flops` counts, layer by layer: two operations each."""
    from torch import nn

    from regard.attention.attention import Attention
    from regard.attention.block import FeedForward
    from regard.models.longformer import LongAttention
    from regard.training import machine

    counts: dict[str, float] = {}
    for block, layer, decoder in machine.blocks_of(model):
        keys = machine.keys_of(model, layer, length, 0, decoder)
        parts = list(block.modules())
        skipped = {id(part.wide) for part in parts if isinstance(part, LongAttention)}
        products = 0.0
        for part in parts:
            if isinstance(part, FeedForward):
                products += length * sum(m.weight.numel() for m in machine.linears(part))
            elif isinstance(part, Attention) and id(part) not in skipped:
                products += machine.attention_products(part, block, length, length, keys)
        counts[f"{'decoder' * decoder or 'layer'} {layer + 1}"] = 2.0 * products
    layers = getattr(model, "layers", None)
    for number, cell in enumerate(layers if isinstance(layers, nn.ModuleList) else (), 1):
        size = sum(weight.numel() for weight in cell.parameters() if weight.dim() > 1)
        counts[f"layer {number}"] = 2.0 * length * size
    if numbers := machine.output_numbers(model):
        counts["output"] = 2.0 * length * numbers
    return counts


def write(picture: Picture, out: Path) -> None:
    """By the ending of the name; written whole, or not at all."""
    kind = out.suffix.lower()
    if kind not in (".svg", ".png"):
        raise InputError(f"--out is {out}; a picture is a file that ends in .svg or .png")
    made = picture.svg().encode("utf-8") if kind == ".svg" else picture.png()
    part = out.with_name(f".{out.name}.part")
    try:
        part.write_bytes(made)
        part.replace(out)
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror}; give another") from None
