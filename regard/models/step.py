"""How decoders are described to the native code that reads one more token.

`stepper_for(model)` returns a Stepper, or None for a model with a part that the native code does
not know: such a model is read by its own forward, with the same result up to the order of sums.
"""

from __future__ import annotations

import math
import operator
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.attention import Attention, Projection
from regard.attention.block import (
    ACTIVATIONS,
    Block,
    CrossBlock,
    FeedForward,
    Gated,
    PostNorm,
    PreNorm,
    directly,
)
from regard.attention.linear import Linear
from regard.attention.memory import ByteCache, HalfCache, KVCache, Pair
from regard.attention.native import library
from regard.attention.native.decode import (
    ACTIVATIONS as NUMBERS,
)  # fmt: skip
from regard.attention.native.decode import (
    CACHES as FORMS,
)  # fmt: skip
from regard.attention.native.decode import (
    MATRICES,
    NORMS,
    PARTS,
    DecoderPlan,
    MatrixPart,
    NormPart,
    PlanPart,
    SubLayer,
    enlarge_pages,
    step_kernel,
)
from regard.attention.native.int8 import LONGEST, kernel
from regard.attention.norms import RMSNorm
from regard.attention.position import Plain, Relative, Rotary, sinusoids
from regard.attention.recorder import is_unseen
from regard.models.extensions.small import (
    PLANES,
    SmallEmbedding,
    SmallLinear,
    SmallOutput,
    SmallProjection,
)  # fmt: skip
from regard.models.gpt import GPT, output_rows
from regard.models.llama import Llama
from regard.models.output import Output
from regard.models.state import State
from regard.models.step_relative import RelativeSteps, describe_transformer_xl
from regard.models.t5 import T5, buckets
from regard.models.transformer import Transformer
from regard.models.transformer_xl import TransformerXL

SINUSOIDS = 1024  # positions of a table; longer texts are left to the model
MATRICES_OF = (nn.Linear, Linear, Projection, Output, SmallLinear, SmallProjection, SmallOutput)


class UnknownPart(Exception):
    """A part of a model that the native code does not know."""


