"""The options of evaluations. This module imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from regard.core.errors import ConfigError, UnknownName
from regard.core.options import (
    LANGUAGE,
    LIMIT,
    MAX_NEW_TOKENS,
    NUM_BEAMS,
    PRECISION,
    SEED,
    SEQ_LEN,
    SKIP,
    SPLIT,
    TASK,
    Option,
    option_of,
)  # fmt: skip
from regard.core.tables import from_table

PRECISIONS = ("fp32", "bf16")
SCORES = ("raw", "token", "byte", "calibrated")
DRAWS = ("uniform", "balanced")
RESAMPLES = Option("The number of bootstrap samples for the intervals.", metavar="N")


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of a test."""

    against: Annotated[
        str, Option("Compare with another model: is the difference significant?", metavar="RUN")
    ] = ""
    out: Annotated[
        Path | None,
        Option("Write report.html and predictions.jsonl into this directory.", metavar="DIR",
               default="MODEL/test-DATA; with --shots none"),
    ] = None  # fmt: skip
    task: Annotated[str, TASK] = ""  # refused if the model was trained for another
    skip: Annotated[Sequence[str], SKIP] = ()
    limit: Annotated[int, LIMIT] = 0  # test on the first N examples; 0: all
    worst: Annotated[int, Option("Show N errors.", "--show-errors", "N")] = 20
    precision: Annotated[str, PRECISION] = "fp32"
    pairs: Annotated[
        bool,
        Option("DATA are minimal pairs, as those of BLiMP: which sentence does the model prefer?"),
    ] = False
    language: Annotated[str, LANGUAGE] = ""  # "": Chinese if most letters are Han, else English
    strict: Annotated[bool, Option("Tags: count only entities that the tagging scheme allows.")] = (
        False
    )
    split: Annotated[str, SPLIT] = "test"
    length: Annotated[int, SEQ_LEN] = 0  # of a language model's chunks; 0: as in training
    seed: Annotated[int, SEED] = 0  # of the bootstrap
    resamples: Annotated[int, RESAMPLES] = 1000
    reading: dict[str, Any] = field(default_factory=dict)  # of ReaderOptions
    decoding: dict[str, Any] = field(default_factory=dict)  # num_beams, max_new_tokens, …

    def __post_init__(self) -> None:
        from regard.evaluation.preflight import check_language

        if self.precision not in PRECISIONS:
            raise UnknownName("precision", self.precision, PRECISIONS)
        for name, least in (("limit", 0), ("worst", 0), ("length", 0), ("resamples", 1)):
            value = getattr(self, name)
            if value < least:
                option = option_of(type(self), name)
                raise ConfigError(f"{option} is {value}; it must be {least} or more")
        check_language(self.language)


@dataclass(frozen=True)
class PromptOptions:
    """The options of prompting, each with its default."""

    template: Annotated[
        str | None,
        Option("The prompt, with fields in braces and the answer as the last field: "
               "'{text}\\nMood: {label}'.", metavar="TEXT",
               default="the task's own"),
    ] = None  # fmt: skip
    labels: Annotated[
        Mapping[str, str],
        Option("The word for a label in the prompt: pos=great; may be repeated.",
               "--verbalizer", "LABEL=WORD"),
    ] = field(default_factory=dict)  # fmt: skip
    shots: Annotated[
        int,
        Option("Evaluate by prompts, with N demonstrations before each example; the weights do "
               "not change.", metavar="N"),
    ] = 0  # fmt: skip
    draw: Annotated[
        Literal["uniform", "balanced"],
        Option("How demonstrations are drawn; balanced: equally from each class.",
               "--shot-sampling"),
    ] = "uniform"  # fmt: skip
    fixed: Annotated[
        bool, Option("Use the same demonstrations for all examples.", "--fixed-shots")
    ] = False
    instruction: Annotated[str, Option("A text at the start of the prompt.", metavar="TEXT")] = ""
    separator: Annotated[
        str | None,
        Option("The text between demonstrations (\\n: a line break).", metavar="TEXT",
               default="one or two line breaks"),
    ] = None  # fmt: skip
    score: Annotated[
        Literal["raw", "token", "byte", "calibrated"],
        Option("The score that decides; the report shows all of them."),
    ] = "token"
    neutral: Annotated[
        str | None,
        Option("The neutral context of the calibrated score.", metavar="TEXT", default="Answer:"),
    ] = None
    blank: Annotated[
        Sequence[str],
        Option("Instead of --neutral: calibrate with the prompt itself, with this text, such as "
               "N/A, in place of the example; may be repeated.", metavar="TEXT"),
    ] = ()  # fmt: skip
    max_new_tokens: Annotated[int | None, MAX_NEW_TOKENS] = None  # of an open answer
    num_beams: Annotated[int, NUM_BEAMS] = 1  # of open answers; GPT-3 used 4
    length: Annotated[int | None, SEQ_LEN] = None  # of a prompt with its answer
    limit: Annotated[int | None, LIMIT] = None  # N examples, drawn with the seed; None: all
    language: Annotated[str, LANGUAGE] = ""  # of open answers, for their metric
    resamples: Annotated[int, RESAMPLES] = 1000
    seed: Annotated[int, SEED] = 0

    @classmethod
    def of(cls, table: dict[str, Any]) -> Self:
        options = from_table(cls, table, what="option", advice="(of prompting)")
        options.check()
        return options

    def check(self) -> None:
        from regard.evaluation.preflight import check_language

        for name, low in (
            ("shots", 0),
            ("max_new_tokens", 1),
            ("num_beams", 1),
            ("limit", 1),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name} is {value}; it must be at least {low}")
        check_language(self.language)
        for name, names in (("score", SCORES), ("draw", DRAWS)):
            if getattr(self, name) not in names:
                raise UnknownName(name, getattr(self, name), names)
        if self.blank and self.neutral is not None:
            raise ConfigError(
                "both neutral and blank are set; a score is calibrated by one of them: leave out "
                "the other"
            )


@dataclass(frozen=True)
class NgramOptions:
    """The options of the n-gram baseline, which a neural model has to beat."""

    order: Annotated[int | None, Option("The highest order.", "--ngram-order", "N", "5")] = None
    tokens: Annotated[int | None, Option("Count at most N tokens.", "--max-tokens", "N")] = None
    split: Annotated[str, SPLIT] = "valid"
    out: Annotated[
        Path | None,
        Option("Write the figures (.json) or the n-gram (.safetensors) here.", metavar="FILE"),
    ] = None


@dataclass(frozen=True)
class EmbedOptions:
    """The options of text embeddings."""

    pooling: Annotated[
        Literal["mean", "first", "last", "max"] | None,
        Option("How the hidden states become a vector: their mean, the first, the last, or the "
               "largest of each number.", default="as the directory says, or mean"),
    ] = None  # fmt: skip
    layer: Annotated[int, Option("The layer, counted from 1; -1 is the last.", metavar="N")] = -1
    normalize: Annotated[
        bool | None,
        Option("Scale every vector to length 1.", default="as the directory says, or yes"),
    ] = None
    width: Annotated[
        int | None,
        Option("Keep the first N numbers of every vector, for models that learned such widths.",
               metavar="N"),
    ] = None  # fmt: skip
    length: Annotated[int, SEQ_LEN] = 0
    precision: Annotated[str, PRECISION] = "fp32"
