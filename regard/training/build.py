"""From a recipe to the objects that train: data, objective, model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import torch

from regard.core.errors import ConfigError, InputError, RegardError, UnknownName
from regard.core.seeding import seed_torch
from regard.data.corpus import Corpus, read_marker
from regard.formats.directory import (
    configure,
    heads_of,
    known_heads,
    load,
    read_config,
)
from regard.formats.empty import empty, extensions_of
from regard.formats.registry import format_of
from regard.models import FAMILIES, family_of
from regard.models.config import fits
from regard.models.extensions import extend, extension, place_of
from regard.objectives import for_task
from regard.objectives import objective as find
from regard.objectives.base import Objective
from regard.training.recipe import Recipe
from regard.training.shapes import check_vocabulary, fitted

LENGTH = 256  # tokens of a sample, unless the recipe says so
STEP = 4096  # tokens of a step, unless the recipe says so


def is_directory(model: str) -> bool:
    return Path(model, "config.json").is_file()


def family(recipe: Recipe) -> str:
    """The family of a recipe's model, by name or by what its directory holds."""
    if is_directory(recipe.model):
        return format_of(read_config(Path(recipe.model))["model_type"]).family
    if Path(recipe.model).is_dir():
        raise ConfigError(f"{recipe.model} is a directory without config.json, so it is no model")
    return family_of(recipe.model).name


def labelled(recipe: Recipe) -> bool:
    """Does the recipe learn from examples, not from prepared text?"""
    return find(learned(recipe)).labelled


def learned(recipe: Recipe) -> str:
    """The objective; of a distillation the one inside of it."""
    held = recipe.objective
    return str(held.get("of") or held.get("name"))


def settle_objective(recipe: Recipe) -> None:
    kind, task = family(recipe), recipe.examples.task
    if task == "prefer":
        recipe.objective = {"name": "prefer"} | recipe.objective | {"family": kind}
        return
    if task and not FAMILIES[kind].writes_tasks and (learner := for_task(task)):
        recipe.objective = {"name": learner} | recipe.objective | {"family": kind}
        return
    facts = read_marker(Path(recipe.data))
    own = "pairs" if facts.get("kind") == "pairs" else FAMILIES[kind].objective
    recipe.objective = {"name": own} | recipe.objective


