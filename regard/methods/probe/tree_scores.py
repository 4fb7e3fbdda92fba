"""How well predicted distances and depths fit gold trees.

As in john-hewitt/structural-probes: edges of a minimum spanning tree without punctuation (UUAS);
Spearman's correlation of each word's distances, averaged within each length of sentence, then over
the lengths 5 to 50; the word of least depth against the root.
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
    """The edges (smaller place first) of a minimum spanning tree. All distances are raised by one
    before: to scipy a 0 is no edge, and every spanning tree has as many edges.
    """
    graph = needed("scipy.sparse.csgraph", "trees are measured", "tasks")
    tree = graph.minimum_spanning_tree(np.triu(np.asarray(distances, np.float64) + 1.0, 1))
    rows, columns = tree.nonzero()
    return {(min(a, b), max(a, b)) for a, b in zip(rows.tolist(), columns.tolist(), strict=True)}


def gold_edges(tree: DependencyTree) -> set[tuple[int, int]]:
    """Undirected, between words that are no punctuation."""
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
    """Spearman's of each row of a with that of b; NaN where one of them is constant."""
    stats = needed("scipy.stats", "trees are measured", "tasks")
    ranks = [stats.rankdata(x, axis=1) for x in (a, b)]
    x, y = (rank - rank.mean(1, keepdims=True) for rank in ranks)
    spread = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(spread > 0, (x * y).sum(1) / spread, np.nan))


def over_lengths(values: Mapping[int, Sequence[float]]) -> float | None:
    """The mean of the means of each length; None where no sentence has one of these lengths."""
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
    """The baseline that every word hangs on its neighbor: distances along the sentence."""
    places = [np.arange(len(tree.words)) for tree in trees]
    return distance_scores(trees, [np.abs(p[:, None] - p[None]) for p in places])


def always(name: str, counts: Sequence[Counter[int]], shift: int = 0) -> dict[str, float]:
    """The share of what is tested that has the most frequent value of what learns."""
    learned, tested = counts
    if not learned or not tested:
        return {}
    value, _ = frequent(learned)
    return {f"always {name.format(value + shift)}": tested[value] / tested.total()}


def baselines(
    learned: Sequence[DependencyTree], tested: Sequence[DependencyTree]
) -> dict[str, dict[str, dict[str, float]]]:
    """What each figure reaches without a look at the states: every word hangs on its neighbor,
    has its head as far away as most are in what learns, and the root stands where it stands most
    often there. Depths that are all the same have no correlation.
    """
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
