"""What a probe is asked: from files, and from plain text."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import InputError, RegardError, UnknownName
from regard.core.seeding import keyed
from regard.data.corpus import CorpusWriter, Special, write_marker
from regard.data.words import words_of
from regard.methods.probe.automatic import (
    NAMES,
    automatic,
    capital,
    class_of_number,
    joined,
    number,
    position,
    punctuation_next,
    sampled,
    word_length,
)
from regard.methods.probe.tasks import SAME, ProbeFileOptions, task_of_files
from tests.methods.probe.small import WORDS, tokenizer
from tests.refusals import refuses

# -- files


def conll(file: Path, count: int, tags: str = "XY", seed: int = 0) -> Path:
    dice = keyed(seed, "conll")
    lines = []
    for i in range(count):
        words = [f"w{int(dice.integers(50))}" for _ in range(4)]
        lines += [f"{word}\t{tags[int(dice.integers(len(tags)))]}" for word in [f"n{i}", *words]]
        lines.append("")
    file.write_text("\n".join(lines) + "\n")
    return file


def test_one_file_makes_three_parts(tmp_path: Path) -> None:
    task = task_of_files(str(conll(tmp_path / "a.conll", 50)))
    sizes = {part: len(items) for part, items in task.parts.items()}
    assert sizes == {"train": 40, "dev": 5, "test": 5} and task.shape == "words"
    assert task.classes == ["X", "Y"] and task.tested == "test"
    first = {item.texts for part in task.parts.values() for item in part}
    assert len(first) == 50
    few = task_of_files(str(tmp_path / "a.conll"), limit=10)
    assert len(few.parts["train"]) == 10


def test_a_rare_label_learns(tmp_path: Path) -> None:
    file = conll(tmp_path / "a.conll", 49)
    file.write_text(file.read_text() + "only\tZ\nhere\tX\n")
    task = task_of_files(str(file))
    assert "Z" in task.classes and not task.counts["test"]["Z"]
    few = task_of_files(str(file), limit=10)  # not lost by a limit either
    assert few.classes == ["X", "Y", "Z"] and len(few.parts["train"]) <= 11


def test_files_of_one_s_own(tmp_path: Path) -> None:
    names = [str(conll(tmp_path / f"{i}.conll", 10 + i, seed=i)) for i in range(3)]
    task = task_of_files(*names)
    assert [len(task.parts[p]) for p in ("train", "dev", "test")] == [10, 11, 12]
    two = task_of_files(*names[:2])
    assert two.tested == "dev" and two.labels().test.tolist() == list(range(10, 21))
    assert two.notes == [SAME] and not task.notes


def test_a_limit_is_of_what_learns(tmp_path: Path) -> None:
    names = [str(conll(tmp_path / f"{i}.conll", 30 + i, seed=i)) for i in range(3)]
    sizes = [len(task_of_files(*names, limit=10).parts[p]) for p in ("train", "dev", "test")]
    assert sizes == [10, 31, 32]
    one = task_of_files(str(conll(tmp_path / "a.conll", 200)), limit=10)
    assert [len(one.parts[p]) for p in ("train", "dev", "test")] == [10, 20, 20]


def records(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_texts_pairs_and_words_of_jsonl(tmp_path: Path) -> None:
    texts = [{"text": f"text {i}", "label": "ab"[i % 2]} for i in range(40)]
    assert task_of_files(records(tmp_path / "t.jsonl", texts)).shape == "texts"
    pairs = [{"premise": f"a {i}", "hypothesis": f"b {i}", "label": i % 2} for i in range(40)]
    task = task_of_files(records(tmp_path / "p.jsonl", pairs))
    assert task.shape == "pairs" and task.labels().rows.shape == (40, 2)
    assert task.items[3].texts[0].startswith("a") and task.classes == ["0", "1"]
    words = [{"words": ["a", f"b{i}"], "tags": ["X", "Y"]} for i in range(40)]
    assert task_of_files(records(tmp_path / "w.jsonl", words)).shape == "words"


def test_conllu_has_parts_of_speech(tmp_path: Path) -> None:
    line = "{0}\tw{1}\t_\t{2}\tX{2}\t_\t{3}\tdep\t_\t_\n"
    text = ""
    for i in range(30):
        text += line.format(1, i, "NOUN", 2) + line.format(2, i + 7, "VERB", 0) + "\n"
    (tmp_path / "a.conllu").write_text(text)
    assert task_of_files(str(tmp_path / "a.conllu")).classes == ["NOUN", "VERB"]
    other = ProbeFileOptions({"tags": "xpos"})
    assert task_of_files(str(tmp_path / "a.conllu"), reading=other).classes == ["XNOUN", "XVERB"]
    with refuses(UnknownName, "CoNLL-U"):
        task_of_files(str(tmp_path / "a.conllu"), reading=ProbeFileOptions({"tags": "4"}))


def test_refusals(tmp_path: Path) -> None:
    one, few = conll(tmp_path / "one.conll", 30, tags="X"), conll(tmp_path / "few.conll", 3)
    two, other = conll(tmp_path / "two.conll", 30), conll(tmp_path / "z.conll", 5, "XZ")
    empty = conll(tmp_path / "empty.conll", 0)
    same = records(tmp_path / "same.jsonl", [{"text": "t", "label": "X"}] * 30)
    bare = records(tmp_path / "n.jsonl", [{"text": f"t {i}"} for i in range(30)])
    texts = [{"text": f"t{i}", "label": "XY"[i % 2]} for i in range(9)]
    for files, names in (
        ([one], ["one.conll", "'X'", "2 classes"]),
        ([same], ["same.jsonl", "'X'", "2 classes"]),
        ([two, other], ["'Z'", "dev"]),
        ([few], ["few.conll", "held out"]),
        ([empty], ["empty.conll", "no example"]),
        ([two, "", two], ["--valid"]),
        ([bare], ["n.jsonl", "no label"]),
        ([two, records(tmp_path / "t.jsonl", texts)], ["words", "texts"]),
    ):
        with refuses(InputError, *names):
            task_of_files(*map(str, files))


# -- plain text

SENTENCE = ["The", "2", "old", "friends", ",", "Ann", "and", "I", ",", "walked", "."]


def test_labels_of_words() -> None:
    assert capital(SENTENCE) == (
        None, None, "small", "small", None, "capital", "small", "capital", None, "small", None,
    )  # fmt: skip
    assert number(SENTENCE)[:5] == ("word", "number", "word", "word", None)
    assert punctuation_next(SENTENCE) == (
        "word", "word", "word", "mark", None, "word", "word", "mark", None, "mark", None,
    )  # fmt: skip
    assert word_length(SENTENCE)[:5] == ("1-3", None, "1-3", "7-9", None)
    assert position(SENTENCE * 2)[:9] == ("1", "2", "3-4", "3-4", *["5-8"] * 4, "9-16")
    assert position(SENTENCE * 2)[16] == "17+"
    assert [class_of_number(n, 3, 6) for n in (1, 3, 4, 7)] == ["1-3", "1-3", "4-6", "7+"]


def test_words_of_several_scripts() -> None:
    assert words_of("It's 3.5, don't!") == ["It's", "3", ".", "5", ",", "don't", "!"]
    assert words_of("他用Python3写。") == ["他", "用", "Python3", "写", "。"]
    assert joined(["他", "用", "Python3", "写"]) == "他用 Python3 写"


def text(file: Path, documents: int = 40, each: int = 5) -> str:
    """Documents of sentences that speak of one thing."""
    dice = keyed(0, "text")
    names = ["river", "engine", "garden", "letter"]
    paragraphs = []
    for i in range(documents):
        lines = []
        for j in range(each):
            more = " ".join(["and", "the", names[i % 4]] * int(dice.integers(0, 9)))
            lines.append(f"The {names[i % 4]} of Ann number {i * each + j}, it is good {more}.")
        paragraphs.append(" ".join(lines))
    file.write_text("\n\n".join(paragraphs) + "\n")
    return str(file)


@pytest.mark.parametrize("name", NAMES)
def test_every_automatic_task_has_several_classes(name: str, tmp_path: Path) -> None:
    source = text(tmp_path / "a.txt")
    if name == "number":  # beside words
        assert automatic(name, source).classes == ["number", "word"]
    task = automatic(name, source)
    assert len(task.classes) >= 2 and all(task.parts.values())
    assert automatic(name, source).parts == task.parts
    texts = [item.texts[0] if task.shape == "texts" else item.texts for item in task.items]
    assert len(set(texts)) == len(texts)


def test_halves_are_halves_in_every_part(tmp_path: Path) -> None:
    source = text(tmp_path / "a.txt")
    for name, classes in (("word-order", "kept"), ("same-document", "together")):
        for counts in automatic(name, source).counts.values():
            assert 0.3 < counts[classes] / counts.total() < 0.7


def test_swapped_neighbours_and_other_documents(tmp_path: Path) -> None:
    source = text(tmp_path / "a.txt")
    whole = {joined(s.words): s for s in sampled(source, "train", 1000, 0)}
    for item in automatic("word-order", source).items:
        assert (item.texts[0] in whole) == (item.labels == ("kept",))
        if item.labels == ("swapped",):
            assert any(Counter(item.texts[0].split()) == Counter(x.split()) for x in whole)
    for item in automatic("same-document", source).items:
        numbers = [int(t.split("number ")[1].split(",")[0]) for t in item.texts]
        together = numbers[0] // 5 == numbers[1] // 5
        assert together == (item.labels == ("together",))


def test_previous_word_is_the_one_before(tmp_path: Path) -> None:
    task = automatic("previous-word", text(tmp_path / "a.txt"))
    for item in task.items:
        for place, label in enumerate(item.labels):
            assert label is None or item.texts[place - 1].lower() == label
    assert len(task.classes) <= 20 and "the" in task.classes


def test_a_sample_is_drawn_from_everywhere_and_bounded(tmp_path: Path) -> None:
    source = text(tmp_path / "a.txt", documents=60)
    few = sampled(source, "train", 30, 0)
    assert len(few) == 30 and len({s.document // 10 for s in few}) == 6
    assert few != sampled(source, "train", 30, 1)
    every = sampled(source, "train", 1000, 0)
    assert every[:30] == few and len({s.text for s in every}) == len(every)


def test_prepared_text_is_read_as_well(tmp_path: Path) -> None:
    cutter = tokenizer()
    writer = CorpusWriter(tmp_path, "train", "uint16")
    words = ["the", "film", "was", "good", "unhappy", "a", "plot", "goodness"]
    for i in range(60):
        dice = keyed(i, "prepared")
        rows = [cutter.encode(" ".join(dice.choice(words, 6)), special=False) for _ in range(2)]
        writer.add([*rows[:-1], [*rows[-1], 3]], 40)
    splits = {"train": writer.close()}
    cutter.save(tmp_path)
    special = vars(Special(3, 0, 1, None, 2, 3, 4))
    write_marker(tmp_path, {"splits": splits, "special": special, "dtype": "uint16",
                            "vocab_size": len(WORDS)})  # fmt: skip
    task = automatic("position", str(tmp_path))
    assert task.classes == ["1", "2", "3-4", "5-8"] and len(task.items) > 50
    with refuses(UnknownName, "split", "nowhere"):
        automatic("position", str(tmp_path), split="nowhere")


ONE = " ".join(f"The cat number {i} sat here." for i in range(60))
LOW = "\n\n".join(f"some words of kind {'abcdefghij'[i % 10] * (i // 10 + 1)}." for i in range(60))


@pytest.mark.parametrize(
    ("name", "content", "error", "names"),
    [
        ("capitals", ONE, UnknownName, ["'capitals'", "capital"]),
        ("capital", "Only one sentence is here.\n", InputError, ["20"]),
        ("capital", "", InputError, ["a.txt", "empty"]),
        ("same-document", ONE, InputError, ["'same-document'", "one document"]),
        ("capital", LOW, InputError, ["auto:capital", "'small'", "2 classes"]),
    ],
)
def test_refused_texts(
    tmp_path: Path, name: str, content: str, error: type[RegardError], names: list[str]
) -> None:
    (tmp_path / "a.txt").write_text(content)
    with refuses(error, *names):
        automatic(name, str(tmp_path / "a.txt"))
