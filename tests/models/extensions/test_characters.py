"""Characters mixed into embeddings: the formula, the table of spellings, and what stays tied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.core.errors import ConfigError
from regard.data.tokenizer import Tokenizer
from regard.models import create
from regard.models.extensions import extend
from regard.models.extensions.characters import (
    FIRST,
    OTHER,
    PADDING,
    Characters,
    owner_of,
    spellings,
)
from regard.training.run import train
from tests.decoding.small import tokenizer
from tests.laws.zoo import ZOO, Specimen, close, collate
from tests.models.extensions.shared import comes_back
from tests.refusals import refuses
from tests.training import small

networks = pytest.mark.parametrize("network", ["gru", "conv"])


def spelled(specimen: Specimen, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """A model whose characters do something."""
    chosen = {"size": 6, "most": 5, "alphabet": 40} | options
    model = extend(specimen.fresh(dtype), "characters", chosen, tokenizer("wordpiece"))
    dice = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in owner_of(model).tokens.spelling.parameters():
            value.normal_(0.0, 0.3, generator=dice)
        owner_of(model).tokens.spelling.characters.weight[PADDING] = 0.0
    return model


def test_spellings() -> None:
    words = tokenizer("wordpiece")
    options = Characters.of({"most": 4, "alphabet": 30}).options
    table = spellings(words, len(words) + 3, options)
    assert table.shape == (len(words) + 3, 4) and int(table.max()) < 30
    assert table[len(words) :].sum() == 0, "what is no token has no spelling"
    ids = words.ready.get_vocab()
    entries = sorted(ids, key=lambda entry: ids[entry])
    numbers: dict[str, int] = {}
    for entry, row in zip(entries, table.tolist(), strict=False):
        assert row[len(entry) :] == [0] * (4 - len(entry[:4]))
        for character, number in zip(entry, row, strict=False):
            assert number >= OTHER
            if number >= FIRST:
                assert numbers.setdefault(character, number) == number
    assert 20 < len(set(numbers.values())) == len(numbers) <= 28, "each number is one character"
    assert (table == OTHER).any(), "the rarest share one"


@networks
@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_the_mixture(specimen: Specimen, network: str) -> None:
    """Against one token at a time, its characters read alone."""
    plain = specimen.fresh(torch.float64)
    model = spelled(specimen, network=network)
    tokens = torch.tensor([[3, 17, 3, 5], [28, 0, 9, 17]])
    e, table = owner_of(plain).tokens(tokens), owner_of(model).tokens
    spelling = table.spelling
    g = torch.sigmoid(spelling.gate(e))
    expected = torch.empty_like(e)
    for place in [(i, j) for i in range(2) for j in range(4)]:
        letters = [n for n in spelling.table[tokens[place]].tolist() if n]
        x = spelling.characters(torch.tensor([letters]))
        if network == "gru":
            ends = spelling.network.forth(x)[1], spelling.network.back(x.flip(1))[1]
            c = torch.cat([end[0, 0] for end in ends])
        else:
            c = torch.tanh(spelling.network.conv(x.mT)).amax(2)[0]
        expected[place] = g[place] * c + (1 - g[place]) * e[place]
    close(table(tokens), expected, 1e-12)


def test_a_token_without_a_spelling_has_its_vector_alone() -> None:
    model = spelled(ZOO[4])
    table = model.tokens
    table.spelling.table[7] = 0
    e = torch.nn.functional.embedding(torch.tensor([7]), table.weight)
    g = torch.sigmoid(table.spelling.gate(e))
    close(table(torch.tensor([[7]]))[0], (1 - g) * e, 1e-12)


@networks
def test_shut_gates_are_the_plain_model(network: str) -> None:
    specimen = next(s for s in ZOO if s.name == "bert")
    plain, model = specimen.fresh(torch.float64), spelled(specimen, network=network)
    with torch.no_grad():
        owner_of(model).tokens.spelling.gate.weight.zero_()
        owner_of(model).tokens.spelling.gate.bias.fill_(-60.0)
    inputs = collate([specimen.text(5, 0)]).inputs
    close(model(**inputs), plain(**inputs), 1e-12)


def test_the_output_stays_tied_to_the_words() -> None:
    model = spelled(ZOO[4])
    assert model.output.weight is model.tokens.weight
    hidden = torch.randn(3, 16, dtype=torch.float64)
    close(model.logits(hidden), hidden @ model.tokens.weight.T, 1e-12)


@networks
@pytest.mark.parametrize("name", ["gpt2", "transformer-xl", "xlnet", "t5", "longformer"])
def test_saved_and_loaded_is_the_same(name: str, network: str, tmp_path: Path) -> None:
    specimen = next(s for s in ZOO if s.name == name)
    model = spelled(specimen, torch.float32, network=network)
    again = comes_back(model, collate([specimen.text(5, 0)]).inputs, tmp_path)
    assert owner_of(again).tokens.spelling.table.dtype == torch.int32


def test_gradients_reach_characters_and_words() -> None:
    specimen = next(s for s in ZOO if s.name == "gpt2")
    model = spelled(specimen)
    specimen.loss(model, collate([specimen.text(6, 0)])).backward()
    for name, value in model.tokens.named_parameters():
        assert value.grad is not None and value.grad.abs().sum() > 0, name


def test_tokens_that_come_later_have_no_spelling() -> None:
    model = spelled(ZOO[4])
    before = model.tokens.spelling.table
    model.tokens.spelling.grow(before.size(0) + 2)
    after = model.tokens.spelling.table
    assert torch.equal(after[:-2], before) and not after[-2:].any()
    assert after.dtype == before.dtype


def test_words_of_one_root_are_alike(tmp_path: Path) -> None:
    """What the characters are for: a new word is near to one that is spelled like it."""
    torch.manual_seed(1)
    words = ["walk", "walks", "walked", "zebra", "moon", "xylem"]
    from tokenizers import Tokenizer as Fast
    from tokenizers import models

    fast = Fast(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="moon"))
    model = create("gpt", layers=1, width=32, heads=2, vocab_size=6, context=8)
    extend(model, "characters", {"network": "conv"}, Tokenizer(fast))
    c = model.tokens.spelling.vectors(torch.arange(6))
    like = torch.nn.functional.cosine_similarity(c[1:2], c)
    assert like[0] > like[3:].max() and like[2] > like[3:].max()


def test_a_recipe_with_characters_learns(tmp_path: Path) -> None:
    where = small.data(tmp_path / "data")
    extensions = {"characters": {"network": "conv", "alphabet": 20, "size": 4}}
    recipe = small.recipe("gpt", where, extensions=extensions, budget={"steps": 4})
    train(recipe, tmp_path / "run", display="silent")
    spelling = regard.load(tmp_path / "run").model.tokens.spelling
    assert spelling.table[12].count_nonzero() == 3, "w12"
    assert not torch.equal(spelling.gate.bias, torch.full((16,), -2.0))


def test_refusals() -> None:
    gpt = create("gpt", layers=1, width=16, heads=2, vocab_size=30, context=16)
    with refuses(ConfigError, "tokenizer.json"):
        extend(gpt, "characters")
