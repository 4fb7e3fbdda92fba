"""Structural probes (Hewitt and Manning 2019): do the hidden states encode a syntax tree in their
geometry?

‖B(hᵢ - hⱼ)‖² is fitted to the distance of two words in their tree, and ‖B hᵢ‖² to the depth of a
word; the squared norms are fitted. In addition, a bilinear probe (L hᵢ)·(R hⱼ) predicts the word
that each word depends on. Only this probe has a control task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.seeding import LARGEST, keyed
from regard.methods.probe.control import control_heads
from regard.methods.probe.learning import Epoch, ProbeSchedule, learn
from regard.methods.probe.probes import Keep
from regard.methods.probe.states import States
from regard.methods.probe.tree_scores import depth_scores, distance_scores
from regard.methods.probe.trees import DependencyTree

START = 0.05  # B starts uniform in ± this value
PACE = ProbeSchedule(factor=0.1, batch=20, epochs=40)


# -- geometry


def squared_distances(x: Tensor) -> Tensor:
    """Returns ‖xᵢ - xⱼ‖², […, n, k] -> [..., n, n]: symmetric, 0 on the diagonal, never below 0. It
    is computed from products, so that no [n, n, k] tensor is in memory."""
    products = x @ x.transpose(-1, -2)
    products = (products + products.transpose(-1, -2)) / 2
    own = products.diagonal(dim1=-2, dim2=-1)
    return (own[..., :, None] + own[..., None, :] - 2 * products).clamp_min(0.0)


def squared_norms(x: Tensor) -> Tensor:
    """Returns ‖xᵢ‖², […, n, k] -> […, n]."""
    return x.square().sum(-1)


def distance_loss(predicted: Tensor, gold: Tensor, sizes: Tensor) -> Tensor:
    """Returns Σ|predicted - gold| / n² of each sentence, summed over the sentences, for predicted
    […, B, n, n], gold [B, n, n] (-1: no label) and sizes [B]."""
    wrong = ((predicted - gold).abs() * (gold >= 0)).sum((-1, -2))
    return (wrong / sizes.square()).sum(-1)


def depth_loss(predicted: Tensor, gold: Tensor, sizes: Tensor) -> Tensor:
    """Returns Σ|predicted - gold| / n, summed over the sentences, for predicted […, B, n] and gold
    [B, n] (-1: no label)."""
    wrong = ((predicted - gold).abs() * (gold >= 0)).sum(-1)
    return (wrong / sizes).sum(-1)


# -- probes


class StructuralProjection(nn.Module):
    """The matrix B, transposed to [width, rank]. The head probe has two of them."""

    def __init__(self, width: int, rank: int, seed: int, sides: int = 1) -> None:
        super().__init__()
        dice = torch.Generator().manual_seed(int(keyed(seed, "structure").integers(LARGEST)))
        start = torch.empty(sides, width, rank)
        self.matrices = nn.Parameter(start.uniform_(-START, START, generator=dice))


@dataclass(frozen=True)
class Trees:
    """Dependency trees in three parts, with the units of their words."""

    trees: list[DependencyTree]
    train: np.ndarray
    dev: np.ndarray
    test: np.ndarray

    @property
    def edges(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum([len(tree.words) for tree in self.trees])])


class StructureProbeObjective:
    """The objective of distances, depths or heads for all layers. With `control`, the heads are
    replaced by those of the control task."""

    def __init__(
        self,
        what: str,
        states: States,
        trees: Trees,
        layers: Sequence[int],
        rank: int,
        seed: int,
        control: bool = False,
    ) -> None:
        self.what, self.states, self.trees = what, states, trees
        self.layers, self.edges = list(layers), trees.edges
        self.train, self.dev = trees.train, trees.dev
        width = states.width
        sides = 2 if what == "head" else 1
        self.modules: list[nn.Module] = [
            StructuralProjection(width, rank or width, seed, sides) for _ in self.layers
        ]
        self.gold = [self.gold_of(tree, seed, control) for tree in trees.trees]

    def gold_of(self, tree: DependencyTree, seed: int, control: bool) -> np.ndarray:
        """Returns distances, depths, or the positions of heads; -1 stands for no label."""
        if self.what == "distance":
            return tree.distances
        if self.what == "depth":
            return tree.depths
        heads = control_heads(tree.words, seed) if control else np.array(tree.heads)
        return np.where(tree.counted, heads, -1)

    def batch(self, active: Sequence[int], items: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the states [L, B, n, width] (0 after the end), gold (-1 after the end), and sizes
        [B]."""
        sizes = np.array([len(self.trees.trees[item].words) for item in items.tolist()])
        widest = int(sizes.max())
        place = np.arange(widest)[None].repeat(len(items), 0)
        inside = place < sizes[:, None]
        rows = np.where(inside, place + self.edges[items][:, None], 0)
        x = self.states.gather([self.layers[i] for i in active], rows)
        x *= torch.from_numpy(inside)[..., None]
        gold = np.full((len(items), widest, *[widest] * (self.what == "distance")), -1)
        for number, item in enumerate(items.tolist()):
            gold[number][tuple(slice(n) for n in self.gold[item].shape)] = self.gold[item]
        return x, torch.from_numpy(gold), torch.from_numpy(sizes)

    def predicted(self, active: Sequence[int], x: Tensor, sizes: Tensor) -> Tensor:
        """Returns the predictions [L, B, n, n], for depths [L, B, n]."""
        chosen: list[Any] = [self.modules[place] for place in active]
        matrices = torch.stack([module.matrices for module in chosen])  # [L, sides, width, rank]
        flat = x.flatten(1, 2)

        def seen(side: int) -> Tensor:
            return torch.bmm(flat, matrices[:, side]).unflatten(1, x.shape[1:3])

        if self.what == "distance":
            return squared_distances(seen(0))
        if self.what == "depth":
            return squared_norms(seen(0))
        behind = torch.arange(x.size(2)) >= sizes[:, None]
        scores = seen(0) @ seen(1).transpose(-1, -2)
        return scores.masked_fill(behind[None, :, None], float("-inf"))

    def losses(
        self, active: Sequence[int], items: np.ndarray, learning: bool
    ) -> tuple[Tensor, float]:
        x, gold, sizes = self.batch(active, items)
        predicted = self.predicted(active, x, sizes)
        if self.what == "distance":
            return distance_loss(predicted, gold, sizes), float(len(items))
        if self.what == "depth":
            return depth_loss(predicted, gold, sizes), float(len(items))
        wanted = gold.expand(len(active), -1, -1)
        each = F.cross_entropy(
            predicted.flatten(0, 2), wanted.flatten(), ignore_index=-1, reduction="none"
        )
        return each.unflatten(0, (len(active), -1)).sum(1), float((gold >= 0).sum()) or 1.0

    @torch.no_grad()
    def measure(self, place: int) -> dict[str, Any]:
        """Returns the test metrics of one layer."""
        answers: list[np.ndarray] = []
        for start in range(0, len(self.trees.test), 20):
            items = self.trees.test[start : start + 20]
            x, _, sizes = self.batch([place], items)
            predicted = self.predicted([place], x, sizes)[0].numpy()
            for row, count in zip(predicted, sizes.tolist(), strict=True):
                answers.append(row[:count] if self.what == "depth" else row[:count, :count])
        trees = [self.trees.trees[item] for item in self.trees.test.tolist()]
        if self.what == "distance":
            return distance_scores(trees, answers)
        if self.what == "depth":
            return depth_scores(trees, answers)
        right = total = 0
        for item, row in zip(self.trees.test.tolist(), answers, strict=True):
            there = self.gold[item] >= 0
            total += int(there.sum())
            right += int((row.argmax(1) == self.gold[item])[there].sum())
        return {"accuracy": right / max(total, 1)}


def fit_structure(
    what: str,
    states: States,
    trees: Trees,
    layers: Sequence[int],
    rank: int,
    pace: ProbeSchedule,
    seed: int,
    keep: Keep,
    tell: Epoch = lambda epoch, left: None,
    control: bool = False,
) -> None:
    """Trains one probe for each layer. Calls `keep` with the metrics of each as soon as it is
    finished."""
    course = StructureProbeObjective(what, states, trees, layers, rank, seed, control)

    def done(place: int, epochs: int) -> None:
        keep(course.layers[place], course.measure(place) | {"epochs": epochs})

    learn(course.modules, course, pace, seed, done, tell)
