"""Beam search against enumeration of all texts, and its rules."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.api import LoadedModel
from regard.core.errors import ConfigError
from regard.decoding import generate
from regard.decoding.beam import Beams, Rules, common, paper
from regard.decoding.decode_state import reader_for
from regard.models.gpt import GPT
from regard.models.t5 import T5
from tests.decoding.small import ALL, SHORT, draw, from_scratch, speaker
from tests.laws.zoo import GPT_SMALL, T5_SMALL, Specimen
from tests.refusals import refuses

END, WORDS, LIMIT = 2, 4, 4
TINY = [
    Specimen("gpt", GPT, GPT_SMALL.replace(vocab_size=WORDS), ALL[0].reach),
    Specimen("t5", T5, T5_SMALL.replace(vocab_size=WORDS, pad_id=0, eos_id=END), ALL[0].reach),
]


def every_text(model: Any, prompt: list[int]) -> list[tuple[float, list[int]]]:
    """Every text that ends by its end token or by the limit, with its log-probability."""
    finished, open_ = [], [(0.0, list[int]())]
    while open_:
        total, tokens = open_.pop()
        row = from_scratch(model, prompt, tokens).log_softmax(-1).tolist()
        for token, logprob in enumerate(row):
            text = (total + logprob, [*tokens, token])
            over = token == END or len(text[1]) == LIMIT
            (finished if over else open_).append(text)
    return finished


@pytest.mark.parametrize("specimen", TINY, ids=str)
@pytest.mark.parametrize("name,rule", [("paper", paper), ("common", common)])
def test_a_wide_beam_is_an_exhaustive_search(specimen: Specimen, name: str, rule: Any) -> None:
    model = specimen.fresh(torch.float64, seed=3)
    prompts = [draw(3, 5, WORDS), draw(2, 6, WORDS)]
    texts = [every_text(model, prompt) for prompt in prompts]
    for alpha in (0.0, 0.6, 1.4, -0.5):
        options = {
            "length_penalty_form": name,
            "length_penalty": alpha,
            "max_new_tokens": LIMIT,
            "eos_ids": [END],
            "suppress_tokens": [],
        }
        together = generate(
            LoadedModel(model), prompts, num_beams=WORDS**LIMIT, num_return_sequences=9, **options
        )
        for known, best in zip(texts, together, strict=True):
            expected = sorted(((p / rule(len(t), alpha), t) for p, t in known), reverse=True)[:9]
            assert [x.ids for x in best] == [tokens for _, tokens in expected]
            assert [x.score for x in best] == pytest.approx([s for s, _ in expected])


def test_the_penalties() -> None:
    assert paper(7, 0.6) == pytest.approx((12 / 6) ** 0.6)
    assert paper(1, 0.6) == common(1, 3.0) == 1.0
    assert common(9, 0.5) == 3.0


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_one_beam_is_greedy(specimen: Specimen) -> None:
    """With the rule "full": the first text that ends is the result."""
    loaded, prompts = speaker(specimen), [draw(4, 8), draw(7, 9)]
    plain = generate(loaded, prompts, max_new_tokens=12, eos_ids=[1, 5], suppress_tokens=[])
    with torch.inference_mode():
        reader = reader_for(loaded.model)
        rules = Rules(1, penalty="common", alpha=0.0, stopping="full", limit=12, ends=[1, 5])
        texts = Beams(reader, rules).search(reader.begin(prompts, 12))
    assert [x[0].tokens for x in texts] == [x[0].ids for x in plain]
    assert [x[0].score for x in texts] == pytest.approx([x[0].score for x in plain])


def test_a_certain_stop_changes_no_result() -> None:
    """Stopping when nothing can change gives what going on to the limit gives."""
    loaded = speaker(SHORT)
    for seed in range(8):
        prompt, options = (
            draw(3, seed),
            {"num_beams": 4, "max_new_tokens": 16, "eos_ids": [1, 2, 3], "num_return_sequences": 2},
        )
        stopped = generate(loaded, prompt, **options)[0]
        with torch.inference_mode():
            reader = reader_for(loaded.model)
            logits = reader.begin([prompt], 16, 4)
            endless = Endless(4, best=2, limit=16, ends=[1, 2, 3])
            texts = Beams(reader, endless).search(logits)[0]
        assert [x.ids for x in stopped] == [x.tokens for x in texts]


class Endless(Rules):
    def satisfied(self, alive: float, finished: list[Any], length: int) -> bool:
        return False


def test_rules_stop_sooner_or_later() -> None:
    """A full set of results ends a search no later than a certain one, and may score less."""
    loaded = next(speaker(specimen) for specimen in ALL if specimen.name == "t5-v1_1")
    fuller, estimated = 0, 0
    for seed in range(12):
        options = {
            "num_beams": 3,
            "max_new_tokens": 16,
            "eos_ids": [2],
            "length_penalty_form": "common",
            "length_penalty": 1.5,
        }
        best = {
            rule: generate(
                loaded, draw(3, seed), beam_stopping=rule, suppress_tokens=[], **options
            )[0][0].score
            for rule in ("certain", "estimate", "full")
        }
        assert best["certain"] >= best["estimate"] - 1e-12 >= best["full"] - 2e-12
        fuller += best["full"] < best["certain"]
        estimated += best["estimate"] < best["certain"]
    assert fuller > estimated > 0


def test_a_prompt_that_is_done_takes_no_more_results() -> None:
    """While others of its batch go on; that would change what the rule "full" finds."""
    loaded = next(speaker(specimen) for specimen in ALL if specimen.name == "t5-v1_1")
    prompts = [draw(3, seed) for seed in range(12)]
    options = {
        "num_beams": 3,
        "num_return_sequences": 3,
        "max_new_tokens": 16,
        "eos_ids": [2],
        "length_penalty_form": "common",
        "length_penalty": 1.5,
    }
    together = generate(loaded, prompts, beam_stopping="full", suppress_tokens=[], **options)
    for prompt, texts in zip(prompts, together, strict=True):
        alone = generate(loaded, prompt, beam_stopping="full", suppress_tokens=[], **options)[0]
        assert [x.ids for x in texts] == [x.ids for x in alone]


def test_results_are_sorted_and_different() -> None:
    options = {"num_beams": 6, "num_return_sequences": 6, "max_new_tokens": 7, "eos_ids": [1]}
    texts = generate(speaker(SHORT), draw(3, 1), **options)[0]
    assert [x.score for x in texts] == sorted((x.score for x in texts), reverse=True)
    assert len({tuple(x.ids) for x in texts}) == 6


def test_processors_hold_for_beams() -> None:
    texts = generate(
        speaker(SHORT), draw(6, 2), num_beams=4, num_return_sequences=4, max_new_tokens=9,
         no_repeat_ngram_size=1, min_new_tokens=4, eos_ids=[1],
        suppress_tokens=[7],
    )[0]  # fmt: skip
    for each in texts:
        assert 7 not in each.ids and len(each.ids) >= 4
        everything = [*draw(6, 2), *each.ids]
        new = everything[6:]
        assert len(set(new)) == len(new) and not set(new) & set(draw(6, 2))


def test_beams_do_not_draw() -> None:
    for options in ({"temperature": 0.7}, {"num_samples": 2}, {"top_k": 3}):
        with refuses(ConfigError, "num_beams is 2", *options):
            generate(speaker(SHORT), [1], num_beams=2, **options)
    with refuses(ConfigError, "num_return_sequences is 3"):
        generate(speaker(SHORT), [1], num_beams=2, num_return_sequences=3)
