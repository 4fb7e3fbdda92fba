"""Damage is named before it trains or answers, and a full disk leaves no half of a file."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.core.atomic_dir import MANIFEST
from regard.core.errors import ConfigError, FormatError, InputError, RegardError, StorageError
from regard.data.corpus import MARKER, Corpus, damaged_files
from regard.methods.runs import run
from tests import command
from tests.refusals import refuses
from tests.training.small import data, recipe


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def trained(place: Path, tmp_path: Path) -> Path:
    run(recipe("gpt", place, budget={"steps": 2}), tmp_path / "run", display="silent")
    return tmp_path / "run"


def flip(file: Path, at: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


# -- weights


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_numbers_are_refused(trained: Path, value: float) -> None:
    file = trained / "model.safetensors"
    weights = load_file(file)
    name = max(weights, key=lambda key: weights[key].numel())
    weights[name].view(-1)[3] = value
    save_file(weights, file, {"format": "pt"})
    with refuses(FormatError, trained, "--allow-nan", "1 of"):
        regard.load(trained)
    refused = command.run("generate", trained, "w5", "--max-new-tokens", 2)
    assert isinstance(refused.exception, FormatError)
    shown = command.run("generate", trained, "w5", "--max-new-tokens", 2, "--allow-nan")
    assert not isinstance(shown.exception, FormatError)
    refused = command.run("generate", trained, "w5", "--max-new-tokens", 2)
    assert isinstance(refused.exception, FormatError)  # the option of one command is not the next's
    loaded = regard.load(trained, allow_nan=True)
    assert sum(int((~w.isfinite()).sum()) for w in loaded.model.state_dict().values()) == 1


def test_every_command_opens_them_if_it_is_told_to(
    trained: Path, place: Path, tmp_path: Path
) -> None:
    file, text = trained / "model.safetensors", tmp_path / "text.txt"
    weights = load_file(file)
    weights[min(weights)].view(-1)[0] = float("nan")
    save_file(weights, file, {"format": "pt"})
    text.write_text("w5 w6 w7. " * 30)
    torch.save(weights, tmp_path / "pytorch_model.bin")
    for words in (
        ("evaluate", trained, place, "--split", "valid", "--quiet"),
        ("train", trained, place, "--out", tmp_path / "more", "--steps", 1, "--quiet",
         "--batch-size", 4),
        ("distill", trained, "--student", "layers=1", "--data", place, "--out", tmp_path / "small",
         "--steps", 1, "--quiet", "--batch-size", 4),
        ("quantize", trained, "--out", tmp_path / "int8", "--quiet"),
        ("prune", trained, "--weights", "0.5", "--out", tmp_path / "sparse", "--quiet"),
        ("probe", trained, "--task", "heads", "--data", text, "--out", tmp_path / "probed"),
        ("embed", trained, "w5"),
        ("look", trained, "w5 w6", "--out", tmp_path / "page.html"),
        ("draw", "attention", "w5 w6", "--model", trained, "--out", tmp_path / "a.svg"),
        ("convert", tmp_path),
    ):  # fmt: skip
        refused = command.run(*words)
        assert isinstance(refused.exception, FormatError), (words, refused.output)
        assert "--allow-nan" in refused.output, words
        allowed = command.run(*words, "--allow-nan")
        assert not isinstance(allowed.exception, FormatError), (words, allowed.output)


def test_large_weights_are_no_damage(trained: Path) -> None:
    """Their sum is infinite, and each of them is a number."""
    file = trained / "model.safetensors"
    weights = {name: torch.full_like(w, 3e38) for name, w in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})
    regard.load(trained)


def test_a_negative_seed_is_refused(place: Path, tmp_path: Path) -> None:
    words = ("train", "gpt", place, "--seed", -1, "--steps", 1, "--batch-size", 4, "--quiet")
    with refuses(ConfigError, "-1"):
        raise command.run(*words, "--out", tmp_path / "run").exception or AssertionError
    assert not (tmp_path / "run").exists()


# -- packed files


def test_probes_and_comparisons_have_the_limit(trained: Path, tmp_path: Path) -> None:
    text, trees = tmp_path / "a.txt.gz", tmp_path / "a.conllu.gz"
    text.write_bytes(gzip.compress(b"The cat sat on the mat again. " * 3000))
    tree = "".join(f"{i}\tw\tw\tX\tX\t_\t{i - 1}\tdep\t_\t_\n" for i in range(1, 5))
    trees.write_bytes(gzip.compress((tree + "\n").encode() * 1000))
    rows = tmp_path / "a.jsonl.gz"
    row = json.dumps({"text": "a cat", "label": "x"}) + "\n"
    rows.write_bytes(gzip.compress(row.encode() * 3000))
    limit = ("--max-bytes", 20_000, "--out", tmp_path / "out")
    for words in (
        ("probe", trained, "--task", "auto:position", "--data", text),
        ("probe", trained, "--task", "heads", "--data", text),
        ("probe", trained, "--task", "heads", "--data", trees),
        ("probe", trained, "--task", "structure", "--data", trees),
        ("probe", trained, "--task", rows),
        ("compare", text, "--models", "gpt", "--budget", "100tok", "--quiet"),
    ):
        with refuses(InputError, "--max-bytes", "20,000"):
            raise command.run(*words, *limit).exception or AssertionError(words)


# -- prepared text


def test_damaged_shards_do_not_train(place: Path, tmp_path: Path) -> None:
    assert damaged_files(place) == []
    shard = place / "train-00000.tokens"
    try:
        flip(shard)
        assert damaged_files(place) == [shard.name]
        with refuses(FormatError, shard):
            run(recipe("gpt", place), tmp_path / "run", display="silent")
        assert not (tmp_path / "run").exists()
        with refuses(StorageError, shard.name, "differs"):
            raise command.run("info", place, "--verify").exception or AssertionError
    finally:
        flip(shard)
    assert command.run("info", place, "--verify").exit_code == 0


def test_data_without_checksums_still_opens(tmp_path: Path, capsys: Any) -> None:
    place = data(tmp_path / "old")
    facts = json.loads((place / MARKER).read_text())
    for split in facts["splits"].values():
        del split["checksums"]
    (place / MARKER).write_text(json.dumps(facts))
    assert damaged_files(place) is None and len(Corpus.open(place, "train"))
    run(recipe("gpt", place, budget={"steps": 1}), tmp_path / "run", display="plain")
    assert "no checksums" in capsys.readouterr().err


# -- runs


def test_a_run_is_compared_with_its_manifest(trained: Path) -> None:
    whole = command.run("info", trained, "--verify")
    assert whole.exit_code == 0 and "manifest" in whole.stdout
    (trained / "notes.txt").write_text("mine")
    assert "notes.txt" in command.run("info", trained, "--verify").stdout
    flip(trained / "tokenizer.json")
    (trained / "README.md").unlink()
    flip(next((trained / "checkpoints").glob("*/weights.safetensors")))
    with refuses(
        StorageError, "tokenizer.json differs", "README.md is missing", "notes.txt is extra",
        "weights.safetensors",
    ):  # fmt: skip
        raise command.run("info", trained, "--verify").exception or AssertionError


def test_saving_over_a_run_renews_its_manifest(trained: Path) -> None:
    loaded = regard.load(trained)
    with torch.no_grad():
        loaded.model.tokens.weight.add_(1.0)
    loaded.save(trained)
    assert command.run("info", trained, "--verify").exit_code == 0
    assert (trained / "checkpoints").is_dir() and (trained / MANIFEST).is_file()


# -- a full disk


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 16 kB."""
    place = tmp_path / "full"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(words, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_named_and_leaves_nothing(trained: Path, full: Path, place: Path) -> None:
    many = [f"w{i % 40} w{i % 7}" for i in range(400)]
    text = full.parent / "texts.txt"
    text.write_text("\n".join(many))
    for words, out in (
        (("embed", trained, "--file", text, "--out", full / "a.npy"), full / "a.npy"),
        (("quantize", trained, "--out", full / "small", "--repeats", 0), full / "small"),
        (("prepare", text, "--split-by", "line", "--out", full / "data"), full / "data"),
        (("evaluate", place, "--baseline", "--out", full / "n.safetensors"), full / "n.saf"),
    ):  # fmt: skip
        with refuses(RegardError, out):
            raise command.run(*words).exception or AssertionError(f"{words} did not fail")
        assert list(full.iterdir()) == []
    with refuses(StorageError, full / "model", "No space left"):
        regard.load(trained).save(full / "model")
    assert list(full.iterdir()) == []
