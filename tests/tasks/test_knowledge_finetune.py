"""Knowledge from beginning to end: a run learns with it, keeps it, and is asked with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.cli.main import main
from regard.core.errors import FormatError, InputError, UnknownName
from regard.data.knowledge.graph import Graph
from regard.methods.finetune.run import finetune
from regard.methods.runs import data_for
from regard.training.build import resolved
from regard.training.resolve import MachineFacts
from tests.refusals import mentions, refuses
from tests.tasks import tuning

FACTS = [("film", "of", "warm"), ("plot", "of", "cold"), ("actor", "of", "film")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, reviews, a graph about their words, one about others, and an empty one."""
    directory = tmp_path_factory.mktemp("knowledge")
    tuning.bert(directory / "bert")
    tuning.write(directory / "reviews.jsonl", tuning.reviews(40))
    Graph(FACTS).write(directory / "facts.tsv")
    Graph([("nobody", "knows", "this")]).write(directory / "others.tsv")
    (directory / "empty.tsv").write_text("")
    return directory


def run(place: Path, name: str, steps: int = 4, **knowledge: Any) -> Path:
    out = place / name
    changes = {"objective": {"knowledge": knowledge}} if knowledge else {}
    changes |= {"budget": {"steps": steps}}
    recipe = tuning.recipe(place / "bert", place / "reviews.jsonl", **changes)
    finetune(recipe, out, display="silent")
    return out


@pytest.fixture(scope="module")
def plain(place: Path) -> Path:
    return run(place, "plain")


def asked(directory: Path, texts: list[str]) -> Any:
    """What a model predicts by its own forward: with a hook on it, it is not packed."""
    loaded = regard.load(directory)
    loaded.model.register_forward_pre_hook(lambda *_: None)
    return loaded.classify(texts)


@pytest.mark.parametrize("name", ["empty", "others"])
@pytest.mark.parametrize("mode", ["tree", "bias"])
def test_empty_knowledge_changes_no_bit(place: Path, plain: Path, name: str, mode: str) -> None:
    out = run(place, f"{name}-{mode}", graph=str(place / f"{name}.tsv"), mode=mode)
    before = regard.load(plain).model.state_dict()
    after = regard.load(out).model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    texts = [record["text"] for record in tuning.reviews(9, seed=5)]
    one, other = (asked(directory, texts) for directory in (plain, out))
    assert [(p.value, p.score) for p in one] == [(p.value, p.score) for p in other]


def test_a_tree_is_learned_kept_and_asked(place: Path, plain: Path, tmp_path: Path) -> None:
    graph = tmp_path / "mine.tsv"
    Graph(FACTS).write(graph)
    out = run(place, "tree", graph=str(graph), branches=1)
    facts = json.loads((out / "task.json").read_text())["objective"]["knowledge"]
    assert facts["graph"] == str(graph) and facts["file"] == "knowledge.tsv"
    assert facts["branches"] == 1 and facts["digest"] == Graph(FACTS).digest
    assert list(Graph.read(out / "knowledge.tsv")) == list(Graph(FACTS))
    graph.unlink()  # the directory has its own
    keys = load_file(plain / "model.safetensors").keys()
    assert load_file(out / "model.safetensors").keys() == keys  # no new weights
    loaded = regard.load(out)
    known, unknown = loaded.classify(["the film was", "the music was"])
    bare = json.loads((out / "task.json").read_text())
    bare["objective"]["knowledge"] = {}
    (out / "task.json").write_text(json.dumps(bare))
    again = regard.load(out).classify(["the film was", "the music was"])
    assert again[0].score != known.score and again[1].score == unknown.score


def test_guidance_is_learned_kept_and_asked(place: Path) -> None:
    out = run(place, "bias", 6, graph=str(place / "facts.tsv"), mode="bias")
    loaded = regard.load(out)
    assert loaded.model.extensions["guidance"]["rules"] == ["entity", "related"]
    scores = [p for name, p in loaded.model.named_parameters() if name.endswith("strength.raw")]
    assert scores and any(p.abs().max() > 0 for p in scores)
    with torch.no_grad():
        before = loaded.classify("the actor of the film was").score
        for value in scores:
            value.fill_(3.0)
    assert regard.load(out).classify("the actor of the film was").score == before
    plain = regard.load(out)
    for opened in (loaded, plain):  # a tiny model's answer moves less than fp32 can tell
        opened.model.double()
    guided, unguided = (one.classify("the actor of the film was").score for one in (loaded, plain))
    assert guided != unguided


def test_the_kept_graph_must_be_the_one(place: Path) -> None:
    out = run(place, "kept", graph=str(place / "facts.tsv"))
    Graph(FACTS[:2]).write(out / "knowledge.tsv")
    with refuses(FormatError, "knowledge.tsv", "not the graph"):
        regard.load(out).classify("the film was")
    (out / "knowledge.tsv").unlink()
    with refuses(FormatError, "knowledge.tsv", "read"):
        regard.load(out).classify("the film was")


