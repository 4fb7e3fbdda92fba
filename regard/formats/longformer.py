"""Longformer's published names and fields. Dilated or causal windows have our own type."""

from __future__ import annotations

from typing import Any

from regard.formats.bert import block, embeddings, projections
from regard.formats.format import Field, Format, TensorName, both
from regard.formats.roberta import FIELDS, heads_of, read_positions, write_positions
from regard.models.longformer import LongformerConfig
from regard.models.output import Heads


def names(config: LongformerConfig, heads: Heads) -> list[TensorName]:
    ours, theirs = "blocks.{i}.attention.layer", "longformer.encoder.layer.{i}.attention"
    return [
        *embeddings("longformer."),
        *projections(f"{ours}.local", theirs),
        *projections(f"{ours}.wide", theirs, "_global"),
        *both(f"{ours}.local.out", f"{theirs}.output.dense"),
        *block("longformer."),
        *heads_of("longformer.", heads),
    ]


def read_windows(value: Any) -> Any:
    """Returns a tuple for a list; one number, for all layers, stays as it is."""
    return tuple(value) if isinstance(value, list | tuple) else value


def write_windows(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


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
    fields={k: v for k, v in FIELDS.items() if k != "dropout_head"}
    | {
        "window": Field("attention_window", 512, read_windows, write_windows),
    },
    fixed={"position_embedding_type": "absolute", "tie_word_embeddings": True},
    reads=read_positions,
    writes=write_positions,
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
    base_class="LongformerModel",
    takes_heads=True,
)
FORMATS = (LONGFORMER,)
