"""Frozen states are those of the model, whatever stands beside a sentence; and are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.api import LoadedModel
from regard.attention.pattern import Causal, Full
from regard.attention.position import View
from regard.core.errors import ConfigError, InputError, StorageError, UnknownName
from regard.data.batching import by_tokens
from regard.methods.probe import states as made
from regard.methods.probe.reader import StateReader, TokenRow
from regard.methods.probe.states import chosen_layers, digest, states_of, untrained
from regard.models.extensions import extend
from tests.methods.probe.small import FAMILIES, SENTENCES, WORDS, loaded
from tests.refusals import refuses

CUT = {"unhappy": ["un", "##happ", "##y"], "goodness": ["good", "##ness"], "films": ["film", "##s"],
       "unhappyness": ["un", "##happ", "##y", "##ness"]}  # fmt: skip
ALL = [0, 1, 2]


def ids(words: tuple[str, ...]) -> list[int]:
    return [WORDS.index(piece) for word in words for piece in CUT.get(word, [word])]


@torch.no_grad()
def directly(family: str, model: Any, tokens: list[int]) -> list[Tensor]:
    """Layer by layer with the model's own parts, one sentence at a time, without padding."""
    x = torch.tensor([tokens])
    place = torch.arange(len(tokens))[None]
    if family == "bert":
        every = [model.embeddings(x, place, torch.zeros_like(x))]
        for block in model.blocks:
            every.append(block(every[-1], View(Full())))
        return every
    if family == "gpt":
        every = [model.tokens(x) + model.positions(place)]
        for block in model.blocks:
            every.append(block(every[-1], View(Causal())))
        return [*every[:-1], model.norm(every[-1])]
    if family == "lstm":
        every = [model.tokens(x)]
        for layer in model.layers:
            every.append(layer(every[-1])[0])
        return every
    assert family == "t5"
    every = [model.tokens(x)]
    view = model.encoder.view(Full(), 0, len(tokens), torch.float32)
    for block in model.encoder.blocks:
        every.append(block(every[-1], view))
    return [*every[:-1], model.encoder.norm(every[-1])]


