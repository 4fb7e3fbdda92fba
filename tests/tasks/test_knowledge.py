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
from regard.data.tokenizer import Tokenizer, word_pieces
from regard.tasks.choose import Choose
from regard.tasks.classify import Classify
from regard.tasks.inference import said_of
from regard.tasks.tag_objective import Tag
from tests.tasks import judging, tagging
from tests.tasks.judging import CLS, ID, SEP, build, examples, ids, model_of

FACTS = [("b", "d", "e"), ("b", "f", "g"), ("h i", "j", "k")]


@pytest.fixture
def facts(tmp_path: Path) -> str:
    Graph(FACTS).write(tmp_path / "facts.tsv")
    return str(tmp_path / "facts.tsv")


def classify(family: str, texts: list[str], length: int = 24, **knowledge: Any) -> Any:
    given = [LabeledExample(text, label="xy"[i % 2]) for i, text in enumerate(texts)]
    held = examples("classify", given, ["x", "y"])
    return build(Classify, family, held, length, knowledge=knowledge)


def words(made: Any, place: int = 0) -> list[int]:
    return [int(i) for i in made.rows[place]]


# -- rows


def test_branches_stand_behind_their_words(facts: str) -> None:
    made = classify("bert", ["a b c", "a c"], graph=facts)
    assert words(made) == [CLS, *ids("a b d e f g c"), SEP]
    batch = judging.batch_of(made)
    assert batch["facts"]["soft"][0].tolist() == [0, 1, 2, 3, 4, 3, 4, 3, 4]
    assert batch["facts"]["line"][0].tolist() == [0, 0, 0, 1, 1, 2, 2, 0, 0]
    seen = made.knowledge.given(batch)["known"].view(Full(), torch.float64).pattern.mask
    assert (seen[0, 0, 0] == 0).tolist() == [True, True, True, *[False] * 4, True, True]
    assert (seen[1, 0, 0] == 0).tolist() == [True] * 4 + [False] * 5  # a row without branches
    assert "1 of 2 rows of the train data have 2 branches" in made.note


@pytest.mark.parametrize("changes", [{"branches": 1, "predicate": False}, {"branches": 0}])
def test_fewer_branches(facts: str, changes: dict[str, Any]) -> None:
    made = classify("bert", ["a b c", "a c"], graph=facts, **changes)
    inserted = "e" if changes["branches"] else ""
    assert words(made) == [CLS, *ids(f"a b {inserted} c"), SEP]


def test_without_the_matrix_branches_are_text(facts: str) -> None:
    made = classify("bert", ["a b c", "a c"], graph=facts, matrix=False)
    assert words(made) == [CLS, *ids("a b d e f g c"), SEP]
    assert "facts" not in judging.batch_of(made)


def test_there_is_room_for_the_text_first(facts: str) -> None:
    made = classify("bert", ["a b c l", "b h i"], 9, graph=facts)
    assert words(made, 0) == [CLS, *ids("a b d e c l"), SEP]
    assert words(made, 1) == [CLS, *ids("b d e f g h i"), SEP]
    assert "2 branches were left out" in made.note


def test_a_batch_of_which_nothing_is_known_is_the_plain_one(facts: str) -> None:
    plain = classify("bert", ["a c", "l"])
    made = classify("bert", ["a c", "l"], graph=facts)
    one, other = judging.batch_of(plain), judging.batch_of(made)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "no entity of the graph occurs in the train data" in made.note


@pytest.mark.parametrize("family", ["bert", "xlnet", "longformer"])
def test_padding_and_families(facts: str, family: str) -> None:
    """Each text alone gives what it gives beside a longer one."""
    texts = ["a b c", "h i l", "a c a c a c a c a c"]
    made = classify(family, texts, graph=facts)
    model = model_of(family, {"classify": 2}, torch.float64)
    with torch.no_grad():
        together = made.scores(model, judging.batch_of(made))
        for place in range(len(texts)):
            alone = made.scores(model, judging.batch_of(made, [place]))
            assert torch.allclose(together[place], alone[0], atol=1e-9)
        plain = classify(family, texts)
        without = plain.scores(model, judging.batch_of(plain))
    assert not torch.allclose(without[0], together[0], rtol=1e-4)
    assert torch.allclose(without[2], together[2], atol=1e-9)


