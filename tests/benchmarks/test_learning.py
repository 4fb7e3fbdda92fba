"""scripts/learning.py: a cell is measured once, and the law of sizes is fitted to what was
measured."""

import json

import learning
import pytest
from learning_cells import STAGES, Cell, sizes
from learning_sizes import fitted, law, loss, taken, tried

from regard.models.family import SHAPES, Shape
from tests.benchmarks.bilingual import check_chinese

MIDDLE = Shape(3, 192, 3)


def test_the_same_training_has_the_same_key_whatever_it_is_called():
    usual = Cell("", "gpt")
    assert usual.key == Cell("the usual length", "gpt", ("batch.seq_len=256",)).key
    assert usual.key != Cell("", "gpt", ("batch.seq_len=64",)).key != Cell("", "gpt", seed=2).key
    for stage in STAGES.values():
        cells = list(stage())
        names = {(c.change, c.family, c.text, c.minutes, c.seed) for c in cells}
        assert len(names) == len({c.key for c in cells}) == len(cells)


def test_what_is_recorded_stands_on_the_page_and_is_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "RECORD", tmp_path / "learning.jsonl")
    cell = next(STAGES["probe"]())
    result = {"metric": "bits_per_byte", "value": 1.5, "tokens": 10**6, "parameters": 10**6,
              "cpu_seconds": 1.0}  # fmt: skip
    learning.record(cell, result)
    learning.record(Cell("", "bert"), result)
    line = json.loads((tmp_path / "learning.jsonl").read_text().splitlines()[0])
    assert line["settings"] == [["batch.seq_len", "256"], ["batch.size", "4"]]
    assert list(learning.recorded()) == [cell.key, Cell("", "bert").key]
    assert "| gpt | docs | 1 | the usual recipe | bits per byte | 1.500 |" in learning.page()
    chinese = check_chinese("learning", learning.page())
    assert "| gpt | docs | 1 | 通常的配方 | 每字节比特数 | 1.500 |" in chinese


def made(**values: float) -> dict:
    """Lines of cells whose bits per byte are given by size and minutes."""
    names = {f"{cell.change[0]}at{cell.minutes:g}": cell.key for cell in sizes()}
    return {names[name]: {"value": value} for name, value in values.items()}


def test_the_law_is_fitted_to_the_best_sizes():
    lines = made(**{"2at1": 1.6, "3at1": 1.7, "4at1": 1.8, "2at3": 1.6, "3at3": 1.5, "4at3": 1.7})
    budgets = tried(sizes(), lines)
    assert budgets[3.0][MIDDLE] == 1.5 and budgets[1.0][SHAPES["tiny"]] == 1.6
    low, high = fitted(budgets)
    assert loss(budgets, (low + high) / 2) == 0 < loss(budgets, low / 2)
    assert taken(3.0, budgets[3.0], high) == MIDDLE
    assert loss(budgets, 1.1 * high) == pytest.approx((1.6 / 1.5 - 1) / 2)
    assert "| 3 | 3 | 3 layers of 192 | 1.500 |" in law(sizes(), lines)
    check_chinese("learning", law(sizes(), lines))
    assert law(sizes(), {}) == ""
