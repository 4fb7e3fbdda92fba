"""Pruning a run: what matters, what goes, and what is written of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.cli.main import program
from regard.core.errors import ConfigError, InputError, RegardError, StorageError, UnknownName
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.methods.prune.importance import gated, importances, losses, normalized
from regard.methods.prune.run import (
    Plan,
    chosen_units,
    least_heads,
    listed_heads,
    magnitudes,
    prune,
    to_front,
    zero_smallest,
)
from regard.models.extensions import extend
from regard.models.extensions.pruned import networks_of, remaining, sites
from regard.training.recipe import make
from regard.training.run import train
from tests.html import Page
from tests.laws.zoo import ATTENTIVE, Specimen, close, collate
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.world import World
from tests.training import small

KNOWN = [
    s for s in ATTENTIVE
    if s.name in ("gpt2", "bert", "t5", "transformer-xl", "longformer-global", "xlnet-asking")
]  # fmt: skip
FIRST = "blocks.0.attention.layer"


def specimen(name: str) -> Any:
    return next(s for s in ATTENTIVE if s.name == name)


# -- importances


def nudged(place: tuple[str, int], by: float, name: str, y: Tensor, dim: int = 1) -> Tensor:
    gate = torch.ones(y.size(0), y.size(dim), dtype=y.dtype)
    if place[0] == name:
        gate[:, place[1]] += by
    return gate


@pytest.mark.parametrize("one", KNOWN, ids=str)
def test_importance_is_the_mean_slope_of_each_text(one: Specimen) -> None:
    """Against differences of every text's own loss, read alone."""
    model = one.fresh(torch.float64)
    texts = [one.text(5, 0), one.text(3, 1), one.text(4, 2)]
    scores = importances(model, [lambda: one.loss(model, collate(texts))])
    assert scores.texts == 3 and all(p.requires_grad for p in model.parameters())

    def slope(text: Any, heads: Any, units: Any) -> float:
        step, ends = 1e-5, []
        for by in (step, -step):
            with torch.no_grad(), gated(model, partial(heads, by), partial(units, by)):
                ends.append(float(one.loss(model, collate([text]))))
        return (ends[0] - ends[1]) / (2 * step)

    def still(by: float, name: str, y: Tensor, dim: int = 1) -> Tensor:
        return nudged(("", 0), by, name, y, dim)

    for name in list(sites(model))[:3]:
        for head in range(len(remaining(sites(model)[name][0]))):
            place = (name, head)

            def moved(by: float, n: str, y: Tensor, place: Any = place) -> Tensor:
                return nudged(place, by, n, y)

            expected = sum(abs(slope(t, moved, partial(still, dim=-1))) for t in texts) / 3
            assert float(scores.heads[name][head]) == pytest.approx(expected, rel=1e-4, abs=1e-7)
    name = next(iter(networks_of(model)))
    for unit in (0, 7):

        def turned(by: float, n: str, y: Tensor, unit: int = unit) -> Tensor:
            return nudged((name, unit), by, n, y, -1)

        expected = sum(abs(slope(t, still, turned)) for t in texts) / 3
        assert float(scores.units[name][unit]) == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_a_head_that_is_not_read_does_not_matter() -> None:
    one = specimen("bert")
    model = one.fresh(torch.float64)
    size = model.blocks[0].attention.layer.project.size
    with torch.no_grad():
        model.blocks[0].attention.layer.out.weight[:, size:] = 0.0
        model.blocks[1].feed_forward.layer.narrow.weight[:, 5] = 0.0
    scores = importances(model, [lambda: one.loss(model, collate([one.text(6, 0)]))])
    assert float(scores.heads[FIRST][1]) == 0.0 < float(scores.heads[FIRST][0])
    assert float(scores.units["blocks.1.feed_forward.layer"][5]) == 0.0
    assert least_heads(model, normalized(scores.heads), 0.25) == {FIRST: [1]}


def test_layers_are_compared_by_their_norm() -> None:
    scores = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.03, 0.04]), "c": torch.zeros(2)}
    scaled = normalized(scores)
    close(scaled["a"], torch.tensor([0.6, 0.8]), 1e-6)
    close(scaled["b"], torch.tensor([0.6, 0.8]), 1e-6)
    assert scaled["c"].tolist() == [0.0, 0.0]


# -- choosing


def test_one_head_of_each_layer_stays() -> None:
    model = specimen("gpt2").fresh()
    names = list(sites(model))
    scores = {names[0]: torch.tensor([0.1, 0.2]), names[1]: torch.tensor([0.8, 0.9])}
    assert least_heads(model, scores, 0.25) == {names[0]: [0]}
    assert least_heads(model, scores, 0.5) == {names[0]: [0], names[1]: [0]}
    with refuses(ConfigError, "3 of 4 heads", "0.50"):
        least_heads(model, scores, 0.75)
    with refuses(ConfigError, "0.1 of 4 heads"):
        least_heads(model, scores, 0.1)


