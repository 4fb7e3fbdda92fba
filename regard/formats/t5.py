"""The published tensor names and config fields of T5, versions 1.0 and 1.1."""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError
from regard.formats.format import Field, Format, TensorName, name, token
from regard.models.output import Heads
from regard.models.t5 import T5Config

PROJECTIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu_new": ("gelu_tanh", False),
    "gated-gelu": ("gelu_tanh", True),
    "gated-relu": ("relu", True),
    "gated-silu": ("silu", True),
}


def attention(ours: str, theirs: str) -> list[TensorName]:
    return [
        name(f"{ours}.project.weight", *(f"{theirs}.{p}.weight" for p in "qkv")),
        name(f"{ours}.out.weight", f"{theirs}.o.weight"),
    ]


def stack(config: T5Config, which: str, cross: bool) -> list[TensorName]:
    ours, theirs, last = f"{which}.blocks.{{i}}", f"{which}.block.{{i}}.layer", 2 if cross else 1
    network = f"{theirs}.{last}.DenseReluDense"
    wide = (
        [name(f"{ours}.feed_forward.layer.gate.weight", f"{network}.wi_0.weight"),
         name(f"{ours}.feed_forward.layer.wide.weight", f"{network}.wi_1.weight")]
        if config.gated
        else [name(f"{ours}.feed_forward.layer.wide.weight", f"{network}.wi.weight")]
    )  # fmt: skip
    reads = (
        [*attention(f"{ours}.cross.layer", f"{theirs}.1.EncDecAttention"),
         name(f"{ours}.cross.norm.weight", f"{theirs}.1.layer_norm.weight")]
        if cross
        else []
    )  # fmt: skip
    layers = (config.decoder_layers or config.layers) if cross else config.layers
    per_layer = [
        *attention(f"{ours}.attention.layer", f"{theirs}.0.SelfAttention"),
        name(f"{ours}.attention.norm.weight", f"{theirs}.0.layer_norm.weight"),
        *reads,
        *wide,
        name(f"{ours}.feed_forward.layer.narrow.weight", f"{network}.wo.weight"),
        name(f"{ours}.feed_forward.norm.weight", f"{theirs}.{last}.layer_norm.weight"),
    ]
    first = f"{which}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return [
        name(f"{which}.distances.weight", first),
        *(n for entry in per_layer for n in entry.layers(layers)),
        name(f"{which}.norm.weight", f"{which}.final_layer_norm.weight"),
    ]


def names(config: T5Config, heads: Heads) -> list[TensorName]:
    return [
        name("tokens.weight", "shared.weight"),
        *stack(config, "encoder", cross=False),
        *stack(config, "decoder", cross=True),
        *([] if config.tied else [name("output.weight", "lm_head.weight")]),
    ]


def read(source: dict[str, Any]) -> dict[str, Any]:
    """Reads the fields that depend on each other. Version 1.1 is recognized by
    `tie_word_embeddings: false`; newer files say separately whether outputs are scaled."""
    kind, tied = (
        source.get("feed_forward_proj", "relu"),
        source.get("tie_word_embeddings", True),
    )
    if kind not in PROJECTIONS:
        raise ConfigError(
            f"feed_forward_proj is {kind!r}; it must be one of {', '.join(PROJECTIONS)}"
        )
    used, gated = PROJECTIONS[kind]
    scaled = source.get("scale_decoder_outputs", tied is not False)
    return {"activation": used, "gated": gated, "tied": tied is not False, "scaled": scaled}


def write(config: T5Config) -> dict[str, Any]:
    kind = next(k for k, v in PROJECTIONS.items() if v == (config.activation, config.gated))
    return {
        "feed_forward_proj": kind,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.scaled,
        "num_decoder_layers": config.decoder_layers or config.layers,
        "is_encoder_decoder": True,
    }


def refuses(config: T5Config) -> str | None:
    if (config.activation, config.gated) not in PROJECTIONS.values():
        return f"T5 has no network with {config.activation}, gated {config.gated}"
    return None


T5 = Format(
    type="t5",
    family="t5",
    classes={"T5ForConditionalGeneration": {}},
    fields={
        "vocab_size": Field("vocab_size", 32128),
        "width": Field("d_model", 512),
        "layers": Field("num_layers", 6),
        "decoder_layers": Field("num_decoder_layers"),
        "heads": Field("num_heads", 8),
        "head_size": Field("d_kv", 64),
        "ffn_size": Field("d_ff", 2048),
        "buckets": Field("relative_attention_num_buckets", 32),
        "farthest": Field("relative_attention_max_distance", 128),
        "dropout": Field("dropout_rate", 0.1),
        "norm_eps": Field("layer_norm_epsilon", 1e-6),
        "pad_id": token("pad_token_id", 0),
        "start_id": token("decoder_start_token_id", 0),
        "eos_id": token("eos_token_id", 1),
    },
    reads=read,
    writes=write,
    refuses=refuses,
    inert=frozenset(
        "feed_forward_proj tie_word_embeddings n_positions dense_act_fn is_gated_act "
        "is_decoder classifier_dropout scale_decoder_outputs".split()
    ),
    others=frozenset(
        "T5Model T5EncoderModel T5ForSequenceClassification T5ForTokenClassification "
        "T5ForQuestionAnswering".split()
    ),
    names=names,
    ignored=r"embed_tokens\.weight$|lm_head\.weight$|EncDecAttention\.relative_attention_bias",
    same=dict.fromkeys(
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
        "shared.weight",
    ),
)
FORMATS = (T5,)
