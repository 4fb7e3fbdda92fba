"""Builds the model of a recipe, and the facts by which a recipe is resolved."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from regard.attention.native import library
from regard.core.errors import ConfigError, RegardError
from regard.core.seeding import seed_torch
from regard.core.tables import Table, fields_of, fits
from regard.data.corpus import Corpus, Special
from regard.formats.directory import load
from regard.formats.registry import (
    configure,
    empty,
    extensions_of,
    format_of,
    heads_of,
    known_heads,
    read_config,
)
from regard.models import FAMILIES, family_of
from regard.models.family import Family
from regard.objectives.base import Objective, hooks_of
from regard.training.data import TextData
from regard.training.hardware import fast_bf16
from regard.training.recipe import R, Recipe, Resolved, replaced
from regard.training.resolve import LENGTH, MachineFacts, ModelFacts, resolve


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
    """Returns the model with the extensions that the recipe adds to it. The weights that do not
    learn beside an extension are frozen."""
    if not recipe.extensions and not model.extensions:
        return model
    from regard.models.extensions import extend, extension, place_of

    for name in sorted(recipe.extensions, key=place_of):
        options = recipe.extensions[name]
        if model.extensions.get(name) != extension(name).of(options).table():
            extend(model, name, options, tokenizer)
    for name, options in model.extensions.items():
        for weight in extension(name).of(options).frozen(model):
            weight.requires_grad_(False)
            if recipe.optimizer.unfreeze_every:
                raise ConfigError(
                    f"optimizer.unfreeze_every frees layers on the way, and with {name} their "
                    "weights never learn; leave one of them out"
                )
    return model


def check_learns(model: Any) -> None:
    """Refuses a model with an extension through which no gradient flows."""
    for name in model.extensions:
        from regard.models.extensions import extension

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


# -- the shape of a run's model: every field of its configuration, dropout included. It is resolved
# once, by pure functions, and stands whole under [shape] of the resolved recipe. The model is built
# from that alone, so that a run goes on as it began whatever a card says by then.


@dataclass(frozen=True)
class ShapeFacts:
    """What the data and the objective say of the model that will learn."""

    special: Special
    vocab_size: int
    objective: str
    options: Any  # of the objective
    pretrained: Any = None  # the configuration of the model's directory; None: the model is new
    resumed: bool = False  # the recipe is that of a run to go on with


def with_shape(config: R, card: Family, facts: ShapeFacts) -> R:
    """The recipe with the whole shape. A shape that is whole already stays as it is."""
    if is_whole(card, config.shape) and (facts.resumed or facts.pretrained is None):
        return config
    if facts.pretrained is None:
        return replaced(config, shape=shape_table(new_config(config, card, facts)))
    shape = shape_table(facts.pretrained)
    if config.size or any(shape.get(name) != value for name, value in config.shape.items()):
        raise ConfigError(
            f"{config.model} is a model directory, which has its shape already; remove size and "
            "shape, or, for a new model of a family with this name, rename the directory"
        )
    return replaced(config, shape=shape)


def config_of(card: Family, shape: Table) -> Any:
    """The configuration of a whole shape. TOML has no None: a field that is left out is None."""
    return card.config.of(dict.fromkeys(optional_fields(card)) | shape)


def start_config(recipe: Recipe, card: Family, length: int, **changes: Any) -> Any:
    """The configuration of a new model, before it takes anything from its data."""
    if is_whole(card, recipe.shape):
        return config_of(card, recipe.shape)
    start = card.sizes.get(recipe.model) or card.config()
    laptop = card.shape(recipe.size, length) if recipe.size not in (None, "auto") else {}
    usual = start.without_dropout() if recipe.by_budget else {}
    return start.replace(**(usual | laptop | changes | recipe.shape))


def new_config(recipe: Any, card: Family, facts: ShapeFacts) -> Any:
    """The configuration of a new model, with what it takes from its objective and its data:
    vocabulary, special ids, positions.
    """
    length, special, vocab_size = recipe.batch.seq_len, facts.special, facts.vocab_size
    changes = card.objective_fields(facts.objective, facts.options, length)
    start = start_config(recipe, card, length, **changes)
    pad = special.end if special.pad is None else special.pad
    values: dict[str, Any] = {"vocab_size": vocab_size, "context": length}
    values |= {"pad_id": pad, "start_id": pad, "eos_id": special.end}
    if hasattr(start, "cutoffs"):
        values["cutoffs"] = tuple(c for c in start.cutoffs if c < vocab_size)
    known = config_fields(card).keys() - recipe.shape.keys()
    return start.replace(**{name: value for name, value in values.items() if name in known})


def shape_table(config: Any) -> Table:
    """The fields as a recipe holds them: tuples are lists, and what is None is left out."""
    values = dataclasses.asdict(config).items()
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values}
    return {name: value for name, value in plain.items() if value is not None}


def is_whole(card: Family, shape: Table) -> bool:
    """Does a shape name every field that cannot be None?"""
    return config_fields(card).keys() - optional_fields(card) <= shape.keys()


def optional_fields(card: Family) -> set[str]:
    return {name for name, kind in config_fields(card).items() if fits(None, kind)}


def config_fields(card: Family) -> Table:
    """The annotation of each field of the family's configuration."""
    return fields_of(card.config)  # type: ignore[arg-type]
