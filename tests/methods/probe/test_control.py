"""Control tasks: a label for each word type, the same everywhere, as frequent as the real ones."""

from __future__ import annotations

import numpy as np

from regard.core.seeding import keyed
from regard.methods.probe.control import RULES, control_heads, control_labels, selectivity
from regard.methods.probe.tasks import ProbeItem, ProbeTask, with_classes


def test_a_type_has_one_label_in_all_parts_and_seeds_differ() -> None:
    words = [f"w{i % 50}" for i in range(400)]
    codes = np.arange(400) % 5
    learned = np.arange(400) < 200
    control = control_labels(words, codes, learned, 5, seed=1)
    by_type: dict[str, set[int]] = {}
    for word, label in zip(words, control.tolist(), strict=True):
        by_type.setdefault(word, set()).add(label)
    assert all(len(labels) == 1 for labels in by_type.values())
    assert len({next(iter(labels)) for labels in by_type.values()}) == 5
    assert (control == control_labels(words, codes, learned, 5, seed=1)).all()
    assert (control != control_labels(words, codes, learned, 5, seed=2)).any()
    few = control_labels(words[7:9], codes, learned, 5, seed=1)  # not by the order of words
    assert few.tolist() == control[7:9].tolist()


def test_labels_are_drawn_as_frequent_as_they_are_in_training() -> None:
    dice = keyed(0)
    shares = np.array([0.7, 0.2, 0.1, 0.0])
    codes = dice.choice(4, 3000, p=shares)
    learned = np.arange(3000) < 2000
    codes[~learned] = 3  # what tests has no say
    control = control_labels([f"t{i}" for i in range(3000)], codes, learned, 4, seed=3)
    wanted = np.bincount(codes[learned], minlength=4) / 2000
    assert np.abs(np.bincount(control, minlength=4) / 3000 - wanted).max() < 0.03
    assert (control != 3).all()


def test_heads_attach_to_self_first_or_last_by_type() -> None:
    words = [f"w{i}" for i in range(90)]
    heads = control_heads(words, seed=1)
    rules = ["self" if h == i else "first" if h == 0 else "last" if h == 89 else "?"
             for i, h in enumerate(heads.tolist())]  # fmt: skip
    assert set(rules[1:-1]) == set(RULES)
    assert all(20 <= rules.count(rule) <= 40 for rule in RULES)
    again = control_heads(["x", *words[:5], "y"], seed=1)
    for place, word in enumerate(words[:5], 1):
        rule = rules[int(word[1:])]
        if int(word[1:]):  # at place 0 two rules look alike
            assert again[place] == {"self": place, "first": 0, "last": 6}[rule]


def test_a_task_and_its_control_ask_about_the_same_words() -> None:
    items = [ProbeItem(("a", "b", "c"), ("x", None, "y")), ProbeItem(("b", "a"), ("y", "x"))]
    task = with_classes(ProbeTask("t", "words", {"train": items, "dev": items, "test": items}))
    labels, control = task.labels(), task.control(1)
    assert labels.rows.tolist() == [0, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14]
    assert labels.codes.tolist()[:4] == [0, 1, 1, 0]
    assert control.rows.tolist() == labels.rows.tolist()
    words = ["a", "c", "b", "a"] * 3
    assert len({tuple(pair) for pair in zip(words, control.codes.tolist(), strict=True)}) == 3
    assert labels.units(labels.train) == 4


def test_selectivity_is_the_difference() -> None:
    assert selectivity(0.972, 0.712) == 0.972 - 0.712
