"""What every objective promises. A new one is added by one entry of CASES."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.core.tables import from_table
from regard.data.corpus import Corpus
from regard.objectives import OBJECTIVES
from regard.objectives import objective as find
from regard.objectives.base import Batch
from regard.training.loop import Batches, Loop
from regard.training.optimizer import optimizer
from regard.training.parallel import ProcessGroup, SingleProcess
from regard.training.train_module import TrainModule
from tests.objectives.rules import (
    SHAPES,
    check_learning,
    check_micro_batches,
    check_purity,
    make,
    tiny,
    totals,
)
from tests.objectives.sentences_corpus import spoken_corpus
from tests.objectives.small import (
    FIRST,
    LAST,
    counting_documents,
    random_documents,
    text_corpus,
)
from tests.refusals import refuses

WORDS = [[[i] * 28] for i in range(FIRST, LAST)]  # a document says one word, again and again


def echoes(count: int) -> list[list[list[int]]]:
    """Pairs that are easy to learn: the target counts on from the source's last word."""
    size = LAST - FIRST
    return [
        [[FIRST + i % size], [FIRST + (i + j) % size for j in range(1, 5 + i % 4)]]
        for i in range(count)
    ]


def pairs_corpus(directory: Path, documents: Any) -> Corpus:
    return text_corpus(directory, documents, kind="pairs")


@dataclass(frozen=True)
class Case:
    """An objective, who can learn it, and what is easy for it."""

    models: str  # families that can learn it; of those that cannot, `check` names who can
    seq_len: int = 8
    batch_size: int = 4
    options: dict[str, Any] = field(default_factory=dict)
    others: tuple[dict[str, Any], ...] = ()  # more options to check the losses with
    corpus: Callable[[Path, Any], Corpus] = text_corpus
    documents: Any = field(default_factory=lambda: random_documents(30, sentences=(2, 6), seed=5))
    easy: Any = field(default_factory=lambda: counting_documents(10, 20))
    learning: dict[str, Any] = field(
        default_factory=dict
    )  # seq_len, batch_size, steps, fall, lr, …
    sizes: tuple[int, ...] = (1, 2, 3)  # of micro-batches
    shape: dict[str, Any] = field(default_factory=dict)  # of the model
    refused: tuple[tuple[dict[str, Any], str], ...] = ()  # options, and the word that is named
    figures: str = "bits_per_byte perplexity"


