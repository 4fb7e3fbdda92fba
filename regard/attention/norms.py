"""The norm of Llama and T5. On a CPU torch has no kernel for it and makes a dozen passes."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.attention.native import library, passes


class FusedNorm(torch.autograd.Function):
    """x / √(mean x² + eps) · weight, in one pass forward and one backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        y, inverse = torch.empty_like(x), x.new_empty(x.shape[:-1])
        sizes = map(ctypes.c_int64, (inverse.numel(), x.size(-1)))
        native("rms_norm", y, inverse, x, weight, ctypes.c_double(eps), *sizes)
        ctx.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse = ctx.saved_tensors
        grad_x, grad_weight = torch.empty_like(x), torch.empty_like(weight)
        sizes = map(ctypes.c_int64, (inverse.numel(), x.size(-1)))
        native("rms_norm_back", grad_x, grad_weight, grad.contiguous(), x, weight, inverse, *sizes)
        return grad_x, grad_weight, None


def native(name: str, *arguments: Any) -> None:
    plain = (ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments)
    getattr(library(), name)(*plain, torch.get_num_threads())


class RMSNorm(nn.RMSNorm):
    """torch's norm of the last dimension, by native code in fp32."""

    def forward(self, x: Tensor) -> Tensor:
        weight: Any = self.weight
        fp32 = x.dtype == torch.float32 and weight is not None and weight.dtype == x.dtype
        whole = fp32 and len(self.normalized_shape) == 1 and not torch.compiler.is_compiling()
        if not (whole and self.eps is not None and passes.serves(x) and passes.serves(weight)):
            return super().forward(x)
        y: Tensor = FusedNorm.apply(x, weight, self.eps)  # type: ignore[no-untyped-call]
        return y
