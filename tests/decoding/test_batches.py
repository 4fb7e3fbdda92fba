"""Many texts are read in batches of similar length that hold about as many tokens."""

from typing import Any

import pytest
import torch

from regard.decoding.generation import SPARE, Decoder
from regard.decoding.options import DecodingOptions
from regard.formats.directory import Checkpoint
from tests.models.small import small


def batches(name: str, sizes: list[int], **options: Any) -> list[list[int]]:
    torch.manual_seed(0)
    decoder = Decoder(Checkpoint(small(name)), DecodingOptions.of(options))
    return list(decoder.batches([[5] * size for size in sizes]))


@pytest.mark.parametrize("name", ["gpt2", "transformer-base"])
def test_every_text_once_and_similar_lengths_together(name: str) -> None:
    sizes = [3, 9, 4, 8, 1, 7] * 50
    parts = batches(name, sizes, max_new_tokens=30)
    assert sorted(i for part in parts for i in part) == list(range(len(sizes)))
    lengths = [sizes[i] for part in parts for i in part]
    assert lengths == sorted(lengths, reverse=True)
    assert len(parts) > 1


def test_a_batch_holds_fewer_texts_where_each_needs_more() -> None:
    sizes = [10] * 400
    one, beams = (batches("transformer-base", sizes, num_beams=n) for n in (1, 4))
    assert len(one[0]) == 8192 // (3 * 10 + SPARE)
    assert len(beams[0]) == 8192 // (4 * (3 * 10 + SPARE))
    longer = batches("transformer-base", sizes, max_new_tokens=2000)
    assert len(longer[0]) == 8192 // (2010 // 4)  # room for all of them if they do not end
    assert len(batches("gpt2", sizes, max_new_tokens=50)[0]) == 8192 // 60


def test_the_user_may_say_how_many() -> None:
    assert [len(part) for part in batches("gpt2", [4] * 7, batch_size=3)] == [3, 3, 1]
