"""The decoding options of a model: those of its `generation_config.json`, overruled by a caller's.

The fields mean what they mean in transformers. A field that this library does not have is named in
a warning, never ignored in silence.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from regard.core.errors import ConfigError, RegardError
from regard.core.tables import from_table
from regard.decoding.options import OF_BEAMS, DecodingOptions
from regard.formats import Checkpoint
from regard.formats.format import GENERATION_FILE, TOKENS, generation_fields

TOP_K = 50  # transformers samples among so many tokens unless a file or a caller says otherwise
STOPPING = {True: "full", False: "estimate", "never": "certain"}
DRAWING = ("temperature", "top_k", "top_p", "typical_p", "num_samples")

# Fields that this library does not have, and their values that change nothing.
LACKING: dict[str, Any] = {
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "guidance_scale": 1,
    "watermarking_config": None,
    "remove_invalid_values": False,
    "max_time": None,
    "penalty_alpha": 0,
    "dola_layers": None,
    "num_beam_groups": 1,
    "diversity_penalty": 0,
    "constraints": None,
    "force_words_ids": None,
    "forced_decoder_ids": None,
    "token_healing": False,
}
LACKING_DRAWING = {"min_p": 0, "top_h": None, "epsilon_cutoff": 0, "eta_cutoff": 0}
LACKING_BEAMS = {"renormalize_logits": False}
# Fields that change no token: they are about speed, memory, or what is returned.
INERT = frozenset(
    """
    transformers_version _from_model_config _commit_hash use_cache cache_implementation cache_config
    max_cache_len output_attentions output_hidden_states output_scores output_logits
    return_dict_in_generate is_assistant num_assistant_tokens num_assistant_tokens_schedule
    assistant_confidence_threshold prompt_lookup_num_tokens max_matching_ngram_size
    assistant_early_exit assistant_lookbehind target_lookbehind speculation_type use_mtp
    compile_config disable_compile continuous_batching_config low_memory prefill_chunk_size
    """.split()
)


@dataclass(frozen=True)
class GenerationConfig:
    """The fields of generation_config.json that are obeyed, besides the ids of special tokens."""

    max_length: int | None = None  # with the prompt, or with the decoder's first tokens
    max_new_tokens: int | None = None
    min_length: int | None = None
    min_new_tokens: int | None = None
    do_sample: bool | None = None
    num_beams: int | None = None
    early_stopping: bool | Literal["never"] | None = None
    length_penalty: float | None = None
    num_return_sequences: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    bad_words_ids: Sequence[Sequence[int]] | None = None
    suppress_tokens: Sequence[int] | None = None
    begin_suppress_tokens: Sequence[int] | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] | None = None
    decoder_start_token_id: int | Sequence[int] | None = None
    stop_strings: str | Sequence[str] | None = None

    def options(self) -> dict[str, Any]:
        """Returns the fields as our options."""
        table: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("repetition_penalty", "bad_words_ids", "suppress_tokens",
                         "begin_suppress_tokens", "forced_bos_token_id", "max_new_tokens",
                         "min_new_tokens")
        }  # fmt: skip
        table |= {
            "no_repeat_ngram_size": self.no_repeat_ngram_size or None,
            "forced_eos_token_id": listed(self.forced_eos_token_id),
            "max_length": self.max_length if self.max_new_tokens is None else None,
            "min_length": self.min_length if self.min_new_tokens is None else None,
        }
        start = listed(self.decoder_start_token_id)
        if start is not None:
            if len(start) != 1:
                raise ConfigError(f"decoder_start_token_id is {start!r}; only one id is supported")
            table["decoder_start_token_id"] = start[0]
        if self.stop_strings:
            strings = self.stop_strings
            table["stop"] = (strings,) if isinstance(strings, str) else tuple(strings)
        table |= self.drawing() if self.do_sample else {}
        table |= self.beams()
        return {name: value for name, value in table.items() if value is not None}

    def drawing(self) -> dict[str, Any]:
        several = 1 if (self.num_beams or 1) > 1 else self.num_return_sequences
        return {
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_k": TOP_K if self.top_k is None else self.top_k or None,
            "top_p": self.top_p,
            "typical_p": self.typical_p,
            "num_samples": several,
        }

    def beams(self) -> dict[str, Any]:
        """Returns the options of a beam search. A file that says anything about beams is followed
        whole, with the defaults of transformers; the others leave them to ours."""
        several = (self.num_beams or 1) > 1
        if not several and self.early_stopping is None and self.length_penalty is None:
            return {}
        return {
            "num_beams": self.num_beams,
            "length_penalty_form": "common",
            "length_penalty": 1.0 if self.length_penalty is None else self.length_penalty,
            "beam_stopping": STOPPING[self.early_stopping or False],
            "num_return_sequences": self.num_return_sequences if several else None,
        }


def listed(ids: int | Sequence[int] | None) -> list[int] | None:
    return None if ids is None else [ids] if isinstance(ids, int) else list(ids)


def options_for(
    loaded: Checkpoint, chosen: dict[str, Any], defaults: dict[str, Any] | None = None
) -> DecodingOptions:
    """Returns the options for a model: the caller's choices, then those of its directory, then the
    caller's defaults."""
    explicit = DecodingOptions.of((defaults or {}) | chosen)  # refuses wrong choices, whatever else
    stored = generation_fields(loaded.generation_config, loaded.source)
    where = "config.json" if loaded.generation_config is None else GENERATION_FILE
    names = {field.name for field in fields(GenerationConfig)}
    try:
        table = {name: value for name, value in stored.items() if name in names}
        generation = from_table(GenerationConfig, table, what="field")
        settings = generation.options()
        table = merged(settings, chosen, defaults or {})
        warn_of_lacking(stored, table, names, where)
        return DecodingOptions.of(table) if settings else explicit
    except RegardError as error:
        raise ConfigError(
            f"{where}: {error}; correct the file, or give the option yourself"
        ) from None


