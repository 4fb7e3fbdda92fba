"""Modules with quantized matrices; everything around them is unchanged.

A SmallMatrix holds the numbers. It is part of the layer that multiplies with it, and of the
embedding that looks its rows up: a matrix that both share is stored, moved and saved once. A
GroupedMatrix holds numbers of 4 bits; no embedding has one.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.attention import Projection
from regard.attention.native.int4 import LANES as TILE
from regard.attention.native.int4 import (
    as_floats,
    fitted,
    native_int4,
    plain_int4,
    ready_blocks,
    unpacked,
)
from regard.attention.native.int8 import (
    FEW,
    NativeMatrix,
    as_bits,
    native_bf16,
    native_int8,
    placed,
    plain_bf16,
    plain_int8,
    quantised,
    ready_bits,
    ready_bytes,
    serves,
)
from regard.models.output import CHUNK, Output, SoftTarget

PLANES = {"weight": 2, "dynamic": 1}  # the bytes of a rounded input
KINDS = (*PLANES, "bf16", "int4")
READYING = threading.Lock()  # one lock for all matrices: a model that holds a lock cannot be copied


class NativeModule(nn.Module):
    """A module that knows the addresses of its weights, for native code. It forgets them when the
    weights move: new weights, or a copy of the module, have other addresses."""

    def forget(self) -> None:
        raise TypeError(f"{type(self).__name__} does not say what it forgets")

    def _apply(self, *args: Any, **options: Any) -> Any:
        self.forget()
        return super()._apply(*args, **options)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self.forget()
        super()._load_from_state_dict(*args, **options)


class QuantizedMatrix(NativeModule):
    """A matrix [outputs, inputs] of small numbers, which native code reads where they lie."""

    kind: str
    outputs: int

    def __init__(self) -> None:
        super().__init__()
        self.ready: dict[tuple[int, int], NativeMatrix] = {}  # (start, end) -> for native code
        self.place = 0  # the address of the numbers once they are in large pages

    def made_ready(self, bias: Tensor | None, start: int, end: int) -> NativeMatrix:
        """Returns outputs start … end for native code; the bias [outputs] is always the same."""
        ready = self.ready.get((start, end))
        if ready is None:
            with READYING:  # if several threads arrive at once, one of them places the matrix
                ready = self.ready.get((start, end)) or self.described(bias, start, end)
                self.ready[start, end] = ready
        return ready

    def described(self, bias: Tensor | None, start: int, end: int) -> NativeMatrix:
        raise TypeError(f"{type(self).__name__} does not say where its numbers are")

    def forget(self) -> None:
        self.ready.clear()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"ready": {}, "place": 0}  # a copy has other addresses


class SmallMatrix(QuantizedMatrix):
    """A matrix [outputs, inputs]: int8 with a scale for each output, or the bits of bfloat16."""

    weight: Tensor
    scale: Tensor  # empty for bfloat16; its dtype is the dtype of results

    def __init__(self, weight: Tensor, kind: str) -> None:
        super().__init__()
        self.kind, self.outputs = kind, weight.size(0)
        if kind == "bf16":
            small, scale = as_bits(weight), weight.detach().new_empty(0)
        else:
            small, scale = quantised(weight)
        self.register_buffer("weight", small)
        self.register_buffer("scale", scale)

    @property
    def learned_numbers(self) -> int:
        """How many of a model's parameters this matrix holds."""
        return self.weight.numel()

    @property
    def dtype(self) -> torch.dtype:
        return self.scale.dtype

    def forward(
        self, x: Tensor, bias: Tensor | None, start: int = 0, end: int | None = None
    ) -> Tensor:
        """Returns x · Wᵀ + bias for outputs start … end; the bias [outputs] is always the same."""
        end = self.outputs if end is None else end
        if self.kind == "bf16":
            few = x.numel() <= FEW * x.size(-1)
            if few and serves(x, "product_bf16"):
                return native_bf16(x, self.made_ready(bias, start, end))
        elif serves(x, "product_int8"):
            return native_int8(x, self.made_ready(bias, start, end), PLANES[self.kind])
        some = slice(start, end)
        added = None if bias is None else bias[some]
        if self.kind == "bf16":
            return plain_bf16(x, self.weight[some], added)
        return plain_int8(x, self.weight[some], self.scale[some], added, PLANES[self.kind])

    def described(self, bias: Tensor | None, start: int, end: int) -> NativeMatrix:
        if self.place != self.weight.data_ptr():
            self.weight = placed(self.weight)
            self.place = self.weight.data_ptr()
        some = slice(start, end)
        added = None if bias is None else bias[some]
        if self.kind == "bf16":
            return ready_bits(self.weight[some], added)
        return ready_bytes(self.weight[some], self.scale[some], added)

    def rows(self, chosen: Tensor) -> Tensor:
        """Returns the chosen rows of the matrix as floats."""
        numbers = self.weight[chosen]
        if self.kind == "bf16":
            return numbers.view(torch.bfloat16).to(self.scale.dtype)
        return numbers.to(self.scale.dtype) * self.scale[chosen][..., None]

    def whole(self) -> Tensor:
        """Returns the whole matrix as floats."""
        return self.rows(torch.arange(self.outputs, device=self.weight.device))


