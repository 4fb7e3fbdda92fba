"""Robustness: texts that are disturbed the same way every time, and what the page says of them."""

from __future__ import annotations

from typing import Any

import pytest
from robust import METHODS, TESTS, disturbed, judged, section, summary, with_gaps, with_typos

from regard.data.examples import LabeledExample
from tests.benchmarks.bilingual import check_chinese

TEXT = "Nobody is riding a bicycle across the crowded market of two villages"


def test_typing_errors() -> None:
    texts = [with_typos(TEXT, i) for i in range(60)]
    assert texts == [with_typos(TEXT, i) for i in range(60)]
    assert len(set(texts)) > 30 and any(text == TEXT for text in texts)
    changed = total = 0
    for text in texts:
        for old, new in zip(TEXT.split(), text.split(), strict=True):
            assert old == new or len(old) >= 4
            assert new[0] == old[0] and abs(len(new) - len(old)) <= 1
            total += len(old) >= 4
            changed += old != new
    assert 0.1 < changed / total < 0.3


def test_gaps() -> None:
    texts = [with_gaps(TEXT, i) for i in range(60)]
    assert texts == [with_gaps(TEXT, i) for i in range(60)] and len(set(texts)) > 20
    for text in texts:
        words = text.split()
        assert {"Nobody", "a", "the", "two"} <= set(words)
        rest = iter(TEXT.split())
        assert all(word in rest for word in words)  # in their order
    assert with_gaps("dog", 0) == with_gaps("dog", 1) == "dog"


def test_labels_stay() -> None:
    examples = [LabeledExample(TEXT, TEXT, label="neutral")]
    assert disturbed(examples, "clean") == examples
    (example,) = disturbed(examples * 2, "typos")[1:]
    assert example.label == "neutral" and example.text != example.pair


def cells(name: str, scores: list[float], seconds: float) -> list[dict[str, Any]]:
    return [
        {"method": name, "seed": i, "scores": dict.fromkeys(TESTS, score), "seconds": seconds}
        for i, score in enumerate(scores, 1)
    ]


def test_the_page() -> None:
    rows = cells("plain", [0.70, 0.72, 0.74], 10.0) + cells("fgm", [0.80, 0.82, 0.84], 21.0)
    plain, fgm = summary(rows)
    assert fgm["passes"] == 2 and fgm["gains"]["typos"] == pytest.approx([0.1] * 3)
    assert plain["passes"] == 1
    text = section(rows)
    check_chinese("robustness", text)
    assert f"| {METHODS['fgm'].title} | 3 | 0.820 ± 0.020 (+0.100) |" in text
    assert "better than plain training on “clean”: FGM;" in text
    assert "Student's t of the pairs, 95%; of 3 comparisons chance alone would name 0.2" in text
    assert "numbers stay, and 17% of the other words are missing" in text
    level = section(rows[:3] + cells("pgd", [0.70, 0.72, 0.75], 33.0))
    check_chinese("robustness", level)
    assert "No method differs" in level and "| 3.33 |" in level


def test_differences_are_those_of_the_same_seeds() -> None:
    """Of three pairs the mean has to be 4.30 of its own errors from 0."""
    assert judged([0.05, 0.02, 0.02]) == "level"  # 3.0 errors
    assert judged([0.03, 0.02, 0.02]) == "better" and judged([-0.03, -0.02, -0.02]) == "worse"  # 7
    assert judged([0.05, 0.02, 0.02] * 2) == "better"  # 4.74, of six pairs 2.57 are enough
    assert judged([0.0, 0.0]) == "level" and judged([0.1]) == judged([]) == ""
    plain = cells("plain", [0.60, 0.70, 0.80], 10.0)
    spread = section(plain + cells("fgm", [0.62, 0.72, 0.83], 10.0))  # seeds differ more than that
    assert "better than plain training on “clean”: FGM;" in spread and "(+0.023)" in spread
    other = [row | {"seed": row["seed"] + 3} for row in cells("fgm", [0.9, 0.9, 0.9], 10.0)]
    unpaired = section(plain + other)
    check_chinese("robustness", unpaired)
    assert "no difference is named" in unpaired


def test_one_seed_says_nothing() -> None:
    text = section(cells("plain", [0.7], 10.0) + cells("fgm", [0.9], 20.0))
    assert "says nothing: no difference is named." in text and "No method differs" not in text
