"""Inputs that would be misread are refused, and those beside them are not."""

from __future__ import annotations

import pytest
import torch

from regard.core.errors import InputError
from regard.models import create
from regard.models.longformer import places
from tests.refusals import refuses

SMALL = {"vocab_size": 50, "width": 16, "layers": 1, "heads": 2, "ffn_size": 24}


def test_two_directions_need_two_halves() -> None:
    model = create("xlnet-base", **SMALL, head_size=8, two_directions=True).eval()
    tokens = torch.randint(0, 50, (3, 6))
    with refuses(InputError, "3 texts"):
        model(tokens)
    assert model(tokens[:2]).shape == (2, 6, 16)
    one_way = create("xlnet-base", **SMALL, head_size=8).eval()
    assert one_way(tokens).shape == (3, 6, 16)


def test_global_tokens_are_marks_or_positions() -> None:
    """A mask of the integers 0 and 1 would be read as the positions 0 and 1."""
    model = create("longformer-base-4096", **SMALL, context=32, window=4).eval()
    tokens = torch.randint(2, 50, (2, 12))
    marks = torch.zeros(2, 12, dtype=torch.bool)
    marks[0, 5] = marks[1, 7] = True
    with refuses(InputError, "bool"):
        model(tokens, global_tokens=marks.long())
    assert torch.equal(
        model(tokens, global_tokens=marks), model(tokens, global_tokens=places(marks))
    )


def test_a_second_backward_is_refused() -> None:
    """The gradient is scaled where it lies, so it can be asked for once only."""
    model = create("gpt2", vocab_size=50, width=16, layers=1, heads=2, context=8)
    tokens = torch.randint(0, 50, (2, 6))
    total = model.output.surprisal(model(tokens).flatten(0, 1), tokens.flatten()) / 12
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        total.backward()
