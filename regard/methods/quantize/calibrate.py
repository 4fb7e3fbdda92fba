"""Calibration: fits the scales of a layer to the inputs that it gets from a text.

A weight that is far larger than its neighbors makes the scale of its whole row coarse. If the text
seldom uses that weight, clipping it is better. For each row we try several shares of its largest
weight as the clipping limit, and take the one that changes the layer's output least: it minimizes
Σ_j E[x_j²] (w_j - ŵ_j)², where E[x_j²] is the mean square of the layer's input j in the user's
text. Rows are clipped before they are rounded; nothing else changes. The groups of int4 are fitted
with the same sum (regard.attention.native.int4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from regard.attention.native.int4 import as_floats, fitted
from regard.attention.native.int8 import quantised
from regard.core.errors import ConfigError, InputError
from regard.formats.directory import Checkpoint

SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)  # of a row's largest weight
TEXTS, LETTERS = 128, 20_000  # texts that are read, and characters of each
LENGTH = 512  # tokens of a text
NAMED = 5  # layers that an error message names


class InputSquares(TorchFunctionMode):
    """Sums the squares of all inputs that are multiplied with certain weight matrices, or with
    parts of them."""

    def __init__(self, layers: dict[str, nn.Linear]) -> None:
        super().__init__()
        self.squares = {
            name: torch.zeros(part.in_features, dtype=torch.float64, device=part.weight.device)
            for name, part in layers.items()
        }
        self.rows = dict.fromkeys(layers, 0)
        self.places = [
            (start := part.weight.data_ptr(), start + part.weight.nbytes, name)
            for name, part in layers.items()
        ]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.linear:
            self.note(args[0], args[1])
        return func(*args, **(kwargs or {}))

    def note(self, x: Tensor, weight: Tensor) -> None:
        address = weight.data_ptr()
        for start, end, name in self.places:
            if start <= address < end:
                rows = x.detach().reshape(-1, x.size(-1))
                self.squares[name] += rows.double().square().sum(0)
                self.rows[name] += rows.size(0)

    def means(self) -> dict[str, Tensor]:
        """Returns E[x²] for each input of the layers that were used."""
        return {name: total / self.rows[name] for name, total in self.squares.items()
                if self.rows[name]}  # fmt: skip


class Inputs(NamedTuple):
    """What the layers of a model read from texts."""

    layers: dict[str, nn.Linear]
    means: dict[str, Tensor]  # E[x²] of each input, for the layers that were used
    texts: int


def inputs_of(loaded: Checkpoint, layers: dict[str, Any], texts: Sequence[str]) -> Inputs:
    from regard.methods.probe.reader import StateReader
    from regard.training.train_module import evaluating

    distinct = distinct_linears(layers)
    if not distinct:
        raise ConfigError(
            f"this {type(loaded.model).__name__} has no linear layer to calibrate: only its "
            "embeddings are quantized; leave --calibrate out"
        )
    reader = StateReader(
        loaded, length=min(getattr(loaded.config, "context", None) or LENGTH, LENGTH)
    )
    with evaluating(loaded.model), torch.no_grad(), InputSquares(distinct) as seen:
        for row in reader.texts(texts):
            tokens, _, more = reader.inputs([row])
            reader.read(tokens, None, more)
    means = seen.means()
    if not means:
        raise ConfigError(
            f"reading a text uses none of the layers {', '.join(sorted(distinct)[:NAMED])}, so "
            "they cannot be calibrated; leave --calibrate out"
        )
    return Inputs(distinct, means, len(texts))


def calibrate(inputs: Inputs) -> dict[str, Any]:
    """Clips the rows of the layers in place, for int8; returns a report with the relative error of
    the outputs before and after."""

    def clip(name: str, mean: Tensor) -> tuple[float, float]:
        weight = inputs.layers[name].weight
        rows, before, after = clip_rows(weight.detach(), mean)
        weight.data.copy_(rows)
        return before, after

    return reported(inputs, clip)


def calibrate_groups(inputs: Inputs, model: Any) -> dict[str, Any]:
    """Fits the groups of a model of int4 again, to the weights that the layers had before and to
    their inputs; returns the same report."""

    def fit(name: str, mean: Tensor) -> tuple[float, float]:
        weight = inputs.layers[name].weight.detach()
        matrix = model.get_submodule(name).matrix
        before, after = matrix.blocks, fitted(weight, mean)
        matrix.blocks = after
        return missed(weight, before, mean), missed(weight, after, mean)

    return reported(inputs, fit)


def missed(weight: Tensor, blocks: Tensor, mean: Tensor) -> float:
    """Returns the squared error of these blocks of int4."""
    error = as_floats(blocks, *weight.shape).double() - weight.double()
    return float((error.square_() @ mean.double()).sum())


def reported(inputs: Inputs, fit: Callable[[str, Tensor], tuple[float, float]]) -> dict[str, Any]:
    """Fits each layer that was used; `fit` returns its squared error before and after."""
    total, plain, best = 0.0, 0.0, 0.0
    for name, mean in inputs.means.items():
        weight = inputs.layers[name].weight
        mean = mean.to(weight.device)
        total += float((weight.detach().double().square() @ mean).sum())
        before, after = fit(name, mean)
        plain, best = plain + before, best + after
    return {
        "texts": inputs.texts, "layers": len(inputs.means),
        "unread": sorted(inputs.layers.keys() - inputs.means.keys()),
        "error": {"before": (plain / max(total, 1e-300)) ** 0.5,
                  "after": (best / max(total, 1e-300)) ** 0.5},
    }  # fmt: skip


def distinct_linears(layers: dict[str, Any]) -> dict[str, nn.Linear]:
    """Returns the linear layers, each once, under the first of its names. One layer may stand in
    two places (the output projection of a Longformer's two attentions), and its rows must be
    clipped only once."""
    distinct: dict[int, tuple[str, nn.Linear]] = {}
    for name, layer in layers.items():
        if isinstance(layer, nn.Linear):
            distinct.setdefault(id(layer.weight), (name, layer))
    return dict(distinct.values())


def clip_rows(weight: Tensor, mean: Tensor) -> tuple[Tensor, float, float]:
    """Returns the rows, each clipped at the share that suits it best, and the squared error of all
    rows without and with clipping."""
    largest = weight.abs().amax(-1, keepdim=True)
    best = torch.full((weight.size(0),), torch.inf, dtype=torch.float64, device=weight.device)
    rows, plain = weight.clone(), 0.0
    for share in SHARES:
        tried = weight.clamp(-share * largest, share * largest)
        small, scale = quantised(tried)
        missed = small.double() * scale.double()[:, None] - weight.double()
        error = missed.square_() @ mean.double()
        plain = float(error.sum()) if share == 1.0 else plain
        better = error < best
        best = torch.where(better, error, best)
        rows = torch.where(better[:, None], tried, rows)
    return rows, plain, float(best.sum())


def texts_of(file: str) -> list[str]:
    """Returns the first lines of a file that are not empty: at most 128, each of at most 20,000
    characters."""
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{file} is no file; --calibrate needs a text file, with one text a line")
    texts: list[str] = []
    try:
        with path.open(encoding="utf-8") as lines:
            while len(texts) < TEXTS and (line := lines.readline(LETTERS)):
                if line.strip():
                    texts.append(line.strip())
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 ({error.reason}); give a plain text") from None
    if not texts:
        raise InputError(
            f"{file} holds no text; give --calibrate text like what the model will read"
        )
    return texts
