"""How a published directory names the parts of a model: one table serves reading and writing.

A `TensorName` says which of their tensors make up one of ours, and in which form. A `Format` adds
the fields of `config.json`. Patterns contain `{i}` for the number of a layer (and `{j}` for a
cluster).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import ConfigError, FormatError, InputError, UnknownName
from regard.data.tokenizer import Tokenizer
from regard.models.base import Config, Model
from regard.models.output import Heads


@dataclass(frozen=True)
class TensorForm:
    """How one of their tensors becomes (a part of) ours, and back."""

    load: Callable[[Tensor], Tensor]
    save: Callable[[Tensor], Tensor]


SAME = TensorForm(lambda x: x, lambda x: x)
TRANSPOSED = TensorForm(lambda x: x.mT, lambda x: x.mT)
ROW = TensorForm(lambda x: x.flatten(), lambda x: x[None])  # [1, n] <-> [n]
VECTOR = TensorForm(lambda x: x.flatten(), lambda x: x[None, None])  # [1, 1, n] <-> [n]


def by_head(heads: int, size: int) -> TensorForm:
    """Converts between XLNet's [width, heads, size] and our [heads · size, width]."""
    return TensorForm(lambda x: x.flatten(1).mT, lambda x: x.mT.unflatten(1, (heads, size)))


def out_of_heads(heads: int, size: int) -> TensorForm:
    """Converts between XLNet's output [width, heads, size] and our [width, heads · size]."""
    return TensorForm(lambda x: x.flatten(1), lambda x: x.unflatten(1, (heads, size)))


@dataclass(frozen=True)
class TensorName:
    """One of our tensors, and the published tensors that, stacked, make it up."""

    ours: str
    theirs: tuple[str, ...]
    form: TensorForm = SAME
    # The size of a vector that they have and we do not: it is zero and never trained.
    zeros: int | None = None
    shares: tuple[int, ...] = ()  # the rows of each of theirs in ours; () divides equally

    def layers(self, count: int) -> Iterator[TensorName]:
        """Yields this entry once for each layer."""
        if "{i}" not in self.ours + "".join(self.theirs):
            yield self
            return
        for i in range(count):
            theirs = tuple(t.replace("{i}", str(i)) for t in self.theirs)
            yield replace(self, ours=self.ours.replace("{i}", str(i)), theirs=theirs)


def name(ours: str, *theirs: str, form: TensorForm = SAME) -> TensorName:
    return TensorName(ours, theirs, form)


def both(ours: str, *theirs: str) -> list[TensorName]:
    """Returns the entries of a weight and a bias."""
    return [
        TensorName(f"{ours}.{p}", tuple(f"{t}.{p}" for t in theirs)) for p in ("weight", "bias")
    ]


MISTAKEN = (TypeError, ValueError, AttributeError, KeyError, IndexError, ArithmeticError)


@dataclass(frozen=True)
class Field:
    """A field of their config.json: its name, its default, and how values are translated."""

    theirs: str
    default: Any = None
    read: Callable[[Any], Any] = lambda x: x
    write: Callable[[Any], Any] = lambda x: x

    def of(self, source: dict[str, Any]) -> Any:
        """Returns our value of a field of config.json; null means absent."""
        value = source.get(self.theirs)
        try:
            return self.read(self.default if value is None else value)
        except MISTAKEN:
            raise ConfigError(
                f"config.json: {self.theirs} is {value!r}, which is not a valid value"
            ) from None


def token(theirs: str, default: int) -> Field:
    """Returns a field with the id of a special token; of several ids the first is used."""
    return Field(theirs, default, lambda x: x[0] if isinstance(x, list) and x else x)


ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
    "silu": "silu",
    "tanh": "tanh",
}


def activation(theirs: str, default: str, **aliases: str) -> Field:
    """Returns a field that names an activation; `aliases` have another meaning in one class."""
    known = ACTIVATIONS | aliases

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ConfigError(f"{theirs} is {value!r}; it must be one of {', '.join(known)}")
        return known[value]

    def write(value: str) -> str:
        return next(k for k in [*aliases, *ACTIVATIONS] if known[k] == value)

    return Field(theirs, default, read, write)


