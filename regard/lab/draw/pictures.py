"""Pictures of what models are made of: positions, rates, masks, orders, counts.

Each function gives a picture with .save(FILE), .plot(), .text() and .data(): for a document, for
Matplotlib, a terminal and a program. Everything shown is asked of the parts themselves: masks of
their Patterns, rates of their schedules, counts of the models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import InputError, UnknownName
from regard.core.text import Bilingual
from regard.lab.draw.masks import masks, order
from regard.report.drawings import WIDEST, BarDrawing, Curves, HeatDrawing, Text, check_range

__all__ = ["masks", "operations", "order", "parameters", "positions", "schedules"]

# -- positions


def positions(
    model: str = "", length: int = 32, width: int = 64, layout: str = "interleaved",
    *, download: bool = False,
) -> HeatDrawing:  # fmt: skip
    """Sinusoids, or the learned table of a model directory: a row is a position."""
    import torch

    from regard.attention.position import sinusoids

    check_range("length", length, 1, WIDEST)
    check_range("width", width, 2, WIDEST)
    if model:
        if layout != LAYOUTS[0]:
            raise InputError(f"the layout {layout} is of sinusoids; leave it out for {model}")
        table, title = learned(model, download)
        table = table[:length, :width]
    else:
        if width % 2:
            raise InputError(f"width is {width}; sines and cosines come in pairs, so make it even")
        if layout not in LAYOUTS:
            raise UnknownName("layout", layout, LAYOUTS)
        table = sinusoids(torch.arange(length), width, layout)
        title = Bilingual(f"sinusoids, {layout}", f"正弦位置编码，{layout}")
    most = float(table.abs().max()) or 1.0
    rows, columns = ([str(i) for i in range(n)] for n in table.shape)
    axes = Bilingual("position", "位置"), Bilingual("dimension", "维度")
    return HeatDrawing(title, table.tolist(), rows, columns, -most, most, axes)


LAYOUTS = ("interleaved", "halves", "tensor2tensor")


def learned(model: str, download: bool) -> tuple[Any, Bilingual]:
    from regard.formats.directory import load

    network = load(model, download=download).model
    first = getattr(network.config, "first_position", 0)  # rows before it stand for no position
    for name, value in network.named_parameters():
        if name in ("positions.weight", "embeddings.positions.weight"):
            called = Path(model).name
            title = Bilingual(f"learned positions of {called}", f"{called} 学到的位置编码")
            return value.detach().float()[first:], title
    raise InputError(
        f"{model} has no learned table of positions ({type(network).__name__} counts them in "
        "another way); leave the model out for sinusoids"
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
    from regard.training.schedule import BY_WIDTH, SCHEDULES, schedule, warmup_steps

    check_range("steps", steps, 2, 10**7)
    if not names:
        raise InputError(f"no schedule is named; choose of {', '.join(SCHEDULES)}")
    if power != 1.0 and ("polynomial" not in names or not 0 < power < math.inf):
        raise InputError(f"a power of {power:g}; it is of polynomial, and a number above 0")
    highest = min(max(1, warmup_steps(warmup, steps)), steps)  # shown, however short the warm-up
    places = sorted({highest, *(1 + (steps - 1) * i // 400 for i in range(401))})
    lines: dict[Text, list[tuple[float, float]]] = {}
    for name in names:
        at = schedule(name, lr=rate, warmup=warmup, steps=steps, width=width, power=power)
        values = [at(t) for t in places]
        if name in BY_WIDTH:
            most = max(values) or 1.0
            values = [rate * value / most for value in values]
        lines[name] = [(float(t), value) for t, value in zip(places, values, strict=True)]
    title = Bilingual(f"learning rate, {steps:,} steps", f"学习率，{steps:,} 步")
    return Curves(title, lines, up=Bilingual("learning rate", "学习率"))


# -- counts


def outline(name: str) -> Any:
    """A model without memory for its weights, by its directory or its published size."""
    import torch

    from regard.formats.directory import locate
    from regard.formats.registry import (
        configure,
        empty,
        extensions_of,
        format_of,
        heads_of,
        read_config,
    )
    from regard.models import create

    if Path(name).exists() or "/" in name:
        config = read_config(locate(name, False))
        form = format_of(config["model_type"])
        heads = heads_of(form, config)
        return empty(form, configure(form, config), heads, extensions_of(config))
    with torch.device("meta"):
        return create(name, initialize=False)


def parameters(name: str) -> BarDrawing:
    """Weights of each layer and of what stands around them; shared ones count once."""
    from regard.training.hardware import blocks_of
    from regard.training.optimizer import BOTTOM, layers_of, levels

    model = outline(name)
    layers = layers_of(model)
    names = [layer_name(number, decoder) for _, number, decoder in blocks_of(model)]
    names = names or [layer_name(number, False) for number in range(len(layers))]  # an LSTM's
    counts = [sum(weight.numel() for weight in weights) for weights in levels(model)]
    for place, layer in enumerate(layers, 1):
        counts[place] += sum(small(part) for part in layer.modules())
    for at, part in model.named_modules():
        if BOTTOM & set(at.split(".")[:2]):
            counts[0] += small(part)
    parts = [Bilingual("embeddings", "嵌入"), *names]
    shown: dict[Text, float] = dict(zip(parts, map(float, counts), strict=True))
    if rest := model.parameter_count() - sum(counts):
        shown[Bilingual("heads and the rest", "输出头与其余")] = float(rest)
    called = Path(name).name
    title = Bilingual(f"parameters of {called}", f"{called} 的参数")
    return BarDrawing(title, shown, Bilingual("parameters", "个参数"))


def small(part: Any) -> int:
    """Numbers of an int8 matrix, which are no parameters to PyTorch."""
    count: int = getattr(part, "learned_numbers", 0)
    return count


def layer_name(number: int, decoder: bool) -> Bilingual:
    if decoder:
        return Bilingual(f"decoder {number + 1}", f"解码器第 {number + 1} 层")
    return Bilingual(f"layer {number + 1}", f"第 {number + 1} 层")


def operations(name: str, length: int = 512) -> BarDrawing:
    """Operations of one text going forward, by layer; a decoder reads as many tokens again."""
    check_range("length", length, 1, 10**6)
    counts = by_layer(outline(name), length)
    called = Path(name).name
    title = Bilingual(
        f"operations of {called}, {length:,} tokens, forward",
        f"{called} 读 {length:,} 个词元的运算量（前向）",
    )
    return BarDrawing(title, counts, "FLOP")


def by_layer(model: Any, length: int) -> dict[Text, float]:
    """The products that `step_flops` counts, layer by layer: two operations each."""
    from torch import nn

    from regard.attention.attention import Attention
    from regard.attention.block import FeedForward
    from regard.models.extensions.small import SmallLinear
    from regard.models.longformer import LongAttention
    from regard.training import hardware as machine

    counts: dict[Text, float] = {}
    for block, layer, decoder in machine.blocks_of(model):
        keys = machine.keys_of(model, layer, length, 0, decoder)
        parts = list(block.modules())
        skipped = {id(part.wide) for part in parts if isinstance(part, LongAttention)}
        products = 0.0
        for part in parts:
            if isinstance(part, FeedForward):
                matrices = [m for m in part.modules() if isinstance(m, nn.Linear | SmallLinear)]
                products += length * sum(m.weight.numel() for m in matrices)
            elif isinstance(part, Attention) and id(part) not in skipped:
                products += machine.attention_products(part, block, length, length, keys)
        counts[layer_name(layer, decoder)] = 2.0 * products
    layers = getattr(model, "layers", None)
    for number, cell in enumerate(layers if isinstance(layers, nn.ModuleList) else ()):
        size = sum(weight.numel() for weight in cell.parameters() if weight.dim() > 1)
        counts[layer_name(number, False)] = 2.0 * length * size
    if numbers := machine.output_numbers(model):
        counts[Bilingual("output", "输出")] = 2.0 * length * numbers
    return counts
