from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import ConfigError, FormatError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus, Special
from regard.objectives.base import Loss
from regard.objectives.masked import Mask, Masked, MaskedOptions, rarity
from tests.objectives.rules import tiny
from tests.objectives.sentences_corpus import batch_of, numbered_corpus, numbers, spoken_corpus
from tests.objectives.small import (
    FIRST,
    LAST,
    SPECIAL,
    VOCABULARY,
    open_corpus,
    random_documents,
    write_corpus,
)
from tests.refusals import refuses

CLS, SEP, MASK, UNKNOWN = 4, 5, 6, 2


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return spoken_corpus(tmp_path_factory.mktemp("data"), random_documents(60, sentences=(1, 6)))


def masked(corpus: Corpus, seq_len: int = 32, learning: bool = True, **options: Any) -> Masked:
    return Masked(
        corpus, MaskedOptions(**options), seq_len=seq_len, batch_size=4, seed=1, learning=learning
    )


# -- how many, which and what becomes of them


@settings(max_examples=200, deadline=None)
@given(
    size=st.integers(1, 120),
    share=st.sampled_from([0.15, 0.3, 0.01, 1.0]),
    most=st.sampled_from([None, 1, 7, 200]),
    key=st.integers(0, 10**6),
)
def test_counts_are_exact(
    corpus: Corpus, size: int, share: float, most: int | None, key: int
) -> None:
    mask = Mask(corpus, MaskedOptions(share=share, most=most), 120)
    draw = keyed(key, "text")
    before = draw.integers(0, VOCABULARY, size)
    after = before.copy()
    masks = mask(after, draw)
    count = int(masks["shares"].sum())
    targets, wanted = masks["targets"][:count], masks["wanted"][:count]
    limit = most or max(1, round(120 * share))
    special = set(SPECIAL.ids()) - {UNKNOWN}
    free = [i for i in range(size) if int(before[i]) not in special]
    assert count == min(limit, max(1, round(share * size)), len(free))
    assert masks["targets"].shape == masks["wanted"].shape == masks["shares"].shape == (limit,)
    assert set(masks["shares"].tolist()) <= {0.0, 1.0} and (masks["shares"][:count] == 1).all()
    assert (np.diff(targets) > 0).all() and set(targets.tolist()) <= set(free)
    assert (before[targets] == wanted).all()
    rest = np.setdiff1d(np.arange(size), targets)
    assert (before[rest] == after[rest]).all()


@pytest.mark.parametrize(("size", "count"), [(3, 1), (10, 2), (30, 4), (50, 8), (128, 19)])
def test_rounding_is_pythons(corpus: Corpus, size: int, count: int) -> None:
    """1.5 -> 2 and 4.5 -> 4: to the even number; 0.15 · 50 = 7.5 -> 8."""
    tokens = np.full(size, FIRST)
    tokens[0], tokens[-1] = CLS, SEP
    masks = Mask(corpus, MaskedOptions(), 512)(tokens, keyed(1))
    assert masks["shares"].sum() == count


def test_eighty_ten_ten(corpus: Corpus) -> None:
    mask, seen, draws = Mask(corpus, MaskedOptions(), 200), np.zeros(3), np.zeros(VOCABULARY)
    for i in range(1000):
        tokens = np.full(200, FIRST)
        masks = mask(tokens, keyed(i, "fate"))
        new = tokens[masks["targets"][masks["shares"] > 0]]
        hidden, unchanged = (new == MASK).sum(), (new == FIRST).sum()
        seen += [hidden, unchanged, len(new) - hidden - unchanged]
        draws += np.bincount(new, minlength=VOCABULARY)
    total = seen.sum()
    assert total == 30_000
    # a random entry is [MASK] or the word itself once in VOCABULARY
    fair = np.array([0.8 + 0.1 / VOCABULARY, 0.1 + 0.1 / VOCABULARY, 0.1 - 0.2 / VOCABULARY])
    assert (np.abs(seen - total * fair) < 4.5 * np.sqrt(total * fair * (1 - fair))).all()
    others = np.delete(draws, [MASK, FIRST])  # special ones among them, each as often as another
    each = 0.1 * total / VOCABULARY
    assert (np.abs(others - each) < 5 * np.sqrt(each)).all()


def test_every_place_is_as_likely(corpus: Corpus) -> None:
    mask, seen = Mask(corpus, MaskedOptions(), 40), np.zeros(40)
    for i in range(4000):
        tokens = np.full(40, FIRST)
        tokens[[0, 20, 39]] = CLS, SEP, SEP
        seen[mask(tokens, keyed(i, "place"))["targets"]] += 1
    assert (seen[[0, 20, 39]] == 0).all()
    free, p = np.delete(seen, [0, 20, 39]), 6 / 37
    assert (np.abs(free - 4000 * p) < 4.5 * np.sqrt(4000 * p * (1 - p))).all()


