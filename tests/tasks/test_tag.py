"""Tags of words: rows, losses beside transformers and beside enumeration, entities, answers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.api import load
from regard.core.errors import ConfigError, FormatError, InputError
from regard.core.seeding import keyed
from regard.data.examples import TaggedExample
from regard.data.tags import (
    IGNORED,
    Entities,
    align_all,
    entities,
    labels,
    legal,
    problems,
    write,
)
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import save
from regard.models.gpt import GPT, GPTConfig
from regard.objectives.base import Loss
from regard.tasks import task as task_named
from regard.tasks.crf import CRF
from regard.tasks.tag_objective import Tag
from regard.training.parallel import ProcessGroup
from regard.training.train_module import TrainModule, validate
from tests.equal.reference import ours, scramble
from tests.objectives.rules import check_micro_batches, few
from tests.refusals import refuses
from tests.tasks.tagging import (
    CLS,
    FAMILIES,
    KINDS,
    NAMES,
    PAD,
    PIECES,
    PLACES,
    SEP,
    SIZE,
    UNK,
    model,
    pieces,
    sentences,
    tagged,
    whole,
)
from tests.tasks.tagging import (
    objective as objective_of,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return pieces()


TWO = [tagged("Anna likes New Yorkers", "B-PER O B-LOC I-LOC"), tagged("rome", "B-LOC")]


# -- rows

I = IGNORED  # noqa: E741
FRAMED = {  # the longer sentence, the shorter one; labels; segments
    "bert": ("[CLS] anna likes new york ##er ##s [SEP]", "[CLS] rome [SEP]" + 5 * " [PAD]",
             [I, 3, 0, 1, 2, I, I, I], [I, 1, I, I, I, I, I, I], [0] * 8, [0] * 8),
    "longformer": ("[CLS] anna likes new york ##er ##s [SEP]", "[CLS] rome [SEP]" + 5 * " [PAD]",
                   [I, 3, 0, 1, 2, I, I, I], [I, 1, I, I, I, I, I, I], None, None),
    "xlnet": ("anna likes new york ##er ##s [SEP] [CLS]", 5 * "[PAD] " + "rome [SEP] [CLS]",
              [3, 0, 1, 2, I, I, I, I], [I, I, I, I, I, 1, I, I],
              [0] * 7 + [2], [4] * 5 + [0, 0, 2]),
    "gpt": ("anna likes new york ##er ##s", "rome" + 5 * " [PAD]",
            [3, 0, 1, 2, I, I], [1, I, I, I, I, I], None, None),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_rows(family: str, tokenizer: Tokenizer) -> None:
    batch = whole(objective_of(TWO, tokenizer, family))
    longer, shorter, *tables = FRAMED[family]
    assert [" ".join(tokenizer.tokens(row)) for row in batch["tokens"].tolist()] == [
        longer,
        shorter,
    ]
    assert batch["labels"].tolist() == tables[:2]
    assert batch["attention_mask"].tolist() == [
        [w != "[PAD]" for w in x.split()] for x in (longer, shorter)
    ]
    assert ("segments" in batch) == (tables[2] is not None)
    if "segments" in batch:
        assert batch["segments"].tolist() == tables[2:]


def test_many_sentences_at_once(tokenizer: Tokenizer) -> None:
    """The same windows as one by one; what stands for words of nothing is asked for."""
    rows = [list(e.words) for e in sentences(20)] + [["yorkers"] * 9, ["\x01", "rome"], []]
    tags = [list(range(len(row))) for row in rows]
    for length in (5, 12):
        around = [CLS], [SEP]
        aligned = align_all(rows, tags, tokenizer, length, around=around)
        assert aligned == [
            align_all([row], [own], tokenizer, length, around=around)[0]
            for row, own in zip(rows, tags, strict=True)
        ]
        read = align_all(rows, tags, tokenizer, length, around=around, blank=UNK)
        for own, windows in zip(tags, read, strict=True):
            assert [window.labels[place] for window in windows for place in window.rows] == own
    assert aligned[-2][0].words == [1] and read[-2][0].ids == [CLS, UNK, PIECES.index("rome"), SEP]


@pytest.mark.parametrize("scheme", ["bioes", "bilou", "iob1"])
def test_schemes(scheme: str, tokenizer: Tokenizer) -> None:
    """iob1 is learned as bio; bioes and bilou stay; broken tags are repaired."""
    spans = [("PER", 0, 1), ("LOC", 1, 3), ("LOC", 3, 4)]
    rows = [TaggedExample(tuple("anna new york rome".split()), tuple(write(spans, 4, scheme)))]
    rows.append(tagged("anna is in rome", "I-PER O O I-LOC"))
    known = task_named("tag").labels_in(rows)
    assert known == labels(["LOC", "PER"], "bio" if scheme == "iob1" else scheme)
    objective = objective_of(rows, tokenizer, known=known)
    back = [[known[i] for i in row if i != I] for row in whole(objective)["labels"].tolist()]
    assert [entities(tags) for tags in back] == [spans, [("PER", 0, 1), ("LOC", 3, 4)]]
    assert all(not problems(tags, "bio" if scheme == "iob1" else scheme) for tags in back)


def test_words_of_nothing_are_read(tokenizer: Tokenizer) -> None:
    """The tokenizer makes nothing of a control character; it is a word like any other."""
    objective = objective_of(
        [TaggedExample(("\x01", "rome"), ("O", "B-LOC")), TaggedExample((), ())], tokenizer
    )
    assert whole(objective)["tokens"].tolist() == [[CLS, UNK, PIECES.index("rome"), SEP],
                                              [CLS, SEP, PAD, PAD]]  # fmt: skip
    assert whole(objective)["labels"].tolist()[0] == [I, 0, 1, I]
    predictions = objective.merge(objective.predict(model("bert"), whole(objective)))
    assert [len(one.value) for one in predictions] == [2, 0]


def test_long_sentences_are_read_in_windows(tokenizer: Tokenizer) -> None:
    """Each word is scored once, and every answer comes back to its word."""
    words = tuple(str(w) for w in keyed("long").choice([*NAMES, *PLACES, "yorkers", "xyz"], 60))
    tags = tuple(str(t) for t in keyed("tags").choice(KINDS, 60))
    examples = [TaggedExample(words[:50], tags[:50]), TaggedExample(words[50:53], tags[50:53]),
                TaggedExample(words, tags)]  # fmt: skip
    for family in FAMILIES:
        objective = objective_of(examples, tokenizer, family, length=16)
        assert len(objective) > 8 and objective.rows.sizes.max() <= 16
        assert "2 of 3 sentences of the train data have more than 16 tokens" in objective.note
        gold = [
            [(int(i), 1.0) for i in objective.labels[row] if i != I]
            for row in range(len(objective))
        ]
        answers = [one.value for one in objective.merge(gold)]
        legal_tags = [write(entities(e.tags or ()), len(e.words)) for e in examples]
        assert answers == legal_tags
        assert objective.counts(whole(objective)) == {"tag": 113.0}


def test_padding(tokenizer: Tokenizer) -> None:
    """Lengths like those of tweets: 18 words in the mean, with a long tail."""
    sizes = keyed("tweets").gamma(3.0, 6.0, 1200).astype(int).clip(1, 60)
    examples = [tagged(" ".join(["x"] * n), " ".join(["O"] * n)) for n in sizes]
    for family in ("bert", "xlnet"):
        objective = objective_of(examples, tokenizer, family, batch=16, length=64)
        shares = []
        for step in range(2 * len(objective) // 16):  # over the end of an epoch
            batch = objective.collate([objective.get(step * 16 + i) for i in range(16)])
            shares.append((int(batch["attention_mask"].sum()), batch["attention_mask"].numel()))
            assert objective.tokens_in(batch) == shares[-1][0]
        attention_mask, total = np.sum(shares, 0)
        assert 1 - attention_mask / total < 0.1


# -- losses


def reference(family: str, tokenizer: Tokenizer) -> Any:
    size: dict[str, Any] = {
        "vocab_size": len(PIECES),
        "num_labels": len(KINDS),
        "pad_token_id": PAD,
    }
    plain = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 32, "max_position_embeddings": 64}  # fmt: skip
    kinds: dict[str, Any] = {
        "bert": lambda: hf.BertForTokenClassification(hf.BertConfig(**size, **plain)),
        "longformer": lambda: hf.LongformerForTokenClassification(
            hf.LongformerConfig(**size, **plain, attention_window=8)
        ),
        "xlnet": lambda: hf.XLNetForTokenClassification(
            hf.XLNetConfig(**size, d_model=16, n_layer=2, n_head=2, d_inner=32)
        ),
        "gpt": lambda: hf.GPT2ForTokenClassification(
            hf.GPT2Config(**size, n_positions=64, n_embd=16, n_layer=2, n_head=2)
        ),
    }
    return scramble(kinds[family]()).double()


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_loss_of_transformers(family: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    theirs = reference(family, tokenizer)
    mine = ours(theirs, tmp_path, dtype=torch.float64).model
    objective = objective_of(TWO, tokenizer, family)
    objective.check(mine)
    batch = whole(objective)
    more = {"token_type_ids": batch["segments"]} if "segments" in batch else {}
    given_ = {"attention_mask": batch["attention_mask"].long(), "labels": batch["labels"], **more}
    wanted = theirs(batch["tokens"], **given_)
    loss = objective.loss(mine, batch)
    assert loss.counts == objective.counts(batch) == {"tag": 5.0}
    exact = 1e-7 if family == "longformer" else 1e-9  # whose softmax is in fp32 there
    torch.testing.assert_close(loss.sums["tag"] / 5, wanted.loss, rtol=exact, atol=exact)
    # by hand: the nats of each word at its first piece
    chances = wanted.logits.log_softmax(-1)
    rows = [(0, i, x) for i, x in enumerate(batch["labels"][0]) if x != I]
    rows += [(1, i, x) for i, x in enumerate(batch["labels"][1]) if x != I]
    by_hand = -sum(float(chances[b, t, x]) for b, t, x in rows)
    assert float(loss.sums["tag"]) == pytest.approx(by_hand, rel=exact)
    predictions = objective.merge(objective.predict(mine, batch))
    best = wanted.logits.argmax(-1)
    assert [one.value for one in predictions] == [
        [KINDS[best[b, t]] for b_, t, _ in rows if b_ == b] for b in (0, 1)
    ]
    likely = [float(chances[0, t].max().exp()) for b, t, _ in rows if b == 0]
    assert predictions[0].score == pytest.approx(sum(likely) / len(likely))


@torch.no_grad()
def test_balanced_tags_count_alike_in_sum(tokenizer: Tokenizer) -> None:
    """As sklearn has it, over the tags that occur; I-PER does not. In validation all count 1."""
    from sklearn.utils.class_weight import compute_class_weight

    objective = objective_of([*TWO, *TWO], tokenizer, weights="balanced")
    batch, mine = whole(objective), model("bert").double()
    gold = objective.labels.flat[objective.labels.flat >= 0]
    wanted = compute_class_weight("balanced", classes=np.unique(gold), y=gold)
    assert objective.shares is not None and np.unique(gold).tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(objective.shares[:4], wanted, rtol=1e-6)
    assert objective.counts(batch) == {"tag": pytest.approx(10.0)}
    scores = objective.scores(mine, batch).flatten(0, 1)
    weights = torch.tensor([*wanted, 0.0], dtype=torch.float64)
    theirs = cross_entropy(scores, batch["labels"].flatten(), weights, ignore_index=I)
    loss = objective.loss(mine, batch)
    mean = float(loss.sums["tag"]) / loss.counts["tag"]
    assert mean == pytest.approx(float(theirs), rel=1e-6)
    plain = objective_of([*TWO, *TWO], tokenizer, learning=False, weights="balanced")
    assert plain.counts(whole(plain)) == {"tag": 10.0} and "shares" not in whole(plain)


SHORT = labels(["A"])  # O B-A I-A
CHAINS = [tagged("anna likes rome", "B-A I-A O"), tagged("new york xyz oslo", "O B-A B-A I-A"),
          tagged("the new york of a", "B-A I-A I-A I-A I-A"), tagged("a", "I-A")]  # fmt: skip


def chain_scores(crf: CRF, rows: Tensor, begins: bool, ends: bool) -> dict[tuple[int, ...], float]:
    """All legal tags of the rows [n, K] with their scores, term by term."""
    start, end, steps = (
        getattr(crf, name).detach() * crf.gain for name in ("start", "end", "steps")
    )
    scores = {}
    for tags in itertools.product(range(3), repeat=len(rows)):
        names = [SHORT[i] for i in tags]
        if begins and not legal(None, names[0]):
            continue
        if not all(legal(a, b) for a, b in itertools.pairwise(names)):
            continue
        total = sum(float(rows[t, tag]) for t, tag in enumerate(tags))
        total += sum(float(steps[a, b]) for a, b in itertools.pairwise(tags))
        total += float(start[tags[0]]) * begins + float(end[tags[-1]]) * ends
        scores[tags] = total
    return scores


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("room", [32, 4])
@torch.no_grad()
def test_the_chain_beside_enumeration(family: str, room: int, tokenizer: Tokenizer) -> None:
    """Loss and answers; with room for 4 tokens sentences are cut, also inside of entities."""
    length = room if family == "gpt" else room + 2  # beside the marks
    objective = objective_of(CHAINS, tokenizer, family, known=SHORT, length=length, crf=True)
    assert (objective.long > 0) == (room == 4)
    chained = objective.adapt_model(model(family, 3)).double()
    for name, weight in chained.crf.named_parameters():
        weight.copy_(torch.from_numpy(keyed("chain", name).normal(size=weight.shape) / 100))
    batch = whole(objective)
    scores = objective.scores(chained, batch)
    expected, best, chance = 0.0, [], []
    for row in range(len(objective)):
        real = batch["labels"][row] != I
        gold = tuple(batch["labels"][row][real].tolist())
        begins, ends = batch["edges"][row].tolist()
        every = chain_scores(chained.crf, scores[row][real], begins, ends)
        values = torch.tensor(list(every.values()), dtype=torch.float64)
        expected += float(values.logsumexp(0)) - every[gold]
        best.append(max(every, key=every.__getitem__))
        weights = dict(zip(every, values.softmax(0).tolist(), strict=True))
        for t, tag in enumerate(best[-1]):
            chance.append(sum(p for tags, p in weights.items() if tags[t] == tag))
    loss = objective.loss(chained, batch)
    assert float(loss.sums["tag"]) == pytest.approx(expected, rel=1e-9)
    assert loss.counts == {"tag": 13.0}
    predictions = objective.predict(chained, batch)
    assert [tuple(label for label, _ in row) for row in predictions] == best
    assert [p for row in predictions for _, p in row] == pytest.approx(chance, rel=1e-9)
    for one in objective.merge(predictions):
        assert not problems(one.value)


def test_the_chain_learns_faster_than_the_model() -> None:
    """Its weights count a hundredfold, its gradients once."""
    torch.manual_seed(0)
    slow, fast = CRF(3).double(), CRF(3, gain=100.0).double()
    with torch.no_grad():
        for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
            a.copy_(torch.randn(a.shape))
            b.copy_(a / 100)
    rows, real = torch.randn(2, 4, 3, dtype=torch.float64), torch.ones(2, 4, dtype=torch.bool)
    gold = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    nats = [crf.surprisal(rows, gold, real) for crf in (slow, fast)]
    torch.testing.assert_close(nats[0], nats[1])
    for one in nats:
        one.backward()  # type: ignore[no-untyped-call]
    for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_micro_batches_add_up(family: str, crf: bool, tokenizer: Tokenizer) -> None:
    objective = objective_of([*TWO, *TWO, TWO[0], TWO[1]], tokenizer, family, crf=crf)
    check_micro_batches(objective, objective.adapt_model(model(family)).double(), range(6))


# -- entities


@few(150)
@given(
    st.lists(
        st.lists(
            st.tuples(*2 * [st.sampled_from(["O", *(f"{x}-{t}" for x in "BIES" for t in "AB")])]),
            min_size=1,
            max_size=7,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_counts_are_those_of_seqeval(pairs: list[list[tuple[str, str]]]) -> None:
    metrics = pytest.importorskip("seqeval.metrics")
    gold, predicted = ([[pair[side] for pair in row] for row in pairs] for side in (0, 1))
    known = sorted({tag for row in [*gold, *predicted] for tag in row})
    flat = [
        np.array([known.index(tag) for row in side for tag in row]) for side in (predicted, gold)
    ]
    rows = np.repeat(np.arange(len(pairs)), [len(row) for row in pairs])
    right, claimed, real = Entities.of(known).count(*flat, rows)
    sets = [[{*entities(row)} for row in side] for side in (gold, predicted)]
    assert right == sum(len(a & b) for a, b in zip(*sets, strict=True))
    assert [real, claimed] == [sum(map(len, side)) for side in sets]
    f1 = 2 * right / max(claimed + real, 1)
    assert f1 == pytest.approx(metrics.f1_score(gold, predicted, zero_division=0))


def validated(objective: Tag, network: Any) -> dict[str, float]:
    return validate(
        TrainModule(network, objective), objective, ProcessGroup(), torch.device("cpu"), "fp32"
    ).figures


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_validation(family: str, crf: bool, tokenizer: Tokenizer) -> None:
    """From sums over batches the same figures as seqeval's from all answers."""
    metrics = pytest.importorskip("seqeval.metrics")
    examples = sentences(23)
    objective = objective_of(examples, tokenizer, family, learning=False, crf=crf)
    network = objective.adapt_model(model(family)).eval()
    figures = validated(objective, network)
    with torch.no_grad():
        predicted = [
            one.value for one in objective.merge(objective.predict(network, whole(objective)))
        ]
        loss = objective.loss(network, whole(objective))
    gold = [list(e.tags or ()) for e in examples]
    assert list(figures) == ["f1", "precision", "recall", "loss"]
    assert figures["f1"] == pytest.approx(metrics.f1_score(gold, predicted))
    assert figures["precision"] == pytest.approx(
        metrics.precision_score(gold, predicted, zero_division=0)
    )
    assert figures["recall"] == pytest.approx(metrics.recall_score(gold, predicted))
    assert figures["loss"] == pytest.approx(float(loss.sums["tag"]) / loss.counts["tag"], rel=1e-5)
    assert loss.seen["precision"][1] > 0  # something is claimed
    assert objective.better(0.4, 0.3) and not objective.better(0.3, 0.4)


