"""The logit lens (nostalgebraist 2020): what a model would answer after each of its layers.

The state after a layer takes the place of the last layer's output, so that the final norm and the
output read it exactly as they read the last layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import ConfigError
from regard.core.text import Bilingual
from regard.decoding.decode_state import at_rest
from regard.formats.directory import Checkpoint
from regard.lab.deeper.hooks import changed, on_output, stacks_of, stored
from regard.lab.deeper.question import AskedText, Likely, Text, check_attends
from regard.lab.look.reading import LookOptions


@dataclass(frozen=True)
class Lens:
    """The likeliest tokens (or labels) after each layer; layer 0 is the input of the first."""

    tokens: list[str]  # of the rows
    best: list[list[list[Likely]]]  # [layer][row], the likeliest first
    question: AskedText
    states: list[Tensor]  # what the model returns if it ends after each layer

    @property
    def layers(self) -> int:
        """The number of layers, without the input of the first one."""
        return len(self.best) - 1

    def logits(self, layer: int = -1) -> Tensor:
        """Returns the logits [rows, classes] after a layer; those of the last are the model's."""
        with torch.no_grad(), at_rest(self.question.loaded.model):
            return self.question.scores(self.states[layer])

    def facts(self) -> dict[str, Any]:
        cells = [[[one._asdict() for one in row] for row in layer] for layer in self.best]
        return {"tokens": self.tokens, "layers": cells}

    def _repr_html_(self) -> str:
        """A table in a notebook: a row of it is a layer, a column a row of the text."""
        from regard.report import notebook

        values = [[row[0].probability for row in layer] for layer in self.best]
        head: list[notebook.Text] = [Bilingual("layer", "层"), *self.tokens]
        rows = [
            [number, *(f"{row[0].text} {row[0].probability:.2f}" for row in layer)]
            for number, layer in enumerate(self.best)
        ]
        names = [str(number) for number in range(len(values))]
        title = Bilingual("probability of the likeliest", "最可能者的概率")
        matrix = notebook.Matrix(title, values, names, self.tokens, span=(0.0, 1.0))
        return notebook.rendered(
            Bilingual("What each layer would answer", "每一层会怎样回答"),
            notebook.Matrices([matrix]), notebook.Table(head[:13], [row[:13] for row in rows]),
        )  # fmt: skip


def lens(loaded: Checkpoint, text: Text, *, top_k: int = 5, **options: Any) -> Lens:
    """Returns the likeliest tokens of every row after every layer.

    An encoder-decoder has a lens on its decoder, whose layers its output reads. `options` are those
    of `LookOptions`: target, order, memory, …
    """
    if top_k < 1:
        raise ConfigError(f"top_k is {top_k}; it must be at least 1")
    check_attends(loaded, "the lens")
    with torch.no_grad(), at_rest(loaded.model):
        question = AskedText.of(loaded, text, LookOptions(**options))
        stacks = stacks_of(loaded.model)
        blocks = stacks["decoder" if "decoder" in stacks else "self"].blocks
        inner: list[Tensor] = []
        keep = stored(inner)
        with changed([(blocks[0], keep)], [(block, on_output(keep)) for block in blocks]):
            last = question.hidden()
        states = [ended(question, blocks[-1], state) for state in inner[:-1]]
        states.append(last)
        best = []
        for state in states:
            shares = question.probabilities(question.scores(state))
            best.append([question.likely(row, top_k) for row in shares])
    return Lens([token.text for token in question.rows], best, question, states)


def ended(question: AskedText, last: nn.Module, state: Tensor) -> Tensor:
    """Returns what the model returns if this state comes out of its last layer."""
    with changed(outputs=[(last, lambda x, y: state)]):
        return question.hidden()
