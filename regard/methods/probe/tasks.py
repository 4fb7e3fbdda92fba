"""The tasks of probes: words, texts or pairs of texts with labels, divided into three parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import InputError, UnknownName
from regard.data.examples import LabeledExample, TaggedExample
from regard.data.files import TextFile
from regard.data.problems import Problems
from regard.data.readers import MOST
from regard.data.readers import ExampleReader as FileReader
from regard.data.records import json_lines
from regard.methods.probe.control import control_labels
from regard.methods.probe.plan import LIMIT
from regard.methods.probe.probes import IGNORED, ProbeLabels
from regard.methods.probe.reader import StateReader, TokenRow
from regard.methods.probe.trees import FIELDS, read_trees
from regard.tasks import read
from regard.tasks import task as task_named
from regard.tasks.corpus import divide

PARTS = ("train", "dev", "test")
HELD_OUT = 0.2  # the share of one file for validation and test, half for each
WORDS, TEXTS = "tag", "classify"  # the tasks whose files a probe reads
UD = (".conllu", ".conll-u")
SAME = "measured on the data of --valid, which also told when to stop; give --test for others"


@dataclass(frozen=True)
class ProbeItem:
    """Words with one label each (None: no label), or one text or two texts with one label."""

    texts: tuple[str, ...]
    labels: tuple[str | None, ...]

    @property
    def known(self) -> list[str]:
        return [label for label in self.labels if label is not None]


@dataclass
class ProbeTask:
    """A task with its three parts. `shape` says what an item is: words, texts or pairs."""

    name: str
    shape: str
    parts: dict[str, list[ProbeItem]]  # train, dev, test
    notes: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    tested: str = "test"  # the part that the metrics are measured on

    @property
    def items(self) -> list[ProbeItem]:
        return [item for part in PARTS for item in self.parts[part]]

    def rows(self, reader: StateReader) -> tuple[list[TokenRow], int]:
        """Returns the rows that the model reads, and how many vectors they give."""
        if self.shape == "words":
            sentences = [item.texts for item in self.items]
            return reader.words(sentences), sum(map(len, sentences))
        texts = [text for item in self.items for text in item.texts]
        return reader.texts(texts), len(texts)

    def labels(self) -> ProbeLabels:
        """Returns the class codes of all units that have a label."""
        codes = {label: code for code, label in enumerate(self.classes)}
        items = self.items
        table = [[IGNORED if x is None else codes[x] for x in item.labels] for item in items]
        sizes = np.array([sum(code != IGNORED for code in row) for row in table])
        flat = np.array([code for row in table for code in row], np.int64)
        rows: np.ndarray
        if self.shape == "pairs":
            rows = np.arange(2 * len(items)).reshape(-1, 2)
        else:
            rows = np.flatnonzero(flat != IGNORED)
        ends = np.cumsum([len(self.parts[part]) for part in PARTS])
        own = zip(PARTS, np.split(np.arange(len(items)), ends[:2]), strict=True)
        labeled = {part: places[sizes[places] > 0] for part, places in own}
        return ProbeLabels(
            rows, flat[flat != IGNORED], np.concatenate([[0], np.cumsum(sizes)]),
            len(self.classes), labeled["train"], labeled["dev"], labeled[self.tested],
        )  # fmt: skip

    def control(self, seed: int) -> ProbeLabels:
        """Returns the same units with labels that depend only on their word types."""
        labels = self.labels()
        words = [word for item in self.items for word, label in
                 zip(item.texts, item.labels, strict=True) if label is not None]  # fmt: skip
        learned = np.zeros(len(labels.codes), np.bool_)
        for item in labels.train.tolist():
            learned[labels.edges[item] : labels.edges[item + 1]] = True
        codes = control_labels(words, labels.codes, learned, labels.classes, seed)
        return replace(labels, codes=codes)

    @property
    def counts(self) -> dict[str, Counter[str]]:
        return {
            part: Counter(label for item in items for label in item.known)
            for part, items in self.parts.items()
        }


# -- from files


@dataclass(frozen=True)
class ProbeFileOptions:
    """How to read labeled files, as the options of the command line say it."""

    fields: Mapping[str, str] = field(default_factory=dict)
    form: str | None = None
    header: bool | None = None
    download: bool = False
    skip: Collection[str] = ()
    max_bytes: int = MOST


def task_of_files(
    data: str,
    valid: str | None = None,
    test: str | None = None,
    reading: ProbeFileOptions | None = None,
    limit: int = LIMIT,
) -> ProbeTask:
    """Builds a task from labeled files. The limit applies to the training part."""
    notes: list[str] = []
    how = reading or ProbeFileOptions()
    rows, tested = in_parts(
        data, valid, test, lambda name, part: examples(name, how, notes, part), notes
    )
    parts = {part: [item_of(e) for e in rows.get(part, [])] for part in PARTS}
    few = thinned(parts["train"], limit)
    seen = {label for item in few for label in item.known}
    for item in parts["train"]:  # the limit must not remove the last example of a label
        if not seen.issuperset(item.known):
            seen.update(item.known)
            few.append(item)
    parts["train"] = few
    shapes = {shape_of(e) for own in rows.values() for e in own}
    if len(shapes) != 1:
        raise InputError(f"{data}, --valid and --test hold examples of different kinds "
                         f"({', '.join(sorted(shapes))}); give files of one kind")  # fmt: skip
    return with_classes(ProbeTask(Path(data).name, shapes.pop(), parts, notes, tested=tested))


def in_parts(
    data: str,
    valid: str | None,
    test: str | None,
    read: Callable[[str, str], list[Any]],  # (file, part) -> rows
    notes: list[str],
    example_of: Callable[[Any], Any] = lambda row: row,
) -> tuple[dict[str, list[Any]], str]:
    """Returns the rows of the parts, and which part is tested. Without a validation file, a fifth
    of the data is held out: half of it validates and half tests. With a validation file, it also
    tests, unless there is a test file."""
    if test and not valid:
        raise InputError(f"--test {test} is given without --valid; a probe also needs data that "
                         "decide when to stop: give --valid")  # fmt: skip
    files = zip(PARTS, (data, valid, test), strict=True)
    rows = {part: read(name, part) for part, name in files if name}
    if not valid:
        return split_rows(rows["train"], data, example_of), "test"
    if not test:
        notes.append(SAME)
    return rows, "test" if test else "dev"


def thinned(rows: Sequence[Any], count: int) -> list[Any]:
    """Returns at most `count` rows, evenly spaced."""
    if not count or len(rows) <= count:
        return list(rows)
    return [rows[i * len(rows) // count] for i in range(count)]


def examples(name: str, reading: ProbeFileOptions, notes: list[str], part: str) -> list[Any]:
    """Reads tagged or classified examples, whichever the file holds."""
    problems = Problems()
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if reading.form is None and any(suffix in UD for suffix in suffixes):
        chosen = reading.fields.get("tags", FIELDS[0])
        if chosen not in FIELDS:
            raise UnknownName("field of CoNLL-U", chosen, FIELDS)
        trees = read_trees(name, reading.skip, problems, reading.max_bytes)
        rows: list[Any] = [
            TaggedExample(tree.words, tree.tags(chosen), tree.place) for tree in trees
        ]
    else:
        task = WORDS if tagged(name, reading) else TEXTS
        rows = read(name, task, problems=problems, **vars(reading))
    notes += problems.notes(part)
    for example in rows:
        label = example.tags if isinstance(example, TaggedExample) else example.label
        if label is None:
            raise InputError(
                f"{example.place}: there is no label; a probe needs one for each example"
            )
    if part == "train":
        check_several({label for e in rows for label in item_of(e).known}, Path(name).name)
    return rows


def tagged(name: str, reading: ProbeFileOptions) -> bool:
    """Returns whether a file holds words with tags. A file of columns does; for a file of records,
    the first record decides."""
    task = task_named(WORDS)
    if reading.fields.keys() & {*task.needed, *task.answers}:
        return True
    form = reading.form or FileReader(name, task).forms[name]
    if form == "jsonl":
        for _, values in json_lines(TextFile(Path(name), name, Problems())):
            names = [name for role in task.needed for name in task.roles[role].split()]
            return any(str(key).lower() in names for key in values)
    return form == "conll" and ".tsv" not in [x.lower() for x in Path(name).suffixes]


def shape_of(example: Any) -> str:
    if isinstance(example, TaggedExample):
        return "words"
    return "texts" if example.pair is None else "pairs"


def item_of(example: Any) -> ProbeItem:
    if isinstance(example, TaggedExample):
        return ProbeItem(example.words, example.tags or ())
    assert isinstance(example, LabeledExample)
    texts = (example.text,) if example.pair is None else (example.text, example.pair)
    return ProbeItem(texts, (str(example.label),))


def split_rows(
    rows: Sequence[Any], name: str, example_of: Callable[[Any], Any]
) -> dict[str, list[Any]]:
    """Divides the rows of one file into three parts. A row with a label that training would not see
    goes to training."""

    def known(row: Any) -> list[str]:
        return item_of(example_of(row)).known

    held_out = divide([example_of(row) for row in rows], HELD_OUT, 0, 0)
    train = [e for e, out in zip(rows, held_out, strict=True) if not out]
    rest = [e for e, out in zip(rows, held_out, strict=True) if out]
    seen = {label for e in train for label in known(e)}
    rare = [e for e in rest if not seen.issuperset(known(e))]
    rest = [e for e in rest if seen.issuperset(known(e))]
    if len(rest) < 2:
        raise InputError(
            f"{name} has {len(rows)} examples, of which {len(rest)} can be held out; a probe "
            "needs data for early stopping and other data to test it: give more, or --valid"
        )
    tests = divide([example_of(row) for row in rest], 0.5, 0, 0)
    return {
        "train": [*train, *rare],
        "dev": [e for e, test in zip(rest, tests, strict=True) if not test],
        "test": [e for e, test in zip(rest, tests, strict=True) if test],
    }


# -- refusals


def check_several(labels: Collection[str], name: str) -> None:
    if len(labels) == 1:
        (only,) = labels
        raise InputError(f"{name}: every label to learn from is {only!r}; a probe needs at least 2 "
                         "classes")  # fmt: skip


def with_classes(task: ProbeTask) -> ProbeTask:
    """Returns the task with its classes, which are those of the training part. Raises InputError if
    no probe can learn or test it."""
    counts = task.counts
    for part in ("train", "dev", task.tested):
        if not counts[part]:
            what = {"train": "to learn from", "dev": "to validate with"}.get(part, "to test with")
            raise InputError(f"{task.name}: there is no data {what}; give more data or other files")
    check_several(counts["train"], task.name)
    task.classes = sorted(counts["train"])
    for part in ("dev", task.tested):
        unseen = [label for label in counts[part] if label not in counts["train"]]
        if unseen:
            raise InputError(
                f"{task.name}: the label {unseen[0]!r} of the {part} data does not occur in the "
                f"training data, which has {len(task.classes)} ({', '.join(task.classes[:8])}"
                f"{', …' if len(task.classes) > 8 else ''}); add training examples of it"
            )
    return task
