"""generation_config.json is obeyed: token by token what transformers' generate gives, in fp64."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
import transformers

from regard.api import LoadedModel, load
from regard.core.errors import ConfigError, FormatError, InputError
from regard.decoding import generate
from tests.decoding.small import draw
from tests.decoding.test_equal import END, KINDS, PAD, cut
from tests.equal.reference import ours, scramble
from tests.refusals import refuses, warns

LLAMA = partial(
    transformers.LlamaConfig, vocab_size=53, max_position_embeddings=64, hidden_size=16,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
    bos_token_id=END, eos_token_id=END, pad_token_id=PAD,
)  # fmt: skip
ALL: dict[str, Any] = KINDS | {"llama": (transformers.LlamaForCausalLM, LLAMA)}
SOURCES = [draw(7, 1, 53), draw(3, 2, 53), draw(1, 9, 53), draw(12, 3, 53)]
TOKENS = {"eos_token_id": [END, 9], "pad_token_id": PAD, "decoder_start_token_id": PAD}
FREE = {"suppress_tokens": []}  # padding and mask may be chosen, as in transformers
BEAMS = {"num_beams": 4, "max_new_tokens": 9}

FILES: dict[str, dict[str, Any]] = {
    "max_new_tokens": {"max_new_tokens": 11},
    "max_length": {"max_length": 16},
    "max_new_tokens before max_length": {"max_new_tokens": 6, "max_length": 16},
    "min_new_tokens": {"max_new_tokens": 12, "min_new_tokens": 10},
    "min_length": {"max_length": 22, "min_length": 19},
    "min_new_tokens above the most": {"max_new_tokens": 4, "min_new_tokens": 9},
    "forced_bos_token_id": {"max_new_tokens": 8, "forced_bos_token_id": 7},
    "forced_eos_token_id": {"max_new_tokens": 8, "forced_eos_token_id": END},
    "forced_eos_token_id, several": {"max_length": 15, "forced_eos_token_id": [9, END]},
    "suppress_tokens": {"max_new_tokens": 12, "suppress_tokens": list(range(2, 40))},
    "begin_suppress_tokens": {"max_new_tokens": 8, "begin_suppress_tokens": list(range(2, 50))},
    "begin_suppress_tokens, forced": {
        "max_new_tokens": 8, "begin_suppress_tokens": list(range(2, 50)), "forced_bos_token_id": 7,
    },
    "bad_words_ids": {"max_new_tokens": 12, "bad_words_ids": "frequent"},
    "repetition_penalty": {"max_new_tokens": 12, "repetition_penalty": 1.7},
    "no_repeat_ngram_size": {"max_new_tokens": 20, "no_repeat_ngram_size": 2},
    "values that change nothing": {
        "max_new_tokens": 8, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0, "top_k": 5,
        "temperature": 0.3, "do_sample": False, "num_beams": 1, "length_penalty": 1.0,
        "num_beam_groups": 1, "diversity_penalty": 0.0, "encoder_no_repeat_ngram_size": 0,
    },
    "num_beams": BEAMS,
    "length_penalty": BEAMS | {"length_penalty": 2.0},
    "length_penalty below 0": BEAMS | {"length_penalty": -1.0, "early_stopping": "never"},
    "early_stopping": BEAMS | {"early_stopping": True},
    "num_return_sequences": BEAMS | {"num_return_sequences": 3},
    "beams, forced_bos_token_id": BEAMS | {"forced_bos_token_id": 7},
    "beams, forced_eos_token_id": BEAMS | {"forced_eos_token_id": END, "length_penalty": 3.0},
    "beams, bad_words_ids": BEAMS | {"bad_words_ids": "frequent"},
    "beams, max_length": {"num_beams": 3, "max_length": 17, "min_length": 15},
    "as Marian is published": {
        "num_beams": 6, "max_length": 20, "bad_words_ids": [[PAD]], "forced_eos_token_id": END,
    },
    "as BART is published": {
        "num_beams": 4, "max_length": 24, "min_length": 16, "length_penalty": 2.0,
        "early_stopping": True, "no_repeat_ngram_size": 3, "forced_bos_token_id": 7,
        "forced_eos_token_id": END,
    },
}  # fmt: skip


@cache
def both(kind: str) -> tuple[LoadedModel, Any]:
    model_class, config = ALL[kind]
    reference = scramble(model_class(config()), 0.2, seed=4).double()
    return ours(reference, Path(mkdtemp()), dtype=torch.float64), reference


def theirs(reference: Any, source: list[int], table: dict[str, Any]) -> list[list[int]]:
    reference.generation_config = transformers.GenerationConfig(**table)
    rows = reference.generate(
        torch.tensor([source]), attention_mask=torch.ones(1, len(source)).long()
    )
    begun = 1 if reference.config.is_encoder_decoder else len(source)
    return [cut(row[begun:].tolist(), [END, 9]) for row in rows]


def mine(loaded: LoadedModel, table: dict[str, Any], **options: Any) -> list[list[list[int]]]:
    opened = LoadedModel(**vars(loaded) | {"generation_config": table})
    chosen = ({} if "suppress_tokens" in table else FREE) | options
    return [[text.ids for text in texts] for texts in generate(opened, SOURCES, **chosen)]


def spelled(kind: str, table: dict[str, Any]) -> dict[str, Any]:
    """Bad words are taken from what the model writes without them, so that they would occur."""
    table = TOKENS | table
    if table.get("bad_words_ids") != "frequent":
        return table
    _, reference = both(kind)
    without = {key: value for key, value in table.items() if key != "bad_words_ids"}
    texts = [theirs(reference, source, without)[0] for source in SOURCES]
    words = [text[at : at + size] for text in texts for at, size in ((1, 2), (3, 3)) if text[at:]]
    return table | {"bad_words_ids": [[END], [texts[0][0]], *words]}


@pytest.mark.parametrize("kind", list(ALL))
@pytest.mark.parametrize("table", FILES.values(), ids=FILES)
def test_every_field(kind: str, table: dict[str, Any]) -> None:
    loaded, reference = both(kind)
    file = spelled(kind, table)
    assert mine(loaded, file) == [theirs(reference, source, file) for source in SOURCES]


@pytest.mark.parametrize("kind", ["t5", "marian"])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_decoder_s_first_tokens(kind: str, beams: int) -> None:
    loaded, reference = both(kind)
    file = TOKENS | {"decoder_start_token_id": 4, "max_new_tokens": 7, "num_beams": beams}
    assert mine(loaded, file) == [theirs(reference, source, file) for source in SOURCES]
    for prefix in ([5, 6], [4, 5, 6]):  # the start token is put before, unless it is there
        expected = reference.generate(
            torch.tensor(SOURCES[:1]), decoder_input_ids=torch.tensor([prefix])
        )
        row = cut(expected[0, 3:].tolist(), [END, 9])
        assert mine(loaded, file, decoder_input_ids=prefix)[0][0] == row


def test_sampling_is_asked_for_by_do_sample() -> None:
    """The draws are ours; which tokens are drawn from is compared in tests/decoding."""
    from regard.decoding.generation_config import options_for

    loaded, _ = both("gpt2")
    rows: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ({"do_sample": True}, {}, {"temperature": 1.0, "top_k": 50, "draws": True}),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 0},
            {},
            {"temperature": 0.6, "top_p": 0.9, "top_k": None},
        ),
        ({"do_sample": True, "num_return_sequences": 3}, {}, {"num_samples": 3}),
        ({"temperature": 0.6, "top_p": 0.9}, {}, {"temperature": None, "draws": False}),
        ({"do_sample": True, "top_p": 0.9}, {"temperature": 0}, {"draws": False}),
        ({"do_sample": True, "top_p": 0.9}, {"num_beams": 3}, {"draws": False, "num_beams": 3}),
        ({"num_beams": 3, "length_penalty": 2.0}, {"top_k": 4}, {"draws": True, "num_beams": 1}),
        ({"num_beams": 3}, {"num_beams": 1}, {"num_beams": 1, "length_penalty": 0.6}),
        ({"length_penalty": 2.0}, {"num_beams": 2}, {"length_penalty_form": "common"}),
        ({}, {"num_beams": 2}, {"length_penalty_form": "paper", "length_penalty": 0.6}),
        ({"max_length": 5}, {"max_new_tokens": 9}, {"max_length": None, "max_new_tokens": 9}),
        ({"max_new_tokens": 5}, {"max_length": 9}, {"max_length": 9}),
        ({"min_length": 5}, {"min_new_tokens": 0}, {"min_length": None}),
        ({"stop_strings": "x"}, {}, {"stop": ("x",)}),
    ]
    for file, chosen, expected in rows:
        opened = LoadedModel(**vars(loaded) | {"generation_config": file})
        options = options_for(opened, chosen)
        assert {name: getattr(options, name) for name in expected} == expected, file


def test_what_is_not_supported_is_named() -> None:
    loaded, _ = both("gpt2")
    for field, value in [
        ("sequence_bias", [[[3], 1.0]]),
        ("encoder_no_repeat_ngram_size", 2),
        ("penalty_alpha", 0.6),
        ("exponential_decay_length_penalty", [4, 1.2]),
        ("a_new_field", 3),
        ("num_beam_groups", 2),
    ]:
        with warns(UserWarning, field, value):
            mine(loaded, {field: value, "max_new_tokens": 2})
    for file, error, *names in [
        ({"do_sample": True, "num_beams": 3}, ConfigError, "num_beams"),
        ({"max_length": "long"}, ConfigError, "max_length"),
        ({"bad_words_ids": [[]]}, ConfigError, "bad_words_ids"),
        ({"suppress_tokens": [53]}, InputError, "suppress_tokens", 53),
        ({"decoder_start_token_id": [1, 2]}, ConfigError, "decoder_start_token_id"),
        ({"max_length": 12}, InputError, "max_length", 12),
    ]:
        with refuses(error, *names):  # type: ignore[arg-type]
            mine(loaded, file)  # type: ignore[arg-type]
    with refuses(ConfigError, "max_length", "max_new_tokens"):
        generate(loaded, SOURCES, max_length=30, max_new_tokens=3)


def test_files(tmp_path: Path) -> None:
    """Of a directory without the file config.json speaks; what is damaged is refused; what was read
    is written again, for both.
    """
    _, reference = both("gpt2")
    reference.generation_config = transformers.GenerationConfig(
        eos_token_id=END, pad_token_id=PAD, num_beams=3, max_length=20, bad_words_ids=[[4, 5]]
    )
    reference.save_pretrained(tmp_path / "new")
    stored = json.loads((tmp_path / "new/generation_config.json").read_text())
    (tmp_path / "new/generation_config.json").rename(tmp_path / "generation_config.json")
    config = json.loads((tmp_path / "new/config.json").read_text())
    (tmp_path / "new/config.json").write_text(json.dumps(config | stored))
    old = load(tmp_path / "new", dtype=torch.float64)
    assert old.generation_config is None
    opened = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "new").double()
    prompt = SOURCES[0]
    rows = opened.generate(torch.tensor([prompt]))
    assert old.generate(prompt, **FREE).ids == cut(rows[0, len(prompt) :].tolist(), [END])
    old.save(tmp_path / "saved")
    again = transformers.GenerationConfig.from_pretrained(tmp_path / "saved")
    assert (again.num_beams, again.max_length, again.bad_words_ids) == (3, 20, [[4, 5]])
    (tmp_path / "new/generation_config.json").write_text("[" * 9)
    with refuses(FormatError, "generation_config.json"):
        load(tmp_path / "new")