@pytest.mark.parametrize("crf", [False, True])
def test_kinds_that_training_never_saw(crf: bool, tokenizer: Tokenizer) -> None:
    """Nothing is learned from their words, and no answer can find them; they are said."""
    examples = [tagged("anna likes rome and new york", "B-PER O B-LOC O B-team I-team"),
                tagged("x", "B-thing")]  # fmt: skip
    objective = objective_of(examples, tokenizer, learning=False, crf=crf)
    assert "3 words of the valid data belong to entities of kinds" in objective.note
    assert "(team, thing)" in objective.note
    network = objective.adapt_model(model("bert"))
    assert objective.counts(whole(objective)) == {"tag": 4.0}
    with torch.no_grad():
        loss = objective.loss(network, whole(objective))
    assert torch.isfinite(loss.sums["tag"]) and float(loss.sums["tag"]) < 1e4
    assert loss.seen["recall"][1] == 4.0  # PER, LOC, team, thing
    plain = objective_of([tagged("anna likes rome and new york", "B-PER O B-LOC O O O")], tokenizer)
    assert plain.note == "" and plain.entities is not None
    perfect = torch.tensor([3, 0, 1, 0, 0, 0, 0]).numpy()  # the labels it can say
    gold = np.array([objective.codes[t] for e in examples for t in e.tags or ()])
    assert objective.entities is not None
    assert objective.entities.count(perfect, gold, np.array([0] * 6 + [1])) == (2, 2, 4)


