"""Words follow the figures, and say no more."""

import numpy as np
import pytest
from scipy.stats import ttest_ind

from regard.lab.compare.measures import BLOCKS, by_blocks
from regard.lab.compare.verdict import (
    BITS,
    FEWEST,
    apart,
    leaders,
    scores,
    verdict,
)


def facts_of(seeds=1, ngram=None, **models):
    """bits_per_byte by model: a list over seeds of (value, low, high)."""
    cells = {}
    for model, values in models.items():
        for seed, (value, low, high) in enumerate(values, 1):
            cells[f"{model}-{seed}"] = {
                "bits_per_byte": value, "bits_per_byte_interval": [low, high],
                "tokens_per_second": 1000.0 / seed, "seed": seed,
            }  # fmt: skip
    if ngram is not None:
        cells["ngram"] = {"bits_per_byte": ngram}
    plan = {"seeds": seeds, "budget": {"kind": "tokens", "amount": 1000.0}}
    return {"plan": plan, "cells": cells, "missing": []}


def test_models_are_ranked_and_told_apart_by_intervals():
    facts = facts_of(gpt=[(2.0, 1.9, 2.1)], lstm=[(2.5, 2.4, 2.6)], xl=[(2.05, 1.95, 2.15)])
    ranked = scores(facts, BITS)
    assert [score.model for score in ranked] == ["gpt", "xl", "lstm"]
    assert not apart(ranked[0], ranked[1]) and apart(ranked[0], ranked[2])
    assert [score.model for score in leaders(ranked)] == ["gpt", "xl"]


def by_document(facts, **models):
    """Adds the bits of every document, of 10 bytes each."""
    for model, bits in models.items():
        cell = facts["cells"][f"{model}-1"]
        cell["bits_per_byte_each"] = by_blocks(np.array(bits), np.full(len(bits), 10.0))
    return facts


def test_what_is_hard_for_both_models_is_no_noise():
    wide = (1.0, 3.0)  # documents differ much more than the models
    hard = np.linspace(10, 30, 40)
    facts = facts_of(gpt=[(2.0, *wide)], lstm=[(2.1, *wide)], xl=[(2.0, *wide)])
    swaying = hard + np.tile([0.5, -0.5], 20)
    ranked = {
        s.model: s for s in scores(by_document(facts, gpt=hard, lstm=hard + 1, xl=swaying), BITS)
    }
    assert apart(ranked["gpt"], ranked["lstm"]) and apart(ranked["lstm"], ranked["gpt"])
    assert not apart(ranked["gpt"], ranked["xl"]) and apart(ranked["xl"], ranked["lstm"])


def test_a_handful_of_documents_tells_nothing_apart():
    bits = np.linspace(10, 30, FEWEST - 1)
    facts = facts_of(gpt=[(2.0, 1.9, 2.1)], lstm=[(2.5, 2.4, 2.6)])
    one, other = scores(by_document(facts, gpt=bits, lstm=bits + 5), BITS)
    assert not apart(one, other)


def test_other_documents_are_compared_by_their_intervals():
    facts = by_document(facts_of(gpt=[(2.0, 1.9, 2.1)], lstm=[(2.5, 2.4, 2.6)]), gpt=[20.0] * 10)
    by_document(facts, lstm=[20.0] * 11)
    assert apart(*scores(facts, BITS))


def test_many_examples_are_kept_in_blocks_of_neighbours():
    sums, sizes = np.arange(2.0 * BLOCKS + 7), np.ones(2 * BLOCKS + 7)
    shared = by_blocks(sums, sizes)
    assert len(shared["sums"]) == len(shared["sizes"]) == BLOCKS
    assert sum(shared["sums"]) == sums.sum() and sum(shared["sizes"]) == len(sums)
    assert by_blocks(np.array([1.0, 0.0])) == {"sums": [1.0, 0.0], "sizes": [1.0, 1.0]}


def test_with_seeds_the_noise_between_them_decides():
    wide = (0.0, 9.0)
    facts = facts_of(2, gpt=[(2.0, *wide), (2.02, *wide)], lstm=[(2.5, *wide), (2.52, *wide)],
                 xl=[(2.0, *wide), (2.4, *wide)])  # fmt: skip
    by_name = {score.model: score for score in scores(facts, BITS)}
    assert apart(by_name["gpt"], by_name["lstm"])
    assert not apart(by_name["gpt"], by_name["xl"])


@pytest.mark.parametrize("shift", [0.03, 0.05, 0.08, 0.2, 0.5])
def test_few_seeds_tell_little(shift):
    """Welch's test: twice the standard error would name one of five differences of two seeds."""
    one, other = [2.0, 2.03, 1.99], [2.0 + shift, 2.06 + shift]
    facts = facts_of(3, gpt=[(x, 0, 9) for x in one], lstm=[(x, 0, 9) for x in other])
    chance = ttest_ind(one, other, equal_var=False).pvalue
    assert apart(*scores(facts, BITS)) == (chance < 0.05)


