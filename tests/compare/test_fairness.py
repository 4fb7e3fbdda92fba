"""Every model reads the same text, in the same order, to the same budget."""

import json
import math

import numpy as np
import pytest
import torch

from regard.compare.measures import Extent, bits, exact, measure, words_to_hide
from regard.exchange.directory import load
from regard.objectives.base import streams
from regard.text.corpus import Corpus
from regard.training.build import objective_for, settle_batch
from regard.training.run import train
from tests.training import small

OWN = {"gpt": "causal", "bert": "masked", "t5": "span", "transformer": "prefix"}


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    made = small.data(tmp_path_factory.mktemp("text") / "data", documents=80)
    config = json.loads((made / "tokenizer_config.json").read_text())
    config |= {"cls_token": "w4", "sep_token": "w5", "mask_token": "w6", "pad_token": "w0"}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    return made


def test_streams_read_on_in_their_own_stretches():
    order = streams(10, 3)
    assert sorted(order.tolist()) == list(range(10))
    assert order[:6].tolist() == [0, 4, 7, 1, 5, 8]


@pytest.mark.parametrize("model", OWN)
def test_each_place_of_a_step_reads_the_text_in_its_order(model, where):
    made = small.recipe(model, where, objective={"name": OWN[model], "shift": False},
                        batch={"samples": 4, "length": 32, "order": "streams"})  # fmt: skip
    settle_batch(made)
    objective = objective_for(made, "train")
    numbers = objective.order(0)
    assert sorted(numbers.tolist()) == list(range(len(objective)))
    places = [numbers[row::4][: len(numbers) // 4] for row in range(4)]
    assert all((np.diff(place) == 1).all() for place in places)
    assert np.array_equal(objective.order(1), numbers)


def test_a_budget_by_the_clock_is_kept(where, tmp_path):
    made = small.recipe("gpt", where, budget={"steps": 0, "minutes": 0.04, "clock": True})
    facts = train(made, tmp_path / "run", display="silent")
    spent = facts["progress"]["seconds"]
    longest = spent / facts["progress"]["step"] * 5
    assert 2.4 <= spent <= 2.4 + longest
    rates = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    rates = [line["rate"] for line in rates if "rate" in line]
    assert rates[-1] < max(rates) / 4  # the schedule has come to its end with the time


def test_a_budget_in_operations_is_kept(where, tmp_path):
    few = small.recipe("gpt", where, budget={"steps": 7})
    flops = train(few, tmp_path / "few", display="silent")["step_flops"]
    made = small.recipe("gpt", where, budget={"steps": 0, "flops": 7.5 * flops})
    assert train(made, tmp_path / "run", display="silent")["progress"]["step"] == 7


def test_bits_per_byte_are_those_of_the_likelihood(where, tmp_path):
    """Against a sum over single tokens, each with its own forward pass."""
    made = small.recipe("gpt", where, batch={"samples": 4, "length": 16})
    train(made, tmp_path / "run", display="silent")
    loaded, corpus = load(tmp_path / "run"), Corpus.open(where, "test")
    found = exact(loaded, corpus, made)
    ids = corpus.read(0, len(corpus))
    before = np.concatenate([[corpus.special.end], ids])
    nats = 0.0
    with torch.no_grad():
        for at in range(0, 160):
            start = at // 16 * 16
            row = torch.from_numpy(before[start : at + 1])[None]
            log_p = loaded.model.logits(loaded.model(row))[0, -1].double().log_softmax(-1)
            nats -= float(log_p[ids[at]])
    documents = np.asarray(corpus.documents)
    whole = int(np.searchsorted(documents, 160, "right")) - 1
    from regard.objectives.causal import Causal, CausalOptions
    from regard.tasks.modelling import surprisals

    objective = Causal(corpus, CausalOptions(), length=16, batch=4, seed=1, learning=False)
    reading = surprisals(loaded.model, objective, "fp32", lambda *_: None)
    assert found["bits_per_byte"] == pytest.approx(
        sum(reading.nats) / math.log(2) / corpus.bytes, rel=1e-6
    )
    partial = sum(reading.nats[:whole])
    alone = 0.0
    with torch.no_grad():
        for at in range(int(documents[whole])):
            start = at // 16 * 16
            row = torch.from_numpy(before[start : at + 1])[None]
            log_p = loaded.model.logits(loaded.model(row))[0, -1].double().log_softmax(-1)
            alone -= float(log_p[ids[at]])
    assert partial == pytest.approx(alone, rel=1e-5) and nats > 0


def test_bits_have_an_interval_over_documents():
    found = bits([8 * math.log(2), 16 * math.log(2)], [2, 4])
    assert found["bits_per_byte"] == pytest.approx(4.0)
    assert found["bits_per_byte_interval"] == pytest.approx([4.0, 4.0])
    assert bits([math.log(2)], [1])["bits_per_byte_interval"] is None


def test_only_words_are_hidden(where):
    """The end of a document is a target of XLNet and T5, and never one of BERT."""
    corpus = Corpus.open(where, "test")
    words = np.flatnonzero(corpus.read(0, len(corpus)) != corpus.special.end).tolist()
    assert words_to_hide(corpus, len(corpus), 0) == words != list(range(len(corpus)))
    few = words_to_hide(corpus, 10, 0)
    assert len(few) == 10 and set(few) <= set(words) and few == words_to_hide(corpus, 10, 0)


@pytest.mark.parametrize("model", ["bert", "t5", "gpt", "xlnet", "transformer-xl", "lstm"])
def test_what_a_model_is_measured_by_is_what_it_can(model, where, tmp_path):
    own = {"bert": "masked", "xlnet": "permuted", "t5": "span", "gpt": "causal"}
    objective = {"name": own.get(model, "recurrent")}
    if model == "xlnet":
        objective |= {"two_directions": False}
    made = small.recipe(model, where, objective=objective)
    train(made, tmp_path / "run", display="silent")
    prompts = () if model == "t5" else ("w8 w9 w10",)  # these words have no marks for blanks
    extent = Extent(blanks=20, pairs=4, prompts=prompts, tokens=4)
    found = measure(tmp_path / "run", where, extent)
    exactly, both = model not in ("bert", "t5"), model in ("bert", "t5", "xlnet")
    assert ("bits_per_byte" in found) == exactly
    assert ("masked_accuracy" in found) == both == ("pseudo_bits_per_byte" in found)
    if both:
        low, high = found["pseudo_bits_per_byte_interval"]
        assert low <= found["pseudo_bits_per_byte"] <= high
    assert 0 <= found["minimal_pairs"] <= 1
    kinds = ["filled" if model == "bert" else "generated"] * len(prompts)
    assert [sample["kind"] for sample in found["samples"]] == kinds
    assert measure(tmp_path / "run", where, extent) == found
