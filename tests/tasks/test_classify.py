"""Classes and scores of texts: frames to the token, losses by hand, learning, and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from regard.core.errors import ConfigError, InputError
from regard.data.corpus import Special
from regard.data.examples import LabeledExample
from regard.data.input_formats import bare, framed
from regard.data.problems import FileLine
from regard.formats.directory import save
from regard.models import FAMILIES as CARDS
from regard.objectives.base import Loss
from regard.tasks.classify import Classify, moments
from tests.objectives.rules import few, same
from tests.tasks.judging import (
    CLS,
    END,
    FAMILIES,
    PAD,
    SEP,
    START,
    batch_of,
    build,
    deciding,
    examples,
    ids,
    learn,
    model_of,
    said,
    some_words,
)

transformers.logging.set_verbosity_error()

SINGLE = [
    LabeledExample("a b", label="no"),
    LabeledExample("c", label="yes"),
    LabeledExample("d e f", label="no"),
]
PAIRS = [LabeledExample("a b", "c", label="no"), LabeledExample("d", "e f g h", label="yes")]
HIGH = LabeledExample("a", "b", "high", FileLine("x.tsv", 3))  # no number
ABLE = pytest.mark.parametrize("family", FAMILIES)


def single(family: str, split: str = "train", **options: Any) -> Any:
    return build(Classify, family, examples("classify", SINGLE, ["no", "yes"], split), **options)


def pairs(family: str) -> Any:
    return build(Classify, family, examples("entail", PAIRS, ["no", "yes"]))


def scored(*rows: tuple[str, str, float | None], split: str = "train") -> Any:
    return examples("similar", [LabeledExample(a, b, label) for a, b, label in rows], (), split)


# --- frames -----------------------------------------------------------------------------------


def test_one_text_as_each_paper_frames_it() -> None:
    a = ids("a b")
    wanted = {
        "bert": ([CLS, *a, SEP], [0, 0, 0, 0]),
        "longformer": ([CLS, *a, SEP], [0, 0, 0, 0]),
        "xlnet": ([*a, SEP, CLS], [0, 0, 0, 2]),
        "gpt": ([START, *a, CLS], [0, 0, 0, 0]),
    }
    for family, (tokens, segments) in wanted.items():
        sample = single(family).sample(0, 0)
        assert sample["tokens"].tolist() == tokens, family
        assert sample["segments"].tolist() == segments, family


@pytest.mark.parametrize("task", ["classify", "entail"])
def test_two_texts_as_each_paper_frames_them(task: str) -> None:
    a, b = ids("a b"), ids("c")
    wanted = {
        "bert": ([CLS, *a, SEP, *b, SEP], [0, 0, 0, 0, 1, 1]),
        "longformer": ([CLS, *a, SEP, SEP, *b, SEP], [0] * 7),
        "xlnet": ([*a, SEP, *b, SEP, CLS], [0, 0, 0, 1, 1, 2]),
        "gpt": ([START, *a, SEP, *b, CLS], [0] * 6),
    }
    for family, (tokens, segments) in wanted.items():
        made = build(Classify, family, examples(task, PAIRS, ["no", "yes"]))
        assert made.sample(0, 0)["tokens"].tolist() == tokens, family
        assert made.sample(0, 0)["segments"].tolist() == segments, family


def test_padding_stands_where_the_model_wants_it() -> None:
    for family in FAMILIES:
        batch = batch_of(single(family))
        attention_mask = batch["attention_mask"][1].tolist()  # of the shortest: 3 tokens of 5
        assert attention_mask == (
            [False] * 2 + [True] * 3 if family == "xlnet" else [True] * 3 + [False] * 2
        )
        assert (batch["tokens"][~batch["attention_mask"]] == PAD).all()
        assert ("segments" in batch) == (family in ("bert", "xlnet"))
        if family == "xlnet":
            assert (batch["segments"][~batch["attention_mask"]] == 4).all()


@few(200)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(7, 40))
def test_the_longer_text_is_cut_first(first: int, second: int, length: int) -> None:
    """Against the loop of google-research/bert."""
    a, b = list(range(100, 100 + first)), list(range(200, 200 + second))
    special = Special(END, PAD, start=START, cls=CLS, sep=SEP)
    made = framed(CARDS["bert"].input_format, special, a, b, length)
    left, right = list(a), list(b)
    while len(left) + len(right) > length - 3:
        (left if len(left) > len(right) else right).pop()
    assert made.ids == [CLS, *left, SEP, *right, SEP]
    assert made.cut == (first + second > length - 3) and len(made.ids) <= length
    plain = framed(bare(CARDS["gpt"].input_format), special, a, b, length)
    assert set(plain.ids) <= {*a, *b, END} and len(plain.ids) == max(1, min(length, first + second))


def test_an_empty_text_is_only_marks() -> None:
    texts = [LabeledExample("", label="no"), LabeledExample("", "", label="yes")]
    for family in FAMILIES:
        made = build(Classify, family, examples("classify", texts, ["no", "yes"]))
        assert len(made.sample(0, 0)["tokens"]) == 2
        with torch.no_grad():
            assert made.scores(model_of(family, made.heads()), batch_of(made)).isfinite().all()
    bare_ = build(Classify, "gpt", examples("classify", texts, ["no", "yes"]), marks=False)
    assert bare_.sample(0, 0)["tokens"].tolist() == [END]


def test_what_is_cut_is_said_once() -> None:
    long = [LabeledExample("a b c d e f g h", label="no"), LabeledExample("a", label="yes")]
    made = build(Classify, "bert", examples("classify", long, ["no", "yes"]), length=6)
    assert made.note == (
        "1 of 2 texts of the train data have more than 6 tokens and were cut"
    )  # once, however many epochs there are
    assert made.sample(0, 0)["tokens"].tolist() == [CLS, *ids("a b c d"), SEP]
    assert single("bert").note == ""


def test_a_step_is_hardly_padded() -> None:
    """Texts of 1 to 40 words: less than a twentieth."""
    texts = [LabeledExample(some_words(1 + i * 7 % 40, "n", i), label="no") for i in range(800)]
    made = build(Classify, "bert", examples("classify", texts, ["no", "yes"]), length=64)
    steps = [[made.get(i + k) for k in range(8)] for i in range(0, 800, 8)]
    attention_mask = torch.cat([made.collate(step)["attention_mask"].flatten() for step in steps])
    assert attention_mask.float().mean() > 0.95


def test_a_sample_is_a_function_of_its_key() -> None:
    """Rows never change; only their order does, with seed and epoch."""
    for options in ({}, {"both_orders": True}):
        held = scored(*((some_words(3, "p", i), "b", float(i)) for i in range(40)))
        first, second, other = (
            build(Classify, "gpt", held, seed=seed, **options) for seed in (1, 1, 2)
        )
        for place in reversed(range(100)):
            assert same(first.get(place), second.get(place))
        assert all(same(first.sample(0, i), other.sample(7, i)) for i in range(40))
        assert any(not same(first.get(i), other.get(i)) for i in range(40))
        golds = [float(first.get(i)["gold"]) for i in range(80)]
        assert sorted(golds[:40]) == sorted(golds[40:]) == list(range(40))
        assert golds[:40] != golds[40:]


def test_the_first_samples_of_a_validation_are_like_the_others() -> None:
    """Where only so many of them are measured, these are not the shortest."""
    texts = [LabeledExample(some_words(1 + i % 20, "v", i), label="no") for i in range(400)]
    made = build(Classify, "bert", examples("classify", texts, ["no", "yes"], "valid"), length=64)
    order = made.order(0)
    assert sorted(order) == list(range(400)) and order is made.order(3)
    sizes = made.rows.sizes[order]
    assert abs(sizes[:80].mean() - sizes.mean()) < 3
    step = sizes[:200].reshape(-1, 8)  # similar lengths together
    assert (step.max(1) - step.min(1)).mean() < 3


def test_sizes() -> None:
    """A sample may be two rows; a model reads one of them at a time."""
    assert (single("bert").max_len, single("bert").longest) == (5, 5)
    made = build(Classify, "gpt", scored(("a b", "c", 1.0), ("d", "e", 2.0)))
    assert (made.max_len, made.longest) == (12, 6)
    made.check(model_of("gpt", made.heads(), context=6))
    with pytest.raises(ConfigError, match="6 rows, but this model has 5 positions"):
        made.check(model_of("gpt", made.heads(), context=5))


# --- losses -----------------------------------------------------------------------------------


@ABLE
@torch.no_grad()
def test_the_loss_by_hand(family: str) -> None:
    made = single(family, auxiliary=0.0 if family == "gpt" else None)
    model, batch = model_of(family, made.heads(), torch.float64), batch_of(made)
    found = made.loss(model, batch)
    scores = made.scores(model, batch)
    assert scores.shape == (3, 2) and batch["gold"].tolist() == [0, 1, 0]
    by_hand = sum(
        float(torch.logsumexp(row, 0) - row[gold])
        for row, gold in zip(scores, [0, 1, 0], strict=True)
    )
    assert abs(float(found.sums["classify"]) - by_hand) < 1e-9
    assert found.counts == {"classify": 3.0} == made.counts(batch)
    right = sum(int(row.argmax()) == gold for row, gold in zip(scores, [0, 1, 0], strict=True))
    assert float(found.seen["right"][0]) == right


@ABLE
@torch.no_grad()
def test_padding_and_company_change_nothing(family: str) -> None:
    held = examples("entail", PAIRS, ["no", "yes"], "test")
    made = build(Classify, family, held)
    model = model_of(family, made.heads(), torch.float64)
    together = made.scores(model, batch_of(made))
    for i in range(2):
        alone = made.scores(model, batch_of(made, [i]))
        assert torch.allclose(alone[0], together[i], rtol=0, atol=1e-10)


@torch.no_grad()
def test_balanced_classes_count_alike_in_sum() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    texts = [LabeledExample("a", label=x) for x in ("x", "x", "x", "y", "z", "z")]
    made = build(Classify, "bert", examples("classify", texts, ["x", "y", "z"]), weights="balanced")
    wanted = compute_class_weight("balanced", classes=np.arange(3), y=made.gold)
    assert np.allclose(made.shares, wanted) and made.shares[made.gold].sum() == pytest.approx(6)
    model, batch = model_of("bert", made.heads(), torch.float64), batch_of(made)
    scores = made.scores(model, batch)
    theirs = F.cross_entropy(scores, batch["gold"], torch.from_numpy(wanted))
    found = made.loss(model, batch)
    assert float(found.sums["classify"]) / found.counts["classify"] == pytest.approx(
        float(theirs), rel=1e-6
    )


def test_labels_that_are_not_known_do_not_count() -> None:
    held = examples("classify", [*SINGLE, LabeledExample("a")], ["no", "yes"], "test")
    made = build(Classify, "bert", held)
    assert made.counts(batch_of(made)) == {"classify": 3.0}
    with torch.no_grad():
        found = made.loss(model_of("bert", made.heads(), torch.float64), batch_of(made))
    assert float(found.seen["right"][1]) == 3


@torch.no_grad()
def test_pearson_is_that_of_numpy_over_all_batches() -> None:
    rows = [(some_words(3, "x", i), some_words(2, "y", i), i % 7 / 2) for i in range(21)]
    made = build(Classify, "bert", scored(*rows, split="valid"))
    model = model_of("bert", made.heads(), torch.float64)
    parts = [made.loss(model, batch_of(made, range(i, min(i + 8, 21)))) for i in range(0, 21, 8)]
    totals = Loss(
        {"classify": sum(part.sums["classify"] for part in parts)},  # type: ignore[dict-item]
        {"classify": sum(part.counts["classify"] for part in parts)},
        {
            name: (sum(p.seen[name][0] for p in parts), sum(float(p.seen[name][1]) for p in parts))
            for name in parts[0].seen
        },  # type: ignore[misc]
    )
    figures = made.measure(totals)
    found = np.array([p.value for p in said(made, model)])
    gold = np.array([row[2] for row in rows])
    assert figures["pearson"] == pytest.approx(np.corrcoef(found, gold)[0, 1], abs=1e-9)
    assert figures["squared_error"] == pytest.approx(((found - gold) ** 2).mean())
    assert next(iter(figures)) == "pearson" and made.better(0.5, 0.4)


def test_moments_leave_out_what_is_not_known() -> None:
    x, y = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([3.0, 4.0, 9.0])
    found = moments(x, y, torch.tensor([True, True, False]))
    assert {name: (float(a), float(b)) for name, (a, b) in found.items()} == {
        "x": (3, 2), "y": (7, 2), "xx": (5, 2), "yy": (25, 2), "xy": (11, 2),
    }  # fmt: skip
    assert all(total.dtype == torch.float64 for total, _ in found.values())


# --- GPT-1 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_the_second_loss_is_that_of_their_language_model(norm: str, tmp_path: Path) -> None:
    """Of every text by itself, then the mean of the texts."""
    made = single("gpt")
    assert made.weights == {"language": 0.5}
    model, batch = model_of("gpt", made.heads(), torch.float64, norm=norm,
                            ffn_size=128), batch_of(made)  # fmt: skip
    found = made.loss(model, batch)
    assert found.counts == {"classify": 3.0, "language": 3.0}
    save(model, tmp_path)
    kind = transformers.GPT2LMHeadModel if norm == "pre" else transformers.OpenAIGPTLMHeadModel
    their_model = kind.from_pretrained(tmp_path, dtype=torch.float64).eval()
    each, exact = 0.0, 0.0
    for i in range(3):
        tokens = torch.tensor(made.rows[i].tolist())[None]
        theirs = their_model(tokens, labels=tokens)
        each += float(theirs.loss)  # which they compute in 32 bits
        exact += float(F.cross_entropy(theirs.logits[0, :-1], tokens[0, 1:]))
    assert float(found.sums["language"]) == pytest.approx(each, rel=1e-6)
    assert float(found.sums["language"]) == pytest.approx(exact, rel=1e-12)
    assert made.targets_in(batch) == sum(len(made.rows[i]) - 1 for i in range(3))


def test_the_second_loss_has_its_gradient() -> None:
    made = single("gpt")
    model, batch = model_of("gpt", made.heads(), torch.float64), batch_of(made)
    made.loss(model, batch).sums["language"].backward()
    found = [model.tokens.weight.grad.clone(), model.blocks[0].attention.norm.weight.grad.clone()]
    model.zero_grad()
    logits = model.logits(model(batch["tokens"]))[:, :-1]
    words, attention_mask = batch["tokens"][:, 1:], batch["attention_mask"][:, 1:]
    each = F.cross_entropy(logits.transpose(1, 2), words, reduction="none") * attention_mask
    (each.sum(1) / attention_mask.sum(1)).sum().backward()
    wanted = [model.tokens.weight.grad, model.blocks[0].attention.norm.weight.grad]
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_the_second_loss_is_learned_only_and_only_where_asked() -> None:
    assert single("gpt", split="valid").counts(batch_of(single("gpt"))) == {"classify": 3.0}
    assert single("gpt", auxiliary=0.0).weights == {}
    assert single("gpt", auxiliary=0.1).weights == {"language": 0.1}
    assert single("bert").weights == {}


def test_similar_texts_are_read_in_both_orders() -> None:
    made = build(Classify, "gpt", scored(("a b", "c", 1.0), ("d", "e", 2.0)))
    batch = batch_of(made)
    a, b = ids("a b"), ids("c")
    assert batch["tokens"][0][:6].tolist() == [START, *a, SEP, *b, CLS]
    assert batch["tokens"][1][:6].tolist() == [START, *b, SEP, *a, CLS]
    assert batch["rows"].tolist() == [[0, 1], [2, 3]] and made.mean_len == 11.0
    assert not build(Classify, "bert", scored(("a b", "c", 1.0))).several
    assert not build(Classify, "gpt", scored(("a b", "c", 1.0)), both_orders=False).several


@torch.no_grad()
def test_both_orders_are_summed_before_the_classes(tmp_path: Path) -> None:
    made = build(Classify, "gpt", scored(("a b", "c", 1.0), ("d", "e f", 2.0), split="test"))
    model = model_of("gpt", made.heads(), torch.float64)
    found = made.scores(model, batch_of(made))
    for i, (a, b) in enumerate([("a b", "c"), ("d", "e f")]):
        rows = [[START, *ids(x), SEP, *ids(y), CLS] for x, y in ((a, b), (b, a))]
        vectors = [model(torch.tensor([row]))[0, -1] for row in rows]
        by_hand = (vectors[0] + vectors[1]) @ model.heads["classify"].out.weight.mT
        assert torch.allclose(found[i], by_hand, rtol=0, atol=1e-10)


@few(25)
@given(st.integers(0, 14), st.integers(0, 14), st.integers(0, 99))
@torch.no_grad()
def test_the_order_of_two_texts_does_not_matter(first: int, second: int, seed: int) -> None:
    """Nor when they have to be cut."""
    a, b = some_words(first, "a", seed), some_words(second, "b", seed)
    held = scored((a, b, None), (b, a, None), split="test")
    made = build(Classify, "gpt", held, length=12)
    one, other = made.scores(model_of("gpt", made.heads(), torch.float64), batch_of(made))
    assert torch.allclose(one, other, rtol=0, atol=1e-10)


# --- learning ---------------------------------------------------------------------------------


@ABLE
def test_it_learns(family: str) -> None:
    labels = ["first", "second"]
    made = build(Classify, family, examples("classify", deciding(64, 0), labels))
    unseen = build(Classify, family, examples("classify", deciding(32, 1), labels, "test"))
    model = model_of(family, made.heads())
    gold = [example.label for example in unseen.corpus.examples]

    def right() -> int:
        return sum(p.value == g for p, g in zip(said(unseen, model), gold, strict=True))

    before = right()
    learn(made, model)
    assert right() >= 30 and before < 28
    answer = said(unseen, model)[0]
    assert answer.score == max(answer.scores.values()) and sum(answer.scores.values()) == (
        pytest.approx(1)
    )


@ABLE
def test_it_learns_which_text_is_the_second(family: str) -> None:
    """Both have a word that could decide; only that of the second does."""

    def pairs(count: int, seed: int) -> list[LabeledExample]:
        sides = [("ab"[i // 2 % 2], "ab"[i % 2]) for i in range(count)]
        return [
            LabeledExample(f"{some_words(1, 'l', seed, i)} {a}",
             f"{some_words(1, 'r', seed, i)} {b}",
                     label="yes" if b == "a" else "no")
            for i, (a, b) in enumerate(sides)
        ]  # fmt: skip

    made = build(Classify, family, examples("entail", pairs(64, 0), ["no", "yes"]))
    model = model_of(family, made.heads())
    learn(made, model, steps=100)
    unseen = build(Classify, family, examples("entail", pairs(32, 1), ["no", "yes"], "test"))
    gold = [example.label for example in unseen.corpus.examples]
    assert sum(p.value == g for p, g in zip(said(unseen, model), gold, strict=True)) >= 30


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_it_learns_a_score(family: str) -> None:
    def rows(count: int, seed: int) -> list[tuple[str, str, float]]:
        return [
            (f"a {some_words(2, 's', seed, i)}", "a" if i % 2 else "b", float(i % 2))
            for i in range(count)
        ]

    made = build(Classify, family, scored(*rows(64, 0)))
    model = model_of(family, made.heads())
    learn(made, model, steps=80)
    unseen = build(Classify, family, scored(*rows(16, 1), split="test"))
    found = np.array([p.value for p in said(unseen, model)])
    assert np.corrcoef(found, [i % 2 for i in range(16)])[0, 1] > 0.9


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build_it", "error", "named"),
    [
        (lambda: single("gpt", both_orders=True), ConfigError, "both_orders is for the similarity"),
        (lambda: build(Classify, "bert", scored(("a", "b", 1.0)), both_orders=True), ConfigError,
         "both_orders is for .* bert"),
        (lambda: single("bert", marks=False), ConfigError, "bert cannot do without marks"),
        (lambda: single("t5"), ConfigError, "t5 cannot learn classify so; these can: bert"),
        (lambda: single("lstm"), ConfigError, r"\(transformer and t5 learn it as text\)$"),
        (lambda: single("bert", length=2), ConfigError, "no room for text"),
        (lambda: single("bert", auxiliary=0.5), ConfigError, "bert is no language model"),
        (lambda: single("gpt", auxiliary=-1), ConfigError, "auxiliary is -1"),
        (lambda: build(Classify, "bert", examples("classify", [LabeledExample("a")], ["n"],
         "valid")),
         InputError, "none of the examples of the valid data has a label"),
        (lambda: build(Classify, "bert", examples("similar", [HIGH])), ConfigError,
         r"x\.tsv:3: 'high' is no number"),
        (lambda: pairs("bert").check(model_of("gpt", {"classify": 2})), ConfigError,
         "the model is a gpt"),
        (lambda: pairs("bert").check(model_of("bert", {"classify": 2}, context=4)), ConfigError,
         "8 rows, but this model has 4 positions"),
        (lambda: pairs("bert").check(model_of("bert", {"classify": 2}, segments=1)), ConfigError,
         "2 segments, and this model has learned 1"),
    ],
)  # fmt: skip
def test_refusals(build_it: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        build_it()


@torch.no_grad()
def test_xlnet_reads_forwards() -> None:
    """However it was trained: half of a batch would else be read backwards."""
    made = build(Classify, "xlnet", examples("entail", PAIRS, ["no", "yes"], "test"))
    model = model_of("xlnet", made.heads(), torch.float64)
    wanted = made.scores(model, batch_of(made))
    both = model_of("xlnet", made.heads(), torch.float64, two_directions=True)
    assert not torch.allclose(made.scores(both, batch_of(made)), wanted)
    assert torch.equal(made.scores(made.adapt_model(both), batch_of(made)), wanted)
    assert not both.config.two_directions
