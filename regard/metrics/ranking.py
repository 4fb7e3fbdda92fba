"""Metrics of rankings: how high the right candidates stand among all candidates of a query.

With ranks counted from 1, recall@k is the share of the right candidates among the first k, the
reciprocal rank is 1 / rank of the first right one (0 beyond the tenth), and nDCG@10 is Σ gain /
log₂(1 + rank) over the first ten, divided by its largest possible value (Järvelin and Kekäläinen
2002). Equal scores keep the order of the candidates. There is no light library of the field for
them; the tests compare with scikit-learn's nDCG and with the evaluator of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.metrics.base import Array, Figures, TaskMetric, Weighted, mean, points
from regard.metrics.numbers import Similarity

CUT = 10  # how many candidates count
RECALLS = (1, 5, 10)
CHUNK = 2**24  # the most scores in memory at a time


def ndcg(gains: Array, best: Array) -> float:
    """Returns nDCG@10 from the gains in their order, and all gains of the query."""
    weights = 1.0 / np.log2(np.arange(2, CUT + 2))
    ideal = np.sort(best)[::-1][:CUT]
    largest = float(ideal @ weights[: len(ideal)])
    top = gains[:CUT]
    return float(top @ weights[: len(top)]) / largest if largest > 0 else 0.0


def ranking_figures(gains: Array, best: Array) -> Figures:
    """Returns the figures of one query from the gains of its candidates, the first ones in order,
    and the gains of all of them."""
    right = np.flatnonzero(gains[:CUT] > 0)
    relevant = max(int((best > 0).sum()), 1)
    figures = {
        f"ndcg_at_{CUT}": ndcg(gains, best),
        f"mrr_at_{CUT}": 1.0 / (right[0] + 1) if len(right) else 0.0,
    }
    return figures | {f"recall_at_{k}": int((right < k).sum()) / relevant for k in RECALLS}


class RankingMetric(TaskMetric):
    """The mean of figures over queries. A subclass yields the figures of each example, or None for
    one that is not counted."""

    def each_query(self) -> Iterator[Figures | None]:
        raise NotImplementedError

    @cached_property
    def table(self) -> dict[str, Array]:
        rows = list(self.each_query())
        self.counted = np.array([row is not None for row in rows])
        first = next(row for row in rows if row is not None)
        return {name: np.array([row[name] if row else 0.0 for row in rows]) for name in first}

    @cached_property
    def figures(self) -> Figures:
        return points(self.weighted, self.count)

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        table = self.table
        return {name: mean(values, self.counted.tolist()) for name, values in table.items()}

    @cached_property
    def each(self) -> list[float]:
        """Returns the reciprocal rank of each query; 1 for one that is not counted."""
        ranks = self.table[f"mrr_at_{CUT}"]
        return np.where(self.counted, ranks, 1.0).tolist()


class Reranking(RankingMetric):
    """Gold is the gains of the candidates of a query, predicted their scores. A query without a
    right candidate is not counted."""

    def each_query(self) -> Iterator[Figures | None]:
        if not any(gain > 0 for gains in self.gold for gain in gains):
            raise InputError("no candidate of any query is right, so no ranking can be measured")
        for right, scores in zip(self.gold, self.predicted, strict=True):
            gains = np.asarray(right, dtype=np.float64)
            order = np.argsort(-np.asarray(scores), kind="stable")
            yield ranking_figures(gains[order], gains) if gains.any() else None

    def sides(self, i: int, text: Any) -> dict[str, Any]:
        return {
            "gold": list(self.gold[i]),
            "predicted": [round(x, 4) for x in self.predicted[i]],
        }


class Retrieval(RankingMetric):
    """Gold is the texts of an example (the query, its passage, further candidates), predicted their
    vectors, of length 1. The candidates are all passages of all examples, each once; a query that
    occurs with several passages has several right ones."""

    def each_query(self) -> Iterator[Figures | None]:
        rows: dict[str, int] = {}
        vectors: list[Array] = []
        for texts, several in zip(self.gold, self.predicted, strict=True):
            for text, vector in zip(texts[1:], several[1:], strict=True):
                if text not in rows:
                    rows[text] = len(vectors)
                    vectors.append(np.asarray(vector))
        passages = np.stack(vectors)
        right: dict[str, set[int]] = {}
        for texts in self.gold:
            right.setdefault(texts[0], set()).add(rows[texts[1]])
        step = max(1, CHUNK // len(passages))
        for start in range(0, self.count, step):
            part = range(start, min(start + step, self.count))
            queries = np.stack([np.asarray(self.predicted[i][0]) for i in part])
            scores = queries @ passages.T
            top = np.argsort(-scores, axis=1, kind="stable")[:, :CUT]
            for i, order in zip(part, top, strict=True):
                relevant = right[self.gold[i][0]]
                gains = np.array([float(place in relevant) for place in order.tolist()])
                yield ranking_figures(gains, np.ones(len(relevant)))

    def sides(self, i: int, text: Any) -> dict[str, Any]:
        return {"gold": self.gold[i][1], "predicted": f"rank {self.rank(i)}"}

    def rank(self, i: int) -> str:
        share = self.each[i]
        return str(round(1 / share)) if share else f"above {CUT}"


class EmbeddingMetric(TaskMetric):
    """Predicted are the vectors of each example, or the cosine of a pair. Of pairs with a score it
    is the correlation of the cosine with it; of pairs that belong together,
    how well each text finds its passage."""

    libraries = ("scipy.stats",)
    inner: TaskMetric

    def __init__(self, gold: Sequence[Any], predicted: Sequence[Sequence[Array]]) -> None:
        super().__init__(gold, predicted)
        scored = [isinstance(value, int | float) for value in gold]
        if any(scored) and not all(scored):
            raise InputError(
                "some pairs have a score and some have none; measure them as two files"
            )
        kind: Callable[..., TaskMetric] = Similarity if all(scored) else Retrieval
        cosines = [v if isinstance(v, float) else float(np.dot(v[0], v[1])) for v in predicted]
        self.inner = kind(gold, cosines if all(scored) else predicted)
        self.flawless = self.inner.flawless

    @cached_property
    def figures(self) -> Figures:
        return self.inner.figures

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        return self.inner.weighted

    @cached_property
    def each(self) -> list[float]:
        return self.inner.each

    def sides(self, i: int, text: Any) -> dict[str, Any]:
        return self.inner.sides(i, text)