def test_heads_by_name() -> None:
    model = specimen("transformer").fresh()
    place = "decoder_blocks.0.cross.layer"
    assert listed_heads(model, ["decoder_blocks.0.cross:1, 3", f"{place}:1"]) == {place: [1, 3]}
    assert listed_heads(model, ["encoder_blocks.0:1;encoder_blocks.1:0"]) == {
        "encoder_blocks.0.attention.layer": [1], "encoder_blocks.1.attention.layer": [0]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("heads", "error", "names"),
    [
        ("blocks.9:1", UnknownName, ["layer 'blocks.9'", "encoder_blocks.0.attention.layer"]),
        ("decoder_blocks.0:1", InputError, ["blocks.0.attention.layer", "blocks.0.cross.layer"]),
        ("encoder_blocks.0:2", InputError, ["encoder_blocks.0.attention.layer", "[0, 1]", "2"]),
        ("encoder_blocks.0:0,1", ConfigError, ["every head", "encoder_blocks.0.attention.layer"]),
        ("encoder_blocks.0", InputError, ["'encoder_blocks.0'", "LAYER:HEADS"]),
        ("encoder_blocks.0:", InputError, ["'encoder_blocks.0:'", "LAYER:HEADS"]),
        ("encoder_blocks.0:a", InputError, ["'encoder_blocks.0:a'", "LAYER:HEADS"]),
        ("", InputError, ["''", "LAYER:HEADS"]),
    ],
)
def test_heads_that_are_refused(heads: str, error: type[RegardError], names: list[str]) -> None:
    with refuses(error, *names):
        listed_heads(specimen("transformer").fresh(), [heads])


def test_units_by_their_scores() -> None:
    scores = {"a": torch.tensor([0.5, 0.1, 0.9, 0.2])}
    assert chosen_units(scores, 0.5) == {"a": [0, 2]}
    for share in (0.1, 0.9):
        with refuses(ConfigError, f"{share} of the 4 units of a"):
            chosen_units(scores, share)


@pytest.mark.parametrize("name", ["gpt2", "t5-v1_1"])
def test_units_may_change_places(name: str) -> None:
    one = specimen(name)
    model = one.fresh(torch.float64)
    inputs = collate([one.text(5, 0)]).inputs
    before = model(**inputs)
    for network in networks_of(model).values():
        to_front(network, [3, 7, 20])
    assert not torch.equal(model(**inputs), before)
    close(model(**inputs), before, 1e-12)


def test_magnitude_of_a_unit() -> None:
    network = networks_of(specimen("t5-v1_1").fresh())
    name, part = next(iter(network.items()))
    expected = part.wide.weight[4].norm() * part.gate.weight[4].norm()  # type: ignore[operator, index, union-attr]
    model = nn.ModuleDict({"x": part})
    close(magnitudes(model)["x"][4], (expected * part.narrow.weight[:, 4].norm()).double(), 1e-6)
    assert name.endswith("feed_forward.layer")


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_the_smallest_weights_become_zeros(scope: str) -> None:
    model = specimen("longformer").fresh()
    with torch.no_grad():
        model.blocks[0].feed_forward.layer.wide.weight.mul_(100)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    counts = zero_smallest(model, 0.5, scope)
    assert counts["zeros"] == pytest.approx(0.5 * counts["weights"], abs=20)
    for name, value in model.named_parameters():
        gone = (value == 0) & (before[name] != 0)
        if "blocks" not in name or not name.endswith("weight") or value.dim() < 2:
            assert not gone.any(), name
        elif gone.any():
            assert before[name][gone].abs().max() <= before[name][~gone].abs().min()
    share = float((model.blocks[0].feed_forward.layer.wide.weight == 0).float().mean())
    assert share == pytest.approx(0.5, abs=0.01) if scope == "layer" else share < 0.05


def test_a_share_that_is_no_weight_at_all() -> None:
    with refuses(ConfigError, "1e-09", "weights"):
        zero_smallest(specimen("bert").fresh(), 1e-9, "global")


def test_an_lstm_has_weights_too() -> None:
    model = regard.create("lstm", vocab_size=20, width=16, layers=1)
    assert zero_smallest(model, 0.25, "global")["zeros"] >= 0.25 * 2 * 4 * 16 * 16


# -- a run


