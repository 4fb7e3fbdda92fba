"""The whole of `prepare`: what is written, where it goes, and what is refused."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.core.errors import InputError, StorageError, UnknownName
from regard.data import corpus as corpora
from regard.data import encode, sample
from regard.data.chunks import Chunking
from regard.data.corpus import SPLITS, Corpus, read_marker
from regard.data.prepare import PreparePlan, prepare
from regard.data.sentences import sentences
from regard.data.sources import SourceOptions
from regard.data.splits import SplitShares
from tests.refusals import Refusal, refuses

from .conftest import ALL, CHINESE, ENGLISH, Make

TEXTS = ENGLISH + CHINESE


def texts_of(data: Path, split: str) -> list[str]:
    corpus = Corpus.open(data, split)
    tokenizer = corpus.tokenizer
    return [
        tokenizer.decode(corpus.document(i)[:-1].tolist(), special=True)
        for i in range(len(corpus.documents) - 1)
    ]


def contents(data: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(data.iterdir())}


def test_documents_are_shared_out(make: Make, source: Path) -> None:
    summary, data = make(source)
    parts = {split: texts_of(data, split) for split in SPLITS}
    assert sorted(text for texts in parts.values() for text in texts) == sorted(TEXTS)
    assert [len(parts[split]) for split in SPLITS] == [162, 9, 9]
    assert parts["train"] == [text for text in TEXTS if text in set(parts["train"])]  # in order
    assert summary["documents"] == 180
    assert summary["bytes"] == sum(len(text.encode()) for text in TEXTS)
    assert summary["sentences"] == sum(len(sentences(text)) for text in TEXTS)
    assert summary["splits"]["valid"]["documents"] == 9
    assert summary["unknown_share"] == 0
    assert summary["bytes_per_token"] == round(summary["bytes"] / summary["tokens"], 3)
    other, moved = make(source, out="other", seed=1)
    assert texts_of(moved, "valid") != parts["valid"]
    assert other["documents"] == 180


def test_equal_documents_stay_together(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "twice.txt"
    source.write_text("\n\n".join(TEXTS * 2), "utf-8")
    _, data = make(source)
    parts = [set(texts_of(data, split)) for split in SPLITS]
    assert all(parts)
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])


def test_the_same_input_makes_the_same_files(make: Make, source: Path) -> None:
    for kind in ("bytes-bpe", "unigram"):
        first = contents(make(source, out=f"a-{kind}", tokenizer=kind)[1])
        assert first == contents(make(source, out=f"b-{kind}", tokenizer=kind)[1])


def test_batches_do_not_matter(make: Make, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"reading": SourceOptions(split_by="file"), "shares": ALL, "tokenizer": "bytes"}
    for how in ({}, {"chunking": Chunking("sentences", 50)}):
        name = f"{len(how)}"
        expected = contents(make(source, out=f"whole{name}", **changes, **how)[1])
        monkeypatch.setattr(encode, "BATCH", 300)
        monkeypatch.setattr("regard.data.files.BLOCK", 1000)
        assert contents(make(source, out=f"bits{name}", **changes, **how)[1]) == expected
        monkeypatch.undo()


def test_shards_are_cut_between_documents(
    make: Make, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "BATCH", 200)
    monkeypatch.setattr(corpora, "SHARD", 500)
    _, data = make(source, shares=ALL, tokenizer="bytes")
    corpus = Corpus.open(data, "train")
    assert len(corpus.shards) > 5
    assert set(corpus.starts) <= set(corpus.documents.tolist())
    assert texts_of(data, "train") == TEXTS


def test_one_document_is_cut_at_sentences(make: Make, tmp_path: Path) -> None:
    text = "".join(f" This is sentence number {i}." for i in range(200))[1:]
    source = tmp_path / "one.txt"
    source.write_text(text)
    summary, data = make(source, shares=SplitShares(0.1, 0.2))
    parts = [texts_of(data, split) for split in SPLITS]
    assert [len(texts) for texts in parts] == [1, 1, 1]
    assert "".join(texts[0] for texts in parts) == text
    assert all(texts[0].endswith(".") for texts in parts)
    assert abs(len(parts[2][0]) / len(text) - 0.2) < 0.02
    assert abs(len(parts[1][0]) / len(text) - 0.1) < 0.02
    assert "fewer than 10 documents" in summary["notes"][0]
    assert summary["bytes"] == len(text)


def test_a_tokenizer_is_not_trained_on_what_tests(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "one.txt"
    source.write_text("A plain sentence here. " * 200 + "Zyxwvq zyxwvq. " * 10)
    _, data = make(source, tokenizer="characters")
    vocabulary = Corpus.open(data, "train").tokenizer.ready.get_vocab()
    assert "p" in vocabulary and "z" not in vocabulary
    assert sum(split["unknown"] for split in read_marker(data)["splits"].values()) > 0


def test_too_short_to_share_out(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("Only this.")
    summary, data = make(source, tokenizer="bytes")
    assert texts_of(data, "train") == ["Only this."]
    assert texts_of(data, "valid") == []
    assert any("nothing is in valid and test" in note for note in summary["notes"])


def test_an_existing_tokenizer(make: Make, source: Path, tmp_path: Path) -> None:
    _, first = make(source, out="first", tokenizer="wordpiece", lower=True)
    again = {"tokenizer": str(first), "shares": ALL}
    _, second = make(source, out="second", **again)
    assert contents(first)["tokenizer.json"] == contents(second)["tokenizer.json"]
    a, b = Corpus.open(first, "train"), Corpus.open(second, "train")
    assert a.special == b.special
    _, third = make(source, out="third", tokenizer=str(first / "tokenizer.json"), shares=ALL)
    assert (b.read(0, 10**6) == Corpus.open(third, "train").read(0, 10**6)).all()
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n")
    summary, fourth = make(source, out="fourth", tokenizer=str(plain), shares=ALL)
    special = Corpus.open(fourth, "train").special
    assert (special.pad, special.unknown, special.end, special.mask) == (0, 1, 3, 4)
    assert summary["unknown_share"] > 0.5
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(fourth)
    assert theirs("the cat", add_special_tokens=False)["input_ids"] == [5, 6]
    assert theirs.eos_token == "[SEP]"


def test_roles_of_published_tokenizers(make: Make, source: Path, tmp_path: Path) -> None:
    _, first = make(source, tokenizer="unigram")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(first / "tokenizer.json", other)
    roles = {"eos_token": {"content": "<sep>"}, "pad_token": "</s>"}
    (other / "tokenizer_config.json").write_text(json.dumps(roles))
    _, data = make(source, out="again", tokenizer=str(other))
    old, new = (Corpus.open(path, "train").special for path in (first, data))
    assert (new.end, new.pad, new.mask) == (old.sep, old.end, old.mask)
    assert new.sentinels == old.sentinels


def test_pairs(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "a.tsv"
    rows = [(f"The cat {i}. Yes.", f"猫{i}。是。") for i in range(40)]
    source.write_text("".join(f"{a}\t{b}\n" for a, b in rows) + "alone\t\n", "utf-8")
    summary, data = make(source, pairs=True, tokenizer="bytes-bpe")
    assert summary["kind"] == "pairs"
    assert [summary["splits"][s]["documents"] for s in SPLITS] == [36, 2, 2]
    assert any("1 pairs with an empty side" in note for note in summary["notes"])
    parts = []
    for split in SPLITS:
        corpus = Corpus.open(data, split)
        assert corpus.kind == "pairs"
        for i in range(len(corpus.documents) - 1):
            start, middle, end = corpus.sentences_of(i).tolist()
            sides = [corpus.read(start, middle), corpus.read(middle, end)]
            assert all(side[-1] == corpus.special.end for side in sides)
            parts.append(tuple(corpus.tokenizer.decode(side[:-1].tolist()) for side in sides))
    assert sorted(parts) == sorted(rows)


@pytest.mark.parametrize("kind", ["fixed", "overlapping", "sentences"])
def test_chunks(make: Make, source: Path, kind: str) -> None:
    _, plain = make(source, out="plain", tokenizer="bytes", shares=ALL)
    summary, data = make(
        source, tokenizer="bytes", shares=ALL, chunking=Chunking(kind, 32, overlap=8)
    )
    corpus, whole = Corpus.open(data, "train"), Corpus.open(plain, "train")
    lengths = np.diff(corpus.documents)
    assert lengths.max() <= 32 and len(lengths) > len(TEXTS)
    ends = corpus.read(0, len(corpus))[corpus.documents[1:] - 1]
    assert (ends == corpus.special.end).all()
    assert summary["bytes"] == whole.bytes == corpus.document_bytes.sum()
    facts = read_marker(data)
    assert facts["chunk"] == {"kind": kind, "length": 32, "overlap": 8}
    repeated = facts["splits"]["train"]["repeated"]
    assert (repeated > 0) == (kind == "overlapping")
    assert len(corpus) - repeated - (len(lengths) - len(TEXTS)) == len(whole)
    if kind != "overlapping":
        both = [each.read(0, len(each)) for each in (corpus, whole)]
        ids, expected = (ids[ids != corpus.special.end] for ids in both)
        assert (ids == expected).all()


def test_broken_text_is_counted(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_bytes(b"good text\xff and \xfe more. " * 3)
    summary, data = make(source, tokenizer="bytes", shares=ALL)
    assert summary["broken"] == read_marker(data)["broken"] == 6
    assert any("6 places that are not UTF-8 were replaced" in note for note in summary["notes"])
    with refuses(InputError, "a.txt: byte 9"):
        make(source, out="no", reading=SourceOptions(broken="refuse"))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(max_size=60).filter(str.strip), min_size=1, max_size=15))
def test_any_text_comes_back(tmp_path: Path, texts: list[str]) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    prepare(
        PreparePlan((str(source),), tmp_path / "any", tokenizer="bytes-bpe", shares=ALL, force=True)
    )
    assert texts_of(tmp_path / "any", "train") == texts


# -- what is refused, and what is left behind


def test_places(make: Make, source: Path, tmp_path: Path) -> None:
    make(source, tokenizer="bytes")
    before = contents(tmp_path / "data")
    with refuses(StorageError, tmp_path / "data", "exists", "--force"):
        make(source, tokenizer="bytes")
    (tmp_path / "empty").mkdir()
    make(source, out="empty", tokenizer="bytes")
    make(source, tokenizer="characters", force=True)
    assert contents(tmp_path / "data") != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with refuses(StorageError, tmp_path / "mine", "no prepared text"):
        make(source, out="mine", tokenizer="bytes", force=True)
    assert (tmp_path / "mine" / "thesis.txt").is_file()
    for out in ("text.txt", "text.txt/below"):
        with refuses(StorageError, tmp_path / out):
            make(source, out=out, tokenizer="bytes", force=True)
    assert not list(tmp_path.glob(".*"))


def test_a_failure_leaves_nothing_and_keeps_the_old(
    make: Make, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(source, tokenizer="bytes")
    before = contents(tmp_path / "data")
    bad = tmp_path / "z.txt"
    bad.write_bytes(b"text\0")
    with refuses(InputError, bad, "binary"):
        make(source, bad, tokenizer=str(tmp_path / "data"), force=True)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with refuses(StorageError, tmp_path / "data", "No space left on device"):
        make(source, tokenizer="bytes", force=True)
    assert contents(tmp_path / "data") == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("name", "changes", "refusal"),
    [
        ("text.txt", {"tokenizer": "byte-bpe"}, (UnknownName, "'byte-bpe'", "'bytes-bpe'")),
        ("text.txt", {"vocab_size": 90_000}, (InputError, "--vocab-size 90,000", "bytes-bpe")),
        ("text.txt", {"vocab_size": 100}, (InputError, "--vocab-size 100", "363")),
        ("text.txt", {"sentinels": -1}, (InputError, "--sentinels -1")),
        ("text.txt", {"seed": -1}, (InputError, "--seed -1")),
        ("text.txt", {"pairs": True, "chunking": Chunking("fixed")}, (InputError, "--chunk cuts")),
        ("text.txt", {"reading": SourceOptions(form="jsonl")}, (InputError, "text.txt:1", "JSON")),
        ("text.txt", {"tokenizer": "{none}"}, (InputError, "/none", "no tokenizer")),
        ("text.txt", {"tokenizer": "{data}", "vocab_size": 9}, (InputError, "--vocab-size out")),
        ("text.txt", {"tokenizer": "{data}", "lower": True}, (InputError, "--lower out")),
        ("text.txt", {"tokenizer": "{data}/data.json"}, (InputError, "data.json", "a tokenizer")),
        ("blank.txt", {"tokenizer": "bytes"}, (InputError, "blank.txt", "no text")),
        ("blank.txt", {"tokenizer": "{data}", "shares": ALL}, (InputError, "blank.txt", "no text")),
    ],
)
def test_bad_plans(
    make: Make, source: Path, tmp_path: Path, name: str, changes: dict, refusal: Refusal
) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "blank.txt").write_text(" \n\n \n")
    tokenizer = changes.get("tokenizer", "bytes-bpe")
    if "{data}" in tokenizer:
        make(source, tokenizer="bytes")
    places = {"data": tmp_path / "data", "none": tmp_path / "none"}
    with refuses(*refusal):
        make(tmp_path / name, out="new", **changes | {"tokenizer": tokenizer.format(**places)})
    assert not (tmp_path / "new").exists()


LONG = """
import sys
from pathlib import Path
from regard.data.prepare import PreparePlan, prepare
plan = PreparePlan((sys.argv[1],), Path(sys.argv[2]), tokenizer=sys.argv[3])
summary = prepare(plan)
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
assert "torch" not in sys.modules
print(summary["bytes"], summary["documents"], peak)
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux")
@pytest.mark.parametrize("script", ["english", "chinese"])
def test_a_long_line_is_prepared_in_bounded_memory(
    make: Make, source: Path, tmp_path: Path, script: str
) -> None:
    """A line of 6 MiB is one document; encoded at once it would take twice the bound and more."""
    text = " ".join(ENGLISH) if script == "english" else "".join(CHINESE)
    line = text.replace("\n", " ").encode()
    long = tmp_path / "long.txt"
    long.write_bytes(line * (6 * 2**20 // len(line)))
    _, data = make(source, shares=ALL)
    command = [sys.executable, "-c", LONG, str(long), str(tmp_path / "out"), str(data)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    size, documents, peak = map(int, finished.stdout.split())
    assert (size, documents) == (long.stat().st_size, 3)
    assert peak < 240 * 2**20


PEAK = """
import resource, sys
from pathlib import Path
from regard.data.prepare import PreparePlan, prepare
from regard.data.sources import SourceOptions
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
reading = SourceOptions(split_by=sys.argv[3])
prepare(PreparePlan((sys.argv[1],), Path(sys.argv[2]), reading, tokenizer="bytes"))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
@pytest.mark.parametrize("split_by", ["line", "blank"])
def test_many_short_lines_need_little_memory(tmp_path: Path, split_by: str) -> None:
    """The sentences of a batch are bounded, not only their bytes: 265 MB more in one batch."""
    file = tmp_path / "lines.txt"
    file.write_text("a\n" * 200_000, "utf-8")
    words = [sys.executable, "-c", PEAK, file, tmp_path / "data", split_by]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 160  # megabytes


def test_batches_of_few_sentences_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("One. Two! Three? " * 40 + "\n\n" + "Four.\n\n" * 30, "utf-8")
    prepare(PreparePlan((str(file),), tmp_path / "a"))
    monkeypatch.setattr(encode, "UNITS", 3)
    prepare(PreparePlan((str(file),), tmp_path / "b"))
    for name in sorted(path.name for path in (tmp_path / "a").iterdir()):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_sample_has_a_bounded_number_of_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "UNITS", 100)
    units = sample.Sample(0)
    for number in range(1000):
        units.add(number, number, 0, "a")
    assert 10 < len(units.units) <= 100 and not units.whole
