"""Direct preference optimization: the model learns which of two replies people chose, and stays
near the model that it started as (Rafailov et al. 2023).

With h = log π(chosen)/π₀(chosen) - log π(rejected)/π₀(rejected), over the tokens of the replies:

    sigmoid   -(1 - ε) log σ(β h) - ε log σ(-β h)    eq. 7; ε > 0: labels may be wrong (cDPO)
    ipo       (h - 1/(2 β))²                         Azar et al. 2023, eq. 17

IPO sums over the tokens, as in its paper; trl takes their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.core.errors import ConfigError
from regard.data.batching import Ragged, padded
from regard.methods.preference.replies import PreferenceObjective, k3, log_probabilities
from regard.objectives.base import Batch, Loss, Sample
from regard.objectives.causal import choose, padding
from regard.tasks.replies import pairs_of, refuse_none
from regard.tasks.reward import right

LANGUAGE = "language"  # the name of the second loss


@dataclass(frozen=True)
class PreferOptions:
    family: str = ""  # filled in by the run
    form: str | None = None  # "text" or "dialogue"; None: as the model learned
    loss: str = "sigmoid"  # or "ipo"
    beta: float = 0.1  # the strength of the penalty for moving away from the start
    smoothing: float = 0.0  # ε: the share of labels that may be wrong
    language: float = 0.0  # the weight of the language modeling loss on the chosen replies
    reference: str | None = None  # a model directory to use instead of the start
    dropout: bool = False  # the start has none
    digest: str | None = None  # filled in by the run: of the start's weights


class Prefer(PreferenceObjective):
    """The objective of DPO and IPO. Rows 2i and 2i + 1 of a batch are the chosen and the rejected
    reply of sample i."""

    Options: ClassVar[type] = PreferOptions
    name = "prefer"

    def prepare(self) -> None:
        o = self.options
        choose("objective.loss", o.loss, ("sigmoid", "ipo"))
        if o.beta <= 0 or o.language < 0 or not 0 <= o.smoothing < 0.5:
            raise ConfigError(
                f"objective.beta is {o.beta:g}, smoothing {o.smoothing:g}, language "
                f"{o.language:g}; beta must be above 0, smoothing from 0 to below 0.5, language 0 "
                "or more"
            )
        if o.smoothing and o.loss == "ipo":
            raise ConfigError("objective.smoothing is for the loss 'sigmoid'; ipo has none")
        self.weights = {LANGUAGE: o.language} if o.language else {}
        super().prepare()

    def encode(self) -> None:
        rows, lengths, prompts = [], [], []
        for pair in pairs_of(self.corpus, self.seq_len, self.options.form):
            if pair is None:
                self.left += 1
                continue
            self.cut += pair.cut
            replies = pair.chosen, pair.rejected
            rows.append([i for reply in replies for i in (*pair.prompt, *reply)])
            lengths.append([len(pair.prompt) + len(reply) for reply in replies])
            prompts.append(len(pair.prompt))
        if not rows:
            raise refuse_none(self.corpus, self.left, self.seq_len)
        self.rows, self.lengths = Ragged(rows), np.array(lengths, np.int64)
        self.prompts, self.sizes = np.array(prompts, np.int64), self.rows.sizes
        self.longest = int(self.lengths.max())

    def sample(self, epoch: int, index: int) -> Sample:
        return {
            "tokens": self.rows[index],
            "lengths": self.lengths[index],
            "prompt": self.prompts[index],
        }

    def collate(self, samples: Sequence[Sample]) -> Batch:
        rows = [row for s in samples for row in np.split(s["tokens"], s["lengths"][:1])]
        prompts = np.repeat(np.array([s["prompt"] for s in samples]), 2)
        tokens, attention_mask = padded(rows, padding(self.corpus))  # type: ignore[arg-type]
        scored = (np.arange(1, tokens.shape[1]) >= prompts[:, None]) & attention_mask[:, 1:]
        batch = {"tokens": tokens, "attention_mask": attention_mask, "scored": scored}
        return {name: torch.from_numpy(value) for name, value in batch.items()}

    def targets_in(self, batch: Batch) -> int:
        return int(batch["scored"].sum())

    @property
    def reads_on(self) -> bool:
        return bool(self.options.language) and self.learning

    def counts(self, batch: Batch) -> dict[str, float]:
        counts = {self.name: batch["tokens"].size(0) / 2}
        if self.reads_on:
            counts[LANGUAGE] = float(batch["scored"][::2].sum())
        return counts

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        tokens, scored, beta = batch["tokens"], batch["scored"], self.options.beta
        with self.still(model):
            ours = log_probabilities(model, tokens, scored)
        with torch.no_grad():
            theirs = log_probabilities(self.start(model), tokens, scored)
        chosen, rejected = (ours - theirs).sum(1).view(-1, 2).unbind(1)
        gap = chosen - rejected
        sums = {self.name: self.each(gap).sum()}
        if self.reads_on:
            sums[LANGUAGE] = -ours[::2].sum()
        of, seen = gap.numel(), gap.detach()
        figures: dict[str, tuple[Tensor, Any]] = {
            "right": (right(seen).sum(), of),
            "margin": (beta * seen.sum(), of),
            "chosen": (beta * chosen.detach().sum(), of),
            "rejected": (beta * rejected.detach().sum(), of),
            "drift": (k3(ours.detach(), theirs).sum(), scored.sum()),
        }
        return Loss(sums, self.counted(batch), figures)

    def each(self, gap: Tensor) -> Tensor:
        """Returns the loss of each pair. Label smoothing is off in validation."""
        o = self.options
        if o.loss == "ipo":
            return (gap - 1 / (2 * o.beta)) ** 2
        wrong = o.smoothing if self.learning else 0.0
        sure = F.logsigmoid(o.beta * gap)
        return -(1 - wrong) * sure - (wrong * F.logsigmoid(-o.beta * gap) if wrong else 0.0)

    def measure(self, totals: Loss) -> dict[str, float]:
        """Returns the metrics. `margin`, `chosen` and `rejected` are β times the log-ratios, DPO's
        implicit rewards; `drift` says how far the probability of a token has moved (k3)."""
        loss = float(totals.sums[self.name]) / max(totals.counts[self.name], 1e-9)
        seen = {name: float(total) / max(float(of), 1) for name, (total, of) in totals.seen.items()}
        return {"loss": loss, "accuracy": seen.pop("right"), **seen}
