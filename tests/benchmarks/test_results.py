"""The page of pre-training: all cells that there are, and what it says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import results
from pretraining_words import MEMORIES, beside_ngram, remembering

from tests.benchmarks.bilingual import check_chinese
from tests.refusals import refuses

TOKENS = 1_200_000
BUDGET = 1_196_032


def row(name: str, best: float, objective: str = "causal", measure: str = "bits_per_byte") -> Any:
    return {
        "cell": name, "model": "gpt", "objective": objective, "data": "docs", "parameters": 5e6,
        "tokens": BUDGET, "seconds": 100.0, "peak_memory": 1e9, "step_flops": 1e9, "steps": 292,
        "curve": [{"tokens": BUDGET // 2, measure: best + 0.1}, {"tokens": BUDGET, measure: best}],
    }  # fmt: skip


def memory(name: str, rows: int, figure: float, measure: str = "bits_per_byte") -> Any:
    return {"memory": rows, measure: figure, "settings": {"cell": name, "own": 256}}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Cells as a finished run leaves them."""
    rows = [row("GPT", 2.03), row("Transformer-XL", 1.6, "recurrent"),
            row("Transformer-XL, no memory", 1.59),
            row("BERT", 0.4, "sentences", "masked_accuracy")]  # fmt: skip
    (tmp_path / "cells").mkdir()
    files = {cell.name: results.file_of(cell) for cell in results.CELLS}
    for each in rows:
        (tmp_path / "cells" / files[each["cell"]]).write_text(json.dumps(each))
    ngram = json.dumps({"bits_per_byte": 1.674})
    (tmp_path / "cells" / "ngram-docs.json").write_text(ngram)
    for length, figure in {0: 1.7, 256: 1.6, 64: 1.65}.items():
        file = tmp_path / "cells" / f"memory-transformer-xl-{length}.json"
        file.write_text(json.dumps(memory("Transformer-XL", length, figure)))
    return tmp_path


def test_the_page_is_made_of_every_cell(out: Path) -> None:
    cells = results.found_in(out / "cells", out, TOKENS)
    text = results.page(cells, ["GPT, Chinese"])
    check_chinese("pretraining", text)
    for name in ("GPT", "Transformer-XL", "Transformer-XL, no memory", "BERT"):
        assert f"\n| {name} |" in text
    assert "Left out for want of its text: GPT, Chinese." in text
    assert text.index("| 0 | 1.7 |") < text.index("| 64 | 1.65 |") < text.index("| 256 | **1.6** |")
    assert "whatever else it did" in text


def test_a_cell_of_another_budget_is_refused(out: Path) -> None:
    with refuses(SystemExit, "GPT", "1,196,032", "2,000,000"):
        results.found_in(out / "cells", out, 2_000_000)


def test_a_cell_whose_run_has_other_settings_is_refused(out: Path) -> None:
    run = out / "runs" / "gpt"
    run.mkdir(parents=True)
    batch = '[batch]\nseq_len = 256\nsize = {}\n[engine]\ncompile = "no"\n'
    valid = "[validation]\nsamples = 1000000\n"
    (run / "recipe.toml").write_text(batch.format(16) + valid)
    assert results.found_in(out / "cells", out, TOKENS).rows
    (run / "recipe.toml").write_text(batch.format(8) + valid)
    with refuses(SystemExit, "batch.size 8", "16"):
        results.found_in(out / "cells", out, TOKENS)


def test_the_distance_to_the_ngram_in_words() -> None:
    rows = [row("GPT", 2.03), row("Transformer-XL", 1.6)]
    first, second = beside_ngram(rows, {"docs": {"bits_per_byte": 1.674}}).splitlines()
    check_chinese("pretraining", f"{first}\n{second}")
    assert "0.356 bits per byte above the n-gram; it has not yet passed it" in first
    assert "0.074 bits per byte below the n-gram, passed after 1.20 M tokens" in second


@pytest.mark.parametrize(
    ("with_it", "without", "nothing", "verdict"),
    [
        (1.6, 1.7, 1.75, "So the memory is used, and it helps."),
        (1.6, 1.59, 1.7, "but it gives less than was lost by how these weights learned"),
        (1.6, 1.59, 1.6, "So they have not learned, at this budget, to use what they remember."),
    ],
)
def test_what_a_memory_is_worth_in_words(
    with_it: float, without: float, nothing: float, verdict: str
) -> None:
    name = "Transformer-XL"
    rows = [row(name, with_it), row(MEMORIES[name], without)]
    others = [memory(name, 0, nothing), memory(name, 256, with_it)]
    text = "\n".join(remembering(rows, {name: others}))
    assert verdict in text
    check_chinese("pretraining", text)
    better = "with the memory" if with_it < without else "without the memory"
    assert f"{better} is better, by {abs(with_it - without):.3g}" in text


def test_no_word_without_cells() -> None:
    assert remembering([row("GPT", 2.0)], {}) == []
    rows = [row("XLNet", 80.0, "permuted", "permuted_perplexity"),
            row("XLNet, no memory", 70.0, "permuted", "permuted_perplexity")]  # fmt: skip
    text = "\n".join(remembering(rows, {}))
    assert "XLNet: permuted perplexity 80 with a memory, 70 without one" in text
    assert "Of the same weights" not in text
