"""What a budget decides: the size of a new model and the length of its samples."""

import pytest

from regard.core.errors import ConfigError
from regard.models import FAMILIES
from regard.models.family import SHAPES
from regard.training.recipe import make
from regard.training.sizing import (
    LADDER,
    WORTH,
    Amount,
    amount_of,
    best_size,
    layer_weights,
    sample_length,
    sized,
)
from tests.refusals import refuses

GPT = FAMILIES["gpt"]


def speed() -> float:
    return 1e11


def notes_of(table, card=GPT, where=None):
    notes: list[str] = []
    recipe = make({"model": card.name, "data": str(where), **table})
    return sized(recipe, card, speed, notes.append), notes


def test_a_larger_budget_never_gives_a_smaller_model():
    sizes = [layer_weights(best_size(Amount(10.0**n, False), 4096).shape) for n in range(9, 20)]
    assert sizes == sorted(sizes) and sizes[0] == layer_weights(LADDER[0])
    assert sizes[-1] == layer_weights(LADDER[-1])


def test_a_chosen_model_reads_enough_tokens_and_the_next_one_would_not():
    for amount in (Amount(3e13, False), Amount(5e6, True), Amount(4e14, False)):
        chosen = best_size(amount, 8192).shape
        place = LADDER.index(chosen)
        assert amount.tokens(chosen, 8192) >= WORTH * layer_weights(chosen) or place == 0
        for larger in LADDER[place + 1 :]:
            assert amount.tokens(larger, 8192) < WORTH * layer_weights(larger)


def test_operations_buy_fewer_tokens_of_a_larger_model_and_of_a_larger_vocabulary():
    tiny, small = SHAPES["tiny"], SHAPES["small"]
    amount = Amount(1e13, False)
    assert amount.tokens(tiny, 4096) == pytest.approx(1e13 / 6 / (12 * 2 * 128**2 + 4096 * 128))
    assert amount.tokens(small, 4096) < amount.tokens(tiny, 4096) > amount.tokens(tiny, 8192)
    assert Amount(1e6, True).tokens(small, 8192) == 1e6


@pytest.mark.parametrize("budget", [{"minutes": 2.0}, {"tokens": 10**6}, {"steps": 500},
                                    {"epochs": 3.0}, {"flops": 1e13}, {}])  # fmt: skip
def test_every_kind_of_budget_gives_a_size_and_its_reason(budget, where):
    recipe, notes = notes_of({"budget": budget}, where=where)
    assert recipe.size == "auto" and recipe.by_budget and recipe.shape["layers"] >= 2
    assert recipe.batch.seq_len in (64, 128, 256)
    (note,) = notes
    for number in (recipe.shape["layers"], recipe.shape["width"], recipe.batch.seq_len):
        assert str(number) in note


def test_minutes_count_the_speed_of_the_machine(where):
    facts = {"splits": {"train": {"tokens": 1000}}}
    slow = amount_of(make({"budget": {"minutes": 2.0}}), GPT, facts, speed)
    fast = amount_of(make({"budget": {"minutes": 2.0}}), GPT, facts, lambda: 3 * speed())
    assert not slow.of_tokens and fast.value == pytest.approx(3 * slow.value)
    passes = amount_of(make({"budget": {"epochs": 2.5}}), GPT, facts, speed)
    assert passes == Amount(2500, True)


def test_a_published_size_a_named_one_and_a_shape_stay_as_they_are(where):
    for table in ({"model": "gpt2"}, {"size": "tiny", "batch": {"seq_len": 32}},
                  {"shape": {"layers": 1}}, {"recipe": "paper"}):  # fmt: skip
        recipe = make({"model": "gpt", "data": str(where), **table})
        assert sized(recipe, GPT, speed, pytest.fail) == recipe


def test_a_named_size_takes_the_length_of_its_budget(where):
    recipe, notes = notes_of({"size": "tiny", "budget": {"tokens": 10**6}}, where=where)
    assert recipe.size == "tiny" and recipe.shape == {} and notes == []
    assert recipe.batch.seq_len == sample_length(GPT, 1e6) < sample_length(GPT, 1e9)


def test_a_size_that_is_chosen_beside_a_shape_that_is_set_is_refused(where):
    with refuses(ConfigError, "--size auto", "shape.width=64"):
        notes_of({"size": "auto", "shape": {"width": 64}}, where=where)
