"""CTranslate2: Transformers of one attention kind, translated module by module from ours.

CTranslate2's own converters read directories of transformers, by class. Here its specification is
filled from our modules instead: one rule for an attention, one for a feed-forward network and one
for a norm serve every model, also those that transformers has no class for, and no row of a
vocabulary is dropped (its Marian converter takes the last row for padding).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import FeedForward, Gated
from regard.attention.position import Plain, Rotary
from regard.exports.base import ExportSample, ExportSource, Limit, Runtime, Target

ROWS = 2048  # positions of a model that computes them: the longest text of the export
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
SCORES = (Plain, Rotary)

LIMITS: tuple[Limit, ...] = (
    ("it has no recurrent layers", lambda s: not s.model.attends),
    ("every layer of it sees all rows, and this model has windows",
     lambda s: s.model.attends == "windows" or getattr(s.config, "band", None)),
    ("it has absolute, rotary and T5's positions, and this model scores distances in every layer",
     lambda s: any(not isinstance(a.score, SCORES) for a in attentions(s.model))),
    ("it has no stretched rotary positions", lambda s: getattr(s.config, "rope_scaling", ())),
    ("it knows no extensions", lambda s: s.model.extensions),
    ("it holds a vocabulary or hidden states, and no head of a task",
     lambda s: s.head is not None),
    ("it generates text or reads it with both sides, and this model has no output",
     lambda s: s.model.causal and not hasattr(s.model, "output")),
    ("it has no such activation", lambda s: s.config.activation not in ACTIVATIONS),
    ("encoder and decoder have equally many heads in it, and in this model they do not",
     lambda s: getattr(s.config, "decoder_heads", None) not in (None, s.config.heads)),
)  # fmt: skip


def attentions(model: nn.Module) -> list[Attention]:
    return [part for part in model.modules() if isinstance(part, Attention)]


def array(value: Tensor) -> np.ndarray:
    """Returns a copy: the optimizer of CTranslate2 writes into its arrays."""
    return np.array(value.detach().float().numpy())


# -- the parts


def set_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = array(weight)
    if bias is not None:
        spec.bias = array(bias)


def set_norm(spec: Any, norm: Any) -> None:
    spec.gamma = array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = array(norm.bias)


def set_attention(spec: Any, attention: Any, crossed: bool = False) -> None:
    """Fills an attention; that over a source has its queries apart from its keys and values."""
    project = attention.project
    cut = project.parts()[0] if crossed else project.weight.size(0)
    parts = [slice(0, cut)] + ([slice(cut, None)] if crossed else [])
    for linear, rows in zip(spec.linear, parts, strict=False):
        set_linear(
            linear, project.weight[rows], None if project.bias is None else project.bias[rows]
        )
    set_linear(spec.linear[-1], attention.out.weight, attention.out.bias)
    if attention.scale != project.size**-0.5:
        spec.queries_scale = np.float32(attention.scale)


def set_feed_forward(spec: Any, network: Any) -> None:
    first = network.gate if isinstance(network, Gated) else network.wide
    set_linear(spec.linear_0, first.weight, first.bias)
    if isinstance(network, Gated):
        set_linear(spec.linear_0_noact, network.wide.weight, network.wide.bias)
    set_linear(spec.linear_1, network.narrow.weight, network.narrow.bias)


def set_blocks(specs: list[Any], blocks: Any, distances: Any = None) -> None:
    """Fills the layers of a stack; `distances` is the table of T5's buckets, and the farthest."""
    for spec, block in zip(specs, blocks, strict=True):
        set_attention(spec.self_attention, block.attention.layer)
        set_norm(spec.self_attention.layer_norm, block.attention.norm)
        if hasattr(block, "cross"):
            set_attention(spec.attention, block.cross.layer, crossed=True)
            set_norm(spec.attention.layer_norm, block.cross.norm)
        set_feed_forward(spec.ffn, block.feed_forward.layer)
        set_norm(spec.ffn.layer_norm, block.feed_forward.norm)
        if distances is not None:
            table, farthest = distances
            spec.self_attention.relative_attention_bias = table
            spec.self_attention.relative_attention_max_distance = np.int32(farthest)


