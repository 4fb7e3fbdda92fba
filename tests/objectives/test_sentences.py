from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import ConfigError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.objectives import sentences
from regard.objectives.base import Loss, Sample
from regard.objectives.sentences import SentencePass, Sentences, SentencesOptions, cut, uniform
from tests.objectives.rules import tiny
from tests.objectives.sentences_corpus import (
    batch_of,
    numbered_corpus,
    numbers,
    random_sizes,
    spoken_corpus,
)
from tests.objectives.small import FIRST, random_documents
from tests.refusals import refuses

CLS, SEP = 4, 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return numbered_corpus(tmp_path_factory.mktemp("data"), random_sizes(80, (1, 20), (2, 15)))


def pairs(corpus: Corpus, seq_len: int = 48, learning: bool = True, **options: Any) -> Sentences:
    return Sentences(
        corpus,
        SentencesOptions(**options),
        seq_len=seq_len,
        batch_size=4,
        seed=3,
        learning=learning,
    )


# -- which sentences make an instance


def walked(
    corpus: Corpus, seed: int, version: int, room: int, short: float, task: str
) -> list[Any]:
    """create_instances_from_document, line by line; each draw is looked up instead."""
    goal_key, split_key = (
        int(keyed(seed, name, version).integers(2**63 - 1)) for name in ("goal", "split")
    )
    examples, before = [], 0
    for number in range(len(corpus.documents) - 1):
        sizes = np.diff(corpus.sentences_of(number)).tolist()
        u = uniform(goal_key, number, number + 1)[0]
        target = room
        if u[0] < short:
            target = 2 + int(u[1] * (room - 1))
        chunk: list[int] = []
        i = 0
        while i < len(sizes):
            chunk.append(i)
            if i == len(sizes) - 1 or sum(sizes[j] for j in chunk) >= target:
                first = before + chunk[0]
                u = uniform(split_key, first, first + 1)[0]
                a_end = 1
                if len(chunk) >= 2:
                    a_end = 1 + int(u[0] * (len(chunk) - 1))
                apart = len(chunk) == 1 or (task == "next" and bool(u[1] < 0.5))
                if task == "none":
                    apart = False
                examples.append((first, first + a_end, before + i + 1, apart, target, number))
                if apart:
                    i -= len(chunk) - a_end
                chunk = []
            i += 1
        before += len(sizes)
    return examples


