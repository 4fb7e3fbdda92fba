"""What an XLNet makes of the samples: nothing leaks, memory goes along, and it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.models import create
from regard.models.state import State
from regard.objectives.base import Batch
from tests.objectives.rules import check_learning
from tests.objectives.sentences_corpus import batch_of, spoken_corpus
from tests.objectives.small import FIRST, LAST, random_documents
from tests.objectives.test_permuted import permuted, tiny
from tests.refusals import refuses


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    documents = random_documents(60, sentences=(2, 8))
    return spoken_corpus(tmp_path_factory.mktemp("spoken"), documents)


# -- no leaks


def guesses_of(model: Any, batch: Batch, state: State | None = None) -> Tensor:
    names = ("segments", "order", "targets")
    with torch.no_grad():
        y: Tensor = model(batch["tokens"], **{n: batch[n] for n in names}, state=state)
    return y


@pytest.mark.parametrize("units", ["pieces", "words"])
def test_a_guess_sees_neither_its_word_nor_later_ones(spoken: Corpus, units: str) -> None:
    objective, model = (
        permuted(spoken, units=units, two_directions=False),
        tiny(two_directions=False),
    )
    model.eval()
    moved = 0
    for index in range(6):
        batch = batch_of(objective, [index])
        before = guesses_of(model, batch)[0]
        order = batch["order"][0]
        for slot in range(0, int(batch["shares"].sum()), 3):
            place = int(batch["targets"][0, slot])
            changed = {**batch, "tokens": batch["tokens"].clone()}
            changed["tokens"][0, place] = 7 if changed["tokens"][0, place] != 7 else 8
            after = guesses_of(model, changed)[0]
            blind = order[batch["targets"][0]] <= order[place]
            assert torch.equal(after[blind], before[blind])
            assert bool(blind[slot])
            moved += int((after[~blind] != before[~blind]).any(1).sum())
    assert moved > 50  # later ones do see it


def test_the_first_half_sees_nothing_of_the_second(spoken: Corpus) -> None:
    objective, model = permuted(spoken, two_directions=False), tiny(two_directions=False).eval()
    one, two = batch_of(objective, [1]), batch_of(objective, [1])
    two["tokens"][:, 32:] = 9
    first = (one["targets"][0] < 32) & (one["shares"][0] > 0)
    states = [State(), State()]
    rows = [guesses_of(model, b, s)[0] for b, s in zip((one, two), states, strict=True)]
    assert torch.equal(rows[0][first], rows[1][first])
    assert not torch.equal(rows[0][~first], rows[1][~first])
    # and so the next sample remembers nothing of it
    assert all(torch.equal(a, b) for a, b in zip(states[0].hidden, states[1].hidden, strict=True))


def test_memory_is_of_one_size_from_the_first_step_on(spoken: Corpus) -> None:
    objective, model = permuted(spoken), tiny().eval()
    empty = objective.begin(model, 4)
    plain = State()
    assert empty is not None
    for step in range(3):
        places = objective.arrange(list(range(4)))
        batch = batch_of(objective, [step * 4 + p for p in places])
        rows = [guesses_of(model, batch, state) for state in (empty, plain)]
        torch.testing.assert_close(rows[0], rows[1], atol=1e-5, rtol=1e-5)
        assert [h.shape for h in empty.hidden] == [(4, 48, 32)] * 2
        assert empty.attention_mask is not None and int(empty.attention_mask[0].sum()) == min(
            48, 32 * (step + 1)
        )
    assert permuted(spoken, memory=False).begin(model, 4) is None


def test_memory_goes_along(spoken: Corpus) -> None:
    objective, model = permuted(spoken), tiny().eval()
    objective.check(model)
    state = objective.begin(model, 4)
    first = objective.loss(model, batch_of(objective, [0, 2, 1, 3]), state)
    second = batch_of(objective, [4, 6, 5, 7])
    with_memory = objective.loss(model, second, state)
    without = objective.loss(model, second)
    assert first.counts == objective.counts(batch_of(objective, [0, 2, 1, 3]))
    assert with_memory.sums["permuted"].item() != without.sums["permuted"].item()


# -- learning


def test_shuffled_samples_are_learned_too(tmp_path: Path) -> None:
    """A sentence says one word, again and again."""
    words = keyed(0).integers(FIRST, LAST, (40, 12)).tolist()
    documents = [[[word] * 9 for word in document] for document in words]
    objective = permuted(spoken_corpus(tmp_path, documents), 32, memory=False)
    check_learning(objective, tiny(32).train(), 120, 0.7, lr=4e-3)


# -- refusals


def test_other_models_are_refused(spoken: Corpus) -> None:
    objective = permuted(spoken)
    with refuses(ConfigError, "Bert", "these can: xlnet"):
        objective.check(create("bert-tiny", vocab_size=40, layers=1))
    for changes in ({"reuse_len": None}, {"reuse_len": 16}, {"mem_len": None}):
        with refuses(ConfigError, "32 tokens apart", "reuse_len = 32"):
            objective.check(tiny(**changes))
        permuted(spoken, memory=False).check(tiny(**changes))
    running = permuted(spoken, pairs=False)
    running.check(tiny(reuse_len=None))
    with refuses(ConfigError, "64 tokens apart", "reuse_len = None (it has 32)"):
        running.check(tiny())
    with refuses(ConfigError, "two_directions is True", "False"):
        objective.check(tiny(two_directions=False))
