"""A share of the BabyLM setting: what was read is counted, and what was not is extrapolated."""

from __future__ import annotations

import json
from pathlib import Path

import babylm
import pytest

from tests.benchmarks.bilingual import check_chinese

PAIR = {"sentence_good": "The cat sleeps.", "sentence_bad": "The cat sleep."}


@pytest.mark.slow
def test_a_share_is_measured_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, pairs = tmp_path / "cats.txt", tmp_path / "pairs.jsonl"
    text.write_text(
        "".join(f"Cat {i} sleeps, and dog {i * i} barks at it.\n\n" for i in range(4000))
    )
    pairs.write_text(json.dumps(PAIR) + "\n")
    words = ["--data", str(text), "--families", "gpt", "--minutes", "0.15", "--threads", "1",
             "--pairs", str(pairs), "--out", str(tmp_path / "out")]  # fmt: skip
    babylm.main([*words, "--json"])
    (cell,) = json.loads(capsys.readouterr().out)
    assert cell["metric"] == "bits_per_byte" and cell["words"] > 1000
    assert cell["pairs"].keys() <= {"100k", "200k"}
    assert cell["extrapolated_hours"] == pytest.approx(1e8 / cell["words"] * cell["seconds"] / 3600)
    page = tmp_path / "results.md"
    babylm.main([*words, "--page", str(page)])
    shown = capsys.readouterr().out.strip()
    assert shown in page.read_text() and shown.count("(extrapolated)") == 1
    section = page.read_text().partition("-->\n")[2].partition("\n<!-- end")[0]
    chinese = check_chinese("babylm", section.replace("with cats,", "with docs,"))
    translated = page.with_suffix(".zh.md").read_text("utf-8")
    assert chinese.replace("和 docs 生成", "和 cats 生成") in translated


def test_an_hour_is_the_speed_times_a_hundred_million_words() -> None:
    assert babylm.hours({"words": 1e6, "seconds": 72.0}) == pytest.approx(2.0)