class GroupedMatrix(QuantizedMatrix):
    """A matrix [outputs, inputs] of 4 bits, with a scale and a low end for every 32 inputs of an
    output, in the blocks that native code reads."""

    kind, dtype = "int4", torch.float32
    blocks: Tensor  # [outputs / 16, groups, 320] bytes

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.outputs, self.inputs = weight.shape
        self.register_buffer("blocks", fitted(weight))

    @property
    def learned_numbers(self) -> int:
        return self.outputs * self.inputs

    @property
    def weight(self) -> Tensor:
        """The numbers [outputs, inputs], each in a byte; they are unpacked at every call."""
        return unpacked(self.blocks, self.outputs)[0].flatten(1)[:, : self.inputs]

    def forward(
        self, x: Tensor, bias: Tensor | None, start: int = 0, end: int | None = None
    ) -> Tensor:
        """Returns x · Wᵀ + bias for outputs start … end; the bias [outputs] is always the same."""
        end = self.outputs if end is None else end
        if start % TILE == 0 and serves(x, "product_int4"):
            return native_int4(x, self.made_ready(bias, start, end))
        return plain_int4(x, self.whole()[start:end], None if bias is None else bias[start:end])

    def described(self, bias: Tensor | None, start: int, end: int) -> NativeMatrix:
        if self.place != self.blocks.data_ptr():
            self.blocks = placed(self.blocks)
            self.place = self.blocks.data_ptr()
        added = None if bias is None else bias[start:end]
        return ready_blocks(self.blocks[start // TILE :], (end - start, self.inputs), added)

    def whole(self) -> Tensor:
        """Returns the whole matrix as floats."""
        return as_floats(self.blocks, self.outputs, self.inputs)


def matrix_of(weight: Tensor, kind: str) -> QuantizedMatrix:
    return GroupedMatrix(weight) if kind == "int4" else SmallMatrix(weight, kind)


class SmallLinear(nn.Module):
    def __init__(self, like: nn.Linear, kind: str) -> None:
        super().__init__()
        self.in_features, self.out_features = like.in_features, like.out_features
        self.matrix: Any = matrix_of(like.weight, kind)
        self.bias = like.bias

    @property
    def weight(self) -> Tensor:
        numbers: Tensor = self.matrix.weight
        return numbers

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.matrix(x, self.bias)
        return y


class SmallProjection(Projection):
    """The quantized projection of query, key and value, whole or in part."""

    def __init__(self, like: Projection, kind: str) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = like.in_features, like.out_features
        self.heads, self.kv_heads, self.size = like.heads, like.kv_heads, like.size
        self.matrix: Any = matrix_of(like.weight, kind)
        self.bias = like.bias

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        numbers: Tensor = self.matrix.weight
        return numbers

    def rows(self, x: Tensor, start: int, end: int) -> Tensor:
        y: Tensor = self.matrix(x, self.bias, start, end)
        return y


class SmallEmbedding(nn.Module):
    def __init__(self, matrix: SmallMatrix) -> None:
        super().__init__()
        self.matrix = matrix

    @property
    def weight(self) -> Tensor:
        return self.matrix.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.matrix.rows(input_ids)


class SmallOutput(Output):
    """Logits from a quantized matrix; the loss is computed in floats."""

    def __init__(self, like: Output, matrix: SmallMatrix) -> None:
        nn.Module.__init__(self)
        self.matrix = matrix
        self.bias: Tensor | None = None
        if isinstance(like.bias, nn.Parameter):
            self.bias = like.bias
        elif like.bias is not None:
            del self.bias
            self.register_buffer("bias", like.bias)
        self.scale, self.transform = like.scale, like.transform

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.matrix.weight

    def forward(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.matrix(self.prepare(hidden), self.bias)
        return y

    def surprisal(self, hidden: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        return self.softened(hidden, targets, SoftTarget(), shares)

    def softened(
        self, hidden: Tensor, targets: Tensor, soft: SoftTarget, shares: Tensor | None = None
    ) -> Tensor:
        rows = max(1, CHUNK // self.weight.size(0))
        costs = []
        for h, target in zip(hidden.split(rows), targets.split(rows), strict=True):
            logits = self(h).float()
            log_z = logits.logsumexp(-1, keepdim=True)
            log_p = logits.gather(1, target[:, None]) - log_z
            costs.append(soft.cost(logits - log_z, log_p, log_z)[:, 0])
        each = torch.cat(costs) if costs else hidden.new_zeros(0)
        return (each if shares is None else each * shares).sum()
