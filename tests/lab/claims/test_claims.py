"""Every claim is declared so that its rule can be judged, and its experiment gives what is asked.

Of the experiments a few are tried by default, one cell each with hardly any steps; with
REGARD_ALL=1 all of them.
"""

import json
import os
import re
from dataclasses import replace

import pytest
import torch

from regard.cli.claims import effort_of, keeping
from regard.core.errors import ConfigError
from regard.data.corpus import Corpus
from regard.lab.claims import claim, names
from regard.lab.claims.engine.claim import Axis, Bilingual, Chart, Claim, ClaimCell
from regard.lab.claims.engine.experiment import ComputedExperiment, FollowedExperiment, Workspace
from regard.lab.claims.engine.guessing import majority_error, unigram
from regard.lab.claims.engine.page import reasons
from regard.lab.claims.engine.rules import (
    Learned,
    Less,
    Outgrows,
    Peak,
    Ratio,
    Rising,
    Shrinks,
    Slope,
    Within,
)
from regard.lab.claims.engine.run import is_outdated, read_facts, run, setting
from regard.lab.claims.engine.texts import ciphers, numerals, spelled
from tests.refusals import refuses

QUICK = ("scaling", "path-length", "accumulation", "in-context", "window", "evaluation-speed")
TINY = 0.004  # of the usual steps


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


def leaves(rule):
    return [*rule.rules, *rule.provided]


@pytest.mark.parametrize("name", names() if os.environ.get("REGARD_ALL") else QUICK)
def test_an_experiment_gives_what_its_rule_and_its_charts_ask_for(name, texts):
    study = claim(name)
    figures = study.experiment.figures(study.cells(1)[0], Workspace(texts, TINY))
    assert all(isinstance(value, float) and value == value for value in figures.values())
    assert {rule.figure for rule in leaves(study.rule)} <= figures.keys()
    assert {rule.than for rule in leaves(study.rule) if isinstance(rule, Learned)} <= figures.keys()
    assert {chart.figure for chart in study.charts} <= figures.keys()


def is_chinese(text):
    return any("\u4e00" <= letter <= "\u9fff" for letter in text)


