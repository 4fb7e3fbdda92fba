"""Not to be too sure."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained, opened
from regard.lab.claims.engine.rules import All, Less, Provided, Ratio, Within
from regard.lab.claims.engine.texts import numerals

ASKED = 300  # pairs that are written out


def exact(run: Path, cell: Cell) -> dict[str, float]:
    """How many targets are written without a mistake, word by word and the likeliest first."""
    from regard.decoding.generation import generate

    corpus, loaded = opened(run)
    edges = np.asarray(corpus.sentences)[: 2 * ASKED + 1].tolist()
    parts = [corpus.read(a, b).tolist() for a, b in pairwise(edges)]
    written = generate(loaded, parts[::2], tokens=20, temperature=0)
    right = [
        made[0].ids[: len(target)] == target
        for made, target in zip(written, parts[1::2], strict=True)
    ]
    return {"accuracy": sum(right) / len(right)}


CLAIM = Claim(
    name="label-smoothing",
    statement=Said(
        "Label smoothing makes the perplexity worse, but not what is written.",
        "标签平滑使困惑度变差，但写出的结果并不变差。",
    ),
    source="Vaswani et al. 2017, 5.4 and table 3, rows (D)",
    setting=Said(
        "A Transformer of one layer on each side learns to write numbers below a million in words, "
        "from 18,000 pairs, with ε = 0 and with ε = 0.1. Accuracy is the share of 300 unseen "
        "numbers that come out whole, greedily.",
        "每边一层的 Transformer 用 18,000 对数据学习把一百万以下的数写成英文，ε 为 0 或 0.1。"
        "准确率是 300 个没见过的数贪心写出、完全正确的比例。",
    ),
    arms=("plain", "smoothed"),
    experiment=Trained(
        numerals,
        common={
            "model": "transformer", "size": "tiny", "batch": {"length": 32, "samples": 64},
            "optimizer": {"name": "adamw", "rate": 1e-3}, "schedule": {"name": "linear",
            "warmup": 0.1}, "validation": {"samples": 300},
        },
        arms={
            "plain": {"objective": {"name": "pairs", "smoothing": 0.0}},
            "smoothed": {"objective": {"name": "pairs", "smoothing": 0.1}},
        },
        steps=500,
        look=exact,
    ),
    rule=Provided(
        Within("accuracy", "plain", least=0.5),
        All((
            Less("perplexity", "plain", "smoothed"),
            Ratio("accuracy", "smoothed", "plain", least=0.98),
        )),
    ),
    charts=(
        Chart("perplexity", Said("perplexity", "困惑度"), logarithmic=True),
        Chart("accuracy", Said("accuracy", "准确率")),
    ),
    printed={
        "plain": "perplexity 4.67, BLEU 25.3",
        "smoothed": "perplexity 4.92, BLEU 25.8 (ε = 0.1)",
    },
    minutes=3,
)  # fmt: skip
