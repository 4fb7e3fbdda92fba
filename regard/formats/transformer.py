"""The post-norm Transformer as Marian stores it. Biases that the paper lacks are zeros."""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError
from regard.formats.format import ROW, Field, Format, TensorName, activation, both, name, token
from regard.models.output import Heads
from regard.models.transformer import TransformerConfig


def attention(config: TransformerConfig, ours: str, theirs: str) -> list[TensorName]:
    parts = [
        (f"{ours}.project", tuple(f"{theirs}.{p}_proj" for p in "qkv")),
        (f"{ours}.out", (f"{theirs}.out_proj",)),
    ]
    entries = []
    for mine, their in parts:
        entries.append(name(f"{mine}.weight", *(f"{t}.weight" for t in their)))
        biases = tuple(f"{t}.bias" for t in their)
        entries.append(
            TensorName(f"{mine}.bias", biases)
            if config.bias
            else TensorName("", biases, zeros=config.width)
        )
    return entries


def stack(config: TransformerConfig, which: str, layers: int) -> list[TensorName]:
    ours, theirs = f"{which}_blocks.{{i}}", f"model.{which}.layers.{{i}}"
    entries = [
        *attention(config, f"{ours}.attention.layer", f"{theirs}.self_attn"),
        *both(f"{ours}.attention.norm", f"{theirs}.self_attn_layer_norm"),
        *both(f"{ours}.feed_forward.layer.wide", f"{theirs}.fc1"),
        *both(f"{ours}.feed_forward.layer.narrow", f"{theirs}.fc2"),
        *both(f"{ours}.feed_forward.norm", f"{theirs}.final_layer_norm"),
    ]
    if which == "decoder":
        entries += attention(config, f"{ours}.cross.layer", f"{theirs}.encoder_attn")
        entries += both(f"{ours}.cross.norm", f"{theirs}.encoder_attn_layer_norm")
    return [n for entry in entries for n in entry.layers(layers)]


def names(config: TransformerConfig, heads: Heads) -> list[TensorName]:
    return [
        name("tokens.weight", "model.shared.weight"),
        name("output.bias", "final_logits_bias", form=ROW),
        *stack(config, "encoder", config.layers),
        *stack(config, "decoder", config.decoder_layers or config.layers),
    ]


def read(source: dict[str, Any]) -> dict[str, Any]:
    """Reads the remaining fields. Only one shared vocabulary is supported. Marian always has
    biases, and never learns its padding as an input; our own fields `attention_bias` and
    `learns_padding` say where a model of ours differs."""
    if source.get("decoder_vocab_size") not in (None, source.get("vocab_size", 58101)):
        raise ConfigError(
            "config.json: decoder_vocab_size differs from vocab_size; "
            "only one vocabulary is supported"
        )
    return {
        "bias": source.get("attention_bias", True),
        "learns_padding": source.get("learns_padding", False),
        "positions": "halves",
        "norm": "post",
        "norm_eps": 1e-5,
    }


def write(config: TransformerConfig) -> dict[str, Any]:
    return {
        "decoder_layers": config.decoder_layers or config.layers,
        "decoder_attention_heads": config.decoder_heads or config.heads,
        "decoder_ffn_dim": config.decoder_ffn_size or config.ffn_size,
        "decoder_vocab_size": config.vocab_size,
        "attention_bias": config.bias,
        **({"learns_padding": True} if config.learns_padding else {}),
        "is_encoder_decoder": True,
    }


def refuses(config: TransformerConfig) -> str | None:
    if config.norm != "post":
        return "Marian is post-norm"
    if config.positions != "halves":
        return "Marian's positions are sines and cosines in halves"
    if config.norm_eps != 1e-5:
        return "Marian's norm_eps is 1e-5"
    return None


MARIAN = Format(
    type="marian",
    family="transformer",
    classes={"MarianMTModel": {}},
    fields={
        "vocab_size": Field("vocab_size", 58101),
        "width": Field("d_model", 1024),
        "layers": Field("encoder_layers", 12),
        "decoder_layers": Field("decoder_layers", 12),
        "heads": Field("encoder_attention_heads", 16),
        "decoder_heads": Field("decoder_attention_heads", 16),
        "ffn_size": Field("encoder_ffn_dim", 4096),
        "decoder_ffn_size": Field("decoder_ffn_dim", 4096),
        "activation": activation("activation_function", "gelu"),
        "scaled": Field("scale_embedding", False),
        "dropout": Field("dropout", 0.1),
        "dropout_attention": Field("attention_dropout", 0.0),
        "dropout_hidden": Field("activation_dropout", 0.0),
        "pad_id": token("pad_token_id", 58100),
        "start_id": token("decoder_start_token_id", 58100),
        "eos_id": token("eos_token_id", 0),
    },
    fixed={
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "is_decoder": False,
    },
    inert=frozenset(
        "attention_bias learns_padding decoder_vocab_size max_position_embeddings init_std "
        "add_bias_logits classif_dropout classifier_dropout extra_pos_embeddings "
        "num_hidden_layers num_attention_heads hidden_size".split()
    ),
    others=frozenset({"MarianModel", "MarianForCausalLM"}),
    names=names,
    reads=read,
    writes=write,
    suggests=lambda c: {"forced_eos_token_id": None, "max_position_embeddings": 1024},
    refuses=refuses,
    ignored=r"embed_tokens\.weight$|embed_positions\.weight$|lm_head\.weight$",
    same={
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
        "lm_head.weight": "model.shared.weight",
    },
)
FORMATS = (MARIAN,)
