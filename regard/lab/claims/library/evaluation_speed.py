"""What a memory saves when a text is read word by word."""

from __future__ import annotations

from typing import Any

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Computed, seconds
from regard.lab.claims.engine.rules import All, Outgrows, Ratio

SHAPE: dict[str, Any] = {"layers": 4, "width": 128, "heads": 4, "hidden": 512, "vocabulary": 200}
XL: dict[str, Any] = {"head_size": 32, "cutoffs": (), "ratio": 1, "clamp": 0}
SEGMENT = 128  # rows read at a time with a memory


def figures(arm: str, length: float, seed: int) -> dict[str, float]:
    """Seconds for one word, each with `length` words of context before it."""
    import torch

    from regard.models import create

    torch.manual_seed(seed)
    context = int(length)
    model: Any
    if arm == "sliding window":  # every word: the whole context once more
        model = create("gpt", **SHAPE, context=context).eval()
        tokens = torch.randint(0, 200, (1, context))
        with torch.inference_mode():
            return {"seconds": seconds(lambda: model(tokens), least=0.5)}
    model = create("transformer-xl", **SHAPE, **XL, memory=context).eval()
    with torch.inference_mode():
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
        "A Transformer-XL of four layers reads segments of 128 words with a memory of the whole "
        "context. A GPT of the same width and depth, which has no memory, reads that context anew "
        "for every single word. Seconds a word.",
        "四层的 Transformer-XL 按 128 词的片段读，记忆覆盖全部上下文；"
        "宽度与层数相同的 GPT 没有记忆，每个词都要重读上下文。比较每词秒数。",
    ),
    arms=("with memory", "sliding window"),
    axis=Axis(Said("context", "上下文长度"), (800, 1800, 2800, 3800)),
    experiment=Computed(figures),
    rule=All((
        Ratio("seconds", "sliding window", "with memory", least=100.0, at=3800),
        Outgrows("seconds", "sliding window", "with memory"),
    )),
    charts=(Chart("seconds", Said("seconds a word", "每词秒数"), logarithmic=True),),
    printed={
        "sliding window": "363, 773, 1,409 and 1,874 times slower at 800, 1,800, 2,800 and 3,800",
    },
    seeds=2,
    minutes=1.5,
    timed=True,
    notes=(
        Said(
            "Both sides predict the same words with the same context; what differs is how much is "
            "computed again. Segments of other lengths change the ratio.",
            "两边以同样的上下文预测同样的词，差别只在于重复计算多少。片段长度不同，比值也不同。",
        ),
    ),
)  # fmt: skip
