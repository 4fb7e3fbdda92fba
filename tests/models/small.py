"""Every family in a small size, wide enough for statistics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.models import create
from regard.models.base import EncoderDecoder

SMALL: dict[str, dict[str, Any]] = {
    "transformer-base": {"heads": 4, "ffn_size": 192},
    "bert-base-uncased": {"heads": 4, "ffn_size": 192, "context": 64},
    "gpt1": {"heads": 4, "context": 64},
    "gpt2": {"heads": 4, "context": 64},
    "gpt3-small": {"heads": 4, "context": 64, "band": 4},
    "transformer-xl-wt103-base": {
        "heads": 4, "head_size": 16, "ffn_size": 192, "cutoffs": (300, 600), "ratio": 2,
         "mem_len": 8,
        "same_length": False, "clamp_len": 0,
    },
    "xlnet-base": {"heads": 4, "head_size": 16, "ffn_size": 192},
    "longformer-base-4096": {"heads": 4, "ffn_size": 192, "context": 64, "window": 4},
    "longformer-characters-small": {
        "heads": 4, "ffn_size": 192, "windows": (4, 8), "dilations": (1, 2),
    },
    "t5-small": {"heads": 4, "head_size": 12, "ffn_size": 192},
    "t5-v1_1-small": {"heads": 4, "head_size": 12, "ffn_size": 192},
    "lstm-medium": {},
}  # fmt: skip
VOCABULARY = 900


def small(name: str, seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    common = {"vocab_size": VOCABULARY, "width": 64, "layers": 2}
    return create(name, **common | SMALL[name] | changes)


def run(model: Any, rows: int = 12) -> Tensor:
    """Hidden states of some tokens, whatever the family needs."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (2, rows), generator=generator)
    if isinstance(model, EncoderDecoder):
        return model(tokens, tokens[:, :-2])
    return model(tokens)