def merged(
    stored: dict[str, Any], chosen: dict[str, Any], defaults: dict[str, Any]
) -> dict[str, Any]:
    """Returns one table of options. A choice also removes what contradicts it."""
    ours = dict(stored)
    if "max_new_tokens" in chosen or "max_length" in chosen:
        drop(ours, "max_new_tokens", "max_length")
    if "min_new_tokens" in chosen or "min_length" in chosen:
        drop(ours, "min_new_tokens", "min_length")
    if any(chosen.get(name) is not None for name in DRAWING):
        drop(ours, "num_beams", "num_return_sequences")
    if (chosen.get("num_beams") or 1) > 1:
        drop(ours, *DRAWING)
    others = defaults if not any(name in ours for name in (*DRAWING, "num_beams")) else {}
    table = others | ours | chosen
    if table.get("num_beams", 1) == 1:
        drop(table, *(name for name in OF_BEAMS if name not in chosen))
        if "num_return_sequences" not in chosen:
            drop(table, "num_return_sequences")
    most, least = table.get("max_new_tokens"), table.get("min_new_tokens")
    if most is not None and least is not None and "min_new_tokens" not in chosen:
        table["min_new_tokens"] = min(most, least)  # a text ends at the most in any case
    return table


def drop(table: dict[str, Any], *names: str) -> None:
    for name in names:
        table.pop(name, None)


def warn_of_lacking(
    stored: dict[str, Any], table: dict[str, Any], names: set[str], where: str
) -> None:
    """Warns of every field that would change the tokens in transformers and does not here."""
    neutral = dict(LACKING)
    draws = table.get("temperature") != 0 and any(table.get(name) for name in DRAWING)
    neutral |= LACKING_DRAWING if draws else {}
    neutral |= LACKING_BEAMS if table.get("num_beams", 1) > 1 else {}
    silent = names | INERT | {*TOKENS, *LACKING_DRAWING, *LACKING_BEAMS}
    for name, value in stored.items():
        if name in neutral and value != neutral[name]:
            reason = "which is not supported"
        elif name not in neutral and name not in silent and value is not False:
            reason = "which is not a known field"
        else:
            continue
        warnings.warn(
            f"{where}: {name} is {value!r}, {reason}; texts are generated without it", stacklevel=4
        )
