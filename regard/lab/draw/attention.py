"""One attention matrix of a model that reads a text: what `regard draw attention` shows."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from regard.attention.recorder import record
from regard.core.errors import InputError
from regard.core.text import Bilingual
from regard.data.words import words_of
from regard.decoding.decode_state import at_rest
from regard.formats.directory import Checkpoint, load
from regard.lab.look.reading import LookOptions, read
from regard.lab.look.recorded import kind_of, place_of
from regard.lab.look.tokens import LookToken
from regard.lab.look.weights import matrices
from regard.models import count_parameters, create
from regard.report.drawings import WIDEST, HeatDrawing
from regard.report.heatmap import largest

LARGEST = 2**30  # parameters that are worth filling with random numbers for a picture


def look(
    name: str, text: str, layer: int = 1, head: int | None = None, *, download: bool = False
) -> HeatDrawing:
    """The weights of one layer (counted from 1) and head (or the mean of all).

    `name` is a model directory, or a published size: that is then untrained, and its tokens are the
    words of the text, numbered as they first appear. A model reads as `regard look` lets it:
    between its marks, a Longformer with its global token, a decoder what it writes itself.
    """
    loaded, title = opened(name, download)
    words = [] if loaded.tokenizer is not None else words_of(text)
    with at_rest(loaded.model), torch.no_grad():
        reading = read(loaded, *given(loaded, text, words))
        longest = max(map(len, reading.names.values()))
        if longest > WIDEST:
            raise InputError(f"the text has {longest} tokens; a picture holds up to {WIDEST}")
        with record(loaded.model) as seen:
            reading.run()
    layers = [list(parts) for _, parts in groupby(seen, lambda one: place_of(one.name))]
    if not 1 <= layer <= len(layers):
        raise InputError(f"there is no layer {layer}; {name} has 1 to {len(layers)}")
    chosen = layers[layer - 1]
    heads = np.stack([matrix.dense() for matrix in matrices(chosen)])  # [H, Q, K]
    if head is not None and not 1 <= head <= len(heads):
        raise InputError(f"there is no head {head}; this layer has 1 to {len(heads)}")
    weights = (heads.mean(0) if head is None else heads[head - 1]).tolist()
    which = Bilingual(f"mean of {len(heads)} heads", f"{len(heads)} 个头的平均")
    if head is not None:
        which = Bilingual(f"head {head}", f"第 {head} 个头")
    place = place_of(chosen[0].name)
    part = reading.parts[kind_of(place)][0]
    rows, columns = (called(reading.names[side], words) for side in (part.rows, part.columns))
    named = Bilingual(*(f"{a} · {place} · {b}" for a, b in zip(title, which, strict=True)))
    return HeatDrawing(named, weights, rows, columns, high=largest(weights))


def opened(name: str, download: bool = False) -> tuple[Checkpoint, Bilingual]:
    """A model and its title."""
    if download or Path(name).exists() or "/" in name:
        title = "/".join(Path(name).resolve().parts[-2:])
        return load(name, download=download), Bilingual(title, title)
    if (count := count_parameters(name)) > LARGEST:
        raise InputError(f"{name} has {count:,} parameters, too many to draw; choose a smaller one")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Checkpoint(create(name)), Bilingual(f"{name}, untrained", f"{name}，未训练")


def given(loaded: Checkpoint, text: str, words: list[str]) -> tuple[str | list[int], LookOptions]:
    """The text, or where no tokenizer knows it the numbers of its words, which a decoder is given
    as well: an untrained one would write nothing worth a look.
    """
    if loaded.tokenizer is not None:
        return text, LookOptions()
    known = {word: i for i, word in enumerate(dict.fromkeys(words))}
    ids = [known[word] for word in words]
    return ids, LookOptions(target=ids if loaded.model.kind == "encoder-decoder" else None)


def called(tokens: list[LookToken], words: list[str]) -> list[str]:
    """The names of rows or columns; words stand behind a decoder's start."""
    first = len(tokens) - len(words) if words else len(tokens)
    return [token.text for token in tokens[:first]] + words