MIXED = (
    {"name": "text", "objective": "causal", "share": 3},
    {"name": "whole", "objective": "prefix", "share": 1, "seq_len": 12},
)
XLNET = {"two_directions": True, "reuse_len": 16, "mem_len": 24}
CASES = {
    "causal": Case(
        "gpt lstm longformer-characters transformer-xl xlnet bert",
        others=({"documents": "separate"},),
        learning={"seq_len": 16},
        refused=(({"documents": "alone"}, "documents"), ({"overlap": 8}, "overlap is 8")),
    ),
    "recurrent": Case(
        "transformer-xl xlnet lstm",
        documents=random_documents(8, seed=5),
        easy=counting_documents(10, 40),
        learning={"seq_len": 16},
        refused=(
            ({"evaluation_length": 0}, "evaluation_length"),
            ({"evaluation_mem_len": -1}, "evaluation_mem_len"),
            ({"evaluation_clamp_len": -1}, "evaluation_clamp_len"),
        ),
    ),
    "prefix": Case(
        "gpt bert xlnet t5 transformer",
        others=({"documents": "separate"},),
        learning={"seq_len": 16, "batch_size": 8},
        refused=(({"documents": "alone"}, "documents"),),
    ),
    "span": Case(
        "t5 transformer gpt lstm bert longformer-characters xlnet transformer-xl",
        seq_len=20,
        others=({"both_sides": True}, {"z_loss": 1e-2}),
        learning={"seq_len": 16, "batch_size": 8, "fall": 0.75, "models": "t5 transformer gpt"},
        refused=(
            ({"density": 0.0}, "density"),
            ({"density": 1.0}, "density"),
            ({"mean": 0.5}, "mean"),
            ({"z_loss": -1.0}, "z_loss"),
            ({"seq_len": 2}, "batch.seq_len is 2"),
        ),
        figures="perplexity",
    ),
    "pairs": Case(
        "t5 transformer gpt lstm bert longformer-characters xlnet",
        seq_len=40,
        others=({"reported": "kl"}, {"both_sides": True}, {"multiple": 0, "z_loss": 1e-2}),
        corpus=pairs_corpus,
        documents=random_documents(30, sentences=(2, 2), words=(0, 9), seed=5),
        easy=echoes(40),
        learning={
            "seq_len": 16, "batch_size": 8, "models": "t5 transformer gpt",
            "options": {"reported": "kl"},
        },
        refused=(
            ({"reported": "nats"}, "reported"),
            ({"multiple": -1}, "multiple"),
            ({"z_loss": -1.0}, "z_loss"),
            ({"smoothing": 1.5}, "smoothing is 1.5"),
            ({"smoothing_kind": "few"}, "smoothing"),
            ({"seq_len": 3}, "batch.seq_len is 3"),
        ),
        figures="perplexity",
    ),
    "masked": Case(
        "bert longformer",
        seq_len=32,
        others=({"documents": "separate"}, {"rare": 0.5}, {"whole_words": "pieces"}),
        corpus=spoken_corpus,
        documents=random_documents(60, sentences=(1, 6)),
        easy=WORDS,
        learning={
            "seq_len": 16, "batch_size": 8, "steps": 100, "fall": 0.65, "lr": 4e-3, "scale": 1.0,
            "options": {"documents": "separate", "share": 0.3},
        },
        refused=(
            ({"share": 0.0}, "share is 0"),
            ({"duplicates": 0}, "duplicates"),
            ({"most": 0}, "most"),
            ({"whole_words": "yes"}, "whole_words"),
            ({"rare": -1.0}, "rare is -1"),
            ({"rare": 0.7, "whole_words": "pieces"}, "whole_words"),
            ({"documents": "alone"}, "documents"),
            ({"seq_len": 2}, "batch.seq_len 2"),
        ),
        figures="masked_accuracy masked_perplexity",
    ),
    "sentences": Case(
        "bert longformer",
        seq_len=32,
        options={"dynamic": True},
        others=({"task": "order"}, {"task": "none"}),
        corpus=spoken_corpus,
        documents=random_documents(40, sentences=(2, 8)),
        easy=[[[word] * 5 for _ in range(12)] for word in range(FIRST, FIRST + 8)],
        learning={
            "seq_len": 16, "batch_size": 16, "steps": 100, "fall": 0.75, "lr": 3e-3, "scale": 1.0,
        },
        shape={"segments": 2},
        refused=(
            ({"task": "previous"}, "task is 'previous'"),
            ({"short": 2.0}, "short is 2"),
            ({"share": 0.0}, "share is 0"),
            ({"most": 0}, "most"),
            ({"seq_len": 4}, "no room"),
        ),
        figures="masked_accuracy masked_perplexity next_accuracy",
    ),
    "permuted": Case(
        "xlnet",
        seq_len=32,
        batch_size=6,
        others=({"units": "words"}, {"memory": False}),
        corpus=spoken_corpus,
        documents=random_documents(60, sentences=(2, 8)),
        easy=[[[7 + (7 * i + j) % 22] * 9 for j in range(12)] for i in range(40)],
        learning={"batch_size": 4, "steps": 120, "fall": 0.7, "lr": 4e-3, "scale": 1.0},
        sizes=(2, 4),
        shape=XLNET,
        refused=(
            ({"seq_len": 63}, "batch.seq_len 63"),
            ({"seq_len": 8}, "at least 10"),
            ({"block": 32}, "block 32 is more"),
            ({"block": 12}, "block 12 does not divide"),
            ({"block": 0}, "block 0"),
            ({"units": "letters"}, "units is 'letters'"),
            ({"batch_size": 3}, "batch of 3"),
            ({"targets": 65}, "targets 65"),
            ({"targets": 0}, "targets 0"),
            ({"longest": 0}, "longest"),
            ({"context": 0}, "context"),
        ),
        figures="permuted_accuracy permuted_perplexity",
    ),
    "mixture": Case(
        "gpt bert xlnet",
        options={"parts": MIXED},
        learning={"seq_len": 16, "batch_size": 8},
        refused=(
            ({"parts": ()}, "parts"),
            ({"parts": [{"objective": "causal"}]}, "parts.share is missing"),
            ({"parts": [MIXED[0]] * 2}, "name 'text'"),
            ({"parts": [{**MIXED[0], "name": "a.b"}]}, "'a.b'"),
            ({"parts": [{**MIXED[0], "share": 0}]}, "share 0"),
            ({"parts": [{**MIXED[0], "weight": -1}]}, "weight -1"),
            ({"parts": [{**MIXED[0], "seq_len": 0}]}, "seq_len 0"),
            ({"parts": [{"objective": "causal", "shares": 1}]}, "'objective.parts.share'"),
            ({"parts": [{"objective": "casual", "share": 1}]}, "'causal'"),
            ({"parts": [{**MIXED[0], "options": {"overlaps": 3}}]}, "'overlap'"),
            ({"parts": [{"objective": "recurrent", "share": 1}]}, "'recurrent' cannot be mixed"),
            ({"parts": [{"objective": "mixture", "share": 1}]}, "'mixture' cannot be mixed"),
        ),
        figures="loss text.bits_per_byte text.perplexity whole.bits_per_byte whole.perplexity",
    ),
}  # fmt: skip
BUILT: dict[str, Corpus] = {}
every = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def build(name: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Builds the objective of a case; what is not its own option is a size."""
    case = CASES[name]
    if name not in BUILT:
        BUILT[name] = case.corpus(tmp_path_factory.mktemp(name), case.documents)

    def built(**changes: Any) -> Any:
        own = {"seq_len": case.seq_len, "batch_size": case.batch_size} | case.options | changes
        return make(find(name), own.pop("corpus", BUILT[name]), **own)

    return built


def model_for(name: str, objective: Any, family: str | None = None, **changes: Any) -> Any:
    """A model that can learn it: the first of those in the case unless one is named."""
    case = CASES[name]
    family = family or case.models.split()[0]
    shape = case.shape if family in case.models.split() else {}
    return tiny(family, heads_of=objective.heads(), **shape | changes)


def of_options() -> list[Any]:
    return [(name, more) for name, case in CASES.items() for more in ({}, *case.others)]


def test_no_objective_is_left_out() -> None:
    assert CASES.keys() == OBJECTIVES.keys()


@every
def test_a_sample_is_a_function_of_seed_and_number(build: Any) -> None:
    check_purity(build)


@pytest.mark.parametrize(("name", "more"), of_options())
def test_micro_batches_add_up(name: str, more: dict[str, Any], build: Any) -> None:
    """Samples have uneven numbers of targets, and a state goes along where there is one."""
    numbers, sizes = range(6), CASES[name].sizes
    objective = build(batch_size=len(numbers), **more)
    model = model_for(name, objective, dtype=torch.float64)
    check_micro_batches(objective, model, numbers, sizes, steps=2 if objective.recurrent else 1)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        (name, family)
        for name, case in CASES.items()
        for family in case.learning.get("models", case.models).split()
    ],
)
def test_it_learns(name: str, family: str, tmp_path: Path) -> None:
    case = CASES[name]
    more = {
        "seq_len": case.seq_len,
        "batch_size": case.batch_size,
        "options": case.options,
    } | case.learning
    more.pop("models", None)
    options = more.pop("options")
    sizes = {key: more.pop(key) for key in ("seq_len", "batch_size")}
    scale = more.pop("scale", 3.0)
    objective = make(find(name), case.corpus(tmp_path, case.easy), **sizes, **options)
    more["steps"] = 200 if family == "lstm" else more.get("steps", 50)
    model = model_for(name, objective, family, scale=scale)
    objective.check(model)
    check_learning(objective, model, **more)


def padding(batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids of a batch, and which of them are padding that nobody may look at."""
    for part in batch.values():
        if isinstance(part, dict):
            yield from padding(part)
    if "attention_mask" in batch:
        yield batch["tokens"], ~batch["attention_mask"]
    if "sizes" in batch:
        whole = batch["sizes"].sum(1, keepdim=True)
        yield batch["tokens"], torch.arange(batch["tokens"].size(1)) >= whole
        yield batch["source"], ~batch["source_attention_mask"]
        yield batch["target"], ~batch["target_scored"]
    elif "scored" in batch:
        behind = batch["scored"].flip(1).cumsum(1).flip(1) == 0
        yield batch["tokens"], behind
        yield batch["targets"], behind


@pytest.mark.parametrize(("name", "more"), of_options())
def test_padding_changes_nothing(name: str, more: dict[str, Any], build: Any) -> None:
    objective = build(**more)
    families = CASES[name].models.split()
    for family in {families[0], "gpt" if "gpt" in families else families[-1]}:
        model = model_for(name, objective, family, dtype=torch.float64).eval()
        last = len(objective) - objective.batch_size
        places = objective.arrange(list(range(last, len(objective))))
        batch = objective.collate([objective.sample(0, place) for place in places])
        state = objective.begin(model, len(places))
        expected = objective.loss(model, batch, state)
        for ids, empty in padding(batch):
            ids[empty] = FIRST + 2
        loss = objective.loss(model, batch, objective.begin(model, len(places)))
        assert loss.counts == expected.counts
        torch.testing.assert_close(loss.sums, expected.sums)


@every
def test_sums_have_counts_and_weights(name: str, build: Any) -> None:
    objective = build()
    places = objective.arrange(list(range(objective.batch_size)))
    batch = objective.collate([objective.get(place) for place in places])
    model = model_for(name, objective)
    loss = objective.loss(model, batch, objective.begin(model, len(places)))
    assert loss.sums.keys() == loss.counts.keys() >= objective.weights.keys()
    assert loss.counts == objective.counts(batch) and min(loss.counts.values()) > 0
    assert all(value.dim() == 0 and value.requires_grad for value in loss.sums.values())
    assert objective.targets_in(batch) > 0
    tokens = objective.tokens_in(batch)
    assert tokens is None or 0 < tokens <= objective.batch_size * objective.max_len
    assert 0 < objective.mean_len <= objective.max_len >= objective.longest


@every
def test_validation_is_the_same_every_time(name: str, build: Any) -> None:
    """Whatever the seed of the torch generator; and its figures are those that are documented."""
    objective = build(learning=False)
    model = model_for(name, objective).eval()
    one, two = (totals(objective, model) for _ in range(2))
    figures = objective.measure(one)
    assert figures == objective.measure(two) and set(figures) == set(CASES[name].figures.split())
    assert all(math.isfinite(value) for value in figures.values())
    assert objective.better(1.0, 2.0) != objective.better(2.0, 1.0)
    if not objective.recurrent:  # however many are read at once
        other = build(learning=False, batch_size=objective.batch_size + 1)
        assert objective.measure(totals(other, model)) == pytest.approx(figures, rel=1e-4)


@every
def test_a_resumed_loop_goes_on_as_if_it_had_never_stopped(name: str, build: Any) -> None:
    def begun() -> Loop:
        objective = build()
        model = model_for(name, objective)
        return Loop(
            SingleProcess(TrainModule(model, objective), ProcessGroup()),
            objective,
            Batches(objective, objective.batch_size, 1, 0, 1),
            optimizer("adamw", model, lr=1e-2),
            lambda step: 1e-2,
            ProcessGroup(),
            seed=1,
            precision="fp32",
            limit=1.0,
        )

    straight = begun()
    for _ in range(2):
        straight.step(4)
    files = {
        kind: {key: value.clone() for key, value in tensors.items()}
        for kind, tensors in straight.tensors().items()
    }
    facts = straight.facts()
    expected = [straight.step(4) for _ in range(2)]
    resumed = begun()
    resumed.step(4)  # must leave no trace
    resumed.restore(files, facts)
    assert [resumed.step(4) for _ in range(2)] == expected
    for one, two in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)


