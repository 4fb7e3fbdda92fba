"""What is refused, and how a prompt is understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError, RegardError, UnknownName
from regard.decoding import generate, stream
from regard.decoding.prompts import Prompts
from regard.models.bert import Bert, BertConfig
from regard.models.longformer import Longformer
from regard.models.xlnet import XLNet
from tests.decoding.small import SHORT, draw, speaker, talking, tokenizer
from tests.laws.zoo import BERT, LONG, T5_SMALL, XLNET


def test_an_empty_prompt_begins_a_text() -> None:
    loaded = talking()
    assert loaded.tokenizer is not None
    end = loaded.tokenizer.ready.token_to_id("<|endoftext|>")
    assert Prompts(loaded).encode("") == [end]
    assert generate(loaded, "", max_new_tokens=5) == generate(loaded, [end], max_new_tokens=5)
    named = LoadedModel(speaker(SHORT).model, source={"bos_token_id": 7, "eos_token_id": 500})
    assert Prompts(named).encode([]) == [7] and Prompts(named).ends() == []
    with pytest.raises(InputError, match="prompt is empty"):
        generate(speaker(SHORT), [[]])


def test_a_prompt_longer_than_the_context() -> None:
    loaded = speaker(SHORT)
    with pytest.raises(InputError, match="12 tokens, and this model reads 11"):
        generate(loaded, draw(12, 1))
    kept = generate(loaded, draw(12, 1), max_new_tokens=4, truncate=True)
    assert kept == generate(loaded, draw(12, 1)[1:], max_new_tokens=4)


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
    assert set(Prompts(loaded).banned()) == banned
    found = generate(
        loaded, "The", num_samples=60, temperature=50.0, max_new_tokens=30, eos_ids=[]
    )[0]
    assert not banned & {i for each in found for i in each.ids}
    allowed = generate(
        loaded, "The", num_samples=60, temperature=50.0, max_new_tokens=30, eos_ids=[], banned=[]
    )
    assert banned & {i for each in allowed[0] for i in each.ids}


@pytest.mark.parametrize(
    "model,heads,says",
    [
        (Bert(BERT, {"classify": 3}), "classify", "no output over words"),
        (Bert(BERT), "", "fills blanks"),
        (Longformer(LONG), "", "fills blanks"),
        (XLNet(XLNET, {"classify": 3}), "classify", "no output over words"),
    ],
    ids=["bert-classify", "bert", "longformer", "xlnet-classify"],
)
def test_a_model_that_cannot_generate(model: Any, heads: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        generate(LoadedModel(model), [1, 2])
    assert type(model).__name__ in str(refusal.value) and heads in str(refusal.value)
    assert "generate with one of transformer, gpt, transformer-xl" in str(refusal.value)


def test_a_text_needs_a_tokenizer() -> None:
    with pytest.raises(InputError, match="no tokenizer"):
        generate(speaker(SHORT), "The cat")
    with pytest.raises(InputError, match="no tokenizer"):
        stream(speaker(SHORT), [1, 2])
    assert generate(speaker(SHORT), [1, 2], max_new_tokens=2)[0][0].text is None


@pytest.mark.parametrize(
    "options,says",
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"min_new_tokens": 200}, "min_new_tokens is 200"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"typical_p": 2.0}, "typical_p is 2"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0"),
        ({"no_repeat_ngram_size": 0}, "no_repeat_ngram_size is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"length_penalty_form": "papier"}, "did you mean 'paper'"),
        ({"beam_stopping": "never"}, "unknown beam_stopping"),
        ({"beam_stopping": "full"}, "only matters to beams"),
        ({"length_penalty": 1.0}, "only matters to beams"),
        ({"precision": "bf15"}, "did you mean 'bf16'"),
        ({"topk": 3}, "did you mean 'top_k'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_that_cannot_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ConfigError, UnknownName), match=says):
        generate(speaker(SHORT), [1], **options)


def test_several_cannot_be_streamed() -> None:
    for options in ({"num_samples": 2}, {"num_beams": 2}):
        with pytest.raises(ConfigError, match="one text can be streamed"):
            stream(talking(), "The", **options)


def test_ids_outside_the_vocabulary() -> None:
    with pytest.raises(InputError, match="outside the vocabulary"):
        generate(speaker(SHORT), [1, 99])
    for name in ("eos_ids", "banned"):
        with pytest.raises(InputError, match=f"{name} holds 29"):
            generate(speaker(SHORT), [1], **{name: [3, 29]})
    with pytest.raises(RegardError):
        generate(speaker(SHORT), [["a", "b"]])


def test_a_published_bert_says_what_it_is(tmp_path: Path) -> None:
    """A classifier as it is opened from its directory."""
    from regard.api import load

    model = Bert(
        BertConfig(vocab_size=40, width=16, layers=1, heads=2, ffn_size=16), {"classify": 2}
    )
    LoadedModel(model.initialize()).save(tmp_path / "bert")
    with pytest.raises(InputError, match="its heads: classify"):
        generate(load(tmp_path / "bert", dtype=torch.float32), [1])
