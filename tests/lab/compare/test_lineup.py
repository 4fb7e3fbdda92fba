"""Who is compared, and with what budget."""

import pytest

from regard.core.errors import ConfigError, UnknownName
from regard.lab.compare.lineup import LineupEntry, ModelBudget, lineup
from regard.lab.compare.planning import planned
from tests.refusals import refuses


def test_by_default_one_of_each_family():
    entries = lineup([])
    usual = "transformer gpt bert transformer-xl xlnet t5 longformer lstm".split()
    assert [entry.model for entry in entries] == [entry.name for entry in entries] == usual
    objectives = "prefix causal masked recurrent permuted span masked recurrent".split()
    assert [entry.objective for entry in entries] == objectives


OPTIONS = {"size": "tiny", "seeds": 1, "seq_len": 128, "batch_size": 16, "vocab_size": 4000}


def test_an_entry_names_model_objective_and_size():
    assert LineupEntry.of("gpt") == LineupEntry("gpt", "causal")
    assert LineupEntry.of(" bert:masked@tiny") == LineupEntry("bert", "masked", "tiny")
    assert LineupEntry.of("transformer-xl:causal").name == "transformer-xl-causal"
    assert LineupEntry.of("gpt@small").name == "gpt-small"


@pytest.mark.parametrize(
    ("text", "error", "names"),
    [
        ("gpt:", ConfigError, ["'gpt:'", "MODEL:OBJECTIVE@SIZE"]),
        ("gpt@", ConfigError, ["'gpt@'", "MODEL:OBJECTIVE@SIZE"]),
        ("", ConfigError, ["''", "MODEL:OBJECTIVE@SIZE"]),
        ("g p t", ConfigError, ["'g p t'", "MODEL:OBJECTIVE@SIZE"]),
        ("bert:sentences", ConfigError, ["bert", "'sentences'", "masked"]),
        ("gpt:distill", UnknownName, ["objective 'distill'"]),
        ("gpt:masked", ConfigError, ["gpt", "'masked'", "causal or prefix"]),
        ("t5:causal", ConfigError, ["t5", "'causal'", "span or prefix"]),
        ("bert:causal", ConfigError, ["bert", "'causal'", "masked"]),
        ("gpt:span", ConfigError, ["gpt", "'span'", "causal or prefix"]),
        ("xlnet:recurrent", ConfigError, ["xlnet", "'recurrent'", "permuted or causal or prefix"]),
    ],
)
def test_what_cannot_be_compared_is_refused(text, error, names):
    with refuses(error, *names):
        LineupEntry.of(text)


def test_a_model_is_compared_once():
    with refuses(ConfigError, "gpt", "twice"):
        lineup(["gpt", "gpt:causal"])
    with refuses(ConfigError, "nothing"):
        lineup(["ngram"])
    assert [entry.name for entry in lineup(["gpt", " ngram"])] == ["gpt"]


def test_a_size_that_is_none_is_refused_before_any_run():
    budget, entries = ModelBudget("tokens", 1e5), (LineupEntry.of("gpt"), LineupEntry.of("t5@huge"))
    with refuses(ConfigError, "t5-huge", "'huge'", "tiny, small, medium"):
        planned(("book.txt",), entries, budget, **OPTIONS)
    assert planned(("book.txt",), entries[:1], budget, **OPTIONS).size == "tiny"


@pytest.mark.parametrize(
    ("setting", "error", "names"),
    [
        ("budget.minutes=9", ConfigError, ["budget.minutes", "--budget"]),
        ("batch.size=2", ConfigError, ["batch.size", "--batch-size"]),
        ("seed=4", ConfigError, ["seed", "--seeds"]),
        ("objective.pairs=true", ConfigError, ["objective.pairs"]),
        ("nonsense", ConfigError, ["'nonsense'", "KEY=VALUE"]),
        ("optimizer.speed=3", UnknownName, ["'optimizer.speed'"]),
    ],
)
def test_what_the_comparison_settles_is_not_set_beside_it(setting, error, names):
    entries, budget = (LineupEntry.of("gpt"),), ModelBudget("tokens", 1e5)
    settings = ("optimizer.lr=0.1", "shape.width=32")
    known = planned(("book.txt",), entries, budget, **OPTIONS, settings=settings)
    assert known.settings == settings
    with refuses(error, *names):
        planned(known.sources, known.entries, known.budget, **OPTIONS, settings=(setting,))


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [
        ("10m", "minutes", 10), ("90s", "minutes", 1.5), ("2h", "minutes", 120),
        ("0.5min", "minutes", 0.5), ("2Mtok", "tokens", 2e6), ("500000 tokens", "tokens", 5e5),
        ("500ktok", "tokens", 5e5), ("3e14flops", "flops", 3e14), ("0.3Pflop", "flops", 3e14),
    ],
)  # fmt: skip
def test_budgets(text, kind, amount):
    budget = ModelBudget.of(text)
    assert (budget.kind, budget.amount) == (kind, pytest.approx(amount))


@pytest.mark.parametrize(
    "text", ["", "10", "m", "0m", "-3m", "1.2.3s", "ten minutes", "5 MB", "0.5tok", "1e999flop"]
)
def test_what_is_no_budget_is_refused(text):
    with refuses(ConfigError, text, "budget"):
        ModelBudget.of(text)
