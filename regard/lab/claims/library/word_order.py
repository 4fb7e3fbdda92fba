"""What attention knows of order without positions."""

from __future__ import annotations

from typing import Any

from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.experiment import Computed
from regard.lab.claims.engine.rules import All, Within
from regard.training.recipe import Table

SHAPE: Table = {
    "layers": 2, "width": 64, "heads": 4, "hidden": 128, "vocabulary": 50, "context": 16,
}  # fmt: skip


def figures(arm: str, at: float, seed: int) -> dict[str, float]:
    """How much the mean of all rows changes when words change places."""
    import torch

    from regard.models import create

    torch.manual_seed(seed)
    model: Any = create("bert", **SHAPE).double().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    if arm == "without":
        model.embeddings.positions.weight.data.zero_()
    tokens = torch.randperm(50)[:8][None]
    order = torch.randperm(8)
    with torch.no_grad():
        one, other = model(tokens), model(tokens[:, order])
    scale = one.norm()
    return {
        "text": float((one.mean(1) - other.mean(1)).norm() / one.mean(1).norm()),
        "rows": float((one[:, order] - other).norm() / scale),
    }


CLAIM = Claim(
    name="word-order",
    statement=Said(
        "Without positions a self-attention encoder cannot tell \u201cdog bites man\u201d from "
        "\u201cman bites dog\u201d.",
        "没有位置信息，自注意力编码器分不清“狗咬人”和“人咬狗”。",
    ),
    source="Vaswani et al. 2017, 3.5 (the reason for positions)",
    setting=Said(
        "Eight words in two orders go through an encoder with random weights, with its positions "
        "and with all positions alike; what changes of the text's mean, and of each word's row.",
        "八个词以两种顺序通过随机权重的编码器，一次有位置，一次所有位置相同；"
        "看文本均值与各词的行变化多少。",
    ),
    arms=("with", "without"),
    experiment=Computed(figures),
    rule=All((
        Within("text", "without", most=1e-9),
        Within("rows", "without", most=1e-9),
        Within("text", "with", least=1e-3),
    )),
    charts=(Chart("text", Said("change of the text's mean", "文本均值的变化"), logarithmic=True),),
    minutes=0.1,
)  # fmt: skip
