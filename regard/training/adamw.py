"""AdamW that clips in the pass that updates: on a CPU, by native code."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from regard.attention.native import library, passes


class AdamW(torch.optim.AdamW):
    """torch's AdamW with the same state; its next step takes the gradients `shrink` times. Weights
    that are not fp32 on a CPU, or that are split, use torch's own step."""

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, **options)
        self.shrink = 1.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        shrink, self.shrink = self.shrink, 1.0
        weights = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        if not all(map(serves, weights)) or getattr(self, "found_inf", None) is not None:
            scale(weights, shrink)
            super().step()
            return
        for group in self.param_groups:
            learning = [p for p in group["params"] if p.grad is not None]
            if learning:
                self.update(learning, group, shrink)

    def update(self, weights: list[Tensor], group: dict[str, Any], shrink: float) -> None:
        states = [self.state[p] or self.begin(p) for p in weights]
        torch._foreach_add_([state["step"] for state in states], 1)
        (first, second), lr = group["betas"], float(group["lr"])
        steps = [float(state["step"]) for state in states]
        tensors: list[list[Any]] = [
            weights,
            [p.grad.contiguous() for p in weights if p.grad is not None],
            *([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq")),
        ]
        count = len(weights)
        pointers = ((ctypes.c_void_p * count)(*(t.data_ptr() for t in each)) for each in tensors)
        native: Any = library()
        native.adamw(
            *pointers,
            (ctypes.c_int64 * count)(*(p.numel() for p in weights)),
            (ctypes.c_float * count)(*(-lr / (1 - first**step) for step in steps)),
            (ctypes.c_float * count)(*(math.sqrt(1 - second**step) for step in steps)),
            ctypes.c_int64(count),
            *map(ctypes.c_float, (shrink, 1 - lr * group["weight_decay"], 1 - first)),
            *map(ctypes.c_float, (second, 1 - second, group["eps"])),
            torch.get_num_threads(),
        )

    def begin(self, p: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[p]
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        return state


def serves(weight: Tensor) -> bool:
    grad = weight.grad
    fp32 = grad is not None and grad.dtype == weight.dtype == torch.float32 and not grad.is_sparse
    return fp32 and weight.is_contiguous() and passes.serves(weight) and passes.serves(grad)  # type: ignore[arg-type]


def scale(weights: list[Tensor], shrink: float) -> None:
    grads = [p.grad for p in weights if p.grad is not None]
    if shrink != 1.0 and grads:
        torch._foreach_mul_(grads, shrink)
