"""Reads and writes `generation_config.json`: how a model generates unless a caller says otherwise.

As in transformers, a directory without this file keeps the same fields in config.json. What the
fields mean for decoding is in `regard/decoding/generation_config.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.core.errors import FormatError, InputError
from regard.core.files import read_json
from regard.data.special_tokens import special_of
from regard.data.tokenizer import Tokenizer
from regard.models.base import Model

FILE = "generation_config.json"
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")

# The fields that change which tokens are generated.
FIELDS = frozenset(
    """
    max_length max_new_tokens min_length min_new_tokens do_sample num_beams early_stopping
    length_penalty num_return_sequences temperature top_k top_p typical_p repetition_penalty
    no_repeat_ngram_size bad_words_ids suppress_tokens begin_suppress_tokens forced_bos_token_id
    forced_eos_token_id decoder_start_token_id stop_strings bos_token_id eos_token_id pad_token_id
    min_p top_h epsilon_cutoff eta_cutoff encoder_repetition_penalty encoder_no_repeat_ngram_size
    renormalize_logits exponential_decay_length_penalty sequence_bias guidance_scale
    watermarking_config remove_invalid_values max_time penalty_alpha dola_layers num_beam_groups
    diversity_penalty constraints force_words_ids token_healing forced_decoder_ids
    """.split()
)


def read_generation_config(directory: Path) -> dict[str, Any] | None:
    """Returns the file of a directory, or None if there is none."""
    return read_json(
        directory / FILE, error=FormatError, advice="copy it again, or remove it to use defaults"
    )


def generation_fields(
    generation_config: dict[str, Any] | None, config_json: dict[str, Any]
) -> dict[str, Any]:
    """Returns the fields that have a value: of the file, or of config.json if there is no file."""
    if generation_config is None:
        generation_config = {key: config_json[key] for key in FIELDS & config_json.keys()}
    return {key: value for key, value in generation_config.items() if value is not None}


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
    try:
        special = special_of(tokenizer, "this model")
    except InputError:  # a tokenizer without such tokens
        return {}
    end, start = special.end, special.start
    if model.decoding:
        start = end
    elif end in (special.sep, special.start):
        end = None  # the tokenizer has no end token of its own
    ids = {"bos_token_id": start, "eos_token_id": end, "pad_token_id": special.pad}
    return {key: value for key, value in ids.items() if known(value, config.vocab_size)}


def known(token: object, vocab_size: int) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < vocab_size


def with_tokens(table: dict[str, Any], ids: dict[str, int]) -> dict[str, Any]:
    """Returns the table with these ids where it has none."""
    return table | {key: value for key, value in ids.items() if table.get(key) is None}


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
    return with_tokens(generation_config, ids)
