"""Labelled examples in the place of a corpus: read, divided, with the tokenizer of their model."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import ConfigError, FormatError, InputError
from regard.data.check import ENTITY, ranked
from regard.data.corpus import Special
from regard.data.example_views import is_labelled, labels_of, leaks
from regard.data.examples import KINDS, Example, Labelled, Problems, Question, Tagged
from regard.data.readers import SIDES, read
from regard.data.special_tokens import special_of
from regard.data.tags import OUTSIDE, detect, split
from regard.data.tags import labels as tags_of
from regard.data.tokenizer import Tokenizer
from regard.tasks.task_tokens import marked

if TYPE_CHECKING:
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


def examples_for(recipe: Recipe, split: str) -> Examples:
    """The examples of a recipe's split, "train" or "valid", its labels settled."""
    given = recipe.examples
    problems = Problems()
    held = {"train": recipe.data, "valid": given.valid}
    own = bool(given.valid) and not given.folds
    if own and split == "valid":
        found = read_all(held["valid"], recipe, problems)
    else:
        found = read_all(recipe.data, recipe, problems)
        if not own:
            inside = divide(found, given.share, given.folds, given.fold)
            found = [
                e for e, valid in zip(found, inside, strict=True) if valid == (split == "valid")
            ]
    if given.more and split == "train":
        found = [*found, *read_all(given.more, recipe, problems)]
    found = labelled_alone(found, recipe, problems)
    settle_digest(recipe)
    if not given.labels and split == "train":
        given.labels = labels_in(found, given.task)
    twice = split == "valid" and not own  # the file has been read to learn from
    notes = [] if twice else noted(problems, split)
    check_labels(found, given.labels, held[split] or recipe.data, given.task)
    asked = recipe.objective
    family, marks = str(asked.get("family", "")), bool(asked.get("marks", True))
    tokenizer = marked(tokenizer_of(recipe.model), family, given.task, marks, recipe.model)
    made = Examples(given.task, found, tokenizer, given.labels, split, notes)
    made.path = recipe.model
    return made


def labelled_alone(found: list[Example], recipe: Recipe, problems: Problems) -> list[Example]:
    """Some without a label among others with one are an error, as 'regard check' says."""
    given = recipe.examples
    bare = [example for example in found if not is_labelled(example)]
    if not bare or len(bare) == len(found) or given.task == "answer":
        return found
    told = f"{len(bare):,} of {len(found):,} examples have no label"
    if "missing-label" not in given.skip:
        raise InputError(
            f"{bare[0].place}: {told}; give them one, or leave them out with --skip missing-label"
        )
    for example in bare:
        problems.add(example.place, "missing-label", "no label")
    return [example for example in found if is_labelled(example)]


def read_all(name: str, recipe: Recipe, problems: Problems) -> list[Example]:
    """`examples.form` is that of the data, and of other files that end like it."""
    given = recipe.examples
    options: dict[str, Any] = {
        "fields": {role: str(named) for role, named in given.fields.items()},
        "classes": given.classes,
        "header": given.header == "yes" if given.header else None,
        "download": given.download,
    }
    files, data = files_of(name, given.task), files_of(recipe.data, given.task)
    if given.form and [Path(f).suffixes for f in files] == [Path(f).suffixes for f in data]:
        options["form"] = given.form
    return read(files, given.task, skip=given.skip, problems=problems, **options)


def files_of(name: str, task: str) -> list[str]:
    """A file, or two whose lines belong together ("a.en,a.zh")."""
    if task in SIDES and "," in name and not Path(name).exists():
        return name.split(",")
    return [name]


def noted(problems: Problems, split: str = "") -> list[str]:
    """What the reader had to say and did not refuse, a line for each kind."""
    told, where = [], f" of the {split} data" if split else ""
    for (severity, kind), count in ranked(problems):
        if severity == "error":
            told.append(f"{count:,} records were left out{where}: {kind} (as --skip {kind} asks)")
        else:
            first = problems.of(severity, kind)[0]
            told.append(f"{KINDS[kind]} ({kind}): {count:,}, the first is {first}")
    return told


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
    classes = {key: min(class_of(examples[i]) for i in held) for key, held in groups.items()}
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
    """The same for examples of the same text; of questions their passage decides."""
    if isinstance(example, Question):
        text = example.passage
    else:
        text = "\0".join(text for _, text in leaks(example))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def class_of(example: Example) -> str:
    """What should be spread evenly: the class, or which entities a sentence holds."""
    if isinstance(example, Tagged):
        tags = set(example.tags or ())
        return " ".join(sorted({split(tag)[1] for tag in tags})) if of_entities(tags) else ""
    found = labels_of(example)
    return found[0] if found else ""


