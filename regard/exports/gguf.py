"""GGUF files of llama.cpp: GPT-2, BERT, T5 and Llama, with the tokenizer inside.

llama.cpp knows a tokenizer by the name of its rule of splitting. A tokenizer gets a name only if
its rule is the same; after the export the ids of hostile texts are compared, too. Its GELU is the
tanh form from a table of 16-bit numbers, so models with GELU agree less closely than others.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.exports.base import TOLERANCE, ExportSample, ExportSource, Limit, Runtime, Target
from regard.exports.gguf_tokenizer import tokenizer_fields, why_not

GELU_TOLERANCE = 2e-3  # of models whose GELU is read from llama.cpp's table
ARCHITECTURES = {"gpt2": "gpt2", "bert": "bert", "t5": "t5", "llama": "llama"}  # by format type
FARTHEST = 128  # llama.cpp's constant
BLOCK = 32  # numbers that share a scale in q8_0
ROWS = 512  # the tokens of a text, if a model has no maximum
FILES = {"fp32": ("model-f32.gguf", 0), "int8": ("model-q8_0.gguf", 7)}  # name, type of the file

LIMITS: tuple[Limit, ...] = (
    ("llama.cpp has no architecture for its layout", lambda s: s.format not in ARCHITECTURES),
    ("it knows no extensions", lambda s: s.model.extensions),
    ("it holds a vocabulary or hidden states, and no head of a task",
     lambda s: s.head is not None),
    ("it generates text, and this model has no output",
     lambda s: s.model.causal and not hasattr(s.model, "output")),
    ("its activation is another one than llama.cpp's of this architecture",
     lambda s: s.config.activation not in activations(s)),
    (f"llama.cpp's farthest distance is {FARTHEST}",
     lambda s: getattr(s.config, "farthest", FARTHEST) != FARTHEST),
)  # fmt: skip


def activations(source: ExportSource) -> tuple[str, ...]:
    gated = getattr(source.config, "gated", False)
    table = {
        "gpt2": ("gelu_tanh",),
        "bert": ("gelu", "gelu_tanh"),
        "t5": ("gelu_tanh",) if gated else ("relu",),
        "llama": ("silu",),
    }
    return table.get(source.format, ())


# -- the tensors


def both(name: str, part: Any) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", part.weight
    if getattr(part, "bias", None) is not None:
        yield f"{name}.bias", part.bias


def projections(
    name: str, project: Any, form: Callable[[Tensor, int], Tensor] = lambda x, heads: x
) -> Iterator[tuple[str, Tensor]]:
    """Yields query, key and value apart; `form` reorders the rows of queries and keys."""
    heads = (project.heads, project.kv_heads, project.kv_heads)
    for part, weight, count in zip(
        "qkv", project.weight.split(project.parts()), heads, strict=True
    ):
        yield f"{name}_{part}.weight", form(weight, count) if part != "v" else weight
    if project.bias is not None:
        biases = project.bias.split(project.parts())
        for part, bias, count in zip("qkv", biases, heads, strict=True):
            yield f"{name}_{part}.bias", form(bias, count) if part != "v" else bias


def interleaved(x: Tensor, heads: int) -> Tensor:
    """Puts the two elements of a rotated pair side by side, as llama.cpp's Llama has them."""
    return x.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def gpt2(model: Any) -> Iterator[tuple[str, Tensor]]:
    yield "token_embd.weight", model.tokens.weight
    yield "position_embd.weight", model.positions.weight
    yield from both("output_norm", model.norm)
    for i, block in enumerate(model.blocks):
        yield from both(f"blk.{i}.attn_norm", block.attention.norm)
        yield from both(f"blk.{i}.attn_qkv", block.attention.layer.project)
        yield from both(f"blk.{i}.attn_output", block.attention.layer.out)
        yield from both(f"blk.{i}.ffn_norm", block.feed_forward.norm)
        yield from both(f"blk.{i}.ffn_up", block.feed_forward.layer.wide)
        yield from both(f"blk.{i}.ffn_down", block.feed_forward.layer.narrow)


def bert(model: Any) -> Iterator[tuple[str, Tensor]]:
    first = model.embeddings
    yield "token_embd.weight", first.tokens.weight
    yield "position_embd.weight", first.positions.weight
    yield "token_types.weight", first.segments.weight
    yield from both("token_embd_norm", first.norm)
    for i, block in enumerate(model.blocks):
        yield from projections(f"blk.{i}.attn", block.attention.layer.project)
        yield from both(f"blk.{i}.attn_output", block.attention.layer.out)
        yield from both(f"blk.{i}.attn_output_norm", block.attention.norm)
        yield from both(f"blk.{i}.ffn_up", block.feed_forward.layer.wide)
        yield from both(f"blk.{i}.ffn_down", block.feed_forward.layer.narrow)
        yield from both(f"blk.{i}.layer_output_norm", block.feed_forward.norm)


