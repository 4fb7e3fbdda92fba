"""What holds for every part that can be added to a model."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import regard
from regard.formats.directory import save
from tests.laws.zoo import Reader, Specimen, close, collate


def cached_is_uncached(specimen: Specimen, model: Any, *pieces: Sequence[float]) -> None:
    """Read in pieces, each cut at shares of the length, a text is what it is in one pass."""
    batch = collate([specimen.text(8, 0), specimen.text(5, 1)], left=True)
    whole = model.requires_grad_(False)(**batch.inputs)
    length = batch.inputs[specimen.main].size(1)
    for shares in pieces:
        edges = sorted({0, *(max(1, int(share * length)) for share in shares), length})
        reader = Reader(model, batch.inputs, length)
        joined = torch.cat([reader.read(start, end) for start, end in pairwise(edges)], 1)
        for one, other in zip(batch.of(joined), batch.of(whole), strict=True):
            close(one, other, 1e-10)


def comes_back(model: Any, inputs: dict[str, Any], place: Path) -> Any:
    """Saved and opened again: the same parts, weights and results, and once more the same file."""
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    loaded = regard.load(save(model, place / "one"), dtype=dtype)
    assert loaded.model.extensions == model.extensions
    assert loaded.model.parameter_count() == model.parameter_count()
    before, after = model.state_dict(), loaded.model.state_dict()
    assert list(before) == list(after)
    for name, value in before.items():
        assert value.dtype == after[name].dtype and torch.equal(value, after[name]), name
    # products may differ in the last bit by where numbers lie in memory: copies have new places
    assert torch.equal(deepcopy(loaded.model)(**inputs), deepcopy(model)(**inputs))
    loaded.save(place / "two")
    files = [place / name / "model.safetensors" for name in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()
    return loaded.model