def test_rare_words_are_chosen_more_often(tmp_path: Path) -> None:
    text = [FIRST] * 81 + [FIRST + 1] * 16 + [FIRST + 2]  # weights 1/9, 1/4 and 1, also if unseen
    corpus = open_corpus(write_corpus(tmp_path, [[text]]))
    assert rarity(corpus, 0.5)[FIRST : FIRST + 4] == pytest.approx([1 / 9, 1 / 4, 1, 1], abs=1e-9)
    mask, seen = Mask(corpus, MaskedOptions(rare=0.5, share=0.2), 5), np.zeros(5)
    for i in range(4000):  # one of three words
        seen[mask(np.array([CLS, FIRST, FIRST + 1, FIRST + 3, SEP]), keyed(i))["targets"]] += 1
    fair = np.array([0, 1 / 9, 1 / 4, 1, 0]) / (1 / 9 + 1 / 4 + 1)
    assert (np.abs(seen - 4000 * fair) <= 4.5 * np.sqrt(4000 * fair * (1 - fair))).all()
    alone = np.array([CLS, SEP])
    assert mask(alone, keyed(0))["shares"].sum() == 0
    several = Mask(corpus, MaskedOptions(rare=0.5, share=1.0), 5)(
        np.array([CLS, FIRST, SEP]), keyed(0)
    )
    assert several["shares"].sum() == 1


def test_an_unknown_word_is_a_word(corpus: Corpus) -> None:
    tokens = np.array([CLS, UNKNOWN, SEP])
    masks = Mask(corpus, MaskedOptions(), 32)(tokens, keyed(0))
    assert masks["targets"][0] == 1 and masks["wanted"][0] == UNKNOWN


# -- whole words


def groups_of(tokens: np.ndarray) -> list[list[int]]:
    """As the authors group them; every third id goes on with the word before it."""
    groups: list[list[int]] = []
    for i, token in enumerate(tokens.tolist()):
        if token in (CLS, SEP):
            continue
        after_word = i > 0 and tokens[i - 1] not in (CLS, SEP)
        if groups and after_word and token % 3 == 0:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