SPEECH = ["DT", "IN", "NN", "VB"]
SPOKEN = [tagged("the york is in rome", "DT NN VB IN NN"), tagged("anna likes oslo", "NN VB NN")]


@pytest.mark.parametrize("crf", [False, True])
def test_parts_of_speech_are_counted_by_words(crf: bool, tokenizer: Tokenizer) -> None:
    """Any tag may follow any, and a tag that training never saw is wrong."""
    examples = [*SPOKEN, tagged("a x", "DT ??")]
    objective = objective_of(examples, tokenizer, known=SPEECH, learning=False, crf=crf)
    assert (
        "1 words of the valid data have tags that the training data never shows" in objective.note
    )
    network = objective.adapt_model(model("bert", 4)).eval()
    if crf:
        assert bool(
            network.crf.may_steps.all()
            and network.crf.may_start.all()
            and network.crf.may_end.all()
        )
    figures = validated(objective, network)
    with torch.no_grad():
        predicted = [
            one.value for one in objective.merge(objective.predict(network, whole(objective)))
        ]
    right = [a == b for e, tags in zip(examples, predicted, strict=True)
             for a, b in zip(e.tags or (), tags, strict=True)]  # fmt: skip
    assert list(figures) == ["accuracy", "loss"] and len(right) == 10
    assert figures["accuracy"] == pytest.approx(sum(right) / 10)
    assert objective.counts(whole(objective)) == {"tag": 9.0}
    assert {tag for tags in predicted for tag in tags} <= set(SPEECH)


