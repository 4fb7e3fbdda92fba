"""The training data of a run: prepared text and its objectives. The layers above pass in labeled
examples as a subclass that reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import ConfigError, FormatError, InputError, UnknownName
from regard.core.tables import Table, fields_of, from_table, without_none
from regard.data.corpus import Corpus, damaged_files, read_marker
from regard.models.family import Family
from regard.objectives import objective as find
from regard.objectives import objective_of_kind
from regard.objectives.base import Objective, hooks_of, too_short
from regard.training.recipe import Recipe, Resolved, replaced
from regard.training.resolve import DataFacts


class BuiltData(NamedTuple):
    objective: Objective
    valid: Objective | None  # None: the data has no validation set
    config: Resolved  # the recipe with the settings that the data decided


class TextData:
    """Prepared text."""

    of_examples = False  # whether samples are labeled examples, not parts of a long text
    beforehand = frozenset({"data"})  # names that may be in a run's directory before it begins

    def __init__(self, objectives: Mapping[str, tuple[str, str]] | None = None) -> None:
        self.objectives = objectives or {}  # objectives beside those on text; see `find`

    def resume_command(self, out: Path) -> str:
        """Returns the command that resumes a stopped run."""
        return f"train --resume {out}"

    def verify(self, recipe: Recipe, note: Callable[[str], None]) -> None:
        """Refuses data that was damaged after it was prepared; `note` is told if the data has no
        checksums."""
        damaged = damaged_files(Path(recipe.data))
        if damaged is None:
            note(f"{recipe.data} has no checksums, so damage is not noticed: prepare it again")
        elif damaged:
            raise FormatError(
                f"{Path(recipe.data, damaged[0])} is not what was prepared: it is damaged; prepare "
                f"the text again ({len(damaged)} of its files differ)"
            )

    def facts(self, recipe: Recipe, card: Family) -> DataFacts:
        """Returns the objective for this kind of data, for a recipe that names none."""
        kind = read_marker(Path(recipe.data)).get("kind", "")
        return DataFacts(objective_of_kind(kind, card.objective))

    def build(self, config: Resolved) -> BuiltData:
        """Builds the objectives for training and for validation."""
        objective = self.on_split(config, "train")
        config = self.decided(config, objective)
        return BuiltData(objective, self.validation(config), config)

    def decided(self, config: Resolved, objective: Any) -> Resolved:
        """Returns the recipe with all options of the objective, and with those that the training
        data decided."""
        options = without_none(asdict(objective.options) | hooks_of(objective).settled())
        return replaced(config, objective=config.objective | options)

    def validation(self, config: Resolved) -> Objective | None:
        if not read_marker(Path(config.data))["splits"].get("valid", {}).get("tokens"):
            return None
        try:
            return self.on_split(config, "valid")
        except InputError:
            return None

    def on_split(self, config: Resolved, split: str) -> Objective:
        """Builds the objective on one split; for validation nothing depends on the epoch."""
        corpus = self.corpus(config, split)
        options = dict(config.objective)
        kind = find(str(options.pop("name")), self.objectives)
        built = kind.build(
            corpus,
            options_of(kind, options),
            seq_len=config.batch.seq_len,
            batch_size=config.batch.size,
            seed=config.seed,
            learning=split == "train",
        )
        built.in_streams = config.batch.order == "streams"
        if built.in_streams and (self.of_examples or not built.stretches):
            raise ConfigError(
                f'batch.order is "streams", but {learned(config.objective)} reads examples, which '
                "are not parts of one text; leave batch.order out"
            )
        return built

    def corpus(self, config: Resolved, split: str) -> Any:
        corpus = Corpus.open(config.data, split)
        if split == "train" and len(corpus) < config.batch.seq_len:
            raise too_short(corpus, config.batch.seq_len)
        return corpus

    def words(self, config: Recipe) -> int | None:
        """Returns the words of the training text; None for data whose words were not counted."""
        if self.of_examples:
            return None
        words: int | None = read_marker(Path(config.data))["splits"]["train"].get("words")
        return words

    def about(self, built: BuiltData) -> Table:
        """Returns the facts about the data for run.json."""
        data = read_marker(Path(built.config.data))
        return {
            "path": str(Path(built.config.data)),
            "vocab_size": data["vocab_size"],
            "splits": {
                name: {k: v for k, v in split.items() if k not in ("shards", "checksums")}
                for name, split in data["splits"].items()
            },
            "tokenizer": data.get("tokenizer"),
        }


def learned(objective: Table) -> str:
    """Returns the name of the objective; for distillation that of the objective inside."""
    return str(objective.get("of") or objective.get("name"))


def options_of(kind: type[Objective], table: Table) -> Any:
    """Returns an objective's options, with names and types checked. For a key of another objective
    the error says which objectives have it."""
    if table.keys() <= fields_of(kind.Options).keys():
        return from_table(kind.Options, table, path="objective.", what="recipe key")
    from regard.core.foreign import key_for  # tables that only a wrong name needs
    from regard.core.foreign_options import OBJECTIVES_WITH

    for key in table:
        theirs = key_for(key)[0] if key not in OBJECTIVES_WITH else f"objective.{key}"
        name = theirs.partition("=")[0].removeprefix("objective.")
        if name in OBJECTIVES_WITH and not {key, name} & fields_of(kind.Options).keys():
            hint = f"{kind.name} has no objective.{name}; it is a key of {OBJECTIVES_WITH[name]}"
            raise UnknownName("recipe key", f"objective.{key}", (), hint=hint)
        if name in fields_of(kind.Options) and key != name:
            raise UnknownName("recipe key", f"objective.{key}", (), meant=f"objective.{name}")
    return from_table(kind.Options, table, path="objective.", what="recipe key")
