"""Sources and targets, the same for prefix, span and pairs: the loss is that of the target alone,
and no target reaches its own guess.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.objectives.pairs import Pairs
from regard.objectives.prefix import Prefix
from regard.objectives.smoothing import entropy
from regard.objectives.source import SourceTarget
from regard.objectives.span import SpanCorruption
from tests.objectives.rules import make, tiny
from tests.objectives.small import (
    FIRST,
    LAST,
    SPECIAL,
    VOCABULARY,
    random_documents,
    text_corpus,
)

TWO_ROWS = ("t5", "transformer")
CASES = [  # the objective, its options, who learns it
    (Prefix, {"seq_len": 10}, "gpt bert xlnet t5 transformer"),
    (SpanCorruption, {"seq_len": 20}, "t5 transformer gpt lstm"),
    (SpanCorruption, {"seq_len": 20, "both_sides": True}, "t5 gpt"),
    (Pairs, {"seq_len": 40, "smoothing": 0.0}, "t5 transformer gpt lstm bert"),
    (Pairs, {"seq_len": 40, "smoothing": 0.0, "both_sides": True}, "t5 gpt bert"),
]
every = pytest.mark.parametrize(
    ("kind", "options", "family"),
    [
        pytest.param(kind, options, family, id="-".join([kind.name, *map(str, options), family]))
        for kind, options, families in CASES
        for family in families.split()
    ],
)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    text = text_corpus(tmp_path_factory.mktemp("text"), random_documents(20, seed=5))
    both = random_documents(30, sentences=(2, 2), words=(0, 9), seed=5)
    pairs = text_corpus(tmp_path_factory.mktemp("pairs"), both, kind="pairs")
    return {"prefix": text, "span": text, "pairs": pairs}


def guesses(model: Any, family: str, sample: Any, both_sides: bool) -> tuple[Tensor, Tensor]:
    """Log-probabilities [T, words] of one target, read by hand and without padding, and the
    target.
    """
    first = int(sample["sizes"][0])
    source, target = (torch.tensor(part)[None] for part in np.split(sample["tokens"], [first]))
    if family in TWO_ROWS:
        begun = torch.cat([torch.tensor([[model.config.start_id]]), target[:, :-1]], 1)
        hidden = model(source, begun)
    else:
        row = torch.cat([source, target], 1)[:, :-1]
        place = torch.arange(row.size(1))[None]
        more: dict[str, Tensor] = {}
        if family in ("bert", "xlnet"):
            more["order"] = torch.where(place < first, 0, place) if both_sides else place
        elif both_sides:
            more["prefix"] = torch.tensor([first])
        hidden = model(row, **more)[:, first - 1 :]
    return model.logits(hidden).log_softmax(-1)[0], target[0]


@every
def test_the_loss_by_hand(
    kind: type[SourceTarget], options: Any, family: str, corpora: Any
) -> None:
    model = tiny(family, dtype=torch.float64).eval()
    objective = make(kind, corpora[kind.name], learning=False, **options)
    objective.check(model)
    expected, count = 0.0, 0
    for n in range(4):
        log_p, target = guesses(model, family, objective.get(n), objective.both_sides)
        expected -= float(log_p.gather(1, target[:, None]).sum().detach())
        count += len(target)
    batch = objective.collate([objective.get(n) for n in range(4)])
    loss = objective.loss(model, batch)
    assert float(loss.sums[kind.name].detach()) == pytest.approx(expected, rel=1e-10)
    assert loss.counts == {kind.name: count} == objective.counts(batch)


@pytest.mark.parametrize("family", ["t5", "transformer", "gpt", "lstm", "bert"])
@pytest.mark.parametrize("way", ["others", "all", "no-pad"])
def test_the_smoothed_loss_by_hand(family: str, way: str, corpora: Any) -> None:
    """Pair by pair without padding, with q written out."""
    model = tiny(family, dtype=torch.float64).eval()
    options = {"seq_len": 40, "smoothing": 0.2, "smoothing_kind": way}
    objective = make(Pairs, corpora["pairs"], **options)
    expected, count = 0.0, 0
    for n in range(5):
        log_p, target = guesses(model, family, objective.get(n), both_sides=False)
        spread = {"others": VOCABULARY - 1, "all": VOCABULARY, "no-pad": VOCABULARY - 2}[way]
        q = torch.full_like(log_p, 0.2 / spread)
        if way == "no-pad":
            q[:, SPECIAL.pad] = 0.0
        q.scatter_(1, target[:, None], 0.8 + (0.2 / VOCABULARY if way == "all" else 0.0))
        expected -= float((q * log_p).sum().detach())
        count += len(target)
    batch = objective.collate([objective.get(n) for n in range(5)])
    loss = objective.loss(model, batch)
    assert loss.counts == {"pairs": count} == objective.counts(batch)
    assert float(loss.sums["pairs"].detach()) == pytest.approx(expected, rel=1e-10)
    less = make(Pairs, corpora["pairs"], reported="kl", **options)
    divergence = float(less.loss(model, batch).sums["pairs"].detach())
    assert divergence == pytest.approx(expected - count * entropy(0.2, VOCABULARY, way), rel=1e-9)


@every
def test_no_target_reaches_its_own_guess(
    kind: type[SourceTarget], options: Any, family: str, corpora: Any
) -> None:
    """Each target is changed in turn: what it and those before it are guessed from stays."""
    model = tiny(family).eval()
    objective = make(kind, corpora[kind.name], learning=False, **options)
    samples = (objective.get(n) for n in range(len(objective)))
    sample = max(samples, key=lambda one: int(one["sizes"][1]))
    first, second = sample["sizes"].tolist()
    begin = 0 if family in TWO_ROWS else first - 1
    base, _, _ = objective.hidden(model, objective.collate([sample]))
    for t in range(second):
        tokens = sample["tokens"].copy()
        tokens[first + t] = FIRST + (tokens[first + t] - FIRST + 1) % (LAST - FIRST)
        changed = objective.collate([sample | {"tokens": tokens}])
        rows, targets, scored = objective.hidden(model, changed)
        assert scored[0, begin + t] and targets[0, begin + t] == tokens[first + t]
        end = begin + t + 1
        torch.testing.assert_close(rows[:, :end], base[:, :end], rtol=0, atol=0)
        if t + 1 < second:
            assert (rows[:, end] != base[:, end]).any()


def test_shapes_of_a_batch_stay(corpora: Any, tmp_path: Path) -> None:
    objective = make(Prefix, corpora["prefix"])
    one, two = (objective.collate([objective.get(n), objective.get(n + 1)]) for n in (0, 10))
    assert {k: v.shape for k, v in one.items()} == {k: v.shape for k, v in two.items()}
    assert one["tokens"].shape == (2, 9) and one["target"].shape == (2, 8)
