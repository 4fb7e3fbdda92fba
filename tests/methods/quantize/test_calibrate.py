"""Scales that are fitted to what a layer reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard.api import load
from regard.attention.native.int8 import quantised
from regard.cli.main import main
from regard.core.errors import ConfigError, InputError
from regard.methods.quantize.calibrate import TEXTS, InputSquares, clip_rows, texts_of
from regard.methods.quantize.run import Plan, quantize
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.world import World


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "typical.txt"
    file.write_text("\n".join(r["text"] for r in tuning.reviews(30, 3)), encoding="utf-8")
    return file


def missed(weight: torch.Tensor, clipped: torch.Tensor, x: torch.Tensor) -> float:
    small, scale = quantised(clipped)
    return float((x @ (small * scale[:, None] - weight).T).square().mean())


def test_a_weight_that_nothing_calls_on_no_longer_makes_its_row_coarse() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(8, 32), torch.randn(200, 32)
    weight[3, 5], x[:, 5] = 40.0, 0.0
    clipped, before, after = clip_rows(weight, x.double().square().mean(0))
    assert clipped[3, 5] == 20.0 and torch.equal(clipped[3, :5], weight[3, :5])
    assert after < before / 2 and missed(weight, clipped, x) < missed(weight, weight, x) / 2


def test_a_weight_that_is_called_on_stays() -> None:
    torch.manual_seed(0)
    weight = torch.randn(8, 32)
    weight[3, 5] = 40.0
    clipped, before, after = clip_rows(weight, torch.ones(32))
    assert clipped[3, 5] == 40.0 and after <= before


def test_what_layers_read_is_added_up_in_whole_and_in_part() -> None:
    torch.manual_seed(0)
    layer, other = nn.Linear(4, 6), nn.Linear(4, 6)
    x, y = torch.randn(3, 4), torch.randn(2, 5, 4)
    with torch.no_grad(), InputSquares({"layer": layer, "unread": nn.Linear(4, 2)}) as seen:
        layer(x), other(x)
        nn.functional.linear(y, layer.weight[2:])  # as queries are made alone
    means = seen.means()
    assert means.keys() == {"layer"}
    rows = torch.cat([x, y.flatten(0, 1)]).double()
    assert torch.allclose(means["layer"], rows.square().mean(0))


@pytest.mark.parametrize("name", ["bert", "gpt", "t5", "xlnet", "longformer"])
def test_every_family_is_fitted(world: World, name: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    report = quantize(world.model(name), out, Plan(calibrate=str(text), repeats=0))["calibration"]
    assert report["texts"] == 30 and report["layers"] > 0
    assert 0 < report["error"]["after"] <= report["error"]["before"] < 0.05
    missed = [n for n in report["unread"] if "blocks" in n and "wide" not in n]
    assert bool(missed) == (name == "t5")  # a text is only read: nothing is seen of what writes
    load(out)


@pytest.mark.parametrize("name", ["bert", "gpt", "t5", "longformer"])
def test_groups_of_int4_are_fitted(world: World, name: str, text: Path, tmp_path: Path) -> None:
    """To the weights that the model had: what counts for the text comes nearer."""
    before = Path(world.model(name), "model.safetensors").read_bytes()
    reports = {}
    for each, calibrate in (("plain", None), ("fitted", str(text))):
        plan = Plan(kind="int4", calibrate=calibrate, repeats=0)
        reports[each] = quantize(world.model(name), tmp_path / each, plan)
    error = reports["fitted"]["calibration"]["error"]
    assert 0 < error["after"] < error["before"] < 0.12
    assert reports["plain"]["bytes"] == reports["fitted"]["bytes"]
    plain, fitted = (dict(load(tmp_path / each).model.named_buffers()) for each in reports)
    changed = [n for n, value in plain.items() if not torch.equal(value, fitted[n])]
    count = reports["fitted"]["calibration"]["layers"]
    assert len(changed) == count and all(n.endswith("matrix.blocks") for n in changed)
    assert Path(world.model(name), "model.safetensors").read_bytes() == before


def outlier(row: torch.Tensor, column: int) -> float:
    """Makes one weight of a row ten times as large as any other; gives it."""
    row[column] = 10 * row.abs().max()
    return float(row[column])


def scales(run: Path, place: Path, text: Path, name: str) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Those of a layer as they are saved, plain and fitted, and what is said of the fitting."""
    for each, plan in (("plain", ""), ("fitted", str(text))):
        report = quantize(str(run), place / each, Plan(calibrate=plan, repeats=0))
    plain, fitted = (
        load(place / each).model.state_dict()[f"{name}.matrix.scale"]
        for each in ("plain", "fitted")
    )
    return plain, fitted, report["calibration"]


