"""Over what a norm takes its mean."""

from __future__ import annotations

import math
from typing import Any

from regard.core.seeding import seed_torch
from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Followed, Found, Room
from regard.lab.claims.engine.rules import All, Less, Provided, Within
from regard.lab.claims.engine.texts import paragraphs

LENGTH, STEPS, SIZES = 64, 300, (4, 16)


def sizes(arm: str, seed: int, room: Room) -> Found:
    from regard.lab.claims.engine.small import SHAPE, judged, learn, task, with_batch_norms
    from regard.models import create

    data = paragraphs(room.place)
    found: dict[tuple[str, float], dict[str, float]] = {}
    for size in SIZES:
        options: dict[str, Any] = {"documents": "separate"}
        given = task("masked", data, "train", LENGTH, size, seed, **options)
        seed_torch(seed, "weights")
        words = given.corpus.vocabulary
        model = create("bert", vocabulary=words, context=LENGTH, **SHAPE)
        if arm == "batch norm":
            with_batch_norms(model)
        learn(model, given, room.steps(STEPS), 1e-3, seed)
        valid = task("masked", data, "valid", LENGTH, 32, seed, **options)
        figures = judged(model, valid, 800)
        found[arm, size] = {"bits": math.log2(figures["masked_perplexity"])}
    return found


CLAIM = Claim(
    name="norm-kinds",
    statement=Said(
        "Layer norm suits texts of different lengths, batch norm does not.",
        "层归一化适合长短不一的文本，批归一化不适合。",
    ),
    source="tutorials; Shen et al. 2020, section 3",
    setting=Said(
        "A BERT of two layers guesses hidden words of single paragraphs, padded to 64 tokens, in "
        "small batches; every norm is taken over a row, or over all rows of the batch (with "
        "running means when it is tested).",
        "两层的 BERT 在补齐到 64 词元的单个段落里猜被遮住的词，批很小；"
        "归一化要么在每一行内，要么跨批中所有行（测试时用滑动均值）。",
    ),
    arms=("layer norm", "batch norm"),
    axis=Axis(Said("texts of a batch", "每批文本数"), SIZES),
    experiment=Followed(sizes),
    rule=Provided(
        Within("bits", "layer norm", most=9.5),
        All(tuple(Less("bits", "layer norm", "batch norm", at=size) for size in SIZES)),
    ),
    charts=(Chart("bits", Said("bits a hidden word", "每个被遮词的比特数")),),
    minutes=3,
)  # fmt: skip
