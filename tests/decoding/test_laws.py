"""The laws of decoding, on every family: what is remembered, padded or drawn changes nothing."""

from __future__ import annotations

import pytest
import torch

from regard.api import LoadedModel
from regard.core.errors import InputError
from regard.decoding import generate
from regard.decoding.decode_state import Recomputing, reader_for
from regard.models.transformer_xl import TransformerXL
from tests.decoding.small import ALL, SHORT, draw, from_scratch, naive, score, speaker
from tests.laws.zoo import XL, Specimen, model_of
from tests.refusals import refuses

PROMPTS = [draw(5, 1), draw(9, 2), draw(1, 3), draw(9, 4)]


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_cached_is_uncached(specimen: Specimen) -> None:
    """Also far beyond the positions of a GPT, whose window then slides."""
    model = model_of(specimen, torch.float64)
    (texts,) = generate(
        LoadedModel(model), PROMPTS[0], max_new_tokens=24, eos_ids=[], suppress_tokens=[]
    )
    assert texts[0].ids == naive(model, PROMPTS[0], 24)
    assert texts[0].reason == "length"


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_a_batch_is_each_alone(specimen: Specimen) -> None:
    loaded = speaker(specimen)
    for options in (
        {},
        {"temperature": 1.2, "seed": 3},
        {"num_beams": 3, "num_return_sequences": 2},
    ):
        together = generate(loaded, PROMPTS, max_new_tokens=14, suppress_tokens=[3], **options)
        for number, prompt in enumerate(PROMPTS):
            alone = generate(
                loaded, prompt, max_new_tokens=14, suppress_tokens=[3], first=number, **options
            )[0]
            assert [x.ids for x in together[number]] == [x.ids for x in alone]
            assert [x.score for x in together[number]] == pytest.approx([x.score for x in alone])


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_log_probabilities_are_the_models(specimen: Specimen) -> None:
    model = model_of(specimen, torch.float64)
    drawn = {"num_samples": 3, "top_k": 9, "temperature": 0.7, "repetition_penalty": 1.3, "seed": 5}
    for options in (
        drawn,
        {
            "num_beams": 3,
            "num_return_sequences": 3,
            "length_penalty_form": "common",
            "length_penalty": 0.0,
        },
    ):
        for text in generate(
            LoadedModel(model), PROMPTS[1], max_new_tokens=12, eos_ids=[4], **options
        )[0]:
            assert text.logprobs == pytest.approx(score(model, PROMPTS[1], text.ids), abs=1e-9)
            assert text.score == pytest.approx(sum(text.logprobs))


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_rows_that_end_leave_the_others_alone(specimen: Specimen) -> None:
    """Many ends, so that the batch shrinks again and again."""
    model = model_of(specimen, torch.float64)
    ends = tuple(range(0, 29, 4))
    prompts = [draw(1 + i % 5, 20 + i) for i in range(8)]
    texts = generate(
        LoadedModel(model), prompts, max_new_tokens=14, eos_ids=ends, suppress_tokens=[]
    )
    assert [x[0].ids for x in texts] == [naive(model, p, 14, ends) for p in prompts]
    drawn = generate(
        LoadedModel(model), prompts, max_new_tokens=14, eos_ids=ends, num_samples=2, seed=1
    )
    assert len({tuple(x.ids) for each in drawn for x in each}) > len(prompts)
    alone = [
        generate(
            LoadedModel(model), p, max_new_tokens=14, eos_ids=ends, num_samples=2, seed=1, first=i
        )[0]
        for i, p in enumerate(prompts)
    ]
    assert [[x.ids for x in each] for each in drawn] == [[x.ids for x in each] for each in alone]


def test_draws_are_of_seed_prompt_sample_and_step() -> None:
    loaded = speaker(ALL[0])

    def ids(**options: object) -> list[list[int]]:
        texts = generate(loaded, PROMPTS, max_new_tokens=10, temperature=2.0, **options)
        return [x.ids for each in texts for x in each]

    assert ids(seed=1) == ids(seed=1) == ids(seed=1, batch_size=1) == ids(seed=1, batch_size=3)
    assert ids(seed=1) != ids(seed=2)
    assert ids(seed=1, num_samples=3)[::3] == ids(seed=1)
    many = ids(seed=1, num_samples=3)
    assert many[0] != many[1] != many[2]
    assert ids(seed=1, first=1)[0] != ids(seed=1)[0]


def test_temperature_nothing_is_greedy() -> None:
    loaded = speaker(ALL[0])
    plain = generate(loaded, PROMPTS, max_new_tokens=8)
    for options in ({"temperature": 0}, {"top_k": 1, "seed": 4}, {"top_p": 1e-9}):
        assert generate(loaded, PROMPTS, max_new_tokens=8, **options) == plain


def test_a_draw_follows_the_distribution() -> None:
    """20,000 samples of one token: each within five deviations of what is expected."""
    model = model_of(SHORT, torch.float64)
    count, options = 20_000, {"temperature": 1.5, "top_k": 6}
    texts = generate(
        LoadedModel(model), PROMPTS[0], max_new_tokens=1, num_samples=count, **options
    )[0]
    logits = from_scratch(model, PROMPTS[0], []) / 1.5
    best = logits.topk(6)
    share = best.values.softmax(-1)
    counts = torch.bincount(torch.tensor([x.ids[0] for x in texts]), minlength=29).double()
    assert counts[best.indices].sum() == count
    gap = (counts[best.indices] - count * share).abs() / (count * share * (1 - share)).sqrt()
    assert gap.max() < 5


def test_training_mode_is_left_as_it_was() -> None:
    model = ALL[0].fresh(torch.float64).train()
    first, second = (generate(LoadedModel(model), PROMPTS[0], max_new_tokens=6) for _ in range(2))
    assert first == second and model.training


def test_bf16_is_close() -> None:
    for specimen in ALL:
        model = model_of(specimen, torch.float32)
        exact = generate(LoadedModel(model), PROMPTS[1], max_new_tokens=1)[0][0]
        three = {"max_new_tokens": 3, "eos_ids": []}
        near = generate(LoadedModel(model), PROMPTS, precision="bf16", **three)[1][0]
        low = generate(LoadedModel(specimen.fresh(torch.bfloat16)), PROMPTS, **three)[1][0]
        if near.ids[0] == exact.ids[0]:
            assert near.logprobs[0] == pytest.approx(exact.logprobs[0], abs=0.5)
        assert len(near.ids) == len(low.ids) == 3


def test_a_memory_of_nothing_is_no_reason_to_forget() -> None:
    """Transformer-XL trained without memory reads all again at every step."""
    specimen = Specimen("xl-0", TransformerXL, XL.replace(mem_len=0), ALL[0].reach)
    model = model_of(specimen, torch.float64)
    assert isinstance(reader_for(model), Recomputing)
    (results,) = generate(LoadedModel(model), PROMPTS[0], max_new_tokens=12)
    assert results[0].ids == naive(model, PROMPTS[0], 12)


def test_everything_forbidden_is_said() -> None:
    loaded = speaker(SHORT)
    for options in ({}, {"num_beams": 2}, {"top_p": 0.5}):
        with refuses(InputError, "suppress_tokens"):
            generate(loaded, PROMPTS[0], suppress_tokens=list(range(29)), **options)