@pytest.mark.parametrize("task", ["next", "order", "none"])
@pytest.mark.parametrize("version", [0, 1])
def test_a_pass_is_the_authors_pass(corpus: Corpus, task: str, version: int) -> None:
    expected = walked(corpus, 3, version, 29, 0.3, task)
    sentence_pass = SentencePass(corpus, 3, version, 29, 0.3, task)
    assert sentence_pass.count == len(expected) > 3 * sentences.KEPT
    assert len(sentence_pass.kept) == -(-sentence_pass.count // sentences.KEPT) + 1
    for place, (first, middle, end, apart, target, document) in enumerate(expected):
        at, step = sentence_pass.find(place)
        assert (at, int(step.end), bool(step.apart)) == (first, end, apart)
        assert (int(step.goal), int(step.document)) == (target, document)
        assert int(step.middle) == middle


@pytest.mark.parametrize("block", [1, 7, 100])
def test_blocks_do_not_matter(corpus: Corpus, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SentencePass(corpus, 5, 2, 29, 0.1, "next")
    monkeypatch.setattr(sentences, "BLOCK", block)
    parts = SentencePass(corpus, 5, 2, 29, 0.1, "next")
    assert parts.count == whole.count and (parts.kept == whole.kept).all()


@settings(max_examples=50, deadline=None)
@given(key=st.integers(0, 2**62), first=st.integers(0, 10**9), size=st.integers(1, 50))
def test_any_part_of_the_table_of_draws(key: int, first: int, size: int) -> None:
    table = uniform(key, first, first + size)
    assert table.shape == (size, 4) and table.min() >= 0 and table.max() < 1
    assert (uniform(key, first + size // 2, first + size) == table[size // 2 :]).all()


def test_draws_are_uniform() -> None:
    table = uniform(7, 0, 100_000)
    for column in table.T:
        counts = np.bincount((column * 10).astype(int), minlength=10)
        assert (np.abs(counts - 10_000) < 4.5 * np.sqrt(9_000)).all()
    assert (np.abs(np.corrcoef(table.T) - np.eye(4)) < 4.5 / np.sqrt(100_000)).all()


def test_goals_are_short_for_a_tenth_of_the_documents(tmp_path: Path) -> None:
    corpus = numbered_corpus(tmp_path, [[2]] * 20_000)
    goals = SentencePass(corpus, 1, 0, 61, 0.1, "next").goals(0, 20_000)
    short = goals[goals < 61]
    # a short one may by chance be of full length, one in 60
    p = 0.1 * 59 / 60
    assert abs(len(short) - 20_000 * p) < 4.5 * np.sqrt(20_000 * p * (1 - p))
    assert goals.min() == 2 and goals.max() == 61
    assert abs(short.mean() - 31) < 4.5 * np.sqrt((59**2 - 1) / 12 / len(short))


def test_half_of_the_pairs_are_apart_and_all_single_sentences(corpus: Corpus) -> None:
    sentence_pass, apart, several = SentencePass(corpus, 1, 0, 61, 0.1, "next"), [], []
    for version in range(12):
        sentence_pass = SentencePass(corpus, 1, version, 61, 0.1, "next")
        for place in range(sentence_pass.count):
            first, step = sentence_pass.find(place)
            apart.append(bool(step.apart))
            several.append(int(step.end) - first > 1)
    chosen = np.array(apart)[np.array(several)]
    assert abs(chosen.mean() - 0.5) < 4.5 * 0.5 / np.sqrt(len(chosen))
    assert np.array(apart)[~np.array(several)].all()
    assert np.mean(apart) > 0.5


# -- cutting


def shortened(a: int, b: int, room: int, coins: list[bool]) -> list[tuple[int, int]]:
    """truncate_seq_pair on two lists."""
    lists = [list(range(a)), list(range(b))]
    for coin in coins:
        if len(lists[0]) + len(lists[1]) <= room:
            break
        longer = lists[0] if len(lists[0]) > len(lists[1]) else lists[1]
        if coin:
            del longer[0]
        else:
            longer.pop()
    return [(part[0], part[-1] + 1) for part in lists]


@settings(max_examples=200, deadline=None)
@given(a=st.integers(1, 60), b=st.integers(1, 60), room=st.integers(2, 70), key=st.integers(0, 99))
def test_the_longer_is_cut_as_by_the_authors(a: int, b: int, room: int, key: int) -> None:
    expected = shortened(a, b, room, [False] * 200)
    cuts = cut([(0, a), (0, b)], room, keyed(key))
    for (begin, end), (low, high), size in zip(cuts, expected, (a, b), strict=True):
        assert end - begin == high - low and begin >= 0 and end <= size


def test_front_and_back_are_cut_alike() -> None:
    coins = np.random.default_rng(0).random((2000, 40)) < 0.5
    theirs = np.array([shortened(50, 30, 40, list(c))[0][0] for c in coins])
    ours = np.array([cut([(0, 50), (0, 30)], 40, keyed(i))[0][0] for i in range(2000)])
    sigma = np.sqrt(30 * 0.25)
    assert abs(ours.mean() - 15) < 4.5 * sigma / np.sqrt(2000)
    assert abs(ours.std() - sigma) < 0.25 and abs(theirs.std() - sigma) < 0.25
    assert abs(theirs.mean() - ours.mean()) < 6.5 * sigma / np.sqrt(2000)


# -- samples


def taken_apart(sample: Sample) -> list[list[int]]:
    """Where the tokens of A and B stand in the corpus."""
    tokens, used = sample["tokens"].copy(), sample["shares"] > 0
    tokens[sample["targets"][used]] = sample["wanted"][used]
    tokens = tokens[sample["attention_mask"]]
    assert tokens[0] == CLS and tokens[-1] == SEP
    return [numbers(p) for p in np.split(tokens[1:-1], np.flatnonzero(tokens[1:-1] == SEP))]


@pytest.mark.parametrize("task", ["next", "order"])
@pytest.mark.parametrize("seq_len", [16, 48])
def test_pairs(corpus: Corpus, task: str, seq_len: int) -> None:
    objective = pairs(corpus, seq_len, task=task)
    ends = np.asarray(corpus.documents)[1:] - 1
    seen = [0, 0, 0]
    for index in range(len(objective)):
        sample = objective.sample(1, index)
        a, b = taken_apart(sample)
        b = b[1:]  # its [SEP]
        size = len(a) + len(b) + 3
        assert a and b and size <= seq_len
        assert a == list(range(a[0], a[0] + len(a))) and b == list(range(b[0], b[0] + len(b)))
        assert not set(ends.tolist()) & {*a, *b}
        assert sample["attention_mask"].tolist() == [True] * size + [False] * (seq_len - size)
        places = [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (seq_len - size)
        assert sample["segments"].tolist() == places
        assert sample["shares"].sum() == max(1, round(0.15 * size))
        documents = np.searchsorted(ends, [a[0], b[0]])
        label = int(sample["next"])
        same = documents[0] == documents[1]
        if label == 0:
            assert same and b[0] > a[-1]
        elif task == "next":
            assert not same
        else:
            assert not same or a[0] > b[-1]
        seen[label + (label and same)] += 1
    assert seen[0] > 20 and seen[1] > 20 and (seen[2] > 20) == (task == "order")


def test_the_second_text_follows_the_first_to_the_token(tmp_path: Path) -> None:
    """Nothing has to be cut: B begins with the token after A's last."""
    corpus = numbered_corpus(tmp_path, [[4] * 12] * 30)
    objective, count = pairs(corpus, 27, short=0.0), 0
    for index in range(len(objective)):
        sample = objective.sample(0, index)
        a, b = taken_apart(sample)
        assert len(a) % 4 in (0, 3)
        if sample["next"] == 0:
            count += 1
            assert b[1] == a[-1] + 1
    assert count > 20


@pytest.mark.parametrize("seq_len", [16, 48])
def test_no_second_task(corpus: Corpus, seq_len: int) -> None:
    objective = pairs(corpus, seq_len, task="none", short=0.0)
    edges = {int(e) for e in corpus.sentences}
    ends = np.asarray(corpus.documents)[1:] - 1
    for index in range(len(objective)):
        sample = objective.sample(0, index)
        assert "segments" not in sample and "next" not in sample
        (text,) = taken_apart(sample)
        assert text == list(range(text[0], text[0] + len(text))) and len(text) <= seq_len - 2
        assert np.searchsorted(ends, text[0]) == np.searchsorted(ends, text[-1])
        if len(text) < seq_len - 2:  # whole sentences up to the end of the document
            assert text[0] in edges and text[-1] + 1 in ends
    assert objective.heads() == {"masked": 0}


def test_one_document_alone(tmp_path: Path) -> None:
    objective = pairs(numbered_corpus(tmp_path, [[5] * 40]))
    labels = {int(objective.sample(e, i)["next"]) for e in range(3) for i in range(len(objective))}
    assert labels == {0, 1}


def test_an_empty_text_keeps_its_end(tmp_path: Path) -> None:
    corpus = spoken_corpus(tmp_path, [[[]], [[7, 8, 9]], [[]]])
    objective = pairs(corpus, 16)
    for index in range(len(objective)):
        parts = taken_apart(objective.sample(0, index))
        assert all(parts)


# -- epochs


def test_epochs_are_equally_long_and_use_their_pass(corpus: Corpus) -> None:
    objective = pairs(corpus, dynamic=True)
    size = len(objective)
    counts = set()
    for epoch in range(1, 6):
        walk = objective.walk(epoch)
        counts.add(walk.count)
        used = {index * walk.count // size for index in range(size)}
        assert len(used) == min(size, walk.count) and max(used) < walk.count
        assert len(objective) == size
    assert len(counts) > 1 and all(abs(c - size) < 0.2 * size for c in counts)
    assert len(objective.passes) == 2


def test_passes_take_turns_unless_each_is_new(corpus: Corpus) -> None:
    def tokens(objective: Sentences, epoch: int) -> bytes:
        return b"".join(objective.sample(epoch, i)["tokens"].tobytes() for i in range(5))

    static = pairs(corpus, duplicates=3)
    assert len({tokens(static, e) for e in range(6)}) == 3
    assert tokens(static, 1) == tokens(pairs(corpus, duplicates=3), 4)
    dynamic = pairs(corpus, dynamic=True)
    assert len({tokens(dynamic, e) for e in range(6)}) == 6
    assert tokens(dynamic, 2) == tokens(pairs(corpus, dynamic=True), 2)
    fixed = pairs(corpus, dynamic=True, learning=False)
    assert tokens(fixed, 0) == tokens(fixed, 5)


# -- learning


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    documents = random_documents(40, sentences=(2, 8))
    return spoken_corpus(tmp_path_factory.mktemp("spoken"), documents)


def test_zero_means_the_real_next(spoken: Corpus) -> None:
    objective = pairs(spoken, 32)
    model = tiny("bert", heads_of=objective.heads()).eval()
    torch.nn.init.zeros_(model.heads["next"].out.weight)
    model.heads["next"].out.bias.data = torch.tensor([5.0, -5.0])  # sure of "next"
    batch = batch_of(objective, list(range(20)))
    loss = objective.loss(model, batch)
    right, of = loss.seen["next_right"]
    assert of == 20 and int(right) == int((batch["next"] == 0).sum())
    wrong = 20 - int(right)
    assert loss.sums["next"].item() == pytest.approx(wrong * 10, abs=0.01)


def test_a_tiny_model_learns_both(tmp_path: Path) -> None:
    """Every document has a word of its own, so that a B from elsewhere is seen at once."""
    documents = [[[word] * 5 for _ in range(12)] for word in range(FIRST, FIRST + 8)]
    objective = pairs(spoken_corpus(tmp_path, documents), 16, dynamic=True)
    model = tiny("bert", heads_of=objective.heads(), scale=1.0, width=32, ffn_size=64).train()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(200):
        batch = objective.collate([objective.get(step * 16 + i) for i in range(16)])
        loss = objective.loss(model, batch)
        optimizer.zero_grad()
        parts = [total / loss.counts[name] for name, total in loss.sums.items()]
        torch.stack(parts).sum().backward()
        optimizer.step()
    with torch.no_grad():
        test = objective.loss(model.eval(), batch_of(objective, list(range(len(objective))), 77))
    figures = objective.measure(test)
    assert list(figures) == ["masked_accuracy", "masked_perplexity", "next_accuracy"]
    assert figures["next_accuracy"] > 0.8 and figures["masked_perplexity"] < 4


def test_figures(spoken: Corpus) -> None:
    sums = {"masked": torch.tensor(np.log(2.0) * 8), "next": torch.tensor(1.0)}
    seen = {"masked_right": (torch.tensor(2.0), 8.0), "next_right": (torch.tensor(3), 4.0)}
    totals = Loss(sums, {"masked": 8.0, "next": 4.0}, seen)
    assert pairs(spoken, 32).measure(totals) == pytest.approx(
        {"masked_accuracy": 0.25, "masked_perplexity": 2.0, "next_accuracy": 0.75}
    )


def test_models_that_do_not_fit_are_refused(spoken: Corpus) -> None:
    objective = pairs(spoken, 32)
    with refuses(ConfigError, '"next"'):
        objective.check(tiny("bert", heads_of={"masked": 0}))
    with refuses(ConfigError, "1 segment"):
        objective.check(tiny("bert", heads_of=objective.heads(), segments=1))
