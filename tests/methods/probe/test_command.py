"""`regard probe` from end to end on tiny models."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from regard.cli.main import program
from regard.core.errors import ConfigError, InputError, RegardError, StorageError
from regard.core.seeding import keyed
from regard.formats.directory import save
from regard.methods.probe import experiment
from regard.methods.probe.plan import ProbePlan
from tests.methods.probe.small import PIECES, loaded

FAST = ["--epochs", "6", "--seeds", "2", "--quiet"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, tagged words, trees and a text."""
    here = tmp_path_factory.mktemp("probe")
    for family in ("bert", "gpt", "lstm"):
        held = loaded(family)
        save(held.model, here / family, held.tokenizer)
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
        found = program(["probe", *map(str, words)], standalone_mode=False)
        assert (found or 0) == code
        out, err = capsys.readouterr()
        return out, err

    return go


def test_labels_of_words(place: Path, tmp_path: Path, run: Any) -> None:
    out = tmp_path / "probed"
    shown, _ = run(place / "bert", "--task", place / "tags.conll", "--control", "--mix", "--out",
                   out, "--json", *FAST)  # fmt: skip
    found = json.loads(shown)
    assert found["outcome"] == "done" and found["of"] == "words" and found["depth"] == 2
    assert [row["layer"] for row in found["layers"]] == [0, 1, 2, "mix"]
    for row in found["layers"]:
        for source in ("trained", "untrained"):
            task, control = row[source]["task"], row[source]["control"]
            assert len(task["accuracy"]["values"]) == 2
            pairs = zip(task["accuracy"]["values"], control["accuracy"]["values"], strict=True)
            assert task["selectivity"]["values"] == [a - b for a, b in pairs]
    assert len(found["layers"][3]["trained"]["task"]["shares"]) == 3
    assert 0 < found["baselines"]["task"]["accuracy"]["majority"] < 1
    assert any("still getting better at the last of 6" in note for note in found["notes"])
    assert json.loads((out / "probe.json").read_text())["layers"] == found["layers"]
    assert sorted(p.name for p in out.iterdir() if not p.name.startswith(".")) == [
        "cells.jsonl", "plan.json", "probe.json", "probe.svg",
    ]  # fmt: skip
    root = ElementTree.fromstring((out / "probe.svg").read_text())
    names = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert {"trained", "untrained", "control"} <= set(names)
    assert len([e for e in root.iter() if "c-band" in e.attrib.get("class", "")]) >= 3
    assert not any("http" in v for e in root.iter() for v in e.attrib.values())


def test_the_table_is_for_people(place: Path, tmp_path: Path, run: Any) -> None:
    shown, noted = run(place / "gpt", "--task", place / "texts.jsonl", "--no-untrained", "--layers",
                       "0,-1", "--probe", "rank-4", "--out", tmp_path / "o", "--epochs", "4",
                       "--seeds", "1")  # fmt: skip
    lines = shown.splitlines()
    assert lines[1].split() == ["layer", "accuracy", "macro", "f1"]
    assert [line.split()[0] for line in lines[2:4]] == ["0", "2"]
    assert "majority" in lines[4] and "probe.svg" in noted and "1 seed says" in noted


def test_automatic_tasks_need_no_labels(place: Path, tmp_path: Path, run: Any) -> None:
    shown, _ = run(place / "lstm", "--task", "auto:sentence-length", "--data", place / "text.txt",
                   "--out", tmp_path / "o", "--json", *FAST)  # fmt: skip
    assert json.loads(shown)["task"] == "auto:sentence-length"


def test_structure(place: Path, tmp_path: Path, run: Any) -> None:
    shown, _ = run(place / "bert", "--task", "structure", "--data", place / "trees.conllu",
                   "--control", "--out", tmp_path / "o", "--probe", "rank-8", "--json",
                   *FAST)  # fmt: skip
    found = json.loads(shown)
    row = found["layers"][1]["trained"]
    assert 0 <= row["distance"]["uuas"]["mean"] <= 1 and 0 <= row["depth"]["root"]["mean"] <= 1
    assert "selectivity" in row["head"] and "chain" in found["baselines"]["distance"]["uuas"]
    levels = [found["baselines"]["head"]["accuracy"], found["baselines"]["depth"]["root"]]
    assert all(name.startswith("always") for own in levels for name in own) and all(levels)
    assert (tmp_path / "o" / "probe.svg").read_text().count('class="c-band') >= 10


