"""RoBERTa, number by number beside transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from regard.models.longformer import lengthen
from tests.equal.reference import (
    close,
    marks,
    ours,
    scramble,
    theirs,
    there_and_back,
    words,
)

PAD = 1
SIZE = {
    "vocab_size": 97, "max_position_embeddings": 42, "hidden_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4, "intermediate_size": 48, "type_vocab_size": 1,
    "layer_norm_eps": 1e-5, "pad_token_id": PAD, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip


def roberta(kind: Any = hf.RobertaForMaskedLM, **changes: Any) -> Any:
    return scramble(kind(hf.RobertaConfig(**SIZE | changes)))


def padded(side: str, lengths: list[int] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens with padding, from which the reference counts its positions."""
    attention_mask = marks(lengths or [14, 5, 9, 1], side)
    tokens = words(97, *attention_mask.shape, low=3)
    return tokens.masked_fill(~attention_mask, PAD), attention_mask


@pytest.mark.parametrize(
    "changes", [{}, {"hidden_act": "relu"}, {"pad_token_id": 3}], ids=["plain", "relu", "padding"]
)
@torch.no_grad()
def test_there_and_back(changes: dict[str, Any], tmp_path: Path) -> None:
    reference = roberta(**changes)
    stack = reference.roberta.encoder.layer
    opened = there_and_back(reference, stack, words(97, 3, 17, low=4), tmp_path)
    assert opened.config.context == 42 - changes.get("pad_token_id", PAD) - 1


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_on_either_side(side: str, tmp_path: Path) -> None:
    """The reference counts positions from the padding itself, so it needs no telling."""
    reference = roberta()
    model = ours(reference, tmp_path).model
    tokens, attention_mask = padded(side)
    wanted = reference(tokens, attention_mask=attention_mask.long()).logits
    logits = model.logits(model(tokens, attention_mask))
    close(logits[attention_mask], wanted[attention_mask])


HEADS = {
    "classify": hf.RobertaForSequenceClassification,
    "tag": hf.RobertaForTokenClassification,
    "answer": hf.RobertaForQuestionAnswering,
    "choose": hf.RobertaForMultipleChoice,
    "pool": hf.RobertaModel,
}


@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_heads(head: str, tmp_path: Path) -> None:
    labels = {} if head in ("answer", "pool") else {"num_labels": 3}
    reference = roberta(HEADS[head], **labels)
    opened = ours(reference, tmp_path / "theirs")
    tokens, attention_mask = padded("right", [9, 4])

    def asked(model: Any) -> torch.Tensor:
        if head == "choose":  # two choices of one question
            return model(tokens[None], attention_mask=attention_mask[None].long()).logits[
                0, :, None
            ]
        output = model(tokens, attention_mask=attention_mask.long())
        if head == "answer":
            return torch.stack([output.start_logits, output.end_logits], -1)
        return output.pooler_output if head == "pool" else output.logits

    wanted = asked(reference)
    scores = opened.model.read(head, opened.model(tokens, attention_mask), attention_mask)
    rows = attention_mask if head in ("tag", "answer") else slice(None)
    close(scores[rows], wanted[rows])
    back = theirs(opened, tmp_path / "ours", HEADS[head])
    close(asked(back), wanted)
    weights = reference.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in back.state_dict().items())


@torch.no_grad()
def test_a_long_copy_reads_short_texts_alike(tmp_path: Path) -> None:
    """A Longformer begins as RoBERTa (Beltagy et al. 2020, 5): with a window wide enough its first
    positions compute the same.
    """
    short = ours(roberta(), tmp_path).model
    tokens = words(97, 2, 20, low=3)
    long = lengthen(short, context=80, window=40)
    close(long.logits(long(tokens)), short.logits(short(tokens)))
    table, old = long.embeddings.positions.weight, short.embeddings.positions.weight
    assert torch.equal(table[42:82], old[2:])
