"""Metrics of rankings: beside scikit-learn, beside sentence-transformers, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.metrics.ranking import CUT, EmbeddingMetric, Reranking, Retrieval
from tests.refusals import refuses


def draws(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_ndcg_is_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    dice = draws()
    gains, scores = dice.integers(0, 2, (20, 15)).astype(float), dice.random((20, 15))
    gains[:, 0] = 1.0
    metric = Reranking(gains.tolist(), scores.tolist())
    wanted = metrics.ndcg_score(gains, scores, k=CUT)
    assert metric.figures["ndcg_at_10"] == pytest.approx(wanted)
    graded = [[0.2, 1.0, 0.6]]
    wanted = metrics.ndcg_score([[0.2, 1.0, 0.6]], [[3.0, 2.0, 1.0]], k=CUT)
    assert Reranking(graded, [[3.0, 2.0, 1.0]]).figures["ndcg_at_10"] == pytest.approx(wanted)


def test_by_hand() -> None:
    """The right candidate is the second of four; a query without one is not counted."""
    gold = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    metric = Reranking(gold, [[0.9, 0.8, 0.1, 0.2], [0.5, 0.1], [0.7, 0.1]])
    assert metric.figures["mrr_at_10"] == pytest.approx((0.5 + 1) / 2)
    assert metric.figures["recall_at_1"] == 0.5 and metric.figures["recall_at_5"] == 1.0
    assert metric.each == [0.5, 1.0, 1.0]
    once = np.ones((1, 3))
    for name, value in metric.figures.items():
        assert metric.weighted[name](once)[0] == pytest.approx(value), name
    twice = np.array([[2.0, 1.0, 1.0]])
    assert metric.weighted["mrr_at_10"](twice)[0] == pytest.approx((2 * 0.5 + 1) / 3)
    with refuses(InputError, "no candidate"):
        Reranking([[0.0]], [[1.0]]).figures  # noqa: B018


def units(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_retrieval_is_that_of_sentence_transformers() -> None:
    pytest.importorskip("sentence_transformers")
    import torch
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    dice, names = draws(2), [f"p{i}" for i in range(30)]
    vectors = dict(zip(names, units(dice.normal(size=(30, 6))), strict=True))
    queries = units(dice.normal(size=(40, 6)))
    right = [names[i % 25] for i in range(40)]  # five passages are only candidates
    gold = [[f"q{i}", right[i], names[25 + i % 5]] for i in range(40)]
    arrays = [np.stack([queries[i], vectors[g[1]], vectors[g[2]]]) for i, g in enumerate(gold)]
    ours = Retrieval(gold, arrays).figures

    class Vectors(torch.nn.Module):
        model_card_data = None

        def encode(self, texts: list[str], **options: object) -> torch.Tensor:
            table = vectors | {f"q{i}": queries[i] for i in range(40)}
            return torch.tensor(np.stack([table[text] for text in texts]))

        encode_query = encode_document = encode

    evaluator = InformationRetrievalEvaluator(
        {g[0]: g[0] for g in gold}, {name: name for name in names},
        {g[0]: {g[1]} for g in gold}, precision_recall_at_k=[1, 5, 10], batch_size=8,
        score_functions={"dot": lambda a, b: a @ b.T}, write_csv=False,
    )  # fmt: skip
    theirs = evaluator.compute_metrices(Vectors())["dot"]
    assert ours["ndcg_at_10"] == pytest.approx(theirs["ndcg@k"][10])
    assert ours["mrr_at_10"] == pytest.approx(theirs["mrr@k"][10])
    for k in (1, 5, 10):
        assert ours[f"recall_at_{k}"] == pytest.approx(theirs["recall@k"][k])


def test_a_query_with_two_right_passages() -> None:
    side = units(np.eye(4)[:, :3] + 0.01)
    gold = [["q", "a"], ["q", "b"], ["r", "c"]]
    arrays = [np.stack([side[0], side[0]]), np.stack([side[0], side[1]]),
             np.stack([side[2], side[2]])]  # fmt: skip
    figures = Retrieval(gold, arrays).figures
    assert figures["mrr_at_10"] == 1.0 and figures["recall_at_10"] == 1.0
    assert figures["recall_at_1"] == pytest.approx((0.5 + 0.5 + 1) / 3)


def test_scored_pairs() -> None:
    one, other = units(np.array([1.0, 1.0])), np.array([1.0, 0.0])
    arrays = [np.stack([one, one]), np.stack([one, other]), np.stack([other, -one])]
    metric = EmbeddingMetric([5.0, 3.0, 1.0], arrays)
    assert metric.figures["spearman"] == pytest.approx(1.0)
    with refuses(InputError, "two files"):
        EmbeddingMetric([5.0, ["a", "b"]], arrays[:2])
