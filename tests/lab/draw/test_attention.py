"""One matrix of a model's attention: what `regard draw attention` shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.api import LoadedModel
from regard.cli.main import main
from regard.data.special_tokens import special_of
from regard.lab.draw.attention import look
from regard.lab.look import look as page
from regard.lab.look.tokens import tokens_of
from tests.lab.look.small import recorded, speaking

SENTENCE = "The cat sat."


def test_a_model_of_two_directions_reads_one_text(tmp_path: Path) -> None:
    """As an XLNet is trained: a single text has no second half, and is read forwards."""
    loaded = speaking("xlnet", two_directions=True)
    loaded.save(tmp_path / "xlnet")
    seen = look(str(tmp_path / "xlnet"), SENTENCE, layer=2, head=1)
    words: Any = loaded.tokenizer
    special = special_of(words, "small")
    ids = words.encode(SENTENCE, special=False)
    tokens = torch.tensor([[*ids, special.sep, special.cls]])
    segments = torch.tensor([[*(0 for _ in ids), 0, 2]])
    expected = recorded(speaking("xlnet").model, tokens, segments=segments)[1][0]
    torch.testing.assert_close(torch.tensor(seen.values), torch.from_numpy(expected))


def test_letters_of_several_tokens_are_whole(tmp_path: Path) -> None:
    speaking("gpt", kind="bytes").save(tmp_path / "gpt")
    seen = look(str(tmp_path / "gpt"), "猫")
    assert seen.rows == seen.columns and list(seen.rows).count("猫") == 3


@pytest.mark.parametrize("family", ["bert", "longformer"])
def test_an_encoder_reads_between_its_marks(family: str, tmp_path: Path) -> None:
    """Also where its tokenizer adds none; a Longformer's layer is its window and its global row."""
    loaded = speaking(family)
    loaded.save(tmp_path / family)
    words: Any = loaded.tokenizer
    special = special_of(words, "small")
    row = [special.cls, *words.encode(SENTENCE, special=False), special.sep]
    stack = page(loaded, SENTENCE).sides[0].stack("self")
    for layer in (1, 2):
        seen = look(str(tmp_path / family), SENTENCE, layer=layer)
        assert seen.rows == seen.columns == [t.text for t in tokens_of(words, row)]
        np.testing.assert_allclose(seen.values, stack.layers[layer - 1].average, atol=2e-6)


def test_a_decoder_begins_with_its_start(tmp_path: Path) -> None:
    loaded = speaking("transformer")
    loaded.save(tmp_path / "pair")
    side = page(loaded, SENTENCE).sides[0]
    own, cross = (look(str(tmp_path / "pair"), SENTENCE, layer=n, head=2) for n in (3, 4))
    target, source = ([t.text for t in side.tokens[name]] for name in ("target", "source"))
    assert (own.rows, own.columns) == (target, target)
    assert (cross.rows, cross.columns) == (target, source)
    weights = side.stack("cross").layers[0].weights(1)
    np.testing.assert_allclose(cross.values, weights, atol=2e-6)
    LoadedModel(loaded.model).save(tmp_path / "bare")  # without a tokenizer: words have numbers
    bare = look(str(tmp_path / "bare"), "to be or not", layer=4)
    assert (bare.rows[1:], bare.columns) == ("to be or not".split(),) * 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["draw", "attention", "to be or not", "--model", "bert-tiny", "--head", "1"]
    file = tmp_path / "a.png"
    assert main([*words, "--out", str(file), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert file.read_bytes().startswith(b"\x89PNG\r\n") and facts["out"] == str(file)
    assert facts["columns"] == "to be or not".split()
    np.testing.assert_allclose(np.array(facts["values"]).sum(1), 1.0, atol=1e-5)