def options(source: ExportSource, blocks: Any) -> dict[str, Any]:
    """Returns the options that a stack is built with, from its first block."""
    from ctranslate2.specs import common_spec

    block = blocks[0]
    attention, network = block.attention.layer, block.feed_forward.layer
    project, score = attention.project, attention.score
    activation = getattr(common_spec.Activation, ACTIVATIONS[source.config.activation])
    chosen = {
        "pre_norm": type(block.attention).__name__ == "PreNorm",
        "activation": activation,
        "ffn_glu": isinstance(network, Gated),
        "rms_norm": isinstance(block.attention.norm, nn.RMSNorm),
    }
    assert isinstance(network, FeedForward)
    if project.heads * project.size != source.config.width:
        chosen["head_dim"] = project.size
    if project.kv_heads != project.heads:
        chosen["num_heads_kv"] = project.kv_heads
    if isinstance(score, Rotary):
        chosen |= {"rotary_dim": 0, "rotary_interleave": False,
                   "rotary_base": source.config.rope_theta}  # fmt: skip
    return chosen


# -- the models


def decoder_model(source: ExportSource) -> Any:
    """A decoder: GPT-1, GPT-2, Llama."""
    from ctranslate2.specs import transformer_spec

    model, config = source.model, source.config
    decoder = transformer_spec.TransformerDecoderSpec(
        config.layers, config.heads, with_encoder_attention=False, **options(source, model.blocks)
    )
    decoder.scale_embeddings = False
    decoder.embeddings.weight = array(model.tokens.weight)
    if hasattr(decoder, "position_encodings"):
        decoder.position_encodings.encodings = array(model.positions.weight)
    set_output(decoder, model.output)
    if hasattr(decoder, "layer_norm"):
        set_norm(decoder.layer_norm, model.norm)
    set_blocks(decoder.layer, model.blocks)
    spec = transformer_spec.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(source.words())
    return spec


def set_output(decoder: Any, output: Any) -> None:
    bias = output.bias if output.bias is not None and bool(output.bias.any()) else None
    set_linear(decoder.projection, output.weight, bias)
    if output.scale != 1.0:
        decoder.scale_outputs = np.float32(output.scale)


def encoder_model(source: ExportSource) -> Any:
    """An encoder with learned positions: BERT, RoBERTa. Its answers are hidden states."""
    from ctranslate2.specs import common_spec, transformer_spec

    model, config, first = source.model, source.config, source.model.embeddings
    segments = config.segments > 1
    encoder = transformer_spec.TransformerEncoderSpec(
        config.layers,
        config.heads,
        layernorm_embedding=True,
        num_source_embeddings=1 + segments,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
        **options(source, model.blocks),
    )
    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = array(first.tokens.weight)
    positions = first.positions.weight[first.first :]
    if segments:
        encoder.embeddings[1].weight = array(first.segments.weight)
    else:
        positions = positions + first.segments.weight[0]
    encoder.position_encodings.encodings = array(positions)
    set_norm(encoder.layernorm_embedding, first.norm)
    set_blocks(encoder.layer, model.blocks)
    spec = transformer_spec.TransformerEncoderModelSpec(encoder)
    spec.register_vocabulary(source.words())
    return spec


def pair_model(source: ExportSource) -> Any:
    """An encoder-decoder: the Transformer with computed positions, or T5 with distances."""
    from ctranslate2.specs import transformer_spec

    model, config = source.model, source.config
    bucketed = hasattr(config, "buckets")
    more = {"relative_attention_bias": bucketed}
    encoder = transformer_spec.TransformerEncoderSpec(
        len(model.encoder_blocks), config.heads, **options(source, model.encoder_blocks), **more
    )
    decoder = transformer_spec.TransformerDecoderSpec(
        len(model.decoder_blocks), config.heads, **options(source, model.decoder_blocks), **more
    )
    ends = (
        (model.encoder.norm, model.decoder.norm)
        if bucketed
        else (model.encoder_norm, model.decoder_norm)
    )
    for stack, embeddings, norm in zip(
        (encoder, decoder), (encoder.embeddings[0], decoder.embeddings), ends, strict=True
    ):
        embeddings.weight = array(model.tokens.weight)
        stack.scale_embeddings = False if bucketed or model.scale == 1.0 else model.scale
        if hasattr(stack, "position_encodings"):
            stack.position_encodings.encodings = array(model.positions(torch.arange(ROWS)))
        if hasattr(stack, "layer_norm"):
            set_norm(stack.layer_norm, norm)
    tables = (
        [(array(part.distances.weight), config.farthest) for part in (model.encoder, model.decoder)]
        if bucketed
        else [None, None]
    )
    set_blocks(encoder.layer, model.encoder_blocks, tables[0])
    set_blocks(decoder.layer, model.decoder_blocks, tables[1])
    set_output(decoder, model.output)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(source.words())
    spec.register_target_vocabulary(source.words())
    return spec