def test_two_texts_have_their_segments(facts: str) -> None:
    given = [LabeledExample("a b", "h i c", "x"), LabeledExample("a", "c", "y")]
    held = examples("entail", given, ["x", "y"])
    made = build(Classify, "bert", held, 24, knowledge={"graph": facts})
    assert words(made) == [CLS, *ids("a b d e f g"), SEP, *ids("h i j k c"), SEP]
    assert made.segments[0].tolist() == [0] * 8 + [1] * 6


def test_choices_are_several_rows(facts: str) -> None:
    given = [MultipleChoice("a b", ("c", "h i"), label=0), MultipleChoice("a", ("c", "c"), label=1)]
    made = build(Choose, "bert", examples("choose", given), 24, knowledge={"graph": facts})
    assert made.lengths[0].tolist() == [10, 13]
    batch = judging.batch_of(made)
    assert batch["tokens"].shape == batch["facts"]["line"].shape == (4, 13)
    model = model_of("bert", {"choose": 1}, torch.float64)
    with torch.no_grad():
        assert made.scores(model, batch).isfinite().all()


def test_branches_have_no_tag(tmp_path: Path) -> None:
    Graph([("anna", "likes", "new york"), ("new york", "is", "oslo")]).write(tmp_path / "g.tsv")
    given = [tagging.tagged("anna is in new york", "B-PER O O B-LOC I-LOC")]
    options = {"graph": str(tmp_path / "g.tsv")}
    made = tagging.objective(given, tagging.pieces(), knowledge=options)
    plain = tagging.objective(given, tagging.pieces())
    known = {word: i for i, word in enumerate(tagging.PIECES)}
    text = "[CLS] anna likes new york is in new york is oslo [SEP]"
    assert words(made) == [known[word] for word in text.split()]
    kept = [label for label in made.labels[0].tolist() if label != IGNORED]
    assert kept == [label for label in plain.labels[0].tolist() if label != IGNORED]
    assert made.labels[0].tolist()[2:5] == [IGNORED] * 3
    assert made.counts(tagging.whole(made)) == plain.counts(tagging.whole(plain))
    model = tagging.model("bert").eval()
    said = made.merge(said_of(made, model))
    assert isinstance(made, Tag) and len(said[0].value) == 5


def test_a_variant_is_informed_like_its_example(facts: str) -> None:
    """What augmentation makes of an example has branches, too, or it is not read."""
    made = classify("bert", ["a b c", "l l l l h i"], graph=facts)
    plain = classify("bert", ["h i", "a b b c"])
    found = made.knowledge.varied(plain.plain(0), made)
    assert found["tokens"].tolist() == [CLS, *ids("h i j k"), SEP]
    assert found["facts"]["soft"].tolist() == [0, 1, 2, 3, 4, 3]
    assert found["segments"].tolist() == [0] * 6 and found["gold"] == plain.gold[0]
    assert made.knowledge.varied(plain.plain(1), made) is None  # longer than any example
    batch = made.collate([made.plain(0), found])
    assert batch["facts"]["line"].tolist()[1] == [0, 0, 0, 1, 1, 0, 0, 0, 0]


# -- entities among tokens


def source(pieces: list[str], facts: list[tuple[str, str, str]], **options: Any) -> KnowledgeSource:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    return KnowledgeSource(Graph(facts), Tokenizer(word_pieces(vocabulary)), 1, **options)


def test_only_whole_words_are_entities() -> None:
    held = source(["york", "##er", "new"], [("York", "is", "x"), ("New York", "is", "new")])
    fast = held.tokenizer
    assert [m.value for m in held.find(fast.encode("york new york", special=False))] == [
        "York", "New York",
    ]  # fmt: skip
    assert held.find(fast.encode("yorker new yorker", special=False)) == []


def test_an_unknown_word_is_no_entity() -> None:
    held = source(["a"], [("strange", "is", "a"), ("a strange", "is", "a"), ("A", "is", "a"),
                          ("a", "is", "a")])  # fmt: skip
    assert [m.value for m in held.find(held.tokenizer.encode("a odd", special=False))] == ["A"]
    strange, same = held.notes()
    assert "2 entities of the graph have words that the tokenizer does not know" in strange
    assert "1 entities of the graph are the same as others" in same and "'a'" in same


def test_chinese_entities_are_runs_of_characters() -> None:
    held = source(list("我在北京大学"), [("北京", "在", "大"), ("北京大学", "在", "北")])
    assert [m.value for m in held.find(held.tokenizer.encode("我在北京大学", special=False))] == [
        "北京大学"
    ]


