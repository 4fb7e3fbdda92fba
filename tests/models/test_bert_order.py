"""An order makes a BERT read from left to right, or in any other order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.models.small import VOCABULARY, small


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    return torch.randint(0, VOCABULARY, (2, 10), generator=torch.Generator().manual_seed(3))


def test_one_order_for_all_is_none(tokens: Tensor) -> None:
    model = small("bert-base-uncased").eval()
    attention_mask = torch.ones_like(tokens, dtype=torch.bool)
    attention_mask[1, 7:] = False
    for marks in (None, attention_mask):
        plain = model(tokens, marks)
        torch.testing.assert_close(model(tokens, marks, order=torch.zeros_like(tokens)), plain)


@pytest.mark.parametrize("padded", [False, True])
def test_a_row_sees_what_is_not_above_it(tokens: Tensor, padded: bool) -> None:
    model = small("bert-base-uncased").eval()
    order = torch.stack([torch.arange(10), torch.tensor([3, 1, 1, 0, 2, 9, 4, 4, 8, 0])])
    real = torch.ones_like(tokens, dtype=torch.bool)
    if padded:
        real[0, 8:] = False
    before = model(tokens, real if padded else None, order=order)
    for place in range(10):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % VOCABULARY
        after = model(changed, real if padded else None, order=order)
        moved = (after != before).any(-1)
        sees = (order >= order[:, place, None]) & real[:, place, None]
        own = torch.arange(10) == place  # a padded row still holds its own word
        assert torch.equal(moved | own, sees | own)


def test_left_to_right_in_steps_is_the_same_as_at_once(tokens: Tensor) -> None:
    model = small("bert-base-uncased").eval()
    order = torch.arange(10).expand_as(tokens)
    whole = model(tokens, order=order)
    for size in (1, 4, 9):
        part = model(tokens[:, :size], order=order[:, :size])
        torch.testing.assert_close(part, whole[:, :size], atol=1e-5, rtol=1e-5)
