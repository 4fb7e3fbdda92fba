"""A quantized decoder block that reads one more token per text by one native call.

Every other case (a prompt, padding within it, a recorder, a gradient) is computed in the ordinary
way, with the same result up to the order of sums.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.attention import Attention
from regard.attention.block import Block, FeedForward, PreNorm, gelu_tanh
from regard.attention.memory import KVCache
from regard.attention.native.int8 import ADDRESS, COUNT, LONGEST, kernel, serves
from regard.attention.pattern import Causal, Ordered
from regard.attention.position import Plain, View
from regard.attention.recorder import is_unseen
from regard.models.extensions.small import PLANES, NativeModule, SmallLinear, SmallProjection

NAME = "step_int8"


class NormPart(ctypes.Structure):
    _fields_ = (("weight", ADDRESS), ("bias", ADDRESS), ("epsilon", ctypes.c_double))


class LinearPart(ctypes.Structure):
    _fields_ = (("weight", ADDRESS), ("scale", ADDRESS), ("total", ADDRESS), ("bias", ADDRESS),
                ("inputs", COUNT), ("outputs", COUNT))  # fmt: skip


class BlockPart(ctypes.Structure):
    _fields_ = (("before", NormPart), ("between", NormPart), ("project", LinearPart),
                ("out", LinearPart), ("wide", LinearPart), ("narrow", LinearPart),
                ("heads", COUNT), ("size", COUNT), ("scale", ctypes.c_double),
                ("relu", COUNT))  # fmt: skip


class CachePart(ctypes.Structure):
    _fields_ = (("keys", ADDRESS), ("values", ADDRESS), ("capacity", COUNT), ("length", COUNT),
                ("mask", ADDRESS), ("apart", COUNT))  # fmt: skip


def fits(block: nn.Module) -> bool:
    """Returns whether the native code supports this block: a GPT-2 block, all int8 of one kind."""
    if type(block) is not Block or {type(block.attention), type(block.feed_forward)} != {PreNorm}:
        return False
    attention: Any = block.attention.layer
    network: Any = block.feed_forward.layer
    if type(attention) is not Attention or type(network) is not FeedForward:
        return False
    parts: list[Any] = [attention.project, attention.out, network.wide, network.narrow]
    if not all(isinstance(part, SmallLinear | SmallProjection) for part in parts):
        return False
    norms = [block.attention.norm, block.feed_forward.norm]
    return (
        parts[0].matrix.kind in PLANES
        and all(part.in_features < LONGEST for part in parts)
        and all(isinstance(norm, nn.LayerNorm) and norm.bias is not None for norm in norms)
        and type(attention.score) is Plain
        and parts[0].kv_heads == parts[0].heads
        and (network.activation is F.relu or is_gelu_tanh(network.activation))
    )


def is_gelu_tanh(function: Any) -> bool:
    """Returns whether a function is the tanh form of GELU, also after the model was copied."""
    same = isinstance(function, partial) and function.func is gelu_tanh.func
    return same and function.keywords == gelu_tanh.keywords


class SmallBlock(NativeModule, Block):
    def __init__(self, like: Block) -> None:
        super().__init__(like.attention, like.feed_forward)
        self.part: BlockPart | None = None  # the addresses of the weights, set at the first step

    def compute(self, x: Tensor, *context: Any) -> Tensor:
        if len(context) == 2 and self.can_step(x, *context):
            return self.step(x, *context)
        return super().compute(x, *context)

    def can_step(self, x: Tensor, view: View, memory: Any) -> bool:
        """Returns whether there is one row per text, room in the cache, no recorder or gradient."""
        return (
            x.size(1) == 1
            and type(memory) is KVCache
            and memory.length < memory.keys.size(2)
            and x.dtype == memory.keys.dtype == torch.float32
            and self.holds(memory, x.size(0))
            and type(view.pattern) in (Causal, Ordered)
            and view.bias is None
            and is_unseen(cast(Attention, self.attention.layer))
            and not (self.training or torch.is_grad_enabled())
            and serves(x, NAME)
        )

    def holds(self, memory: KVCache, batch: int) -> bool:
        """Returns whether the cache fits this block and batch, and is a contiguous buffer or the
        columns of one from some column on."""
        project: Any = self.attention.layer.project
        heads, size = project.heads, project.size
        shape = (batch, heads, memory.keys.size(2), size)
        columns = memory.keys.stride(1) // size
        strides = (heads * columns * size, columns * size, size, 1)
        return memory.keys.shape == memory.values.shape == shape and (
            memory.keys.stride() == memory.values.stride() == strides
        )

    def step(self, x: Tensor, view: View, memory: KVCache) -> Tensor:
        y = x.clone(memory_format=torch.contiguous_format)
        mask = None
        if isinstance(view.pattern, Ordered):  # under autocast its dtype differs from that of x
            mask = view.pattern.mask.float().contiguous()
        cache = CachePart(
            memory.keys.data_ptr(), memory.values.data_ptr(),
            memory.keys.stride(1) // memory.keys.size(3), memory.length,
            None if mask is None else mask.data_ptr(),
            0 if mask is None or mask.size(0) == 1 else mask.stride(0),
        )  # fmt: skip
        self.part = self.part or self.described()
        attention: Any = self.attention.layer
        planes = PLANES[attention.out.matrix.kind]
        kernel(NAME)(
            y.data_ptr(), y.size(0), ctypes.byref(self.part), ctypes.byref(cache), planes,
            torch.get_num_threads(),
        )  # fmt: skip
        memory.length += 1
        return y

    def described(self) -> BlockPart:
        """Returns the block for the native code; its modules keep the tensors alive."""
        attention: Any = self.attention.layer
        network: Any = self.feed_forward.layer

        def norm(part: Any) -> NormPart:
            return NormPart(part.weight.data_ptr(), part.bias.data_ptr(), part.eps)

        def linear(part: SmallLinear | SmallProjection) -> LinearPart:
            ready = part.matrix.made_ready(part.bias, 0, part.out_features)
            return LinearPart(*ready.addresses, ready.inputs, ready.outputs)

        return BlockPart(
            norm(self.attention.norm), norm(self.feed_forward.norm), linear(attention.project),
            linear(attention.out), linear(network.wide), linear(network.narrow),
            attention.project.heads, attention.project.size, attention.scale,
            network.activation is F.relu,
        )  # fmt: skip

    def forget(self) -> None:
        self.part = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"part": None}  # a copy has other addresses
