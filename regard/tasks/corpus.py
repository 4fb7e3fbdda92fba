"""Labeled examples as the corpus of a run: they are read and split here, and come with the
tokenizer of their model."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, FormatError, InputError
from regard.data.corpus import Special
from regard.data.examples import Example, TextPair
from regard.data.examples import fingerprint as text_fingerprint
from regard.data.problems import Problems
from regard.data.special_tokens import special_of
from regard.data.tokenizer import Tokenizer
from regard.tasks import read
from regard.tasks import task as find
from regard.tasks.task_tokens import marked
from regard.training.recipe import Recipe


@dataclass
class TaskCorpus:
    """The data of an objective of a task. `labels` are the labels of the training data."""

    task: str
    examples: Sequence[Example]
    tokenizer: Tokenizer
    labels: list[str] = field(default_factory=list)
    split: str = "test"
    notes: list[str] = field(default_factory=list)  # what the user should know about the data
    path: str = ""
    digest: str = ""  # the hash of the files

    def __post_init__(self) -> None:
        self.special: Special = special_of(self.tokenizer, self.path or "the model")
        self.vocab_size = len(self.tokenizer)

    def __len__(self) -> int:
        return len(self.examples)


def tokenizer_of(model: str) -> Tokenizer:
    """Opens the tokenizer of a model directory; the examples must be tokenized with it."""
    if not Path(model, "config.json").is_file():
        raise ConfigError(
            f"{model} is no model directory; fine-tuning starts from a pretrained model: give a "
            "run of 'regard train', or the directory of a published model"
        )
    tokenizer = Tokenizer.open(Path(model))
    if tokenizer is None:
        raise FormatError(
            f"{model} has no tokenizer, so it cannot read text; add its tokenizer.json"
        )
    return tokenizer


def labeled_data(recipe: Recipe, split: str) -> TaskCorpus:
    """Returns the examples of a split of the recipe, "train" or "valid". If the recipe names no
    labels, they are the labels of the training examples."""
    options, task = recipe.examples, find(recipe.examples.task or "")
    problems = Problems()
    examples = splits_of(recipe, problems, [split])[split]
    examples = drop_unlabeled(examples, recipe, problems)
    digest = digest_of(recipe)
    labels = list(options.labels or [])
    if not labels and split == "train":
        labels = task.labels_in(examples)
    own = split == "valid" and bool(options.valid) and not options.folds
    notes = problems.notes(split) if own or split == "train" else []  # no note is given twice
    task.check_labels(examples, labels, (options.valid if own else None) or recipe.data)
    chosen = recipe.objective
    family, marks = str(chosen.get("family", "")), bool(chosen.get("marks", True))
    tokenizer = marked(tokenizer_of(recipe.model), family, task.name, marks, recipe.model)
    return TaskCorpus(task.name, examples, tokenizer, labels, split, notes, recipe.model, digest)


def splits_of(
    recipe: Recipe, problems: Problems, wanted: Collection[str] = ("train", "valid")
) -> dict[str, list[Example]]:
    """Returns the training set and the validation set, as far as they are wanted. A file that is
    not needed for them is not read."""
    options, splits = recipe.examples, {}
    own = options.valid if not options.folds else None
    if "train" in wanted or not own:
        examples = read_all(recipe.data, recipe, problems)
        inside = [False] * len(examples)
        if not own:
            inside = divide(examples, options.valid_fraction, options.folds or 0, options.fold)
        both = list(zip(examples, inside, strict=True))
        splits = {"train": [e for e, x in both if not x], "valid": [e for e, x in both if x]}
    if own and "valid" in wanted:
        splits["valid"] = read_all(own, recipe, problems)
    if options.extra_data and "train" in wanted:
        splits["train"] += read_all(options.extra_data, recipe, problems)
    return splits


def drop_unlabeled(examples: list[Example], recipe: Recipe, problems: Problems) -> list[Example]:
    """Returns the labeled examples. A mix of labeled and unlabeled examples is an error, as in
    'regard check', unless the recipe skips it."""
    options = recipe.examples
    bare = [example for example in examples if not example.labeled]
    if not bare or len(bare) == len(examples) or find(options.task or "").partly:
        return examples
    problem = f"{len(bare):,} of {len(examples):,} examples have no label"
    if "missing-label" not in options.skip:
        raise InputError(
            f"{bare[0].place}: {problem}; give them one, or leave them out with --skip "
            "missing-label"
        )
    for example in bare:
        problems.add(example.place, "missing-label", "no label")
    return [example for example in examples if example.labeled]


def read_all(name: str, recipe: Recipe, problems: Problems) -> list[Example]:
    """Reads the examples of one file. `examples.format` is the format of the data, and of other
    files that have the same ending."""
    settings = recipe.examples
    options: dict[str, Any] = {
        "fields": {role: str(named) for role, named in settings.fields.items()},
        "classes": settings.classes,
        "header": settings.header == "yes" if settings.header else None,
        "download": settings.download,
    }
    if settings.max_bytes is not None:
        options["max_bytes"] = settings.max_bytes
    task = settings.task or ""
    files, data = files_of(name, task), files_of(recipe.data, task)
    if settings.format and [Path(f).suffixes for f in files] == [Path(f).suffixes for f in data]:
        options["form"] = settings.format
    return read(files, task, skip=settings.skip, problems=problems, **options)


def files_of(name: str, task: str) -> list[str]:
    """Returns the file, or the two files whose lines belong together ("a.en,a.zh")."""
    if find(task).in_two_files and "," in name and not Path(name).exists():
        return name.split(",")
    return [name]


# -- dividing


def divide(examples: Sequence[Example], share: float, folds: int, fold: int) -> list[bool]:
    """Returns which examples are the validation set: a share of them, or one fold of several.

    Classes keep their shares, examples of one text stay together, and neither a seed nor the order
    of the file decides. For pairs of texts, no sentence (source or target) is in both splits.
    """
    if not folds and not 0 <= share < 1:
        raise ConfigError(f"examples.valid_fraction is {share:g}; it must be 0 or more and below 1")
    pairs = [example for example in examples if isinstance(example, TextPair)]
    if pairs:
        return divide_pairs(pairs, share, folds, fold)
    if folds and not (2 <= folds <= len(examples) and 0 <= fold < folds):
        raise ConfigError(
            f"part {fold} of {folds} was asked for, but there are {len(examples):,} examples; "
            "choose at least 2 folds, at most one for each example, and a part from 0"
        )
    groups: dict[bytes, list[int]] = {}
    for i, example in enumerate(examples):
        groups.setdefault(fingerprint(example), []).append(i)
    classes = {key: min(examples[i].stratum() for i in members) for key, members in groups.items()}
    order = sorted(groups, key=lambda key: (classes[key], key))
    inside = [False] * len(examples)
    for place, key in enumerate(order):
        if folds:
            valid = place % folds == fold
        else:
            valid = int((place + 1) * share + 0.5) > int(place * share + 0.5)
        for i in groups[key]:
            inside[i] = valid
    return inside


def divide_pairs(pairs: Sequence[TextPair], share: float, folds: int, fold: int) -> list[bool]:
    """Splits pairs of texts. Pairs that are connected by equal sources or targets stay together."""
    groups = connected(pairs)
    if folds and not (2 <= folds <= len(groups) and 0 <= fold < folds):
        raise ConfigError(
            f"part {fold} of {folds} was asked for, but the {len(pairs):,} pairs make "
            f"{len(groups):,} groups that share no sentence; choose at least 2 folds, at most one "
            "for each group, and a part from 0"
        )
    if folds:
        chosen = part_of(groups, folds, fold)
    else:
        chosen = share_of(groups, int(len(pairs) * share + 0.5)) if share else []
    if share and not folds and not chosen and len(pairs) > 1:
        raise InputError(
            f"all {len(pairs):,} pairs are connected by equal sources or targets, so the "
            "validation set would overlap the training set; give a validation file (--valid), or "
            "set examples.valid_fraction=0"
        )
    inside = [False] * len(pairs)
    for group in chosen:
        for i in group:
            inside[i] = True
    return inside


def connected(pairs: Sequence[TextPair]) -> list[list[int]]:
    """Groups the pairs that share a text. The order of the groups depends on their texts alone."""
    parent = list(range(len(pairs)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    seen: dict[bytes, int] = {}
    keys = []
    for i, pair in enumerate(pairs):
        sides = [text_fingerprint(text) for _, text in pair.leaks()]
        keys.append(b"".join(sides))
        for side in sides:
            parent[root(i)] = root(seen.setdefault(side, i))
    groups: dict[int, list[int]] = {}
    for i in range(len(pairs)):
        groups.setdefault(root(i), []).append(i)
    return sorted(groups.values(), key=lambda group: min(keys[i] for i in group))


def share_of(groups: list[list[int]], wanted: int) -> list[list[int]]:
    """Chooses groups with about `wanted` pairs in all. It chooses at least one if another is left
    to train on."""
    chosen: list[list[int]] = []
    for group in groups:
        if len(group) <= wanted and len(chosen) + 1 < len(groups):
            chosen.append(group)
            wanted -= len(group)
    if not chosen and len(groups) > 1:
        chosen = [min(groups, key=len)]
    return chosen


def part_of(groups: list[list[int]], folds: int, fold: int) -> list[list[int]]:
    """Returns one of `folds` parts of about equal size: each group, the largest first, goes to the
    smallest part."""
    parts: list[list[list[int]]] = [[] for _ in range(folds)]
    sizes = [0] * folds
    for group in sorted(groups, key=len, reverse=True):
        least = sizes.index(min(sizes))
        parts[least].append(group)
        sizes[least] += len(group)
    return parts[fold]


def fingerprint(example: Example) -> bytes:
    """Returns a hash that is equal for examples that must stay together, such as of one text."""
    return hashlib.blake2b(example.group().encode(), digest_size=8).digest()


# -- the files of a run


def digest_of(recipe: Recipe) -> str:
    """Returns a hash of the data files. A run can be resumed only with the data it began with."""
    options = recipe.examples
    digest = hashlib.blake2b(digest_size=16)
    names = [name for name in (recipe.data, options.valid, options.extra_data) if name]
    for name in (file for each in names for file in files_of(each, options.task or "")):
        if Path(name).is_file():
            with Path(name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
    if options.digest and options.digest != digest.hexdigest():
        raise InputError(
            f"{recipe.data} (or the validation data) has changed since this run began; a run is "
            "resumed only with the same data: restore it, or start a new run"
        )
    return digest.hexdigest()
