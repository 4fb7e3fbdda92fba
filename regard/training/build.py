"""Builds the model of a recipe, and the facts by which a recipe is resolved."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import torch

from regard.attention.native import library
from regard.core.errors import ConfigError, RegardError
from regard.core.seeding import seed_torch
from regard.data.corpus import Corpus
from regard.formats.directory import configure, heads_of, known_heads, load, read_config
from regard.formats.registry import empty, extensions_of, format_of
from regard.models import FAMILIES, family_of
from regard.models.extensions import extend, extension, place_of
from regard.objectives.base import Objective, hooks_of
from regard.training.data import TextData
from regard.training.hardware import fast_bf16
from regard.training.recipe import R, Recipe, Resolved
from regard.training.resolve import LENGTH, MachineFacts, ModelFacts, resolve
from regard.training.shape import ShapeFacts, config_of, start_config, with_shape


def is_directory(model: str) -> bool:
    return Path(model, "config.json").is_file()


def family(recipe: Recipe) -> str:
    """Returns the family of a recipe's model, by its name or by its directory."""
    if is_directory(recipe.model):
        return format_of(read_config(Path(recipe.model))["model_type"]).family
    if Path(recipe.model).is_dir() and recipe.model not in FAMILIES:
        raise ConfigError(
            f"{recipe.model} is a directory without config.json, so it is no model; give a model's "
            "directory, or the name of a model"
        )
    return family_of(recipe.model).name


def resolved(recipe: Recipe, data: TextData, machine: MachineFacts) -> Resolved:
    """Returns the recipe with all that is known before its objective and its model are built."""
    card = FAMILIES[family(recipe)]
    return resolve(recipe, data.facts(recipe, card), card, machine, model_facts(recipe))


def machine_facts(device: torch.device, processes: int) -> MachineFacts:
    return MachineFacts(
        device=device.type,
        threads=torch.get_num_threads(),
        processes=processes,
        native=library() is not None,
        fast_bf16=fast_bf16(device),
    )


def model_facts(recipe: Recipe) -> ModelFacts:
    if is_directory(recipe.model):
        config = pretrained_config(recipe)
        return ModelFacts(config.width, True, getattr(config, "context", None))
    card, length = FAMILIES[family(recipe)], recipe.batch.seq_len or LENGTH
    return ModelFacts(start_config(recipe, card, length).width)


def pretrained_config(recipe: Recipe) -> Any:
    """The configuration of the model's directory; None: the model is new."""
    if not is_directory(recipe.model):
        return None
    config_dict = read_config(Path(recipe.model))
    return configure(format_of(config_dict["model_type"]), config_dict)


def shaped(recipe: R, objective: Objective, *, resumed: bool = False) -> R:
    """The recipe with the whole shape of its model; of a resumed run it stands there already."""
    corpus = objective.corpus
    facts = ShapeFacts(
        corpus.special,
        corpus.vocab_size,
        objective.name,
        objective.options,
        pretrained_config(recipe),
        resumed,
    )
    return with_shape(recipe, FAMILIES[family(recipe)], facts)


def outline(recipe: Recipe, objective: Objective) -> Any:
    """Returns the model on the meta device, from which its cost is computed."""
    heads = objective.heads()
    if is_directory(recipe.model):
        config_dict = read_config(Path(recipe.model))
        format = format_of(config_dict["model_type"])
        known = heads_of(format, config_dict) if heads is None else known_heads(format, heads)
        model = empty(format, configuration(recipe), known, extensions_of(config_dict))
    else:
        with torch.device("meta"):
            model = blank(recipe, objective)
    with torch.device("meta"):
        model = hooks_of(objective).adapt_model(extended(model, recipe))
    check_learns(model)
    check_vocabulary(model, objective.corpus.vocab_size)
    objective.check(model)
    return model


def configuration(recipe: Recipe) -> Any:
    """The configuration that a recipe with a whole shape says."""
    return config_of(FAMILIES[family(recipe)], recipe.shape)


def blank(recipe: Recipe, objective: Objective) -> Any:
    """A new model before it is initialized."""
    heads, build = objective.heads(), cast(Any, family_of(recipe.model).model)
    config = configuration(recipe)
    return build(config) if heads is None else build(config, heads)


def model_for(recipe: Recipe, objective: Objective) -> Any:
    """Returns a new model, initialized by the seed alone, or the model of a directory."""
    seed_torch(recipe.seed, "weights")
    if is_directory(recipe.model):
        model = load(recipe.model, heads=objective.heads(), config=configuration(recipe)).model
        check_tokenizer(recipe, objective.corpus)
    else:
        model = blank(recipe, objective).initialize()
    model = extended(model, recipe, objective.corpus.tokenizer)
    return hooks_of(objective).adapt_model(model).train()


def extended(model: Any, recipe: Recipe, tokenizer: Any = None) -> Any:
    """Returns the model with the extensions that the recipe adds to it."""
    for name in sorted(recipe.extensions, key=place_of):
        options = recipe.extensions[name]
        if model.extensions.get(name) != extension(name).of(options).table():
            extend(model, name, options, tokenizer)
    return model


def check_learns(model: Any) -> None:
    """Refuses a model with an extension through which no gradient flows."""
    for name in model.extensions:
        if not extension(name).learns:
            raise ConfigError(
                f"a model with the extension {name!r} cannot be trained; train the model it was "
                "made from, and make it again"
            )


def check_tokenizer(recipe: Recipe, corpus: Any) -> None:
    """Refuses text that was prepared with a tokenizer other than the model's. Examples are
    tokenized later, by the model's own tokenizer."""
    from regard.data.tokenizer import Tokenizer

    if not isinstance(corpus, Corpus):
        return
    tokenizer = Tokenizer.open(Path(recipe.model))
    if tokenizer is None or tokenizer.fast is None:
        return
    theirs, ours = tokenizer.fast.get_vocab(), corpus.tokenizer.ready.get_vocab()
    if theirs != ours:
        raise RegardError(
            f"{recipe.data} was prepared with another tokenizer, not that of {recipe.model}; "
            f"prepare it again with --tokenizer {recipe.model}"
        )


def describe(model: Any) -> dict[str, Any]:
    return {
        "family": model.family.name,
        "paper": model.family.paper,
        "parameters": model.parameter_count(),
        "config": dataclasses.asdict(model.config),
    }


def check_vocabulary(model: Any, vocab_size: int) -> None:
    """Refuses a model whose vocabulary is smaller than the data's."""
    known = model.config.vocab_size
    if known < vocab_size:
        raise ConfigError(
            f"the data has a vocabulary of {vocab_size:,} tokens, but the model knows {known:,}; "
            "prepare the text with the model's own tokenizer ('regard prepare … --tokenizer MODEL')"
        )
