"""Words follow the figures, and say no more."""

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from regard.lab.compare.measures import BLOCKS, by_blocks
from regard.lab.compare.report import table
from regard.lab.compare.verdict import (
    BITS,
    FEWEST,
    HIDDEN,
    apart,
    chance,
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
    facts = facts_of(3, gpt=[(2.0, *wide), (2.02, *wide), (2.01, *wide)],
                     lstm=[(2.5, *wide), (2.52, *wide), (2.53, *wide)],
                     xl=[(2.0, *wide), (2.4, *wide), (2.1, *wide)])  # fmt: skip
    by_name = {score.model: score for score in scores(facts, BITS)}
    assert apart(by_name["gpt"], by_name["lstm"])
    assert not apart(by_name["gpt"], by_name["xl"])


def test_models_with_the_same_seeds_are_paired():
    one, other = [2.0, 2.3, 2.1, 2.6], [2.05, 2.36, 2.14, 2.66]
    facts = facts_of(4, gpt=[(x, 0, 9) for x in one], lstm=[(x, 0, 9) for x in other])
    pair = scores(facts, BITS)
    assert chance(*pair) == pytest.approx(ttest_rel(one, other).pvalue) and apart(*pair)
    facts["cells"]["lstm-5"] = facts["cells"].pop("lstm-4")  # as many seeds, but not the same
    pair = scores(facts, BITS)
    assert chance(*pair) == pytest.approx(ttest_ind(one, other, equal_var=False).pvalue)
    assert not apart(*pair)


def test_one_against_several_is_corrected():
    one, near = [2.0, 2.1, 2.05], [2.1, 2.24, 2.19]
    facts = facts_of(3, gpt=[(x, 0, 9) for x in one], a=[(x, 0, 9) for x in near])
    assert 0.01 < chance(*scores(facts, BITS)) < 0.05 and len(leaders(scores(facts, BITS))) == 1
    more = {name: [(x, 0, 9) for x in near] for name in "abcde"}
    assert len(leaders(scores(facts_of(3, gpt=[(x, 0, 9) for x in one], **more), BITS))) == 6


def test_nobody_is_last_whose_interval_overlaps_the_one_before():
    facts = facts_of(gpt=[(2.0, 1.9, 2.1)], xl=[(2.5, 2.4, 2.6)], lstm=[(2.55, 2.45, 2.65)])
    first = verdict(facts)[0]
    assert "gpt is best with 2.000." in first.en and "last" not in first.en
    facts["cells"]["lstm-1"]["bits_per_byte_interval"] = [2.61, 2.7]
    assert "the last is lstm" in verdict(facts)[0].en and "末位是 lstm" in verdict(facts)[0].zh


def test_one_seed_is_said_to_be_one_over_documents():
    first = verdict(facts_of(gpt=GPT, lstm=LSTM))[0]
    assert "One seed each: the 95% intervals are over documents" in first.en
    assert "只有一个种子" in first.zh and "文档" in first.zh
    three = {"gpt": [(2.0 + i / 100, 0, 9) for i in range(3)],
             "lstm": [(2.5 + i / 90, 0, 9) for i in range(3)]}  # fmt: skip
    assert "One seed" not in verdict(facts_of(3, **three))[0].en


def masked(**models):
    """Hidden words guessed by model, as (share, low, high), where 6% is the commonest word."""
    cells = {
        f"{model}-1": {
            "masked_accuracy": value, "masked_accuracy_interval": [low, high],
            "masked_commonest": 0.06,
        }
        for model, (value, low, high) in models.items()
    }  # fmt: skip
    plan = {"seeds": 1, "budget": {"kind": "tokens", "amount": 1000.0}}
    return {"plan": plan, "cells": cells, "missing": []}


def test_nobody_is_best_or_last_by_guessing():
    guess = (0.061, 0.05, 0.075)
    sentence = verdict(masked(bert=guess, xlnet=(0.06, 0.05, 0.07)))[0]
    assert "no model is above guessing (6.0%)" in sentence.en and "best" not in sentence.en
    assert "没有模型明显超过随机猜测（6.0%）" in sentence.zh
    sentence = verdict(masked(bert=(0.3, 0.27, 0.33), xlnet=guess))[0]
    assert "only bert is above guessing, with 30.0%" in sentence.en and "last" not in sentence.en
    assert "Not above guessing (6.0%) by more than the noise: xlnet" in sentence.en
    best = [row["model"] for row in table(masked(bert=guess, xlnet=guess), HIDDEN) if row["best"]]
    assert best == []
    three = masked(bert=(0.3, 0.27, 0.33), t5=(0.2, 0.17, 0.23), xlnet=guess)
    assert "bert is best with 30.0%." in verdict(three)[0].en and "last" not in verdict(three)[0].en
    alone = verdict(masked(bert=guess))[0]
    assert (
        "no model is above guessing" in alone.en and "the 95% intervals are over words" in alone.en
    )


def test_an_ngram_inside_of_the_interval_is_not_beaten():
    facts = facts_of(1, 2.05, gpt=GPT, lstm=LSTM)
    sentences = " ".join(each.en for each in verdict(facts))
    assert "Within the noise of the n-gram (2.050 bits per byte): gpt." in sentences
    assert "Better than the n-gram" not in sentences


def test_an_ngram_is_beaten_where_most_documents_say_so():
    """Documents differ much more than the model from the n-gram on the same documents."""
    hard, sway = np.linspace(10, 30, 40), np.tile([1.5, -0.5], 20)
    facts = facts_of(1, 2.1, gpt=[(2.0, 1.0, 3.0)], lstm=[(2.05, 1.0, 3.0)])
    by_document(facts, gpt=hard - sway, lstm=hard + 3 * sway - 2.0)
    counted = by_blocks(hard, np.full(40, 10.0))
    facts["cells"]["ngram"]["bits_per_byte_each"] = counted
    sentences = " ".join(each.en for each in verdict(facts))
    assert "Better than the n-gram (2.100 bits per byte): gpt." in sentences
    assert "Within the noise of the n-gram (2.100 bits per byte): lstm." in sentences
    counted["sizes"][0] += 1  # other documents: then the interval decides
    sentences = " ".join(each.en for each in verdict(facts))
    assert "Within the noise of the n-gram (2.100 bits per byte): gpt and lstm." in sentences


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
    text = [each.en for each in verdict(facts)]  # lstm 1,000 and 3,000; gpt 1,000 and 500
    assert "lstm and gpt train about equally fast (2,000 tokens a second)." in text
    for seed, speed in ((1, 2000.0), (2, 2001.0)):
        facts["cells"][f"lstm-{seed}"]["tokens_per_second"] = speed
        facts["cells"][f"gpt-{seed}"]["tokens_per_second"] = speed - 1000
    assert any(each.en.startswith("lstm trains fastest (2,000 tokens") for each in verdict(facts))
    once = verdict(facts_of(gpt=GPT, lstm=LSTM))
    assert any(each.en.startswith("In its one run gpt trained fastest") for each in once)


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
    assert "within the noise" not in first.en and "无法估计噪声" in first.zh
