"""BERT's pairs of sentences (Devlin et al. 2018, 3.1 and A.2; create_pretraining_data.py): predict
the masked words, and whether B follows A; or, as in ALBERT (Lan et al. 2019, 3.1), whether the two
are in order; or only the words.

In the authors' code a pass over the text draws random numbers as it goes, so an instance depends on
all instances before it. Here the random numbers of an instance depend on the sentence it begins
with, so that only its beginning depends on the others: `SentencePass` finds the beginnings once per
epoch and stores one in 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.core.errors import ConfigError
from regard.core.seeding import LARGEST, keyed
from regard.data.corpus import Corpus
from regard.models.state import State
from regard.objectives.base import Batch, HeadAnswers, Loss, Sample
from regard.objectives.causal import choose
from regard.objectives.masked import (
    Mask,
    Masked,
    check_reads_both_sides,
    guess_measures,
    guesses,
    rows_at,
)

KEPT = 64  # one of this many beginnings is stored
BLOCK = 2**16  # sentences that are processed together


@dataclass(frozen=True)
class SentencesOptions:
    task: str = "next"  # does B follow A? "order": are both in order? "none": one text, no task
    short: float = 0.1  # the share of documents whose instances are shorter
    share: float = 0.15
    most: int | None = None
    rare: float = 0.0
    whole_words: str = "no"
    dynamic: bool = False  # as in BERT, `duplicates` passes over the text take turns
    duplicates: int = 10
    global_first: bool = True


class InstanceStep(NamedTuple):
    """The instances that begin with given sentences."""

    document: np.ndarray
    middle: np.ndarray  # the sentence that B would begin with
    end: np.ndarray  # the sentence after the last collected one
    apart: np.ndarray  # True if B comes from elsewhere, and unused sentences are put back
    goal: np.ndarray  # the tokens to collect

    @property
    def next(self) -> np.ndarray:
        """The sentence that the next instance begins with."""
        return np.where(self.apart, self.middle, self.end)


class SentencePass:
    """One pass over all sentences: it finds where instances begin."""

    def __init__(
        self, corpus: Corpus, seed: int, version: int, room: int, short: float, task: str
    ) -> None:
        self.corpus, self.room, self.short, self.task = corpus, room, short, task
        self.keys = [
            int(keyed(seed, name, version).integers(LARGEST)) for name in ("goal", "split")
        ]
        self.total = len(corpus.sentences) - 1
        self.count, starts, at = 0, [], 0
        for first in range(0, self.total, BLOCK):
            last = min(first + BLOCK, self.total)
            follow = self.steps(first, last).next.tolist()
            while at < last:
                if self.count % KEPT == 0:
                    starts.append(at)
                self.count += 1
                at = follow[at - first]
        self.kept = np.array([*starts, self.total])

    def steps(self, first: int, last: int) -> InstanceStep:
        """Returns the instance that would begin with each of these sentences."""
        corpus = self.corpus
        starts = np.asarray(corpus.sentences[first:last])
        document = np.searchsorted(corpus.documents, starts, "right") - 1
        low, high = int(document[0]), int(document[-1]) + 1
        edges = np.searchsorted(corpus.sentences, corpus.documents[low + 1 : high + 1])
        goal = self.goals(low, high)[document - low]
        reached = np.searchsorted(corpus.sentences, starts + goal)
        end = np.minimum(reached, edges[document - low])
        begin, draws = np.arange(first, last), uniform(self.keys[1], first, last)
        middle = begin + 1 + (draws[:, 0] * (end - begin - 1)).astype(np.int64)
        apart = end - begin == 1
        if self.task == "next":
            apart |= draws[:, 1] < 0.5
        elif self.task == "none":
            apart[:] = False
        return InstanceStep(document, middle, end, apart, goal)

    def goals(self, first: int, last: int) -> np.ndarray:
        """Returns the tokens that the instances of each document collect: mostly all that fit."""
        draws = uniform(self.keys[0], first, last)
        shorter = 2 + (draws[:, 1] * (self.room - 1)).astype(np.int64)
        return np.where(draws[:, 0] < self.short, shorter, self.room)

    def find(self, place: int) -> tuple[int, InstanceStep]:
        """Returns the first sentence of an instance, and its InstanceStep."""
        first, last = (int(at) for at in self.kept[place // KEPT : place // KEPT + 2])
        steps = self.steps(first, last)
        follow, at = steps.next, 0
        for _ in range(place % KEPT):
            at = int(follow[at]) - first
        return first + at, InstanceStep(*(values[at] for values in steps))


def uniform(key: int, first: int, last: int) -> np.ndarray:
    """Returns rows first … last - 1 of an endless random table in [0, 1), four numbers per row."""
    bits = np.random.Philox(key)
    bits.advance(first)
    return np.random.Generator(bits).random((last - first, 4))


class Sentences(Masked):
    """[CLS] A [SEP] B [SEP] or, without a second task, [CLS] A [SEP] of whole sentences.

    An epoch is one pass, and every pass draws new random numbers, so that the numbers of instances
    differ a little. An epoch has as many samples as the first pass has instances; in another pass a
    few instances are left out or used twice, evenly spread.
    """

    Options: ClassVar[type] = SentencesOptions
    name = "sentences"

    def prepare(self) -> None:
        o = self.options
        choose("task", o.task, ("next", "order", "none"))
        if not 0 <= o.short <= 1:
            raise ConfigError(f"short is {o.short}; it must be from 0 to 1")
        self.pairs = o.task != "none"
        self.room = self.seq_len - (3 if self.pairs else 2)
        if self.room < 2:
            raise ConfigError(
                f"batch.seq_len {self.seq_len} leaves no room for two tokens; make it larger"
            )
        self.cls, self.sep = (self.corpus.special.need(role) for role in ("cls", "sep"))
        self.mask = Mask(self.corpus, o, self.seq_len)
        self.passes: dict[int, SentencePass] = {}
        self.size = self.walk(0).count if len(self.corpus) else 0

    def __len__(self) -> int:
        return self.size

    def walk(self, version: int) -> SentencePass:
        """Returns the pass of an epoch; the last two passes are cached."""
        if version not in self.passes:
            o = self.options
            new = SentencePass(self.corpus, self.seed, version, self.room, o.short, o.task)
            self.passes = dict([*self.passes.items(), (version, new)][-2:])
        return self.passes[version]

    def sample(self, epoch: int, index: int) -> Sample:
        version = self.version(epoch)
        walk = self.walk(version)
        begin, step = walk.find(index * walk.count // self.size)
        draw = keyed(self.seed, "pair", version, index)
        if self.pairs:
            parts, changed = self.pair(begin, step, draw)
        else:
            parts, changed = [self.stretch(begin, int(step.end))], False
        texts = [self.corpus.read(*part) for part in cut(parts, self.room, draw)]
        tokens = np.array([self.cls], np.int64)
        for text in texts:
            tokens = np.concatenate([tokens, text, [self.sep]])
        hidden = self.mask(tokens, draw)
        sample = {**self.padded(tokens), **hidden}
        if self.pairs:
            place, border = np.arange(self.seq_len), len(texts[0]) + 2
            sample["segments"] = ((place >= border) & (place < len(tokens))).astype(np.int64)
            sample["next"] = np.array(changed, np.int64)
        return sample

    def pair(
        self, begin: int, step: InstanceStep, draw: np.random.Generator
    ) -> tuple[list[tuple[int, int]], bool]:
        """Returns the token ranges of A and B, and whether B is not the text after A."""
        a = self.stretch(begin, int(step.middle))
        if step.apart:
            return [
                a,
                self.elsewhere(int(step.document), int(step.goal) - (a[1] - a[0]), draw),
            ], True
        b = self.stretch(int(step.middle), int(step.end))
        if self.options.task == "order" and draw.random() < 0.5:
            return [b, a], True
        return [a, b], False

    def elsewhere(self, document: int, goal: int, draw: np.random.Generator) -> tuple[int, int]:
        """Returns the range of sentences of another document (after ten tries perhaps the same),
        from a random sentence on."""
        tries = draw.integers(len(self.corpus.documents) - 1, size=10).tolist()
        other = next((d for d in tries if d != document), tries[-1])
        sentences = self.corpus.sentences
        first, last = np.searchsorted(sentences, self.corpus.documents[other : other + 2])
        begin = int(draw.integers(first, last))
        reached = np.searchsorted(sentences, int(sentences[begin]) + goal)
        return self.stretch(begin, int(np.clip(reached, begin + 1, last)))

    def stretch(self, first: int, last: int) -> tuple[int, int]:
        """Returns the token range of sentences, without a document's end unless it is alone."""
        begin, before, end = (int(self.corpus.sentences[i]) for i in (first, last - 1, last))
        documents = self.corpus.documents
        closed = int(documents[np.searchsorted(documents, end)]) == end
        return begin, end - (closed and end - before > 1)

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"masked": float(batch["shares"].sum()), **self.answer_counts(batch)}

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        hidden = self.read(model, batch)
        loss = guesses("masked", model, rows_at(hidden, batch["targets"]), batch)
        if self.pairs:
            answers, truth = model.read("next", hidden, batch["attention_mask"]), batch["next"]
            exact = torch.promote_types(answers.dtype, torch.float32)
            count = float(truth.size(0))
            loss.sums["next"] = F.cross_entropy(answers.to(exact), truth, reduction="sum")
            loss.counts["next"] = count
            loss.seen["next_right"] = (answers.detach().argmax(-1) == truth).sum(), count
        return loss

    def head_answers(self, scores: Mapping[str, Tensor], batch: Batch) -> list[HeadAnswers]:
        return [HeadAnswers("next", scores["next"])] if self.pairs else []

    def answer_counts(self, batch: Batch) -> dict[str, float]:
        return {"next": float(batch["next"].size(0))} if self.pairs else {}

    def heads(self) -> dict[str, int]:
        return {"masked": 0, "next": 2} if self.pairs else {"masked": 0}

    def check(self, model: Any) -> None:
        check_reads_both_sides(model, self.seq_len)
        if not self.pairs:
            return
        if model.config.segments < 2:
            raise ConfigError(
                f"{type(model).__name__} has {model.config.segments} segment, and A and B need "
                'two; set segments = 2, or the task to "none"'
            )
        if "next" not in model.heads:
            raise ConfigError('the model has no head "next"; build it with the objective\'s heads')

    def measure(self, totals: Loss) -> dict[str, float]:
        figures = guess_measures("masked", totals)
        if self.pairs:
            hits, count = totals.seen["next_right"]
            figures["next_accuracy"] = float(hits) / max(count, 1.0)
        return figures


def cut(
    parts: list[tuple[int, int]], room: int, draw: np.random.Generator
) -> list[tuple[int, int]]:
    """Shortens the longer of two ranges until both fit, token by token at the front or the back.

    Of two equally long ranges the second is shortened first; the number of the n removed tokens
    that are at the front is binomial.
    """
    sizes = [end - begin for begin, end in parts]
    excess = max(0, sum(sizes) - room)
    if len(parts) == 1:
        losses = [excess]
    else:
        gap = min(abs(sizes[0] - sizes[1]), excess)
        rest = excess - gap
        losses = [rest // 2, rest - rest // 2]
        losses[int(sizes[1] >= sizes[0])] += gap
    fronts = [int(draw.binomial(loss, 0.5)) for loss in losses]
    return [
        (begin + front, end - loss + front)
        for (begin, end), loss, front in zip(parts, losses, fronts, strict=True)
    ]