@dataclass(frozen=True)
class Format:
    """Everything about one `model_type`."""

    type: str
    family: str
    classes: dict[str, Heads]  # their class -> our heads; the first class is the default
    fields: dict[str, Field]  # our field -> their field
    names: Callable[[Any, Heads], Iterable[TensorName]]
    fixed: dict[str, Any] = field(default_factory=dict)  # their field -> the only supported value
    inert: frozenset[str] = frozenset()  # their fields that do not change the computation
    ignored: str = r"$^"  # tensors that may be missing: copies and constants
    same: dict[str, str] = field(default_factory=dict)  # a copied tensor -> its original
    prefix: str = ""  # a prefix of tensor names that base classes leave out
    base_class: str = ""  # the base class, which gives the hidden states alone
    refuses: Callable[[Any], str | None] = lambda config: None  # why it cannot hold our model
    opens: str | None = None  # why the current transformers cannot open it
    others: frozenset[str] = frozenset()  # their other classes, which compute something else
    takes_heads: bool = False
    counted: tuple[str, ...] = ("classify", "tag", "answer")  # heads with num_labels outputs
    whole_numbers: bool = False  # True if tensors may be integers
    # The values that no single field gives, for reading and for writing.
    reads: Callable[[dict[str, Any]], dict[str, Any]] = lambda source: {}
    writes: Callable[[Any], dict[str, Any]] = lambda config: {}
    suggests: Callable[[Any], dict[str, Any]] = lambda config: {}  # values that a source may lack

    def read_config(self, source: dict[str, Any], ignore_unknown: bool = False) -> dict[str, Any]:
        """Returns our fields for their config.json; refuses what would change the computation."""
        known = {f.theirs for f in self.fields.values()} | set(self.fixed) | self.inert | INERT
        for key, value in source.items():
            if key in self.fixed and value != self.fixed[key]:
                raise ConfigError(
                    f"config.json: {key} is {value!r}; only {self.fixed[key]!r} is supported for "
                    f"{self.type}"
                )
            if key not in known and value not in (None, False) and not ignore_unknown:
                raise UnknownName(
                    "field of config.json", key, known, "(ignore_unknown=True ignores the field)"
                )
        return {ours: f.of(source) for ours, f in self.fields.items()} | self.read_rest(source)

    def read_rest(self, source: dict[str, Any]) -> dict[str, Any]:
        """Returns the values that no single field gives. If that fails, the error names the key
        without which it does not fail."""
        try:
            return self.reads(source)
        except MISTAKEN:
            for key, value in source.items():
                try:
                    self.reads({k: v for k, v in source.items() if k != key})
                except MISTAKEN:
                    continue
                raise ConfigError(
                    f"config.json: {key} is {value!r}, which is not a valid value"
                ) from None
            raise ConfigError("config.json: several values have a wrong type") from None

    def write_config(
        self, config: Config, architecture: str, source: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns their config.json: the source's values, overridden by those of the model."""
        fields = {}
        for ours, f in self.fields.items():
            value = getattr(config, ours)  # the source's spelling stays if it means the same
            same = f.theirs in source and f.of(source) == value
            fields[f.theirs] = source[f.theirs] if same else f.write(value)
        kind = {"architectures": [architecture], "model_type": self.type}
        return self.suggests(config) | source | kind | self.fixed | fields | self.writes(config)

    def class_for(self, heads: Heads) -> str:
        """Returns the class of transformers that holds these heads."""
        wanted = set(heads)
        for architecture, names in self.classes.items():
            if set(names) == wanted:
                return architecture
        raise FormatError(
            f"no class of transformers holds a {self.family} with the heads {sorted(wanted)}; "
            f"choose one of {[sorted(h) for h in self.classes.values()]}"
        )

    def table(self, config: Any, heads: Heads) -> list[TensorName]:
        layers = max(config.layers, getattr(config, "decoder_layers", None) or 0)
        return [n for entry in self.names(config, heads) for n in entry.layers(layers)]

    def is_ignored(self, key: str) -> bool:
        return re.search(self.ignored, key) is not None


GENERATION_FILE = "generation_config.json"
TOKENS = frozenset({"bos_token_id", "eos_token_id", "pad_token_id"})
# Fields of generation: older directories keep them in config.json.
GENERATION = TOKENS | frozenset(
    """
    max_length max_new_tokens min_length min_new_tokens do_sample num_beams early_stopping
    length_penalty num_return_sequences temperature top_k top_p typical_p repetition_penalty
    no_repeat_ngram_size bad_words_ids suppress_tokens begin_suppress_tokens forced_bos_token_id
    forced_eos_token_id decoder_start_token_id stop_strings min_p top_h epsilon_cutoff eta_cutoff
    encoder_repetition_penalty encoder_no_repeat_ngram_size renormalize_logits
    exponential_decay_length_penalty sequence_bias guidance_scale watermarking_config
    remove_invalid_values max_time penalty_alpha dola_layers num_beam_groups diversity_penalty
    constraints force_words_ids token_healing forced_decoder_ids
    """.split()
)


def generation_fields(
    generation_config: dict[str, Any] | None, config_json: dict[str, Any]
) -> dict[str, Any]:
    """Returns the fields that have a value: those of generation_config.json, or those of
    config.json if there is no such file."""
    if generation_config is None:
        generation_config = {key: config_json[key] for key in GENERATION & config_json.keys()}
    return {key: value for key, value in generation_config.items() if value is not None}


# Fields that every published configuration may have and that do not change the computation.
INERT = GENERATION | frozenset(
    """
    _name_or_path architectures model_type transformers_version torch_dtype dtype use_cache
    name_or_path id2label label2id num_labels problem_type task_specific_params finetuning_task
    tokenizer_class prefix sep_token_id cls_token_id mask_token_id output_attentions
    output_hidden_states output_past return_dict torchscript use_bfloat16 tf_legacy_loss
    pruned_heads chunk_size_feed_forward is_encoder_decoder cross_attention_hidden_size
    gradient_checkpointing output_scores return_dict_in_generate initializer_range
    initializer_factor auto_map language _attn_implementation attn_implementation
    keys_to_ignore_at_inference loss_type sentence_transformers
    """.split()
)


def stacked(parts: list[Tensor], entry: TensorName) -> Tensor:
    """Returns their tensors in our form."""
    formed = [entry.form.load(part) for part in parts]
    return (formed[0] if len(formed) == 1 else torch.cat(formed)).contiguous()


def unstacked(value: Tensor, entry: TensorName) -> dict[str, Tensor]:
    """Returns our tensor in their form, divided along the first dimension."""
    parts = value.split(entry.shares) if entry.shares else value.chunk(len(entry.theirs))
    return {
        key: entry.form.save(part).contiguous()
        for key, part in zip(entry.theirs, parts, strict=True)
    }


# -- what is written of generation; what the fields mean is in regard/decoding/generation_config.py


def token_ids(model: Model, tokenizer: Tokenizer | None) -> dict[str, int]:
    """Returns the ids of the tokens that begin, end and pad a text, as far as they are known.

    A decoder's text begins after the end of another one, as in the data that it was trained on.
    """
    config: Any = model.config
    if model.kind == "encoder-decoder":
        ids = {"pad_token_id": config.pad_id, "eos_token_id": config.eos_id,
               "decoder_start_token_id": config.start_id}  # fmt: skip
        return {key: value for key, value in ids.items() if known(value, config.vocab_size)}
    if tokenizer is None or tokenizer.fast is None:
        return {}
    from regard.data.special_tokens import special_of

    try:
        special = special_of(tokenizer, "this model")
    except InputError:  # a tokenizer without such tokens
        return {}
    end: int | None = special.end
    start = special.start
    if model.decoding:
        start = end
    elif end in (special.sep, special.start):
        end = None  # the tokenizer has no end token of its own
    ids = {"bos_token_id": start, "eos_token_id": end, "pad_token_id": special.pad}
    return {key: value for key, value in ids.items() if known(value, config.vocab_size)}


def known(token: object, vocab_size: int) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < vocab_size


def ended_by(table: dict[str, Any], end: int) -> dict[str, Any]:
    """Returns the table with this end token among its own, if it names others only: a model that
    was trained on texts with this end would not stop at those."""
    named = table.get("eos_token_id")
    ends = named if isinstance(named, list) else [] if named is None else [named]
    return table if not ends or end in ends else table | {"eos_token_id": [end, *ends]}


def write_generation_config(
    model: Model,
    generation_config: dict[str, Any] | None,
    config_json: dict[str, Any],
    ids: dict[str, int],
) -> dict[str, Any] | None:
    """Returns the content of the file: the fields of the source, with the ids that it lacks. A
    model that cannot generate has none, unless its source had."""
    if not model.decoding:
        return generation_config
    if generation_config is None:
        fields = generation_fields(None, config_json)
        generation_config = {"_from_model_config": True} | fields
    missing = {key: value for key, value in ids.items() if generation_config.get(key) is None}
    return generation_config | missing
