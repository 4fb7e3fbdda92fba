"""Scores predicted distances and depths against gold trees.

As in john-hewitt/structural-probes: the edges of a minimum spanning tree without punctuation
(UUAS); Spearman's correlation of each word's distances, averaged first within each sentence length
and then over the lengths 5 to 50; the word with the smallest depth against the root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from regard.data.files import needed
from regard.methods.probe.heads import Heads, frequent
from regard.methods.probe.trees import DependencyTree

LENGTHS = range(5, 51)  # words of a sentence


def spanning_tree(distances: np.ndarray) -> set[tuple[int, int]]:
    """Returns the edges (smaller position first) of a minimum spanning tree. All distances are
    raised by one first, because scipy reads a 0 as no edge; this changes no tree, as every spanning
    tree has the same number of edges."""
    graph = needed("scipy.sparse.csgraph", "trees are measured", "tasks")
    tree = graph.minimum_spanning_tree(np.triu(np.asarray(distances, np.float64) + 1.0, 1))
    rows, columns = tree.nonzero()
    return {(min(a, b), max(a, b)) for a, b in zip(rows.tolist(), columns.tolist(), strict=True)}


def gold_edges(tree: DependencyTree) -> set[tuple[int, int]]:
    """Returns the undirected edges between words that are not punctuation."""
    counted = tree.counted
    return {
        (min(word, head), max(word, head))
        for word, head in enumerate(tree.heads)
        if head >= 0 and counted[word] and counted[head]
    }


def predicted_edges(tree: DependencyTree, distances: np.ndarray) -> set[tuple[int, int]]:
    places = np.flatnonzero(tree.counted)
    inner = spanning_tree(distances[np.ix_(places, places)]) if len(places) > 1 else set()
    return {(int(places[a]), int(places[b])) for a, b in inner}


def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns Spearman's correlation of each row of a with the same row of b; NaN if one of them is
    constant."""
    stats = needed("scipy.stats", "trees are measured", "tasks")
    ranks = [stats.rankdata(x, axis=1) for x in (a, b)]
    x, y = (rank - rank.mean(1, keepdims=True) for rank in ranks)
    spread = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(spread > 0, (x * y).sum(1) / spread, np.nan))


def over_lengths(values: Mapping[int, Sequence[float]]) -> float | None:
    """Returns the mean of the means of each length; None if no sentence has one of the lengths."""
    means = []
    for length in LENGTHS:
        known = [value for value in values.get(length, ()) if np.isfinite(value)]
        if known:
            means.append(float(np.mean(known)))
    return float(np.mean(means)) if means else None


def distance_scores(
    trees: Sequence[DependencyTree], predicted: Sequence[np.ndarray]
) -> dict[str, float | None]:
    right = total = 0
    by_length: dict[int, list[float]] = {}
    for tree, distances in zip(trees, predicted, strict=True):
        gold = gold_edges(tree)
        total += len(gold)
        right += len(gold & predicted_edges(tree, distances))
        if len(tree.words) in LENGTHS:
            own = by_length.setdefault(len(tree.words), [])
            own += correlations(distances, tree.distances).tolist()
    return {"uuas": right / total if total else None, "spearman": over_lengths(by_length)}


def depth_scores(
    trees: Sequence[DependencyTree], predicted: Sequence[np.ndarray]
) -> dict[str, float | None]:
    right = total = 0
    by_length: dict[int, list[float]] = {}
    for tree, depths in zip(trees, predicted, strict=True):
        if tree.counted[tree.root]:
            total += 1
            right += int(np.where(tree.counted, depths, np.inf).argmin()) == tree.root
        if len(tree.words) in LENGTHS:
            own = by_length.setdefault(len(tree.words), [])
            own += correlations(depths[None], tree.depths[None]).tolist()
    return {"root": right / total if total else None, "spearman": over_lengths(by_length)}


def chain_scores(trees: Sequence[DependencyTree]) -> dict[str, float | None]:
    """Scores the baseline in which every word is attached to its neighbor: distances along the
    sentence."""
    places = [np.arange(len(tree.words)) for tree in trees]
    return distance_scores(trees, [np.abs(p[:, None] - p[None]) for p in places])


def always(name: str, counts: Sequence[Counter[int]], shift: int = 0) -> dict[str, float]:
    """Returns the share of the test part that has the most frequent value of the training part."""
    learned, tested = counts
    if not learned or not tested:
        return {}
    value, _ = frequent(learned)
    return {f"always {name.format(value + shift)}": tested[value] / tested.total()}


def baselines(
    learned: Sequence[DependencyTree], tested: Sequence[DependencyTree]
) -> dict[str, dict[str, dict[str, float]]]:
    """Returns what each metric reaches without the hidden states: every word is attached to its
    neighbor, or has its head at the distance that is most frequent in training, and the root stands
    at the position where it stands most often in training. Constant depths have no correlation."""
    offsets, roots = [], []
    for trees in (learned, tested):
        heads = Heads()
        for tree in trees:
            heads.count(tree)
        offsets.append(heads.offsets.get("all", Counter()))
        roots.append(Counter(tree.root for tree in trees if tree.counted[tree.root]))
    chain = chain_scores(tested)
    levels = {
        "distance": {name: {"chain": value} for name, value in chain.items() if value is not None},
        "depth": {"root": always("word {}", roots, 1)},
        "head": {"accuracy": always("{:+d}", offsets)},
    }
    return {what: {name: own for name, own in figures.items() if own}
            for what, figures in levels.items()}  # fmt: skip