def wanted(every: list[Tensor], words: tuple[str, ...], before: int, pooling: str) -> np.ndarray:
    """[layers, words, width], by hand."""
    rows, at = [], before
    for word in words:
        size = len(CUT.get(word, [word]))
        end = at + (size if pooling == "mean" else 1)
        rows.append(torch.stack([layer[0, at:end].mean(0) for layer in every]))
        at += size
    return torch.stack(rows, 1).numpy()


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("family", ["bert", "gpt", "lstm", "t5"])
def test_states_are_those_of_the_model(family: str, pooling: str) -> None:
    model = loaded(family)
    marks = {"bert": ([2], [3]), "t5": ([], [3])}.get(family, ([], []))
    reader = StateReader(model, pooling)
    states = states_of(reader, reader.words(SENTENCES), sum(map(len, SENTENCES)), ALL)
    parts = [
        wanted(directly(family, model.model, [*marks[0], *ids(words), *marks[1]]), words,
               len(marks[0]), pooling)
        for words in SENTENCES
    ]  # fmt: skip
    np.testing.assert_allclose(states.table, np.concatenate(parts, 1), atol=2e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_company_changes_nothing(family: str) -> None:
    """Padded in a batch or alone; and the last layer is what the model gives."""
    model = loaded(family)
    reader = StateReader(model)
    together = states_of(reader, reader.words(SENTENCES), 12, ALL).table
    alone = [states_of(reader, reader.words([words]), len(words), ALL).table for words in SENTENCES]
    np.testing.assert_allclose(together, np.concatenate(alone, 1), atol=2e-5)
    assert reader.depth == 2 and np.abs(together[0] - together[1]).max() > 0.01
    row = reader.words(SENTENCES[:1])[0]
    with torch.no_grad():
        tokens, _, more = reader.inputs([row])
        last = reader.read(tokens, None, more)[0]
    begin, end = row.spans[3][1:]
    np.testing.assert_allclose(together[2, 3], last[begin:end].mean(0), atol=2e-5)


@pytest.mark.parametrize(("family", "place"), [("bert", 0), ("gpt", -1), ("xlnet", -1)])
def test_a_text_is_its_mean_or_the_token_that_speaks(family: str, place: int) -> None:
    model = loaded(family)
    texts = [" ".join(words) for words in SENTENCES]
    for pooling in ("mean", "first"):
        reader = StateReader(model, pooling)
        states = states_of(reader, reader.texts(texts), 3, [2]).table[0]
        for number, row in enumerate(reader.texts(texts)):
            with torch.no_grad():
                hidden = reader.every([row])[2][0]
            right = hidden.mean(0) if pooling == "mean" else hidden[place]
            np.testing.assert_allclose(states[number], right, atol=2e-5)


def test_dropout_is_off_and_the_model_is_left_as_it_was() -> None:
    model = loaded("bert")
    model.model.train()
    reader = StateReader(model)
    first, second = (states_of(reader, reader.words(SENTENCES), 12, ALL).table for _ in range(2))
    assert (first == second).all() and model.model.training


def test_long_sentences_are_read_in_windows_and_long_texts_cut() -> None:
    reader = StateReader(loaded("bert"))
    words = ("the", "film", "was", "good") * 12  # 48 tokens, and 24 fit
    rows = reader.words([words, words[:3]])
    assert reader.long == 1 and all(len(row.ids) <= 24 for row in rows)
    assert sorted(unit for row in rows for unit, _, _ in row.spans) == list(range(51))
    assert [row.whole for row in rows][-1] and not rows[0].whole
    states = states_of(reader, rows, 51, [2])
    assert (np.abs(states.table).sum(2) > 0).all()
    reader.texts([" ".join(words), "the film"])
    assert reader.cut == 1 and "lost their end" in " ".join(reader.notes)


def test_layers_are_counted_from_both_ends() -> None:
    assert chosen_layers([], 2) == [0, 1, 2]
    assert chosen_layers([-1, 0, 2], 2) == [0, 2]
    with refuses(ConfigError, "layers 3", "to 2"):
        chosen_layers([3], 2)


# -- the cache


def forbidden(rows: list[TokenRow]) -> list[Tensor]:
    raise AssertionError("read again")


def test_a_cache_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = StateReader(loaded("bert"))
    rows = reader.words(SENTENCES)
    states = states_of(reader, rows, 12, [0, 2])
    first = states_of(reader, rows, 12, [0, 2], tmp_path)
    monkeypatch.setattr(reader, "every", forbidden)
    again = states_of(reader, rows, 12, [0, 2], tmp_path)
    assert isinstance(again.table, np.memmap) and (again.table == first.table).all()
    assert (states.table == first.table).all()
    units = np.array([3, 0])
    assert (again.gather([2], units).numpy() == states.table[1:, units]).all()
    with refuses(AssertionError, "read again"):
        states_of(reader, rows, 12, [0, 1], tmp_path)
    made.forget(first)
    assert list(tmp_path.iterdir()) == []


def test_the_key_knows_weights_words_and_options() -> None:
    def key(seed: int = 1, words: Any = SENTENCES, pooling: str = "mean", layers: Any = ALL) -> str:
        reader = StateReader(loaded("bert", seed), pooling)
        return digest(reader, reader.words(words), layers)

    others = [key(2), key(words=SENTENCES[:2]), key(pooling="first"), key(layers=[0])]
    assert key() == key() and len({key(), *others}) == 5


def test_the_key_knows_how_the_same_bytes_are_multiplied() -> None:
    keys = set()
    for kind in ("weight", "dynamic"):
        reader = StateReader(loaded("bert"))
        extend(reader.model, "int8", {"kind": kind})
        keys.add(digest(reader, reader.words(SENTENCES), ALL))
    assert len(keys) == 2


def test_a_cache_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = StateReader(loaded("bert"))
    rows = reader.words(SENTENCES)
    monkeypatch.setattr(reader, "every", forbidden)
    with refuses(AssertionError, "read again"):
        states_of(reader, rows, 12, ALL, tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    states_of(reader, rows, 12, ALL, tmp_path)
    file = next(tmp_path.glob("*/states.npy"))
    file.write_bytes(file.read_bytes()[:100])
    with refuses(StorageError, "states.npy", tmp_path):
        states_of(reader, rows, 12, ALL, tmp_path)


def test_a_full_disk_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = StateReader(loaded("bert"))
    rows = reader.words(SENTENCES)
    monkeypatch.setattr(made, "SPARE", 2**60)
    with refuses(StorageError, tmp_path, "--layers", "--limit"):
        states_of(reader, rows, 12, ALL, tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- the rest


def test_an_untrained_model_is_the_seeds() -> None:
    model = loaded("bert")
    weights = [untrained(model, seed).model.state_dict()["blocks.0.attention.layer.project.weight"]
               for seed in (1, 1, 2)]  # fmt: skip
    own = model.model.state_dict()["blocks.0.attention.layer.project.weight"]
    assert (weights[0] == weights[1]).all() and (weights[0] != weights[2]).any()
    assert weights[0].shape == own.shape and 0.01 < float(weights[0].std()) < 0.03
    state = torch.get_rng_state()
    untrained(model, 3)
    assert (torch.get_rng_state() == state).all()


def test_an_untrained_model_has_the_same_parts() -> None:
    model = loaded("bert")
    extend(model.model, "gates")
    fresh = untrained(model, 1).model
    assert fresh.extensions == model.model.extensions != {}
    shapes = {name: value.shape for name, value in model.model.state_dict().items()}
    assert {name: value.shape for name, value in fresh.state_dict().items()} == shapes
    reader = StateReader(model)
    assert states_of(reader, reader.words(SENTENCES), 12, ALL).table.shape == (3, 12, 16)


def test_batches_fit_and_lose_nobody() -> None:
    costs = np.array([3.0, 50.0, 1.0, 4.0, 4.0])
    batches = list(by_tokens(costs, 9))
    assert sorted(x for batch in batches for x in batch) == [0, 1, 2, 3, 4]
    assert batches[0] == [1] and all(len(b) * costs[b[0]] <= 9 for b in batches[1:])


def test_refusals() -> None:
    model = loaded("gpt")
    with refuses(UnknownName, "pooling 'max'"):
        StateReader(model, "max")
    with refuses(InputError, "tokenizer"):
        StateReader(LoadedModel(model.model))
    with refuses(ConfigError, "length is 25", "24"):
        StateReader(model, length=25)
    with refuses(ConfigError, "length of 2"):
        StateReader(loaded("bert"), length=2).words(SENTENCES)
