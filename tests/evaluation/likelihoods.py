"""Models that speak with a tokenizer, and a slow reference for likelihoods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

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