@every
@pytest.mark.parametrize("learning", [True, False])
def test_one_graph_holds_the_whole_loss(name: str, learning: bool, build: Any) -> None:
    """A compiler finds no break in it."""
    objective = build(learning=learning)
    model = model_for(name, objective).train(learning)
    places = objective.arrange(list(range(objective.batch_size)))
    batch = objective.collate([objective.get(place) for place in places])
    expected = objective.loss(model, batch, objective.begin(model, len(places)))
    traced = torch.compile(objective.loss, backend="eager", fullgraph=True)
    loss = traced(model, batch, objective.begin(model, len(places)))
    torch.testing.assert_close(loss.sums, expected.sums)
    for key, (hits, of) in expected.seen.items():
        assert float(loss.seen[key][0]) == float(hits) and float(loss.seen[key][1]) == of


@every
@pytest.mark.parametrize("family", SHAPES)
def test_who_can_learn_it(name: str, family: str, build: Any) -> None:
    objective, able = build(), CASES[name].models.split()
    if family in able:
        objective.check(model_for(name, objective, family))
    else:
        with refuses(ConfigError) as caught:
            objective.check(tiny(family))
        assert able[0] in str(caught.value) or "adaptive" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [(name, *refusal) for name, case in CASES.items() for refusal in case.refused],
)
def test_bad_options_are_named(name: str, options: dict[str, Any], word: str, build: Any) -> None:
    with refuses((ConfigError, UnknownName), word):
        build(learning=name not in ("causal", "recurrent"), **options)


@every
def test_an_unknown_option_is_named(name: str) -> None:
    with refuses(UnknownName, "'objective.nonsense'"):
        from_table(find(name).Options, {"nonsense": 1}, path="objective.", what="recipe key")


@every
def test_no_text_is_refused(name: str, build: Any, tmp_path: Path) -> None:
    with refuses(InputError, "0 tokens"):
        build(corpus=CASES[name].corpus(tmp_path, []))
