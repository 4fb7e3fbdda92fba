"""What is asked of the methods, besides a recipe; this module imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from regard.core.errors import ConfigError, UnknownName
from regard.core.options import LIMIT, MAX_NEW_TOKENS, NUM_BEAMS, VOCAB_SIZE, Option, option_of

KINDS = {"int8": "weight", "int8-dynamic": "dynamic", "bf16": "bf16"}  # of small numbers
METHODS = ("gradient", "magnitude")  # by which units matter
SCOPES = ("global", "layer")
SAMPLES = 2048
CONFIDENCE = 0.9  # from which on a label that the model gives is learned from
AMOUNT = re.compile(r"([0-9]*\.?[0-9]+) *(epochs?|steps?)?")
REPEATS = Option("Measurements of speed; 0: none.", metavar="N")
BEFORE_AND_AFTER = Option(
    "Labeled data or text for the score before and after; repeated for two files of one text.",
    "--data",
    "FILE",
)


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured of a model before and after it is made smaller."""

    data: Annotated[Sequence[str], BEFORE_AND_AFTER] = ()  # pruning: for importances, too
    limit: Annotated[int | None, LIMIT] = None
    repeats: Annotated[int, REPEATS] = 5
    testing: dict[str, Any] = field(default_factory=dict)  # further fields of a test's plan

    def __post_init__(self) -> None:
        for name in ("limit", "repeats"):
            if (getattr(self, name) or 0) < 0:
                option = option_of(type(self), name)
                raise ConfigError(f"{option} is {getattr(self, name)}; it is a number of 0 or more")


@dataclass(frozen=True)
class QuantizeOptions(MeasureOptions):
    """What is asked of a quantization."""

    kind: Annotated[
        Literal["int8", "int8-dynamic", "bf16"],
        Option("int8: weights of 8 bits; int8-dynamic: what is multiplied with them, too, faster "
               "on many tokens at once; bf16: weights of 16 bits.", "--scheme"),
    ] = "int8"  # fmt: skip
    exclude: Annotated[
        Sequence[str],
        Option("Layers that stay as they are, such as 'blocks.0.*'; may be repeated.",
               metavar="PATTERN"),
    ] = ()  # fmt: skip
    calibrate: Annotated[
        str | None, Option("Fit the scales to what the layers read in this text.", metavar="TEXT")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in KINDS:
            raise UnknownName("kind", self.kind, KINDS)
        if self.calibrate and self.kind == "bf16":
            raise ConfigError("bf16 has no scales that could be fitted; leave --calibrate out")

    @property
    def options(self) -> dict[str, Any]:
        return {"kind": KINDS[self.kind], "exclude": list(self.exclude)}


@dataclass(frozen=True)
class PruneOptions(MeasureOptions):
    """What is asked of a pruning. Shares are of what the model has now."""

    heads: Annotated[
        float, Option("Share of all heads to remove, the least important ones.", metavar="SHARE")
    ] = 0.0
    listed: Annotated[
        Sequence[str],
        Option("Remove these heads, counted from 0: blocks.0:1,3; may be repeated.", "--head-list",
               "LAYER:HEADS"),
    ] = ()  # fmt: skip
    hidden: Annotated[
        float,
        Option("Share of the units of every feed-forward network to remove.", "--ffn-units",
               "SHARE"),
    ] = 0.0  # fmt: skip
    weights: Annotated[
        float,
        Option("Share of the single weights to set to 0, the smallest ones, which makes a model "
               "neither smaller nor faster.", metavar="SHARE"),
    ] = 0.0  # fmt: skip
    scope: Annotated[
        Literal["global", "layer"],
        Option("The smallest weights of all layers together, or of each."),
    ] = "global"
    by: Annotated[
        str | None,
        Option("What makes a unit important: gradient or magnitude.", metavar="NAME",
               default="gradient; without --data magnitude"),
    ] = None  # fmt: skip
    normal: Annotated[
        bool, Option("Divide the importance of a layer's heads by its norm.", "--normalize")
    ] = True
    samples: Annotated[
        int,
        Option("Examples of the data that show what is important; 0: all.",
               "--importance-examples", "N"),
    ] = SAMPLES  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = {"--heads": self.heads, "--ffn-units": self.hidden, "--weights": self.weights}
        for name, share in shares.items():
            if share and not 0.0 < share < 1.0:
                raise ConfigError(
                    f"{name} is {share:g}; it is a share between 0 and 1, such as 0.3"
                )
        if not any(shares.values()) and not self.listed:
            raise ConfigError(
                "nothing is to be pruned; say --heads, --ffn-units or --weights SHARE"
            )
        if self.heads and self.listed:
            raise ConfigError("give a share of the heads, or a list of them, not both")
        if self.by and self.by not in METHODS:
            raise UnknownName("choice for --by", self.by, METHODS)
        if self.scope not in SCOPES:
            raise UnknownName("scope", self.scope, SCOPES)
        if self.samples < 0:
            raise ConfigError(
                f"--importance-examples is {self.samples}; it is a number of 0 or more"
            )
        if self.heads and not self.data:
            raise ConfigError(
                "which heads matter is seen from data: give --data, or name them with --head-list"
            )
        for option, is_set, needs, share in (
            ("--by", bool(self.by), "--ffn-units", self.hidden),
            ("--scope layer", self.scope == "layer", "--weights", self.weights),
            ("--no-normalize", not self.normal, "--heads", self.heads),
        ):
            if is_set and not share:
                raise ConfigError(f"{option} says how {needs} chooses, and {needs} is not given")
        if self.by == "gradient" and not self.data:
            raise ConfigError("gradients come from data: give --data, or --by magnitude")

    @property
    def method(self) -> str:
        return self.by or ("gradient" if self.data else "magnitude")


@dataclass(frozen=True)
class DistillOptions:
    """What is asked of a distillation besides the recipe."""

    teacher: str
    student: Annotated[
        str,
        Option("layers=6 begins with layers of the teacher; layers=4,width=256,heads=4 begins at "
               "random; or a model directory.", metavar="SHAPE"),
    ]  # fmt: skip
    style: Annotated[
        str | None,
        Option("hinton (softened answers), distilbert (with the last states), tinybert (the "
               "layers; for a task then the answers, for as long again).", "--method", "NAME",
               "hinton; of text distilbert"),
    ] = None  # fmt: skip
    sequence: Annotated[
        bool,
        Option("Pairs: the teacher's own translations (RUN/first/pairs) are the targets.",
               "--sequence-level"),
    ] = False  # fmt: skip
    num_beams: Annotated[int, NUM_BEAMS] = 4  # with which it writes
    vocab_size: Annotated[int | None, VOCAB_SIZE] = None  # of a labeled task; None: all words


def amount(text: str) -> dict[str, float]:
    """ "3" or "3 epochs", "500 steps", as a recipe's budget has it."""
    match = AMOUNT.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"--adapt is {text!r}; give epochs, as in 3, or steps, as in '500 steps'")
    number = float(match[1])
    if (match[2] or "").startswith("step"):
        return {"steps": max(1, int(number))}
    return {"epochs": number}


