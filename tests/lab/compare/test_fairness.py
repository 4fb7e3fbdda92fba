"""Every model reads the same text to the same budget."""

import json
import math

import numpy as np
import pytest
import torch

from regard.api import load
from regard.data.corpus import Corpus
from regard.lab.compare.comparison import Comparison, ComparisonCell, ComparisonPlan
from regard.lab.compare.lineup import LineupEntry, ModelBudget
from regard.lab.compare.measures import MeasureSizes, bits, likelihood, measure, words_to_hide
from regard.lab.compare.verdict import KEPT
from regard.models import FAMILIES
from regard.models.state import State
from regard.models.xlnet import XLNet
from regard.objectives.base import streams
from regard.objectives.masked import Masked
from regard.objectives.permuted import Permuted
from regard.objectives.prefix import Prefix
from regard.objectives.span import SpanCorruption
from regard.training.build import resolved
from regard.training.data import TextData
from regard.training.recipe import make, overrides
from regard.training.resolve import MachineFacts
from regard.training.run import train
from tests.objectives.small import SPECIAL
from tests.training import small


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return small.data(tmp_path_factory.mktemp("few") / "data", documents=12)


def test_streams_read_on_in_their_own_stretches():
    order = streams(10, 3)
    assert sorted(order.tolist()) == list(range(10))
    assert order[:6].tolist() == [0, 4, 7, 1, 5, 8]


def recipe_of(model, where, **changes):
    """As a comparison has it trained."""
    entry = LineupEntry.of(model)
    plan = ComparisonPlan(
        (str(where),), (entry,), ModelBudget("tokens", 1e5), seq_len=32, batch_size=4
    )
    words = Comparison(plan, where.parent, print).command(
        ComparisonCell(entry, 1), where.parent / "run"
    )
    settings = [word for word in words if "=" in word]
    base = small.recipe(model, where, objective={"name": entry.objective})
    return make(base.table(), overrides(settings), {"budget": {"steps": 6, "tokens": 0}}, changes)


def text_of(objective, number):
    """The tokens of the text that a sample is made from."""
    if isinstance(objective, Masked):
        return objective.text(0, number)
    if isinstance(objective, Permuted):
        return objective.sample(0, number)["tokens"]
    if isinstance(objective, Prefix):  # and the token before
        return np.concatenate(objective.pair(0, number))[1:]
    if isinstance(objective, SpanCorruption):
        return mended(*(part[:-1].tolist() for part in objective.pair(0, number)))
    sample = objective.sample(0, number)
    return sample["targets"][sample["scored"]]


def mended(source, target):
    """A text whose spans were taken out."""
    spans = {}
    for token in target:
        if token in SPECIAL.sentinels:
            span = spans[token] = []
        else:
            span.append(token)
    return np.array([own for token in source for own in spans.get(token, [token])])


@pytest.mark.parametrize("model", FAMILIES)
def test_every_model_reads_the_whole_text_in_every_pass(model, where):
    """Each sample is a piece of the text as it was written, and the pieces of a pass make up the
    text; they come in a new order in every pass, but to a model with a memory."""
    recipe = recipe_of(model, where)
    data = TextData()
    objective = data.build(resolved(recipe, data, MachineFacts())).objective
    corpus, order = objective.corpus, objective.order(0)
    numbers = np.arange(len(objective)) if order is None else order
    assert sorted(numbers.tolist()) == list(range(len(objective)))
    assert (order is None) == objective.recurrent
    assert order is None or not np.array_equal(objective.order(1), order)
    text = corpus.read(0, len(corpus))
    ring = np.concatenate([text, text[:64]])
    windows = {bytes(ring[at : at + 8]): at for at in range(len(text))}
    count = 0
    for number in range(len(objective)):
        tokens = text_of(objective, number)
        start = windows.get(bytes(tokens[:8]), 0)
        assert len(tokens) < 8 or np.array_equal(ring[start : start + len(tokens)], tokens)
        count += len(tokens)
    assert count == pytest.approx(len(corpus), rel=0.05)


@pytest.mark.parametrize("model", FAMILIES)
def test_a_comparison_may_have_all_read_in_the_order_of_the_text(model, where):
    """Each place of a step reads on in a stretch of the text, which is that of all models."""
    recipe = recipe_of(model, where, batch={"order": "streams"})
    data = TextData()
    objective = data.build(resolved(recipe, data, MachineFacts())).objective
    corpus, order = objective.corpus, objective.order(0)
    numbers = np.arange(len(objective)) if order is None else order
    assert order is None or np.array_equal(objective.order(1), order)
    for place in range(4):
        read = np.concatenate([text_of(objective, int(n)) for n in numbers[place::4][:5]])
        about = place * len(corpus) // 4
        starts = range(max(0, about - 96), about + 96)
        places = [at for at in starts if np.array_equal(corpus.read(at, at + len(read)), read)]
        assert len(places) == 1 and len(read) >= 5 * 30


@pytest.mark.parametrize("model", FAMILIES)
def test_budgets_in_tokens_and_operations_are_kept_within_a_twentieth(model, where, tmp_path):
    def spent(kind, amount):
        budget = {"steps": None, "tokens": None, kind: amount}
        recipe = recipe_of(model, where, budget=budget, validation={"every": 100})
        facts = train(recipe, tmp_path / kind, display="silent")
        progress = facts["progress"]
        return progress["tokens"], progress["step"] * facts["step_flops"]

    tokens = int(25.9 * 4 * 32)  # in steps
    read, flops = spent("tokens", tokens)
    assert abs(read / tokens - 1) <= KEPT
    assert abs(spent("flops", 1.01 * flops)[1] / (1.01 * flops) - 1) <= KEPT


