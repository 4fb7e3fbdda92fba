"""The figures of an n-gram on a data directory, and the command that prints them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest

from regard.core.errors import FormatError, InputError, UnknownName
from regard.data.corpus import Corpus, CorpusWriter, write_marker
from regard.evaluation import ngram_baseline as study
from regard.evaluation.ngram import Ngram
from tests.command import Result, run
from tests.refusals import refuses

END = 0


def write(directory: Path, splits: dict[str, list[list[int]]], vocab_size: int = 256) -> Path:
    directory.mkdir()
    facts = {}
    for split, documents in splits.items():
        writer = CorpusWriter(directory, split, "uint16")
        for document in documents:
            writer.add([[*document, END]], len(document))
        facts[split] = writer.close()
    about = {"vocab_size": vocab_size, "special": {"end": END}, "dtype": "uint16"}
    write_marker(directory, about | {"splits": facts})
    return directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    pages = [list(text.encode()[:2000]) for _, text in sorted(topics.items())][:40]
    return write(tmp_path / "data", {"train": pages[:30], "valid": pages[30:], "test": []})


def baseline(data: Path, order: int, split: str = "valid") -> dict[str, Any]:
    return study.measure(study.count(data, order), data, split)


def test_baseline(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {file.name: file.stat().st_mtime_ns for file in data.iterdir()}
    report = baseline(data, 4)
    train, valid = Corpus.open(data, "train"), Corpus.open(data, "valid")
    model = Ngram.train(train.read(0, len(train)), 4, 256, END)
    each = [model.surprisal(valid.document(i)) for i in range(len(valid.documents) - 1)]
    nats = float(np.concatenate(each).sum())
    assert report["tokens"] == len(valid) == sum(map(len, each))
    assert report["nats"] == pytest.approx(nats, rel=1e-12)
    assert report["bits_per_byte"] == pytest.approx(nats / math.log(2) / valid.bytes)
    assert report["perplexity"] == pytest.approx(math.exp(nats / len(valid)))
    assert [row["order"] for row in report["orders"]] == [1, 2, 3, 4]
    assert report["orders"][-1]["bits_per_byte"] == report["bits_per_byte"]
    assert report["orders"][1]["ngrams"] == len(model.levels[1])
    monkeypatch.setattr(study, "CHUNK", 7)  # many cuts inside documents
    assert baseline(data, 4)["nats"] == pytest.approx(nats, rel=1e-12)
    documents = study.document_nats(study.count(data, 4), valid)
    np.testing.assert_allclose(documents, [part.sum() for part in each], rtol=1e-12)
    assert {file.name: file.stat().st_mtime_ns for file in data.iterdir()} == files


def test_data_that_cannot_serve(data: Path, tmp_path: Path) -> None:
    empty = write(tmp_path / "empty", {"train": [], "valid": [[1]]})
    other = write(tmp_path / "other", {"train": [[1]], "valid": [[1]]}, vocab_size=9)
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: baseline(data, 2, "test"), InputError, f"split 'test', {data}, empty"),
        (lambda: baseline(data, 2, "vald"), UnknownName, f"split 'vald', 'valid', {data}"),
        (lambda: study.count(data, 2, 99_999_999), InputError, f"99,999,999 tokens, {data}"),
        (lambda: baseline(tmp_path / "nowhere", 2), FormatError, "nowhere, data.json"),
        (lambda: baseline(empty, 2), InputError, f"training text of {empty}"),
        (lambda: study.measure(study.count(data, 2), other), InputError, f"256, {other} has 9"),
    ]
    for work, error, named in refused:
        with refuses(error, *named.split(", ")):
            work()
    assert study.count(data, 2, 500).tokens == 500


def command(*arguments: str | Path) -> Result:
    return run("evaluate", *arguments, "--baseline")


def test_command(data: Path, tmp_path: Path) -> None:
    plain = command(data, "--ngram-order", "3")
    assert plain.exit_code == 0, plain.output
    assert [
        line.split()[0] for line in plain.stdout.splitlines()
    ] == "order 1 2 3 counted scored".split()
    model, figures = tmp_path / "n.safetensors", tmp_path / "n.json"
    first = json.loads(command(data, "--ngram-order", "3", "--json", "--out", model).stdout)
    assert first["bits_per_byte"] == pytest.approx(baseline(data, 3)["bits_per_byte"])
    again = json.loads(command(model, data, "--json", "--out", figures).stdout)
    assert again == json.loads(figures.read_text("utf-8"))
    assert {**again, "seconds": 0} == {**first, "seconds": 0}
    assert (
        json.loads(command(data, "--max-tokens", "900", "--json").stdout)["training_tokens"] == 900
    )


def test_command_refuses_before_the_work(data: Path, tmp_path: Path) -> None:
    for arguments, message in [
        (["--out", tmp_path / "n.txt"], "ends in .json or .safetensors"),
        (["--out", tmp_path / "no" / "n.json"], "make it first"),
        ([data, "--max-tokens", "5"], "its own counts"),
        ([data, "--ngram-order", "3"], "its own counts"),
        (["--ngram-order", "0"], "an n-gram has an order of 1"),
        (["--split", "vald"], "'valid'"),
    ]:
        error = command(data, *arguments).exception
        assert error is not None
        assert message in str(error)