def test_a_fitted_scale_is_saved(world: World, text: Path, tmp_path: Path) -> None:
    """A unit that is always 0 has a large weight: no text calls on it, and its row is finer."""
    loaded = load(world.model("gpt"))
    network = loaded.model.blocks[0].feed_forward.layer
    with torch.no_grad():
        network.wide.weight[5], network.wide.bias[5] = 0.0, 0.0
        largest = outlier(network.narrow.weight[3], 5)
    run = loaded.save(tmp_path / "run")
    name = "blocks.0.feed_forward.layer.narrow"
    plain, fitted, _ = scales(run, tmp_path, text, name)
    assert float(plain[3]) == pytest.approx(largest / 127)
    assert 0.49 * plain[3] < fitted[3] < 0.7 * plain[3]
    assert (fitted <= plain).all()


def test_what_stands_in_two_places_is_cut_once(world: World, text: Path, tmp_path: Path) -> None:
    """What comes out of a Longformer's two attentions: twice cut it would lose three quarters."""
    loaded = load(world.model("longformer"))
    attention = loaded.model.blocks[0].attention.layer
    assert attention.local.out is attention.wide.out
    width = attention.local.out.in_features
    with torch.no_grad():
        for part in (attention.local, attention.wide):  # the last number of every value is 0
            part.project.weight[3 * width - 1] = part.project.bias[3 * width - 1] = 0.0
        outlier(attention.local.out.weight[3], width - 1)
    run = loaded.save(tmp_path / "run")
    name = "blocks.0.attention.layer.local.out"
    plain, fitted, report = scales(run, tmp_path, text, name)
    assert 0.49 * plain[3] < fitted[3] < 0.7 * plain[3]
    layers = {id(p) for p in loaded.model.blocks.modules() if isinstance(p, nn.Linear)}
    layers |= {id(loaded.model.output.transform.dense)}
    assert report["layers"] + len(report["unread"]) == len(layers)


def test_what_is_refused(world: World, tmp_path: Path) -> None:
    empty, strange = tmp_path / "empty.txt", tmp_path / "strange.txt"
    empty.write_text("\n \n")
    strange.write_bytes(b"\xff\xfe")
    some = tmp_path / "some.txt"
    some.write_text("the film was great")
    writes = Plan(calibrate=str(some), exclude=["encoder*", "tokens", "output"])
    for model, plan, error, name in (
        ("gpt", Plan(calibrate=str(tmp_path / "none")), InputError, "none"),
        ("gpt", Plan(calibrate=str(empty)), InputError, "empty.txt"),
        ("gpt", Plan(calibrate=str(strange)), InputError, "UTF-8"),
        ("lstm", Plan(calibrate=str(some)), ConfigError, "LSTM"),
        ("t5", writes, ConfigError, "decoder"),
    ):
        with refuses(error, name):
            quantize(world.model(model), tmp_path / "small", plan)
    with refuses(ConfigError, "bf16", "scales"):
        Plan(kind="bf16", calibrate="a.txt")
    assert not (tmp_path / "small").exists()


def test_no_more_is_read_than_needed(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("word\n\n" * (3 * TEXTS))
    assert texts_of(str(file)) == ["word"] * TEXTS


def test_the_command_says_what_it_changes(
    world: World, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["quantize", world.model("gpt"), "--repeats", "0", "--calibrate", str(text)]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    out, err = capsys.readouterr()
    assert "error of layers" in out and "reading 30 texts" in err and "not fitted" not in out
    assert main([*words, "--out", str(tmp_path / "b"), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"]["data"] == str(text)
    words[1] = world.model("t5")
    assert main([*words, "--out", str(tmp_path / "c"), "--quiet"]) == 0
    (line,) = [s for s in capsys.readouterr().out.splitlines() if s.startswith("not fitted")]
    assert "decoder" in line and "encoder" not in line.replace("decoder", "")