@dataclass(frozen=True)
class FinetuneOptions:
    """What is asked of a fine-tuning besides the recipe. Without `adapt` the unlabeled examples
    are given labels; with it they are text, and are given labels only if `confidence` says so.
    """

    folds: Annotated[
        int | None,
        Option("Cross-validation: K runs RUN/fold-1, …, each validated with another part of the "
               "data; RUN/folds.json has mean and deviation.", metavar="K"),
    ] = None  # fmt: skip
    adapt: Annotated[
        str | None,
        Option("First continue pre-training on the text of the examples (RUN/adapted), for so many "
               "epochs, or steps: '500 steps'.", metavar="AMOUNT"),
    ] = None  # fmt: skip
    unlabeled: Annotated[
        str | None,
        Option("Examples without labels. A first model (RUN/first) labels those of which it is "
               "sure (RUN/pseudo.jsonl), and RUN learns from both. With --adapt they are text.",
               "--unlabeled", "FILE"),
    ] = None  # fmt: skip
    confidence: Annotated[
        float | None,
        Option("How sure is sure; with --adapt it asks for labels at all.", metavar="P",
               default="0.9"),
    ] = None  # fmt: skip

    @classmethod
    def of(cls, table: dict[str, Any]) -> FinetuneOptions:
        """The stages of a command line, once they make sense together."""
        stages = cls(**table)
        if stages.folds and stages.folds < 2:
            raise ConfigError(f"--folds is {stages.folds}; a cross-validation has at least 2 parts")
        confidence = stages.confidence
        if confidence is not None and not stages.unlabeled:
            raise ConfigError(
                "--confidence is for labels of --unlabeled examples, which are missing"
            )
        if confidence is None:
            confidence = CONFIDENCE if stages.unlabeled and not stages.adapt else None
        elif not 0 < confidence <= 1:
            raise ConfigError(f"--confidence is {confidence:g}; it must be above 0 and at most 1")
        if stages.adapt:
            amount(stages.adapt)
        return cls(stages.folds or None, stages.adapt or None, stages.unlabeled or None, confidence)

    def __bool__(self) -> bool:
        return bool(self.folds or self.adapt or self.unlabeled)

    @property
    def before(self) -> bool:
        return bool(self.adapt or self.confidence)

    def in_words(self, out: Path) -> list[str]:
        """What happens besides the run itself, in its order."""
        lines, directory = [], out
        if self.folds:
            directory = out / "fold-1"
            lines.append(f"{self.folds} such runs: {directory} to {out / f'fold-{self.folds}'}")
        if self.adapt:
            lines.append(f"before it {directory / 'adapted'} reads the task's text: {self.adapt}")
        if self.confidence:
            lines.append(f"before it {directory / 'first'} labels {self.unlabeled}")
        return lines


@dataclass(frozen=True)
class AlignOptions:
    """What is asked of an alignment: its method, and keys of its objective."""

    method: Annotated[
        Literal["dpo", "ipo", "reward", "grpo"],
        Option("dpo and ipo learn from pairs, reward makes a model that scores replies, grpo "
               "follows a reward."),
    ] = "dpo"  # fmt: skip
    reward: Annotated[
        str | None,
        Option("grpo: a reward model's run, or contains:WORD, share:WORD, length, length:N, "
               "distinct.", metavar="DIR|RULE"),
    ] = None  # fmt: skip
    beta: Annotated[
        float | None,
        Option("How firmly the start holds.", metavar="X", default="dpo and ipo 0.1, grpo 0.04"),
    ] = None
    limit: Annotated[
        float | None,
        Option("grpo: the KL of a token beyond which the penalty grows.", "--target-kl", "X"),
    ] = None
    group: Annotated[
        int | None, Option("grpo: replies to each prompt.", "--group-size", "N", "8")
    ] = None
    max_new_tokens: Annotated[int | None, MAX_NEW_TOKENS] = None  # grpo: of a reply; else 32

    def objective(self) -> dict[str, Any]:
        """The keys of the recipe's objective; what the method does not use is refused."""
        names = ("reward", "beta", "limit", "group", "max_new_tokens")
        table = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        for name, value in table.items():
            known = self.method != "reward" if name == "beta" else self.method == "grpo"
            if not known:
                option = option_of(type(self), name)
                raise ConfigError(f"{option} is {value}, which --method {self.method} does not use")
        return table
