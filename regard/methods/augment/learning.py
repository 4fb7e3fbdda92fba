"""Variants on the fly: in every epoch of a fine-tuning an example may be read as one of its own.

Which one it is depends on (seed, epoch, number of the example) alone: whichever process asks, and
after a run is resumed, it gets the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.core.errors import ConfigError, InputError
from regard.core.seeding import keyed
from regard.data.augment.eda import published
from regard.data.augment.examples import (
    BY_THESAURUS,
    PURPOSE,
    Augmenter,
    AugmentSettings,
    check_methods,
)
from regard.data.augment.thesaurus import digest
from regard.data.augment.words import cutter, is_chinese
from regard.data.examples import Example
from regard.data.tags import of_entities, scheme_of
from regard.methods.augment.processes import build
from regard.models import FAMILIES
from regard.tasks import TASKS, objective_of, objectives
from regard.tasks import task as find_task
from regard.tasks.labeled import LabeledObjective
from regard.training.build import family, is_directory
from regard.training.recipe import Augment, Recipe

LEAST = 0.01  # of the words: what is checked where the share is open


class ExampleVariants:
    """What an example is read as."""

    def __init__(self, augmenter: Augmenter, chance: float, seed: int) -> None:
        if not 0 <= chance <= 1:
            raise ConfigError(f"augment.prob is {chance:g}; it must be from 0 to 1")
        self.augmenter, self.chance, self.seed = augmenter, chance, seed

    def of(self, example: Example, epoch: int, index: int) -> Example | None:
        """None: itself."""
        dice = keyed(self.seed, PURPOSE, "epoch", epoch, index)
        if dice.random() >= self.chance:
            return None
        methods = self.augmenter.settings.methods
        variant = self.augmenter.variant(example, methods[dice.integers(len(methods))], dice)
        return None if variant == example else variant


def vary(objective: Any, recipe: Recipe) -> Augment:
    """Lets what learns read variants as the recipe's table `augment` says; gives the table with its
    open choices resolved.
    """
    check(recipe)
    options = recipe.augment
    reads = getattr(objective, "inner", objective)  # a student reads what its task says
    if options.word_fraction is None:
        options = replace(options, word_fraction=published(len(reads.corpus))[0])
    in_words = find_task(reads.corpus.task).in_columns  # whose examples come in words
    tags = reads.corpus.labels if in_words else []
    scheme = scheme_of(tags) if tags and of_entities(tags) else ""
    variants = ExampleVariants(build(settings(options, scheme)), options.prob, recipe.seed)
    texts = (text for e in reads.corpus.examples for _, text in e.parts())
    if not in_words and options.language != "en" and any(map(is_chinese, texts)):
        cutter()  # refuses Chinese where nothing can cut it into words: a run would stop midway
    reads.variants = variants
    if not set(BY_THESAURUS) & set(options.methods):
        return options
    now = digest(options.thesaurus or "")
    if options.digest and options.digest != now:
        raise InputError(
            f"the thesaurus ({options.thesaurus or 'wordnet'}) has changed since this run began; "
            "it can only go on with the same one: restore it, or begin a new run"
        )
    return replace(options, digest=now)


def settings(options: Augment, scheme: str = "") -> AugmentSettings:
    return AugmentSettings(
        tuple(options.methods),
        word_fraction=LEAST if options.word_fraction is None else options.word_fraction,
        thesaurus=options.thesaurus or "",
        source=options.source,
        language=options.language or "",
        masked=options.model or "",
        top_k=options.top_k,
        scheme=scheme,
    )


def check(recipe: Recipe) -> None:
    """Refuses what cannot be varied on the fly."""
    options, objective = recipe.augment, recipe.objective
    usual = Augment()
    for name, value in vars(options).items():
        if value != getattr(usual, name) and not options.methods:
            raise ConfigError(
                f"augment.{name} is {value!r}, and there is no method to make variants; give some "
                "as augment.methods (--augment), or leave it out"
            )
    check_methods(options.methods)
    if "back" in options.methods:
        raise ConfigError(
            "augment.methods has 'back', and translating anew in every epoch would take longer "
            "than learning; write the variants once with 'regard augment', and learn from that file"
        )
    task = recipe.examples.task or ""
    name = str(objective.get("of") or objective.get("name") or objective_of(task) or task)
    kind = family(recipe) if is_directory(recipe.model) else ""
    writes = bool(kind) and FAMILIES[kind].writes_tasks
    if writes or not getattr(objectives().get(name), "varies", False):
        able = [
            each
            for each in TASKS
            if objective_of(each) and getattr(find_task(each).objective(), "varies", False)
        ]
        raise ConfigError(
            f"augment.methods is set, and {task or name}{f' by {kind}' if writes else ''} is not "
            f"varied on the fly; that is for {', '.join(able)} by a model that labels "
            f"({', '.join(LabeledObjective.learners())}). 'regard augment' writes variants of "
            "other tasks into a file"
        )
    settings(options)
