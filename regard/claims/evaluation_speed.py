"""What a memory saves when a text is read word by word."""

from __future__ import annotations

from typing import Any

import torch

from regard.claims.claim import Axis, Chart, Claim, Said
from regard.claims.experiment import Computed
from regard.claims.rules import All, Ratio, Rising
from regard.claims.timing import seconds
from regard.models import create

SHAPE: dict[str, Any] = {
    "layers": 4, "width": 128, "heads": 4, "head_size": 32, "hidden": 512, "vocabulary": 200,
    "cutoffs": (), "ratio": 1, "clamp": 0,
}  # fmt: skip
SEGMENT = 128  # rows read at a time with a memory


def figures(arm: str, length: float, seed: int) -> dict[str, float]:
    """Seconds for one word, each with `length` words of context before it."""
    torch.manual_seed(seed)
    context = int(length)
    model: Any = create("transformer-xl", **SHAPE, memory=context).eval()
    with torch.inference_mode():
        if arm == "sliding window":  # every word: the whole context once more
            tokens = torch.randint(0, 200, (1, context))
            return {"seconds": seconds(lambda: model(tokens), least=0.5)}
        state = model.start(1, 0)
        tokens = torch.randint(0, 200, (1, SEGMENT))
        for _ in range(-(-context // SEGMENT)):  # until the memory is full
            model(tokens, state=state)
        took = seconds(lambda: model(tokens, state=state), least=0.5)
        return {"seconds": took / SEGMENT}


CLAIM = Claim(
    name="evaluation-speed",
    statement=Said(
        "Evaluating with a memory is hundreds of times faster than sliding a vanilla model over "
        "the text, and the more so the longer the context.",
        "带记忆的评估比在文本上滑动普通模型快数百倍，上下文越长越明显。",
    ),
    source="Dai et al. 2019, table 9",
    setting=Said(
        "One Transformer-XL of four layers. Once it reads segments of 128 words with a memory of "
        "the whole context; once every single word reads that context anew, as a model without a "
        "memory has to. Seconds a word.",
        "同一个四层的 Transformer-XL：一次按 128 词的片段读，记忆覆盖全部上下文；"
        "一次每个词都重读上下文，没有记忆的模型只能如此。比较每词秒数。",
    ),
    arms=("with memory", "sliding window"),
    axis=Axis(Said("context", "上下文长度"), (800, 1800, 2800, 3800)),
    experiment=Computed(figures),
    rule=All((
        Ratio("seconds", "sliding window", "with memory", least=100.0, at=3800),
        Rising("seconds", "sliding window"),
    )),
    charts=(Chart("seconds", Said("seconds a word", "每词秒数"), logarithmic=True),),
    printed={
        "sliding window": "363, 773, 1,409 and 1,874 times slower at 800, 1,800, 2,800 and 3,800",
    },
    seeds=2,
    minutes=1.5,
    notes=(
        Said(
            "Both sides predict the same words with the same context; what differs is how much is "
            "computed again. Segments of other lengths change the ratio.",
            "两边以同样的上下文预测同样的词，差别只在于重复计算多少。片段长度不同，比值也不同。",
        ),
    ),
)  # fmt: skip
