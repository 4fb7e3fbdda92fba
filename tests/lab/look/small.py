"""Small models that speak, and what a plain recording says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.api import LoadedModel
from regard.attention.recorder import record
from regard.data.knowledge.graph import Graph
from regard.methods.finetune.run import finetune
from regard.models.base import Config, Model
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.longformer import Longformer, LongformerConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from regard.models.xlnet import XLNet, XLNetConfig
from tests.decoding.small import tokenizer
from tests.tasks import tuning

SHAPE: dict[str, Any] = {"width": 16, "layers": 2, "heads": 2, "ffn_size": 24}
CONFIGS: dict[str, tuple[type[Model], Config]] = {
    "gpt": (GPT, GPTConfig(**SHAPE, context=128)),
    "bert": (Bert, BertConfig(**SHAPE, context=128)),
    "transformer": (Transformer, TransformerConfig(**SHAPE, decoder_layers=3)),
    "transformer-xl": (
        TransformerXL,
        TransformerXLConfig(
            **SHAPE, cutoffs=(), ratio=1, head_size=8, mem_len=6, same_length=False
        ),
    ),
    "t5": (T5, T5Config(**SHAPE, head_size=8)),
    "xlnet": (XLNet, XLNetConfig(**SHAPE, head_size=8)),
    "longformer": (Longformer, LongformerConfig(**SHAPE, context=4096, window=(4, 8))),
}


def speaking(family: str, kind: str = "bytes-bpe", seed: int = 0, **changes: Any) -> LoadedModel:
    """A model of random weights, large ones, so that no two heads are alike."""
    words = tokenizer(kind)
    make, config = CONFIGS[family]
    build: Any = make
    model = build(config.replace(vocab_size=len(words), **changes))
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(0.0, 0.3, generator=dice)
    return LoadedModel(model.eval(), words)


@torch.no_grad()
def recorded(model: Any, *inputs: Any, **more: Any) -> list[np.ndarray]:
    """[H, Q, K] of every attention, as `regard.record` shows it."""
    with record(model) as seen:
        model(*inputs, **more)
    return [one.weights[0].float().numpy() for one in seen]


def informed(place: Path) -> Path:
    """A classifier that has learned with a graph of two facts."""
    tuning.bert(place / "bert")
    tuning.write(place / "reviews.jsonl", tuning.reviews(40))
    Graph([("film", "of", "warm"), ("plot", "of", "cold")]).write(place / "facts.tsv")
    known = {"objective": {"knowledge": {"graph": str(place / "facts.tsv"), "mode": "tree"}}}
    known |= {"budget": {"steps": 2}}
    recipe = tuning.recipe(place / "bert", place / "reviews.jsonl", **known)
    finetune(recipe, place / "run", display="silent")
    return place / "run"
