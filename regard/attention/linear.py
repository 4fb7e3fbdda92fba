"""Products with weights in fp32, by the library that is fast on this processor.

For fp32, torch's `F.linear` always calls MKL where torch has it, and MKL uses the long vectors
(AVX-512) of Intel's processors only. On other processors with long vectors oneDNN, which is in
torch too, is about twice as fast. All other cases stay with `F.linear`.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack as len_torch_dispatch_stack
from torch._C import _len_torch_function_stack as len_torch_function_stack
from torch.nn import functional as F
from torch.utils.flop_counter import flop_registry, register_flop_formula

from regard.attention.native import passes

OPERATION = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
FEW = 4  # below this number of rows, the order in which a matrix lies in memory decides


@functools.cache
def onednn() -> Any:
    """Returns torch's operation for a product by oneDNN, or None where MKL is as fast."""
    if os.environ.get("REGARD_NATIVE") == "0" or not torch.backends.mkl.is_available():
        return None
    flags = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    long_vectors = bool(flags.get("avx512_f", flags.get("avx512f", False)))
    if not (torch.backends.mkldnn.is_available() and long_vectors) or is_intel():
        return None
    return OPERATION


def operations(x: torch.Size, weight: torch.Size, *_: Any, **__: Any) -> int:
    """Returns the operations of a product, for torch's counter, which does not know oneDNN's."""
    return 2 * x.numel() * weight[0]


if OPERATION is not None and OPERATION not in flop_registry:
    register_flop_formula(OPERATION)(operations)


def is_intel(facts: Path = Path("/proc/cpuinfo")) -> bool:
    """Returns whether Intel made the processor; True where nothing is known."""
    try:
        return "GenuineIntel" in facts.read_text(encoding="utf-8")
    except OSError:
        return True


def serves(x: Tensor, weight: Tensor) -> bool:
    """Returns whether oneDNN computes this product with a matrix [outputs, inputs]."""
    return x.numel() >= FEW * weight.size(1) > 0 and weight.size(0) > 1 and fits(x, weight)


def fits(*tensors: Tensor) -> bool:
    """Returns whether torch itself would multiply these slowly. A subclass of Tensor in another
    library may have no data in memory; a mode that looks at torch's functions would miss these."""
    return (
        all(t.dtype == torch.float32 and t.is_cpu for t in tensors)
        and all(type(t) in (Tensor, nn.Parameter) for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and len_torch_function_stack() == 0
        and onednn() is not None
    )


class Product(torch.autograd.Function):
    """x [N, inputs] · Wᵀ [inputs, outputs] + bias; its gradients are such products, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        y: Tensor = onednn()(by_rows(x), weight, bias, "none", [], "")
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wants = ctx.needs_input_grad
        return (
            product(grad, weight.t()) if wants[0] else None,
            product(grad.t(), x.t()) if wants[1] else None,
            grad.sum(0) if wants[2] else None,
        )


def by_rows(x: Tensor) -> Tensor:
    """Returns a matrix that lies in memory by columns in the order that oneDNN's operation needs,
    which would otherwise copy it slowly: the gradient of the outputs, for that of the weight."""
    columns = x.stride(0) == 1 and not x.is_contiguous() and passes.serves(x)
    return passes.transposed(x.t()) if columns else x


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns x [N, inputs] · Wᵀ + bias for a matrix [outputs, inputs]."""
    if not serves(x, weight):
        return F.linear(x, weight, bias)
    y: Tensor = Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Does the same for x [..., inputs]."""
    if not serves(x, weight):
        return F.linear(x, weight, bias)
    return product(x.reshape(-1, x.size(-1)), weight, bias).view(*x.shape[:-1], -1)


class Products(torch.autograd.Function):
    """a [batch, m, k] · b [batch, k, n] by native code; its gradients are such products, too."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return passes.products(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        wants = ctx.needs_input_grad
        return (
            products(grad, b.mT) if wants[0] else None,
            products(a.mT, grad) if wants[1] else None,
        )


def products(a: Tensor, b: Tensor) -> Tensor:
    """Returns torch.bmm(a, b). A mode that looks at torch's operations, such as its counter, would
    not see the native code."""
    few = min(a.size(1), b.size(2)) < FEW
    if few or not (fits(a, b) and passes.serves(a)) or len_torch_dispatch_stack() > 0:
        return torch.bmm(a, b)
    y: Tensor = Products.apply(a, b)  # type: ignore[no-untyped-call]
    return y


class Linear(nn.Linear):
    """torch's linear layer, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