@pytest.mark.parametrize("crf", [False, True])
def test_long_sentences_of_parts_of_speech(crf: bool, tokenizer: Tokenizer) -> None:
    """Where windows meet there is nothing to repair."""
    words, tags = SPOKEN[0].words * 6, (SPOKEN[0].tags or ()) * 6
    objective = objective_of(
        [TaggedExample(words, tags)], tokenizer, known=SPEECH, length=12, crf=crf
    )
    assert objective.windows[0] > 2
    gold = [
        [(int(i), 1.0) for i in objective.labels[row] if i != I] for row in range(len(objective))
    ]
    assert objective.merge(gold)[0].value == list(tags)


def test_figures_of_nothing(tokenizer: Tokenizer) -> None:
    objective = objective_of([tagged("the", "O")], tokenizer, learning=False)
    seen = {"precision": (torch.tensor(0.0), 0.0), "recall": (torch.tensor(0.0), 0.0)}
    assert objective.measure(Loss({"tag": torch.tensor(0.5)}, {"tag": 1.0}, seen)) == {
        "f1": 0.0, "precision": 0.0, "recall": 0.0, "loss": 0.5,
    }  # fmt: skip


def test_a_banded_gpt_keeps_its_chain_beside(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Its directory has a format of our own, which holds all tensors of the model but these."""
    objective = objective_of(TWO, tokenizer, "gpt", crf=True)
    banded = GPT(GPTConfig(**SIZE | {"context": 64, "band": 4}), {"tag": 5}).initialize()
    banded = objective.adapt_model(banded)
    objective.check(banded)
    torch.nn.init.normal_(banded.crf.steps)
    save(banded, tmp_path)
    objective.save_extras(banded, tmp_path)
    again = objective.opened(load(tmp_path).model, tmp_path)
    batch = objective.collate([objective.get(0), objective.get(1)])
    with torch.no_grad():
        assert objective.predict(again, batch) == objective.predict(banded.eval(), batch)


@pytest.mark.parametrize(
    ("build", "error", "named"),
    [
        (lambda t: objective_of([tagged("the", "O")], t, known=["O"]), InputError, "tag is O"),
        (lambda t: objective_of(TWO, t, "t5"), ConfigError, "t5, tag, bert, xlnet"),
        (lambda t: objective_of(TWO, t, length=2), ConfigError, "length of 2, room"),
        (lambda t: objective_of(TWO, t, weights="rare"), ConfigError, "weights is 'rare', equal"),
        (lambda t: objective_of(TWO, t, weights="balanced", crf=True), ConfigError, "CRF"),
        (lambda t: objective_of(TWO, t).check(model("xlnet")), ConfigError, "xlnet, bert"),
        (
            lambda t: objective_of(TWO, t, crf=True).opened(model("bert"), Path("nowhere")),
            FormatError,
            "nowhere, CRF, 5 tags",
        ),
    ],
)
def test_refusals(build: Any, error: type[Exception], named: str, tokenizer: Tokenizer) -> None:
    with refuses(error, *named.split(", ")):
        build(tokenizer)


def test_tags_that_are_no_entities(tokenizer: Tokenizer) -> None:
    """A model of others may tag parts of speech: it can be asked all the same."""
    objective = objective_of(
        [tagged("anna likes rome")], tokenizer, known=["NN", "VB"], learning=False
    )
    (prediction,) = objective.merge(objective.predict(model("bert", 2), whole(objective)))
    assert len(prediction.value) == 3 and {*prediction.value} <= {"NN", "VB"}
