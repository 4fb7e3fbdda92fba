"""How much memory a server takes at most, from its options: what is printed at the start.

Counted are the weights, the texts in the making, one step, and the bodies of requests. Not counted
are the program with its libraries (about half a GiB), what a body becomes when it is parsed, and
the scores of an attention whose kernel stores them (heads · tokens² numbers, for T5, XLNet and
Transformer-XL over long texts).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from regard.attention.linear import onednn
from regard.attention.memory import LEAST_ROOM
from regard.decoding.batcher import PREFILL
from regard.decoding.decode_state import DecodeState, reader_for
from regard.serve.options import ServeOptions
from regard.tasks.inference import FEW, MOST

# oneDNN keeps a plan with its working memory for each shape of a product: with texts of all lengths
# its two caches of 1,024 plans would grow to gigabytes.
PLANS = 8
VARIABLES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")


def bound_plans() -> None:
    """Bounds what oneDNN keeps. torch reads these variables at its first product."""
    for name in VARIABLES:
        os.environ.setdefault(name, str(PLANS))


def mebibytes(count: float) -> str:
    return f"{count / 2**20:,.0f} MiB"


def cache_bytes(model: Any, options: ServeOptions) -> int:
    """Returns the bytes that texts in the making take at most, measured on a state of two tokens.

    A table of caches is up to twice as wide as its longest text, so that it seldom has to move;
    prompts that are read are beside it until they join.
    Hidden states are copied by each step, and what Transformer-XL remembers when rows join: the old
    and the new ones are there at once."""
    context, rows, new = longest(model, options), options.rows, options.max_new_tokens
    with torch.inference_mode():
        reader: DecodeState = reader_for(model)
        reader.begin([[0, 0]], 1)
    state: Any = getattr(reader, "state", None)
    if state is None:
        return 0

    def size(tensors: Sequence[torch.Tensor], columns: int) -> int:
        return sum(t.numel() // max(1, t.size(-2)) * t.element_size() for t in tensors) * columns

    caches = [part for layer in state.layers for part in (layer.keys, layer.values)]
    sources = [part for source in state.source for part in source.pairs]
    if model.decoding == "cross":
        read = size(sources, max(PREFILL, context))
        return rows * (size(caches, 2 * (new + 1)) + size(sources, context)) + read
    if caches and model.decoding == "recurrent":
        columns = remembered(model, options)
        return 2 * rows * size(caches, columns + columns // 4 + LEAST_ROOM)
    if caches:
        newest = size(caches, context)  # the newest prompt, for those that begin like it
        return rows * size(caches, 2 * context) + size(caches, max(PREFILL, context)) + newest
    if model.remembers == "vector":
        return 2 * rows * sum(t.numel() * t.element_size() for t in state.hidden)
    return 2 * rows * size(state.hidden, remembered(model, options) + 1)


def longest(model: Any, options: ServeOptions) -> int:
    """Returns the most tokens of a text that the model reads."""
    return getattr(model.config, "context", None) or options.max_input_tokens


def remembered(model: Any, options: ServeOptions) -> int:
    """Returns the most hidden states of each text, whose keys and values each step projects."""
    if model.decoding not in ("recurrent", "queries") or model.remembers != "rows":
        return 0
    limit = getattr(model.config, "mem_len", None) if model.decoding == "recurrent" else None
    return limit or longest(model, options) + options.max_new_tokens


def step_bytes(model: Any, options: ServeOptions) -> int:
    """Returns about the bytes that one step computes with: the hidden states, projections and
    feed-forward rows of one layer, keys and values of what is remembered, and the scores of all
    tokens of the vocabulary."""
    config = model.config
    batches = min(torch.get_num_threads(), MOST)  # of texts that are read at once
    tokens = max(PREFILL, longest(model, options), FEW * batches)
    past = options.rows * remembered(model, options)
    width = config.width
    each = 8 * width + 3 * (getattr(config, "ffn_size", None) or 4 * width)
    logits = 8 * options.rows * (getattr(config, "vocab_size", None) or 0)
    plans = 0 if onednn() is None else PLANS * max(tokens, past) * width
    return 4 * (tokens * each + past * 4 * width + logits + plans)
