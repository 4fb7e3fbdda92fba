"""One more token of every row by one native call: all layers of a decoder and its logits.

A `DecoderPlan` is a table of structures that says what the sub-layers are and where their weights
lie. It is described where a decoder is made ready (regard.models.step), never in a forward. Plain
torch computes the same, up to the order of sums.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention.native import library
from regard.core.errors import InputError

ADDRESS, COUNT, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
MATRICES = {"fp32": 0, "bf16": 1, "weight": 2, "dynamic": 3, "int4": 4}
CACHES = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
NORMS = {"none": 0, "layer": 1, "rms": 2}
PARTS = {"self": 0, "cross": 1, "network": 2}
ACTIVATIONS = {"relu": 0, "gelu_tanh": 1, "silu": 2, "gelu": 3, "tanh": 4}


class MatrixPart(ctypes.Structure):
    _fields_ = (("weight", ADDRESS), ("scale", ADDRESS), ("total", ADDRESS), ("bias", ADDRESS),
                ("inputs", COUNT), ("outputs", COUNT), ("kind", COUNT))  # fmt: skip


class NormPart(ctypes.Structure):
    _fields_ = (("weight", ADDRESS), ("bias", ADDRESS), ("kind", COUNT), ("epsilon", REAL))


class SubLayer(ctypes.Structure):
    _fields_ = (("kind", COUNT), ("post", COUNT), ("norm", NormPart), ("first", MatrixPart),
                ("gate", MatrixPart), ("last", MatrixPart), ("heads", COUNT), ("kv_heads", COUNT),
                ("size", COUNT), ("band", COUNT), ("rotary", COUNT), ("activation", COUNT),
                ("scale", REAL), ("bias", ADDRESS), ("reach", COUNT), ("u", ADDRESS),
                ("v", ADDRESS), ("far", ADDRESS))  # fmt: skip


class PlanPart(ctypes.Structure):
    _fields_ = (("parts", ctypes.POINTER(SubLayer)), ("count", COUNT), ("width", COUNT),
                ("tokens", MatrixPart), ("token_scale", REAL), ("output_scale", REAL),
                ("positions", ADDRESS), ("frequencies", ADDRESS), ("norm", NormPart),
                ("output", MatrixPart))  # fmt: skip


class MemoryPart(ctypes.Structure):
    _fields_ = (("keys", ADDRESS), ("values", ADDRESS), ("row", COUNT), ("head", COUNT),
                ("kind", COUNT))  # fmt: skip


class StepPart(ctypes.Structure):
    _fields_ = (("tokens", ADDRESS), ("starts", ADDRESS), ("batch", COUNT), ("length", COUNT),
                ("columns", ADDRESS), ("memories", ctypes.POINTER(MemoryPart)),
                ("sources", ADDRESS), ("logits", ADDRESS), ("inputs", ADDRESS))  # fmt: skip


def step_kernel() -> Any:
    """Returns the native function, or None if the compiler or the processor does not support it."""
    function = getattr(library(), "decode_step", None)
    if function is not None and function.argtypes is None:
        function.argtypes, function.restype = [ADDRESS, ADDRESS, ctypes.c_int], ctypes.c_int
    return function


def peaks(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the index of the largest logit of each row [B, V], and log Σ exp of the row."""
    plain = (
        logits.is_cpu and logits.dtype == torch.float32 and logits.stride() == (logits.size(1), 1)
    )
    function: Any = getattr(library(), "decode_peaks", None) if plain else None
    if function is None:
        return logits.argmax(-1), logits.logsumexp(-1)
    best, total = torch.empty(len(logits), dtype=torch.long), torch.empty(len(logits))
    function(
        ADDRESS(logits.data_ptr()), *map(COUNT, logits.shape), ADDRESS(best.data_ptr()),
        ADDRESS(total.data_ptr()), torch.get_num_threads(),
    )  # fmt: skip
    return best, total


COLLAPSE, PAGE = 25, 2**21  # Linux's MADV_COLLAPSE; the bytes of a large page


def enlarge_pages(value: Tensor) -> None:
    """Asks the system to hold a large matrix in large pages, where it lies: with small ones, the
    page lookups take longer than the reading. Systems that cannot do it leave it."""
    start = -(-value.data_ptr() // PAGE) * PAGE
    size = (value.data_ptr() + value.nbytes - start) // PAGE * PAGE
    if size > 0 and sys.platform == "linux":
        ctypes.CDLL(None).madvise(ADDRESS(start), ctypes.c_size_t(size), COLLAPSE)


class DecoderPlan:
    """The plan of a decoder; `tensors` keeps alive what the structures point to."""

    def __init__(self, plan: PlanPart, parts: Sequence[SubLayer], tensors: Sequence[Any]) -> None:
        self.parts = (SubLayer * len(parts))(*parts)
        plan.parts, plan.count = self.parts, len(parts)
        self.plan, self.tensors = plan, tensors
        self.outputs: int = plan.output.outputs or plan.width  # without an output: hidden states
        self.forget()

    def forget(self) -> None:
        """Lets go of the memories of the last step, so that they can be freed."""
        self.last: list[Tensor] = []
        self.table: Any = None

    def table_of(self, memories: Sequence[tuple[Tensor, Tensor]], one_text: bool) -> Any:
        """Returns where the memories lie; they seldom change between two steps."""
        tensors = [each for pair in memories for each in pair]
        if len(tensors) != len(self.last) or not all(map(operator.is_, tensors, self.last)):
            self.last, self.table = tensors, (MemoryPart * len(memories))()
            for part, (keys, values) in zip(self.table, memories, strict=True):
                part.keys, part.values = keys.data_ptr(), values.data_ptr()
                part.head, part.kind = keys.stride(1), CACHES[keys.dtype]
        for part, (keys, _) in zip(self.table, memories, strict=True):
            part.row = 0 if one_text else keys.stride(0)
        return self.table

    def step(
        self,
        tokens: Tensor,  # [rows]
        starts: Tensor | None,  # [rows]: the first column of each row; None: 0
        length: int,  # the columns that are filled before
        memories: Sequence[tuple[Tensor, Tensor]],  # keys and values of each attention
        sources: Tensor | None = None,  # [rows]: the columns that cross-attention reads
        one_text: bool = False,  # the tokens follow each other in one text
        inputs: Tensor | None = None,  # [rows, width]: the tokens, if the plan has no table of them
    ) -> Tensor:
        """Adds the tokens' keys and values to the memories and returns the logits [rows, V]."""
        rows = tokens.numel()
        logits = torch.empty(rows, self.outputs)
        tokens = tokens.contiguous()
        starts = tokens.new_zeros(rows) if starts is None else starts
        columns = torch.arange(length, length + rows) if one_text else None
        step = StepPart(
            tokens.data_ptr(), starts.data_ptr(), rows, length,
            None if columns is None else columns.data_ptr(), self.table_of(memories, one_text),
            None if sources is None else sources.data_ptr(), logits.data_ptr(),
            None if inputs is None else inputs.data_ptr(),
        )  # fmt: skip
        if step_kernel()(ctypes.byref(self.plan), ctypes.byref(step), torch.get_num_threads()):
            raise InputError(
                f"token ids {tokens.tolist()} are not all in the vocabulary of "
                f"{self.plan.tokens.outputs}; use the tokenizer of this model"
            )
        return logits