def test_heads_with_and_without_trees(place: Path, tmp_path: Path, run: Any) -> None:
    shown, _ = run(place / "gpt", "--task", "heads", "--data", place / "text.txt", "--out",
                   tmp_path / "a", "--json", *FAST[2:])  # fmt: skip
    found = json.loads(shown)
    assert [row["layer"] for row in found["layers"]] == [1, 2] and "relations" not in found
    assert len(found["layers"][0]["trained"]["heads"]["heads"]) == 2
    assert len(found["layers"][0]["untrained"]["heads"]["entropy"]["values"]) == 2
    assert len(list((tmp_path / "a" / "heads").glob("*.svg"))) == 7
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
    _, told = run(place / "bert", *words, "--out", out, code=130)
    assert f"--resume {out}" in told and len((out / "cells.jsonl").read_text().splitlines()) == 2
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
    with pytest.raises(StorageError, match="exists already"):
        run(place / "bert", "--task", place / "tags.conll", "--out", tmp_path / "o", *FAST)
    assert [p.name for p in (tmp_path / "o").iterdir()] == ["mine"]


def test_other_data_does_not_go_on(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "tags.conll"
    data.write_text((place / "tags.conll").read_text())

    def stopped(self: Any, *given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment.ProbeExperiment, "keep", stopped)
    plan = ProbePlan(str(place / "bert"), str(data), epochs=1, seeds=1)
    assert experiment.probe(plan, tmp_path / "o", quiet=True)["outcome"] == "interrupted"
    data.write_text(data.read_text().replace("LONG", "LARGE"))
    with pytest.raises(InputError, match="data has changed"):
        experiment.resume(tmp_path / "o", quiet=True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["bert", "--task", "tags.conll"], "--out is missing"),
        (["bert", "--out", "o"], "--task is missing"),
        (["lstm", "--task", "heads", "--data", "text.txt", "--out", "o"], "no attention"),
        (["bert", "--task", "heads", "--out", "o"], "--data is missing"),
        (["bert", "--task", "structure", "--out", "o"], "--data is missing"),
        (["bert", "--task", "auto:capital", "--out", "o"], "--data is missing"),
        (["bert", "--task", "texts.jsonl", "--control", "--out", "o"], "whole texts"),
        (["bert", "--task", "tags.conll", "--layers", "7", "--out", "o"], "0 .* to 2"),
        (["bert", "--task", "tags.conll", "--layers", "x", "--out", "o"], "numbers"),
        (["bert", "--task", "tags.conll", "--seeds", "0", "--out", "o"], "--seeds"),
        (["bert", "--task", "tags.conll", "--data", "text.txt", "--out", "o"], "as well"),
        (["bert", "--task", "structure", "--data", "trees.conllu", "--probe", "mlp", "--out", "o"],
         "is linear"),
        (["bert", "--task", "structure", "--data", "trees.conllu", "--dropout", "0.2", "--out",
          "o"], "no use for --dropout"),
        (["bert", "--task", "heads", "--data", "text.txt", "--probe", "mlp", "--out", "o"],
         "no use for --probe"),
        (["bert", "--task", "auto:capital", "--data", "text.txt", "--valid", "x", "--out", "o"],
         "no use for --valid"),
        (["bert", "--task", "tags.conll", "--resume", "--out", "o"], "OUT alone"),
        (["bert", "--resume", "--epochs", "3"], "--epochs is given beside --resume, .* OUT alone"),
        (["bert", "--resume", "--no-untrained"], "--no-untrained is given"),
        (["bert", "--resume", "--layers", "0"], "--layers is given"),
        (["bert", "--resume", "--field", "tags=xpos"], "--field is given"),
        (["bert", "--resume", "--format", "conll"], "--format is given"),
        (["bert", "--resume", "--no-header"], "--header is given"),
        (["bert", "--resume", "--skip", "empty-text"], "--skip is given"),
        (["bert", "--resume", "--probe", "mlp", "--seeds", "5"], "--probe is given"),
        (["bert", "--task", "tags.conll", "--seq-len", "2", "--out", "o"], "no room for words"),
        (["bert", "--task", "structure", "--data", "trees.conllu", "--seq-len", "2", "--out", "o"],
         "no room for words"),
        (["bert", "--task", "tags.conll", "--mlp-size", "64", "--out", "o"],
         "--probe linear has no use for --mlp-size"),
        (["bert", "--task", "auto:capital", "--data", "text.txt", "--field", "a=b", "--out", "o"],
         "no use for --field"),
        (["bert", "--task", "tags.conll", "--pooling", "max", "--out", "o"], "pooling"),
    ],
)  # fmt: skip
def test_refusals(
    words: list[str], told: str, place: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(RegardError, match=told):
        run(*words)
    assert not (place / "o").exists()


def test_help_has_examples_and_layers_are_numbers(run: Any) -> None:
    shown, _ = run("--help")
    assert "regard probe my-bert" in shown and "auto:NAME" in shown
    with pytest.raises(ConfigError, match=r"plan\.json"):
        experiment.resume(Path("nowhere"))