WIDE = (0.0, 9.0)
GPT, LSTM = [(2.0, 1.9, 2.1)], [(2.5, 2.4, 2.6)]
NOISY = {"gpt": [(2.0, *WIDE), (2.2, *WIDE)], "lstm": [(2.5, *WIDE), (2.5, *WIDE)]}


@pytest.mark.parametrize(
    ("seeds", "ngram", "models", "expected", "untold"),
    [
        (1, None, {"gpt": GPT, "xl": [(2.05, 1.95, 2.15)]},
         ["gpt and xl cannot be told apart", "gpt、xl 之间分不出高下", "trained once"], []),
        (1, 1.7, {"gpt": GPT, "lstm": LSTM}, ["None of them beats"], ["Better than"]),
        (1, 2.2, {"gpt": GPT, "lstm": LSTM}, ["Better than the n-gram (2.200 bits per byte): gpt."],
         ["None of them beats"]),
        (2, 2.15, NOISY, ["Within the noise of the n-gram (2.150 bits per byte): gpt."],
         ["Better than", "None of them beats"]),
        (3, None, {"gpt": GPT, "lstm": LSTM}, ["Trained once so far: gpt and lstm"], []),
        (3, None, {"gpt": GPT * 2, "lstm": LSTM}, ["Trained once so far: lstm."], []),
        (3, None, {"gpt": GPT * 3, "lstm": LSTM * 3}, [], ["once"]),  # all seeds are there
    ],
)  # fmt: skip
def test_what_is_said_follows_the_figures(seeds, ngram, models, expected, untold):
    sentences = verdict(facts_of(seeds, ngram, **models))
    report = "\n".join(text for sentence in sentences for text in sentence)
    assert all(words in report for words in expected) and not any(
        words in report for words in untold
    )


def test_what_is_missing_is_named():
    facts = facts_of(gpt=GPT) | {"missing": ["bert-1"]}
    assert verdict(facts)[-1].en == "Not finished: bert-1."


def test_speed_is_that_of_a_model_over_its_seeds():
    facts = facts_of(2, gpt=[(2.0, 1.9, 2.1)] * 2, lstm=[(2.5, 2.4, 2.6)] * 2)
    facts["cells"]["lstm-2"]["tokens_per_second"] = 3000.0
    sentence = next(each for each in verdict(facts) if "fastest" in each.en)
    wanted = "lstm learns fastest (2,000 tokens a second), 2.7 times as fast as gpt"
    assert sentence.en.startswith(wanted)


def test_a_probe_says_nothing_that_an_untrained_twin_says_too():
    facts = facts_of(gpt=[(2.0, 1.9, 2.1)], lstm=[(2.5, 2.4, 2.6)])
    for name, low in (("gpt-1", 0.75), ("lstm-1", 0.65)):
        facts["cells"][name] |= {
            "probe_accuracy": low + 0.05, "probe_accuracy_interval": [low, low + 0.1],
            "probe_untrained": 0.7,
        }  # fmt: skip
    assert any("more of gpt than" in each.en for each in verdict(facts))
    facts["cells"]["gpt-1"]["probe_untrained"] = 0.9
    assert any("no more of any model" in each.en for each in verdict(facts))


def test_who_keeps_not_to_the_budget_is_named():
    facts = facts_of(gpt=[(2.0, 1.9, 2.1)], lstm=[(2.5, 2.4, 2.6)])
    for name, tokens in (("gpt-1", 951), ("lstm-1", 1049)):
        facts["cells"][name] |= {"tokens": tokens, "seconds": 66.0, "flops": 1e9}
    assert not any("of the budget" in each.en for each in verdict(facts))
    facts["cells"]["gpt-1"]["tokens"] = 940
    sentence = next(each for each in verdict(facts) if "of the budget" in each.en)
    assert "gpt (94%)" in sentence.en and "lstm" not in sentence.en and "gpt (94%)" in sentence.zh
    facts["plan"]["budget"] = {"kind": "minutes", "amount": 1.0}  # 66 seconds are too many
    sentence = next(each for each in verdict(facts) if "of the budget" in each.en)
    assert "gpt (110%) and lstm (110%)" in sentence.en


def test_a_single_document_does_not_show_the_noise():
    """No interval over documents, and one seed: nothing is within a noise that nobody knows."""
    facts = facts_of(gpt=[(2.0, 1.9, 2.1)], lstm=[(2.5, 2.4, 2.6)])
    for cell in facts["cells"].values():
        cell["bits_per_byte_interval"] = None
    first = verdict(by_document(facts, gpt=[20.0], lstm=[25.0]))[0]
    assert "cannot be told apart" in first.en and "do not show the noise" in first.en
    assert "within the noise" not in first.en and "看不出噪声" in first.zh