def test_kinds_of_tokens() -> None:
    held = source(["word", "12", "##7", "!", "x2"], [])
    assert held.kinds().tolist() == [3, 3, 3, 3, 3, 0, 1, 1, 2, 0]


# -- guidance


def test_edges_between_the_entities_of_a_text(facts: str) -> None:
    rules = ["entity", "related", "relation:d", "same-token"]
    made = classify("bert", ["e a b b", "a c"], graph=facts, mode="bias", rules=rules)
    assert words(made) == [CLS, *ids("e a b b"), SEP]
    batch = judging.batch_of(made)
    guide = made.knowledge.given(batch)["known"].guide
    features = guide.features(Full(), torch.float64)
    e, first, second = 1, 3, 4
    expected = np.zeros((4, 6, 6))
    expected[0, [e, first, first, second, second], [e, first, second, first, second]] = 1
    expected[1, [e, e, first, second], [first, second, e, e]] = 1
    expected[2], expected[3, [first, second], [second, first]] = expected[1], 1
    assert np.array_equal(features[0].numpy(), expected)
    assert not features[1, :3].any()


def test_a_text_without_entities_is_not_guided(facts: str) -> None:
    made = classify("bert", ["a c", "l"], graph=facts, mode="bias")
    assert "facts" not in judging.batch_of(made)
    near = classify("bert", ["a c", "l"], mode="bias", rules=["near:1"])
    assert "facts" in judging.batch_of(near)


@pytest.mark.parametrize("family", ["bert", "xlnet", "longformer"])
def test_a_model_is_fitted_for_guidance(facts: str, family: str) -> None:
    made = classify(family, ["e b", "a c"], graph=facts, mode="bias")
    model = model_of(family, {"classify": 2}, torch.float64)
    with pytest.raises(ConfigError, match="guided by the rules None"):
        made.check(model)
    with torch.no_grad():
        plain = made.scores(model, judging.batch_of(made))
        model = made.adapt_model(model).eval()
        made.check(model)
        assert torch.equal(made.scores(model, judging.batch_of(made)), plain)
    assert made.adapt_model(model) is model


# -- only the graph knows


def learned(train: Any, test: Any, steps: int) -> float:
    """The share of test examples that are right after learning from others."""
    model = train.adapt_model(model_of("bert", {"classify": 2}))
    judging.learn(train, model, steps)
    said = test.merge(said_of(test, model.eval()))
    return float(
        np.mean([p.value == e.label for p, e in zip(said, test.corpus.examples, strict=True)])
    )


NAMES = [f"{a} {b}" for a in "abcdefgh" for b in "abcdefgh"]
NAMES = [NAMES[i] for i in keyed("names").permutation(len(NAMES))]


@pytest.mark.parametrize("known", [True, False])
def test_a_branch_tells_of_entities_that_were_never_seen(tmp_path: Path, known: bool) -> None:
    truth = {name: ["What", "was"][i % 2] for i, name in enumerate(NAMES)}
    Graph([(name, "k", value) for name, value in truth.items()]).write(tmp_path / "g.tsv")

    def part(chosen: list[str], split: str) -> Any:
        given = [LabeledExample(f"l {name}", label=truth[name]) for name in chosen]
        options = {"knowledge": {"graph": str(tmp_path / "g.tsv")}} if known else {}
        held = examples("classify", given, ["What", "was"], split)
        return build(Classify, "bert", held, 12, **options)

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

    def part(held: list[tuple[str, str]], split: str) -> Any:
        given = []
        for i, (one, other) in enumerate(held):
            wrong = held[(i + 1 + i % 3) % len(held)][1]
            for label, name in (("yes", other), ("no", wrong)):
                given += [LabeledExample(f"{one} l {name}", label=label)]
                given += [LabeledExample(f"{name} l {one}", label=label)]
        corpus = examples("classify", given, ["no", "yes"], split)
        return build(Classify, "bert", corpus, 12, knowledge=knowledge if known else {})

    right = learned(part(pairs[:24], "train"), part(pairs[24:], "valid"), 100)
    assert right >= 0.9 if known else right < 0.8, right


# -- what cannot be


