"""A short model made long."""

from __future__ import annotations

import math
from typing import Any

from regard.core.seeding import seed_torch
from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Followed, Found, Room, Trained
from regard.lab.claims.engine.rules import All, Provided, Ratio, Within
from regard.lab.claims.engine.texts import refrains

SHORT, LONG, WINDOW = 64, 512, 64  # a window of the old length, as in the paper
RUN = Trained(
    refrains,
    common={
        "model": "bert", "size": "tiny", "batch": {"length": SHORT, "samples": 32},
        "shape": {"padding": 0},  # a Longformer counts its positions from behind this id
        "objective": {"name": "masked"}, "validation": {"samples": 100},
        "optimizer": {"name": "adamw", "rate": 1e-3, "clip": 1.0},
        "schedule": {"name": "linear", "warmup": 0.1},
    },
    arms={"": {}},
    steps=400,
)  # fmt: skip


def lengthened(arm: str, seed: int, room: Room) -> Found:
    """Hidden words guessed by the short model, and by the long ones before any training."""
    import torch

    from regard.formats.directory import load
    from regard.lab.claims.engine.small import judged, task
    from regard.models.longformer import lengthen

    data = refrains(room.place)
    with RUN.trained(Cell("", 0.0, seed), room) as (run, _):
        model = load(run).model.eval()
    short = task("masked", data, "valid", SHORT, 32, seed)
    long = task("masked", data, "valid", LONG, 4, seed, global_first=False)
    copied, random = (lengthen(model, LONG, WINDOW).eval() for _ in range(2))
    seed_torch(seed, "positions")
    torch.nn.init.normal_(random.embeddings.positions.weight, std=model.config.start_std)
    measured = {"short": (model, short), "copied": (copied, long), "random": (random, long)}
    return {
        (name, 0.0): {
            "all": math.log2(judged(*pair)["masked_perplexity"]),
            "bits": math.log2(inside["masked_perplexity"]),
            "right": inside["masked_accuracy"],
        }
        for name, pair in measured.items()
        for inside in [judged(pair[0], without_seams(pair[1]))]
    }


def without_seams(plain: Any) -> Any:
    """The same task, but words at the first and last place of a copy do not count: the short model
    has only ever seen the marks of a text there.
    """
    from regard.objectives.masked import Masked

    class WithoutSeams(Masked):
        def collate(self, samples: Any) -> Any:
            batch = super().collate(samples)
            places = batch["targets"] % SHORT
            return batch | {"shares": batch["shares"] * ((places > 0) & (places < SHORT - 1))}

    sizes = {"length": plain.length, "batch": plain.batch, "seed": plain.seed}
    return WithoutSeams(plain.corpus, plain.options, learning=plain.learning, **sizes)


CLAIM = Claim(
    name="copied-positions",
    statement=Said(
        "A model whose learned positions are copied one after the other is usable on long texts "
        "before any training there; with random positions it is not.",
        "把学得的位置一遍遍复制下去，模型不经训练就能用于长文本；换成随机位置则不行。",
    ),
    source="Beltagy et al. 2020, section 5 and table 5",
    setting=Said(
        "Made texts repeat the same eight words, so that a hidden word stands eight places to "
        "either side. A BERT of two layers learns to guess it in 64 tokens. It becomes a "
        "Longformer for 512 with a window of 64, its positions copied eight times or random, and "
        "guesses there at once. Who knows no positions can only guess one of the eight. Words at "
        "the first and last place of a copy, where the short model has only seen the marks of a "
        "text, are not judged.",
        "人造文本反复说同样的八个词，被遮住的词就在前后八个位置处。"
        "两层的 BERT 学会在 64 个词元里猜它；再变成 512 词元、窗口 64 的 Longformer，"
        "位置复制八遍或随机，不经训练直接猜词。不知道位置的，只能在八个词里猜一个。"
        "每份复制的首尾两处不参与裁决：短模型在那里只见过文本的起止标记。",
    ),
    arms=("short", "copied", "random"),
    experiment=Followed(lengthened, together=True),
    rule=Provided(
        Within("right", "short", least=0.5),
        All((
            Ratio("bits", "copied", "short", most=1.1),
            Ratio("right", "copied", "short", least=0.95),
            Ratio("bits", "random", "copied", least=2.0),
            Ratio("right", "random", "copied", most=0.5),
        )),
    ),
    charts=(
        Chart("bits", Said("bits a hidden word", "每个被遮词的比特数")),
        Chart("right", Said("guessed at first", "首猜命中率")),
        Chart("all", Said("bits, first and last places too", "比特数（含首尾两处）")),
    ),
    printed={
        "short": "1.846 bits per character (RoBERTa-base, 512 tokens)",
        "copied": "1.957 (4,096 tokens)",
        "random": "10.299",
    },
    minutes=2,
    notes=(
        Said(
            "The rule was first one of all hidden words, and with eight seeds undecided: 9 % more "
            "bits than the short model's (0.345 and 0.315, and 4.96 with random positions). One of "
            "these models, asked place by place, then lost 7.7 bits a word at the first and last "
            "place of a copy and 0.20 elsewhere, less than the short model (0.29). Those places "
            "are 2 of 64 here and 2 of 512 in the paper, so they were taken out of the rule.",
            "规则起初针对全部被遮词，八个种子仍无定论：比特数比短模型多 9%（0.345 对 0.315，"
            "随机位置为 4.96）。再逐处查看其中一个模型：在每份复制的首尾两处每词 7.7 比特，"
            "别处 0.20，比短模型的 0.29 还少。这两处在这里占 64 中的 2，在论文里占 512 中的 2，"
            "所以不再计入规则。",
        ),
        Said(
            "Bits are of hidden tokens, not of characters. On plain text a model of minutes hardly "
            "leans on its positions yet, and random ones hardly harm it; so the text is made.",
            "这里的比特按被遮词元计，不按字符。在普通文本上，只训练几分钟的模型还几乎不依赖位置，"
            "随机位置也就几乎无害，所以用人造文本。",
        ),
        Said(
            "Its pattern repeats every 8 tokens, which divides the old length: copied positions "
            "then fit perfectly, which favours the claim.",
            "这个文本每 8 个词元重复一次，恰好整除旧长度：复制的位置因此完全吻合，这对该说法有利。",
        ),
    ),
)  # fmt: skip
