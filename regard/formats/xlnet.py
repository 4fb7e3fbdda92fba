"""XLNet's published tensor names and config fields."""

from __future__ import annotations

from typing import Any

from regard.formats.format import (
    VECTOR,
    Field,
    Format,
    TensorName,
    activation,
    both,
    by_head,
    name,
    out_of_heads,
)
from regard.models.output import Heads
from regard.models.xlnet import XLNetConfig

HEADS = {
    "classify": [
        *both("heads.classify.dense", "sequence_summary.summary"),
        *both("heads.classify.out", "logits_proj"),
    ],
    "choose": [
        *both("heads.choose.dense", "sequence_summary.summary"),
        *both("heads.choose.out", "logits_proj"),
    ],
    "tag": both("heads.tag.out", "classifier"),
    "answer": both("heads.answer.out", "qa_outputs"),
    "span": [
        *both("heads.span.start", "start_logits.dense"),
        *both("heads.span.end_dense", "end_logits.dense_0"),
        *both("heads.span.end_norm", "end_logits.LayerNorm"),
        *both("heads.span.end", "end_logits.dense_1"),
        *both("heads.span.none_dense", "answer_class.dense_0"),
        name("heads.span.none.weight", "answer_class.dense_1.weight"),
    ],
    "masked": [name("output.bias", "lm_loss.bias")],
}


BIASES = {"u": "r_w_bias", "v": "r_r_bias", "s": "r_s_bias"}


def names(config: XLNetConfig, heads: Heads) -> list[TensorName]:
    ours, theirs = "blocks.{i}.attention", "transformer.layer.{i}.rel_attn"
    shape = config.heads, config.head_size
    score = f"{ours}.layer.score"
    return [
        name("tokens.weight", "transformer.word_embedding.weight"),
        name("query", "transformer.mask_emb", form=VECTOR),
        name(
            f"{ours}.layer.project.weight", *(f"{theirs}.{p}" for p in "qkv"), form=by_head(*shape)
        ),
        name(f"{ours}.layer.out.weight", f"{theirs}.o", form=out_of_heads(*shape)),
        name(f"{score}.distance.weight", f"{theirs}.r", form=by_head(*shape)),
        *(name(f"{score}.{a}", f"{theirs}.{b}") for a, b in BIASES.items()),
        name(f"{score}.segment", f"{theirs}.seg_embed"),
        *both(f"{ours}.norm", f"{theirs}.layer_norm"),
        *both("blocks.{i}.feed_forward.layer.wide", "transformer.layer.{i}.ff.layer_1"),
        *both("blocks.{i}.feed_forward.layer.narrow", "transformer.layer.{i}.ff.layer_2"),
        *both("blocks.{i}.feed_forward.norm", "transformer.layer.{i}.ff.layer_norm"),
        *(entry for head in heads for entry in HEADS[head]),
    ]


def read(source: dict[str, Any]) -> dict[str, Any]:
    """Reads the remaining fields. Their class has biases in every layer, whatever `untie_r` is."""
    return {
        "head_size": source.get("d_head")
        or source.get("d_model", 1024) // source.get("n_head", 16),
        "left_to_right": source.get("attn_type", "bi") == "uni",
        "mem_len": source.get("mem_len", 512) or None,  # null (as published) and 0 mean no limit
        "untied": True,
    }


def write(config: XLNetConfig) -> dict[str, Any]:
    return {
        "d_head": config.head_size,
        "attn_type": "uni" if config.left_to_right else "bi",
        "untie_r": True,
    }


def refuses(config: XLNetConfig) -> str | None:
    if not config.untied:
        return "XLNet's class has u, v and s in every layer"
    if config.head_size * config.heads != config.width:
        return "XLNet's width is heads times head_size"
    return None


XLNET = Format(
    type="xlnet",
    family="xlnet",
    classes={
        "XLNetLMHeadModel": {"masked": 0},
        "XLNetModel": {},
        "XLNetForSequenceClassification": {"classify": 2},
        "XLNetForMultipleChoice": {"choose": 1},
        "XLNetForTokenClassification": {"tag": 2},
        "XLNetForQuestionAnsweringSimple": {"answer": 2},
        "XLNetForQuestionAnswering": {"span": 0},
    },
    fields={
        "vocab_size": Field("vocab_size", 32000),
        "width": Field("d_model", 1024),
        "layers": Field("n_layer", 24),
        "heads": Field("n_head", 16),
        "ffn_size": Field("d_inner", 4096),
        "activation": activation("ff_activation", "gelu"),
        "mem_len": Field("mem_len", 512),
        "reuse_len": Field("reuse_len", None, lambda x: x or None),
        "clamp_len": Field("clamp_len", -1, lambda x: max(0, x), lambda x: x if x > 0 else -1),
        "two_directions": Field("bi_data", False),
        "dropout": Field("dropout", 0.1),
        "dropout_head": Field("summary_last_dropout", 0.1),
        "norm_eps": Field("layer_norm_eps", 1e-12),
        "init_std": Field("initializer_range", 0.02),
        "pad_id": Field("pad_token_id", 5),
    },
    fixed={
        "same_length": False,
        "summary_type": "last",
        "summary_use_proj": True,
        "summary_activation": "tanh",
        "tie_word_embeddings": True,
    },
    inert=frozenset(
        "d_head attn_type untie_r start_n_top end_n_top use_mems_eval use_mems_train "
        "n_token max_position_embeddings hidden_size num_attention_heads "
        "num_hidden_layers init init_range init_std".split()
    ),
    names=names,
    reads=read,
    writes=write,
    refuses=refuses,
    ignored=r"lm_loss\.weight$",
    same={"lm_loss.weight": "transformer.word_embedding.weight"},
    prefix="transformer.",
    base_class="XLNetModel",
    takes_heads=True,
)
FORMATS = (XLNET,)
