"""The likeliest tokens of each place: recorded from the logits that a step has, for every way to
decode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError
from regard.decoding import generate, stream
from regard.models.gpt import GPT
from regard.models.t5 import T5
from regard.models.transformer_xl import TransformerXL
from tests.command import run as call
from tests.decoding.small import SPEAKERS, draw, from_scratch, speaker, talking
from tests.laws.zoo import Specimen
from tests.refusals import refuses

CHOSEN = [
    next(s for s in SPEAKERS if type(speaker(s).model) is kind) for kind in (GPT, TransformerXL, T5)
]
WAYS: list[dict[str, Any]] = [{}, {"temperature": 0.7, "top_k": 5, "seed": 3}, {"num_samples": 3},
                              {"num_beams": 3, "num_return_sequences": 2}]  # fmt: skip


@pytest.mark.parametrize("specimen", CHOSEN, ids=lambda each: each.name)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_they_are_those_of_a_full_forward_pass(specimen: Specimen, way: dict[str, Any]) -> None:
    loaded = speaker(specimen)
    prompts = [draw(5, 1), draw(7, 2)]
    plain = generate(loaded, prompts, max_new_tokens=6, **way)
    recorded = generate(loaded, prompts, max_new_tokens=6, top_logprobs=4, **way)
    assert recorded != plain and all(each.top_logprobs == [] for row in plain for each in row)
    for prompt, before, after in zip(prompts, plain, recorded, strict=True):
        assert [each.ids for each in before] == [each.ids for each in after]
        for one in after:
            assert len(one.top_logprobs) == len(one.ids) == len(one.logprobs)
            for place, best in enumerate(one.top_logprobs):
                whole = from_scratch(loaded.model, prompt, one.ids[:place]).log_softmax(-1)
                ids, values = zip(*best, strict=True)
                expected = whole.topk(4)
                torch.testing.assert_close(
                    torch.tensor(values, dtype=whole.dtype), expected.values, rtol=0, atol=1e-5
                )
                assert ids == tuple(expected.indices.tolist())
                assert one.logprobs[place] == pytest.approx(float(whole[one.ids[place]]), abs=1e-5)


def test_a_small_vocabulary_gives_all_its_tokens() -> None:
    loaded = speaker(CHOSEN[0])
    (one,) = generate(loaded, [draw(3, 1)], max_new_tokens=2, top_logprobs=1000)[0]
    assert [len(best) for best in one.top_logprobs] == [loaded.config.vocab_size] * 2
    chances = torch.tensor([p for _, p in one.top_logprobs[0]], dtype=torch.float64).exp()
    assert float(chances.sum()) == pytest.approx(1.0)


def test_texts_of_alternatives_are_those_at_their_place() -> None:
    """A greedy text holds the best alternative of each place."""
    one = talking().generate("The cat sat", max_new_tokens=12, top_logprobs=3)
    firsts = [best[0][0] for best in one.alternatives()]
    pairs = zip(firsts, one.pieces(), strict=True)
    whole = [(a, b) for a, b in pairs if b and "\ufffd" not in a + b]  # no part of a character
    assert len(whole) >= 4 and all(a == b for a, b in whole)
    parts = stream(talking(), "The cat sat", max_new_tokens=12, top_logprobs=3)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            assert end.value == one
            break


def test_a_notebook_shows_them() -> None:
    one = talking().generate("The cat sat", max_new_tokens=3, top_logprobs=2)
    html = one._repr_html_()
    assert html.count("data-probability") == 3
    assert all(title.count(" · ") == 2 for title in html.split('title="')[1:])


def test_the_command_prints_them_as_json(tmp_path: Path) -> None:
    loaded = talking()
    directory = LoadedModel(loaded.model.float(), loaded.tokenizer).save(tmp_path / "gpt")
    words = ["generate", directory, "The cat", "--max-new-tokens", 3, "--logprobs", 2]
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    (text,) = json.loads(result.stdout)["results"][0]["texts"]
    assert [len(best) for best in text["top_logprobs"]] == [2, 2, 2]
    for token, logprob, (first, second) in zip(
        text["ids"], text["logprobs"], text["top_logprobs"], strict=True
    ):
        assert first["id"] == token and first["logprob"] == pytest.approx(logprob)
        assert first["logprob"] >= second["logprob"] and {*first} == {"id", "text", "logprob"}
    refused = call(*words)
    assert isinstance(refused.exception, InputError) and "--json" in str(refused.exception)


def test_a_negative_count_is_refused() -> None:
    with refuses(ConfigError, "top_logprobs", -1):
        talking().generate("The cat", top_logprobs=-1)