def test_a_reviewer_without_half_of_its_parts(world: World, tmp_path: Path) -> None:
    run, data, out = world.run("reviewer"), world.data("classify"), tmp_path / "small"
    report = prune(run, out, Plan(heads=0.25, ffn_units=0.5, data=[data], repeats=1))
    assert report == json.loads((out / "prune.json").read_text())
    assert report["heads"]["before"] == 4 and report["heads"]["after"] == 3
    assert report["bytes"]["after"] < report["bytes"]["before"]
    parameters = report["parameters"]
    loaded = regard.load(out)
    assert loaded.model.parameter_count() == parameters["after"] < parameters["before"]
    assert report["speed"]["after"] > 0 and report["score"]["examples"] == 60
    assert report["score"]["after"] >= 0.8 * report["score"]["before"], "the best half is enough"
    text = (out / "heads.html").read_text("utf-8")
    chart = Page(text).chart("heads")
    removed = report["heads"]["removed"].values()
    assert str(run) in text and all(
        f"<td>{head}</td>" in text for heads in removed for head in heads
    )
    assert [sum(x is not None for x in row) for row in chart["values"]] == [2, 2]
    assert (out / "task.json").is_file() and not list(tmp_path.glob(".out-*"))
    assert regard.load(out).classify("the film was great").value in ("good", "bad")
    again = prune(str(out), tmp_path / "smaller", Plan(ffn_units=0.5, repeats=0))
    assert again["by"] == "magnitude" and "score" not in again
    sizes = {n.wide.out_features for n in networks_of(regard.load(again["out"]).model).values()}
    assert sizes == {16}
    assert regard.load(again["out"]).model.extensions["pruned"]["heads"]


def test_a_language_model_by_its_own_text(tmp_path: Path) -> None:
    data = small.data(tmp_path / "data")
    torch.manual_seed(1)
    model = regard.create("gpt", vocab_size=40, width=16, layers=2, heads=4, context=32)
    words = Tokenizer.open(data)
    run = str(save(model, tmp_path / "run", words))
    plan = Plan(heads=0.5, data=[str(data)], samples=8, repeats=0, testing={"split": "valid"})
    report = prune(run, tmp_path / "out", plan)
    assert report["heads"]["after"] == 4 and report["score"]["figure"] == "perplexity"
    assert len(report["importance"][FIRST]) == 4
    assert report["score"]["lower_is_better"] and report["score"]["before"] > 1


@pytest.mark.parametrize(
    ("name", "task", "heads"), [("writer", "classify", 6), ("talker", "converse", 2)]
)
def test_what_writes_its_answers(
    world: World, tmp_path: Path, name: str, task: str, heads: int
) -> None:
    """The loss is the surprisal of the right answers, whatever stands together in a batch."""
    run, data = world.run(name), world.data(task, 6)
    loaded = regard.load(run)
    loaded.model.double()
    with losses(loaded, [data], 0, 0, {}) as runs:
        together = [one().item() for one in runs]
    alone = []
    for place in range(6 if task == "classify" else 12):
        with losses(loaded, [data], place + 1, 0, {}) as runs:
            alone.append(sum(one().item() for one in runs))
    assert len(together) == 1 and alone == sorted(alone)
    assert alone[-1] == pytest.approx(together[0], rel=1e-9)
    report = prune(run, tmp_path / "out", Plan(heads=0.34, data=[data], repeats=0))
    assert sum(map(len, report["importance"].values())) == heads == report["heads"]["before"]
    assert report["heads"]["after"] < heads
    assert report["score"]["data"] == [data] and (tmp_path / "out" / "heads.html").is_file()


def test_what_is_left_learns_on(tmp_path: Path) -> None:
    where = small.data(tmp_path / "data")
    train(small.recipe("gpt", where, budget={"steps": 2}), tmp_path / "run", display="silent")
    plan = Plan(listed=["blocks.0:1"], ffn_units=0.5)
    prune(str(tmp_path / "run"), tmp_path / "less", plan)
    base = {"model": str(tmp_path / "less"), "data": str(where), "budget": {"steps": 2},
            "batch": {"size": 4, "seq_len": 32}, "engine": {"compile": "no"}}  # fmt: skip
    train(make(base), tmp_path / "more", display="silent")
    before, after = (regard.load(tmp_path / name).model for name in ("less", "more"))
    assert after.extensions == before.extensions
    assert after.parameter_count() == before.parameter_count()
    old, new = (one.blocks[0].attention.layer.out.weight for one in (before, after))
    assert not torch.equal(old, new)