def test_a_budget_by_the_clock_is_kept(where, tmp_path):
    recipe = small.recipe("gpt", where, budget={"steps": None, "minutes": 0.04, "clock": True})
    facts = train(recipe, tmp_path / "run", display="silent")
    spent = facts["progress"]["seconds"]
    longest = spent / facts["progress"]["step"] * 5
    assert 2.4 <= spent <= 2.4 + longest
    rates = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    rates = [line["lr"] for line in rates if "lr" in line]
    assert rates[-1] < max(rates) / 4  # the schedule has come to its end with the time


def test_a_budget_in_operations_is_kept(where, tmp_path):
    few = small.recipe("gpt", where, budget={"steps": 7})
    flops = train(few, tmp_path / "few", display="silent")["step_flops"]
    recipe = small.recipe("gpt", where, budget={"steps": None, "flops": 7.5 * flops})
    assert train(recipe, tmp_path / "run", display="silent")["progress"]["step"] == 7


LEARNED = [
    ("gpt", "causal"), ("longformer-characters", "causal"), ("transformer-xl", "causal"),
    ("transformer-xl", "recurrent"), ("lstm", "recurrent"), ("lstm", "causal"),
    ("xlnet", "permuted"), ("xlnet", "causal"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "objective"), LEARNED)
def test_bits_per_byte_are_those_of_the_likelihood(model, objective, few, tmp_path):
    """Against a sum over single tokens, each with a forward pass of its own over what stands before
    it: in its chunk, whose first half is only context, or in its stream from the beginning, as far
    as the model remembers.
    """
    own = {"name": objective} | ({"two_directions": False} if objective == "permuted" else {})
    recipe = small.recipe(model, few, objective=own, batch={"size": 4, "seq_len": 32})
    train(recipe, tmp_path / "run", display="silent")
    loaded, corpus = load(tmp_path / "run"), Corpus.open(few, "test")
    ids = torch.from_numpy(corpus.read(0, len(corpus)))
    streams = max(1, min(4, len(ids) // 32)) if objective == "recurrent" else 1
    size = -(-len(ids) // streams)
    nats = 0.0
    with torch.no_grad():
        for first in range(0, len(ids), size):
            text = torch.cat([ids[first - 1 :][:1] if first else ids[-1:], ids[first:][:size]])
            for at in range(1, len(text)):
                nats -= alone(loaded.model, objective, text, at)
    figures = likelihood(loaded, corpus, recipe)
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / corpus.bytes, rel=1e-5)


def alone(model, objective, text, at):
    """The logarithm of the chance of text[at]; text[0] is only known."""
    begun = (at - 1) // 32 * 32  # the token before the first one of a segment
    if objective != "recurrent":  # chunks of 32 begin 16 tokens apart, and predict the last 16
        begun = max(0, (at - 1) // 16 * 16 - 16)
    if objective == "permuted":  # a single row asks, and sees all before it
        row, target = text[None, begun : at + 1], torch.tensor([[at - begun]])
        order = torch.arange(at - begun + 1)[None]
        hidden = model(row, order=order, targets=target)[0, 0]
    elif objective == "recurrent":
        state = State()
        for start in range(0, begun, 32):  # whole segments, which the model remembers
            model(text[None, start : start + 32], state=state)
        hidden = model(text[None, begun:at], state=state)[0, -1]
    elif isinstance(model, XLNet):
        hidden = model(text[None, begun:at], order=torch.arange(at - begun)[None])[0, -1]
    else:
        hidden = model(text[None, begun:at])[0, -1]
    return float(model.logits(hidden).double().log_softmax(-1)[text[at]])


def test_bits_have_an_interval_over_documents():
    figures = bits([8 * math.log(2), 16 * math.log(2)], [2, 4])
    assert figures["bits_per_byte"] == pytest.approx(4.0)
    assert figures["bits_per_byte_interval"] == pytest.approx([4.0, 4.0])
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
    recipe = small.recipe(model, where, objective=objective)
    train(recipe, tmp_path / "run", display="silent")
    prompts = () if model == "t5" else ("w8 w9 w10",)  # these words have no marks for blanks
    extent = MeasureSizes(blanks=20, pairs=4, prompts=prompts, tokens=4)
    figures = measure(tmp_path / "run", where, extent)
    exactly, both = model not in ("bert", "t5"), model in ("bert", "t5", "xlnet")
    assert ("bits_per_byte" in figures) == exactly
    assert ("masked_accuracy" in figures) == both == ("pseudo_bits_per_byte" in figures)
    if both:
        low, high = figures["pseudo_bits_per_byte_interval"]
        assert low <= figures["pseudo_bits_per_byte"] <= high
    assert 0 <= figures["minimal_pairs"] <= 1
    kinds = ["filled" if model == "bert" else "generated"] * len(prompts)
    assert [sample["kind"] for sample in figures["samples"]] == kinds
    assert measure(tmp_path / "run", where, extent) == figures
