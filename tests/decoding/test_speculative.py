"""Speculative decoding: equal tokens, or equal in distribution, whatever the draft guesses."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from regard.api import LoadedModel
from regard.core.errors import ConfigError
from regard.decoding import generate, stream
from regard.decoding.generation import Decoder
from regard.decoding.generation_config import options_for
from regard.formats.directory import save
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.lstm import LSTM, LSTMConfig
from tests.decoding.small import talking
from tests.refusals import refuses

tiny = partial(GPTConfig, vocab_size=40, context=24, width=32, layers=2, heads=2, init_std=0.3)
llama = LlamaConfig(
    vocab_size=40, context=64, width=32, layers=2, heads=4, kv_heads=2, ffn_size=48, init_std=0.3
)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"eos_ids": list(range(0, 40, 5)), "min_new_tokens": 4, "top_logprobs": 3},
]


def loaded_of(config: Any, seed: int = 1, dtype: torch.dtype = torch.float32) -> LoadedModel:
    torch.manual_seed(seed)
    model_class = Llama if isinstance(config, LlamaConfig) else GPT
    return LoadedModel(model_class(config).initialize().eval().to(dtype))


@pytest.fixture
def draft(tmp_path: Path) -> str:
    """A smaller model of the same tokens."""
    torch.manual_seed(2)
    return str(save(GPT(tiny(width=16, layers=1)).initialize(), tmp_path / "draft"))


FAMILIES = {"gpt": tiny(), "band": tiny(norm="post", band=3), "llama": llama}
CASES = [
    *(("llama", torch.float32, options) for options in OPTIONS),
    ("gpt", torch.float32, OPTIONS[1]),
    ("gpt", torch.float64, OPTIONS[0]),
    ("band", torch.float32, OPTIONS[0]),
]


@pytest.mark.parametrize("family, dtype, options", CASES)
def test_greedy_tokens_are_equal(
    family: str, dtype: torch.dtype, options: dict[str, Any], draft: str
) -> None:
    """Also where a text continues from the second half of its positions."""
    loaded, prompts = loaded_of(FAMILIES[family], dtype=dtype), [[5, 9, 2, 5, 9], [7]]
    options = {"eos_ids": [], "max_new_tokens": 45} | options
    plain = generate(loaded, prompts, **options)
    for name in ("lookup", draft):
        drafted = generate(loaded, prompts, draft=name, **options)
        for (one,), (other,) in zip(plain, drafted, strict=True):
            assert one.ids == other.ids and one.reason == other.reason
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
            assert [[i for i, _ in best] for best in one.top_logprobs] == [
                [i for i, _ in best] for best in other.top_logprobs
            ]


def test_text_that_repeats_itself_takes_fewer_calls() -> None:
    loaded = loaded_of(tiny(context=200))
    options = options_for(loaded, {"eos_ids": [], "max_new_tokens": 150, "draft": "lookup"})
    decoder = Decoder(loaded, options)
    assert decoder.draft is not None
    with decoder.ready():
        loop = decoder.draft.loop(decoder, [3, 4], 0, 150, 0)
        tokens = [each.token for step in loop.steps() for each in step]
    assert len(tokens) == 150 and loop.rounds < 120


def test_a_draft_that_is_the_model_is_always_right(tmp_path: Path) -> None:
    loaded = loaded_of(tiny(context=200))
    directory = str(save(loaded.model, tmp_path / "same"))
    options = options_for(loaded, {"eos_ids": [], "max_new_tokens": 100, "draft": directory})
    decoder = Decoder(loaded, options)
    assert decoder.draft is not None
    with decoder.ready():
        loop = decoder.draft.loop(decoder, [3, 4], 0, 100, 0)
        assert len([*loop.steps()]) == 100
    assert loop.rounds <= 12


@pytest.mark.parametrize("name", ["lookup", "draft"])
def test_samples_are_equal_in_distribution(name: str, tmp_path: Path) -> None:
    """Three tokens after a prompt, against their exact probabilities."""
    config = tiny(vocab_size=4, width=16, init_std=0.7)
    loaded = loaded_of(config, 3)
    torch.manual_seed(4)
    other = save(GPT(config).initialize(), tmp_path / "draft")
    count, prompt = 400, [1, 2, 1]
    options = {"temperature": 0.9, "num_samples": count, "max_new_tokens": 3, "eos_ids": []}
    (samples,) = generate(
        loaded, [prompt], draft=name if name == "lookup" else str(other), seed=7, **options
    )
    rows = torch.cartesian_prod(*[torch.arange(4)] * 3)
    with torch.inference_mode():
        texts = torch.cat([torch.tensor([prompt]).expand(64, -1), rows], 1)
        logits = loaded.model.logits(loaded.model(texts))[:, 2:5]
        chances = (logits / 0.9).double().softmax(-1).gather(2, rows[..., None])[..., 0].prod(1)
    counts = torch.zeros(64, dtype=torch.float64)
    for sample in samples:
        counts[int(torch.tensor(sample.ids) @ torch.tensor([16, 4, 1]))] += 1
    often = chances * count >= 5  # the rest is one cell
    seen = [*counts[often].tolist(), float(counts[~often].sum())]
    expected = [*(chances[often] * count).tolist(), float(chances[~often].sum() * count)]
    assert len(seen) > 5 and chisquare(seen, expected).pvalue > 0.01


def test_a_draw_is_a_function_of_the_seed(draft: str) -> None:
    loaded = loaded_of(tiny())
    write = partial(generate, loaded, [[3, 4], [5]], temperature=1.0, draft=draft, eos_ids=[])
    first, again, other = write(seed=1), write(seed=1), write(seed=2)
    assert [x.ids for (x,) in first] == [x.ids for (x,) in again] != [x.ids for (x,) in other]
    (alone,) = generate(loaded, [[5]], temperature=1.0, draft=draft, eos_ids=[], seed=1, first=1)
    assert alone[0].ids == first[1][0].ids


def test_a_stream_and_stop_words() -> None:
    loaded = talking(context=100)
    for options in ({}, {"stop": ["a"]}):
        plain = generate(loaded, "The cat", max_new_tokens=30, **options)[0][0]
        pieces = stream(loaded, "The cat", max_new_tokens=30, draft="lookup", **options)
        assert "".join(pieces) == plain.text


def test_drafts_that_cannot_be_are_refused(tmp_path: Path) -> None:
    loaded = loaded_of(tiny())
    other = str(save(GPT(tiny(vocab_size=41)).initialize(), tmp_path / "other"))
    with refuses(ConfigError, "41", "40", "lookup"):
        generate(loaded, [[1]], draft=other)
    with refuses(ConfigError, "num_beams", "draft"):
        generate(loaded, [[1]], draft="lookup", num_beams=2)
    recurrent = LoadedModel(LSTM(LSTMConfig(vocab_size=40, width=16, layers=1)).initialize())
    with refuses(ConfigError, "LSTM", "draft"):
        generate(recurrent, [[1]], draft="lookup")
