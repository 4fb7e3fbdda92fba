"""What is judged by its marks: a text, two texts in both orders, a question with its choices.

A sample may be several rows; with GPT the language model learns on beside the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.exchange.directory import family_of_model
from regard.objectives.base import Batch, Sample
from regard.objectives.labelled import LabelledObjective
from regard.objectives.reading import check_room, inner
from regard.tasks.frames import Framed, bare

LANGUAGE = "language"  # the name of the second loss
PAPER = 0.5  # what it counts: Radford et al. 2018, 4.1


@dataclass(frozen=True)
class SeveralOptions:
    family: str = ""  # settled: how a text is framed
    auxiliary: float | None = None  # what the language model's loss counts; None: as in the paper
    marks: bool = True  # False: a GPT reads the text alone, and its last token speaks for it


class Several(LabelledObjective):
    """A subclass gives `groups`, the rows of each sample."""

    several = True  # False: every sample is one row

    def prepare(self) -> None:
        self.auxiliary = self.language_weight()
        self.weights = {LANGUAGE: self.auxiliary} if self.auxiliary else {}
        super().prepare()

    def language_weight(self) -> float:
        given, family = self.options.auxiliary, self.options.family
        if given is None:
            return PAPER if family == "gpt" else 0.0
        if isinstance(given, bool) or not isinstance(given, int | float) or given < 0:
            raise ConfigError(f"objective.auxiliary is {given!r}; it must be a number from 0 on")
        if given and family != "gpt":
            raise ConfigError(
                f"objective.auxiliary is {given:g}, but {family} is no language model; only gpt is"
            )
        return float(given)

    # -- rows

    def encode(self) -> tuple[list[list[int]], list[list[int]]]:
        if not self.options.marks:
            if self.options.family != "gpt":
                raise ConfigError(f"{self.options.family} cannot do without marks; only gpt can")
            self.frame = bare(self.frame)
        made = self.groups()
        self.cut = sum(any(row.cut for row in group) for group in made)
        sizes = [[len(row.ids) for row in group] for group in made]
        self.longest = max(map(max, sizes), default=0)
        self.lengths = [np.array(one, np.int64) for one in sizes] if self.several else []
        return (
            [[i for row in group for i in row.ids] for group in made],
            [[s for row in group for s in row.segments] for group in made],
        )

    def groups(self) -> list[list[Framed]]:
        raise NotImplementedError

    def sample(self, epoch: int, index: int) -> Sample:
        found = super().sample(epoch, index)
        return found | {"lengths": self.lengths[index]} if self.several else found

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Tokens are those of all rows [R, T]; `rows` [B, K] says which ones a sample has, where
        `held` [B, K].
        """
        if not self.several:
            return super().collate(samples)
        made = super().collate([row for sample in samples for row in divided(sample)])
        counts = np.array([len(sample["lengths"]) for sample in samples])
        place = np.arange(counts.max())
        held = place < counts[:, None]
        rows = np.where(held, (np.cumsum(counts) - counts)[:, None] + place, 0)
        alone = [name for name in samples[0] if name not in ("tokens", "segments", "lengths")]
        rest = {name: np.stack([sample[name] for sample in samples]) for name in alone}
        rest |= {"rows": rows, "held": held}
        return made | {name: torch.from_numpy(value) for name, value in rest.items()}

    # -- the model

    def check(self, model: Any) -> None:
        found = family_of_model(inner(model))
        if found != self.options.family:
            raise ConfigError(f"the model is a {found}; this was made for {self.options.family}")
        check_room(model, self.longest)
        config, last = inner(model).config, int(self.segments.flat.max(initial=0))
        if last >= getattr(config, "segments", last + 1) and self.frame.segments:
            raise ConfigError(
                f"two texts take {last + 1} segments, and this model has learned {config.segments}"
            )

    def about(self) -> dict[str, Any]:
        """Others find a GPT's last token by what padding is."""
        special = self.corpus.special
        pad = special.end if special.pad is None else special.pad
        return super().about() | ({"pad_token_id": pad} if self.options.family == "gpt" else {})

    # -- the language model beside the task

    @property
    def reads_on(self) -> bool:
        return bool(self.auxiliary) and self.learning

    def language_counts(self, batch: Batch) -> dict[str, float]:
        return {LANGUAGE: float(batch["tokens"].size(0))} if self.reads_on else {}

    def language_sums(self, model: Any, hidden: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Of each row the mean surprisal of its tokens but the first, as in openai's
        finetune-transformer-lm; summed over the rows.
        """
        if not self.reads_on:
            return {}
        words, scored = batch["tokens"][:, 1:], batch["real"][:, 1:]
        exact = torch.promote_types(hidden.dtype, torch.float32)
        shares = scored.to(exact) / scored.sum(1, keepdim=True).clamp_min(1)
        rows = hidden[:, :-1]
        if torch.compiler.is_compiling():  # which wants to know all shapes beforehand
            parts = rows.flatten(0, 1), words.flatten(), shares.flatten()
        else:
            parts = rows[scored], words[scored], shares[scored]
        return {LANGUAGE: inner(model).output.surprisal(*parts)}

    def targets_in(self, batch: Batch) -> int:
        return int(batch["real"][:, 1:].sum()) if self.reads_on else 0


def divided(sample: Sample) -> list[Sample]:
    """The rows of a sample."""
    ends = np.cumsum(sample["lengths"])[:-1]
    parts = (np.split(sample[name], ends) for name in ("tokens", "segments"))
    return [{"tokens": a, "segments": b} for a, b in zip(*parts, strict=True)]


def wide(scores: Tensor) -> Tensor:
    """In at least 32 bits."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
