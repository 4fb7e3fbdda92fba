"""RoBERTa's published names and fields. Longformer uses the same heads and position table."""

from __future__ import annotations

from typing import Any

from regard.formats import bert
from regard.formats.format import Field, Format, TensorName, both, name
from regard.models.output import Heads
from regard.models.roberta import RobertaConfig


def heads_of(prefix: str, heads: Heads) -> list[TensorName]:
    pooler = f"{prefix}pooler.dense"
    table = {
        "pool": both("heads.pool.dense", pooler),
        "classify": [
            *both("heads.classify.dense", "classifier.dense"),
            *both("heads.classify.out", "classifier.out_proj"),
        ],
        "choose": [
            *both("heads.choose.dense", pooler),
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
    return [entry for head in heads for entry in table[head]]


def names(config: RobertaConfig, heads: Heads) -> list[TensorName]:
    theirs = "roberta.encoder.layer.{i}.attention"
    return [
        *bert.embeddings("roberta."),
        *bert.projections("blocks.{i}.attention.layer", theirs),
        *both("blocks.{i}.attention.layer.out", f"{theirs}.output.dense"),
        *bert.block("roberta."),
        *heads_of("roberta.", heads),
    ]


def read_positions(source: dict[str, Any]) -> dict[str, Any]:
    """Returns our context: their position table begins with rows for padding, ours does not."""
    rows, padding = source.get("max_position_embeddings", 512), source.get("pad_token_id", 1)
    return {"context": rows - padding - 1}


def write_positions(config: RobertaConfig) -> dict[str, Any]:
    return {"max_position_embeddings": config.context + config.first_position}


FIELDS = {k: v for k, v in bert.FIELDS.items() if k != "context"} | {
    "pad_id": Field("pad_token_id", 1)
}

ROBERTA = Format(
    type="roberta",
    family="roberta",
    classes={
        "RobertaForMaskedLM": {"masked": 0},
        "RobertaModel": {"pool": 0},
        "RobertaForSequenceClassification": {"classify": 2},
        "RobertaForMultipleChoice": {"choose": 1},
        "RobertaForTokenClassification": {"tag": 2},
        "RobertaForQuestionAnswering": {"answer": 2},
    },
    fields=FIELDS,
    fixed=bert.BERT.fixed,
    reads=read_positions,
    writes=write_positions,
    inert=frozenset({"max_position_embeddings"}),
    others=frozenset({"RobertaForCausalLM"}),
    names=names,
    ignored=r"position_ids$|lm_head\.decoder\.(weight|bias)$|roberta\.pooler\.",
    same={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    prefix="roberta.",
    base_class="RobertaModel",
    takes_heads=True,
)
FORMATS = (ROBERTA,)
