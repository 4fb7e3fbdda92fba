"""Path length: from one end of a text to the other."""

from __future__ import annotations

from typing import Any

from regard.core.seeding import seed_torch
from regard.lab.claims.engine.experiment import ComputedExperiment, seconds

WIDTH, WORDS = 128, 100
LONGEST = 1024


def model_of(arm: str, seed: int) -> Any:
    from regard.models import create

    seed_torch(seed, "weights")
    more: dict[str, Any]
    name, more = ("lstm", {}) if arm == "lstm" else ("gpt", {"heads": 4, "context": LONGEST})
    return create(name, layers=2, width=WIDTH, vocab_size=WORDS, **more).eval()


def figures(arm: str, length: float, seed: int) -> dict[str, float]:
    """Measures how much of the last row's gradient reaches the first word, relative to the word
    just before the last; how many operations depend on each other; and the seconds for the whole
    text."""
    import torch

    model, rows = model_of(arm, seed).double(), int(length)  # far gradients are tiny
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, WORDS, (1, rows), generator=draw)
    rows_of_words: list[Any] = []

    def keep(module: Any, inputs: Any, output: Any) -> None:
        output.retain_grad()
        rows_of_words.append(output)

    hook = model.tokens.register_forward_hook(keep)
    coming = torch.randn(model.config.width, generator=draw, dtype=torch.float64)
    last = (model(tokens)[0, -1] * coming).sum()
    steps = longest_chain(last.grad_fn)
    last.backward()
    hook.remove()
    reached = rows_of_words[0].grad[0].norm(dim=-1)
    model.float()
    with torch.inference_mode():
        took = seconds(lambda: model(tokens))
    return {
        "gradient": float(reached[0] / reached[-2]), "steps": float(steps), "seconds": took,
    }  # fmt: skip


def longest_chain(last: Any) -> int:
    """Returns the number of operations that must follow one another, however many run in parallel:
    the longest path through the graph that leads to the last. (In fp64 no kernel computes all words
    of an LSTM in one operation.)"""
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


EXPERIMENT = ComputedExperiment(figures)