@pytest.mark.parametrize(
    ("family", "knowledge", "error", "named"),
    [
        ("gpt", {}, ConfigError, "for encoders"),
        ("bert", {"graph": "", "branches": 1}, ConfigError, "needs a graph"),
        ("bert", {"graph": "", "mode": "bias", "rules": ["near:1", "related"]}, ConfigError,
         "'related' needs a graph"),
        ("bert", {"branch": 1}, UnknownName, r"did you mean 'objective\.knowledge\.branches'"),
        ("bert", {"mode": "trees"}, UnknownName, "did you mean 'tree'"),
        ("bert", {"depth": "two"}, ConfigError, "depth is 'two'"),
        ("bert", {"mode": "bias", "rules": ["relation:z"]}, UnknownName, "unknown relation 'z'"),
        ("longformer", {"mode": "bias", "rules": ["same-sentence"]}, ConfigError,
         "needs a model with segments"),
        ("bert", {"graph": "", "file": "../secret"}, ConfigError, r"can only be knowledge\.tsv"),
    ],
)  # fmt: skip
def test_bad_input(
    facts: str, family: str, knowledge: dict[str, Any], error: type[Exception], named: str
) -> None:
    options = {"graph": facts} | knowledge
    with pytest.raises(error, match=named):
        classify(family, ["a"], **{k: v for k, v in options.items() if v != ""})


def test_broken_lines_of_a_graph(tmp_path: Path) -> None:
    (tmp_path / "broken.tsv").write_text("a\tb\n")
    with pytest.raises(FormatError, match=r"broken\.tsv:1"):
        classify("bert", ["a"], graph=str(tmp_path / "broken.tsv"))
    skipped = classify("bert", ["a", "c"], graph=str(tmp_path / "broken.tsv"), skip=True)
    assert "1 malformed lines were left out" in skipped.note


def test_huge_and_circular_branches_are_bounded_and_that_is_said(tmp_path: Path) -> None:
    """b and c lead to each other, and each has a hundred triples: as a tree, 64⁴ branches."""
    pairs = [f"{one} {two}" for one in "defghijkla" for two in "defghijkla"]
    lines = [f"{here}\tto\t{there}\n" for here, there in ("bc", "cb")]
    lines += [f"{here}\t{said}\t{'cb'['bc'.index(here)]}\n" for here in "bc" for said in pairs]
    (tmp_path / "hub.tsv").write_text("".join(lines))
    given: dict[str, Any] = {"graph": str(tmp_path / "hub.tsv"), "branches": 64, "depth": 4}
    made = classify("bert", ["a b c", "a"], 16, **given)
    assert len(words(made)) <= 16 and words(made, 1) == [CLS, *ids("a"), SEP]
    assert "2 entities have more than 64 triples" in made.note
    assert "branches were left out: there was no room for them" in made.note
    with pytest.raises(InputError, match="a depth from 1 to 4"):
        classify("bert", ["a b c", "a"], 16, **given | {"depth": 5})


TREE: dict[str, Any] = {"branches": 1, "depth": 2, "predicate": False, "matrix": False}
BIAS: dict[str, Any] = {"rules": ["near:1"], "guidance": {"gated": True}}


@pytest.mark.parametrize("name", [*TREE, *BIAS])
def test_what_only_the_other_mode_heeds(facts: str, name: str) -> None:
    value = (TREE | BIAS)[name]
    own, other = ("tree", "bias") if name in TREE else ("bias", "tree")
    made = KnowledgeOptions.of({"graph": facts, "mode": own, name: value})
    assert KnowledgeOptions.of(asdict(made)) == made  # settled: all keys, at their defaults
    told = rf"knowledge\.{name} is .*, which only mode {own} heeds, and the mode is {other}"
    with pytest.raises(ConfigError, match=told):
        classify("bert", ["a"], graph=facts, mode=other, **{name: value})


def test_a_model_that_is_guided_already(facts: str) -> None:
    def made(**guidance: Any) -> Any:
        return classify("bert", ["e b", "a c"], graph=facts, mode="bias", guidance=guidance)

    model = made(strength="learned").adapt_model(model_of("bert", {"classify": 2}))
    for same in ({}, {"strength": "learned"}, {"strength": "learned", "gated": False}):
        assert made(**same).adapt_model(model) is model
    with pytest.raises(ConfigError, match=r"guidance\.gated is True, .* already, with False"):
        made(strength="learned", gated=True).adapt_model(model)
    with pytest.raises(UnknownName, match=r"guidance\.gate'; did you mean '.*gated'"):
        made(gate=True).adapt_model(model)
    with pytest.raises(ConfigError, match=r"rules stand in objective\.knowledge\.rules"):
        made(rules=["near:1"])


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
