"""What a question says of its data, and what it reads: sizes, notes, baselines, rows made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import ConfigError
from regard.methods.probe.plan import ProbePlan
from regard.methods.probe.questions import Frozen, ProbeQuestion, question
from regard.methods.probe.tree_scores import baselines
from tests.methods.probe.small import loaded, tree
from tests.methods.probe.test_tasks import conll

CHAIN, STAR = (1, 2, 3, -1), (-1, 0, 0, 0)


def conllu(file: Path, shapes: list[tuple[int, ...]]) -> str:
    """Trees of these heads; no two sentences are alike."""
    made = []
    for number, heads in enumerate(shapes):
        lines = [f"{i}\tw{number}\t_\tNOUN\t_\t_\t{head + 1}\tdep\t_\t_" for i, head in
                 enumerate(heads, 1)]  # fmt: skip
        made.append("\n".join(lines) + "\n")
    file.write_text("\n".join(made))
    return str(file)


def plan_of(task: str, **more: Any) -> ProbePlan:
    return ProbePlan("model", task, **more)


# -- parts


def test_a_test_part_that_is_not_there_is_not_shown(tmp_path: Path) -> None:
    """What validates is measured on then, and that is said."""
    names = [str(conll(tmp_path / f"{i}.conll", 10 + i, seed=i)) for i in range(3)]
    trees = [conllu(tmp_path / f"{i}.conllu", [CHAIN] * (10 + i)) for i in range(3)]
    for data, words in ((names, 5), (trees, 1)):
        given: dict[str, Any] = {"task": data[0]}
        if data is trees:
            given = {"task": "structure", "data": data[0]}
        two = question(ProbePlan("model", **given, valid=data[1]))
        facts = two.facts()
        assert facts["units"] == {"train": 10 * words, "dev": 11 * words}
        assert facts["tested_on"] == "dev"
        assert [note for note in two.notes if "--valid, which also told when to stop" in note]
        three = question(ProbePlan("model", **given, valid=data[1], test=data[2]))
        facts = three.facts()
        assert facts["units"] == {"train": 10 * words, "dev": 11 * words, "test": 12 * words}
        assert facts["tested_on"] == "test" and not three.notes


def test_one_file_has_three_parts(tmp_path: Path) -> None:
    asked = question(plan_of("structure", data=conllu(tmp_path / "a.conllu", [CHAIN] * 50)))
    assert asked.facts()["units"] == {"train": 40, "dev": 5, "test": 5} and not asked.notes


def test_a_limit_is_of_the_trees_that_learn(tmp_path: Path) -> None:
    names = [conllu(tmp_path / f"{i}.conllu", [CHAIN] * n) for i, n in enumerate((200, 30, 40))]
    asked = question(plan_of("structure", data=names[0], valid=names[1], test=names[2], limit=20))
    assert asked.facts()["units"] == {"train": 20, "dev": 30, "test": 40}
    one = question(plan_of("structure", data=names[0], limit=12))
    assert one.facts()["units"] == {"train": 12, "dev": 20, "test": 20}


# -- baselines


def test_baselines_of_trees_by_hand() -> None:
    """In what learns most heads stand behind their words, and most roots are third."""
    learned = [tree((1, 2, -1)), tree((1, 2, -1, 2)), tree((-1, 0), marks=(1,))]
    tested = [tree((1, 2, -1, 2)), tree((-1, 0, 0)), tree((1, -1, 1), marks=(2,))]
    found = baselines(learned, tested)
    assert found["head"] == {"accuracy": {"always +1": pytest.approx(3 / 6)}}
    assert found["depth"] == {"root": {"always word 3": pytest.approx(1 / 3)}}
    assert found["distance"]["uuas"]["chain"] == pytest.approx((3 + 1 + 1) / 6)
    nothing = [tree((-1,), marks=(0,))]  # a full stop alone
    assert baselines(learned, nothing) == {"distance": {}, "depth": {}, "head": {}}
    assert baselines(nothing, tested)["head"] == {}


def test_baselines_are_learned_where_probes_learn(tmp_path: Path) -> None:
    names = [conllu(tmp_path / f"{i}.conllu", [shape] * 10) for i, shape in
             enumerate((CHAIN, STAR, STAR))]  # fmt: skip
    asked = question(plan_of("structure", data=names[0], valid=names[1], test=names[2]))
    found = asked.facts()["baselines"]
    assert found["head"]["accuracy"] == {"always +1": 0.0}
    assert found["depth"]["root"] == {"always word 4": 0.0}


# -- rows


def frozen(family: str, plan: ProbePlan) -> Frozen:
    return Frozen(loaded(family), plan, None, lambda what, done, total: None)


def asked_of(made: ProbeQuestion, plan: ProbePlan, whats: list[str]) -> tuple[Frozen, list[int]]:
    """Checks, asks everything twice, and says which layers were found."""
    held, layers = frozen("bert", plan), list[int]()
    made.check(held)
    for seed in (1, 2):
        for what in whats:
            made.ask(what, seed, made.layers(held), held, lambda layer, _: layers.append(layer),
                     lambda epoch, left: None)  # fmt: skip
    return held, layers


def test_rows_are_made_once(tmp_path: Path) -> None:
    """However often it is asked, long sentences are counted once."""
    plan = plan_of(str(conll(tmp_path / "a.conll", 30)), control=True, epochs=1, length=5)
    held, layers = asked_of(question(plan), plan, ["task", "control"])
    assert (
        held.reader.notes == ["30 sentences of more than 5 tokens are read in several windows"]
        and len(layers) == 12
    )
    data = conllu(tmp_path / "a.conllu", [CHAIN] * 30)
    plan = plan_of("structure", data=data, epochs=1, length=5)
    held, _ = asked_of(question(plan), plan, ["distance", "depth"])
    assert held.reader.long == 30
    looked = plan_of("heads", data=data, length=5)
    held, layers = asked_of(question(looked), looked, ["heads"])
    assert held.reader.long == 30 and layers == [1, 2, 1, 2]


def test_long_texts_that_heads_read_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the film was a good plot and was good.\n\nthe film was good.")
    plan = plan_of("heads", data=str(tmp_path / "a.txt"), length=8)
    held, _ = asked_of(question(plan), plan, ["heads"])
    assert held.reader.notes == ["1 texts of more than 8 tokens lost their end"]


def test_no_room_for_words_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    data = conllu(tmp_path / "a.conllu", [CHAIN] * 30)
    for plan in (plan_of(str(conll(tmp_path / "a.conll", 30)), length=2),
                 plan_of("structure", data=data, length=2),
                 plan_of("heads", data=data, length=2)):  # fmt: skip
        with pytest.raises(ConfigError, match="no room for words"):
            question(plan).check(frozen("bert", plan))


# -- relations


def test_relations_are_those_of_the_layers_asked_for(tmp_path: Path) -> None:
    """And said once, whichever layers are still missing."""
    data = conllu(tmp_path / "a.conllu", [CHAIN, STAR] * 6)

    def cells(asked: list[int], missing: list[int]) -> dict[int, Any]:
        plan = plan_of("heads", data=data, layers=asked)
        made, held, found = question(plan), frozen("bert", plan), dict[int, Any]()
        made.check(held)
        made.ask("heads", 1, missing, held, lambda layer, figures: found.update({layer: figures}),
                 lambda epoch, left: None)  # fmt: skip
        return found

    for layer in (1, 2):
        (figures,) = cells([layer], [layer]).values()
        assert {row["layer"] for row in figures["relations"]} == {layer}
    whole = cells([], [1, 2])
    assert "relations" in whole[1] and "relations" not in whole[2]
    assert cells([], [1])[1] == whole[1] and cells([], [2])[2] == whole[2]


# -- options that would change nothing


@pytest.mark.parametrize(
    ("task", "more", "told"),
    [
        ("a.conll", {"hidden_size": 64}, "--probe linear has no use for --mlp-size"),
        ("a.conll", {"hidden_size": 64, "kind": "rank-8"},
         "--probe rank-8 has no use for --mlp-size"),
        ("auto:capital", {"hidden_size": 64}, "--mlp-size"),
        ("structure", {"hidden_size": 64}, "--mlp-size"),
        ("heads", {"cache": "states"}, "--cache"),
        *((task, {name: value}, f"--task {task} has no use for --{option}")
          for task in ("auto:capital", "heads", "structure")
          for name, option, value in (("fields", "field", {"tags": "xpos"}),
                                      ("form", "format", "conll"), ("header", "header", False))),
        ("auto:capital", {"skip": ["empty-text"]}, "--skip"),
        ("a.conll", {"split": "valid"}, "--split"),
        ("structure", {"split": "valid"}, "--split"),
    ],
)  # fmt: skip
def test_options_without_a_use_are_refused(task: str, more: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan_of(task, **more)


def test_options_with_a_use_are_taken() -> None:
    plan_of("a.conll", kind="mlp", hidden_size=64, fields={"tags": "xpos"}, skip=["empty-text"])
    plan_of("structure", skip=["contradiction"], cache="states")
    plan_of("auto:capital", split="valid", cache="states", kind="mlp-2", hidden_size=64)
    plan_of("heads", split="valid", skip=["contradiction"])


def test_options_that_these_data_have_no_use_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the film was good.\n\n" * 30)
    text, trees = str(tmp_path / "a.txt"), conllu(tmp_path / "a.conllu", [CHAIN] * 30)
    for task, data in (("heads", text), ("heads", trees), ("auto:capital", text)):
        with pytest.raises(ConfigError, match="part of a prepared directory"):
            question(plan_of(task, data=data, split="valid"))
    with pytest.raises(ConfigError, match="--skip leaves out"):
        question(plan_of("heads", data=text, skip=["contradiction"]))
