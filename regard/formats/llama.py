"""Llama's published tensor names and config fields. Transformers has no class for multiple choice,
and its class for answers uses other names: those directories name a class of ours, and transformers
opens them as Llama without a head."""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError
from regard.formats.format import Field, Format, TensorName, activation, both, name
from regard.models.llama import LlamaConfig
from regard.models.output import Heads

HEADS = {
    "classify": [name("heads.classify.out.weight", "score.weight")],
    "choose": both("heads.choose.out", "score"),
    "tag": both("heads.tag.out", "score"),
    "answer": both("heads.answer.out", "qa_outputs"),
}


def names(config: LlamaConfig, heads: Heads) -> list[TensorName]:
    ours, theirs = "blocks.{i}", "model.layers.{i}"
    attention, network = f"{ours}.attention.layer", f"{ours}.feed_forward.layer"
    shared = config.size * (config.kv_heads or config.heads)
    shares = (config.size * config.heads, shared, shared)
    output = [name("output.weight", "lm_head.weight")]
    return [
        name("tokens.weight", "model.embed_tokens.weight"),
        name("norm.weight", "model.norm.weight"),
        name(f"{ours}.attention.norm.weight", f"{theirs}.input_layernorm.weight"),
        name(f"{ours}.feed_forward.norm.weight", f"{theirs}.post_attention_layernorm.weight"),
        name(f"{network}.gate.weight", f"{theirs}.mlp.gate_proj.weight"),
        name(f"{network}.wide.weight", f"{theirs}.mlp.up_proj.weight"),
        name(f"{network}.narrow.weight", f"{theirs}.mlp.down_proj.weight"),
        *(
            entry
            for kind in (("weight", "bias") if config.bias else ("weight",))
            for entry in (
                TensorName(
                    f"{attention}.project.{kind}",
                    tuple(f"{theirs}.self_attn.{part}_proj.{kind}" for part in "qkv"),
                    shares=shares,
                ),
                name(f"{attention}.out.{kind}", f"{theirs}.self_attn.o_proj.{kind}"),
            )
        ),
        *(output if "masked" in heads and not config.tied else []),
        *(entry for head in heads for entry in HEADS.get(head, [])),
    ]


SCALING = (
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"
)  # fmt: skip


def read_rope(source: dict[str, Any]) -> dict[str, Any]:
    """Reads rotary settings: one table since transformers 5, a number and a table before."""
    rope = dict(source.get("rope_scaling") or {}) | dict(source.get("rope_parameters") or {})
    theta = rope.get("rope_theta", source.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise ConfigError(
            f"config.json: rope_type is {kind!r}; only 'default' and 'llama3' are supported"
        )
    scaling = tuple(float(rope[key]) for key in SCALING) if kind == "llama3" else ()
    return {"rope_theta": float(theta), "rope_scaling": scaling}


def write_rope(config: LlamaConfig) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_type": "default"}
    if config.rope_scaling:
        rope |= dict(zip(SCALING, config.rope_scaling, strict=True)) | {"rope_type": "llama3"}
        rope[SCALING[-1]] = int(config.rope_scaling[-1])
    older = {k: v for k, v in rope.items() if k != "rope_theta"} if config.rope_scaling else None
    return {"rope_parameters": rope, "rope_theta": config.rope_theta, "rope_scaling": older}


LLAMA = Format(
    type="llama",
    family="llama",
    classes={
        "LlamaForCausalLM": {"masked": 0},
        "LlamaModel": {},
        "LlamaForSequenceClassification": {"classify": 2},
        "LlamaForTokenClassification": {"tag": 2},
        "RegardLlamaForQuestionAnswering": {"answer": 2},
        "RegardLlamaForMultipleChoice": {"choose": 1},
    },
    fields={
        "vocab_size": Field("vocab_size", 32000),
        "context": Field("max_position_embeddings", 2048),
        "width": Field("hidden_size", 4096),
        "layers": Field("num_hidden_layers", 32),
        "heads": Field("num_attention_heads", 32),
        "kv_heads": Field("num_key_value_heads"),
        "head_size": Field("head_dim"),
        "ffn_size": Field("intermediate_size", 11008),
        "activation": activation("hidden_act", "silu"),
        "bias": Field("attention_bias", False),
        "tied": Field("tie_word_embeddings", False),
        "dropout": Field("hidden_dropout", 0.0),
        "dropout_attention": Field("attention_dropout", 0.0),
        "dropout_head": Field("classifier_dropout", 0.1),
        "norm_eps": Field("rms_norm_eps", 1e-6),
        "init_std": Field("initializer_range", 0.02),
    },
    fixed={"mlp_bias": False},
    reads=read_rope,
    writes=write_rope,
    inert=frozenset("rope_parameters rope_theta rope_scaling pretraining_tp".split()),
    others=frozenset({"LlamaForQuestionAnswering"}),
    names=names,
    ignored=r"rotary_emb\.inv_freq$|lm_head\.weight$",
    same={"lm_head.weight": "model.embed_tokens.weight"},
    prefix="model.",
    base_class="LlamaModel",
    takes_heads=True,
    counted=("classify", "tag"),  # answers always have two outputs
    refuses=lambda c: (
        f"Llama's class needs a width divisible by heads; {c.width} is not divisible by {c.heads}"
        if c.width % c.heads
        else None
    ),
)
FORMATS = (LLAMA,)
