"""Multiple choice: a row for each choice, a score for each row, softmax over the choices.

BERT: Devlin et al. 2018, 4.4 (SWAG); XLNet: run_race.py of zihangdai/xlnet, and Longformer as it;
GPT-1: Radford et al. 2018, 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.attention.precision import wide
from regard.core.errors import InputError
from regard.data.examples import Choice
from regard.data.input_formats import Framed, framed
from regard.objectives.base import Batch, Loss, Sample
from regard.tasks.labelled import Prediction
from regard.tasks.multi_row import Several, SeveralOptions

# What COPA asks, in its own words (Roemmele et al. 2011); other questions are asked as they are.
ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
GAP = "_"  # where a question of RACE leaves a place for the choice
LONGEST = 128  # tokens of a question with a choice (run_race.py); what comes before is cut off


@dataclass(frozen=True)
class ChooseOptions(SeveralOptions):
    """Nothing of its own."""


class Choose(Several):
    Options: ClassVar[type] = ChooseOptions
    name = "choose"
    FAMILIES = ("bert", "xlnet", "longformer", "gpt")

    def prepare(self) -> None:
        self.gold = self.answers()
        super().prepare()

    def answers(self) -> np.ndarray:
        """The right choice of every example; -1 where it is not known."""
        examples: Any = self.corpus.examples
        for example in examples:
            count, label = len(example.choices), example.label
            if count == 0 or (label is not None and not 0 <= label < count):
                raise InputError(
                    f"{example.place}: of {count} choices number {label} is said to be right; "
                    "choices count from 0"
                )
        found = np.array([-1 if e.label is None else e.label for e in examples], np.int64)
        if self.corpus.split in ("train", "valid") and not (found >= 0).any():
            raise InputError(f"none of the examples of the {self.corpus.split} data has a label")
        return found

    # -- rows

    def groups(self) -> Iterator[list[Framed]]:
        return self.groups_of(self.corpus.examples)

    def groups_of(self, examples: Any) -> Iterator[list[Framed]]:
        first = self.options.family == "gpt"
        return self.asked_first(examples) if first else self.asked_second(examples)

    def asked_first(self, examples: Sequence[Choice]) -> Iterator[list[Framed]]:
        """The question behind the premise, then the choice: so GPT-1 reads them."""
        questions = sorted({q for example in examples if (q := question(example))})
        sizes = {q: len(ids) for q, ids in zip(questions, self.texts(questions), strict=True)}
        stems = self.texts([joined(e.premise, question(e)) for e in examples])
        flat = iter(self.texts([choice for e in examples for choice in e.choices]))
        for example, stem in zip(examples, stems, strict=True):
            size = sizes.get(question(example), 0)
            yield [self.row_of_stem(stem, size, next(flat)) for _ in example.choices]

    def row_of_stem(self, stem: list[int], asked: int, choice: list[int]) -> Framed:
        """A premise that is too long loses its end, but not the question behind it."""
        room, kept = max(self.room - len(choice), asked), stem
        if asked and len(stem) > room:
            kept = stem[: room - asked] + stem[-asked:]
        return self.row(kept, choice, len(kept) < len(stem))

    def asked_second(self, examples: Sequence[Choice]) -> Iterator[list[Framed]]:
        """The premise, then the question with the choice: so encoders read them."""
        premises = self.texts([example.premise for example in examples])
        flat = iter(self.texts([answered(e, choice) for e in examples for choice in e.choices]))
        for example, premise in zip(examples, premises, strict=True):
            asks = bool(question(example))
            yield [self.row_of_answer(premise, next(flat), asks) for _ in example.choices]

    def row_of_answer(self, premise: list[int], second: list[int], asks: bool) -> Framed:
        """With a question only the premise is cut; else the longer of two texts is."""
        if not asks:
            return self.row(premise, second, False)
        kept = second[-min(LONGEST, max(self.room, 1)) :]
        left = premise[: max(self.room - len(kept), 0)]
        return self.row(left, kept, len(left) + len(kept) < len(premise) + len(second))

    @property
    def room(self) -> int:
        """Tokens of a row beside its marks."""
        return self.length - sum(part not in ("a", "b") for part, _ in self.frame.double)

    def row(self, first: list[int], second: list[int], cut: bool) -> Framed:
        made = framed(self.frame, self.corpus.special, first, second, self.length)
        return made._replace(cut=made.cut or cut)

    def extra(self, index: int) -> Sample:
        gold = self.gold[index]
        return {"gold": np.array(max(gold, 0)), "known": np.array(gold >= 0)}

    # -- learning

    def heads(self) -> dict[str, int]:
        return {"choose": 1}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float(batch["known"].sum())} | self.language_counts(batch)

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[B, choices]; -∞ where an example has fewer than others."""
        return self.judged(model, self.hidden(model, batch), batch)

    def judged(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        scores = wide(model.read("choose", hidden, batch["real"]))[:, 0]
        return scores[batch["rows"]].masked_fill(~batch["held"], -torch.inf)

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        hidden = self.hidden(model, batch)
        scores = self.judged(model, hidden, batch)
        gold, known = batch["gold"], batch["known"]
        each = torch.nn.functional.cross_entropy(scores, gold, reduction="none")
        sums = {self.name: (each * known).sum()} | self.language_sums(model, hidden, batch)
        right = ((scores.argmax(1) == gold) & known).sum()
        return Loss(sums, self.counted(batch), {"right": (right, known.sum())})

    def measure(self, totals: Loss) -> dict[str, float]:
        mean = float(totals.sums[self.name]) / max(totals.counts[self.name], 1e-9)
        right, of = totals.seen["right"]
        return {"accuracy": float(right) / max(of, 1), "loss": mean}

    def better(self, new: float, old: float) -> bool:
        return new > old

    # -- answers

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        shares = self.scores(model, batch).softmax(1).tolist()
        counts = batch["held"].sum(1).tolist()
        return [row[:count] for row, count in zip(shares, counts, strict=True)]

    def merge(self, found: list[Any]) -> list[Prediction]:
        best = [max(range(len(row)), key=row.__getitem__) for row in found]
        return [Prediction(i, row[i], row) for i, row in zip(best, found, strict=True)]


def question(example: Choice) -> str:
    """What is asked of the premise; "" for nothing."""
    asks = (example.asks or "").strip()
    return ASKED.get(asks.lower(), asks)


def answered(example: Choice, choice: str) -> str:
    """The question with a choice, which fills its gap if it has one."""
    asks = question(example)
    return asks.replace(GAP, choice) if GAP in asks else joined(asks, choice)


def joined(*texts: str) -> str:
    return " ".join(filter(None, texts))
