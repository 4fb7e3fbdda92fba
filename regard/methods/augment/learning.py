"""Augmentation on the fly: in every epoch of a fine-tuning, an example may be replaced by a variant
of it.

Which variant depends only on (seed, epoch, index of the example), so every process and every
resumed run gets the same one.
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
from regard.training.recipe import Recipe
from regard.training.recipe_parts import Augment

LEAST = 0.01  # the share of words that `check` assumes if the recipe sets none


class ExampleVariants:
    """Chooses the variant that replaces an example in an epoch."""

    def __init__(self, augmenter: Augmenter, chance: float, seed: int) -> None:
        if not 0 <= chance <= 1:
            raise ConfigError(f"augment.prob is {chance:g}; it must be from 0 to 1")
        self.augmenter, self.chance, self.seed = augmenter, chance, seed

    def of(self, example: Example, epoch: int, index: int) -> Example | None:
        """Returns the variant, or None if the example itself is used."""
        dice = keyed(self.seed, PURPOSE, "epoch", epoch, index)
        if dice.random() >= self.chance:
            return None
        methods = self.augmenter.settings.methods
        variant = self.augmenter.variant(example, methods[dice.integers(len(methods))], dice)
        return None if variant == example else variant


def vary(objective: Any, recipe: Recipe) -> Augment:
    """Makes the objective read variants as the recipe's table `augment` says. Returns that table
    with its open choices resolved."""
    check(recipe)
    options = recipe.augment
    reads = getattr(objective, "inner", objective)  # a student reads with the objective of its task
    if options.word_fraction is None:
        options = replace(options, word_fraction=published(len(reads.corpus))[0])
    in_words = find_task(reads.corpus.task).in_columns  # its examples are lists of words
    tags = reads.corpus.labels if in_words else []
    scheme = scheme_of(tags) if tags and of_entities(tags) else ""
    variants = ExampleVariants(build(settings(options, scheme)), options.prob, recipe.seed)
    texts = (text for e in reads.corpus.examples for _, text in e.parts())
    if not in_words and options.language != "en" and any(map(is_chinese, texts)):
        cutter()  # raises now if Chinese cannot be cut into words; a run would stop midway
    reads.variants = variants
    if not set(BY_THESAURUS) & set(options.methods):
        return options
    now = digest(options.thesaurus or "")
    if options.digest and options.digest != now:
        raise InputError(
            f"the thesaurus ({options.thesaurus or 'wordnet'}) has changed since this run began; "
            "a run resumes only with the same one: restore it, or begin a new run"
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
    """Raises ConfigError for what cannot be augmented on the fly."""
    options, objective = recipe.augment, recipe.objective
    usual = Augment()
    for name, value in vars(options).items():
        if value != getattr(usual, name) and not options.methods:
            raise ConfigError(
                f"augment.{name} is {value!r}, and there is no method in augment.methods; give "
                "methods (--augment), or leave it out"
            )
    check_methods(options.methods)
    if "back" in options.methods:
        raise ConfigError(
            "augment.methods has 'back', and translating again in every epoch would take longer "
            "than training; write the variants once with 'regard augment', and train on that file"
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
            f"augment.methods is set, but {task or name}{f' by {kind}' if writes else ''} is "
            f"not varied on the fly; only {', '.join(able)} are, by a model with a head "
            f"({', '.join(LabeledObjective.learners())}). 'regard augment' writes variants of "
            "other tasks into a file"
        )
    settings(options)
