"""What is written of generation: `generation_config.json`, and the ids of special tokens in both
files. What the fields mean for decoding is in `regard/decoding/generation_config.py`."""

from __future__ import annotations

from typing import Any

from regard.core.errors import InputError
from regard.data.special_tokens import special_of
from regard.data.tokenizer import Tokenizer
from regard.formats.format import generation_fields
from regard.models.base import Model


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
