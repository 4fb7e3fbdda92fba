"""Learning from the prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from regard.lab.claims.engine.claim import Axis, Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Followed, Found, Room, Trained, opened
from regard.lab.claims.engine.rules import All, Less, Provided, Rising, Within
from regard.lab.claims.engine.texts import SHOTS, ciphers


def accuracies(run: Path, cell: Cell) -> dict[str, float]:
    """Of the answers in unseen lines, by the number of examples before them."""
    import torch

    corpus, loaded = opened(run)
    model = loaded.model.eval()
    starts = np.asarray(corpus.documents)[:-1].tolist()
    lines = np.stack([corpus.read(start, start + 2 * SHOTS) for start in starts])
    tokens = torch.from_numpy(lines).long()
    before = torch.full((len(tokens), 1), corpus.special.end)  # a line begins behind an end
    with torch.inference_mode():
        hidden = model(torch.cat([before, tokens[:, :-1]], 1))
        guesses = model.logits(hidden).argmax(-1)
    right = (guesses == tokens)[:, 1::2].double().mean(0)
    return {f"{shots}": float(right[shots]) for shots in range(SHOTS)}


RUNS = Trained(
    ciphers,
    common={
        "model": "gpt", "batch": {"length": 2 * SHOTS + 1, "samples": 64},
        "objective": {"name": "causal", "documents": "separate"},
        "optimizer": {"name": "adamw", "rate": 2e-3}, "validation": {"samples": 100},
        "schedule": {"name": "linear", "warmup": 0.1},
    },
    arms={
        "small": {"shape": {"layers": 2, "width": 16, "heads": 2}},
        "large": {"shape": {"layers": 2, "width": 128, "heads": 4}},
    },
    steps=500,
    look=accuracies,
)  # fmt: skip


def shots(arm: str, seed: int, room: Room) -> Found:
    found = RUNS.figures(Cell(arm, 0.0, seed), room)
    right = [found[f"{n}"] for n in range(SHOTS)]
    return {
        (arm, n): {"accuracy": each, "gain": each - right[0], "last": right[-1]}
        for n, each in enumerate(right)
    }


CLAIM = Claim(
    name="in-context",
    statement=Said(
        "Examples in the prompt help, and they help a larger model more.",
        "提示中的例子有帮助，而且对更大的模型帮助更大。",
    ),
    source="Brown et al. 2020, section 1 and figure 1.2",
    setting=Said(
        "Made lines of letters and what one of eight ciphers makes of them; which cipher it is "
        "only the examples tell, and no answer is ruled out by an earlier one. GPTs of two layers "
        "and of width 16 or 128 learn from 10,800 lines; the accuracy of each answer of unseen "
        "lines, by the number of examples before it.",
        "人造的行：字母与八种密码之一的结果，用的是哪种只有例子能说明，"
        "先前的答案也不排除任何后来的答案。两层、宽 16 或 128 的 GPT 学 10,800 行；"
        "看没见过的行里每个答案的准确率随前面例子数的变化。",
    ),
    arms=("small", "large"),
    axis=Axis(Said("examples before", "前面的例子数"), tuple(range(SHOTS))),
    experiment=Followed(shots),
    rule=Provided(
        Within("last", "large", least=0.5),
        All((
            Rising("accuracy", "large"),
            Less("gain", "small", "large", at=SHOTS - 1, margin=0.1),
        )),
    ),
    charts=(Chart("accuracy", Said("accuracy", "准确率")),),
    minutes=3,
    notes=(
        Said(
            "The paper's tasks are nowhere in its training text; these are what the text consists "
            "of, and the model only has to find out which.",
            "论文里的任务不在训练文本中；这里的任务就是文本的全部内容，模型只需看出是哪一个。",
        ),
        Said(
            "In a first version there were sixteen ciphers, and no two letters became the same: "
            "later answers were easier to guess by elimination, and with seven examples the "
            "larger model was right only a third of the time (one seed). The sizes differed in "
            "depth, too.",
            "第一个版本有十六种密码，且不同字母的结果各不相同：后面的答案靠排除就更好猜，"
            "而有七个例子时较大的模型也只对了三分之一（一个种子）。两种规模的深度也不同。",
        ),
    ),
)  # fmt: skip