@pytest.mark.parametrize("name", names())
def test_a_claim_is_declared_so_that_it_can_be_judged_and_read(name):
    study = claim(name)
    assert study.source and study.charts and study.arms and study.rule.words
    assert len({cell.name for cell in study.cells()}) == len(study.cells())
    places = {0.0} if study.axis is None else set(study.axis.places)
    along = Slope | Peak | Rising | Shrinks | Outgrows
    for rule in leaves(study.rule):
        assert {rule.arm, getattr(rule, "other", rule.arm)} <= set(study.arms)
        assert places.issuperset(
            place
            for k in ("at", "first", "last")
            if (place := getattr(rule, k, None)) is not None  # everywhere, or no place
        )
        assert study.axis or not isinstance(rule, along)
    texts = [study.statement, study.setting, *study.notes, *(c.title for c in study.charts)]
    assert all(each.en and is_chinese(each.zh) for each in [*texts, *study.rule.parts()])
    for part in study.rule.parts():  # the same numbers in both languages
        english, chinese = (set(re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?%?", t)) for t in part)
        assert english == chinese


def test_what_decided_is_told_in_both_languages():
    summary = "error at 64: a 1, b 2; error, difference at 64: 0.1, at 1024: 0.03, noise 0.06"
    first, second, third = reasons(f"{summary}; seconds, a over b: 800: 3, 1800: 4", True)
    assert first.zh == "error（在 64 处）：a 1, b 2"
    assert second.zh == "error 之差：在 64 处 0.1，在 1024 处 0.03，噪声 0.06"
    assert third.zh == "a 与 b 的 seconds 之比：800: 3, 1800: 4"


def test_rules_in_chinese_name_their_bounds():
    ratio = Ratio("x", "a", "b", least=2.0, at=8)
    assert ratio.said.zh == "a 的 x 是 b 的至少 2 倍（在 8 处）"
    assert "至多 -1" in Within("x", "a", most=-1.0).said.zh
    assert "5%" in Less("x", "a", "b", margin=0.05).said.zh


# -- one training for several cells


def toy(function, arms=("a", "b"), places=(1, 2, 3)):
    sentence = Bilingual("it is", "如此")
    return Claim(
        name="toy", statement=sentence, source="nobody", setting=sentence, arms=arms,
        axis=Axis(sentence, places), experiment=function, rule=Less("x", "a", "b", at=places[0]),
        charts=(Chart("x", sentence),), seeds=2,
    )  # fmt: skip


@pytest.mark.parametrize(("together", "calls"), [(False, 4), (True, 2)])
def test_what_is_followed_is_learned_once(tmp_path, together, calls):
    seen = []

    def learn(arm, seed, room):
        seen.append((arm, seed))
        arms = ("a", "b") if together else (arm,)
        return {(a, at): {"x": at * seed + (a == "b")} for at in (1, 2, 3) for a in arms}

    facts = run(toy(FollowedExperiment(learn, together)), tmp_path)
    assert len(seen) == len(set(seen)) == calls
    values = {(c["arm"], c["at"], c["seed"]): c["figures"]["x"] for c in facts["cells"]}
    assert values["b", 3, 2] == 7 and values["a", 1, 1] == 1 and len(values) == 12
    assert not list((tmp_path / "texts" / "followed").iterdir())


def test_what_is_stopped_goes_on(tmp_path):
    seen = []

    def measure(arm, at, seed):
        seen.append((arm, at, seed))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return {"x": float(at)}

    study = toy(ComputedExperiment(measure))
    with pytest.raises(KeyboardInterrupt), keeping("again", tmp_path):
        run(study, tmp_path)
    assert (tmp_path / "gallery.html").is_file()
    cells = list((tmp_path / "toy" / "cells").glob("*.json"))
    assert len(cells) == 2 and not (tmp_path / "toy" / "claim.json").exists()
    run(study, tmp_path)
    assert len(seen) == 3 + 10 and seen[2] == seen[3]


def fixed(arm, at, seed):
    return {"x": at + (arm == "b") + 0.01 * seed * (arm == "a")}


def test_the_number_of_seeds_is_part_of_the_claim(tmp_path):
    study = toy(ComputedExperiment(fixed))
    for seeds in (0, 3):
        with refuses(ConfigError, f"{seeds} seeds", "toy fixed 2", "--seeds"):
            run(study, tmp_path, seeds=seeds)
    look = run(study, tmp_path, seeds=1)
    assert (look["verdict"], look["cause"], look["parts"]) == ("undecided", "fewer seeds", [])
    assert "p =" not in look["because"] and "p <" not in look["because"]
    whole = run(study, tmp_path)
    assert whole["verdict"] == "reproduced" and whole["changed"] == []


def test_a_rule_that_was_changed_after_data_is_told_with_the_commit(tmp_path):
    study = toy(ComputedExperiment(fixed))
    run(study, tmp_path, seeds=1)
    other = replace(study, rule=Less("x", "a", "b", at=1, margin=0.1))
    (commit,) = run(other, tmp_path)["changed"]
    assert commit  # of a claim without a file: the version
    assert run(other, tmp_path)["changed"] == [commit]  # it is not forgotten
    more = replace(study, seeds=3)
    assert run(more, tmp_path)["changed"]  # nor are seeds added in silence
    assert run(study, tmp_path / "elsewhere")["changed"] == []
    declared = replace(study, revised=("abc1234",))
    assert run(declared, tmp_path / "revised")["changed"] == ["abc1234"]


def test_the_commit_is_that_of_the_declaration():
    from regard.core import VERSION
    from regard.lab.claims.engine.run import last_commit

    assert re.fullmatch(rf"[0-9a-f]{{7,}}|regard {re.escape(VERSION)}", last_commit(claim("heads")))


def test_what_an_older_version_left_is_measured_again(tmp_path):
    seen, notes = [], []

    def measure(arm, at, seed):
        seen.append(arm)
        return fixed(arm, at, seed)

    study = toy(ComputedExperiment(measure))
    run(study, tmp_path)
    for file in (tmp_path / "toy" / "cells").iterdir():
        record = json.loads(file.read_text())
        del record["plan"]
        file.write_text(json.dumps(record))
    facts = json.loads((tmp_path / "toy" / "claim.json").read_text())
    old = {key: facts[key] for key in ("verdict", "because", "rule", "effort", "seeds", "cells")}
    (tmp_path / "toy" / "claim.json").write_text(json.dumps(old | {"rule": "an older rule"}))
    assert read_facts(tmp_path, "toy") == {} and is_outdated(tmp_path, "toy")
    again = run(study, tmp_path, note=notes.append)
    assert len(seen) == 24 and len(notes) == 1 and "measured again" in notes[0]
    assert again["changed"] and read_facts(tmp_path, "toy") == again


@pytest.mark.parametrize("name", names())
def test_a_claim_about_trained_models_has_five_seeds(name):
    study = claim(name)
    assert study.seeds >= 5 or isinstance(study.experiment, ComputedExperiment)


def test_a_unigram_and_the_commonest_label_by_hand(tmp_path):
    data = ciphers(tmp_path, 400)
    train, valid = (Corpus.open(data, split) for split in ("train", "valid"))
    counts = torch.ones(train.vocab_size).double()
    counts += torch.bincount(
        torch.from_numpy(train.read(0, len(train)).astype("int64")), minlength=train.vocab_size
    )
    ids = torch.from_numpy(valid.read(0, len(valid)).astype("int64"))
    nats = -(counts / counts.sum()).log()[ids]
    figures = unigram(data)
    assert figures["unigram_perplexity"] == pytest.approx(float(nats.mean().exp()))
    bits = float(nats.sum() / torch.log(torch.tensor(2.0).double()) / valid.bytes)
    assert figures["unigram_bits_per_byte"] == pytest.approx(bits)
    assert figures["commonest_wrong"] == float((ids != counts.argmax()).double().mean())
    assert unigram(numerals(tmp_path, 300)) == {}
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps({"label": label}) + "\n" for label in "aabac"))
    assert majority_error(file)["majority_error"] == pytest.approx(0.4)
    file.write_text(json.dumps({"tags": ["a"]}))
    assert majority_error(file) == {}


