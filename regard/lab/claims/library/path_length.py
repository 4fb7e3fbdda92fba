"""From one end of a text to the other."""

from __future__ import annotations

from typing import Any

from regard.core.seeding import seed_torch
from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Computed, seconds
from regard.lab.claims.engine.rules import All, Ratio, Slope, Within

WIDTH, WORDS = 128, 100
LONGEST = 1024


def model_of(arm: str, seed: int) -> Any:
    from regard.models import create

    seed_torch(seed, "weights")
    more: dict[str, Any]
    name, more = ("lstm", {}) if arm == "lstm" else ("gpt", {"heads": 4, "context": LONGEST})
    return create(name, layers=2, width=WIDTH, vocabulary=WORDS, **more).eval()


def figures(arm: str, length: float, seed: int) -> dict[str, float]:
    """How much of the last row's gradient reaches the first word, beside what reaches the word
    just before it; how many operations wait for each other; and seconds for the whole text.
    """
    import torch

    model, rows = model_of(arm, seed).double(), int(length)  # what reaches far is tiny
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, WORDS, (1, rows), generator=draw)
    kept: list[Any] = []

    def keep(module: Any, given: Any, made: Any) -> None:
        made.retain_grad()
        kept.append(made)

    hook = model.tokens.register_forward_hook(keep)
    coming = torch.randn(model.config.width, generator=draw, dtype=torch.float64)
    last = (model(tokens)[0, -1] * coming).sum()
    steps = longest_chain(last.grad_fn)
    last.backward()
    hook.remove()
    reached = kept[0].grad[0].norm(dim=-1)
    model.float()
    with torch.inference_mode():
        took = seconds(lambda: model(tokens))
    return {
        "gradient": float(reached[0] / reached[-2]), "steps": float(steps), "seconds": took,
    }  # fmt: skip


def longest_chain(last: Any) -> int:
    """Operations that have to follow one another, however many run at once: the longest way
    through the graph that led to the last. (In fp64 no kernel does all words of an LSTM in one.)
    """
    chains: dict[Any, int] = {}
    waiting = [last]
    while waiting:
        node = waiting[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        unknown = [each for each in before if each not in chains]
        if unknown:
            waiting += unknown
        else:
            waiting.pop()
            chains[node] = 1 + max((chains[each] for each in before), default=0)
    return chains[last]


CLAIM = Claim(
    name="path-length",
    statement=Said(
        "Attention connects any two words in one step and reads all of them at once; a recurrent "
        "network needs as many steps as words lie between.",
        "注意力一步就连接任意两个词，并同时读完全部；循环网络隔着多少词就要走多少步。",
    ),
    source="Vaswani et al. 2017, table 1 and section 4",
    setting=Said(
        "A GPT and an LSTM of two layers and width 128, as they begin. The gradient of the last "
        "row with respect to the first word, over that with respect to the word just before the "
        "last; the longest chain of operations each of which has to wait for the one before it; "
        "and (not judged) the seconds for one text.",
        "两层、宽 128 的 GPT 与 LSTM，均为初始权重。量最后一行对第一个词的梯度与对前一个词的梯度之"
        "比，必须一个等一个的运算链最长有多长，以及读一段文本的秒数（不参与裁决）。",
    ),
    arms=("attention", "lstm"),
    axis=Axis(Said("length", "长度"), (4, 16, 64, 256, LONGEST), logarithmic=True),
    experiment=Computed(figures),
    rule=All((
        Within("gradient", "attention", least=0.1),
        Ratio("gradient", "lstm", "attention", most=1e-6, at=256),
        Slope("steps", "attention", -0.05, 0.05),
        Slope("steps", "lstm", 0.8, 1.1, beyond=16),
    )),
    charts=(
        Chart("gradient", Said("gradient at the first word", "第一个词处的梯度"), logarithmic=True),
        Chart("steps", Said("operations one after another", "先后相继的运算"), logarithmic=True),
        Chart("seconds", Said("seconds a text", "每段文本秒数"), logarithmic=True),
    ),
    minutes=0.5,
    timed=True,
    notes=(
        Said(
            "A few cores have little to run in parallel: the seconds say more of how well either "
            "is written for such a machine than of paths, and an LSTM may well be the faster. What "
            "waits for what is the same on every machine.",
            "寥寥几个核心没有多少可以并行：秒数更多地说明两者的实现在这样的机器上好坏，"
            "而不是路径长短，LSTM 完全可能更快。谁要等谁，则在任何机器上都一样。",
        ),
        Said(
            "An LSTM can learn to keep its state for longer; these are the first gradients, from "
            "which it would have to.",
            "LSTM 可以学会把状态保持得更久；这里量的是它起步时的梯度，它得从这里学起。",
        ),
    ),
)  # fmt: skip
