"""Probes that predict labels: softmax(W h + b), the same with limited rank, or an MLP with one or
two hidden layers.

The probes of all layers are computed as one batched product. A scalar mix (Peters et al. 2018)
reads all layers together, s = γ Σ softmax(a)ₗ hₗ. The two texts of a pair are read separately, and
the probe sees (u, v, |u - v|, u ∘ v), as in Conneau et al. 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.errors import ConfigError, UnknownName
from regard.core.seeding import LARGEST, keyed
from regard.methods.probe.learning import Epoch, ProbeSchedule, learn
from regard.methods.probe.states import States

KINDS = ("linear", "mlp", "mlp-2", "rank-N")
IGNORED = -1  # the code of a unit without a label
MIX = -1  # stands for the mix of all layers in a list of layers
SIDES = 4  # the features of a pair are this many times as wide as a vector


@dataclass(frozen=True)
class ProbeKind:
    """A chain of affine maps with these hidden widths, with ReLU between them or (for limited rank)
    without."""

    hidden: tuple[int, ...] = ()
    relu: bool = True
    dropout: float = 0.0  # of the input of each map

    def sizes(self, width: int, classes: int) -> list[int]:
        return [width, *self.hidden, classes]


def kind_of(name: str, hidden: int = 256, dropout: float = 0.0) -> ProbeKind:
    """Parses linear, mlp (or mlp-1), mlp-2, or rank-N, which reads at most N directions."""
    if not 0.0 <= dropout < 1.0:
        raise ConfigError(f"the probe's dropout is {dropout:g}; it must be in [0, 1)")
    if hidden < 1:
        raise ConfigError(f"the probe's hidden width is {hidden}; it must be at least 1")
    if name == "linear":
        return ProbeKind((), True, dropout)
    if name in ("mlp", "mlp-1"):
        return ProbeKind((hidden,), True, dropout)
    if name == "mlp-2":
        return ProbeKind((hidden, hidden), True, dropout)
    start, _, rank = name.partition("-")
    if start == "rank" and rank.isdecimal() and int(rank) > 0:
        return ProbeKind((int(rank),), False, dropout)
    raise UnknownName("kind of probe", name, KINDS)


class Probe(nn.Module):
    """The weights of one layer's probe. With the same seed the probes of all layers start with the
    same weights: uniform within 1 / √inputs, as in torch, except for the last bias, which is
    `prior`. A probe of limited rank has no bias between its two matrices."""

    def __init__(self, kind: ProbeKind, width: int, prior: Tensor, seed: int) -> None:
        super().__init__()
        classes = len(prior)
        dice = torch.Generator().manual_seed(int(keyed(seed, "probe").integers(LARGEST)))
        sizes = kind.sizes(width, classes)
        weights, biases = [], []
        for rows, columns in pairwise(sizes):
            bound = rows**-0.5
            weights.append(torch.empty(rows, columns).uniform_(-bound, bound, generator=dice))
            bias = torch.empty(columns).uniform_(-bound, bound, generator=dice)
            biases.append(bias if kind.relu else torch.zeros(0))
        biases[-1] = prior.clone()
        self.weights, self.biases = nn.ParameterList(weights), nn.ParameterList(biases)


def scores(
    probes: Sequence[Any], x: Tensor, kind: ProbeKind, dice: torch.Generator | None
) -> Tensor:
    """Returns the logits, x [L, B, width] -> [L, B, classes]. With `dice`, it applies dropout with
    one mask for all layers."""
    count = len(probes[0].weights)
    for number in range(count):
        if dice is not None and kind.dropout:
            keep = torch.rand(x.shape[1:], generator=dice) >= kind.dropout
            x = x * (keep / (1.0 - kind.dropout))
        weight = torch.stack([probe.weights[number] for probe in probes])
        if probes[0].biases[number].numel():
            bias = torch.stack([probe.biases[number] for probe in probes])[:, None]
            x = torch.baddbmm(bias, x, weight)
        else:
            x = torch.bmm(x, weight)
        if kind.relu and number + 1 < count:
            x = x.relu()
    return x


def features(x: Tensor) -> Tensor:
    """Returns [L, B, width] unchanged, and turns pairs [L, B, 2, width] into [L, B, 4 · width]."""
    if x.dim() == 3:
        return x
    u, v = x.unbind(2)
    return torch.cat([u, v, (u - v).abs(), u * v], -1)


class LayerMix(nn.Module):
    """A learned mix of all layers, and its probe."""

    def __init__(self, layers: int, kind: ProbeKind, width: int, prior: Tensor, seed: int) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.probe = Probe(kind, width, prior, seed)

    def forward(self, x: Tensor) -> Tensor:
        """Mixes the layers, [L, B, …, width] -> [1, B, …, width]."""
        return self.gamma * torch.tensordot(self.shares.softmax(0), x, 1)[None]


# -- labels


@dataclass(frozen=True)
class ProbeLabels:
    """The label of each unit (a word, text or pair), item by item. Units without a label are left
    out."""

    rows: np.ndarray  # [N], or [N, 2] for pairs: indices of vectors
    codes: np.ndarray  # [N]
    edges: np.ndarray  # [items + 1]: where the units of each item begin
    classes: int
    train: np.ndarray  # indices of items
    dev: np.ndarray
    test: np.ndarray

    def take(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows and the codes of some items."""
        parts = [np.arange(self.edges[item], self.edges[item + 1]) for item in items.tolist()]
        units = np.concatenate(parts) if parts else np.empty(0, np.int64)
        return self.rows[units], self.codes[units]

    def units(self, items: np.ndarray) -> int:
        return int((self.edges[items + 1] - self.edges[items]).sum())

    @property
    def prior(self) -> Tensor:
        """Returns the log frequency of each class in training (with one added to each count), where
        the bias of a probe starts. Adam moves a bias by at most the learning rate in a step, so
        from 0 it would need thousands of steps to learn that a class is rare. If the states have no
        common component, only the bias can learn that, and such a layer would score below the
        majority class."""
        counts = np.bincount(self.take(self.train)[1], minlength=self.classes) + 1.0
        return torch.from_numpy(np.log(counts / counts.sum())).float()

    @property
    def majority(self) -> float:
        """Returns the test accuracy of always predicting the most frequent class of the training
        part."""
        often = np.bincount(self.take(self.train)[1], minlength=self.classes).argmax()
        return float((self.take(self.test)[1] == often).mean())


