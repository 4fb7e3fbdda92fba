"""One model that learns in two ways."""

from __future__ import annotations

import math
from pathlib import Path

from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained, opened
from regard.lab.claims.engine.rules import All, Less
from regard.lab.claims.engine.texts import python_docs


def both_ways(run: Path, cell: Cell) -> dict[str, float]:
    """Of unseen text: bits of the next word, and of hidden words."""
    from regard.lab.claims.engine.small import judged, task

    corpus, loaded = opened(run)
    ways = ("causal", "masked")
    on, hidden = (
        judged(loaded.model, task(way, corpus.directory, "valid", 64, 16, 0), 200) for way in ways
    )
    return {"next": on["bits_per_byte"], "hidden": math.log2(hidden["masked_perplexity"])}


PARTS = [{"objective": "causal", "share": 0.5}, {"objective": "masked", "share": 0.5}]

CLAIM = Claim(
    name="hybrid",
    statement=Said(
        "A model that learns from both the next word and hidden words is better than one that "
        "learns from either alone, with the same budget.",
        "预算相同时，同时学习“下一个词”与“被遮住的词”的模型，比只学其中一种的更好。",
    ),
    source="Charpentier & Samuel 2024, GPT or BERT: why not both?",
    setting=Said(
        "A BERT of two layers learns the next word (reading from left to right), hidden words, or "
        "both in equal shares, with equally many samples in all. Each is then measured in both "
        "ways; the mixture is to beat each of the others on its own ground.",
        "两层的 BERT 学习下一个词（从左到右读）、被遮住的词，或两者各半，样本总数相同；"
        "然后用两种方式测量，混合者应在各自的主场胜过另两者。",
    ),
    arms=("next word", "hidden words", "both"),
    experiment=Trained(
        python_docs,
        common={
            "model": "bert", "size": "tiny", "batch": {"length": 64, "samples": 32},
            "optimizer": {"name": "adamw", "rate": 1e-3, "clip": 1.0},
            "schedule": {"name": "linear", "warmup": 0.1}, "validation": {"samples": 64},
        },
        arms={
            "next word": {"objective": {"name": "causal"}},
            "hidden words": {"objective": {"name": "masked"}},
            "both": {"objective": {"name": "mixture", "parts": PARTS}},
        },
        steps=400,
        look=both_ways,
    ),
    rule=All((Less("next", "both", "next word"), Less("hidden", "both", "hidden words"))),
    charts=(
        Chart("next", Said("bits per byte, next word", "每字节比特数（下一个词）")),
        Chart("hidden", Said("bits a hidden word", "每个被遮词的比特数")),
    ),
    minutes=5,
    notes=(
        Said(
            "The paper measures on benchmarks and lets hidden words be guessed one place earlier, "
            "so that both ways share their form; here each keeps its own. In a short run half of "
            "the samples is half of the learning, so a defeat says little of long ones.",
            "论文在基准上测量，并把被遮的词放到前一个位置去猜，使两种方式形式一致；这里各按原样。"
            "训练很短时，一半的样本就是一半的学习，所以输了也说明不了长训练的情形。",
        ),
    ),
)  # fmt: skip
