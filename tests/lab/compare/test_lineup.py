"""Who is compared, and with what budget."""

import pytest

from regard.core.errors import ConfigError, UnknownName
from regard.lab.compare.lineup import LineupEntry, ModelBudget, lineup
from regard.lab.compare.planning import planned


def test_by_default_one_of_each_family():
    entries = lineup([])
    usual = "transformer gpt bert transformer-xl xlnet t5 longformer lstm".split()
    assert [entry.model for entry in entries] == [entry.name for entry in entries] == usual
    objectives = "prefix causal masked recurrent permuted span masked recurrent".split()
    assert [entry.objective for entry in entries] == objectives


def test_an_entry_names_model_objective_and_size():
    assert LineupEntry.of("gpt") == LineupEntry("gpt", "causal")
    assert LineupEntry.of(" bert:masked@tiny") == LineupEntry("bert", "masked", "tiny")
    assert LineupEntry.of("transformer-xl:causal").name == "transformer-xl-causal"
    assert LineupEntry.of("gpt@small").name == "gpt-small"


@pytest.mark.parametrize(
    "text",
    ["gpt:", "gpt@", "", "g p t", "bert:sentences", "gpt:distill", "gpt:masked", "t5:causal",
     "bert:causal", "gpt:span", "xlnet:recurrent"],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(text):
    with pytest.raises((ConfigError, UnknownName)):
        LineupEntry.of(text)


def test_a_model_is_compared_once():
    with pytest.raises(ConfigError, match="twice"):
        lineup(["gpt", "gpt:causal"])
    with pytest.raises(ConfigError, match="nothing"):
        lineup(["ngram"])
    assert [entry.name for entry in lineup(["gpt", " ngram"])] == ["gpt"]


def test_a_size_that_is_none_is_refused_before_any_run():
    options = {"size": "tiny", "seeds": 1, "seq_len": 128, "batch_size": 16, "vocab_size": 4000}
    budget, entries = ModelBudget("tokens", 1e5), (LineupEntry.of("gpt"), LineupEntry.of("t5@huge"))
    with pytest.raises(ConfigError, match=r"t5-huge.*tiny, small, medium"):
        planned(("book.txt",), entries, budget, **options)
    assert planned(("book.txt",), entries[:1], budget, **options).size == "tiny"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("budget.minutes=9", "use --budget"), ("batch.size=2", "use --batch-size"),
        ("seed=4", "use --seeds"), ("batch.order=", "in its order"),
        ("objective.shift=true", "in its order"), ("nonsense", "KEY=VALUE"),
        ("optimizer.speed=3", "optimizer.speed"),
    ],
)  # fmt: skip
def test_what_the_comparison_settles_is_not_set_beside_it(setting, says):
    options = {"size": "tiny", "seeds": 1, "seq_len": 128, "batch_size": 16, "vocab_size": 4000}
    known = planned(("book.txt",), (LineupEntry.of("gpt"),), ModelBudget("tokens", 1e5), **options,
                    settings=("optimizer.lr=0.1", "shape.width=32"))  # fmt: skip
    assert known.settings == ("optimizer.lr=0.1", "shape.width=32")
    with pytest.raises((ConfigError, UnknownName), match=says):
        planned(known.sources, known.entries, known.budget, **options, settings=(setting,))


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
    with pytest.raises(ConfigError):
        ModelBudget.of(text)
