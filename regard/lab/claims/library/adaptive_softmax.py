"""Rare words at a discount."""

from __future__ import annotations

from pathlib import Path

from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained, opened, seconds
from regard.lab.claims.engine.rules import All, Provided, Ratio, Within
from regard.lab.claims.engine.texts import many_words

ROWS = 2048


def output(run: Path, cell: Cell) -> dict[str, float]:
    """Seconds of the output alone, forward and backward, for words as frequent as in the text."""
    import torch

    corpus, loaded = opened(run)
    model = loaded.model
    words = torch.from_numpy(corpus.read(0, ROWS)).long()
    draw = torch.Generator().manual_seed(cell.seed)
    rows = torch.randn(ROWS, model.config.width, generator=draw, requires_grad=True)

    def once() -> None:
        model.zero_grad()
        model.output.surprisal(rows, words).backward()

    return {"output": seconds(once, least=1.0)}


CLAIM = Claim(
    name="adaptive-softmax",
    statement=Said(
        "An adaptive softmax takes a fraction of the output's time, for a few percent of "
        "perplexity.",
        "自适应 softmax 只用输出层时间的一小部分，代价是困惑度上升百分之几。",
    ),
    source="Grave et al. 2017, table 3",
    setting=Said(
        "A Transformer-XL of two layers reads whole words, 16,000 of them, with a full softmax and "
        "with one of three clusters whose rare ones are narrower. Seconds of the output are taken "
        "alone.",
        "两层的 Transformer-XL 以整词（16,000 个）阅读：一次用完整 softmax，一次用三簇的自适应 "
        "softmax，稀有簇的向量更窄。单独计输出层的秒数。",
    ),
    arms=("full", "adaptive"),
    experiment=Trained(
        many_words,
        common={
            "model": "transformer-xl", "size": "tiny", "batch": {"length": 64, "samples": 16},
            "objective": {"name": "recurrent"},
            "optimizer": {"name": "adamw", "rate": 1e-3, "clip": 0.25},
            "schedule": {"name": "cosine", "warmup": 0.1}, "validation": {"samples": 160},
        },
        arms={
            "full": {},
            "adaptive": {"shape": {"cutoffs": [2000, 6000], "ratio": 4}},
        },
        steps=200,
        look=output,
    ),
    rule=Provided(
        Within("perplexity", "full", most=2000),
        All((
            Ratio("output", "adaptive", "full", most=0.5),
            Ratio("perplexity", "adaptive", "full", most=1.1),
        )),
    ),
    charts=(
        Chart("output", Said("seconds of the output", "输出层秒数"), logarithmic=True),
        Chart("perplexity", Said("perplexity", "困惑度")),
    ),
    minutes=4,
    timed=True,
)  # fmt: skip
