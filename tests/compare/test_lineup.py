"""Who is compared, and with what budget."""

import pytest

from regard.compare.lineup import DEFAULT, Budget, Entry, lineup
from regard.errors import ConfigError, UnknownName


def test_by_default_one_of_each_family():
    entries = lineup([])
    assert [entry.model for entry in entries] == list(DEFAULT)
    assert {entry.name for entry in entries} == set(DEFAULT)


def test_an_entry_names_model_objective_and_size():
    assert Entry.of("gpt") == Entry("gpt", "causal")
    assert Entry.of(" bert:masked@tiny") == Entry("bert", "masked", "tiny")
    assert Entry.of("transformer-xl:causal").name == "transformer-xl-causal"
    assert Entry.of("gpt@small").name == "gpt-small"


@pytest.mark.parametrize("text", ["gpt:", "gpt@", "", "g p t", "bert:sentences", "gpt:distil"])
def test_what_cannot_be_compared_is_refused(text):
    with pytest.raises((ConfigError, UnknownName)):
        Entry.of(text)


def test_a_model_is_compared_once():
    with pytest.raises(ConfigError, match="twice"):
        lineup(["gpt", "gpt:causal"])
    with pytest.raises(ConfigError, match="nothing"):
        lineup(["ngram"])


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [
        ("10m", "minutes", 10), ("90s", "minutes", 1.5), ("2h", "minutes", 120),
        ("0.5min", "minutes", 0.5), ("2Mtok", "tokens", 2e6), ("500000 tokens", "tokens", 5e5),
        ("500ktok", "tokens", 5e5), ("3e14flops", "flops", 3e14), ("0.3Pflop", "flops", 3e14),
    ],
)  # fmt: skip
def test_budgets(text, kind, amount):
    found = Budget.of(text)
    assert (found.kind, found.amount) == (kind, pytest.approx(amount))


@pytest.mark.parametrize("text", ["", "10", "m", "0m", "-3m", "1.2.3s", "ten minutes", "5 MB"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(ConfigError):
        Budget.of(text)
