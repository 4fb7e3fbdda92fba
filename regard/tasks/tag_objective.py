"""The objective of `tag`: it learns a tag for every word.

The tag is read from the first sub-token of a word (Devlin et al. 2018, 5.3). Each word is tagged
independently or, with a CRF, all words of a sentence together (Lafferty et al. 2001). A long
sentence is read in windows, each word in one of them.

This file is separate from `tag.py` because each can be read without the other: reading, checking,
measuring and showing tags need no model, and one file with both would be far longer than any other
file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.attention.kernels import wide, wide_dtype
from regard.core.errors import ConfigError, InputError
from regard.data.batching import Ragged
from regard.data.input_formats import SurroundingMarks, surrounding
from regard.data.tags import (
    IGNORED,
    OUTSIDE,
    Entities,
    TagWindow,
    align_all,
    of_entities,
    repair,
    scheme_of,
    split,
)
from regard.objectives.base import Batch, HeadAnswers, Loss, Sample
from regard.objectives.causal import choose
from regard.objectives.reading import inner
from regard.tasks.base import Prediction
from regard.tasks.crf import CRF, allowed
from regard.tasks.labeled import LabeledObjective

UNKNOWN = -1  # the label of a word without a gold tag
CHAIN = "crf.safetensors"
GAIN = 100.0  # how many times faster the CRF learns than the model


@dataclass(frozen=True)
class TagOptions:
    family: str = ""  # the family whose input format is used; it is set by the run
    crf: bool = False  # predict all tags of a sentence together
    weights: str = "equal"  # "balanced": each tag has the same total weight in the loss
    knowledge: dict[str, Any] = field(default_factory=dict)  # see regard.tasks.knowledge


class Tag(LabeledObjective):
    Options: ClassVar[type] = TagOptions
    name = "tag"
    varies = True
    comparable = True
    first_is_global = False  # as in transformers: every token has its own tag

    def prepare(self) -> None:
        labels = self.corpus.labels
        choose("weights", self.options.weights, ("equal", "balanced"))
        if self.options.crf and self.options.weights != "equal":
            raise ConfigError(
                "objective.weights is balanced, but a CRF learns sentences, not words; choose "
                "weights=equal or crf=false"
            )
        if self.learning and not any(label != OUTSIDE for label in labels):
            raise InputError("the training data has no entity: every tag is O")
        self.schemed = of_entities(labels)  # if not, words are counted, and any tag follows any
        self.codes = {label: i for i, label in enumerate(labels)}  # gold tags may add more
        self.unseen = self.long = 0  # words of unseen types, sentences in several windows
        super().prepare()
        self.shares = self.label_shares()
        self.entities = Entities.of(list(self.codes)) if self.schemed else None

    # -- rows

    def encode(self) -> tuple[list[list[int]], list[list[int]]]:
        examples: Any = self.corpus.examples
        around = self.around()
        gold = [self.gold(e.words, e.tags) for e in examples]
        sentences = self.aligned([e.words for e in examples], gold, around)
        marks = [*around.ids[0], *around.ids[1]] or [self.blank]
        empty = TagWindow(marks, [IGNORED] * len(marks), [], [])
        self.windows = [len(windows) or 1 for windows in sentences]
        self.long = sum(count > 1 for count in self.windows)
        rows = [window for windows in sentences for window in windows or [empty]]
        self.labels = Ragged([row.labels for row in rows])
        self.edges = [
            np.array((number == 0, number == count - 1))
            for count in self.windows
            for number in range(count)
        ]
        return [row.ids for row in rows], [around.segments_of(row.ids) for row in rows]

    @property
    def blank(self) -> int:
        """The id that stands for a word which the tokenizer turns into no token."""
        special = self.corpus.special
        return special.end if special.unknown is None else special.unknown

    def aligned(
        self,
        words: Sequence[Sequence[str]],
        gold: Sequence[Sequence[int]],
        around: SurroundingMarks,
    ) -> list[list[TagWindow]]:
        """Returns the windows of each sentence."""
        return align_all(
            words, gold, self.corpus.tokenizer, self.seq_len, around=around.ids, blank=self.blank
        )

    def variant(self, epoch: int, index: int) -> Sample | None:
        """Returns a variant of a sentence, if the sentence is read in one window."""
        assert self.variants is not None
        place = int(self.homes[index])
        if self.windows[place] > 1:
            return None
        example: Any = self.variants.of(self.corpus.examples[place], epoch, place)
        if example is None:
            return None
        gold = [[UNKNOWN] * len(example.words)]
        if example.tags is not None:
            gold = [[self.codes[tag] for tag in self.legal(example.tags)]]
        around = self.around()
        windows = self.aligned([example.words], gold, around)[0]
        if len(windows) != 1 or len(windows[0].ids) > self.max_len:
            return None
        ids = windows[0].ids
        return {
            "tokens": np.array(ids, np.int32),
            "segments": np.array(around.segments_of(ids), np.int8),
            "labels": np.array(windows[0].labels, np.int32),
            "edges": np.array((True, True)),
        }

    @cached_property
    def homes(self) -> np.ndarray:
        """The index of the sentence of each row."""
        return np.repeat(np.arange(len(self.windows)), self.windows)

    def around(self) -> SurroundingMarks:
        """The special tokens around a sentence. A causal model has none: no token could tell a word
        what follows."""
        layout = (("a", 0),) if self.causal else self.frame.single
        return surrounding(layout, self.corpus.special)

    def gold(self, words: tuple[str, ...], tags: tuple[str, ...] | None) -> list[int]:
        """Returns the labels of the repaired tags. An entity type that is not in the training data
        gets a new label, which the model cannot predict."""
        if tags is None:
            return [UNKNOWN] * len(words)
        count = len(self.corpus.labels)
        codes = [self.codes.setdefault(tag, len(self.codes)) for tag in self.legal(tags)]
        self.unseen += sum(label >= count for label in codes)
        return codes

    def legal(self, tags: Sequence[str]) -> Sequence[str]:
        return repair(tags, scheme_of(self.corpus.labels)) if self.schemed else tags

    def notes(self) -> list[str]:
        lines = super().notes()
        if self.unseen:
            names = list(self.codes)[len(self.corpus.labels) :]
            kinds = sorted({split(name)[1] for name in names} if self.schemed else names)
            what = "belong to entities of kinds" if self.schemed else "have tags"
            right = "entities that are not found" if self.schemed else "wrong"
            lines.append(
                f"{self.unseen:,} words of the {self.corpus.split} data {what} that the training "
                f"data never shows ({', '.join(kinds)}): nothing is learned from them, and they "
                f"count as {right}"
            )
        return lines

    def extra(self, index: int) -> Sample:
        return {"labels": self.labels[index], "edges": self.edges[index]}

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Adds the labels, and `shares` [B, T]: the loss weights of the words, if they differ."""
        labels = self.table(samples, "labels", IGNORED)[0]
        rest = [{k: v for k, v in sample.items() if k != "labels"} for sample in samples]
        batch = super().collate(rest) | {"labels": torch.from_numpy(labels)}
        if self.shares is None:
            return batch
        known = self.known(batch)
        shares = torch.from_numpy(self.shares)[batch["labels"].where(known, 0)] * known
        return batch | {"shares": shares}

    def label_shares(self) -> np.ndarray | None:
        """Returns the loss weight of each label (the mean over words is 1), or None: all equal."""
        if self.options.weights == "equal" or not self.learning:
            return None
        labels, count = self.labels.flat, len(self.corpus.labels)
        sizes = np.bincount(labels[(labels >= 0) & (labels < count)], minlength=count)
        shares = sizes.sum() / (np.count_nonzero(sizes) * np.maximum(sizes, 1))
        return np.asarray(shares, np.float32)

    # -- learning

    def heads(self) -> dict[str, int]:
        return {"tag": len(self.corpus.labels)}

    def adapt_model(self, model: Any) -> Any:
        model = super().adapt_model(model)
        if self.options.crf:
            model.crf = self.chain(GAIN)
        return model

    def chain(self, gain: float) -> CRF:
        labels = self.corpus.labels
        rules = allowed(labels, scheme_of(labels)) if self.schemed else None
        return CRF(len(labels), rules, strict=True, gain=gain)

    def known(self, batch: Batch) -> Tensor:
        """Returns where a word is read whose tag is one of the labels, [B, T]."""
        labels: Tensor = batch["labels"]
        return (labels >= 0) & (labels < len(self.corpus.labels))

    def counts(self, batch: Batch) -> dict[str, float]:
        counted = self.known(batch) if self.shares is None else batch["shares"]
        return {self.name: float(counted.sum())}

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """Returns logits [B, T, labels], in at least 32 bits."""
        return wide(model.read("tag", self.hidden(model, batch), batch["attention_mask"]))

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        scores, labels, known = self.scores(model, batch), batch["labels"], self.known(batch)
        if self.options.crf:
            nats = inner(model).crf.surprisal(scores, labels, known, batch["edges"])
        else:
            gold = labels.masked_fill(~known, IGNORED).flatten()
            rows = scores.flatten(0, 1)
            each = cross_entropy(rows, gold, ignore_index=IGNORED, reduction="none")
            nats = each.sum() if self.shares is None else (each * batch["shares"].flatten()).sum()
        seen = {} if self.learning else self.count_correct(model, scores.detach(), batch)
        return Loss({self.name: nats}, self.counted(batch), seen)

    def head_answers(self, scores: Mapping[str, Tensor], batch: Batch) -> list[HeadAnswers]:
        """Returns the logits of the head. With a CRF they are the scores of each word alone."""
        shares, labeled = batch.get("shares", self.known(batch)), batch["labels"] != IGNORED
        return [HeadAnswers(self.name, scores["tag"], shares, asked=labeled)]

    def answer_counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float((batch["labels"] != IGNORED).sum())}

    # -- validation

    def count_correct(
        self, model: Any, scores: Tensor, batch: Batch
    ) -> dict[str, tuple[Tensor, Any]]:
        """Counts the correct entities among the predicted and the gold ones; without entities, the
        correct words. Each window is read by itself: an entity across the end of a window counts as
        its parts."""
        scored, known = batch["labels"] != IGNORED, batch["labels"] >= 0
        labels = self.answers(model, scores, scored, batch)[0]
        table = torch.full_like(batch["labels"], UNKNOWN)
        table[scored] = labels
        if self.entities is None:
            hits = (table[known] == batch["labels"][known]).sum().float()
            return {"accuracy": (hits, float(known.sum()))}
        rows = known.nonzero()[:, 0].cpu().numpy()
        sides = (table[known].cpu().numpy(), batch["labels"][known].cpu().numpy())
        right, claimed, real = self.entities.count(*sides, rows)
        hits = torch.tensor(float(right))
        return {"precision": (hits, float(claimed)), "recall": (hits, float(real))}

    def measure(self, totals: Loss) -> dict[str, float]:
        nats = float(totals.sums[self.name]) / max(totals.counts[self.name], 1)
        if not self.schemed:
            hits, words = totals.seen["accuracy"]
            return {"accuracy": float(hits) / max(words, 1), "loss": nats}
        hits, claimed = totals.seen["precision"]
        right, real = float(hits), totals.seen["recall"][1]
        return {
            "f1": 2 * right / max(claimed + real, 1),
            "precision": right / max(claimed, 1),
            "recall": right / max(real, 1),
            "loss": nats,
        }

    # -- answers

    def cuts(self) -> Counter[str]:
        return super().cuts() + Counter(long=self.long)

    def cut_notes(self, counts: Counter[str], data: str = "") -> list[str]:
        if not counts["long"]:
            return []
        return [
            f"{counts['long']:,} of {counts['examples']:,} sentences{data} have more than "
            f"{self.seq_len:,} tokens and are read in several windows"
        ]

    def answers(
        self, model: Any, scores: Tensor, scored: Tensor, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """Returns the labels of all words of a batch, row by row, and their probabilities."""
        if not self.options.crf:
            chances, best = scores[scored].softmax(1).max(1)
            return best, chances
        crf, edges = inner(model).crf, batch["edges"]
        paths = crf.best(scores, scored, edges)
        labels = torch.tensor([label for row in paths for label in row], device=scores.device)
        chances = crf.marginals(scores, scored, edges)[scored]
        return labels.long(), chances.gather(1, labels.long()[:, None])[:, 0]

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        scored = batch["labels"] != IGNORED
        labels, chances = self.answers(model, self.scores(model, batch), scored, batch)
        ends = scored.sum(1).cumsum(0).tolist()
        flat = list(zip(labels.tolist(), chances.tolist(), strict=True))
        return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def merge(self, outputs: list[Any]) -> list[Prediction]:
        """Returns one prediction per sentence; words are in order, window after window."""
        labels, predictions, place = self.corpus.labels, [], 0
        for count in self.windows:
            words = [word for row in outputs[place : place + count] for word in row]
            place += count
            tags = [labels[label] for label, _ in words]
            if self.options.crf and self.schemed and count > 1:
                tags = repair(tags, scheme_of(labels))  # at a border, windows may disagree
            predictions.append(
                Prediction(tags, sum(chance for _, chance in words) / max(len(words), 1))
            )
        return predictions

    # -- what is kept

    def save_extras(self, model: Any, out: Path) -> None:
        super().save_extras(model, out)
        if self.options.crf:
            model.crf.write(out / CHAIN)

    def opened(self, model: Any, directory: Path | None) -> Any:
        model = super().opened(model, directory)
        if not self.options.crf:
            return model
        crf, like = self.chain(gain=1.0), next(model.parameters())
        crf.read(Path(directory or "") / CHAIN)
        model.crf = crf.to(like.device, wide_dtype(like.dtype)).eval()
        return model
