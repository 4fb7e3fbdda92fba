"""Fine-tuning beside the Trainer: the Trainer's tags, what is compared, what is marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from finetune import alone, compared, lines_of, section, settings_of
from finetune_sides import answers, beginnings, encoded, minilm
from finetune_tasks import TASKS

from regard.data.examples import TaggedExample
from tests.benchmarks.bilingual import check_chinese

LABELS = ["O", "B-loc", "I-loc"]


def cell(task: str, side: str, seed: int, score: float, seconds: float, **more: Any) -> Any:
    precision, same = more.get("precision", "fp32"), more.get("same", False)
    return {
        "task": task,
        "side": side,
        "seed": seed,
        "precision": precision,
        "scores": {TASKS[task].measure: score},
        "seconds": seconds,
        "whole": seconds + 1,
        "padding": more.get("padding", 0.05),
        "settings": TASKS[task].settings(side, seed, precision, same),
    }


def both(ours: list[float], theirs: list[float], seconds: tuple[float, float], **more: Any) -> Any:
    sides = {"ours": (ours, seconds[0]), "theirs": (theirs, seconds[1])}
    return [
        cell("wnut17", side, seed, score, spent, **more)
        for side, (scores, spent) in sides.items()
        for seed, score in enumerate(scores, 1)
    ]


def test_a_word_is_where_its_first_piece_is() -> None:
    assert beginnings([None, 0, 0, 2, 3, 3, None]) == [None, 0, None, 2, 3, None, None]


def test_words_without_tokens_shift_no_tag() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    words = ("we", "\u200b", "love", "Reykjavik", "\ufe0f", "today")
    tags = ("O", "O", "O", "B-loc", "O", "O")
    batch = encoded(TASKS["wnut17"], tokenizer, [TaggedExample(words, tags)], LABELS)
    begun = [word for word in batch.firsts[0] if word is not None]
    assert begun == [0, 2, 3, 5]
    labels = [-100 if word is None else LABELS.index(tags[word]) for word in batch.firsts[0]]
    assert batch.rows[0]["labels"] == labels
    logits = np.full((1, len(labels) + 3, 3), -100.0)  # padded as the Trainer pads
    for place, word in enumerate(batch.firsts[0]):
        logits[0, place, LABELS.index(tags[word]) if word is not None else 2] = 1.0
    predictions = answers(
        TASKS["wnut17"], logits, batch.firsts, [TaggedExample(words, tags)], LABELS
    )
    assert predictions == [list(tags)]


def test_words_beyond_the_length_are_outside() -> None:
    logits = np.zeros((1, 3, 3))
    logits[0, 1, 1] = 1.0
    firsts = [[None, 0, None]]
    examples = [TaggedExample(("Paris", "is", "far"))]
    predictions = answers(TASKS["wnut17"], logits, firsts, examples, LABELS)
    assert predictions == [["B-loc", "O", "O"]]


def test_goals_that_are_missed_are_marked() -> None:
    near, far = [0.40, 0.42, 0.44], [0.50, 0.52, 0.54]
    (good,) = lines_of(compared(both(near, near, (10, 21))))
    assert not any("missed" in text for text in good) and good[1] == "3"
    (bad,) = lines_of(compared(both(near, far, (10, 19), padding=0.2)))
    assert [text for text in bad if "missed" in text] == [
        "-5.00 (missed)", "1.90 (missed)", "20.0% (missed)"
    ]  # fmt: skip
    (one,) = lines_of(compared(both(near[:1], far[:1], (10, 21))))
    assert one[5] == "–" and one[1] == "1"


def test_allocators_are_not_mixed() -> None:
    rows = both([0.4, 0.5], [0.4, 0.5], (10, 21)) + both([0.4], [0.4], (10, 18), same=True)
    table = compared(rows)
    assert [(row["same_allocator"], row["seeds"], row["ratio"]) for row in table] == [
        (False, 2, 2.1), (True, 1, 1.8)
    ]  # fmt: skip
    text = section(rows)
    check_chinese("fine-tuning", text)
    assert "WNUT-17, fp32, same allocator" in text and "keeps the memory it frees" in text
    sides = (("ours", False), ("theirs", False), ("theirs", True))
    settings = [TASKS["wnut17"].settings(side, 1, "fp32", same) for side, same in sides]
    allocators = [each["allocator"] for each in settings]
    assert allocators == ["keeps freed memory", "as it comes", "keeps freed memory"]


def test_tasks_alone_have_a_row_for_each_precision() -> None:
    rows = [cell("copa", "ours", seed, 0.5 + seed / 100, 9.0) for seed in (1, 2, 3)]
    rows += [cell("copa", "ours", 1, 0.6, 5.0, precision="bf16")]
    table = alone(rows)
    assert [line[:2] for line in table] == [["COPA, fp32", "3"], ["COPA, bf16", "1"]]
    assert table[0][3:] == [TASKS["copa"].how, "accuracy 0.520 ± 0.010"]


def test_a_cell_of_other_hyper_parameters_is_known() -> None:
    row = cell("wnut17", "ours", 1, 0.4, 9.0)
    assert settings_of(row, TASKS) == row["settings"]
    row["settings"]["rate"] = 3e-5
    assert settings_of(row, TASKS) != row["settings"]
    assert settings_of(row | {"task": "gone"}, TASKS) is None
