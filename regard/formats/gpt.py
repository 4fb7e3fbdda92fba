"""The published tensor names and config fields of GPT-1 and GPT-2. GPT-3's banded layers fit
neither: they are stored under our own type.

Multiple choice is the second head of transformers' double-heads classes. For GPT-1, transformers
has no class for tags and answers: those directories name a class of ours, and transformers opens
them as GPT-1 without a head.
"""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError
from regard.formats.format import TRANSPOSED, Field, Format, TensorName, activation, both, name
from regard.models.gpt import GPTConfig
from regard.models.output import Heads


def table(tokens: str, positions: str, last: str | None) -> list[TensorName]:
    """Returns the names: GPT-1 and GPT-2 share one layout and store matrices as [input, output]."""
    block, theirs = "blocks.{i}", "transformer.h.{i}"
    matrices = {
        f"{block}.attention.layer.project": f"{theirs}.attn.c_attn",
        f"{block}.attention.layer.out": f"{theirs}.attn.c_proj",
        f"{block}.feed_forward.layer.wide": f"{theirs}.mlp.c_fc",
        f"{block}.feed_forward.layer.narrow": f"{theirs}.mlp.c_proj",
    }
    return [
        name("tokens.weight", f"transformer.{tokens}.weight"),
        name("positions.weight", f"transformer.{positions}.weight"),
        *(name(f"{a}.weight", f"{b}.weight", form=TRANSPOSED) for a, b in matrices.items()),
        *(name(f"{a}.bias", f"{b}.bias") for a, b in matrices.items()),
        *both(f"{block}.attention.norm", f"{theirs}.ln_1"),
        *both(f"{block}.feed_forward.norm", f"{theirs}.ln_2"),
        *(both("norm", f"transformer.{last}") if last else []),
    ]


HEADS = {
    "masked": [],  # the language model, whose output is the token embedding
    "classify": [name("heads.classify.out.weight", "score.weight")],
    "choose": both("heads.choose.out", "multiple_choice_head.summary"),
    "tag": both("heads.tag.out", "classifier"),
    "answer": both("heads.answer.out", "qa_outputs"),
}


def head_names(heads: Heads) -> list[TensorName]:
    return [entry for head in heads for entry in HEADS[head]]


def gpt2(config: GPTConfig, heads: Heads) -> list[TensorName]:
    return table("wte", "wpe", "ln_f") + head_names(heads)


def gpt1(config: GPTConfig, heads: Heads) -> list[TensorName]:
    return table("tokens_embed", "positions_embed", None) + head_names(heads)


SUMMARY = {"summary_type": "cls_index", "summary_use_proj": True, "summary_activation": None,
           "summary_proj_to_labels": True}  # fmt: skip


def check_summary(source: dict[str, Any]) -> None:
    """Refuses a multiple-choice model that reads another row than a text's last one."""
    if not any("DoubleHeads" in str(kind) for kind in source.get("architectures") or ()):
        return  # no other class reads these fields
    for key, only in SUMMARY.items():
        if source.get(key, only) != only:
            raise ConfigError(
                f"config.json: {key} is {source[key]!r}; only {only!r} is supported for choices"
            )


def read_gpt2(source: dict[str, Any]) -> dict[str, Any]:
    check_summary(source)
    return {}


def read_gpt1(source: dict[str, Any]) -> dict[str, Any]:
    check_summary(source)
    return {"norm": "post"}


FIELDS = {
    "vocab_size": Field("vocab_size", 50257),
    "context": Field("n_positions", 1024),
    "width": Field("n_embd", 768),
    "layers": Field("n_layer", 12),
    "heads": Field("n_head", 12),
    "dropout": Field("resid_pdrop", 0.1),
    "dropout_attention": Field("attn_pdrop", 0.1),
    "dropout_embedding": Field("embd_pdrop", 0.1),
    "norm_eps": Field("layer_norm_epsilon", 1e-5),
    "init_std": Field("initializer_range", 0.02),
    "dropout_head": Field("summary_first_dropout", 0.1),
}
INERT = {*SUMMARY, "n_ctx", "predict_special_tokens", "n_special"}
MODEL: Heads = {"masked": 0}

GPT2 = Format(
    type="gpt2",
    family="gpt",
    classes={
        "GPT2LMHeadModel": MODEL,
        "GPT2Model": MODEL,
        "GPT2ForSequenceClassification": MODEL | {"classify": 2},
        "GPT2DoubleHeadsModel": MODEL | {"choose": 1},
        "GPT2ForTokenClassification": MODEL | {"tag": 2},
        "GPT2ForQuestionAnswering": MODEL | {"answer": 2},
    },
    fields=FIELDS
    | {"ffn_size": Field("n_inner"), "activation": activation("activation_function", "gelu_new")},
    fixed={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    reads=read_gpt2,
    inert=frozenset(INERT | {"reorder_and_upcast_attn"}),
    names=gpt2,
    ignored=r"attn\.(bias|masked_bias)$|lm_head\.weight$",
    same={"lm_head.weight": "transformer.wte.weight"},
    prefix="transformer.",
    base_class="GPT2Model",
    takes_heads=True,
    counted=("classify", "tag"),  # answers always have two outputs
    refuses=lambda c: (
        "GPT-2 has no banded layers" if c.band else "GPT-2 is pre-norm" if c.norm != "pre" else None
    ),
)
GPT1 = Format(
    type="openai-gpt",
    family="gpt",
    classes={
        "OpenAIGPTLMHeadModel": MODEL,
        "OpenAIGPTModel": MODEL,
        "OpenAIGPTForSequenceClassification": MODEL | {"classify": 2},
        "OpenAIGPTDoubleHeadsModel": MODEL | {"choose": 1},
        "RegardGPTForTokenClassification": MODEL | {"tag": 2},
        "RegardGPTForQuestionAnswering": MODEL | {"answer": 2},
    },
    fields=FIELDS
    | {
        "vocab_size": Field("vocab_size", 40478),
        "context": Field("n_positions", 512),
        "activation": activation("afn", "gelu", gelu="gelu_tanh"),
    },
    reads=read_gpt1,
    fixed={"tie_word_embeddings": True},
    inert=frozenset(INERT),
    names=gpt1,
    ignored=r"attn\.bias$|lm_head\.weight$|position_ids$",
    same={"lm_head.weight": "transformer.tokens_embed.weight"},
    prefix="transformer.",
    base_class="OpenAIGPTModel",
    takes_heads=True,
    counted=("classify", "tag"),  # answers always have two outputs
    refuses=lambda c: (
        "GPT-1 is post-norm" if c.norm != "post" else
        "GPT-1's network is four times its width" if c.ffn_size not in (None, 4 * c.width) else
        "GPT-1 has no banded layers" if c.band else
        None if c.activation in ("gelu_tanh", "relu", "silu") else
        f"GPT-1's class has no {c.activation}"
    ),
)  # fmt: skip
FORMATS = (GPT2, GPT1)
