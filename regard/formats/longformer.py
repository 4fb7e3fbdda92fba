"""Longformer as published. Dilated or causal windows fit no class: they have our own type."""

from __future__ import annotations

from typing import Any

from regard.formats.bert import FIELDS, block, embeddings, projections
from regard.formats.format import Field, Format, Name, both, name
from regard.models.heads import Heads
from regard.models.longformer import LongformerConfig

HEADS = {
    "pool": both("heads.pool.dense", "longformer.pooler.dense"),
    "classify": [
        *both("heads.classify.dense", "classifier.dense"),
        *both("heads.classify.out", "classifier.out_proj"),
    ],
    "choose": [
        *both("heads.choose.dense", "longformer.pooler.dense"),
        *both("heads.choose.out", "classifier"),
    ],
    "tag": both("heads.tag.out", "classifier"),
    "answer": both("heads.answer.out", "qa_outputs"),
    "masked": [
        *both("output.transform.dense", "lm_head.dense"),
        *both("output.transform.norm", "lm_head.layer_norm"),
        name("output.bias", "lm_head.bias"),
    ],
}


def names(config: LongformerConfig, heads: Heads) -> list[Name]:
    ours, theirs = "blocks.{i}.attention.layer", "longformer.encoder.layer.{i}.attention"
    return [
        *embeddings("longformer."),
        *projections(f"{ours}.local", theirs),
        *projections(f"{ours}.wide", theirs, "_global"),
        *both(f"{ours}.local.out", f"{theirs}.output.dense"),
        *block("longformer."),
        *(entry for head in heads for entry in HEADS[head]),
    ]


def windows(value: Any) -> Any:
    """A list, or one number for all layers."""
    return tuple(value) if isinstance(value, list | tuple) else value


def written(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def read(given: dict[str, Any]) -> dict[str, Any]:
    """Their table of positions begins with the rows of padding; ours counts real positions."""
    return {"context": given.get("max_position_embeddings", 512) - given.get("pad_token_id", 1) - 1}


def write(config: LongformerConfig) -> dict[str, Any]:
    return {"max_position_embeddings": config.context + config.first_position}


LONGFORMER = Format(
    type="longformer",
    family="longformer",
    classes={
        "LongformerForMaskedLM": {"masked": 0},
        "LongformerModel": {"pool": 0},
        "LongformerForSequenceClassification": {"classify": 2},
        "LongformerForMultipleChoice": {"choose": 1},
        "LongformerForTokenClassification": {"tag": 2},
        "LongformerForQuestionAnswering": {"answer": 2},
    },
    fields={k: v for k, v in FIELDS.items() if k not in ("dropout_head", "context")}
    | {
        "padding": Field("pad_token_id", 1),
        "window": Field("attention_window", 512, windows, written),
    },
    fixed={"position_embedding_type": "absolute", "tie_word_embeddings": True},
    reads=read,
    writes=write,
    inert=frozenset(
        "max_position_embeddings attention_mode attention_dilation autoregressive "
        "ignore_attention_mask onnx_export sep_token_id".split()
    ),
    names=names,
    ignored=r"position_ids$|lm_head\.decoder\.(weight|bias)$",
    same={
        "lm_head.decoder.weight": "longformer.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    prefix="longformer.",
    takes_heads=True,
)
FORMATS = (LONGFORMER,)
