"""One matrix of a model's attention: what `regard draw attention` shows."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.study.look import look
from tests.look.small import recorded, speaking


def test_a_model_of_two_directions_reads_one_text(tmp_path: Path) -> None:
    """As an XLNet is trained: a single text has no second half, and is read forwards."""
    loaded = speaking("xlnet", two_directions=True)
    loaded.save(tmp_path / "xlnet")
    seen = look(str(tmp_path / "xlnet"), "The cat sat.", layer=2, head=1)
    assert loaded.tokenizer is not None
    ids = loaded.tokenizer.encode("The cat sat.")
    plain = speaking("xlnet")
    expected = recorded(plain.model, torch.tensor([ids]))[1][0]
    torch.testing.assert_close(torch.tensor(seen.weights), torch.from_numpy(expected))


def test_letters_of_several_tokens_are_whole(tmp_path: Path) -> None:
    speaking("gpt", kind="bytes").save(tmp_path / "gpt")
    seen = look(str(tmp_path / "gpt"), "猫")
    assert seen.rows == seen.columns and seen.rows.count("猫") == 3
