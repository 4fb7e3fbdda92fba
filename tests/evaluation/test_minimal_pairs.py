"""Minimal pairs: the scores are those of transformers, the figures are computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from regard.cli.main import main
from regard.core.errors import ConfigError, InputError
from regard.evaluation.minimal_pairs import SentencePair, summarized
from regard.evaluation.options import EvaluateOptions as Plan
from regard.evaluation.test import examine
from tests.decoding.small import ZOO, tokenizer
from tests.evaluation.likelihoods import bert, gpt2, speaking
from tests.html import Page
from tests.refusals import refuses

PAIRS = [
    ("The cat sat on the mat.", "The cat on sat the mat.", "order", "syntax"),
    ("The dog did not.", "The dog not did.", "order", "syntax"),
    ("It's not the dog.", "It's not dog the.", "article", "syntax"),
    ("猫坐在垫子上。", "猫坐垫子在上。", "chinese", "other"),
]


def write(file: Path, rows: list[Any]) -> str:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    file.write_text("".join(f"{line}\n" for line in lines))
    return str(file)


def blimp(place: Path) -> str:
    names = ("sentence_good", "sentence_bad", "UID", "linguistics_term")
    rows = [dict(zip(names, pair, strict=True)) | {"field": "grammar"} for pair in PAIRS]
    return write(place / "blimp.jsonl", rows)


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def agrees(out: Path, result: dict[str, Any], expected: list[tuple[float, float]]) -> None:
    rows = rows_of(out)
    scores = [(row["good_score"], row["bad_score"]) for row in rows]
    assert np.array(scores) == pytest.approx(np.array(expected), abs=1e-4)
    right = [good > bad for good, bad in expected]
    assert [row["right"] for row in rows] == right
    macro = (sum(right[:2]) / 2 + right[2] + right[3]) / 3
    expected_figures = {"macro_accuracy": macro, "accuracy": sum(right) / 4}
    assert result["figures"] == pytest.approx(expected_figures)
    syntax = (sum(right[:2]) / 2 + right[2]) / 2
    assert [(row["label"], row["accuracy"]) for row in result["phenomena"]] == [
        ("syntax", syntax), ("other", float(right[3])),
    ]  # fmt: skip
    assert [row["label"] for row in result["paradigms"]] == ["order", "article", "chinese"]
    wrong = [row["gold"] for row in result["worst"]]
    assert sorted(wrong) == sorted(p[0] for p, ok in zip(PAIRS, right, strict=True) if not ok)


def test_a_causal_model_is_scored_by_log_likelihood(tmp_path: Path) -> None:
    theirs = hf.GPT2LMHeadModel.from_pretrained(gpt2(tmp_path / "gpt2"))
    words = tokenizer("bytes-bpe")
    end = words.encode("<|endoftext|>")

    def total(text: str) -> float:
        ids = torch.tensor([*end, *words.encode(text, special=False)])
        with torch.inference_mode():
            log_p = theirs(ids[None]).logits[0, :-1].log_softmax(-1)
        return float(log_p.gather(1, ids[1:, None]).sum())

    out = tmp_path / "out"
    result = examine(str(tmp_path / "gpt2"), [blimp(tmp_path)], Plan(pairs=True, out=out))
    assert result["measure"] == "log-likelihood"
    agrees(out, result, [(total(good), total(bad)) for good, bad, *_ in PAIRS])


def test_a_masked_model_is_scored_by_pseudo_log_likelihood(tmp_path: Path) -> None:
    theirs = hf.BertForMaskedLM.from_pretrained(bert(tmp_path / "bert"))
    words = tokenizer("wordpiece")
    cls, sep, mask = (words.ready.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]"))

    def total(text: str) -> float:
        ids = [cls, *words.encode(text, special=False), sep]
        sums = 0.0
        for place in range(1, len(ids) - 1):
            row = torch.tensor([[*ids[:place], mask, *ids[place + 1 :]]])
            with torch.inference_mode():
                sums += float(theirs(row).logits[0, place].log_softmax(-1)[ids[place]])
        return sums

    out = tmp_path / "out"
    result = examine(str(tmp_path / "bert"), [blimp(tmp_path)], Plan(pairs=True, out=out))
    assert result["measure"] == "pseudo-log-likelihood"
    assert any("pseudo-log-likelihood" in note for note in result["notes"])
    agrees(out, result, [(total(good), total(bad)) for good, bad, *_ in PAIRS])


def test_the_command_the_page_and_the_names_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpt2(tmp_path / "gpt2")
    plain = [{"sentence_good": good, "sentence_bad": bad} for good, bad, *_ in PAIRS]
    files = [write(tmp_path / f"{name}.jsonl", plain[i:]) for i, name in enumerate(("all", "less"))]
    out = tmp_path / "out"
    words = ["evaluate", str(tmp_path / "gpt2"), "--pairs", *files, "--out", str(out)]
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    rows = result["phenomena"]
    assert [(row["label"], row["pairs"]) for row in rows] == [("all", 4), ("less", 3)]
    assert result == json.loads((out / "test.json").read_text())
    page = Page((out / "report.html").read_text())
    columns = ("paradigms", "pairs", "accuracy")
    assert page.table("phenomena") == [[row[name] for name in columns] for row in rows]
    assert "macro accuracy" in page.text and "宏平均准确率" in page.text
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "phenomenon" in shown.out and "less" in shown.out
    assert "scored by its log-likelihood" in shown.err
    assert main([*words, "--limit", "2", "--json"]) == 0
    limited = json.loads(capsys.readouterr().out)
    assert limited["examples"] == 2 and len(limited["phenomena"]) == 1


def test_intervals_are_drawn_within_paradigms_and_each_counts_the_same() -> None:
    from regard.data.problems import NOWHERE

    names = ["large"] * 400 + ["small"] * 4
    pairs = [SentencePair(NOWHERE, "a", "b", name, name, "") for name in names]
    right = [i % 4 > 0 for i in range(400)] + [False] * 4
    result = summarized(pairs, right, resamples=2000, seed=1)
    assert result["figures"] == {"macro_accuracy": 0.375, "accuracy": 300 / 404}
    low, high = result["intervals"]["macro_accuracy"]
    spread = 1.96 * (0.75 * 0.25 / 400) ** 0.5 / 2  # the small one is always 0
    assert (low, high) == pytest.approx((0.375 - spread, 0.375 + spread), abs=0.005)
    assert result["paradigms"][1]["interval"] == [0.0, 0.0]
    assert result == summarized(pairs, right, resamples=2000, seed=1)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"sentence_good": "a b"}, ["sentence_bad", "missing-field"]),
        ({"sentence_good": "a b", "sentence_bad": 3}, ["sentence_bad", "wrong-type"]),
        ({"sentence_good": "a b", "sentence_bad": " "}, ["sentence_bad", "empty-text"]),
        ({"sentence_good": "a b", "sentence_bad": "a b "}, ["a b", "contradiction"]),
        ("{", ["malformed-record"]),
        ("[1]", ["malformed-record"]),
    ],
    ids=str,
)
def test_wrong_pairs_are_refused_with_file_and_line(
    row: Any, named: list[str], tmp_path: Path
) -> None:
    gpt2(tmp_path / "gpt2")
    fine = {"sentence_good": "The cat sat", "sentence_bad": "The sat cat"}
    file = write(tmp_path / "pairs.jsonl", [fine, row, fine])
    plan = Plan(pairs=True, out=tmp_path / "out")
    with refuses(InputError, f"{file}:2", *named):
        examine(str(tmp_path / "gpt2"), [file], plan)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    gpt2(tmp_path / "gpt2")
    run, file = str(tmp_path / "gpt2"), blimp(tmp_path)
    empty = write(tmp_path / "empty.jsonl", [])
    plan = Plan(pairs=True, out=tmp_path / "out")
    with refuses(InputError, empty, "sentence_good"):
        examine(run, [file, empty], plan)
    with refuses(InputError, "missing.jsonl"):
        examine(run, [str(tmp_path / "missing.jsonl")], plan)
    long = write(tmp_path / "long.jsonl", [{"sentence_good": "cat " * 80, "sentence_bad": "cat"}])
    with refuses(InputError, f"{long}:1", "64"):
        examine(run, [long], plan)
    with refuses(ConfigError, "--task"):
        examine(run, [file], Plan(pairs=True, task="classify", out=tmp_path / "out"))
    with refuses(ConfigError, "--seq-len"):
        examine(run, [file], Plan(pairs=True, length=8, out=tmp_path / "out"))
    t5 = speaking(next(specimen for specimen in ZOO if specimen.name == "t5"))
    t5.save(tmp_path / "t5")
    with refuses(ConfigError, "T5", "source"):
        examine(str(tmp_path / "t5"), [file], plan)
