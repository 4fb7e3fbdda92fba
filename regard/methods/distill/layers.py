"""What the layers of a model make of a batch, noted down with its gradient.

    with listening(model, attention=True) as heard:
        model(tokens)
    heard[""].hidden[3]     # what the third layer gave; [0] is what the first was given
    heard[""].scores[2]     # of the third layer's attention, before mask and softmax

A decoder with an encoder has two stacks, "encoder" and "decoder"; other models have one, "".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.attention.attention import Attention, Kernel
from regard.attention.block import CrossBlock
from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Pattern
from regard.core.errors import ConfigError
from regard.training.train_module import blocks, recomputed


class AttentionScores(NamedTuple):
    """Of one attention: scores [B, H, Q, K] without mask, and who sees whom."""

    scores: Tensor
    pattern: Pattern

    def seen(self, rows: Tensor) -> Tensor:
        """[B, Q, K]: which keys the real rows [B, Q] see."""
        batch, _, queries, keys = self.scores.shape
        return self.pattern.dense(batch, queries, keys, rows.device) & rows[..., None]


@dataclass
class StackStates:
    """Of one stack, in the order of its layers."""

    hidden: list[Tensor] = field(default_factory=list)
    scores: list[AttentionScores] = field(default_factory=list)  # of rows with each other
    cross: list[AttentionScores] = field(
        default_factory=list
    )  # of a decoder's rows with the source


@contextmanager
def listening(model: Any, *, attention: bool) -> Iterator[dict[str, StackStates]]:
    """Notes inside of the `with` what every layer is given and gives; no output changes."""
    if attention:
        check_kept(model)
    heard = {name: StackStates() for name in model.stacks()}
    with ExitStack() as after:
        for name, layers in model.stacks().items():
            first = layers[0].register_forward_pre_hook(given(heard[name]))
            after.callback(first.remove)
            for layer in layers:
                after.callback(layer.register_forward_hook(made(heard[name])).remove)
                for part, place in attentions(layer, heard[name]) if attention else ():
                    after.callback(setattr, part, "kernel", part.kernel)
                    part.kernel = noting(place, part.kernel)
        yield heard


def check_kept(model: Any) -> None:
    """A layer that computes itself again on the way back would not compute its scores again."""
    if any(block.run is recomputed for block in blocks(model)):
        raise ConfigError(
            "scores of attention are compared, and engine.checkpointing forgets them; leave it "
            "out, or set objective.attention = 0"
        )


def given(heard: StackStates) -> Any:
    def hook(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        heard.hidden.append(inputs[0])

    return hook


def made(heard: StackStates) -> Any:
    def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        heard.hidden.append(output[0] if isinstance(output, tuple) else output)

    return hook


def attentions(layer: Any, heard: StackStates) -> Iterator[tuple[Attention, list[AttentionScores]]]:
    """Those of one layer, and where their scores are noted."""
    yield layer.attention.layer, heard.scores
    if isinstance(layer, CrossBlock):
        cross: Any = layer.cross.layer
        yield cross, heard.cross


def noting(place: list[AttentionScores], inner: Kernel) -> Kernel:
    """Keeps the scores of what goes into the kernel that was there before, and lets it work."""

    def kernel(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        scores = (q @ k.mT) * how.scale
        place.append(AttentionScores(scores if how.bias is None else scores + how.bias, pattern))
        return inner(pattern, q, k, v, how)

    return kernel