@settings(max_examples=100, deadline=None)
@given(size=st.integers(3, 100), key=st.integers(0, 10**6))
def test_whole_words_are_chosen_as_by_the_authors(corpus: Corpus, size: int, key: int) -> None:
    mask = Mask(corpus, MaskedOptions(whole_words="pieces"), 100)
    tokens = keyed(key, "text").integers(FIRST, LAST, size)
    tokens[[0, size // 2, -1]] = CLS, SEP, SEP
    groups = groups_of(tokens)
    goal, expected = max(1, round(0.15 * size)), []
    for i in keyed(key).permutation(len(groups)):  # create_masked_lm_predictions
        if len(expected) >= goal:
            break
        if len(expected) + len(groups[i]) > goal:
            continue
        expected.extend(groups[i])
    masks = mask(tokens, keyed(key))
    assert masks["targets"][masks["shares"] > 0].tolist() == sorted(expected)


def test_pieces_of_a_word_meet_different_fates(corpus: Corpus) -> None:
    mask, mixed = Mask(corpus, MaskedOptions(whole_words="pieces", share=1.0), 64), 0
    for i in range(50):
        tokens = np.array([CLS, *[10, 12, 15, 18] * 10, SEP])
        masks = mask(tokens, keyed(i))
        assert masks["shares"].sum() == 40
        hidden = (tokens[1:-1] == MASK).reshape(-1, 4)
        mixed += int((hidden.any(1) & ~hidden.all(1)).sum())
    assert mixed > 100


# -- samples


def test_masks_are_new_in_each_epoch_or_take_turns(corpus: Corpus) -> None:
    def targets(objective: Masked, epoch: int) -> list[int]:
        return np.concatenate([objective.sample(epoch, i)["targets"] for i in range(4)]).tolist()

    dynamic = masked(corpus, shift=False)
    assert len({tuple(targets(dynamic, e)) for e in range(6)}) == 6
    static = masked(corpus, dynamic=False, duplicates=3)
    assert len({tuple(targets(static, e)) for e in range(6)}) == 3
    assert targets(static, 1) == targets(static, 4)
    fixed = masked(corpus, learning=False)
    assert targets(fixed, 0) == targets(fixed, 1)


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_packed_text_is_read_whole(tmp_path: Path, epoch: int) -> None:
    corpus = numbered_corpus(tmp_path, [[9, 30], [40], [3, 3, 20]])
    objective = masked(corpus, seq_len=16)
    seen: list[int] = []
    for i in range(len(objective)):
        sample = objective.sample(epoch, i)
        assert set(sample) == {"tokens", "targets", "wanted", "shares"}
        text = whole(sample)
        assert text[0] == CLS and text[-1] == SEP and len(text) == 16
        seen.extend(numbers(text[1:-1]))
    ends = {1 - FIRST}
    assert set(seen) - ends == set(range(len(corpus))) - {38, 78, 104}
    assert len(seen) - len(corpus) < 14


def whole(sample: dict[str, np.ndarray]) -> np.ndarray:
    """The tokens as they were."""
    tokens, used = sample["tokens"].copy(), sample["shares"] > 0
    tokens[sample["targets"][used]] = sample["wanted"][used]
    return tokens


def test_separate_texts_stay_within_documents(tmp_path: Path) -> None:
    corpus = numbered_corpus(tmp_path, [[9, 30], [40], [2], [3, 3, 20]])
    objective = masked(corpus, seq_len=16, documents="separate")
    assert len(objective) == 3 + 3 + 1 + 2
    texts = []
    for i in range(len(objective)):
        sample = objective.sample(0, i)
        text = whole(sample)[sample["attention_mask"]]
        assert text[0] == CLS and text[-1] == SEP
        assert (sample["tokens"][~sample["attention_mask"]] == 0).all()
        texts.append(numbers(text[1:-1]))
    starts = [[0, 14, 28], [39, 53, 67], [79], [81, 95]]
    ends = [[14, 28, 38], [53, 67, 78], [80], [95, 106]]
    pairs = [zip(s, e, strict=True) for s, e in zip(starts, ends, strict=True)]
    assert texts == [list(range(s, e)) for pair in pairs for s, e in pair]


# -- learning


def test_a_hidden_word_never_reaches_its_own_guess(corpus: Corpus) -> None:
    """But for the tenth that is left as it is, on purpose."""
    objective, model = masked(corpus), tiny("bert").eval()
    hidden = 0
    for i in range(30):
        text = whole(objective.sample(0, i))
        for change in (1, 2):
            one, two = text.copy(), text.copy()
            target = int(objective.mask(one, keyed(i))["targets"][0])
            two[target] = FIRST + (two[target] - FIRST + change) % (LAST - FIRST)
            assert objective.mask(two, keyed(i))["targets"][0] == target
            if one[target] == text[target]:
                continue
            hidden += 1
            rows = [model(torch.from_numpy(tokens)[None])[0, target] for tokens in (one, two)]
            assert torch.equal(rows[0], rows[1])
    assert hidden > 40


def test_the_loss_is_that_of_the_targets_alone(corpus: Corpus) -> None:
    objective, model = masked(corpus), tiny("bert").eval()
    batch = batch_of(objective, [0, 1])
    loss = objective.loss(model, batch)
    logits = model.logits(model(batch["tokens"]))
    expected, hits = 0.0, 0
    for row in range(2):
        for place, word, share in zip(
            *(batch[k][row].tolist() for k in ("targets", "wanted", "shares")), strict=True
        ):
            if share:
                expected -= float(logits[row, place].log_softmax(-1)[word].detach())
                hits += int(logits[row, place].argmax()) == word
    assert loss.sums["masked"].item() == pytest.approx(expected, rel=1e-5)
    assert loss.counts == objective.counts(batch)
    right, of = loss.seen["masked_right"]
    assert float(right) == hits and of == loss.counts["masked"]
    assert objective.loss(model.train(), batch).seen == {}


def test_figures(corpus: Corpus) -> None:
    nats = torch.tensor(np.log(3.0) * 10)
    totals = Loss({"masked": nats}, {"masked": 10.0}, {"masked_right": (torch.tensor(4.0), 10.0)})
    objective = masked(corpus)
    figures = objective.measure(totals)
    assert figures == pytest.approx({"masked_accuracy": 0.4, "masked_perplexity": 3.0})
    assert next(iter(figures)) == "masked_accuracy" and objective.better(0.5, 0.4)


@pytest.mark.parametrize("wide", [True, False])
def test_a_longformers_first_token_is_global(corpus: Corpus, wide: bool) -> None:
    objective = masked(corpus, seq_len=32, global_first=wide)
    model = tiny("longformer")
    objective.loss(model, batch_of(objective, [0, 1])).sums["masked"].backward()
    grads = [p.grad for n, p in model.named_parameters() if ".wide.project" in n]
    assert grads and any(g is not None and bool(g.abs().sum() > 0) for g in grads) == wide


# -- refusals


def test_refusals(corpus: Corpus, tmp_path: Path) -> None:
    with refuses(ConfigError, "batch.seq_len is 65", "64 positions"):
        masked(corpus, seq_len=65).check(tiny("bert"))
    with refuses(ConfigError, "GPT", "hidden words", "bert"):
        masked(corpus).check(tiny("gpt"))
    bare = write_corpus(tmp_path, [[[7] * 50]], special=Special(end=1, cls=4, sep=5))
    with refuses(FormatError, "'mask'"):
        masked(open_corpus(bare))
