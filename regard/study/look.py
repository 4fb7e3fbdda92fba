"""One attention matrix of a model that reads a text: what `regard draw attention` shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.errors import InputError
from regard.exchange.directory import load
from regard.look.reading import one_direction
from regard.look.tokens import tokens_of
from regard.models import count_parameters, create
from regard.models.base import EncoderDecoder
from regard.study.record import record

if TYPE_CHECKING:
    from regard.models.base import Model

LARGEST = 2**30  # parameters that are worth filling with random numbers for a picture
LONGEST = 128  # tokens that a picture can hold


@dataclass(frozen=True)
class Picture:
    weights: list[list[float]]
    rows: list[str]
    columns: list[str]
    title: str


def look(name: str, text: str, layer: int = 1, head: int | None = None) -> Picture:
    """The weights of one layer (counted from 1) and head (or the mean of all).

    `name` is a model directory, or a published size: that is then untrained, and its tokens are the
    words of the text, numbered as they first appear.
    """
    model, ids, labels, title = read(name, text)
    if not ids:
        raise InputError("there is no text to look at; give one with at least one word")
    if len(ids) > LONGEST:
        raise InputError(f"the text has {len(ids)} tokens; a picture holds up to {LONGEST}")
    tokens = torch.tensor([ids])
    model.eval()
    with torch.no_grad(), one_direction(model), record(model) as seen:
        model(tokens, tokens) if isinstance(model, EncoderDecoder) else model(tokens)
    if not 1 <= layer <= len(seen.layers):
        raise InputError(f"there is no layer {layer}; {name} has 1 to {len(seen.layers)}")
    chosen = seen.layers[layer - 1]
    heads = chosen.weights[0].float()  # [H, Q, K]
    if head is not None and not 1 <= head <= len(heads):
        raise InputError(f"there is no head {head}; this layer has 1 to {len(heads)}")
    weights = heads.mean(0) if head is None else heads[head - 1]
    which = f"mean of {len(heads)} heads" if head is None else f"head {head}"
    rows, columns = (fit(labels, count) for count in weights.shape)
    return Picture(weights.tolist(), rows, columns, f"{title} · {chosen.name} · {which}")


def read(name: str, text: str) -> tuple[Model, list[int], list[str], str]:
    """A model, the text as its token ids, a name for each token, and a title."""
    if Path(name).exists() or "/" in name:
        loaded = load(name)
        title = "/".join(Path(name).resolve().parts[-2:])
        if loaded.tokenizer is not None:
            ids = loaded.tokenizer.encode(text)
            labels = [token.text for token in tokens_of(loaded.tokenizer, ids)]
            return loaded.model, ids, labels, title
        return loaded.model, *numbered(text), title
    if (count := count_parameters(name)) > LARGEST:
        raise InputError(f"{name} has {count:,} parameters, too many to draw; choose a smaller one")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = create(name)
    return model, *numbered(text), f"{name}, untrained"


def numbered(text: str) -> tuple[list[int], list[str]]:
    words = text.split()
    known = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return [known[word] for word in words], words


def fit(labels: list[str], count: int) -> list[str]:
    """The labels, or numbers where the layer has other rows than the text has tokens."""
    return labels if len(labels) == count else [str(i + 1) for i in range(count)]
