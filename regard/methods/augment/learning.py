"""Variants on the fly: in every epoch of a fine-tuning an example may be read as one of its own.

Which one it is depends on (seed, epoch, number of the example) alone: whichever process asks, and
after a run is resumed, it gets the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from regard.core.errors import ConfigError, InputError
from regard.core.seeding import keyed
from regard.data.augment.eda import published
from regard.data.augment.examples import BY_THESAURUS, PURPOSE, Augmenter, Settings, check_methods
from regard.data.augment.thesaurus import digest
from regard.data.augment.words import cutter, is_chinese
from regard.data.examples import Example
from regard.data.tags import of_entities, scheme_of
from regard.methods.augment.build import build
from regard.models import FAMILIES
from regard.tasks import TASKS, objective_of, objectives
from regard.tasks import task as find_task
from regard.tasks.labelled import LabelledObjective
from regard.training.build import family, is_directory
from regard.training.recipe import Augment, Recipe

LEAST = 0.01  # of the words: what is checked where the share is open


class Variants:
    """What an example is read as."""

    def __init__(self, augmenter: Augmenter, chance: float, seed: int) -> None:
        if not 0 <= chance <= 1:
            raise ConfigError(f"augment.chance is {chance:g}; it must be from 0 to 1")
        self.augmenter, self.chance, self.seed = augmenter, chance, seed

    def of(self, example: Example, epoch: int, index: int) -> Example | None:
        """None: itself."""
        dice = keyed(self.seed, PURPOSE, "epoch", epoch, index)
        if dice.random() >= self.chance:
            return None
        methods = self.augmenter.settings.methods
        made = self.augmenter.variant(example, methods[dice.integers(len(methods))], dice)
        return None if made == example else made


def vary(objective: Any, recipe: Recipe) -> Augment:
    """Lets what learns read variants as the recipe's table `augment` says; gives the table with its
    open choices resolved.
    """
    check(recipe)
    given = recipe.augment
    reads = getattr(objective, "inner", objective)  # a student reads what its task says
    if given.share is None:
        given = dataclasses.replace(given, share=published(len(reads.corpus))[0])
    in_words = find_task(reads.corpus.task).in_columns  # whose examples come in words
    tags = reads.corpus.labels if in_words else []
    scheme = scheme_of(tags) if tags and of_entities(tags) else ""
    variants = Variants(build(settings(given, scheme)), given.chance, recipe.seed)
    if not in_words and given.language != "en":
        check_words(reads.corpus.examples)
    reads.variants = variants
    return dataclasses.replace(given, digest=digest_of(given))


def check_words(examples: Sequence[Example]) -> None:
    """Refuses Chinese where nothing can cut it into words: a run would end in its middle."""
    if any(is_chinese(text) for example in examples for _, text in example.parts()):
        cutter()


def settings(given: Augment, scheme: str = "") -> Settings:
    return Settings(
        tuple(given.methods),
        share=LEAST if given.share is None else given.share,
        thesaurus=given.thesaurus or "",
        source=given.source,
        language=given.language or "",
        masked=given.model or "",
        top=given.top,
        scheme=scheme,
    )


def digest_of(given: Augment) -> str | None:
    """A run goes on only with the thesaurus it began with."""
    if not set(BY_THESAURUS) & set(given.methods):
        return given.digest
    found = digest(given.thesaurus or "")
    if given.digest and given.digest != found:
        raise InputError(
            f"the thesaurus ({given.thesaurus or 'wordnet'}) has changed since this run began; it "
            "can only go on with the same one: restore it, or begin a new run"
        )
    return found


def check_said(given: Augment) -> None:
    """Refuses numbers of variants where there are none."""
    usual = dataclasses.asdict(type(given)())
    said = {name: v for name, v in dataclasses.asdict(given).items() if v != usual[name]}
    if said and not given.methods:
        name, value = next(iter(said.items()))
        raise ConfigError(
            f"augment.{name} is {value!r}, and there is no method to make variants; give some as "
            "augment.methods (--augment), or leave it out"
        )


def check(recipe: Recipe) -> None:
    """Refuses what cannot be varied on the fly."""
    given, asked = recipe.augment, recipe.objective
    check_said(given)
    check_methods(given.methods)
    if "back" in given.methods:
        raise ConfigError(
            "augment.methods has 'back', and translating anew in every epoch would take longer "
            "than learning; write the variants once with 'regard augment', and learn from that file"
        )
    task = recipe.examples.task or ""
    name = str(asked.get("of") or asked.get("name") or objective_of(task) or task)
    kind = family(recipe) if is_directory(recipe.model) else ""
    writes = bool(kind) and FAMILIES[kind].writes_tasks
    if writes or not getattr(objectives().get(name), "varies", False):
        able = [each for each in TASKS if getattr(find_learner(each), "varies", False)]
        raise ConfigError(
            f"augment.methods is set, and {task or name}{f' by {kind}' if writes else ''} is not "
            f"varied on the fly; that is for {', '.join(able)} by a model that labels "
            f"({', '.join(LabelledObjective.learners())}). 'regard augment' writes variants of "
            "other tasks into a file"
        )
    settings(given)


def find_learner(task: str) -> Any:
    return find_task(task).objective() if objective_of(task) else None
