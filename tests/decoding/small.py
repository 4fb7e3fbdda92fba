"""Small models of every family that can go on with a text, tokenizers, and a slow reference."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.api import LoadedModel
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import train
from regard.models.base import EncoderDecoder
from regard.models.gpt import GPT, GPTConfig
from regard.models.xlnet import XLNet
from tests.laws.zoo import GPT_SMALL, ZOO, Specimen, model_of

SPEAKERS = [
    specimen for specimen in ZOO if specimen.stepwise or specimen.name in ("characters", "xlnet")
]
SHORT = Specimen("gpt-short", GPT, GPT_SMALL.replace(context=11), ZOO[4].reach)
ALL = [*SPEAKERS, SHORT]

TEXT = [
    "The cat sat on the mat. It's not the dog that did it, 42 times!",
    "猫坐在垫子上。狗没有坐在那里。今天天气很好，我们去公园吧！",
    "Emoji are long: 👩‍👩‍👧‍👦 🤖 🇨🇳 and naïve café too. The cat sat, the dog did not.",
] * 3


@cache
def tokenizer(kind: str) -> Tokenizer:
    return train(kind, TEXT, vocab_size=None, lower=None, marks=3)


def speaker(specimen: Specimen) -> LoadedModel:
    """Without words: prompts are ids, and no id ends a text."""
    return LoadedModel(model_of(specimen, torch.float64))


def talking(kind: str = "bytes-bpe", seed: int = 0, **changes: Any) -> LoadedModel:
    """A GPT of random weights that speaks with a tokenizer."""
    words = tokenizer(kind)
    config = GPTConfig(vocab_size=len(words), context=64, width=16, layers=2, heads=2)
    specimen = Specimen("talking", GPT, config.replace(**changes), ZOO[4].reach)
    return LoadedModel(specimen.fresh(torch.float64, seed), words)


def window(prompt: int, length: int, context: int) -> int:
    """Where the window of a GPT begins that has read so many tokens."""
    first = 0
    for read in range(prompt, length + 1):
        if read - first > context:
            first = read - max(1, context // 2)
    return first


@torch.inference_mode()
def from_scratch(model: Any, prompt: list[int], new: list[int]) -> Tensor:
    """The logits behind prompt and new tokens, by one pass over all of them."""
    if isinstance(model, EncoderDecoder):
        source, target = torch.tensor([prompt]), torch.tensor([[model.config.start_id, *new]])
        return model.logits(model(source, target)[:, -1])[0]
    read = [*prompt, *new]
    if isinstance(model, XLNet):
        order = torch.tensor([[-1] * len(prompt) + list(range(len(new) + 1))])
        tokens, target = torch.tensor([[*read, 0]]), torch.tensor([[len(read)]])
        return model.logits(model(tokens, order=order, targets=target)[:, -1])[0]
    if isinstance(model, GPT):
        read = read[window(len(prompt), len(read), model.config.context) :]
    return model.logits(model(torch.tensor([read]))[:, -1])[0]


def naive(model: Any, prompt: list[int], count: int, ends: tuple[int, ...] = ()) -> list[int]:
    """Greedy, without any memory."""
    new: list[int] = []
    while len(new) < count and (not new or new[-1] not in ends):
        new.append(int(from_scratch(model, prompt, new).argmax()))
    return new


def score(model: Any, prompt: list[int], new: list[int]) -> list[float]:
    """The log-probability of each new token."""
    rows = [from_scratch(model, prompt, new[:i]).log_softmax(-1) for i in range(len(new))]
    return [float(row[token]) for row, token in zip(rows, new, strict=True)]


def draw(length: int, seed: int, words: int = 29) -> list[int]:
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(words, (length,), generator=dice).tolist()
