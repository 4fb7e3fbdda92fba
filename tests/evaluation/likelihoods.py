"""Models that speak with a tokenizer, and a slow reference for likelihoods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers as hf

from regard.api import LoadedModel
from regard.evaluation.likelihood import LikelihoodRequest
from regard.models.base import EncoderDecoder
from regard.models.xlnet import XLNet
from tests.decoding.small import tokenizer
from tests.laws.zoo import Specimen


def speaking(specimen: Specimen, kind: str = "bytes-bpe", **changes: Any) -> LoadedModel:
    """A specimen whose vocabulary is that of a tokenizer."""
    words = tokenizer(kind)
    config = specimen.config.replace(vocab_size=len(words), **changes)
    return LoadedModel(replace(specimen, config=config).fresh(torch.float64), words)


def scrambled(model: Any, path: Path, kind: str) -> Path:
    """A model of transformers, saved with a tokenizer: its weights are large enough to matter."""
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(0, 0.2)
    model.eval().save_pretrained(path)
    tokenizer(kind).save(path)
    return path


def gpt2(path: Path) -> Path:
    torch.manual_seed(0)
    words = tokenizer("bytes-bpe")
    end = words.encode("<|endoftext|>")[0]
    config = hf.GPT2Config(
        vocab_size=len(words), n_positions=64, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=end, eos_token_id=end,
    )  # fmt: skip
    return scrambled(hf.GPT2LMHeadModel(config), path, "bytes-bpe")


def bert(path: Path) -> Path:
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=len(tokenizer("wordpiece")), hidden_size=16, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    return scrambled(hf.BertForMaskedLM(config), path, "wordpiece")


@torch.inference_mode()
def directly(loaded: LoadedModel, ask: LikelihoodRequest) -> list[float]:
    """One token after the other, each from a pass over nothing but what stands before it."""
    model, likelihoods = loaded.model, []
    for i, token in enumerate(ask.after):
        new = list(ask.after[:i])
        read = torch.tensor([[*ask.before, *new]])
        if isinstance(model, EncoderDecoder):
            hidden = model(
                torch.tensor([ask.before]), torch.tensor([[model.config.start_id, *new]])
            )
        elif isinstance(model, XLNet):
            order = torch.tensor([[-1] * len(ask.before) + list(range(len(new) + 1))])
            dummy = torch.cat([read, torch.zeros_like(read[:, :1])], 1)
            hidden = model(dummy, order=order, targets=torch.tensor([[read.size(1)]]))
        else:
            hidden = model(read)
        likelihoods.append(float(model.logits(hidden[:, -1]).log_softmax(-1)[0, token]))
    return likelihoods