def test_cells_of_another_setting_are_measured_again(tmp_path):
    seen = []

    def measure(arm, at, seed):
        seen.append(arm)
        return {"x": 1.0}

    study = toy(ComputedExperiment(measure))
    run(study, tmp_path)
    once = len(seen)
    run(study, tmp_path)
    assert len(seen) == once == 12
    run(replace(study, setting=Bilingual("otherwise", "换一种做法")), tmp_path)
    assert len(seen) == 2 * once


def test_a_setting_is_the_same_in_every_process_and_holds_the_steps():
    one, other = (toy(ComputedExperiment(lambda arm, at, seed: {"x": 1.0})) for _ in range(2))
    assert setting(one) == setting(other)
    study = claim("heads")
    longer = replace(study, experiment=replace(study.experiment, steps=7))
    assert setting(longer) != setting(study)


def test_the_window_slides_over_a_model_without_memory():
    from regard.lab.claims.library.evaluation_speed import figures

    assert figures("sliding window", 64, 1)["seconds"] > 0


def test_words_wait_for_each_other_in_an_lstm_alone():
    from regard.lab.claims.library.path_length import longest_chain, model_of

    def steps(arm, length):
        rows = model_of(arm, 1).double()(torch.zeros(1, length, dtype=torch.long))
        return longest_chain(rows[0, -1].sum().grad_fn)

    assert steps("attention", 8) == steps("attention", 40)
    assert steps("lstm", 40) - steps("lstm", 8) == 32 / 8 * (steps("lstm", 16) - steps("lstm", 8))
    assert steps("lstm", 40) - steps("lstm", 8) >= 32


def test_a_chain_of_operations_is_the_longest():
    from regard.lab.claims.library.path_length import longest_chain

    x = torch.ones(2, requires_grad=True)
    short = (x.exp() + x).sum()
    assert (
        longest_chain((x.exp().exp().exp() + x).sum().grad_fn) == longest_chain(short.grad_fn) + 2
    )


def test_a_cell_hangs_on_its_seed_alone():
    from regard.lab.claims.library.feed_forward_is_convolution import figures

    first, again, other = (figures("of three positions", 0, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_budget_becomes_an_effort():
    study = claim("in-context")
    assert effort_of(study, f"{study.minutes / 2:g}m", None) == 0.5
    assert effort_of(study, f"{study.minutes:g}m", None, seeds=1) == study.seeds
    assert effort_of(study, None, None) == 1.0 and effort_of(study, None, 0.25) == 0.25
    for budget, effort, options in (
        ("5m", 0.5, ["--budget", "--effort"]),
        ("2Mtok", None, ["--budget is 2Mtok"]),
        (None, 0.0, ["--effort is 0"]),
        (None, -1.0, ["--effort is -1"]),
    ):
        with refuses(ConfigError, *options):
            effort_of(study, budget, effort)


# -- texts whose answer is known


def test_numbers_in_words():
    known = {0: "zero", 13: "thirteen", 40: "forty", 407: "four hundred seven",
             1000: "one thousand",
             999_999: "nine hundred ninety nine thousand nine hundred ninety nine"}  # fmt: skip
    assert {n: spelled(n) for n in known} == known


def test_numerals_are_pairs_without_unknown_words(tmp_path):
    corpus = Corpus.open(numerals(tmp_path, 300), "train")
    assert corpus.kind == "pairs" and corpus.special.unknown not in corpus.read(0, len(corpus))
    assert numerals(tmp_path, 300) == corpus.directory  # made once


def test_a_line_of_ciphers_keeps_to_one(tmp_path):
    corpus = Corpus.open(ciphers(tmp_path, 400), "train")
    word = corpus.tokenizer.ready.id_to_token
    tables, twice = {}, 0
    for first, last in zip(corpus.documents[:-1], corpus.documents[1:], strict=True):
        tokens = [word(int(i)) for i in corpus.read(int(first), int(last))][:-1]
        pairs = frozenset(zip(tokens[::2], tokens[1::2], strict=True))
        assert len(pairs) == 8 and len(dict(pairs)) == 8
        twice += len({answer for _, answer in pairs}) < 8
        for pair in pairs:
            tables.setdefault(pair, set()).update(pairs)
    assert all(x.startswith("x") and y.startswith("y") for x, y in tables)
    assert twice > 100  # an answer is not ruled out by having been given


def test_cells_have_names_of_their_own():
    cell = ClaimCell("a/b c", 0.5, 2)
    assert cell.name == "a-b-c-0.5-2"
