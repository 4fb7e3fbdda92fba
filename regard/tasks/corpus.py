"""Labelled examples in the place of a corpus: read, divided, with the tokenizer of their model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, FormatError, InputError
from regard.data.corpus import Special
from regard.data.examples import Example
from regard.data.problems import Problems
from regard.data.special_tokens import special_of
from regard.data.tokenizer import Tokenizer
from regard.tasks import read
from regard.tasks import task as find
from regard.tasks.task_tokens import marked
from regard.training.recipe import Recipe


@dataclass
class Examples:
    """What an objective for a task is built from; `labels` are those of the training data."""

    task: str
    examples: Sequence[Example]
    tokenizer: Tokenizer
    labels: list[str] = field(default_factory=list)
    split: str = "test"
    notes: list[str] = field(default_factory=list)  # what a user should know
    path: str = ""
    digest: str = ""  # of the files

    def __post_init__(self) -> None:
        self.special: Special = special_of(self.tokenizer, self.path or "the model")
        self.vocabulary = len(self.tokenizer)

    def __len__(self) -> int:
        return len(self.examples)


def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer of a model directory, which its examples must be cut with."""
    if not Path(model, "config.json").is_file():
        raise ConfigError(
            f"{model} is no model directory; a task is learned by a model that has read before: "
            "give a run of 'regard train', or a published directory"
        )
    found = Tokenizer.open(Path(model))
    if found is None:
        raise FormatError(f"{model} has no tokenizer, so no text can be given to it")
    return found


def labelled_data(recipe: Recipe, split: str) -> Examples:
    """The examples of a recipe's split, "train" or "valid". Labels that the recipe leaves open are
    those of the examples that learn.
    """
    given, task = recipe.examples, find(recipe.examples.task or "")
    problems = Problems()
    own = given.valid if not given.folds else None
    if own and split == "valid":
        found = read_all(own, recipe, problems)
    else:
        found = read_all(recipe.data, recipe, problems)
        if not own:
            inside = divide(found, given.share, given.folds or 0, given.fold)
            found = [
                e for e, valid in zip(found, inside, strict=True) if valid == (split == "valid")
            ]
    if given.more and split == "train":
        found = [*found, *read_all(given.more, recipe, problems)]
    found = labelled_alone(found, recipe, problems)
    digest = digest_of(recipe)
    labels = list(given.labels or [])
    if not labels and split == "train":
        labels = task.labels_in(found)
    twice = split == "valid" and not own  # the file has been read to learn from
    notes = [] if twice else problems.notes(split)
    task.check_labels(found, labels, (own if split == "valid" else None) or recipe.data)
    asked = recipe.objective
    family, marks = str(asked.get("family", "")), bool(asked.get("marks", True))
    tokenizer = marked(tokenizer_of(recipe.model), family, task.name, marks, recipe.model)
    return Examples(task.name, found, tokenizer, labels, split, notes, recipe.model, digest)


def labelled_alone(found: list[Example], recipe: Recipe, problems: Problems) -> list[Example]:
    """Some without a label among others with one are an error, as 'regard check' says."""
    given = recipe.examples
    bare = [example for example in found if not example.labelled]
    if not bare or len(bare) == len(found) or find(given.task or "").partly:
        return found
    told = f"{len(bare):,} of {len(found):,} examples have no label"
    if "missing-label" not in given.skip:
        raise InputError(
            f"{bare[0].place}: {told}; give them one, or leave them out with --skip missing-label"
        )
    for example in bare:
        problems.add(example.place, "missing-label", "no label")
    return [example for example in found if example.labelled]


def read_all(name: str, recipe: Recipe, problems: Problems) -> list[Example]:
    """`examples.form` is that of the data, and of other files that end like it."""
    given = recipe.examples
    options: dict[str, Any] = {
        "fields": {role: str(named) for role, named in given.fields.items()},
        "classes": given.classes,
        "header": given.header == "yes" if given.header else None,
        "download": given.download,
    }
    task = given.task or ""
    files, data = files_of(name, task), files_of(recipe.data, task)
    if given.form and [Path(f).suffixes for f in files] == [Path(f).suffixes for f in data]:
        options["form"] = given.form
    return read(files, task, skip=given.skip, problems=problems, **options)


def files_of(name: str, task: str) -> list[str]:
    """A file, or two whose lines belong together ("a.en,a.zh")."""
    if find(task).in_two_files and "," in name and not Path(name).exists():
        return name.split(",")
    return [name]


# -- dividing


def divide(examples: Sequence[Example], share: float, folds: int, fold: int) -> list[bool]:
    """Which examples validate: a share of them, or one part of several.

    Classes keep their shares, examples of one text stay together, and neither a seed nor the order
    of the file decides.
    """
    if folds and not (2 <= folds <= len(examples) and 0 <= fold < folds):
        raise ConfigError(
            f"part {fold} of {folds} was asked for, and there are {len(examples):,} examples; "
            "choose at least 2 parts and at most one for each example"
        )
    if not folds and not 0 <= share < 1:
        raise ConfigError(f"examples.share is {share:g}; it must be 0 or more and below 1")
    groups: dict[bytes, list[int]] = {}
    for i, example in enumerate(examples):
        groups.setdefault(fingerprint(example), []).append(i)
    classes = {key: min(examples[i].stratum() for i in held) for key, held in groups.items()}
    order = sorted(groups, key=lambda key: (classes[key], key))
    found = [False] * len(examples)
    for place, key in enumerate(order):
        if folds:
            valid = place % folds == fold
        else:
            valid = int((place + 1) * share + 0.5) > int(place * share + 0.5)
        for i in groups[key]:
            found[i] = valid
    return found


def fingerprint(example: Example) -> bytes:
    """The same for examples that must not be divided, such as those of the same text."""
    return hashlib.blake2b(example.group().encode(), digest_size=8).digest()


# -- the files of a run


def digest_of(recipe: Recipe) -> str:
    """A run goes on only with the data it began with."""
    given = recipe.examples
    digest = hashlib.blake2b(digest_size=16)
    names = [name for name in (recipe.data, given.valid, given.more) if name]
    for name in (file for each in names for file in files_of(each, given.task or "")):
        if Path(name).is_file():
            with Path(name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
    if given.digest and given.digest != digest.hexdigest():
        raise InputError(
            f"{recipe.data} (or what validates) has changed since this run began; it can only go "
            "on with the same data: restore it, or begin a new run"
        )
    return digest.hexdigest()