def set_config(config: Any, source: ExportSource) -> None:
    """Names the special tokens and the ε of the norms."""
    words, special = source.words(), source.special()
    c = source.config

    def word(role: str) -> str:
        place = special.get(role)
        place = special.get("end") if place is None else place
        return words[0 if place is None else place]

    config.unk_token = word("unknown")
    config.bos_token, config.eos_token = word("start"), word("end")
    if source.kind == "encoder-decoder":
        config.eos_token = words[c.eos_id]
        config.decoder_start_token = words[c.start_id]
    config.layer_norm_epsilon = c.norm_eps


# -- opened


class DecoderRuntime(Runtime):
    def __init__(self, directory: Path, compute: str) -> None:
        import ctranslate2

        self.generator = ctranslate2.Generator(str(directory), **here(compute))

    def rows(self, sample: ExportSample) -> np.ndarray:
        rows: np.ndarray = np.array(self.generator.forward_batch([sample.input_ids]))[0]
        return rows


class EncoderRuntime(Runtime):
    quantity = "hidden states"

    def __init__(self, directory: Path, compute: str) -> None:
        import ctranslate2

        self.encoder = ctranslate2.Encoder(str(directory), **here(compute))

    def rows(self, sample: ExportSample) -> np.ndarray:
        output = self.encoder.forward_batch([sample.input_ids])
        rows: np.ndarray = np.array(output.last_hidden_state)[0]
        return rows


class PairRuntime(Runtime):
    """The logits of a row are those of the next token after a prefix."""

    def __init__(self, source: ExportSource, directory: Path, compute: str) -> None:
        import ctranslate2

        self.words = source.words()
        self.translator = ctranslate2.Translator(str(directory), **here(compute))

    def rows(self, sample: ExportSample) -> np.ndarray:
        text = [self.words[i] for i in sample.input_ids]
        written = [self.words[i] for i in sample.written[1:]]
        rows = [self.next_row(text, written[:count]) for count in range(len(written) + 1)]
        return np.stack(rows)

    def next_row(self, text: list[str], prefix: list[str]) -> np.ndarray:
        result = self.translator.translate_batch(
            [text],
            target_prefix=[prefix],
            beam_size=1,
            max_input_length=0,
            max_decoding_length=len(prefix) + 1,
            min_decoding_length=0,
            return_logits_vocab=True,
        )[0]
        row: np.ndarray = np.array(result.logits[0][-1]).reshape(-1)
        return row


def here(compute: str) -> dict[str, Any]:
    """Returns how a model is opened on this processor, with the number of threads of torch."""
    threads = torch.get_num_threads()
    return {"device": "cpu", "inter_threads": 1, "intra_threads": threads, "compute_type": compute}


def opened(source: ExportSource, directory: Path, compute: str = "default") -> Runtime:
    """Opens an export, which computes in its own precision or in another one."""
    if source.kind == "encoder-decoder":
        return PairRuntime(source, directory, compute)
    runtime = DecoderRuntime if source.model.causal else EncoderRuntime
    return runtime(directory, compute)


BUILDERS = {"decoder": decoder_model, "encoder": encoder_model, "encoder-decoder": pair_model}


class CTranslate2(Target):
    name = "ctranslate2"
    about = "CTranslate2 models: a Generator, a Translator, or an Encoder of hidden states"
    packages = ("ctranslate2",)
    limits = LIMITS

    def convert(self, source: ExportSource, directory: Path, precision: str) -> None:
        spec = BUILDERS["decoder" if source.model.causal else source.kind](source)
        set_config(spec.config, source)
        spec.validate()
        spec.optimize(quantization="int8" if precision == "int8" else None)
        spec.save(str(directory))
        if source.tokenizer is not None:
            source.tokenizer.save(directory)

    def open(self, source: ExportSource, directory: Path, precision: str) -> Runtime:
        return opened(source, directory)


TARGET = CTranslate2()
