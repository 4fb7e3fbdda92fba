"""What is there is found, what is not there is not, and each layer learns as if it were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from regard.core.errors import ConfigError, UnknownName
from regard.core.seeding import keyed
from regard.methods.probe.learning import ProbeSchedule, ProbeTrainer, learn, validated
from regard.methods.probe.probes import (
    MIX,
    LabelProbeObjective,
    MixProbeObjective,
    Probe,
    ProbeKind,
    ProbeLabels,
    features,
    fit,
    kind_of,
    measured,
    scores,
)
from regard.methods.probe.states import States
from tests.refusals import refuses

WIDTH, ITEMS, EACH = 8, 120, 4
LINEAR = ProbeKind()


def planted(classes: int = 3, seed: int = 0) -> tuple[States, ProbeLabels]:
    """Layer 0 is noise; layer 1 holds the label in a direction of its own."""
    dice = keyed(seed, "planted")
    count = ITEMS * EACH
    codes = dice.integers(classes, size=count)
    table = dice.normal(size=(2, count, WIDTH)).astype(np.float32)
    axes = dice.normal(size=(classes, WIDTH)) * 3
    table[1] += axes[codes].astype(np.float32)
    return States(table, [0, 1]), labels_of(codes, classes)


def labels_of(codes: np.ndarray, classes: int, rows: np.ndarray | None = None) -> ProbeLabels:
    items = len(codes) // EACH
    train, dev, test = np.split(np.arange(items), [items * 6 // 10, items * 8 // 10])
    places = np.arange(len(codes)) if rows is None else rows
    return ProbeLabels(places, codes, np.arange(0, len(codes) + 1, EACH), classes, train, dev, test)


def results(states: States, labels: ProbeLabels, kind: ProbeKind = LINEAR, layers: Any = (0, 1),
            seed: int = 1, **pace: Any) -> dict[int, Any]:  # fmt: skip
    figures: dict[int, Any] = {}
    chosen = ProbeSchedule(**({"rate": 0.02, "epochs": 12} | pace))
    fit(states, labels, layers, kind, chosen, seed, lambda layer, x: figures.update({layer: x}))
    return figures


@pytest.mark.parametrize("name", ["linear", "mlp", "mlp-2", "rank-2"])
def test_a_planted_label_is_found_and_noise_is_not(name: str) -> None:
    states, labels = planted()
    figures = results(states, labels, kind_of(name, hidden=16))
    assert figures[1]["accuracy"] > 0.95 and figures[1]["macro_f1"] > 0.95
    assert figures[0]["accuracy"] < labels.majority + 0.12


def test_a_limited_rank_reads_no_more_than_its_directions() -> None:
    states, labels = planted(classes=4)
    probe: Any = Probe(kind_of("rank-1"), WIDTH, torch.zeros(4), 1)
    whole = probe.weights[0] @ probe.weights[1]
    assert int(torch.linalg.matrix_rank(whole.detach())) == 1
    assert [tuple(b.shape) for b in probe.biases] == [(0,), (4,)]
    one = results(states, labels, kind_of("rank-1"))[1]["accuracy"]
    assert one < results(states, labels, kind_of("rank-3"))[1]["accuracy"]


def test_an_mlp_finds_what_no_line_parts() -> None:
    dice = keyed(0, "xor")
    table = dice.normal(size=(1, 480, 2)).astype(np.float32)
    codes = (table[0, :, 0] * table[0, :, 1] > 0).astype(np.int64)
    states, labels = States(table, [0]), labels_of(codes, 2)
    deep = results(states, labels, kind_of("mlp", hidden=32), [0], epochs=40)
    flat = results(states, labels, LINEAR, [0])
    assert deep[0]["accuracy"] > 0.9 > 0.7 > flat[0]["accuracy"]


@pytest.mark.parametrize("kind", [LINEAR, kind_of("mlp", hidden=8, dropout=0.3)])
def test_layers_learn_together_as_they_would_alone(kind: ProbeKind) -> None:
    states, labels = planted()
    both = results(states, labels, kind, epochs=3)
    alone = {layer: results(states, labels, kind, [layer], epochs=3)[layer] for layer in (0, 1)}
    assert both == alone


def test_a_seed_decides_everything() -> None:
    states, labels = planted()
    course = [
        LabelProbeObjective(states, labels, [1], kind_of("mlp", 8, 0.2), seed) for seed in (1, 1, 2)
    ]
    first, same, other = ([p.detach().clone() for p in c.modules[0].parameters()] for c in course)
    assert all((a == b).all() for a, b in zip(first, same, strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))
    state = torch.get_rng_state()
    kind = kind_of("mlp", 8, 0.2)
    assert results(states, labels, kind, epochs=2) == results(states, labels, kind, epochs=2)
    assert (torch.get_rng_state() == state).all()


def test_scores_are_softmax_of_an_affine_map() -> None:
    probe: Any = Probe(LINEAR, 3, torch.tensor([-0.5, -1.0]), 1)
    x = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0))
    right = x[0] @ probe.weights[0] + probe.biases[0]
    assert torch.allclose(scores([probe], x, LINEAR, None)[0], right, atol=1e-6)
    course = LabelProbeObjective(States(x.numpy(), [0]), labels_of(np.array([0, 1, 1, 0]), 2), [0],
                         LINEAR, 1)  # fmt: skip
    course.modules = [probe]
    sums, count = course.losses([0], np.array([0]), False)
    hand = -right[:4].log_softmax(1)[torch.arange(4), torch.tensor([0, 1, 1, 0])].sum()
    assert count == 4 and torch.allclose(sums[0], hand, atol=1e-5)


def test_a_mix_takes_from_the_layer_that_knows() -> None:
    states, labels = planted()
    figures = results(states, labels, layers=[0, 1, MIX], rate=0.05, epochs=20)
    assert figures[MIX]["accuracy"] > 0.9
    assert figures[MIX]["shares"][1] > 0.6 and sum(figures[MIX]["shares"]) == pytest.approx(
        1, abs=1e-4
    )
    course = MixProbeObjective(states, labels, [0, 1], LINEAR, 1)
    mix: Any = course.modules[0]
    with torch.no_grad():
        mix.shares.copy_(torch.tensor([0.0, np.log(3.0)]))
        mix.gamma.fill_(2.0)
        x = states.gather([0, 1], np.arange(4))
        assert torch.allclose(mix(x)[0], 2 * (0.25 * x[0] + 0.75 * x[1]), atol=1e-6)


def test_pairs_are_compared() -> None:
    dice = keyed(0, "pairs")
    count = 240
    codes = dice.integers(2, size=count)
    left = dice.normal(size=(count, WIDTH)).astype(np.float32)
    other = dice.normal(size=(count, WIDTH)).astype(np.float32)
    right = np.where(codes[:, None] == 1, left, other)
    table = np.stack([left, right], 1).reshape(1, -1, WIDTH)
    rows = np.arange(2 * count).reshape(-1, 2)
    figures = results(States(table, [0]), labels_of(codes, 2, rows), layers=[0], epochs=20)
    assert figures[0]["accuracy"] > 0.9
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 1.0]])
    joined = features(torch.stack([u, v], 1)[None])
    assert joined.tolist() == [[[1, -2, 3, 1, 2, 3, 3, -2]]]


def test_the_best_validation_is_kept_and_the_rate_falls() -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    pupil = ProbeTrainer(module, ProbeSchedule(rate=0.1, wait=2))
    over = []
    for epoch, loss in enumerate([3.0, 2.0, 2.0, 1.99995]):
        with torch.no_grad():
            module.weight.fill_(float(epoch))
        over.append(pupil.judged(epoch, loss))
    assert over == [False, False, False, True]
    assert pupil.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.25)
    pupil.settle()
    assert module.weight.item() == 1.0


def test_a_probe_ends_with_the_weights_that_validated_best() -> None:
    """Noise is learned by heart after an epoch or two, and that is undone."""
    states, labels = planted()
    course = LabelProbeObjective(states, labels, [0], LINEAR, 1)
    ended: list[tuple[int, int]] = []
    (pupil,) = learn(
        course.modules, course, ProbeSchedule(rate=0.05), 1, lambda *x: ended.append(x)
    )
    assert pupil.at < 30 and ended == [(0, pupil.at + 1)]
    assert validated(course, [0], 40) == [pytest.approx(pupil.best, abs=1e-6)]


def test_weight_decay_keeps_weights_small() -> None:
    states, labels = planted()
    sizes = []
    for decay in (0.0, 1.0):
        course = LabelProbeObjective(states, labels, [1], LINEAR, 1)
        learn(course.modules, course, ProbeSchedule(rate=0.02, epochs=5, decay=decay), 1)
        probe: Any = course.modules[0]
        sizes.append(probe.weights[0].norm().item())
    assert sizes[1] < 0.8 * sizes[0]


def test_figures_of_many_classes_take_little_memory() -> None:
    assert measured(np.array([7, 10**6]), np.array([7, 8]), 10**6 + 1)["accuracy"] == 0.5


def test_figures_are_those_of_scikit_learn() -> None:
    dice = keyed(3)
    gold, predicted = dice.integers(4, size=(2, 50))
    figures = measured(gold, predicted, 5)
    assert figures["accuracy"] == pytest.approx((gold == predicted).mean())
    assert figures["macro_f1"] == pytest.approx(f1_score(gold, predicted, average="macro"))


@pytest.mark.parametrize("name", ["linear", "mlp", "rank-4"])
def test_a_layer_that_knows_nothing_is_no_worse_than_the_majority(name: str) -> None:
    """States without a common part, few steps, one frequent class: the bias has to begin there."""
    dice = keyed(4, "skewed")
    codes = np.where(dice.random(480) < 0.93, 0, dice.integers(1, 13, size=480))
    table = dice.normal(size=(1, 480, 48)).astype(np.float32) * 0.4
    labels = labels_of(codes, 13)
    figures: dict[int, Any] = {}
    kind = kind_of(name, hidden=16)
    fit(
        States(table, [0]),
        labels,
        [0],
        kind,
        ProbeSchedule(),
        1,
        lambda layer, x: figures.update({layer: x}),
    )
    assert figures[0]["accuracy"] >= labels.majority - 0.02
    assert figures[0]["majority"] == labels.majority and 1 <= figures[0]["epochs"] <= 100
    shares = labels.prior.exp()
    assert float(shares.sum()) == pytest.approx(1.0) and int(shares.argmax()) == 0
    assert float(shares.min()) > 0.0


def test_the_majority_is_that_of_training() -> None:
    codes = np.array([0, 0, 0, 1] * 6 + [1, 1, 1, 0] * 4)
    assert labels_of(codes, 2).majority == 0.25


def test_refusals() -> None:
    for name in ("quadratic", "rank-", "rank-0", "mlp-3"):
        with refuses(UnknownName, f"probe '{name}'"):
            kind_of(name)
    for option, value in (("dropout", 1.0), ("hidden", 0)):
        with refuses(ConfigError, option, f"is {value:g}"):
            kind_of("mlp", **{option: value})  # type: ignore[arg-type]
