"""What is refused, and how a prompt is understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.decoding import generate, stream
from regard.decoding.prompts import Prompts
from regard.models.bert import Bert, BertConfig
from regard.models.longformer import Longformer
from regard.models.xlnet import XLNet
from tests.decoding.small import SHORT, draw, speaker, talking, tokenizer
from tests.laws.zoo import BERT, LONG, T5_SMALL, XLNET
from tests.refusals import Refusal, refuses


def test_an_empty_prompt_begins_a_text() -> None:
    loaded = talking()
    assert loaded.tokenizer is not None
    end = loaded.tokenizer.ready.token_to_id("<|endoftext|>")
    assert Prompts(loaded).encode("") == [end]
    assert generate(loaded, "", max_new_tokens=5) == generate(loaded, [end], max_new_tokens=5)
    named = LoadedModel(speaker(SHORT).model, source={"bos_token_id": 7, "eos_token_id": 500})
    assert Prompts(named).encode([]) == [7] and Prompts(named).ends() == []


def test_a_prompt_longer_than_the_context() -> None:
    loaded = speaker(SHORT)
    with refuses(InputError, "12 tokens", "11"):
        generate(loaded, draw(12, 1))
    texts = generate(loaded, draw(12, 1), max_new_tokens=4, truncate=True)
    assert texts == generate(loaded, draw(12, 1)[1:], max_new_tokens=4)


def test_sources_end_with_the_end_token() -> None:
    words = tokenizer("unigram")
    end = words.ready.token_to_id("</s>")
    config = T5_SMALL.replace(vocab_size=len(words), eos_id=end)
    from regard.models.t5 import T5

    prompts = Prompts(LoadedModel(T5(config), words))
    ids = prompts.encode("The cat")
    assert ids[-1] == end and ids.count(end) == 1
    assert prompts.encode("") == [end] and prompts.ends() == [end]


def test_padding_and_mask_are_never_chosen() -> None:
    loaded = talking()
    words = loaded.tokenizer
    assert words is not None
    banned = {words.ready.token_to_id(w) for w in ("<|pad|>", "<|mask|>")}
    assert set(Prompts(loaded).suppressed()) == banned
    options = {"num_samples": 60, "temperature": 50.0, "max_new_tokens": 30, "eos_ids": []}
    texts = generate(loaded, "The", **options)[0]
    assert not banned & {i for text in texts for i in text.ids}
    texts = generate(loaded, "The", **options, suppress_tokens=[])[0]
    assert banned & {i for text in texts for i in text.ids}


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        (Bert(BERT, {"classify": 3}), ["Bert", "no output", "classify"]),
        (Bert(BERT), ["Bert", "regard fill"]),
        (Longformer(LONG), ["Longformer", "regard fill"]),
        (XLNet(XLNET, {"classify": 3}), ["XLNet", "no output", "classify"]),
    ],
    ids=["bert-classify", "bert", "longformer", "xlnet-classify"],
)
def test_a_model_that_cannot_generate(model: Any, parts: list[str]) -> None:
    with refuses(InputError, *parts, "transformer, gpt, transformer-xl"):
        generate(LoadedModel(model), [1, 2])


def test_a_text_needs_a_tokenizer() -> None:
    for work, prompt in ((generate, "The cat"), (stream, [1, 2])):
        with refuses(InputError, "tokenizer.json"):
            work(speaker(SHORT), prompt)
    assert generate(speaker(SHORT), [1, 2], max_new_tokens=2)[0][0].text is None


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"max_new_tokens": 0}, (ConfigError, "max_new_tokens is 0")),
        ({"min_new_tokens": 200}, (ConfigError, "min_new_tokens is 200")),
        ({"temperature": -1.0}, (ConfigError, "temperature is -1")),
        ({"temperature": float("nan")}, (ConfigError, "temperature is nan")),
        ({"top_k": 0}, (ConfigError, "top_k is 0")),
        ({"top_p": 0.0}, (ConfigError, "top_p is 0")),
        ({"top_p": 1.5}, (ConfigError, "top_p is 1.5")),
        ({"typical_p": 2.0}, (ConfigError, "typical_p is 2")),
        ({"repetition_penalty": 0.0}, (ConfigError, "repetition_penalty is 0")),
        ({"no_repeat_ngram_size": 0}, (ConfigError, "no_repeat_ngram_size is 0")),
        ({"seed": -1}, (ConfigError, "seed is -1")),
        ({"length_penalty_form": "papier"}, (UnknownName, "length_penalty_form", "'paper'")),
        ({"beam_stopping": "never"}, (UnknownName, "beam_stopping", "'never'")),
        ({"beam_stopping": "full"}, (ConfigError, "beam_stopping is full", "beams")),
        ({"length_penalty": 1.0}, (ConfigError, "length_penalty is 1.0", "beams")),
        ({"precision": "bf15"}, (UnknownName, "precision 'bf15'", "'bf16'")),
        ({"topk": 3}, (UnknownName, "'topk'", "'top_k'")),
        ({"eos_ids": [3, 29]}, (InputError, "eos_ids holds 29")),
        ({"suppress_tokens": [3, 29]}, (InputError, "suppress_tokens holds 29")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_that_cannot_be(options: dict[str, Any], refusal: Refusal) -> None:
    with refuses(*refusal):
        generate(speaker(SHORT), [1], **options)


def test_several_cannot_be_streamed() -> None:
    for options in ({"num_samples": 2}, {"num_beams": 2}):
        with refuses(ConfigError, "num_beams", "num_samples"):
            stream(talking(), "The", **options)


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [([[]], ["empty"]), ([1, 99], ["99", "29"]), ([["a", "b"]], ["['a', 'b']"])],
)
def test_prompts_that_cannot_be(prompt: Any, parts: list[str]) -> None:
    with refuses(InputError, *parts):
        generate(speaker(SHORT), prompt)


def test_a_published_bert_says_what_it_is(tmp_path: Path) -> None:
    """A classifier as it is opened from its directory."""
    from regard.api import load

    model = Bert(
        BertConfig(vocab_size=40, width=16, layers=1, heads=2, ffn_size=16), {"classify": 2}
    )
    LoadedModel(model.initialize()).save(tmp_path / "bert")
    with refuses(InputError, "its heads: classify"):
        generate(load(tmp_path / "bert", dtype=torch.float32), [1])
