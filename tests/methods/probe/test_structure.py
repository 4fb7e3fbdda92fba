"""Structural probes: geometry, losses by hand, measures beside scipy, and trees that are found."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.methods.probe.learning import ProbeSchedule
from regard.methods.probe.states import States
from regard.methods.probe.structure import (
    PACE,
    StructuralProjection,
    StructureProbeObjective,
    Trees,
    depth_loss,
    distance_loss,
    fit_structure,
    squared_distances,
    squared_norms,
)
from regard.methods.probe.tree_scores import (
    chain_scores,
    correlations,
    depth_scores,
    distance_scores,
    gold_edges,
    over_lengths,
    predicted_edges,
    spanning_tree,
)
from regard.methods.probe.trees import DependencyTree, read_trees
from tests.laws.zoo import few
from tests.methods.probe.small import tree
from tests.refusals import refuses

SEVEN = tree((1, -1, 1, 4, 2, 4, 5))


@st.composite
def some_tree(draw: Any) -> DependencyTree:
    """Any tree: each word but the first of an order hangs on one before it."""
    count = draw(st.integers(1, 12))
    order = draw(st.permutations(range(count)))
    heads = [-1] * count
    for place, word in enumerate(order[1:], 1):
        heads[word] = order[draw(st.integers(0, place - 1))]
    return tree(tuple(heads))


def embedded(given_tree: DependencyTree) -> np.ndarray:
    """Each edge an axis of its own: a word is the sum of the edges up to the root."""
    count = len(given_tree.words)
    x = np.zeros((count, count), np.float32)
    for word in range(count):
        at = word
        while given_tree.heads[at] >= 0:
            x[word, at] = 1.0
            at = given_tree.heads[at]
    return x


# -- trees


def test_distances_and_depths_of_a_small_tree() -> None:
    assert SEVEN.depths.tolist() == [1, 0, 1, 3, 2, 3, 4]
    assert SEVEN.distances[0].tolist() == [0, 1, 2, 4, 3, 4, 5]
    assert SEVEN.distances[3].tolist() == [4, 3, 2, 0, 1, 2, 3]
    assert SEVEN.root == 1 and (SEVEN.distances == SEVEN.distances.T).all()


@few(60)
@given(some_tree())
def test_exact_embeddings_give_exact_distances(some: DependencyTree) -> None:
    """With the unit matrix for B: ‖hᵢ - hⱼ‖² is the distance, ‖hᵢ‖² the depth, all edges right."""
    x = torch.from_numpy(embedded(some))
    distances = squared_distances(x).numpy()
    assert (distances == some.distances).all()
    assert (squared_norms(x).numpy() == some.depths).all()
    assert spanning_tree(distances) == gold_edges(some)
    scores, depths = distance_scores([some], [distances]), depth_scores([some], [some.depths])
    assert depths["root"] == 1.0 and scores["uuas"] == (1.0 if len(some.words) > 1 else None)
    if len(some.words) >= 5:
        assert scores["spearman"] == pytest.approx(1.0)
        assert depths["spearman"] == pytest.approx(1.0)


@few(40)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 5))
def test_predicted_distances_are_distances(seed: int, words: int, rank: int) -> None:
    x = torch.from_numpy(keyed(seed).normal(size=(2, words, rank)) * 5).float()
    distances = squared_distances(x)
    assert (distances == distances.transpose(1, 2)).all() and distances.min() >= 0
    assert (distances.diagonal(dim1=1, dim2=2) == 0).all()
    right = (x[:, :, None] - x[:, None]).square().sum(-1)
    assert torch.allclose(distances, right, rtol=1e-4, atol=1e-3)


# -- losses


def test_losses_by_hand() -> None:
    """Two sentences of 2 and 3 words; what is behind an end, or -1, does not count."""
    gold = torch.tensor([[[0, 1, -1], [1, 0, -1], [-1, -1, -1]], [[0, 1, 2], [1, 0, 1], [2, 1, 0]]])
    predicted = torch.tensor(
        [[[0.0, 3, 9], [3, 0, 9], [9, 9, 9]], [[0, 1, 2], [1, 0, 4], [2, 4, 0]]]
    )
    sizes = torch.tensor([2, 3])
    by_hand = (2 + 2) / 4 + (3 + 3) / 9
    assert float(distance_loss(predicted, gold, sizes)) == pytest.approx(by_hand)
    both = distance_loss(torch.stack([predicted, gold.float()]), gold, sizes)
    assert both.tolist() == pytest.approx([by_hand, 0.0])
    depths, guessed = torch.tensor([[0, 1, -1], [1, 0, 2]]), torch.tensor([[2.0, 1, 7], [1, 1, 0]])
    assert float(depth_loss(guessed, depths, sizes)) == pytest.approx(2 / 2 + 3 / 3)


def course(
    what: str, trees: Any, x: np.ndarray, rank: int = 0, **more: Any
) -> StructureProbeObjective:
    every = np.arange(len(trees))
    return StructureProbeObjective(
        what, States(x[None], [0]), Trees(trees, every, every, every), [0], rank, 1, **more
    )


def test_the_course_pads_without_effect() -> None:
    trees = [tree((-1, 0)), SEVEN, tree((1, -1, 1))]
    dice = keyed(5)
    x = dice.normal(size=(12, 4)).astype(np.float32)
    objective = course("distance", trees, x, rank=3)
    matrix = objective.modules[0].matrices.detach()[0].numpy()  # type: ignore[union-attr,operator]
    assert matrix.shape == (4, 3) and np.abs(matrix).max() <= 0.05 < 2 * np.abs(matrix).max()
    total = 0.0
    for start, each in zip((0, 2, 9), trees, strict=True):
        seen = x[start : start + len(each.words)] @ matrix
        guessed = ((seen[:, None] - seen[None]) ** 2).sum(-1)
        total += float(np.abs(guessed - each.distances).sum() / len(each.words) ** 2)
    sums, count = objective.losses([0], np.arange(3), True)
    assert count == 3 and sums[0].item() == pytest.approx(total, rel=1e-4)
    depth = course("depth", trees, x, rank=3)
    wanted = sum(
        float(np.abs(((x[s : s + len(t.words)] @ matrix) ** 2).sum(1) - t.depths).mean())
        for s, t in zip((0, 2, 9), trees, strict=True)
    )
    assert depth.losses([0], np.arange(3), True)[0][0].item() == pytest.approx(wanted, rel=1e-4)


def test_heads_are_guessed_inside_the_sentence() -> None:
    trees = [tree((1, -1, 1), marks=(2,)), SEVEN]
    x = keyed(6).normal(size=(10, 4)).astype(np.float32)
    objective = course("head", trees, x)
    assert [gold.tolist() for gold in objective.gold] == [[1, -1, -1], [1, -1, 1, 4, 2, 4, 5]]
    scores = objective.predicted([0], *objective.batch([0], np.arange(2))[::2])
    assert scores[0, 0, :, 3:].max() == -np.inf and scores[0, 1].isfinite().all()
    sums, count = objective.losses([0], np.arange(2), True)
    left, right = objective.modules[0].matrices.detach()  # type: ignore[union-attr,misc]
    hand, start = 0.0, 0
    for each, gold in zip(trees, objective.gold, strict=True):
        own = torch.from_numpy(x[start : start + len(each.words)])
        logs = ((own @ left) @ (own @ right).T).log_softmax(1)
        hand -= sum(float(logs[i, g]) for i, g in enumerate(gold) if g >= 0)
        start += len(each.words)
    assert count == 7 and sums[0].item() == pytest.approx(hand, rel=1e-4)
    control = course("head", trees, x, control=True)
    assert all(g in (i, 0, 6) for i, g in enumerate(control.gold[1].tolist()))


# -- measures


@few(30)
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_a_spanning_tree_is_the_least_of_all(seed: int, count: int) -> None:
    x = keyed(seed).integers(0, 6, size=(count, count)).astype(float)
    x = np.triu(x, 1) + np.triu(x, 1).T
    edges_of_tree = spanning_tree(x)
    edges = list(combinations(range(count), 2))

    def spans(chosen: Any) -> bool:
        seen = {0}
        for _ in chosen:
            seen |= {v for a, b in chosen for v in (a, b) if {a, b} & seen}
        return len(seen) == count

    least = min(sum(x[e] for e in c) for c in combinations(edges, count - 1) if spans(c))
    assert (
        len(edges_of_tree) == count - 1
        and spans(edges_of_tree)
        and sum(x[e] for e in edges_of_tree) == least
    )


def test_correlations_are_those_of_scipy() -> None:
    a, b = keyed(2).integers(0, 5, size=(2, 6, 9)).astype(float)
    rhos = correlations(a, b)
    wanted = [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(rhos, wanted, atol=1e-12)
    assert np.isnan(correlations(np.ones((1, 4)), np.arange(4.0)[None])).all()


def test_lengths_count_alike_however_many_sentences_they_have() -> None:
    assert over_lengths({5: [1.0, 0.0], 50: [1.0, float("nan")], 4: [0.0], 51: [0.0]}) == 0.75
    assert over_lengths({4: [1.0]}) is None


def test_punctuation_is_left_out() -> None:
    some = tree((1, -1, 1, 1), marks=(3,))
    assert gold_edges(some) == {(0, 1), (1, 2)}
    near = np.full((4, 4), 9.0)
    near[3] = near[:, 3] = 0.1  # all hang on the full stop
    near[0, 1] = near[1, 0] = near[0, 2] = near[2, 0] = 1.0
    assert predicted_edges(some, near) == {(0, 1), (0, 2)}
    assert distance_scores([some], [near])["uuas"] == 0.5
    assert depth_scores([some], [np.array([2.0, 1.0, 3.0, 0.0])])["root"] == 1.0


def test_the_chain_is_a_baseline() -> None:
    line = tree((-1, 0, 1, 2, 3))
    assert chain_scores([line])["uuas"] == 1.0
    assert chain_scores([tree((-1, 0, 0, 0, 0))])["uuas"] == 0.25


# -- learning


def test_a_tree_that_is_in_the_states_is_found() -> None:
    """Exact embeddings, turned at random, beside noise that the probe has to leave out. No two
    predictions are alike, so where gold ones are, the correlation has a ceiling below 1.
    """
    dice = keyed(9, "trees")
    sentences = [tree((-1, *(int(dice.integers(0, i)) for i in range(1, 7)))) for _ in range(120)]
    inner = np.concatenate([embedded(t) for t in sentences])
    turn, _ = np.linalg.qr(dice.normal(size=(14, 14)))
    noise = dice.normal(size=(len(inner), 7))
    x = (np.concatenate([inner, noise], 1) @ turn).astype(np.float32)
    empty = dice.normal(size=x.shape).astype(np.float32)
    states = States(np.stack([empty, x]), [0, 1])
    trees = Trees(sentences, np.arange(80), np.arange(80, 100), np.arange(100, 120))
    pace = ProbeSchedule(rate=0.02, factor=0.5, epochs=25, batch=10)
    figures: dict[str, dict[int, Any]] = {}
    for what in ("distance", "depth", "head"):
        own = figures.setdefault(what, {})
        fit_structure(what, states, trees, [0, 1], 0, pace, 1,
                      lambda layer, x, own=own: own.update({layer: x}))  # fmt: skip
    assert all(own[layer].pop("epochs") >= 1 for own in figures.values() for layer in (0, 1))
    untied = np.arange(7) * 1e-6
    ceiling = distance_scores(sentences[100:], [t.distances + untied for t in sentences[100:]])
    assert figures["distance"][1] == pytest.approx(ceiling) and ceiling["uuas"] == 1.0
    assert figures["distance"][0]["uuas"] < 0.6
    highest = depth_scores(sentences[100:], [t.depths + untied for t in sentences[100:]])
    assert figures["depth"][1] == pytest.approx(highest) and highest["root"] == 1.0
    assert figures["head"][1]["accuracy"] > figures["head"][0]["accuracy"] + 0.2


def test_the_published_pace() -> None:
    assert (PACE.rate, PACE.factor, PACE.batch, PACE.epochs, PACE.wait, PACE.gain) == (
        1e-3, 0.1, 20, 40, 5, 1e-4)  # fmt: skip
    whole: Any = StructuralProjection(6, 6, 1)
    assert whole.matrices.shape == (1, 6, 6)


# -- files

GOOD = """# sent_id = 1
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\tNN\t_\t4\tnsubj\t_\t_
3-4\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_
3\tdid\tdo\tAUX\tVBD\t_\t4\taux\t_\t_
4\tsleep\tsleep\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tnothing\t_\t_\t_\t_\t_\t_\t_\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_
"""


def test_conllu_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(GOOD + "\n" + GOOD)
    trees = read_trees(tmp_path / "a.conllu")
    assert len(trees) == 2 and trees[0].words == ("The", "cat", "did", "sleep", ".")
    assert trees[0].heads == (1, 3, 3, -1, 3) and trees[0].counted.tolist() == [True] * 4 + [False]
    assert trees[0].tags("xpos") == ("DT", "NN", "VBD", "VB", ".")
    assert trees[1].place.line == 11  # of its first word


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("2\tdet", "x\tdet", "head is 'x'"),
        ("2\tdet", "9\tdet", "head is '9'"),
        ("2\tdet", "1\tdet", "head is '1'"),
        ("1\tThe", "7\tThe", "id is '7'"),
        ("\tDET\tDT", "\tDET", "9 columns"),
        ("0\troot", "2\troot", "0 roots"),
        ("4\tpunct", "0\tpunct", "2 roots"),
        ("4\tnsubj", "1\tnsubj", "circle"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, old: str, new: str, name: str) -> None:
    file = tmp_path / "a.conllu"
    file.write_text(GOOD.replace(old, new) + "\n" + GOOD)
    with refuses(InputError, "a.conllu:2: ", name):
        read_trees(file)
    kinds = ("malformed-record", "ragged-line", "contradiction")
    assert len(read_trees(file, skip=kinds)) == 1


def test_files_without_trees(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text("\n# nothing\n\n")
    for file, name in ((tmp_path / "a.conllu", "sentence"), (tmp_path / "b.conllu", "exist")):
        with refuses(InputError, file, name):
            read_trees(file)
