"""Two ways to look both ways."""

from __future__ import annotations

import math
from pathlib import Path

from regard.core.seeding import keyed
from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained, opened
from regard.lab.claims.engine.rules import All, Less
from regard.lab.claims.engine.texts import python_docs

ASKED, ROW = 500, 62  # hidden words, tokens around each


def blanks(run: Path, cell: Cell) -> dict[str, float]:
    """One word of a stretch is hidden and all others are seen; the same ones for everybody."""
    from regard.lab.compare.blanks import Blanks

    corpus, loaded = opened(run)
    draw = keyed(0, "blanks")
    starts = draw.integers(len(corpus) - ROW, size=ASKED).tolist()
    rows = [corpus.read(start, start + ROW).tolist() for start in starts]
    guesses = Blanks(loaded, corpus.special)(rows, draw.integers(ROW, size=ASKED).tolist())
    nats = -sum(guess.logprob for guess in guesses) / len(guesses)
    right = sum(guess.right for guess in guesses) / len(guesses)
    return {"bits": nats / math.log(2), "right": right, "wrong": 1 - right}


CLAIM = Claim(
    name="permutation-vs-masking",
    statement=Said(
        "With the same data and budget guessing words in permuted orders gives a better model than "
        "guessing masked words.",
        "数据与预算相同时，以打乱的顺序猜词（XLNet）得到的模型比猜被遮住的词（BERT）更好。",
    ),
    source="Yang et al. 2019, table 1",
    setting=Said(
        "A BERT and an XLNet of two layers read equally many samples of 64 tokens, both without "
        "memory. Then each is asked for 500 single hidden words with everything else in sight.",
        "两层的 BERT 与 XLNet 读同样多的 64 词元样本，都没有记忆；再各猜 500 个单独隐去的词，"
        "其余全部可见。",
    ),
    arms=("xlnet", "bert"),
    experiment=Trained(
        python_docs,
        common={
            "size": "tiny", "batch": {"length": 64, "samples": 32}, "validation": {"samples": 64},
            "optimizer": {"name": "adamw", "rate": 1e-3, "clip": 1.0},
            "schedule": {"name": "linear", "warmup": 0.1},
        },
        arms={
            "xlnet": {"model": "xlnet", "objective": {"name": "permuted", "memory": False,
                                                      "two_directions": False}},
            "bert": {"model": "bert", "objective": {"name": "masked"}},
        },
        steps=400,
        look=blanks,
    ),
    rule=All((Less("bits", "xlnet", "bert"), Less("wrong", "xlnet", "bert"))),
    charts=(
        Chart("bits", Said("bits a hidden word", "每个隐去词的比特数")),
        Chart("right", Said("guessed at first", "首猜命中率")),
    ),
    minutes=5,
    notes=(
        Said(
            "The paper compares after fine-tuning, with a memory and far more text. A single "
            "hidden word is what BERT is trained for, which XLNet sees only at the end of an "
            "order.",
            "论文比较的是微调之后的结果，有记忆，文本也多得多。单个隐去的词正是 BERT 训练的内容，"
            "而 XLNet 只在顺序的末尾遇到这种情形。",
        ),
    ),
)  # fmt: skip
