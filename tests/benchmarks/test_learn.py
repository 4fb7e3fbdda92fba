"""The board: what is measured once is not measured again, and the table says what the cells say."""

from __future__ import annotations

import json
import math
import pickletools
from pathlib import Path
from typing import Any

import learn
import learn_sides
import numpy as np
import pytest

from regard.data.corpus import Corpus
from tests.benchmarks.bilingual import check_chinese
from tests.command import run as called

CURVES = {
    "gpt": [[10.0, 3.0], [20.0, 2.0], [30.0, 1.5]],
    "nanogpt": [[10.0, 3.0], [30.0, 2.5]],
    "trainer-gpt2": [[30.0, 3.0]],
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared text."""
    place = tmp_path_factory.mktemp("board")
    lines = [
        f"Line {i} says: {i * i} is the square of {i}, naïve as it is.\n\n" for i in range(300)
    ]
    (place / "squares.txt").write_text("".join(lines))
    done = called("prepare", place / "squares.txt", "--out", place / "data", "--vocab-size", "400")
    assert done.exit_code == 0, done.output
    return place


def job(text: Path, place: Path, **changes: Any) -> learn_sides.Job:
    usual = learn_sides.Job(text / "data", 0.03, 1, 1, "tiny", None, place)
    return usual._replace(**changes)


def test_a_board_goes_on_where_it_was_stopped(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    def cell(script: str, words: list[str]) -> dict[str, Any]:
        side = words[words.index("--side") + 1]
        measured.append(side)
        if side == "nanogpt" and measured.count(side) == 1:
            raise KeyboardInterrupt
        curve = CURVES.get(side, [])
        value = curve[-1][1] if curve else 1.8
        return learn_sides.cell("bits_per_byte", value, 30.0, [(s, v) for s, v in curve])

    monkeypatch.setattr(learn, "in_process", cell)
    monkeypatch.setattr(learn, "find_spec", lambda library: library)
    (tmp_path / "nano").mkdir()
    (tmp_path / "nano" / "train.py").write_text("")
    words = ["--data", str(text / "squares.txt"), "--minutes", "0.5", "--families", "gpt",
             "--nanogpt", str(tmp_path / "nano"), "--out", str(tmp_path / "out")]  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        learn.main(words)
    assert measured == ["ngram", "gpt", "nanogpt"]
    learn.main([*words, "--most", "1"])
    assert measured == ["ngram", "gpt", "nanogpt", "nanogpt"]
    assert "| trainer-gpt2 |" not in capsys.readouterr().out
    learn.main(words)
    assert measured == ["ngram", "gpt", "nanogpt", "nanogpt", "trainer-gpt2"]
    shown = capsys.readouterr().out
    assert (
        "| gpt | bits per byte | 1.500 | 30 | 24 s | nanogpt × 0.600, trainer-gpt2 × 0.500 |"
        in shown
    )
    assert "not yet" in shown
    page = tmp_path / "docs" / "results.md"
    learn.main([*words, "--page", str(page), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert len(measured) == 5 and len(rows) == 4
    assert json.loads((tmp_path / "out" / "board.json").read_text())["rows"] == rows
    assert shown.strip() in page.read_text() and "<!-- begin board -->" in page.read_text()
    section = page.read_text().partition("-->\n")[2].partition("\n<!-- end")[0]
    chinese = check_chinese("board", section.replace("| squares |", "| sotu |"))
    translated = page.with_suffix(".zh.md").read_text("utf-8")
    assert chinese.replace("| sotu |", "| squares |") in translated
    cells = (page.parent / "results" / "board.jsonl").read_text().splitlines()
    assert [json.loads(line)["value"] for line in cells] == [1.8, 1.5, 2.5, 3.0]
    picture = (tmp_path / "out" / "curves.html").read_text()
    assert all(name in picture for name in ("gpt", "nanogpt", "trainer-gpt2", "5-gram"))


def test_what_misses_its_goal_is_marked() -> None:
    row = {"text": "a", "minutes": 3.0, "side": "gpt", "metric": "bits_per_byte", "values": [1.8],
           "seconds": 180.0}  # fmt: skip
    shown = learn.in_words([row | {"ratio": {"nanogpt": 0.93, "trainer-gpt2": 0.84}}])
    assert "nanogpt × 0.930 (missed), trainer-gpt2 × 0.840 |" in shown


def test_the_time_to_beat_a_value() -> None:
    assert learn.time_to_beat([[10, 3.0], [20, 2.0], [30, 1.5]], 1.75) == 25
    assert learn.time_to_beat([[10, 1.0]], 2.0) == 10
    assert learn.time_to_beat([[10, 3.0], [20, 2.0]], 2.0) is None
    assert learn.time_to_beat([], 2.0) is None


@pytest.mark.parametrize(
    "words",
    [["--families", "gbt"], ["--others", "x"], ["--minutes", "0"], ["--data", "missing.txt"],
     ["--nanogpt", "."], ["--threads", "0"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_what_would_fail_after_an_hour_is_refused_at_once(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        learn.main(words)
    assert words[1] in capsys.readouterr().err or words[0] in ("--minutes", "--threads")


def test_the_trainer_is_refused_without_its_library(
    text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learn, "find_spec", lambda library: None)
    words = ["--data", str(text / "squares.txt")]
    with pytest.raises(SystemExit):
        learn.main(words)
    assert "accelerate" in capsys.readouterr().err
    assert learn.checked([*words, "--others", "ngram"]).others == ["ngram"]


def test_characters_are_the_text_of_our_splits(text: Path, tmp_path: Path) -> None:
    size = learn_sides.write_characters(text / "data", tmp_path)
    whole = (text / "squares.txt").read_text()
    letters = sorted(set(whole))
    written = {name: np.fromfile(tmp_path / f"{name}.bin", np.uint16) for name in ("train", "val")}
    train, valid = ("".join(letters[i] for i in written[name]) for name in ("train", "val"))
    assert train.startswith("Line ") and all(line + "\n\n" in whole for line in valid.split("\n\n"))
    assert 1 < size < 1.1 and len(valid.encode()) / len(valid) == size
    separators = 2 * (valid.count("\n\n"))
    assert len(valid.encode()) - separators == Corpus.open(text / "data", "valid").bytes
    names = [str(op[1]) for op in pickletools.genops((tmp_path / "meta.pkl").read_bytes())]
    assert ["vocab_size", str(len(letters))] == [name for name in names if name != "None"]


def test_nanogpt_is_timed_without_its_measuring(text: Path, tmp_path: Path) -> None:
    """A stand-in prints what nanoGPT prints: a step takes 60 ms, and measuring 5 s more."""
    (tmp_path / "train.py").write_text(
        "import sys\n"
        "options = dict(word[2:].split('=') for word in sys.argv[2:])\n"
        "last, every = int(options['max_iters']), int(options['eval_interval'])\n"
        "assert options['lr_decay_iters'] == options['max_iters'] and options['n_embd'] == '128'\n"
        "for i in range(last + 1):\n"
        "    if i % every == 0:\n"
        "        print(f'step {i}: train loss 1.0, val loss {4 - 2 * i / last:.4f}')\n"
        "    print(f'iter {i}: loss 2.0, time {5060 if i % every == 0 else 60:.2f}ms, mfu 0%')\n"
    )
    done = learn_sides.learn(job(text, tmp_path / "w", nanogpt=tmp_path, minutes=1.0), "nanogpt")
    assert done["steps"] == 1000 and done["seconds"] == pytest.approx(60)
    assert len(done["curve"]) == learn_sides.POINTS
    size = learn_sides.write_characters(text / "data", tmp_path / "again")
    assert done["value"] == pytest.approx(2 / math.log(2) / size)
    assert done["curve"][0] == pytest.approx((6, 3.8 / math.log(2) / size))


def test_the_ngram(text: Path, tmp_path: Path) -> None:
    done = learn_sides.learn(job(text, tmp_path), "ngram")
    command = called("evaluate", text / "data", "--baseline", "--json")
    assert done["value"] == pytest.approx(json.loads(command.stdout)["bits_per_byte"])


@pytest.mark.slow
@pytest.mark.parametrize("side", ["gpt", "bert"])
def test_our_sides_by_their_commands(side: str, text: Path, tmp_path: Path) -> None:
    done = learn_sides.learn(job(text, tmp_path), side)
    assert done["metric"] == {"gpt": "bits_per_byte", "bert": "masked_accuracy"}[side]
    assert done["steps"] > 0 and done["seconds"] > 0 and done["curve"]
    assert done["curve"][-1][0] <= done["seconds"] + 1e-6
    if side == "gpt":
        measured = learn_sides.measured(tmp_path / "run", text / "data")
        assert measured == ("bits_per_byte", pytest.approx(done["value"], rel=1e-3))


@pytest.mark.slow
@pytest.mark.parametrize(("side", "metric"), [("trainer-gpt2", "bits_per_byte"),
                                              ("trainer-bert", "masked_accuracy")])  # fmt: skip
def test_the_trainer_by_its_defaults(side: str, metric: str, text: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")  # which the Trainer needs
    done = learn_sides.learn(job(text, tmp_path), side)
    assert done["metric"] == metric and done["steps"] >= learn_sides.POINTS
    assert done["curve"][-1] == (done["seconds"], done["value"])
    times = [seconds for seconds, _ in done["curve"]]
    assert times == sorted(times) and len(times) >= learn_sides.POINTS