class Description:
    """Describes parts of a model as structures, and holds the tensors that they point to."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.attentions: list[Attention] = []
        self.floats = False  # whether a matrix is not quantized
        self.limit: float = math.inf  # the positions that the tables hold

    def finish(self, plan: PlanPart, norm: nn.Module) -> PlanPart:
        plan.norm, plan.token_scale = self.norm(norm), 1.0
        return plan

    def address(self, value: Tensor | None) -> int | None:
        if value is None:
            return None
        exact = value.detach()
        if type(value) not in (Tensor, nn.Parameter, nn.Buffer) or not exact.is_cpu:
            raise UnknownPart("a tensor that is not in memory")
        if exact.dtype != torch.float32 or not exact.is_contiguous():
            raise UnknownPart(f"a tensor of {exact.dtype}")
        self.tensors.append(exact)
        return exact.data_ptr()

    def matrix(self, part: Any, start: int = 0, end: int | None = None) -> MatrixPart:
        """Describes a linear layer, a projection or an output, or the rows start … end of it."""
        known(
            part, nn.Linear, Linear, Projection, Output, SmallLinear, SmallProjection, SmallOutput
        )
        if hasattr(part, "matrix"):
            end = part.matrix.outputs if end is None else end
            return self.small(part.matrix, part.bias, start, end)
        outputs, inputs = part.weight.shape
        end = outputs if end is None else end
        self.floats = True
        weight, bias = part.weight[start:end], part.bias
        bias = None if bias is None else bias[start:end]
        enlarge_pages(weight)
        return MatrixPart(self.address(weight.detach()), None, None,
                          self.address(None if bias is None else bias.detach()), inputs,
                          end - start, MATRICES["fp32"])  # fmt: skip

    def small(self, matrix: Any, bias: Tensor | None, start: int, end: int) -> MatrixPart:
        ready = matrix.made_ready(bias, start, end)
        if matrix.dtype != torch.float32 or ready.inputs >= LONGEST:
            raise UnknownPart(f"a matrix of {matrix.dtype}")
        if matrix.kind == "bf16" and kernel("product_bf16") is None:
            raise UnknownPart("bfloat16, which this processor does not multiply")
        self.tensors.append(ready)
        if matrix.kind in PLANES:
            addresses = ready.addresses
        else:
            weight, added = ready.addresses
            addresses = (weight, None, None, added)
        return MatrixPart(*addresses, ready.inputs, ready.outputs, MATRICES[matrix.kind])

    def table(self, part: Any) -> MatrixPart:
        """Describes a token embedding."""
        if isinstance(known(part, nn.Embedding, SmallEmbedding), SmallEmbedding):
            matrix = part.matrix
            return self.small(matrix, None, 0, matrix.outputs)
        return MatrixPart(self.address(part.weight), None, None, None, part.embedding_dim,
                          part.num_embeddings, MATRICES["fp32"])  # fmt: skip

    def norm(self, part: nn.Module) -> NormPart:
        if isinstance(known(part, nn.LayerNorm, nn.RMSNorm, RMSNorm, nn.Identity), nn.Identity):
            return NormPart(None, None, NORMS["none"], 0.0)
        kind = "rms" if isinstance(part, nn.RMSNorm) else "layer"
        weight: Any = part.weight
        epsilon = part.eps if part.eps is not None else torch.finfo(weight.dtype).eps
        return NormPart(self.address(weight), self.address(getattr(part, "bias", None)),
                        NORMS[kind], epsilon)  # fmt: skip

    def attention(self, part: Any, kind: str, **more: Any) -> SubLayer:
        """Describes the attention of a sub-layer: over its own rows, or over a source."""
        layer: Any = known(known(part, PreNorm, PostNorm).layer, Attention)
        score = known(layer.score, Plain, Rotary, Relative)
        if isinstance(score, Relative):
            more |= {"u": self.address(score.u), "v": self.address(score.v)}
        project = layer.project
        queries = project.heads * project.size
        first = self.matrix(project, 0, queries if kind == "cross" else None)
        self.attentions.append(layer)
        return SubLayer(
            kind=PARTS[kind], post=type(part) is PostNorm, norm=self.norm(part.norm), first=first,
            last=self.matrix(layer.out), heads=project.heads, kv_heads=project.kv_heads,
            size=project.size, rotary=isinstance(score, Rotary), scale=layer.scale, **more,
        )  # fmt: skip

    def network(self, part: Any) -> SubLayer:
        layer: Any = known(known(part, PreNorm, PostNorm).layer, FeedForward, Gated)
        gate = self.matrix(layer.gate) if isinstance(layer, Gated) else MatrixPart()
        first = self.matrix(layer.wide)
        if gate.outputs and gate.kind != first.kind:
            raise UnknownPart("a gate of another kind than its matrix")
        return SubLayer(
            kind=PARTS["network"], post=type(part) is PostNorm, norm=self.norm(part.norm),
            first=first, gate=gate, last=self.matrix(layer.narrow),
            activation=NUMBERS[activation_of(layer.activation)],
        )  # fmt: skip

    def blocks(self, blocks: Any, **more: Any) -> list[SubLayer]:
        parts: list[SubLayer] = []
        for block in blocks:
            if known(block, Block, CrossBlock).run is not directly:
                raise UnknownPart("a block with a run of its own")
            parts.append(self.attention(block.attention, "self", **more))
            if isinstance(block, CrossBlock):
                parts.append(self.attention(block.cross, "cross"))
            parts.append(self.network(block.feed_forward))
        return parts


def known(part: Any, *types: type) -> Any:
    """Returns the part if it is exactly of one of these types, and nothing listens to it."""
    if type(part) not in types or part._forward_hooks or part._forward_pre_hooks:
        raise UnknownPart(type(part).__name__)
    return part


def activation_of(function: Any) -> str:
    for name, other in ACTIVATIONS.items():
        if function is other:
            return name
    raise UnknownPart("an activation")


class Stepper:
    """Reads one more token for every row of a state with KV caches."""

    CACHES: tuple[type[KVCache], ...] = (KVCache, HalfCache, ByteCache)

    def __init__(self, model: Any, plan: DecoderPlan, description: Description) -> None:
        self.model, self.plan, self.limit = model, plan, description.limit
        self.attentions, self.floats = description.attentions, description.floats
        self.checked: list[Tensor] = []  # the memories of the last step

    @staticmethod
    def describe_words(model: Any, plan: PlanPart, say: Description) -> None:
        """Describes the token embedding and the output."""
        if getattr(model, "finish", output_rows) is not output_rows:
            raise UnknownPart("an output of another kind")
        output: Any = model.output
        known(output.transform, nn.Identity)
        plan.tokens, plan.output = say.table(model.tokens), say.matrix(output)
        plan.width, plan.output_scale = model.config.width, output.scale

    def serves(self, state: State) -> bool:
        """Returns whether the caches are as the native code expects them, and nothing is recorded
        or learned."""
        first = state.layers[0]
        return (
            first.length < first.keys.size(2)
            and state.length < self.limit
            and self.fit(state)
            and all(map(is_unseen, self.attentions))
            and not (self.floats and torch.is_autocast_enabled("cpu"))
            and not (self.model.training or torch.is_grad_enabled())
        )

    def forget(self) -> None:
        """Lets go of the memories of the last step, so that they can be freed."""
        self.checked = []
        self.plan.forget()

    def fit(self, state: State) -> bool:
        """Returns whether all memories are as expected; they seldom change between two steps."""
        pairs = self.pairs(state)
        memories = [x for _, pair in pairs for x in pair]
        if len(memories) != len(self.checked) or not all(map(operator.is_, memories, self.checked)):
            if not all(type(layer) in self.CACHES and fits(*pair) for layer, pair in pairs):
                return False
            self.checked = memories
        return True

    def pairs(self, state: State) -> list[tuple[Any, Pair]]:
        """Returns the keys and values of each attention, in order, with the cache of its layer."""
        return [(layer, (layer.keys, layer.values)) for layer in state.layers]

    def sources(self, state: State, rows: int) -> Tensor | None:
        """Returns how many columns of a source each row reads."""
        return None

    def read(self, tokens: Tensor, state: State) -> Tensor:
        """Reads the tokens [rows] and returns the logits of the next ones [rows, V]."""
        past = state.length
        marks = state.extend(None, tokens[:, None])
        starts = None if marks is None else marks.logical_not().sum(1)
        memories = [pair for _, pair in self.pairs(state)]
        logits = self.plan.step(tokens, starts, past, memories, self.sources(state, len(tokens)))
        for layer in state.layers:
            layer.length += 1
        return logits

    def read_ahead(self, tokens: Tensor, state: State) -> Tensor:
        """Reads tokens that follow each other in the one text of a state without padding; returns
        the logits after each [tokens, V]. Weights are read once for all of them."""
        memories = [pair for _, pair in self.pairs(state)]
        logits = self.plan.step(tokens, None, state.length, memories, one_text=True)
        state.length += len(tokens)
        for layer in state.layers:
            layer.length += len(tokens)
        return logits


class CrossStepper(Stepper):
    """Does the same for a decoder that also reads a source."""

    def pairs(self, state: State) -> list[tuple[Any, Pair]]:
        both = zip(super().pairs(state), state.source, strict=True)
        return [pair for own, cross in both for pair in (own, (own[0], cross.pairs))]

    def sources(self, state: State, rows: int) -> Tensor | None:
        mask = state.source_attention_mask
        if mask is not None:
            return mask.sum(1)
        return torch.full((rows,), state.source[0].pairs[0].size(2))


class RelativeStepper(RelativeSteps, Stepper):
    """Does the same for Transformer-XL."""


def fits(keys: Tensor, values: Tensor) -> bool:
    """Returns whether keys and values are on the CPU, and have contiguous columns of floats or of
    what a compact cache holds."""
    return (
        keys.dtype == values.dtype
        and keys.dtype in FORMS
        and keys.is_cpu
        and keys.stride() == values.stride()
        and keys.stride()[2:] == (keys.size(3), 1)
    )


def describe_gpt(model: Any, say: Description) -> tuple[PlanPart, list[SubLayer]]:
    say.limit = model.config.context
    parts = say.blocks(model.blocks)
    if model.config.band is not None:
        for part in parts[2::4]:  # the attention of every second layer
            part.band = model.config.band
    plan = PlanPart(positions=say.address(known(model.positions, nn.Embedding).weight))
    return say.finish(plan, model.norm), parts


def describe_llama(model: Any, say: Description) -> tuple[PlanPart, list[SubLayer]]:
    say.limit = model.config.context
    plan = PlanPart(frequencies=say.address(model.config.frequencies(model.device)))
    return say.finish(plan, model.norm), say.blocks(model.blocks)


def describe_t5(model: Any, say: Description) -> tuple[PlanPart, list[SubLayer]]:
    """Beyond the farthest distance, the bias stays the same."""
    c, stack = model.config, model.decoder
    index = buckets(-torch.arange(c.farthest + 1), False, c.buckets, c.farthest)
    bias = known(stack.distances, nn.Embedding).weight.detach()[index].T.contiguous()
    more = {"bias": say.address(bias), "reach": c.farthest + 1}
    return say.finish(PlanPart(), stack.norm), say.blocks(stack.blocks, **more)


def describe_transformer(model: Any, say: Description) -> tuple[PlanPart, list[SubLayer]]:
    say.limit = SINUSOIDS
    table = sinusoid_table(model.config.width, model.config.positions)
    plan = say.finish(PlanPart(positions=say.address(table)), model.decoder_norm)
    plan.token_scale = model.scale
    return plan, say.blocks(model.decoder_blocks)


@cache
def sinusoid_table(width: int, layout: str) -> Tensor:
    return sinusoids(torch.arange(SINUSOIDS), width, layout)


DESCRIBED: dict[type, tuple[Any, type[Stepper]]] = {
    GPT: (describe_gpt, Stepper),
    Llama: (describe_llama, Stepper),
    T5: (describe_t5, CrossStepper),
    Transformer: (describe_transformer, CrossStepper),
    TransformerXL: (describe_transformer_xl, RelativeStepper),
}


def stepper_for(model: Any) -> Stepper | None:
    """Returns what reads one token for this model natively; None: its own forward does."""
    plain = type(model) in DESCRIBED and not set(model.extensions) - {"int8"}
    if not plain or model.device.type != "cpu":
        return None
    if step_kernel() is None:
        say_once(library() is not None)
        return None
    describe, stepper = DESCRIBED[type(model)]
    say = Description()
    try:
        plan, parts = describe(known(model, *DESCRIBED), say)
        stepper.describe_words(model, plan, say)
    except UnknownPart:
        return None
    chosen: Stepper = stepper(model, DecoderPlan(plan, parts, say.tensors), say)
    return chosen


@cache
def say_once(compiled: bool) -> None:
    """Says why texts are generated by plain torch, unless nobody wanted native code."""
    if compiled:
        warnings.warn(
            "this processor has no AVX512-VNNI, so texts are generated by plain torch, which "
            "gives the same tokens more slowly",
            stacklevel=2,
        )