def test_the_command(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = world.run("reviewer"), tmp_path / "out"
    call = [run, "--head-list", "blocks.1:0", "--weights", "0.5", "--out", str(out)]
    program(["prune", *call, "--repeats", "0", "--json"], standalone_mode=False)
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["heads"]["removed"] == {"blocks.1.attention.layer": [0]}
    assert report["zeros"]["zeros"] >= 0.5 * report["zeros"]["weights"] - 1
    assert "neither smaller nor faster" in captured.err
    with refuses(StorageError, out):
        program(["prune", *call], standalone_mode=False)
    call[-1] = str(tmp_path / "other")
    program(["prune", *call, "--repeats", "1"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "parameters" in shown and "without heads 0" in shown and "sentences/s" in shown
    program(
        ["prune", run, "--weights", "0.5", "--out", str(tmp_path / "third")], standalone_mode=False
    )
    assert "sentences/s" not in capsys.readouterr().out, "zeros change no speed"


def test_a_crf_is_counted_neither_before_nor_after(world: World, tmp_path: Path) -> None:
    """It lies beside the model, and is read with it to see what matters."""
    recipe = tuning.recipe(
        Path(world.model("bert")), Path(world.data("tag")), examples={"task": "tag"},
        budget={"steps": 2}, objective={"crf": True},
    )  # fmt: skip
    finetune(recipe, tmp_path / "tagger", display="silent")
    assert (tmp_path / "tagger" / "crf.safetensors").is_file()
    plan = Plan(heads=0.25, data=[world.data("tag")], repeats=0)
    counts = prune(str(tmp_path / "tagger"), tmp_path / "out", plan)["parameters"]
    for name, path in (("before", "tagger"), ("after", "out")):
        assert counts[name] == regard.load(tmp_path / path).model.parameter_count()


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({}, ConfigError, ["--heads", "--ffn-units", "--weights"]),
        ({"heads": 1.0}, ConfigError, ["--heads is 1"]),
        ({"heads": -0.1}, ConfigError, ["--heads is -0.1"]),
        ({"ffn_units": 2.0}, ConfigError, ["--ffn-units is 2"]),
        ({"weights": float("nan")}, ConfigError, ["--weights is nan"]),
        ({"heads": 0.5}, ConfigError, ["--data", "--head-list"]),
        ({"heads": 0.5, "listed": ["a:1"], "data": ["x"]}, ConfigError, ["heads", "both"]),
        ({"ffn_units": 0.5, "by": "gradient"}, ConfigError, ["--data", "--by"]),
        ({"ffn_units": 0.5, "samples": -1}, ConfigError, ["--importance-examples is -1"]),
        ({"weights": 0.5, "by": "magnitude"}, ConfigError, ["--by", "--ffn-units"]),
        ({"ffn_units": 0.5, "scope": "layer"}, ConfigError, ["--scope", "--weights"]),
        ({"ffn_units": 0.5, "normal": False}, ConfigError, ["--no-normalize", "--heads"]),
        ({"ffn_units": 0.5, "by": "luck"}, UnknownName, ["--by 'luck'"]),
        ({"weights": 0.5, "scope": "town"}, UnknownName, ["scope 'town'"]),
    ],
)
def test_plans_that_are_refused(
    options: dict[str, Any], error: type[RegardError], names: list[str]
) -> None:
    with refuses(error, *names):
        Plan(**options)


def test_refusals(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is scored, where that needs no data, with nothing left behind."""
    lstm, reviewer = world.model("lstm"), world.run("reviewer")
    talk = str(small.data(tmp_path / "talk"))
    with refuses(InputError, talk, reviewer, "classify", "labeled"):
        prune(reviewer, tmp_path / "out", Plan(heads=0.5, data=[talk], repeats=0))
    monkeypatch.setattr(
        "regard.methods.prune.run.importance_scores", lambda *args: pytest.fail("too late")
    )
    cases: list[tuple[str, Plan, type[RegardError], list[str]]] = [
        (lstm, Plan(listed=["layers.0:1"]), ConfigError, [lstm, "LSTM", "heads"]),
        (lstm, Plan(ffn_units=0.5), ConfigError, [lstm, "LSTM", "units"]),
        (reviewer, Plan(heads=0.9, data=["x"]), ConfigError, ["4 of 4 heads"]),
        (reviewer, Plan(ffn_units=0.001, data=["x"]), ConfigError, ["0.001 of the 64 units"]),
        (reviewer, Plan(listed=["blocks.0:9"]), InputError, ["blocks.0.attention.layer", "9"]),
    ]
    for run, plan, error, names in cases:
        with refuses(error, *names):
            prune(run, tmp_path / "out", plan)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out-*"))


def test_small_numbers_are_not_cut(tmp_path: Path) -> None:
    small_one = extend(regard.load(tuning.bert(tmp_path / "bert")).model, "int8")
    run = save(small_one, tmp_path / "int8", tuning.tokenizer())
    with refuses(ConfigError, run, "quantize"):
        prune(str(run), tmp_path / "out", Plan(ffn_units=0.5))
