"""Tiny models of every family with one tokenizer that cuts words, and small trees."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, pre_tokenizers

from regard.api import LoadedModel
from regard.data.tokenizer import Tokenizer
from regard.methods.probe.trees import DependencyTree
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.longformer import Longformer, LongformerConfig
from regard.models.longformer_characters import CharacterLongformer, CharacterLongformerConfig
from regard.models.lstm import LSTM, LSTMConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from regard.models.xlnet import XLNet, XLNetConfig

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["the", "film", "was", "un", "##happ", "##y", "good", "##ness", "a", "##s", "plot", "."]
WORDS = [*MARKS, *PIECES]
SHAPE: dict[str, Any] = {"vocab_size": len(WORDS), "width": 16, "layers": 2, "heads": 2,
                         "ffn_size": 32}  # fmt: skip
FAMILIES: dict[str, Callable[[], Any]] = {
    "bert": lambda: Bert(BertConfig(**SHAPE, context=24)),
    "gpt": lambda: GPT(GPTConfig(**SHAPE, context=24)),
    "longformer": lambda: Longformer(LongformerConfig(**SHAPE, context=24, window=4)),
    "xlnet": lambda: XLNet(XLNetConfig(**SHAPE, head_size=8)),
    "transformer-xl": lambda: TransformerXL(
        TransformerXLConfig(**SHAPE, head_size=8, cutoffs=(), ratio=1, mem_len=8, same_length=False)
    ),
    "t5": lambda: T5(T5Config(**SHAPE, head_size=8, eos_id=3)),
    "transformer": lambda: Transformer(TransformerConfig(**SHAPE, eos_id=3)),
    "lstm": lambda: LSTM(LSTMConfig(vocab_size=len(WORDS), width=16, layers=2)),
    "longformer-characters": lambda: CharacterLongformer(
        CharacterLongformerConfig(**SHAPE | {"heads": 4}, windows=(4, 4))
    ),
}
SENTENCES = [
    ("the", "film", "was", "unhappy"),
    ("goodness",),
    ("a", "films", "was", "good", "the", "unhappyness", "."),
]


def tokenizer() -> Tokenizer:
    fast = Fast(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast.decoder = decoders.WordPiece()
    fast.add_special_tokens(MARKS)
    names = ("pad", "unk", "cls", "sep", "mask")
    config = {f"{name}_token": mark for name, mark in zip(names, MARKS, strict=True)}
    files = {"tokenizer.json": fast.to_str(), "tokenizer_config.json": json.dumps(config)}
    return Tokenizer(fast, {name: text.encode() for name, text in files.items()})


def loaded(family: str, seed: int = 1) -> LoadedModel:
    """Weights are large: small ones hide mistakes."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = FAMILIES[family]().initialize()
        for value in model.parameters():
            value.add_(torch.randn(value.shape) * 0.2)
    return LoadedModel(model.eval(), tokenizer())


def tree(heads: tuple[int, ...], marks: tuple[int, ...] = (), words: Any = None) -> DependencyTree:
    """Of heads (-1: the root); `marks` are punctuation."""
    names = words or tuple(f"w{i}" for i in range(len(heads)))
    kinds = tuple("punct" if i in marks else "dep" for i in range(len(heads)))
    upos = tuple("PUNCT" if i in marks else "NOUN" for i in range(len(heads)))
    return DependencyTree(tuple(names), heads, kinds, upos, upos)
