"""Two texts whose order means nothing, and a model that reads from left to right."""

from __future__ import annotations

import json
from pathlib import Path

from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Room
from regard.lab.claims.engine.finetuning import GPT, TUNING, Tuned
from regard.lab.claims.engine.labelled_texts import Files, same_moods
from regard.lab.claims.engine.rules import All, Less


def turned(run: Path, files: Files, cell: Cell, room: Room) -> dict[str, float]:
    """How far the probability of "same" moves when the two texts change places."""
    from regard.data.examples import Labelled
    from regard.evaluation.predictors import predictor_for
    from regard.formats.directory import load

    lines = files["test"].read_text(encoding="utf-8").splitlines()[:200]
    pairs = [json.loads(line) for line in lines]
    first, second = ([pair[f"sentence{i}"] for pair in pairs] for i in (1, 2))
    predict = predictor_for(load(run))
    both = [
        [answer.scores["same"] for answer in predict(list(map(Labelled, a, b)))]
        for a, b in ((first, second), (second, first))
    ]
    moved = [abs(a - b) for a, b in zip(*both, strict=True)]
    return {"asymmetry": sum(moved) / len(moved)}


CLAIM = Claim(
    name="both-orders",
    statement=Said(
        "Similarity has no order, so a model that reads from left to right should be given both "
        "orders of the two texts.",
        "相似性没有先后，因此从左往右读的模型应把两段文本的两种顺序都读一遍。",
    ),
    source="Radford et al. 2018, 3.3",
    setting=Said(
        "A pre-trained GPT learns from 1,000 pairs whether two sentences are of the same mood, "
        "reading A B, or A B and B A with the two results added. Asymmetry: how far the answer "
        "moves when the texts change places.",
        "预训练的 GPT 用 1,000 对句子学习判断情绪是否相同：只读 A B，或 A B 与 B A 相加。"
        "不对称度：两句互换后答案移动多少。",
    ),
    arms=("one order", "both orders"),
    experiment=Tuned(
        GPT, same_moods,
        TUNING | {
            "examples": {"task": "similar", "classes": True},
            "batch": {"samples": 32, "length": 20}, "optimizer": {"name": "adamw", "rate": 2e-3},
        },
        {
            "one order": {"objective": {"both_orders": False}},
            "both orders": {"objective": {"both_orders": True}},
        },
        labels=1000, steps=300, look=turned,
    ),
    rule=All((
        Less("asymmetry", "both orders", "one order"),
        Less("error", "both orders", "one order"),
    )),
    charts=(
        Chart("error", Said("share of wrong answers", "错误率")),
        Chart("asymmetry", Said("asymmetry", "不对称度")),
    ),
    minutes=4,
)  # fmt: skip
