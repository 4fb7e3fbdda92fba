"""What a notebook shows of a recording: every head as a small picture, the mean of the last layer
with its tokens, and what was looked at deeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.core.text import Bilingual
from regard.report import notebook
from regard.report.pages import both_of, filled, words

if TYPE_CHECKING:
    from regard.lab.look.recorded import Layer, LayerStack, LookSide, Recorded

MOST_LAYERS, MOST_HEADS = 24, 16  # small pictures
MOST_TOKENS = 48  # rows and columns of the large one


LAYER = Bilingual("{kind}, layer {number}", "{kind}，第 {number} 层")
MEAN = Bilingual("{kind}, mean of layer {number}", "{kind}，第 {number} 层的平均")


def display(recorded: Recorded) -> str:
    return "".join(map(side_html, recorded.sides))


def side_html(side: LookSide) -> str:
    parts: list[notebook.Part] = [notebook.Facts([(Bilingual("text", "文本"), side.text)])]
    for stack in side.stacks:
        for number, layer in enumerate(stack.layers[:MOST_LAYERS], 1):
            title = filled(LAYER, kind=name_of(stack), number=str(number))
            parts.append(notebook.Matrices(heads_of(layer), title))
        parts += mean_of(side, stack)
    deeper = [result._repr_html_() for result in vars(side.deeper).values() if result is not None]
    heading = " · ".join(dict.fromkeys([side.model, side.family]))
    return "".join([notebook.rendered(heading, *parts), *deeper])


def name_of(stack: LayerStack) -> Bilingual:
    return both_of(words("look").get(stack.kind, stack.kind))


def heads_of(layer: Layer) -> list[notebook.Matrix]:
    """The thumbnails of the page."""
    shown = []
    for number, (levels, (down, across)) in enumerate(layer.pictures[:-2][:MOST_HEADS], 1):
        name = Bilingual(f"head {number}", f"第 {number} 个头")
        values = (levels.reshape(down, across).astype(np.float32) / 255).tolist()
        shown.append(notebook.Matrix(name, values, [""] * down, [""] * across, span=(0.0, 1.0),
                                     small=True, tip=name.en))  # fmt: skip
    return shown


def mean_of(side: LookSide, stack: LayerStack) -> list[notebook.Part]:
    """The mean of the last layer's heads, unless the text is long."""
    rows, columns = ([token.text for token in side.tokens[key]] for key in
                     (stack.rows, stack.columns))  # fmt: skip
    if not stack.layers or not 0 < max(len(rows), len(columns)) <= MOST_TOKENS:
        return []
    title = filled(MEAN, kind=name_of(stack), number=str(len(stack.layers)))
    axes = Bilingual("query", "查询"), Bilingual("key", "键")
    values = stack.layers[-1].average.tolist()
    return [notebook.Matrices([notebook.Matrix(title, values, rows, columns, axes)], title)]
