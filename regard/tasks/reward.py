"""A reward model: it gives one score to a reply and is learned from which of two replies people
chose (Stiennon et al. 2020; Ouyang et al. 2022, 3.5).

The loss is that of Bradley and Terry, -log σ(r_chosen - r_rejected): only differences of scores
have a meaning. The score is read from the last token, which closes the reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import wide
from regard.core.errors import ConfigError
from regard.data.input_formats import FormattedInput
from regard.models.family import Family
from regard.objectives.base import Batch, Loss
from regard.tasks.base import Prediction
from regard.tasks.multi_row import MultiRow, MultiRowOptions
from regard.tasks.replies import (
    check_family,
    form_of,
    notes_of,
    pairs_of,
    prompts_of,
    refuse_none,
    replies_of,
)


@dataclass(frozen=True)
class RewardOptions(MultiRowOptions):
    auxiliary: float | None = 0.0
    marks: bool = False  # replies are read without special tokens around them
    form: str | None = None  # text or dialogue: how a text is read; None: as the model was trained


class Reward(MultiRow):
    """The objective of a reward model. A sample is two rows with the chosen reply first. In
    prediction a sample may also be one reply."""

    Options: ClassVar[type] = RewardOptions
    name = "reward"

    @classmethod
    def suits(cls, card: Family) -> bool:
        return super().suits(card) and card.model.causal

    def prepare(self) -> None:
        check_family(
            self, self.learners(), "score replies: it has no head for it, or is not causal"
        )
        if self.options.marks:
            raise ConfigError("objective.marks is true; a reward model needs objective.marks=false")
        form = form_of(self.options.form, self.corpus.path)
        self.options = replace(self.options, form=form)
        self.left = 0
        super().prepare()
        if len(self) == 0:
            raise refuse_none(self.corpus, self.left, self.seq_len)

    def settled(self) -> dict[str, Any]:
        return super().settled() | {"form": self.options.form}

    @property
    def note(self) -> str:
        return notes_of(self.corpus, self.cut, self.left, self.seq_len)

    # -- rows

    def groups(self) -> Iterator[list[FormattedInput]]:
        if self.corpus.split == "test":
            yield from self.asked()
            return
        for pair in pairs_of(self.corpus, self.seq_len, self.options.form):
            if pair is None:
                self.left += 1
                continue
            rows = ([*pair.prompt, *reply] for reply in (pair.chosen, pair.rejected))
            yield [FormattedInput(ids, [0] * len(ids), pair.cut) for ids in rows]

    def asked(self) -> Iterator[list[FormattedInput]]:
        """Yields the rows of every reply. None may be left out here: a long one loses its end."""
        tokenizer, special = self.corpus.tokenizer, self.corpus.special
        examples: Any = self.corpus.examples
        prompts = prompts_of(examples, tokenizer, special, self.options.form)
        for example, prompt in zip(examples, prompts, strict=True):
            texts = [t for t in (example.chosen, example.rejected) if t is not None]
            rows = []
            for ids in replies_of(texts, tokenizer, special):
                reply = ids if len(ids) < self.seq_len else [*ids[: self.seq_len - 2], ids[-1]]
                start, cut = prompt.fit(self.seq_len - len(reply))
                row = [*start, *reply]
                rows.append(FormattedInput(row, [0] * len(row), cut or len(reply) < len(ids)))
            yield rows

    # -- learning

    def heads(self) -> dict[str, int]:
        return {"choose": 1}

    def counts(self, batch: Batch) -> dict[str, float]:
        counts = {self.name: float(batch["rows"].size(0))}
        return counts | self.language_counts(batch)

    def judged(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """Returns scores [B, 2], with -∞ if there is only one reply."""
        scores = wide(model.read("choose", hidden, batch["attention_mask"]))[:, 0]
        return scores[batch["rows"]].masked_fill(~batch["held"], -torch.inf)

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        hidden = self.hidden(model, batch)
        chosen, rejected = self.judged(model, hidden, batch).unbind(1)
        margin = chosen - rejected
        sums = {self.name: -F.logsigmoid(margin).sum()}
        sums |= self.language_sums(model, hidden, batch)
        of, seen = margin.numel(), margin.detach()
        figures = {"right": (right(seen).sum(), of), "margin": (seen.sum(), of)}
        return Loss(sums, self.counted(batch), figures)

    def measure(self, totals: Loss) -> dict[str, float]:
        mean = float(totals.sums[self.name]) / max(totals.counts[self.name], 1e-9)
        seen = {name: float(total) / max(of, 1) for name, (total, of) in totals.seen.items()}
        return {"accuracy": seen["right"], "loss": mean, "margin": seen["margin"]}

    def better(self, new: float, old: float) -> bool:
        return new > old

    # -- answers

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        scores = self.judged(model, self.hidden(model, batch), batch).tolist()
        counts = batch["held"].sum(1).tolist()
        return [row[:count] for row, count in zip(scores, counts, strict=True)]

    def merge(self, rows: list[Any]) -> list[Prediction]:
        """Returns the better of two replies (0: the first) and its probability; of one its
        score."""
        answers = []
        for row in rows:
            if len(row) == 1:
                answers.append(Prediction(row[0]))
                continue
            shares = torch.tensor(row, dtype=torch.float64).softmax(0).tolist()
            best = max(range(len(row)), key=row.__getitem__)
            answers.append(Prediction(best, shares[best], shares))
        return answers


def right(margin: Tensor) -> Tensor:
    """Returns 1 if the chosen reply has the higher score, and ½ if both scores are equal."""
    return (margin > 0).float() + (margin == 0).float() / 2
