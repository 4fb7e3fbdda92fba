"""Fewer digits."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained
from regard.lab.claims.engine.rules import All, Ratio
from regard.lab.claims.engine.texts import python_docs

CLAIM = Claim(
    name="mixed-precision",
    statement=Said(
        "Computing in bf16 trains as well as in fp32, and faster.",
        "用 bf16 计算，训练效果与 fp32 一样好，而且更快。",
    ),
    source="Micikevicius et al. 2018; Kalamkar et al. 2019",
    setting=Said(
        "A GPT of four layers and width 256 reads the reference of Python; products are computed "
        "in fp32 or in bf16, weights and optimiser stay in fp32.",
        "四层、宽 256 的 GPT 读 Python 参考文档；乘法用 fp32 或 bf16 计算，权重与优化器保持 fp32。",
    ),
    arms=("fp32", "bf16"),
    experiment=Trained(
        python_docs,
        common={
            "model": "gpt", "size": "small", "batch": {"length": 128, "samples": 16},
            "objective": {"name": "causal"}, "validation": {"samples": 50},
        },
        arms={"fp32": {"engine": {"precision": "fp32"}}, "bf16": {"engine": {"precision": "bf16"}}},
        steps=80,
    ),
    rule=All((
        Ratio("bits_per_byte", "bf16", "fp32", most=1.01),
        Ratio("seconds", "bf16", "fp32", most=0.9),
    )),
    charts=(
        Chart("bits_per_byte", Said("bits per byte", "每字节比特数")),
        Chart("seconds", Said("seconds of training", "训练秒数")),
    ),
    minutes=4,
    timed=True,
    notes=(
        Said(
            "How much faster is a matter of the machine: without bf16 instructions it is slower.",
            "快多少取决于机器：没有 bf16 指令时反而更慢。",
        ),
    ),
)  # fmt: skip
