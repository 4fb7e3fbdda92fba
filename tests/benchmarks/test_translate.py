"""Translation beside Marian: what is compared with what, and what is marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from translate import groups, job_of, named, section, summary, told
from translate_sides import Job, text_of

import regard
from regard.decoding import generate
from regard.training import run as runs
from tests.benchmarks.bilingual import check_chinese
from tests.training.small import data, recipe

JOB = Job(Path("data"), 1, 8.0, 0, "bf16")


def cell(job: Job, side: str, tokens: int, bleu: float, perplexity: float = 20.0) -> Any:
    ways = ("greedy, last", "beam 4, last", *(["beam 4, average"] if side == "ours" else []))
    return {
        "parameters": 7_000_000,
        "steps": tokens // 1000,
        "tokens": tokens,
        "loss": 3.0,
        "perplexity": perplexity,
        "scores": {way: {"bleu": bleu, "chrf": bleu} for way in ways},
        "signature": "tok:zh",
        "pairs": 900,
        "held": 100,
        "settings": job.settings(side),
    }


def pair(job: Job, tokens: tuple[int, int], bleu: tuple[float, float], **more: Any) -> Any:
    apart = more.get("apart", 1.0)
    return [
        cell(job, "ours", tokens[0], bleu[0]),
        cell(job, "theirs", tokens[1], bleu[1], 20.0 * apart),
    ]


def test_what_differs_is_not_compared() -> None:
    jobs = [JOB, replace(JOB, width=128), replace(JOB, vocabulary=4000), replace(JOB, dropout=0.0),
            replace(JOB, same_allocator=True), replace(JOB, precision="fp32")]  # fmt: skip
    rows = [row for job in jobs for row in pair(job, (3000, 2000), (9.0, 8.0))]
    rows.append(cell(replace(JOB, seed=2), "ours", 3000, 9.0))  # without a peer
    pairs_of = groups(rows)
    assert [len(sides["ours"]) for sides in pairs_of] == [1] * len(jobs)
    names = {named(sides["ours"][0]["settings"]) for sides in pairs_of}
    assert names == {
        "8 minutes, bf16", "8 minutes, bf16, width 128", "8 minutes, bf16, vocabulary 4000",
        "8 minutes, bf16, dropout 0", "8 minutes, bf16, same allocator", "8 minutes, fp32",
    }  # fmt: skip
    text = section(rows)
    check_chinese("translation", text)
    assert "8,000 entries" in text and "width 128, 2 heads" in text


def test_settings_make_the_job_again() -> None:
    job = replace(JOB, minutes=0.0, steps=400, same_allocator=True)
    assert job_of(job.out, job.settings("theirs")) == job
    assert job.settings("theirs")["allocator"] == job.settings("ours")["allocator"]
    assert JOB.settings("theirs")["allocator"] != JOB.settings("ours")["allocator"]


@pytest.mark.parametrize(
    ("tokens", "bleu", "reached"),
    [
        ((3000, 2000), (9.0, 8.0), (True, True)),
        ((2900, 2000), (9.0, 8.0), (False, True)),
        ((3000, 2000), (8.0, 8.0), (True, False)),
    ],
)
def test_goals_of_equal_minutes(tokens: Any, bleu: Any, reached: Any) -> None:
    (sides,) = groups(pair(JOB, tokens, bleu))
    facts = summary(sides)
    assert tuple(facts["reached"].values()) == reached
    assert told(facts).count("(missed)") == 2 - sum(reached)
    check_chinese("translation", told(facts))


def test_goals_of_equal_steps() -> None:
    job = replace(JOB, minutes=0.0, steps=400)
    near, far = (8.0, 8.2, 8.4), (9.0, 9.2, 9.4)

    def summary_of(job: Job, theirs: tuple[float, ...], **more: Any) -> Any:
        rows = [
            row
            for seed, (a, b) in enumerate(zip(near, theirs, strict=False), 1)
            for row in pair(replace(job, seed=seed), (2000, 2000), (a, b), **more)
        ]
        return summary(groups(rows)[0])

    assert all(summary_of(job, near)["reached"].values())
    assert not summary_of(job, far)["reached"]["scores"]
    one = summary_of(job, far[:1])
    assert one["reached"]["scores"] and "cannot tell a difference from noise" in told(one)
    check_chinese("translation", told(one))
    exact = replace(job, dropout=0.0)
    assert summary_of(exact, near[:1], apart=1.005)["reached"]["scores"]
    assert not summary_of(exact, near[:1], apart=1.02)["reached"]["scores"]


def test_what_theirs_writes_is_read_as_ours_is(tmp_path: Path) -> None:
    where = data(tmp_path / "data", kind="pairs")
    runs.train(recipe("transformer", where), tmp_path / "run", display="silent")
    loaded = regard.load(tmp_path / "run")
    texts = generate(loaded, ["w8 w9", "w10"], max_new_tokens=12, min_new_tokens=6)
    for (best,) in texts:
        pad = loaded.config.pad_id
        assert best.text and text_of(loaded, [pad, *best.ids, pad, pad]) == best.text
