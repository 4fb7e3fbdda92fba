"""What a memory is worth."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained
from regard.lab.claims.engine.rules import All, Less
from regard.lab.claims.engine.texts import python_docs

CLAIM = Claim(
    name="recurrence",
    statement=Said(
        "At an equal length of segments a memory of earlier segments lowers the perplexity, and "
        "relative positions are better than absolute ones.",
        "片段长度相同时，对先前片段的记忆会降低困惑度；相对位置也比绝对位置好。",
    ),
    source="Dai et al. 2019, tables 6 and 7",
    setting=Said(
        "A Transformer-XL of two layers reads segments of 32 tokens with a memory of 96 and with "
        "none; a GPT with learned positions, the norm in the same place and the same activation "
        "reads the same segments.",
        "两层的 Transformer-XL 读 32 个词元的片段，一次有 96 的记忆，一次没有；"
        "再用位置为学得、归一化位置与激活函数都相同的 GPT 读同样的片段。",
    ),
    arms=("memory", "no memory", "absolute"),
    experiment=Trained(
        python_docs,
        common={
            "size": "tiny", "batch": {"length": 32, "samples": 32},
            "optimizer": {"name": "adamw", "rate": 1e-3, "clip": 0.25},
            "schedule": {"name": "cosine", "warmup": 0.1}, "validation": {"samples": 320},
        },
        arms={
            "memory": {"model": "transformer-xl", "objective": {"name": "recurrent"},
                       "shape": {"memory": 96}},
            "no memory": {"model": "transformer-xl", "objective": {"name": "recurrent"},
                          "shape": {"memory": 0}},
            "absolute": {"model": "gpt", "objective": {"name": "causal"},
                         "shape": {"norm": "post", "activation": "relu", "dropout_attention": 0.0}},
        },
        steps=400,
    ),
    rule=All((
        Less("bits_per_byte", "memory", "no memory"),
        Less("bits_per_byte", "no memory", "absolute"),
    )),
    charts=(Chart("bits_per_byte", Said("bits per byte", "每字节比特数")),),
    printed={
        "memory": "perplexity 27.02 on WikiText-103",
        "no memory": "29.59",
        "absolute": "30.97 (without memory, with half of the losses)",
    },
    minutes=4,
    notes=(
        Said(
            "Segments of 32 are far shorter than the paper's 150: what a memory adds is larger "
            "then.",
            "32 的片段比论文的 150 短得多：此时记忆的作用更大。",
        ),
    ),
)  # fmt: skip
