"""Captures the hidden states and attention scores of all layers for a batch, with their
gradients.

    with capture_layers(model, attention=True) as heard:
        model(tokens)
    heard[""].hidden[3]     # the output of the third layer; [0] is the input of the first
    heard[""].scores[2]     # the attention scores of the third layer, before mask and softmax

An encoder-decoder has two stacks, "encoder" and "decoder"; other models have one, "".
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
    """The scores [B, H, Q, K] of one attention before the mask, and its pattern (which key each
    query sees)."""

    scores: Tensor
    pattern: Pattern

    def seen(self, rows: Tensor) -> Tensor:
        """Returns [B, Q, K]: the keys that each row sees, for the rows [B, Q] that are not
        padding."""
        batch, _, queries, keys = self.scores.shape
        return self.pattern.dense(batch, queries, keys, rows.device) & rows[..., None]


@dataclass
class StackStates:
    """The hidden states and scores of one stack, in the order of its layers."""

    hidden: list[Tensor] = field(default_factory=list)
    scores: list[AttentionScores] = field(default_factory=list)  # of self-attention
    cross: list[AttentionScores] = field(default_factory=list)  # of a decoder's cross-attention


@contextmanager
def capture_layers(model: Any, *, attention: bool) -> Iterator[dict[str, StackStates]]:
    """Captures the input and the output of every layer inside the `with` block; no output
    changes."""
    if attention:
        check_kept(model)
    heard = {name: StackStates() for name in model.stacks()}
    with ExitStack() as after:
        for name, layers in model.stacks().items():
            first = layers[0].register_forward_pre_hook(input_hook(heard[name]))
            after.callback(first.remove)
            for layer in layers:
                after.callback(layer.register_forward_hook(output_hook(heard[name])).remove)
                for part, place in attentions(layer, heard[name]) if attention else ():
                    after.callback(setattr, part, "kernel", part.kernel)
                    part.kernel = capturing_kernel(place, part.kernel)
        yield heard


def check_kept(model: Any) -> None:
    """Raises ConfigError if the model uses gradient checkpointing: a layer that is recomputed in
    the backward pass would not recompute its captured scores."""
    if any(block.run is recomputed for block in blocks(model)):
        raise ConfigError(
            "engine.checkpointing is on, but objective.attention compares attention scores, which "
            "checkpointing does not keep; turn it off, or set objective.attention = 0"
        )


def input_hook(heard: StackStates) -> Any:
    def hook(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        heard.hidden.append(inputs[0])

    return hook


def output_hook(heard: StackStates) -> Any:
    def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        heard.hidden.append(output[0] if isinstance(output, tuple) else output)

    return hook


def attentions(layer: Any, heard: StackStates) -> Iterator[tuple[Attention, list[AttentionScores]]]:
    """Yields the attentions of one layer, each with the list that collects its scores."""
    yield layer.attention.layer, heard.scores
    if isinstance(layer, CrossBlock):
        cross: Any = layer.cross.layer
        yield cross, heard.cross


def capturing_kernel(place: list[AttentionScores], inner: Kernel) -> Kernel:
    """Returns a kernel that captures the scores and then calls the original kernel."""

    def kernel(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        scores = (q @ k.mT) * how.scale
        place.append(AttentionScores(scores if how.bias is None else scores + how.bias, pattern))
        return inner(pattern, q, k, v, how)

    return kernel