def gated(name: str, network: Any) -> Iterator[tuple[str, Tensor]]:
    if hasattr(network, "gate"):
        yield f"{name}.ffn_gate.weight", network.gate.weight
    yield f"{name}.ffn_up.weight", network.wide.weight
    yield f"{name}.ffn_down.weight", network.narrow.weight


def llama(model: Any) -> Iterator[tuple[str, Tensor]]:
    c = model.config
    yield "token_embd.weight", model.tokens.weight
    yield from both("output_norm", model.norm)
    if not c.tied:
        yield "output.weight", model.output.weight
    if c.rope_scaling:
        plain = c.replace(rope_scaling=())
        here = torch.device("cpu")
        yield "rope_freqs.weight", plain.frequencies(here) / c.frequencies(here)
    for i, block in enumerate(model.blocks):
        yield from both(f"blk.{i}.attn_norm", block.attention.norm)
        yield from projections(f"blk.{i}.attn", block.attention.layer.project, interleaved)
        yield from both(f"blk.{i}.attn_output", block.attention.layer.out)
        yield from both(f"blk.{i}.ffn_norm", block.feed_forward.norm)
        yield from gated(f"blk.{i}", block.feed_forward.layer)


def t5(model: Any) -> Iterator[tuple[str, Tensor]]:
    yield "token_embd.weight", model.tokens.weight
    yield "output.weight", model.output.weight * model.output.scale
    for side, stack in (("enc", model.encoder), ("dec", model.decoder)):
        yield f"{side}.output_norm.weight", stack.norm.weight
        yield f"{side}.blk.0.attn_rel_b.weight", stack.distances.weight
        for i, block in enumerate(stack.blocks):
            name = f"{side}.blk.{i}"
            yield from both(f"{name}.attn_norm", block.attention.norm)
            yield from projections(f"{name}.attn", block.attention.layer.project)
            yield f"{name}.attn_o.weight", block.attention.layer.out.weight
            if hasattr(block, "cross"):
                yield from both(f"{name}.cross_attn_norm", block.cross.norm)
                yield from projections(f"{name}.cross_attn", block.cross.layer.project)
                yield f"{name}.cross_attn_o.weight", block.cross.layer.out.weight
            yield from both(f"{name}.ffn_norm", block.feed_forward.norm)
            yield from gated(name, block.feed_forward.layer)


TENSORS = {"gpt2": gpt2, "bert": bert, "llama": llama, "t5": t5}


# -- the file


def add_sizes(writer: Any, source: ExportSource) -> None:
    """Writes the sizes and constants of the model."""
    import gguf

    c = source.config
    size = getattr(c, "head_size", None) or c.width // c.heads
    writer.add_vocab_size(c.vocab_size)
    writer.add_context_length(source.context or 512)
    writer.add_embedding_length(c.width)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.ffn_size or 4 * c.width)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(getattr(c, "kv_heads", None) or c.heads)
    if size * c.heads != c.width:
        writer.add_key_length(size)
        writer.add_value_length(size)
    if source.format in ("gpt2", "bert"):
        writer.add_layer_norm_eps(c.norm_eps)
    else:
        writer.add_layer_norm_rms_eps(c.norm_eps)
    if source.format == "bert":
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)  # the pooling of `regard embed`
        writer.add_token_type_count(c.segments)
    elif source.format == "t5":
        writer.add_relative_attn_buckets_count(c.buckets)
        writer.add_decoder_start_token_id(c.start_id)
        writer.add_decoder_block_count(c.decoder_layers or c.layers)
    elif source.format == "llama":
        writer.add_rope_dimension_count(size)
        writer.add_rope_freq_base(c.rope_theta)


def add_tensors(writer: Any, source: ExportSource, precision: str) -> None:
    """Writes the weights; in q8_0 every matrix whose rows can be divided into blocks."""
    import gguf

    plain = ("position_embd.", "token_types.", "attn_rel_b.", "rope_freqs.")
    for name, value in TENSORS[source.format](source.model):
        numbers = value.detach().float().contiguous().numpy()
        small = any(part in name for part in plain) or numbers.ndim != 2
        if precision == "int8" and not small and numbers.shape[-1] % BLOCK == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, numbers)


# -- opened


