"""The options of the methods besides the recipe. This module imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from regard.core.errors import ConfigError, UnknownName
from regard.core.options import LIMIT, NUM_BEAMS, Option, option_of

KINDS = {"int8": "weight", "int8-dynamic": "dynamic", "int4": "int4", "bf16": "bf16"}
METHODS = ("gradient", "magnitude")  # how the importance of a unit is measured
SCOPES = ("global", "layer")
SAMPLES = 2048
CONFIDENCE = 0.9  # the least confidence of a pseudo-label that is learned from
AMOUNT = re.compile(r"([0-9]*\.?[0-9]+) *(epochs?|steps?)?")
REPEATS = Option("Measure the speed N times; 0 measures none.", metavar="N")
BEFORE_AND_AFTER = Option(
    "Measure the score on this labeled data or text before and after; repeat it for the two "
    "files of parallel text.",
    "--data",
    "FILE",
)


@dataclass(frozen=True)
class MeasureOptions:
    """What to measure before and after a model is made smaller."""

    data: Annotated[Sequence[str], BEFORE_AND_AFTER] = ()  # pruning also measures importance on it
    limit: Annotated[int | None, LIMIT] = None
    repeats: Annotated[int, REPEATS] = 5
    testing: dict[str, Any] = field(default_factory=dict)  # more fields for the plan of a test

    def __post_init__(self) -> None:
        for name in ("limit", "repeats"):
            if (getattr(self, name) or 0) < 0:
                option = option_of(type(self), name)
                raise ConfigError(f"{option} is {getattr(self, name)}; it must be 0 or more")


@dataclass(frozen=True)
class QuantizeOptions(MeasureOptions):
    """The options of `regard quantize`."""

    kind: Annotated[
        Literal["int8", "int8-dynamic", "int4", "bf16"],
        Option("int8 stores weights in 8 bits; int8-dynamic also rounds the activations to 8 bits, "
               "which is faster for many tokens at once; int4 stores weights in 4 bits, by groups "
               "of 32; bf16 stores weights in 16 bits.", "--scheme"),
    ] = "int8"  # fmt: skip
    exclude: Annotated[
        Sequence[str],
        Option("Leave these layers as they are, such as 'blocks.0.*'; may be repeated.",
               metavar="PATTERN"),
    ] = ()  # fmt: skip
    calibrate: Annotated[
        str | None,
        Option("Fit the scales to the inputs of the layers on this text file.", metavar="TEXT"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in KINDS:
            raise UnknownName("kind", self.kind, KINDS)
        if self.calibrate and self.kind == "bf16":
            raise ConfigError("bf16 has no scales to fit; leave --calibrate out, or use int8")

    @property
    def options(self) -> dict[str, Any]:
        return {"kind": KINDS[self.kind], "exclude": list(self.exclude)}


@dataclass(frozen=True)
class PruneOptions(MeasureOptions):
    """The options of `regard prune`. Every share is a share of what the model has now."""

    heads: Annotated[
        float, Option("Remove this share of all heads, the least important ones.", metavar="SHARE")
    ] = 0.0
    listed: Annotated[
        Sequence[str],
        Option("Remove these heads, counted from 0, such as blocks.0:1,3; may be repeated.",
               "--head-list", "LAYER:HEADS"),
    ] = ()  # fmt: skip
    ffn_units: Annotated[
        float,
        Option("Remove this share of the units of every feed-forward network.", metavar="SHARE"),
    ] = 0.0
    weights: Annotated[
        float,
        Option("Set this share of the single weights to 0, the smallest ones; the model becomes "
               "neither smaller nor faster.", metavar="SHARE"),
    ] = 0.0  # fmt: skip
    scope: Annotated[
        Literal["global", "layer"],
        Option("Choose the smallest weights of all layers together, or of each layer."),
    ] = "global"
    by: Annotated[
        str | None,
        Option("Measure the importance of a unit by gradient or by magnitude.", metavar="NAME",
               default="gradient; without --data magnitude"),
    ] = None  # fmt: skip
    normal: Annotated[
        bool, Option("Divide the importance of a layer's heads by their L2 norm.", "--normalize")
    ] = True
    samples: Annotated[
        int,
        Option("Measure importance on the first N examples of the data; 0 takes all.",
               "--importance-examples", "N"),
    ] = SAMPLES  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = {"--heads": self.heads, "--ffn-units": self.ffn_units, "--weights": self.weights}
        for name, share in shares.items():
            if share and not 0.0 < share < 1.0:
                raise ConfigError(
                    f"{name} is {share:g}; it must be a share between 0 and 1, such as 0.3"
                )
        if not any(shares.values()) and not self.listed:
            raise ConfigError(
                "no option says what to prune; give --heads, --ffn-units or --weights SHARE"
            )
        if self.heads and self.listed:
            raise ConfigError("--heads and --head-list are both given; give only one of them")
        if self.by and self.by not in METHODS:
            raise UnknownName("choice for --by", self.by, METHODS)
        if self.scope not in SCOPES:
            raise UnknownName("scope", self.scope, SCOPES)
        if self.samples < 0:
            raise ConfigError(f"--importance-examples is {self.samples}; it must be 0 or more")
        if self.heads and not self.data:
            raise ConfigError(
                "--heads measures on data which heads are important; give --data, or name the "
                "heads with --head-list"
            )
        for option, is_set, needs, share in (
            ("--by", bool(self.by), "--ffn-units", self.ffn_units),
            ("--scope layer", self.scope == "layer", "--weights", self.weights),
            ("--no-normalize", not self.normal, "--heads", self.heads),
        ):
            if is_set and not share:
                raise ConfigError(
                    f"{option} only changes how {needs} chooses; give {needs} as "
                    f"well, or leave {option} out"
                )
        if self.by == "gradient" and not self.data:
            raise ConfigError("--by gradient needs data; give --data, or --by magnitude")

    @property
    def method(self) -> str:
        return self.by or ("gradient" if self.data else "magnitude")


@dataclass(frozen=True)
class DistillOptions:
    """The options of `regard distill` besides the recipe."""

    teacher: str
    student: Annotated[
        str,
        Option("The student: layers=6 starts with layers of the teacher; layers=4,width=256,heads=4"
               " starts with random weights; or give a model directory.", metavar="SHAPE"),
    ]  # fmt: skip
    style: Annotated[
        str | None,
        Option("hinton learns the softened logits; distilbert also the last hidden states; tinybert"
               " the layers (and for a task then the logits, for as long again).", "--method",
               "NAME", "hinton; for text distilbert"),
    ] = None  # fmt: skip
    sequence: Annotated[
        bool,
        Option("For pairs: learn the teacher's own translations (RUN/first/pairs) as the targets.",
               "--sequence-level"),
    ] = False  # fmt: skip
    num_beams: Annotated[int, NUM_BEAMS] = 4  # of the teacher when it writes translations
    vocab_size: Annotated[
        int | None,
        Option("For labeled examples and a bert with a WordPiece tokenizer: keep N entries of the "
               "teacher's vocabulary.", "--vocab-size", "N", "all"),
    ] = None  # fmt: skip


def amount(text: str) -> dict[str, float]:
    """Parses the value of --adapt ("3", "3 epochs" or "500 steps") into the budget of a recipe."""
    match = AMOUNT.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"--adapt is {text!r}; give epochs, as in 3, or steps, as in '500 steps'")
    number = float(match[1])
    if (match[2] or "").startswith("step"):
        return {"steps": max(1, int(number))}
    return {"epochs": number}


@dataclass(frozen=True)
class FinetuneOptions:
    """The options of `regard finetune` besides the recipe. Without `adapt`, the unlabeled examples
    are pseudo-labeled. With `adapt`, they are read as text, and pseudo-labeled only if `confidence`
    is set."""

    folds: Annotated[
        int | None,
        Option("Cross-validate with K runs RUN/fold-1, …, each validated on another part of the "
               "data; RUN/folds.json holds mean and deviation.", metavar="K"),
    ] = None  # fmt: skip
    adapt: Annotated[
        str | None,
        Option("First continue pre-training on the text of the examples (RUN/adapted), for this "
               "many epochs, or steps as in '500 steps'.", metavar="AMOUNT"),
    ] = None  # fmt: skip
    unlabeled: Annotated[
        str | None,
        Option("Examples without labels. A first model (RUN/first) labels the ones that it is sure "
               "of (RUN/pseudo.jsonl), and RUN also learns from these. --adapt reads them as text.",
               "--unlabeled", "FILE"),
    ] = None  # fmt: skip
    confidence: Annotated[
        float | None,
        Option("Keep pseudo-labels of at least this confidence; with --adapt, make pseudo-labels "
               "only if this is given.", metavar="P",
               default="0.9"),
    ] = None  # fmt: skip

    @classmethod
    def of(cls, table: dict[str, Any]) -> FinetuneOptions:
        """Builds the options from those of a command line and raises ConfigError if they do not fit
        together."""
        stages = cls(**table)
        if stages.folds and stages.folds < 2:
            raise ConfigError(f"--folds is {stages.folds}; a cross-validation has at least 2 parts")
        confidence = stages.confidence
        if confidence is not None and not stages.unlabeled:
            raise ConfigError(
                "--confidence is for --unlabeled examples, and none are given; give --unlabeled, "
                "or leave it out"
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
        """Describes, in order, what happens besides the run itself."""
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
    """The options of `regard align`: its method, and keys of its objective."""

    method: Annotated[
        Literal["dpo", "ipo", "reward", "grpo"],
        Option("dpo and ipo learn from pairs, reward trains a model that scores replies, grpo "
               "learns from a reward."),
    ] = "dpo"  # fmt: skip
    reward: Annotated[
        str | None,
        Option("grpo: the run of a reward model, or one of the rules contains:WORD, share:WORD, "
               "length, length:N, distinct.", metavar="DIR|RULE"),
    ] = None  # fmt: skip
    beta: Annotated[
        float | None,
        Option(
            "The strength of the penalty for moving away from the initial model.",
            metavar="X",
            default="dpo and ipo 0.1, grpo 0.04",
        ),
    ] = None
    limit: Annotated[
        float | None,
        Option(
            "grpo: the mean KL per token above which the penalty grows faster.", "--target-kl", "X"
        ),
    ] = None
    group: Annotated[
        int | None, Option("grpo: sample N replies to each prompt.", "--group-size", "N", "8")
    ] = None
    max_new_tokens: Annotated[
        int | None,
        Option("grpo: write replies of at most N tokens.", "--max-new-tokens", "N", "32"),
    ] = None

    def objective(self) -> dict[str, Any]:
        """Returns the keys for the recipe's objective. Raises ConfigError for an option that the
        method does not use."""
        names = ("reward", "beta", "limit", "group", "max_new_tokens")
        table = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        for name, value in table.items():
            known = self.method != "reward" if name == "beta" else self.method == "grpo"
            if not known:
                option = option_of(type(self), name)
                raise ConfigError(
                    f"{option} is {value}, which --method {self.method} does not use; leave it out"
                )
        return table
