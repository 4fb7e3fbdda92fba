"""How to decode: every choice with its default, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from regard.core.errors import ConfigError, UnknownName
from regard.core.tables import from_table
from regard.decoding import processors as change
from regard.decoding.processors import Processor

PENALTIES = ("paper", "common")
STOPPING = ("certain", "estimate", "full")
PRECISIONS = ("own", "bf16")
OF_BEAMS = ("alpha", "penalty", "stopping")


@dataclass(frozen=True)
class Options:
    """Greedy unless something asks for a draw (temperature, top_k, top_p, typical, samples) or for
    beams.
    """

    tokens: int = 100  # at most so many new ones
    minimum: int = 0  # no end before so many
    temperature: float | None = None  # 0: greedy
    top_k: int | None = None
    top_p: float | None = None
    typical: float | None = None
    repetition: float | None = None  # penalty of tokens that were there before; 1: none
    no_repeat: int | None = None  # size of the n-grams that must not come twice
    banned: Sequence[int] | None = None  # ids never chosen; None: padding and mask
    stop: Sequence[str] = ()  # words that end a text, and are cut off
    end: Sequence[int] | None = None  # ids that end a text; None: the model's own
    seed: int = 0
    samples: int = 1  # continuations drawn of each prompt
    beams: int = 1
    best: int = 1  # of the beams' results, so many
    penalty: str = "paper"  # of length n: "paper" ((5 + n) / 6)^alpha, "common" n^alpha
    alpha: float = 0.6
    stopping: str = "certain"  # of beams; see beam.py
    truncate: bool = False  # keep the end of a prompt that is too long, instead of a refusal
    precision: str = "own"  # "bf16": autocast; a model loaded in bf16 is faster still
    batch: int = 32  # prompts at a time; changes the speed, not the result
    first: int = 0  # number of the first prompt: draws depend on (seed, number, sample, step)

    @classmethod
    def of(cls, table: dict[str, Any]) -> Self:
        if isinstance(table.get("stop"), str):
            table = table | {"stop": (table["stop"],)}
        options = from_table(cls, table, what="option", advice="(of decoding)")
        options.check()
        for name in OF_BEAMS:
            value = getattr(options, name)
            if options.beams == 1 and value != getattr(cls, name):
                raise ConfigError(
                    f"{name} is {value}, which only matters to beams; leave it out, or ask "
                    "for 2 beams or more"
                )
        return options

    def check(self) -> None:
        limits: list[tuple[str, float, float, str]] = [
            ("tokens", 1, math.inf, "at least 1"),
            ("minimum", 0, self.tokens, "from 0 to the number of tokens"),
            ("temperature", 0, math.inf, "0 (greedy) or more"),
            ("top_k", 1, math.inf, "at least 1"),
            ("no_repeat", 1, math.inf, "at least 1"),
            ("samples", 1, math.inf, "at least 1"),
            ("beams", 1, math.inf, "at least 1"),
            ("best", 1, self.beams, "from 1 to the number of beams"),
            ("batch", 1, math.inf, "at least 1"),
            ("first", 0, math.inf, "0 or more"),
            ("seed", 0, math.inf, "0 or more"),
        ]
        for name, low, high, wanted in limits:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it must be {wanted}")
        for name in ("top_p", "typical", "repetition"):
            value = getattr(self, name)
            most = math.inf if name == "repetition" else 1.0
            if value is not None and not 0 < value <= most:
                raise ConfigError(
                    f"{name} is {value}; it must be above 0" + (" and at most 1" * (most == 1.0))
                )
        for name, known in (
            ("penalty", PENALTIES), ("stopping", STOPPING), ("precision", PRECISIONS)
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise UnknownName(name, str(getattr(self, name)), known)
        if "" in self.stop:
            raise ConfigError("a stop word is empty; it would end every text at once")
        if self.beams > 1 and self.draws:
            raise ConfigError(
                f"beams is {self.beams}, and beams search for the likeliest text instead of "
                "drawing one; leave out temperature, top_k, top_p, typical and samples, or beams"
            )

    @property
    def draws(self) -> bool:
        if self.temperature == 0:
            return False
        choices = (self.temperature, self.top_k, self.top_p, self.typical)
        return self.samples > 1 or any(value is not None for value in choices)

    def processors(self, ends: Sequence[int], banned: Sequence[int]) -> Processor | None:
        """In the order of transformers' generate; None if nothing is to be done."""
        chosen: list[Processor] = []
        if self.repetition not in (None, 1.0):
            chosen.append(change.repetition(float(self.repetition or 1.0)))
        if self.no_repeat is not None:
            chosen.append(change.no_repeat(self.no_repeat))
        if banned:
            chosen.append(change.banned(banned))
        if self.minimum and ends:
            chosen.append(change.at_least(self.minimum, ends))
        if self.draws:
            if self.temperature not in (None, 1.0):
                chosen.append(change.temperature(float(self.temperature or 1.0)))
            if self.top_k is not None:
                chosen.append(change.top_k(self.top_k))
            if self.top_p is not None and self.top_p < 1.0:
                chosen.append(change.top_p(self.top_p, self.top_k or change.SHORTLIST[0]))
            if self.typical is not None and self.typical < 1.0:
                chosen.append(change.typical(self.typical))
        return change.chain(chosen) if chosen else None
