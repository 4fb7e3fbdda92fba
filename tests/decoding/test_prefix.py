"""What prompts share at their beginning is read once, and changes no text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.api import LoadedModel
from regard.attention.recorder import record
from regard.decoding import generate
from regard.decoding.batcher import Batcher
from regard.decoding.decode_state import reader_for
from regard.decoding.prefix import LEAST
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.state import compact_caches
from tests.decoding.small import draw
from tests.decoding.test_joined import continued, texts_of

SHAPE: dict[str, Any] = {"vocab_size": 101, "context": 64, "width": 24, "layers": 2, "heads": 2,
                         "init_std": 0.3}  # fmt: skip
MODELS = {
    "gpt": (GPT, GPTConfig(**SHAPE)),
    "band": (GPT, GPTConfig(band=5, **SHAPE)),
    "llama": (Llama, LlamaConfig(kv_heads=1, ffn_size=40, **SHAPE)),
}
BEGINNING = draw(LEAST + 5, 7)
PROMPTS = [BEGINNING + draw(9, 1), BEGINNING + draw(1, 2), BEGINNING + draw(25, 3)]


def loaded_of(name: str) -> LoadedModel:
    torch.manual_seed(1)
    kind, config = MODELS[name]
    return LoadedModel(kind(config).initialize().double().eval())


def rows_read(model: Any) -> list[tuple[int, int]]:
    """Returns the shapes of the tokens that the model reads from now on."""
    shapes: list[tuple[int, int]] = []
    forward = model.forward

    def counted(tokens: torch.Tensor, *args: Any, **more: Any) -> Any:
        shapes.append(tuple(tokens.shape))
        return forward(tokens, *args, **more)

    model.forward = counted
    return shapes


@torch.inference_mode()
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("times", [1, 2])
def test_logits_are_those_of_each_prompt_alone(name: str, times: int) -> None:
    loaded = loaded_of(name)
    alone = torch.cat([reader_for(loaded.model).begin([prompt], 4) for prompt in PROMPTS])
    shapes = rows_read(loaded.model)
    reader = reader_for(loaded.model)
    assert torch.allclose(reader.begin(PROMPTS, 4, times), alone, rtol=0, atol=1e-9)
    assert shapes == [(1, LEAST + 5), (3, 25)]
    next_tokens = torch.arange(3).repeat_interleave(times)
    after = [[*prompt, i] for i, prompt in enumerate(PROMPTS)]
    expected = torch.cat([reader_for(loaded.model).begin([prompt], 4) for prompt in after])
    read = reader.read(next_tokens)
    assert torch.allclose(read, expected.repeat_interleave(times, 0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_texts_are_those_of_each_prompt_alone(name: str) -> None:
    """Also where the positions are full, and a text continues from its second half."""
    loaded = loaded_of(name)
    options = {"max_new_tokens": 40, "eos_ids": []}
    together = generate(loaded, PROMPTS, **options)
    for prompt, samples in zip(PROMPTS, together, strict=True):
        assert samples[0].ids == generate(loaded, prompt, **options)[0][0].ids


@torch.inference_mode()
@pytest.mark.parametrize("prompts", [[BEGINNING] * 3, [[*BEGINNING[:9], 3], BEGINNING]])
def test_equal_and_short_prompts(prompts: list[list[int]]) -> None:
    """Something is left to read of every prompt; a short prefix is not worth a call."""
    loaded = loaded_of("gpt")
    alone = torch.cat([reader_for(loaded.model).begin([prompt], 4) for prompt in prompts])
    logits = reader_for(loaded.model).begin(prompts, 4)
    assert torch.allclose(logits, alone, rtol=0, atol=1e-9)


@torch.inference_mode()
@pytest.mark.parametrize("cache", ["bf16", "int8"])
def test_a_prefix_in_a_compact_cache(cache: str) -> None:
    """It is copied as it was rounded, so later tokens read the same numbers."""
    loaded = loaded_of("llama")
    compact_caches(loaded.model, cache)
    rest = [[*BEGINNING, 3, 4], [*BEGINNING, 5, 6]]
    together = reader_for(loaded.model)
    logits = together.begin(rest, 4)
    for row, prompt in enumerate(rest):
        alone = reader_for(loaded.model)
        alone.begin([BEGINNING], 4)
        alone.read_ahead(torch.tensor(prompt[len(BEGINNING) : -1]))
        expected = alone.read(torch.tensor(prompt[-1:]))
        assert torch.allclose(logits[row], expected[0], rtol=0, atol=1e-4)


def test_a_prompt_that_begins_like_the_last_one_reads_only_the_rest() -> None:
    """As the prompts of a server do that have the same system prompt."""
    loaded = loaded_of("llama")
    options = {"max_new_tokens": 5, "eos_ids": []}
    expected = [generate(loaded, prompt, **options)[0][0].ids for prompt in PROMPTS]
    batcher, shapes = Batcher(loaded.model, 4), rows_read(loaded.model)
    for prompt, ids in zip(PROMPTS, expected, strict=True):
        one = continued(loaded, prompt, options)
        with torch.inference_mode():
            batcher.join([one])
        while batcher.running:
            batcher.step()
        assert texts_of(one)[0].ids == ids
    assert [shape for shape in shapes if shape != (1, 1)] == [(1, LEAST + 14), (1, 25)]


def test_what_is_looked_at_is_read_whole() -> None:
    loaded = loaded_of("gpt")
    shapes = rows_read(loaded.model)
    with record(loaded.model):
        generate(loaded, PROMPTS, max_new_tokens=1)
    assert shapes[0] == (3, LEAST + 5 + 25)
