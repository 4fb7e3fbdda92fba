"""Head statistics of attention made by hand, and of models."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Full
from regard.attention.recorder import AttentionCall, record
from regard.core.errors import InputError
from regard.methods.probe.heads import (
    DIRECTIONS,
    STATISTICS,
    Heads,
    guesses,
    look_at_heads,
    of_words,
    statistics,
)
from regard.methods.probe.reader import StateReader
from regard.methods.probe.trees import DependencyTree
from tests.methods.probe.small import FAMILIES, SENTENCES, loaded, tree
from tests.refusals import refuses

ATTENTIVE = [family for family in FAMILIES if family != "lstm"]


def means(weights: Tensor, attention_mask: Tensor, marks: Tensor) -> dict[str, list[float]]:
    figures = statistics(weights, attention_mask, marks)
    return {name: (total / count).tolist() for name, (total, count) in figures.items()}


def uniform(rows: int) -> Tensor:
    """A causal head that looks at everything alike."""
    return torch.ones(rows, rows).tril() / torch.arange(1, rows + 1)[:, None]


def test_a_causal_uniform_head() -> None:
    n = 6
    marks = torch.zeros(1, n).bool()
    marks[0, 0] = True
    figures = means(uniform(n)[None, None], torch.ones(1, n).bool(), marks)
    harmonic = sum(1 / i for i in range(1, n + 1))
    wanted = {
        "distance": sum(q / 2 for q in range(n)) / n,
        "entropy": sum(math.log(q + 1) for q in range(n)) / n,
        "first": harmonic / n,
        "self": harmonic / n,
        "previous": (harmonic - 1) / (n - 1),
        "next": 0.0,
        "separator": harmonic / n,
    }
    assert set(figures) == set(STATISTICS)
    for name, value in wanted.items():
        assert figures[name] == [pytest.approx(value, abs=1e-6)], name


def test_sharp_heads() -> None:
    n = 5
    before, after = torch.eye(n).roll(-1, 1), torch.eye(n).roll(1, 1)
    attention_mask, none = torch.ones(1, n).bool(), torch.zeros(1, n).bool()
    heads = torch.stack([torch.eye(n), before.T, after.T])  # itself, the one behind, the one before
    figures = means(heads[None], attention_mask, none)
    assert figures["self"] == [1, 0, 0] and figures["entropy"] == [0, 0, 0]
    assert {tuple(figures["previous"]), tuple(figures["next"])} == {(0, 1, 0), (0, 0, 1)}
    assert figures["distance"][0] == 0 and figures["separator"] == [0, 0, 0]


@pytest.mark.parametrize("left", [False, True])
def test_padding_neither_asks_nor_is_first(left: bool) -> None:
    n, spare = 4, 3
    inner = slice(spare, None) if left else slice(n)
    wide = torch.full((n + spare, n + spare), float("nan"))
    wide[inner] = 0.0
    wide[inner, inner] = uniform(n)
    attention_mask = torch.zeros(1, n + spare).bool()
    attention_mask[0, inner] = True
    none = torch.zeros_like(attention_mask)
    alone = means(uniform(n)[None, None], torch.ones(1, n).bool(), none[:, :n])
    for name, value in means(wide[None, None], attention_mask, none).items():
        assert value == pytest.approx(alone[name]), name


def test_words_sum_what_they_get_and_average_what_they_give() -> None:
    weights = torch.tensor([[[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]]])
    merged = of_words(weights, [(0, 1), (1, 3)])
    assert merged[0].tolist() == [pytest.approx([0.2, 0.8]), pytest.approx([0.35, 0.65])]


def test_a_guess_is_the_word_most_attended_to_or_attending() -> None:
    attention = torch.tensor([[[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.3, 0.1, 0.6]]])
    assert guesses(attention)[:, 0].tolist() == [[1, 2, 0], [2, 0, 1]]


def seen(heads: int, layer: int = 0) -> AttentionCall:
    x = torch.zeros(1, heads, 1, 1)
    name = f"blocks.{layer}.attention.layer"
    return AttentionCall(name, x, x, x, AttentionArgs(None, 1.0, 0.0), Full())


def test_who_attends_to_nobody_guesses_nobody() -> None:
    """The first word of a causal model sees itself alone, and nobody sees the last; words that are
    far apart do not see each other through a window.
    """
    nobody, causal = [-1, -1, -1], torch.tensor([[[1.0, 0, 0], [0.4, 0.6, 0], [0.2, 0.5, 0.3]]])
    assert guesses(torch.eye(3)[None])[:, 0].tolist() == [nobody, nobody]
    assert guesses(causal)[:, 0].tolist() == [[-1, 0, 1], [1, 2, -1]]
    assert guesses(torch.ones(1, 1, 1)).tolist() == [[[-1]], [[-1]]]
    heads = Heads()
    heads.compare(seen(1), torch.eye(3)[None], tree((1, -1, 1)))
    assert heads.hits["all"].tolist() == [[0], [0]]


def test_relations_find_the_head_that_follows_them() -> None:
    """Head 2 looks from each word at its head, head 1 and that of layer 2 always at the word
    behind.
    """
    heads = Heads()
    for _ in range(4):
        some = tree((2, 2, -1, 5, 5, 2))
        follows = torch.zeros(6, 6)
        for word, head in enumerate(some.heads):
            follows[word, max(head, 0)] = 1.0
        behind = torch.eye(6).roll(1, 1)
        heads.count(some)
        heads.compare(seen(2), torch.stack([behind, follows]), some)
        heads.compare(seen(1, layer=1), behind[None], some)
    rows = {row["relation"]: row for row in heads.relations([1, 2])}
    best = rows["dep"]
    assert (best["layer"], best["head"], best["direction"]) == (1, 2, DIRECTIONS[0])
    assert best["accuracy"] == 1.0 and best["words"] == 20
    assert (best["offset"], best["baseline"]) == (1, 2 / 5) and rows["all"]["words"] == 20
    above = {row["relation"]: row for row in heads.relations([2])}["dep"]
    assert (above["layer"], above["head"], above["accuracy"]) == (2, 1, 2 / 5)
    assert heads.relations([3]) == []


@pytest.mark.parametrize("family", ATTENTIVE)
def test_statistics_are_those_of_what_was_recorded(family: str) -> None:
    model = loaded(family)
    reader = StateReader(model)
    rows = reader.words(SENTENCES)
    by_head = {(row["layer"], row["head"]): row for row in look_at_heads(reader, rows).rows()}
    assert set(by_head) == {(layer, head) for layer in (1, 2) for head in
                          range(1, 5 if family == "longformer-characters" else 3)}  # fmt: skip
    totals, count = dict.fromkeys(by_head, 0.0), 0
    for row in rows:  # one at a time, without padding
        with torch.no_grad(), record(model.model) as recording:
            tokens, _, more = reader.inputs([row])
            reader.read(tokens, None, more)
        count += len(row.ids)
        place = torch.arange(len(row.ids))
        heads: dict[int, int] = {}
        for one in recording:
            layer = 1 + int(one.name.split("blocks.")[1].split(".")[0])
            away = (one.weights[0] * (place[:, None] - place).abs()).sum((1, 2))
            for value in away.tolist():
                heads[layer] = heads.get(layer, 0) + 1
                totals[layer, heads[layer]] += value
    for key, total in totals.items():
        assert by_head[key]["distance"] == pytest.approx(total / count, abs=1e-4)
        assert 0 <= by_head[key]["self"] <= 1 and by_head[key]["entropy"] >= -1e-6
        if model.model.causal:
            assert by_head[key]["next"] == 0.0
        if family in ("gpt", "transformer-xl"):
            assert by_head[key]["separator"] == 0.0
        if family == "bert":
            assert by_head[key]["separator"] > 0.0


LONG = (*SENTENCES[0], "a", "goodness", "plot", "films", "was", "good", "the", ".")
PARSED = [  # the first word hangs on the second, and the last on the first if on any
    (SENTENCES[0], (1, -1, 1, 0)),
    (SENTENCES[1], (-1,)),
    (SENTENCES[2], (1, 6, 1, 2, 6, 4, -1)),
    (LONG, (1, 4, 3, 1, -1, 4, 5, 5, 9, 4, 9, 0)),
]


def parsed() -> list[DependencyTree]:
    """Trees whose first and last words have relations of their own."""
    trees = []
    for words, heads in PARSED:
        kinds = ["first", *["inner"] * (len(words) - 2), "last"][-len(words) :]
        trees.append(replace(tree(heads, words=words), relations=tuple(kinds)))
    return trees


def between_words(weights: Tensor, spans: list[tuple[int, int, int]]) -> list[list[float]]:
    """[T, T] of one head: what is given is averaged over a word's tokens, what is got is summed."""
    return [
        [float(weights[begin:end, start:stop].sum()) / (end - begin) for _, start, stop in spans]
        for _, begin, end in spans
    ]


