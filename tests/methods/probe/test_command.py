"""`regard probe` from end to end on tiny models."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from regard.cli.main import program
from regard.core.errors import ConfigError, InputError, RegardError, StorageError, UnknownName
from regard.core.seeding import keyed
from regard.formats.directory import save
from regard.methods.probe import experiment
from regard.methods.probe.plan import ProbePlan
from tests.html import Page
from tests.methods.probe.small import PIECES, loaded
from tests.refusals import refuses

FAST = ["--epochs", "6", "--seeds", "2", "--quiet"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, tagged words, trees and a text."""
    here = tmp_path_factory.mktemp("probe")
    for family in ("bert", "gpt", "lstm"):
        model = loaded(family)
        save(model.model, here / family, model.tokenizer)
    words = [piece for piece in PIECES if not piece.startswith("##")]
    tags, trees, text = [], [], []
    for i in range(40):
        dice = keyed(i, "words")
        chosen = [str(w) for w in dice.choice(words, 6)]
        tags.append("".join(f"{w}\t{'LONG' if len(w) > 3 else 'SHORT'}\n" for w in chosen))
        heads = [0, *(int(dice.integers(1, j + 1)) for j in range(1, 6))]
        kinds = ["root", *["dep"] * 5]
        trees.append("".join(f"{j}\t{w}\t_\tNOUN\t_\t_\t{h}\t{k}\t_\t_\n" for j, (w, h, k) in
                             enumerate(zip(chosen, heads, kinds, strict=True), 1)))  # fmt: skip
        text.append(" ".join(chosen[:4]) + f" {'a ' * (i % 7)}good.")
    (here / "tags.conll").write_text("\n".join(tags))
    (here / "trees.conllu").write_text("\n".join(trees))
    (here / "text.txt").write_text("\n\n".join(text))
    rows = [{"text": t, "label": "good" if "film" in t else "bad"} for t in text]
    (here / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return here


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def go(*words: Any, code: int = 0) -> tuple[str, str]:
        status = program(["probe", *map(str, words)], standalone_mode=False)
        assert (status or 0) == code
        out, err = capsys.readouterr()
        return out, err

    return go


def test_labels_of_words(place: Path, tmp_path: Path, run: Any) -> None:
    out = tmp_path / "probed"
    shown, _ = run(place / "bert", "--task", place / "tags.conll", "--control", "--mix", "--out",
                   out, "--json", *FAST)  # fmt: skip
    report = json.loads(shown)
    assert report["outcome"] == "done" and report["of"] == "words" and report["depth"] == 2
    assert [row["layer"] for row in report["layers"]] == [0, 1, 2, "mix"]
    for row in report["layers"]:
        for source in ("trained", "untrained"):
            task, control = row[source]["task"], row[source]["control"]
            assert len(task["accuracy"]["values"]) == 2
            pairs = zip(task["accuracy"]["values"], control["accuracy"]["values"], strict=True)
            assert task["selectivity"]["values"] == [a - b for a, b in pairs]
    assert len(report["layers"][3]["trained"]["task"]["shares"]) == 3
    assert 0 < report["baselines"]["task"]["accuracy"]["majority"] < 1
    assert any("still getting better at the last of 6" in note for note in report["notes"])
    assert json.loads((out / "probe.json").read_text())["layers"] == report["layers"]
    assert sorted(p.name for p in out.iterdir() if not p.name.startswith(".")) == [
        "cells.jsonl", "plan.json", "probe.html", "probe.json",
    ]  # fmt: skip
    page = Page((out / "probe.html").read_text(encoding="utf-8"))
    lines = page.chart("task-accuracy")["lines"]
    assert [line["name"][0].split()[0] for line in lines] == [
        "trained", "untrained", "control", "majority",
    ]  # fmt: skip
    rows = report["layers"][:3]
    assert lines[0]["points"] == [
        [r["layer"], r["trained"]["task"]["accuracy"]["mean"]] for r in rows
    ]
    assert len(lines[0]["band"]) == 3 and page.data["layers"] == report["layers"]
    assert page.table("figures")[0][0] == rows[0]["trained"]["task"]["accuracy"]["mean"]
    assert page.fetched == [] and all(note in page.text for note in report["notes"])


def test_the_table_is_for_people(place: Path, tmp_path: Path, run: Any) -> None:
    shown, noted = run(place / "gpt", "--task", place / "texts.jsonl", "--no-untrained", "--layers",
                       "0,-1", "--probe", "rank-4", "--out", tmp_path / "o", "--epochs", "4",
                       "--seeds", "1")  # fmt: skip
    lines = shown.splitlines()
    assert lines[1].split() == ["layer", "accuracy", "macro", "f1"]
    assert [line.split()[0] for line in lines[2:4]] == ["0", "2"]
    assert "majority" in lines[4] and "probe.html" in noted and "1 seed says" in noted


def test_automatic_tasks_need_no_labels(place: Path, tmp_path: Path, run: Any) -> None:
    shown, _ = run(place / "lstm", "--task", "auto:sentence-length", "--data", place / "text.txt",
                   "--out", tmp_path / "o", "--json", *FAST)  # fmt: skip
    assert json.loads(shown)["task"] == "auto:sentence-length"


def test_structure(place: Path, tmp_path: Path, run: Any) -> None:
    shown, _ = run(place / "bert", "--task", "structure", "--data", place / "trees.conllu",
                   "--control", "--out", tmp_path / "o", "--probe", "rank-8", "--json",
                   *FAST)  # fmt: skip
    report = json.loads(shown)
    row = report["layers"][1]["trained"]
    assert 0 <= row["distance"]["uuas"]["mean"] <= 1 and 0 <= row["depth"]["root"]["mean"] <= 1
    assert "selectivity" in row["head"] and "chain" in report["baselines"]["distance"]["uuas"]
    levels = [report["baselines"]["head"]["accuracy"], report["baselines"]["depth"]["root"]]
    assert all(name.startswith("always") for own in levels for name in own) and all(levels)
    page = Page((tmp_path / "o" / "probe.html").read_text(encoding="utf-8"))
    assert set(page.data["charts"]) == {
        "distance-uuas", "distance-spearman", "depth-root", "depth-spearman", "head-accuracy",
    }  # fmt: skip


def test_heads_with_and_without_trees(place: Path, tmp_path: Path, run: Any) -> None:
    shown, _ = run(place / "gpt", "--task", "heads", "--data", place / "text.txt", "--out",
                   tmp_path / "a", "--json", *FAST[2:])  # fmt: skip
    report = json.loads(shown)
    assert [row["layer"] for row in report["layers"]] == [1, 2] and "relations" not in report
    assert len(report["layers"][0]["trained"]["heads"]["heads"]) == 2
    assert len(report["layers"][0]["untrained"]["heads"]["entropy"]["values"]) == 2
    page = Page((tmp_path / "a" / "probe.html").read_text(encoding="utf-8"))
    heads = report["layers"][0]["trained"]["heads"]["heads"]
    assert page.chart("map-entropy")["values"][0] == [head["entropy"] for head in heads]
    assert len([name for name in page.data["charts"] if name.startswith("map-")]) == 7
    shown, _ = run(place / "bert", "--task", "heads", "--data", place / "trees.conllu", "--out",
                   tmp_path / "b", "--no-untrained", *FAST[2:])  # fmt: skip
    assert "dep" in shown and "always" in shown


def stop_after(monkeypatch: pytest.MonkeyPatch, *counts: int) -> None:
    """A user stops the probing after so many cells."""
    plain, cells = experiment.ProbeExperiment.keep, itertools.count(1)

    def keep(self: Any, *cell: Any) -> None:
        plain(self, *cell)
        if next(cells) in counts:
            raise KeyboardInterrupt

    monkeypatch.setattr(experiment.ProbeExperiment, "keep", keep)


def test_what_was_stopped_goes_on_to_the_same_end(
    place: Path, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--task", place / "tags.conll", "--control", "--seq-len", "6", *FAST]
    whole, _ = run(place / "bert", *words, "--out", tmp_path / "whole")
    stop_after(monkeypatch, 2, 9)
    out = tmp_path / "stopped"
    _, message = run(place / "bert", *words, "--out", out, code=130)
    assert f"--resume {out}" in message and len((out / "cells.jsonl").read_text().splitlines()) == 2
    with (out / "cells.jsonl").open("a") as file:
        file.write('{"source": "trai')  # half a line
    run("--resume", out, "--quiet", code=130)
    after, _ = run("--resume", out, "--quiet")
    assert after == whole and not (out / "states").exists()
    names = ("layers", "baselines", "units", "notes")
    ends = [json.loads((tmp_path / n / "probe.json").read_text()) for n in ("whole", "stopped")]
    assert all(ends[0][name] == ends[1][name] for name in names)
    assert sum("40 sentences of more than 6 tokens" in note for note in ends[0]["notes"]) == 1
    assert run("--resume", out, "--quiet")[0] == whole


def test_relations_are_said_once_also_after_a_stop(
    place: Path, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--task", "heads", "--data", place / "trees.conllu", *FAST[2:], "--json"]
    whole = json.loads(run(place / "bert", *words, "--out", tmp_path / "whole")[0])
    stop_after(monkeypatch, 1, 3)  # between the layers of a model
    out = tmp_path / "stopped"
    run(place / "bert", *words, "--out", out, code=130)
    run("--resume", out, "--quiet", code=130)
    after = json.loads(run("--resume", out, "--quiet", "--json")[0])
    assert after["relations"] == whole["relations"] and after["layers"] == whole["layers"]
    assert len(whole["relations"]["trained"]) == 1 and len(whole["relations"]["untrained"]) == 2


def test_states_are_kept_where_they_are_asked_to(place: Path, tmp_path: Path, run: Any) -> None:
    cache = tmp_path / "cache"
    for number in range(2):
        run(place / "bert", "--task", place / "tags.conll", "--cache", cache, "--out",
            tmp_path / str(number), *FAST)  # fmt: skip
        assert len(list(cache.glob("*/states.npy"))) == 1


def test_nothing_is_overwritten(place: Path, tmp_path: Path, run: Any) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "mine").write_text("x")
    with refuses(StorageError, tmp_path / "o", "--out"):
        run(place / "bert", "--task", place / "tags.conll", "--out", tmp_path / "o", *FAST)
    assert [p.name for p in (tmp_path / "o").iterdir()] == ["mine"]


def test_other_data_does_not_go_on(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "tags.conll"
    data.write_text((place / "tags.conll").read_text())

    def stopped(self: Any, *args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment.ProbeExperiment, "keep", stopped)
    plan = ProbePlan(str(place / "bert"), str(data), epochs=1, seeds=1)
    assert experiment.probe(plan, tmp_path / "o", quiet=True)["outcome"] == "interrupted"
    data.write_text(data.read_text().replace("LONG", "LARGE"))
    with refuses(InputError, tmp_path / "o", "data"):
        experiment.resume(tmp_path / "o", quiet=True)


@pytest.mark.parametrize(
    ("words", "error", "names"),
    [
        ("--task heads", ConfigError, ["--data"]),
        ("--task structure", ConfigError, ["--data"]),
        ("--task auto:capital", ConfigError, ["--data", "auto:capital"]),
        ("--task texts.jsonl --control", ConfigError, ["--control", "texts.jsonl"]),
        ("--task tags.conll --layers 7", ConfigError, ["layers 7", "0", "to 2"]),
        ("--task tags.conll --layers x", InputError, ["--layers is 'x'"]),
        ("--task tags.conll --seeds 0", ConfigError, ["--seeds is 0"]),
        ("--task tags.conll --data text.txt", ConfigError, ["tags.conll", "--data text.txt"]),
        ("--task structure --data trees.conllu --probe mlp", ConfigError, ["--probe is mlp"]),
        ("--task structure --data trees.conllu --dropout 0.2", ConfigError, ["--dropout"]),
        ("--task heads --data text.txt --probe mlp", ConfigError, ["--task heads", "--probe"]),
        ("--task auto:capital --data text.txt --valid x", ConfigError, ["--valid"]),
        ("--task tags.conll --resume", ConfigError, ["--task", "--resume", "OUT alone"]),
        ("--task tags.conll --seq-len 2", ConfigError, ["length of 2"]),
        ("--task structure --data trees.conllu --seq-len 2", ConfigError, ["length of 2"]),
        ("--task tags.conll --mlp-size 64", ConfigError, ["--probe linear", "--mlp-size"]),
        ("--task auto:capital --data text.txt --field a=b", ConfigError, ["--field"]),
        ("--task tags.conll --pooling max", UnknownName, ["pooling 'max'"]),
        ("", ConfigError, ["--task"]),
    ],
)
def test_refusals(
    words: str,
    error: type[RegardError],
    names: list[str],
    place: Path,
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    with refuses(error, *names):
        run("bert", *words.split(), "--out", "o")
    assert not (place / "o").exists()


def test_refusals_without_out_and_attention(
    place: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with refuses(ConfigError, "--out"):
        run("bert", "--task", "tags.conll")
    with refuses(InputError, "LSTM", "attention"):
        run("lstm", "--task", "heads", "--data", "text.txt", "--out", "o")
    assert not (place / "o").exists()


@pytest.mark.parametrize(
    "option",
    [
        ["--epochs", "3"],
        ["--no-untrained"],
        ["--layers", "0"],
        ["--field", "tags=xpos"],
        ["--format", "conll"],
        ["--no-header"],
        ["--skip", "empty-text"],
        ["--probe", "mlp", "--seeds", "5"],
    ],
)
def test_nothing_stands_beside_resume(place: Path, run: Any, option: list[str]) -> None:
    with refuses(ConfigError, option[0].replace("no-header", "header"), "--resume", "OUT alone"):
        run(place / "bert", "--resume", *option)


def test_nothing_to_resume() -> None:
    with refuses(ConfigError, "nowhere/plan.json"):
        experiment.resume(Path("nowhere"))