@cache
def silenced() -> Any:
    """Keeps llama.cpp from writing its log to the terminal."""
    from llama_cpp import llama_cpp as api

    nothing = api.llama_log_callback(lambda level, text, user: None)
    api.llama_log_set(nothing, ctypes.c_void_p(0))
    api.llama_backend_init()
    return nothing


class GgufRuntime(Runtime):
    """A file opened by llama.cpp, with a cache of 32-bit numbers for so many texts of so many
    rows. Several texts are read at once without padding: each token says of which text it is."""

    def __init__(
        self, source: ExportSource, file: Path, texts: int = 1, rows: int | None = None
    ) -> None:
        from llama_cpp import llama_cpp as api

        silenced()
        self.api, self.source = api, source
        encoder = source.kind == "encoder"
        self.quantity = "hidden states" if encoder else "logits"
        options = api.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(str(file).encode(), options)
        if not self.model:
            raise InputError(f"llama.cpp does not open {file.name}")
        rows = rows or source.context or ROWS
        settings = api.llama_context_default_params()
        settings.n_seq_max = texts
        settings.n_ctx = settings.n_batch = settings.n_ubatch = rows * texts
        settings.type_k = settings.type_v = 0  # f32
        settings.n_threads = settings.n_threads_batch = torch.get_num_threads()
        settings.embeddings, settings.pooling_type = encoder, 0
        settings.flash_attn_type = 0  # off
        self.context = api.llama_init_from_model(self.model, settings)
        self.vocabulary = api.llama_model_get_vocab(self.model)

    def compute(self, texts: list[list[int]], call: Any) -> None:
        """Reads texts from position 0 on, and asks for the output of every token."""
        count = sum(map(len, texts))
        batch = self.api.llama_batch_init(count, 0, 1)
        try:
            batch.n_tokens, i = count, 0
            for number, ids in enumerate(texts):
                for position, token in enumerate(ids):
                    batch.token[i], batch.pos[i], batch.logits[i] = token, position, 1
                    batch.n_seq_id[i], batch.seq_id[i][0] = 1, number
                    i += 1
            if code := call(self.context, batch):
                raise InputError(f"llama.cpp cannot read {count} tokens (code {code})")
        finally:
            self.api.llama_batch_free(batch)

    def rows(self, sample: ExportSample) -> np.ndarray:
        return self.batch([sample])[0]

    def batch(self, samples: list[ExportSample]) -> list[np.ndarray]:
        api, texts = self.api, [sample.input_ids for sample in samples]
        if memory := api.llama_get_memory(self.context):
            api.llama_memory_clear(memory, True)
        if self.source.kind == "encoder-decoder":
            self.compute(texts, api.llama_encode)
            texts = [sample.written for sample in samples]
        if self.quantity == "hidden states":
            self.compute(texts, api.llama_encode)
            output, columns = api.llama_get_embeddings(self.context), self.source.config.width
        else:
            self.compute(texts, api.llama_decode)
            output, columns = api.llama_get_logits(self.context), self.source.config.vocab_size
        lengths = [len(ids) for ids in texts]
        table = np.array(np.ctypeslib.as_array(output, (sum(lengths), columns)))
        return np.split(table, np.cumsum(lengths)[:-1])

    def tokens(self, text: str) -> list[int] | None:
        words = text.encode()
        room = 4 * len(words) + 16
        ids = (ctypes.c_int32 * room)()
        count = self.api.llama_tokenize(self.vocabulary, words, len(words), ids, room, False, False)
        return list(ids[:count])


class Gguf(Target):
    name = "gguf"
    about = "GGUF files of llama.cpp, with the tokenizer inside"
    packages = ("gguf", "llama_cpp")
    limits = LIMITS

    def refuses(self, source: ExportSource) -> str | None:
        return super().refuses(source) or why_not(source)

    def tolerance(self, source: ExportSource) -> float:
        return GELU_TOLERANCE if source.config.activation.startswith("gelu") else TOLERANCE

    def convert(self, source: ExportSource, directory: Path, precision: str) -> None:
        import gguf

        name, kind = FILES[precision]
        writer = gguf.GGUFWriter(directory / name, ARCHITECTURES[source.format])
        writer.add_name(source.model.family.name)
        writer.add_file_type(kind)
        if precision == "int8":
            writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        add_sizes(writer, source)
        tokenizer_fields(writer, source)
        add_tensors(writer, source, precision)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def open(self, source: ExportSource, directory: Path, precision: str) -> Runtime:
        return GgufRuntime(source, directory / FILES[precision][0])


TARGET = Gguf()