# -- labels


def labels_in(examples: Sequence[Example], task: str) -> list[str]:
    """The classes or tags of the examples, in an order that does not depend on theirs."""
    if task == "tag":
        return tags_in(examples)
    if task in ("choose", "answer", "prefer"):
        return []
    counts = Counter(label for example in examples for label in labels_of(example))
    if not counts and any(isinstance(e, Labelled) and e.label is not None for e in examples):
        return []  # scores
    if len(counts) < 2:
        raise InputError(
            f"the training data has {len(counts)} classes"
            + (f" ({next(iter(counts))!r})" if counts else ", for none of its records has a label")
            + "; to learn a difference takes at least 2"
        )
    whole = all(label.lstrip("-").isdigit() for label in counts)
    return sorted(counts, key=(lambda label: (int(label), label)) if whole else None)


def tags_in(examples: Sequence[Example]) -> list[str]:
    """All tags of the scheme over the kinds of entities that occur, or, where no tag is one of an
    entity, those that occur.
    """
    rows = [e.tags for e in examples if isinstance(e, Tagged) and e.tags is not None]
    found = {tag for row in rows for tag in row}
    if any(map(ENTITY.match, found)):
        check_tags(examples, [])
    if of_entities(found):
        scheme = detect(rows)
        scheme = "bio" if scheme == "iob1" else scheme  # learned as bio: one way to write it
        return tags_of({split(tag)[1] for tag in found if tag != OUTSIDE}, scheme)
    if len(found) < 2:
        raise InputError(
            f"every tag of the training data is {found.pop()!r}; to learn a difference takes at "
            "least 2"
        )
    return sorted(found)


def of_entities(tags: Iterable[str]) -> bool:
    """BIO or its kin? Others, such as parts of speech, are each word's own."""
    return all(map(is_tag, tags))


def is_tag(tag: str) -> bool:
    try:
        split(tag)
    except InputError:
        return False
    return True


def check_tags(examples: Sequence[Example], known: Sequence[str]) -> None:
    """Where the known tags are those of entities all must be."""
    if not of_entities(known):
        return
    for example in examples:
        if isinstance(example, Tagged) and not of_entities(example.tags or ()):
            number, tag = next((i, t) for i, t in enumerate(example.tags or ()) if not is_tag(t))
            raise InputError(
                f"{example.place}: word {number + 1} ({example.words[number]!r}) has the tag "
                f"{tag!r} among tags of entities; expected O, or a letter and a type such as "
                "B-person"
            )


def check_labels(examples: Sequence[Example], known: Sequence[str], path: str, task: str) -> None:
    """Refuses labels that training never saw: no answer of the model could be right."""
    if task == "tag":
        check_tags(examples, known)
    if task not in ("classify", "entail", "similar") or not known:
        return
    for example in examples:
        for label in labels_of(example):
            if label not in known:
                raise InputError(
                    f"{example.place or path}: the label {label!r} does not occur in the training "
                    f"data, which has {', '.join(map(repr, known))}"
                )


# -- the files of a run


def settle_digest(recipe: Recipe) -> None:
    """A run goes on only with the data it began with."""
    given = recipe.examples
    digest = hashlib.blake2b(digest_size=16)
    names = [name for name in (recipe.data, given.valid, given.more) if name]
    for name in (file for each in names for file in files_of(each, given.task)):
        if Path(name).is_file():
            with Path(name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
    if given.digest and given.digest != digest.hexdigest():
        raise InputError(
            f"{recipe.data} (or what validates) has changed since this run began; it can only go "
            "on with the same data: restore it, or begin a new run"
        )
    given.digest = digest.hexdigest()
