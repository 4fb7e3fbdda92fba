"""Comparing with transformers: weights in which no error can hide, exchange both ways."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from regard.api import Loaded, load

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TOLERANCE = 1e-5  # in fp32, of the largest number compared (or of 1 where all are smaller)
FROZEN = ("embed_positions",)  # sines and cosines: not weights


def scramble(model: Any, std: float = 0.2, seed: int = 0) -> Any:
    """Matrices ~ N(0, std), biases and gains moved by as much: fresh zeros and ones hide errors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(frozen in name for frozen in FROZEN):
                continue
            noise = torch.randn(parameter.shape, generator=generator) * std
            parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
    return model.eval()


def ours(reference: Any, directory: Path, **options: Any) -> Loaded:
    """The reference, saved as it saves itself and opened by us without a word of complaint."""
    reference.save_pretrained(directory)
    with warnings.catch_warnings(action="error"):
        return load(directory, **options)


def theirs(loaded: Loaded, directory: Path, kind: Any) -> Any:
    """Saved by us, opened by the reference: no tensor too many, too few or of another shape."""
    loaded.save(directory)
    model, report = kind.from_pretrained(directory, output_loading_info=True)
    assert {name: list(found) for name, found in report.items() if found} == {}
    return model.eval()


def same_config(before: Any, after: Any) -> None:
    """Every field of the reference's configuration survives the way through us."""
    passing = {"transformers_version", "_name_or_path", "dtype", "torch_dtype"}
    kept, found = before.to_dict(), after.to_dict()
    assert {k: v for k, v in kept.items() if k not in passing and found.get(k) != v} == {}


def close(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    assert found.shape == expected.shape
    assert found.isfinite().all()
    scale = max(1.0, float(expected.abs().max()))
    difference = float((found - expected).abs().max())
    assert difference <= tolerance * scale, (
        f"differs by {difference:.2e}; numbers up to {scale:.3g}"
    )


def all_close(found: list[Tensor], expected: list[Tensor], real: Tensor | None = None) -> None:
    """Layer by layer, at the real rows."""
    assert len(found) == len(expected)
    for ours_, theirs_ in zip(found, expected, strict=True):
        chosen = slice(None) if real is None else real
        close(ours_[chosen], theirs_[chosen])


@contextmanager
def layers(
    modules: nn.ModuleList, pick: Callable[[Any], Tensor] | None = None
) -> Iterator[list[Tensor]]:
    """What goes into the first of these layers, and what comes out of each."""
    seen: list[Tensor] = []

    def before(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append(args[0] if args else named["hidden_states"])

    def after(module: nn.Module, args: Any, result: Any) -> None:
        first = result[0] if isinstance(result, tuple | list) else result
        seen.append(first if pick is None else pick(result))

    hooks = [modules[0].register_forward_pre_hook(before, with_kwargs=True)]
    hooks += [module.register_forward_hook(after) for module in modules]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def words(vocabulary: int, *shape: int, low: int = 0, seed: int = 1) -> Tensor:
    return torch.randint(low, vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def marks(lengths: list[int], side: str) -> Tensor:
    """[B, T], False at padding, which stands on the left or on the right."""
    at = torch.arange(max(lengths))[None]
    length = torch.tensor(lengths)[:, None]
    return at >= max(lengths) - length if side == "left" else at < length


def position_ids(real: Tensor) -> Tensor:
    """Positions that count real tokens, as the reference has to be told them."""
    return (real.long().cumsum(1) - 1).clamp_min(0)