def by_hand(reader: StateReader, trees: list[DependencyTree]) -> Counter[tuple[str, int, int, int]]:
    """How often (relation, direction, layer, head) is right: one sentence at a time, unpadded."""
    hits: Counter[tuple[str, int, int, int]] = Counter()
    for some in trees:
        (row,) = reader.words([some.words])
        with torch.no_grad(), record(reader.model) as recording:
            tokens, _, more = reader.inputs([row])
            reader.read(tokens, None, more)
        for layer, one in enumerate(recording, 1):
            for head, weights in enumerate(one.weights[0], 1):
                table = between_words(weights, row.spans)
                for word, wanted in enumerate(some.heads):
                    others = [other for other in range(len(some.words)) if other != word]
                    for way in (0, 1):
                        weight_of = {o: (table[o][word] if way else table[word][o]) for o in others}
                        most = max(weight_of.values(), default=0.0)
                        if wanted >= 0 and most > 0 and weight_of[wanted] == most:
                            hits[some.relations[word], way, layer, head] += 1
    return hits


@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt", "longformer"])
def test_hits_are_those_of_one_sentence_at_a_time(family: str) -> None:
    """Whatever stands beside it, and on whichever side it is padded."""
    reader, trees = StateReader(loaded(family)), parsed()
    heads = look_at_heads(reader, reader.words([some.words for some in trees]), trees)
    wanted = by_hand(reader, trees)
    assert sum(wanted.values()) > 10 and len(heads.names) == 4
    for relation in ("first", "inner", "last"):
        for way in (0, 1):
            for number, (layer, head) in enumerate(heads.names):
                right = wanted[relation, way, layer, head]
                assert heads.hits[relation][way, number] == right, (relation, way, layer, head)
    every = sum(heads.hits[relation] for relation in ("first", "inner", "last"))
    assert (heads.hits["all"] == every).all()
    if family == "gpt":  # the first word sees no other, and no other sees the last
        assert not heads.hits["first"][0].any() and not heads.hits["last"][1].any()
        assert heads.hits["last"][0].any() or heads.hits["first"][1].any()


def test_a_model_without_attention_is_refused() -> None:
    reader = StateReader(loaded("lstm"))
    with refuses(InputError, "attention"):
        look_at_heads(reader, reader.words(SENTENCES))
