"""Knowledge in the rows of tasks: what is inserted, what is scored, what a model is told."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.attention.pattern import Full
from regard.core.errors import ConfigError, FormatError, InputError, UnknownName
from regard.core.seeding import keyed
from regard.data.examples import LabeledExample, MultipleChoice
from regard.data.knowledge.graph import Graph
from regard.data.knowledge.options import KnowledgeOptions
from regard.data.knowledge.source import KnowledgeSource
from regard.data.tags import IGNORED
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_classes import bert_pieces
from regard.tasks.choose import Choose
from regard.tasks.classify import Classify
from regard.tasks.inference import predict_rows
from regard.tasks.tag_objective import Tag
from tests.refusals import refuses
from tests.tasks import judging, tagging
from tests.tasks.judging import CLS, ID, SEP, build, examples, ids, model_of

FACTS = [("b", "d", "e"), ("b", "f", "g"), ("h i", "j", "k")]


@pytest.fixture
def facts(tmp_path: Path) -> str:
    Graph(FACTS).write(tmp_path / "facts.tsv")
    return str(tmp_path / "facts.tsv")


def classify(family: str, texts: list[str], length: int = 24, **knowledge: Any) -> Any:
    labeled = [LabeledExample(text, label="xy"[i % 2]) for i, text in enumerate(texts)]
    corpus = examples("classify", labeled, ["x", "y"])
    return build(Classify, family, corpus, length, knowledge=knowledge)


def words(objective: Any, place: int = 0) -> list[int]:
    return [int(i) for i in objective.rows[place]]


# -- rows


def test_branches_stand_behind_their_words(facts: str) -> None:
    objective = classify("bert", ["a b c", "a c"], graph=facts)
    assert words(objective) == [CLS, *ids("a b d e f g c"), SEP]
    batch = judging.batch_of(objective)
    assert batch["facts"]["soft"][0].tolist() == [0, 1, 2, 3, 4, 3, 4, 3, 4]
    assert batch["facts"]["line"][0].tolist() == [0, 0, 0, 1, 1, 2, 2, 0, 0]
    seen = objective.knowledge.given(batch)["known"].view(Full(), torch.float64).pattern.mask
    assert (seen[0, 0, 0] == 0).tolist() == [True, True, True, *[False] * 4, True, True]
    assert (seen[1, 0, 0] == 0).tolist() == [True] * 4 + [False] * 5  # a row without branches
    assert "1 of 2 rows of the train data have 2 branches" in objective.note


@pytest.mark.parametrize("changes", [{"branches": 1, "predicate": False}, {"branches": 0}])
def test_fewer_branches(facts: str, changes: dict[str, Any]) -> None:
    objective = classify("bert", ["a b c", "a c"], graph=facts, **changes)
    inserted = "e" if changes["branches"] else ""
    assert words(objective) == [CLS, *ids(f"a b {inserted} c"), SEP]


def test_without_the_matrix_branches_are_text(facts: str) -> None:
    objective = classify("bert", ["a b c", "a c"], graph=facts, matrix=False)
    assert words(objective) == [CLS, *ids("a b d e f g c"), SEP]
    assert "facts" not in judging.batch_of(objective)


def test_there_is_room_for_the_text_first(facts: str) -> None:
    objective = classify("bert", ["a b c l", "b h i"], 9, graph=facts)
    assert words(objective, 0) == [CLS, *ids("a b d e c l"), SEP]
    assert words(objective, 1) == [CLS, *ids("b d e f g h i"), SEP]
    assert "2 branches were left out" in objective.note


def test_a_batch_of_which_nothing_is_known_is_the_plain_one(facts: str) -> None:
    plain = classify("bert", ["a c", "l"])
    objective = classify("bert", ["a c", "l"], graph=facts)
    one, other = judging.batch_of(plain), judging.batch_of(objective)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "no entity of the graph occurs in the train data" in objective.note


@pytest.mark.parametrize("family", ["bert", "xlnet", "longformer"])
def test_padding_and_families(facts: str, family: str) -> None:
    """Each text alone gives what it gives beside a longer one."""
    texts = ["a b c", "h i l", "a c a c a c a c a c"]
    objective = classify(family, texts, graph=facts)
    model = model_of(family, {"classify": 2}, torch.float64)
    with torch.no_grad():
        together = objective.scores(model, judging.batch_of(objective))
        for place in range(len(texts)):
            alone = objective.scores(model, judging.batch_of(objective, [place]))
            assert torch.allclose(together[place], alone[0], atol=1e-9)
        plain = classify(family, texts)
        without = plain.scores(model, judging.batch_of(plain))
    assert not torch.allclose(without[0], together[0], rtol=1e-4)
    assert torch.allclose(without[2], together[2], atol=1e-9)


def test_two_texts_have_their_segments(facts: str) -> None:
    texts = [LabeledExample("a b", "h i c", "x"), LabeledExample("a", "c", "y")]
    corpus = examples("entail", texts, ["x", "y"])
    objective = build(Classify, "bert", corpus, 24, knowledge={"graph": facts})
    assert words(objective) == [CLS, *ids("a b d e f g"), SEP, *ids("h i j k c"), SEP]
    assert objective.segments[0].tolist() == [0] * 8 + [1] * 6


def test_choices_are_several_rows(facts: str) -> None:
    texts = [MultipleChoice("a b", ("c", "h i"), label=0), MultipleChoice("a", ("c", "c"), label=1)]
    objective = build(Choose, "bert", examples("choose", texts), 24, knowledge={"graph": facts})
    assert objective.lengths[0].tolist() == [10, 13]
    batch = judging.batch_of(objective)
    assert batch["tokens"].shape == batch["facts"]["line"].shape == (4, 13)
    model = model_of("bert", {"choose": 1}, torch.float64)
    with torch.no_grad():
        assert objective.scores(model, batch).isfinite().all()


def test_branches_have_no_tag(tmp_path: Path) -> None:
    Graph([("anna", "likes", "new york"), ("new york", "is", "oslo")]).write(tmp_path / "g.tsv")
    texts = [tagging.tagged("anna is in new york", "B-PER O O B-LOC I-LOC")]
    options = {"graph": str(tmp_path / "g.tsv")}
    objective = tagging.objective(texts, tagging.pieces(), knowledge=options)
    plain = tagging.objective(texts, tagging.pieces())
    known = {word: i for i, word in enumerate(tagging.PIECES)}
    text = "[CLS] anna likes new york is in new york is oslo [SEP]"
    assert words(objective) == [known[word] for word in text.split()]
    labels = [label for label in objective.labels[0].tolist() if label != IGNORED]
    assert labels == [label for label in plain.labels[0].tolist() if label != IGNORED]
    assert objective.labels[0].tolist()[2:5] == [IGNORED] * 3
    assert objective.counts(tagging.whole(objective)) == plain.counts(tagging.whole(plain))
    model = tagging.model("bert").eval()
    predictions = objective.merge(predict_rows(objective, model))
    assert isinstance(objective, Tag) and len(predictions[0].value) == 5


def test_a_variant_is_informed_like_its_example(facts: str) -> None:
    """What augmentation makes of an example has branches, too, or it is not read."""
    objective = classify("bert", ["a b c", "l l l l h i"], graph=facts)
    plain = classify("bert", ["h i", "a b b c"])
    variant = objective.knowledge.varied(plain.plain(0), objective)
    assert variant["tokens"].tolist() == [CLS, *ids("h i j k"), SEP]
    assert variant["facts"]["soft"].tolist() == [0, 1, 2, 3, 4, 3]
    assert variant["segments"].tolist() == [0] * 6 and variant["gold"] == plain.gold[0]
    assert objective.knowledge.varied(plain.plain(1), objective) is None  # longer than any example
    batch = objective.collate([objective.plain(0), variant])
    assert batch["facts"]["line"].tolist()[1] == [0, 0, 0, 1, 1, 0, 0, 0, 0]


# -- entities among tokens


def source(pieces: list[str], facts: list[tuple[str, str, str]], **options: Any) -> KnowledgeSource:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    return KnowledgeSource(Graph(facts), Tokenizer(bert_pieces(vocabulary)), 1, **options)


def test_only_whole_words_are_entities() -> None:
    knowledge = source(["york", "##er", "new"], [("York", "is", "x"), ("New York", "is", "new")])
    fast = knowledge.tokenizer
    assert [m.value for m in knowledge.find(fast.encode("york new york", special=False))] == [
        "York", "New York",
    ]  # fmt: skip
    assert knowledge.find(fast.encode("yorker new yorker", special=False)) == []


def test_an_unknown_word_is_no_entity() -> None:
    knowledge = source(["a"], [("strange", "is", "a"), ("a strange", "is", "a"), ("A", "is", "a"),
                          ("a", "is", "a")])  # fmt: skip
    assert [
        m.value for m in knowledge.find(knowledge.tokenizer.encode("a odd", special=False))
    ] == ["A"]
    strange, same = knowledge.notes()
    assert "2 entities of the graph have words that the tokenizer does not know" in strange
    assert "1 entities of the graph are the same as others" in same and "'a'" in same


def test_chinese_entities_are_runs_of_characters() -> None:
    knowledge = source(list("我在北京大学"), [("北京", "在", "大"), ("北京大学", "在", "北")])
    assert [
        m.value for m in knowledge.find(knowledge.tokenizer.encode("我在北京大学", special=False))
    ] == ["北京大学"]


def test_kinds_of_tokens() -> None:
    knowledge = source(["word", "12", "##7", "!", "x2"], [])
    assert knowledge.kinds().tolist() == [3, 3, 3, 3, 3, 0, 1, 1, 2, 0]


# -- guidance


def test_edges_between_the_entities_of_a_text(facts: str) -> None:
    rules = ["entity", "related", "relation:d", "same-token"]
    objective = classify("bert", ["e a b b", "a c"], graph=facts, mode="bias", rules=rules)
    assert words(objective) == [CLS, *ids("e a b b"), SEP]
    batch = judging.batch_of(objective)
    guide = objective.knowledge.given(batch)["known"].guide
    features = guide.features(Full(), torch.float64)
    e, first, second = 1, 3, 4
    expected = np.zeros((4, 6, 6))
    expected[0, [e, first, first, second, second], [e, first, second, first, second]] = 1
    expected[1, [e, e, first, second], [first, second, e, e]] = 1
    expected[2], expected[3, [first, second], [second, first]] = expected[1], 1
    assert np.array_equal(features[0].numpy(), expected)
    assert not features[1, :3].any()


def test_a_text_without_entities_is_not_guided(facts: str) -> None:
    objective = classify("bert", ["a c", "l"], graph=facts, mode="bias")
    assert "facts" not in judging.batch_of(objective)
    near = classify("bert", ["a c", "l"], mode="bias", rules=["near:1"])
    assert "facts" in judging.batch_of(near)


@pytest.mark.parametrize("family", ["bert", "xlnet", "longformer"])
def test_a_model_is_fitted_for_guidance(facts: str, family: str) -> None:
    objective = classify(family, ["e b", "a c"], graph=facts, mode="bias")
    model = model_of(family, {"classify": 2}, torch.float64)
    with refuses(ConfigError, "rules None", "objective.knowledge.rules"):
        objective.check(model)
    with torch.no_grad():
        plain = objective.scores(model, judging.batch_of(objective))
        model = objective.adapt_model(model).eval()
        objective.check(model)
        assert torch.equal(objective.scores(model, judging.batch_of(objective)), plain)
    assert objective.adapt_model(model) is model


# -- only the graph knows


def learned(train: Any, test: Any, steps: int) -> float:
    """The share of test examples that are right after learning from others."""
    model = train.adapt_model(model_of("bert", {"classify": 2}))
    judging.learn(train, model, steps)
    predictions = test.merge(predict_rows(test, model.eval()))
    return float(
        np.mean(
            [p.value == e.label for p, e in zip(predictions, test.corpus.examples, strict=True)]
        )
    )


NAMES = [f"{a} {b}" for a in "abcdefgh" for b in "abcdefgh"]
NAMES = [NAMES[i] for i in keyed("names").permutation(len(NAMES))]


@pytest.mark.parametrize("known", [True, False])
def test_a_branch_tells_of_entities_that_were_never_seen(tmp_path: Path, known: bool) -> None:
    truth = {name: ["What", "was"][i % 2] for i, name in enumerate(NAMES)}
    Graph([(name, "k", value) for name, value in truth.items()]).write(tmp_path / "g.tsv")

    def part(chosen: list[str], split: str) -> Any:
        texts = [LabeledExample(f"l {name}", label=truth[name]) for name in chosen]
        options = {"knowledge": {"graph": str(tmp_path / "g.tsv")}} if known else {}
        corpus = examples("classify", texts, ["What", "was"], split)
        return build(Classify, "bert", corpus, 12, **options)

    right = learned(part(NAMES[:40], "train"), part(NAMES[40:], "valid"), 40)
    assert right == 1.0 if known else right < 0.8


@pytest.mark.parametrize("known", [True, False])
def test_guidance_tells_which_new_entities_are_related(tmp_path: Path, known: bool) -> None:
    pairs = list(zip(NAMES[::2], NAMES[1::2], strict=True))
    Graph([(one, "k", other) for one, other in pairs]).write(tmp_path / "g.tsv")
    knowledge: dict[str, Any] = {
        "graph": str(tmp_path / "g.tsv"),
        "mode": "bias",
        "rules": ["related"],
        "guidance": {"strength": "fixed", "value": 6.0, "weights": "fixed"},
    }

    def part(related: list[tuple[str, str]], split: str) -> Any:
        texts = []
        for i, (one, other) in enumerate(related):
            wrong = related[(i + 1 + i % 3) % len(related)][1]
            for label, name in (("yes", other), ("no", wrong)):
                texts += [LabeledExample(f"{one} l {name}", label=label)]
                texts += [LabeledExample(f"{name} l {one}", label=label)]
        corpus = examples("classify", texts, ["no", "yes"], split)
        return build(Classify, "bert", corpus, 12, knowledge=knowledge if known else {})

    right = learned(part(pairs[:24], "train"), part(pairs[24:], "valid"), 100)
    assert right >= 0.9 if known else right < 0.8, right


# -- what cannot be


@pytest.mark.parametrize(
    ("family", "knowledge", "error", "named"),
    [
        ("gpt", {}, ConfigError, "encoders, bert, is a gpt"),
        ("bert", {"graph": "", "branches": 1}, ConfigError, "graph, --knowledge"),
        (
            "bert",
            {"graph": "", "mode": "bias", "rules": ["near:1", "related"]},
            ConfigError,
            "'related', graph",
        ),
        ("bert", {"branch": 1}, UnknownName, "knowledge.branch', 'objective.knowledge.branches'"),
        ("bert", {"mode": "trees"}, UnknownName, "objective.knowledge.mode 'trees', 'tree'"),
        ("bert", {"depth": "two"}, ConfigError, "objective.knowledge.depth is 'two'"),
        ("bert", {"mode": "bias", "rules": ["relation:z"]}, UnknownName, "relation 'z'"),
        (
            "longformer",
            {"mode": "bias", "rules": ["same-sentence"]},
            ConfigError,
            "'same-sentence', segments",
        ),
        ("bert", {"graph": "", "file": "../secret"}, ConfigError, "'../secret', knowledge.tsv"),
    ],
)
def test_bad_input(
    facts: str, family: str, knowledge: dict[str, Any], error: type[Exception], named: str
) -> None:
    options = {"graph": facts} | knowledge
    with refuses(error, *named.split(", ")):
        classify(family, ["a"], **{k: v for k, v in options.items() if v != ""})


def test_broken_lines_of_a_graph(tmp_path: Path) -> None:
    (tmp_path / "broken.tsv").write_text("a\tb\n")
    with refuses(FormatError, "broken.tsv:1"):
        classify("bert", ["a"], graph=str(tmp_path / "broken.tsv"))
    skipped = classify("bert", ["a", "c"], graph=str(tmp_path / "broken.tsv"), skip=True)
    assert "1 malformed lines were left out" in skipped.note


def test_huge_and_circular_branches_are_bounded_and_that_is_said(tmp_path: Path) -> None:
    """b and c lead to each other, and each has a hundred triples: as a tree, 64⁴ branches."""
    pairs = [f"{one} {two}" for one in "defghijkla" for two in "defghijkla"]
    lines = [f"{here}\tto\t{there}\n" for here, there in ("bc", "cb")]
    lines += [f"{here}\t{word}\t{'cb'['bc'.index(here)]}\n" for here in "bc" for word in pairs]
    (tmp_path / "hub.tsv").write_text("".join(lines))
    options: dict[str, Any] = {"graph": str(tmp_path / "hub.tsv"), "branches": 64, "depth": 4}
    objective = classify("bert", ["a b c", "a"], 16, **options)
    assert len(words(objective)) <= 16 and words(objective, 1) == [CLS, *ids("a"), SEP]
    assert "2 entities have more than 64 triples" in objective.note
    assert "branches were left out: there was no room for them" in objective.note
    with refuses(InputError, "depth", "5", "1 to 4"):
        classify("bert", ["a b c", "a"], 16, **options | {"depth": 5})


TREE: dict[str, Any] = {"branches": 1, "depth": 2, "predicate": False, "matrix": False}
BIAS: dict[str, Any] = {"rules": ["near:1"], "guidance": {"gated": True}}


@pytest.mark.parametrize("name", [*TREE, *BIAS])
def test_what_only_the_other_mode_heeds(facts: str, name: str) -> None:
    value = (TREE | BIAS)[name]
    own, other = ("tree", "bias") if name in TREE else ("bias", "tree")
    options = KnowledgeOptions.of({"graph": facts, "mode": own, name: value})
    assert KnowledgeOptions.of(asdict(options)) == options  # settled: all keys, at their defaults
    with refuses(ConfigError, f"knowledge.{name} is {value}", f"mode {own}", f"mode is {other}"):
        classify("bert", ["a"], graph=facts, mode=other, **{name: value})


def test_a_model_that_is_guided_already(facts: str) -> None:
    def guided(**guidance: Any) -> Any:
        return classify("bert", ["e b", "a c"], graph=facts, mode="bias", guidance=guidance)

    model = guided(strength="learned").adapt_model(model_of("bert", {"classify": 2}))
    for same in ({}, {"strength": "learned"}, {"strength": "learned", "gated": False}):
        assert guided(**same).adapt_model(model) is model
    with refuses(ConfigError, "guidance.gated is True", "False"):
        guided(strength="learned", gated=True).adapt_model(model)
    with refuses(UnknownName, "guidance.gate'", "guidance.gated'"):
        guided(gate=True).adapt_model(model)
    with refuses(ConfigError, "guidance.rules", "objective.knowledge.rules"):
        guided(rules=["near:1"])


def test_a_graph_that_has_changed_is_read_again(facts: str) -> None:
    assert len(words(classify("bert", ["a b c", "a"], graph=facts))) == 9
    Graph([*FACTS, ("c", "k", "k")]).write(facts)
    assert len(words(classify("bert", ["a b c", "a"], graph=facts))) == 11


def test_choices_of_branches_do_not_depend_on_the_file(tmp_path: Path) -> None:
    rows = []
    for seed in range(3):
        order = keyed(seed, "mixed").permutation(len(FACTS))
        text = "".join("\t".join(FACTS[i]) + "\n" for i in order)
        (tmp_path / f"{seed}.tsv").write_text(text)
        rows.append(words(classify("bert", ["a b", "a"], graph=str(tmp_path / f"{seed}.tsv"))))
    assert rows[0] == rows[1] == rows[2] and ID["d"] in rows[0]