class LabelProbeObjective:
    """The objective that `learn` trains for labels, with one probe for each layer of `layers`."""

    def __init__(
        self, states: States, labels: ProbeLabels, layers: Sequence[int], kind: ProbeKind, seed: int
    ) -> None:
        self.states, self.labels, self.kind = states, labels, kind
        self.layers = list(layers)
        self.train, self.dev = labels.train, labels.dev
        self.dice = torch.Generator().manual_seed(
            int(keyed(seed, "probe dropout").integers(LARGEST))
        )
        width = states.width * (SIDES if labels.rows.ndim == 2 else 1)
        self.modules: list[nn.Module] = self.made(width, labels.prior, seed)

    def made(self, width: int, prior: Tensor, seed: int) -> list[nn.Module]:
        return [Probe(self.kind, width, prior, seed) for _ in self.layers]

    def scores(self, active: Sequence[int], rows: np.ndarray, learning: bool) -> Tensor:
        """Returns the logits [len(active), B, classes]."""
        x = self.states.gather([self.layers[place] for place in active], rows)
        probes = [self.modules[place] for place in active]
        return scores(probes, features(x), self.kind, self.dice if learning else None)

    def losses(
        self, active: Sequence[int], items: np.ndarray, learning: bool
    ) -> tuple[Tensor, float]:
        rows, codes = self.labels.take(items)
        logits = self.scores(active, rows, learning)
        gold = torch.from_numpy(codes).expand(len(active), -1)
        each = F.cross_entropy(logits.flatten(0, 1), gold.flatten(), reduction="none")
        return each.unflatten(0, (len(active), -1)).sum(1), float(len(codes))

    @torch.no_grad()
    def answers(self, place: int, items: np.ndarray, batch: int = 256) -> np.ndarray:
        """Returns the labels that one probe predicts for all units of some items."""
        answers = [np.empty(0, np.int64)]
        for start in range(0, len(items), batch):
            rows, _ = self.labels.take(items[start : start + batch])
            if len(rows):
                answers.append(self.scores([place], rows, False)[0].argmax(1).numpy())
        return np.concatenate(answers)


class MixProbeObjective(LabelProbeObjective):
    """The objective of one probe that reads a mix of all layers."""

    def made(self, width: int, prior: Tensor, seed: int) -> list[nn.Module]:
        return [LayerMix(len(self.layers), self.kind, width, prior, seed)]

    def scores(self, active: Sequence[int], rows: np.ndarray, learning: bool) -> Tensor:
        mix: Any = self.modules[0]
        x = features(mix(self.states.gather(self.layers, rows)))
        return scores([mix.probe], x, self.kind, self.dice if learning else None)


Keep = Callable[[int, dict[str, Any]], None]  # (layer, its metrics)


def fit(
    states: States,
    labels: ProbeLabels,
    layers: Sequence[int],
    kind: ProbeKind,
    pace: ProbeSchedule,
    seed: int,
    keep: Keep,
    tell: Epoch = lambda epoch, left: None,
) -> None:
    """Trains a probe for each layer (MIX: one for all layers of the states). Calls `keep` with the
    metrics of each as soon as it is finished."""
    single = [layer for layer in layers if layer != MIX]
    courses: list[LabelProbeObjective] = []
    if single:
        courses.append(LabelProbeObjective(states, labels, single, kind, seed))
    if MIX in layers:
        courses.append(MixProbeObjective(states, labels, states.layers, kind, seed))
    gold = labels.take(labels.test)[1]
    for course in courses:
        mixed = isinstance(course, MixProbeObjective)

        def done(
            place: int, epochs: int, course: LabelProbeObjective = course, mixed: bool = mixed
        ) -> None:
            answers = course.answers(place, labels.test)
            figures: dict[str, Any] = measured(gold, answers, labels.classes)
            figures |= {"majority": labels.majority, "epochs": epochs}
            if mixed:
                mix: Any = course.modules[0]
                figures["shares"] = [round(x, 6) for x in mix.shares.detach().softmax(0).tolist()]
                figures["gamma"] = float(mix.gamma.detach())
            keep(MIX if mixed else course.layers[place], figures)

        learn(course.modules, course, pace, seed, done, tell)


def measured(gold: np.ndarray, answers: np.ndarray, classes: int) -> dict[str, Any]:
    """Returns the accuracy, and F1 averaged over the classes that occur in the labels or the
    predictions."""
    right, wanted, guessed = (
        np.bincount(codes, minlength=classes) for codes in (gold[gold == answers], gold, answers)
    )
    both = wanted + guessed
    f1 = 2 * right[both > 0] / both[both > 0]
    return {"accuracy": float(right.sum() / max(len(gold), 1)), "macro_f1": float(f1.mean())}