def test_a_run_goes_on_with_its_graph_alone(place: Path, tmp_path: Path) -> None:
    graph = tmp_path / "facts.tsv"
    Graph(FACTS).write(graph)
    out = run(place, "stopped", graph=str(graph))
    assert Graph(FACTS).digest in (out / "recipe.toml").read_text()
    Graph(FACTS[:1]).write(graph)
    more = {"budget": {"steps": 8}}
    recipe = tuning.recipe(place / "bert", place / "reviews.jsonl", **more)
    with refuses(InputError, "not the graph"):
        finetune(recipe, out, resume=True, display="silent")


def test_a_test_asks_with_the_same_knowledge(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = run(place, "tested", graph=str(place / "facts.tsv")), place / "test.jsonl"
    records = tuning.reviews(12, seed=3)
    tuning.write(data, records)
    predictions = regard.load(out).classify([record["text"] for record in records])
    right = sum(p.value == r["label"] for p, r in zip(predictions, records, strict=True))
    capsys.readouterr()
    assert main(["evaluate", str(out), str(data), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["figures"]["accuracy"] == pytest.approx(right / len(records))


# -- the command


def command(place: Path, *words: str) -> list[str]:
    data = str(place / "reviews.jsonl")
    fixed = ["finetune", str(place / "bert"), "--task", "classify", "--data", data, "--quiet"]
    quick = ["batch.size=8", "batch.seq_len=16", "budget.steps=2", "engine.compile=no"]
    return [*fixed, *quick, *words]


def test_variants_on_the_fly_are_informed_too(place: Path, tmp_path: Path) -> None:
    recipe = tuning.recipe(
        place / "bert", place / "reviews.jsonl",
        objective={"knowledge": {"graph": str(place / "facts.tsv")}},
        augment={"methods": ["swap"], "prob": 1.0}, budget={"steps": 2},
    )  # fmt: skip
    data = data_for(recipe)
    objective: Any = data.build(resolved(recipe, data, MachineFacts())).objective
    different = 0
    for index in range(len(objective)):
        sample, plain = objective.sample(0, index), objective.plain(index)
        different += sample["tokens"].tolist() != plain["tokens"].tolist()
        assert sorted(sample["tokens"]) == sorted(plain["tokens"])  # with the same branches
        assert len(sample["facts"]) == len(sample["tokens"])
    assert different > len(objective) / 2
    assert finetune(recipe, tmp_path / "run", display="silent")["outcome"] == "done"


def test_the_command(place: Path, tmp_path: Path) -> None:
    graph, out = str(place / "facts.tsv"), tmp_path / "run"
    words = ["--knowledge", graph, "--knowledge-branches", "1", "objective.knowledge.depth=2"]
    assert main(command(place, *words, "--out", str(out))) == 0
    facts = json.loads((out / "task.json").read_text())["objective"]["knowledge"]
    assert (facts["branches"], facts["depth"], facts["mode"]) == (1, 2, "tree")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--knowledge-branches", "3"], "--knowledge, missing"),
        (["--knowledge-mode", "tree", "--knowledge-rule", "near:2"], "--knowledge-rule, mode bias"),
        (["--knowledge-rule", "near:2", "--knowledge-branches", "1"], "--knowledge-branches, tree"),
        (["--knowledge", "nowhere.tsv"], "nowhere.tsv, read"),
        (["--knowledge-rule", "related"], "'related', graph"),
        (["--knowledge-rule", "nearby:2"], "rule 'nearby:2'"),
        (["objective.knowledge=3"], "objective.knowledge, table"),
        (["--knowledge", "x.tsv", "objective.knowledge.rules=3"], "knowledge.rules, list"),
        (["--knowledge", "x.tsv", "objective.knowledge.guidance=3"], "knowledge.guidance, table"),
        (["--knowledge", "x.tsv", "objective.knowledge.guidance.gated=true"], "guidance, bias"),
    ],
)
def test_what_the_command_refuses(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    assert main(command(place, *words, "--out", str(tmp_path / "run"))) == 2
    message = capsys.readouterr().err
    mentions(message, named.split(", "))
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize(("family", "task"), [("t5", "classify"), ("bert", "answer")])
def test_what_has_no_rows_for_knowledge(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str, task: str
) -> None:
    model = place / "bert" if family == "bert" else tuning.model(tmp_path / family, family)
    words = ["finetune", str(model), "--task", task, "--data", str(place / "reviews.jsonl")]
    words += ["--knowledge", str(place / "facts.tsv"), "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "knowledge is for" in capsys.readouterr().err


def test_python_refuses_it_as_well(place: Path, tmp_path: Path) -> None:
    forest = {"knowledge": {"graph": str(place / "facts.tsv"), "mode": "forest"}}
    recipe = tuning.recipe(place / "bert", place / "reviews.jsonl", objective=forest)
    with refuses(UnknownName, "objective.knowledge.mode", "'forest'"):
        finetune(recipe, tmp_path / "run", display="silent")