def settle_batch(recipe: Recipe) -> None:
    """Length, samples and objective, where the recipe leaves them open."""
    settle_objective(recipe)
    batch = recipe.batch
    if recipe.examples.task:
        paper = FAMILIES[family(recipe)].finetuned(recipe.examples.task)
        batch.length = batch.length or -(paper.seq_len or LENGTH)  # below 0: at most
        if batch.samples == 0:
            batch.samples = paper.batch_size or max(1, STEP // -batch.length)
            batch.samples += -batch.samples % (batch.accumulate * max(1, recipe.engine.processes))
    context = None
    if is_directory(recipe.model):
        given = read_config(Path(recipe.model))
        context = getattr(configure(format_of(given["model_type"]), given), "context", None)
    if batch.length <= 0:
        wanted = -batch.length or LENGTH
        batch.length = min(wanted, context or wanted)
    if batch.samples == 0:
        batch.samples = max(1, STEP // batch.length)
        batch.samples += -batch.samples % (batch.accumulate * max(1, recipe.engine.processes))
    if context is not None and batch.length > context:
        raise ConfigError(
            f"batch.length is {batch.length}, but {recipe.model} has learned {context} positions; "
            "choose a smaller length"
        )


def objective_for(recipe: Recipe, split: str) -> Objective:
    """The objective on one split; for validation nothing depends on the epoch."""
    options = dict(recipe.objective)
    found = find(str(options.pop("name")))
    made = found.build(
        find(learned(recipe)).open_corpus(recipe, split),
        options_of(found, options),
        length=recipe.batch.length,
        batch=recipe.batch.samples,
        seed=recipe.seed,
        learning=split == "train",
    )
    made.in_streams = recipe.batch.order == "streams"
    if made.in_streams and (labelled(recipe) or learned(recipe) == "pairs"):
        raise ConfigError(
            f'batch.order is "streams", but {learned(recipe)} reads examples, which are no '
            "stretches of a text; leave it out"
        )
    if split == "train":
        recipe.objective |= made.settled()  # for validation what the data to learn from decided
        if recipe.augment.methods:
            from regard.methods.augment.learning import vary

            vary(made, recipe)
    return made


def options_of(found: type[Objective], given: dict[str, Any]) -> Any:
    """An objective's options, with names and kinds checked."""
    known = {f.name: f for f in dataclasses.fields(found.Options)}
    for name, value in given.items():
        if name not in known:
            raise UnknownName("recipe key", f"objective.{name}", [f"objective.{k}" for k in known])
        kind = known[name].type
        simple = {"int": int, "float": float, "str": str, "bool": bool}.get(str(kind))
        if simple is not None and not fits(value, simple):
            raise ConfigError(f"objective.{name} is {value!r}; it must be {kind}")
    try:
        return found.Options(**given)
    except TypeError as error:
        raise ConfigError(f"objective {found.name}: {error}") from None


def validation_for(recipe: Recipe) -> Objective | None:
    """None where the data has no text for it."""
    if labelled(recipe):
        given = recipe.examples
        return objective_for(recipe, "valid") if given.valid or given.share or given.folds else None
    facts = read_marker(Path(recipe.data))
    if not facts["splits"].get("valid", {}).get("tokens"):
        return None
    try:
        return objective_for(recipe, "valid")
    except InputError:
        return None


def outline(recipe: Recipe, objective: Objective) -> Any:
    """The model without memory for its weights: what it would cost is known from this."""
    heads = objective.heads()
    if is_directory(recipe.model):
        if recipe.shape or recipe.size:
            raise ConfigError(f"{recipe.model} has its shape already; remove size and shape")
        given = read_config(Path(recipe.model))
        found = format_of(given["model_type"])
        held = heads_of(found, given) if heads is None else known_heads(found, heads)
        model = empty(found, configure(found, given), held, extensions_of(given))
    else:
        with torch.device("meta"):
            model = blank(recipe, objective)
    with torch.device("meta"):
        model = objective.fitted(extended(model, recipe))
    check_learns(model)
    check_vocabulary(model, objective.corpus.vocabulary)
    objective.check(model)
    return model


def blank(recipe: Recipe, objective: Objective) -> Any:
    """A new model before it is initialised."""
    kind = family_of(recipe.model)
    start = kind.sizes.get(recipe.model) or kind.config()
    changes = kind.shape(recipe.size, recipe.batch.length) if recipe.size else {}
    if kind.name == "xlnet" and objective.name == "permuted":
        asked: Any = objective.options
        changes["two_directions"] = asked.two_directions
        changes["reuse"] = recipe.batch.length // 2 if asked.pairs else None
        changes["memory"] = recipe.batch.length * 3 // 4
    changes |= {key: listed(value) for key, value in recipe.shape.items()}
    start = start.replace(**changes)
    corpus = objective.corpus
    given = fitted(start, corpus.special, corpus.vocabulary, recipe.batch.length)
    start = start.replace(**{k: v for k, v in given.items() if k not in recipe.shape})
    heads, build = objective.heads(), cast(Any, kind.model)
    return build(start) if heads is None else build(start, heads)


def model_for(recipe: Recipe, objective: Objective) -> Any:
    """A new model, initialised by the seed alone, or the one of a directory."""
    seed_torch(recipe.seed, "weights")
    if is_directory(recipe.model):
        model = load(recipe.model, heads=objective.heads()).model
        if not labelled(recipe):
            check_tokenizer(recipe, objective.corpus)
    else:
        model = blank(recipe, objective).initialise()
    return objective.fitted(extended(model, recipe, objective.corpus.tokenizer)).train()


def extended(model: Any, recipe: Recipe, tokenizer: Any = None) -> Any:
    """The model with the parts that the recipe adds to it."""
    for name in sorted(recipe.extensions, key=place_of):
        options = recipe.extensions[name]
        if model.extensions.get(name) != extension(name).of(options).table():
            extend(model, name, options, tokenizer)
    return model


def check_learns(model: Any) -> None:
    """Refuses a model with a part that no gradient passes."""
    for name in model.extensions:
        if not extension(name).learns:
            raise ConfigError(
                f"a model with the extension {name!r} cannot learn; train the model that it was "
                "made from, and make it again"
            )


def listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def check_tokenizer(recipe: Recipe, corpus: Corpus) -> None:
    """Refuses text that was cut into other tokens than the model knows."""
    from regard.data.tokenizer import Tokenizer

    held = Tokenizer.open(Path(recipe.model))
    if held is None or held.fast is None:
        return
    theirs, ours = held.fast.get_vocab(), corpus.tokenizer.ready.get_vocab()
    if theirs != ours:
        raise RegardError(
            f"{recipe.data} was prepared with another tokenizer than that of {recipe.model}; "
            f"prepare it again with --tokenizer {recipe.model}"
        )


def about_data(recipe: Recipe, objective: Objective, valid: Objective | None) -> dict[str, Any]:
    """What run.json says of the data."""
    if labelled(recipe):
        held = {"train": objective, "valid": valid}
        return {
            "path": str(Path(recipe.data)),
            "task": recipe.examples.task,
            "labels": recipe.examples.labels,
            "vocabulary": objective.corpus.vocabulary,
            "splits": {k: {"examples": len(o.corpus)} for k, o in held.items() if o is not None},
        }
    data = read_marker(Path(recipe.data))
    return {
        "path": str(Path(recipe.data)),
        "vocabulary": data["vocabulary"],
        "splits": {
            name: {k: v for k, v in split.items() if k != "shards"}
            for name, split in data["splits"].items()
        },
        "tokenizer": data.get("tokenizer"),
    }


def describe(model: Any) -> dict[str, Any]:
    return {
        "family": model.family.name,
        "paper": model.family.paper,
        "parameters": model.parameter_count(),
        "config": dataclasses.asdict(model.config),
    }
