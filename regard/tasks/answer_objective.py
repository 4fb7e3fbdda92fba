"""The objective of `answer`: it learns to answer a question by a span of a passage.

BERT, Longformer and GPT score every position as the start and as the end of the answer (Devlin et
al. 2018, 4.2). XLNet predicts the end given a start (during training the gold start) and has a
separate logit for "no answer" (run_squad.py of zihangdai/xlnet). A row is one window of the
passage; a question has as many windows as its passage needs.

This file is separate from `answer.py` because each can be read without the other, and one file with
both would be far longer than any other file. `spans.py` searches the scores for the best spans.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import wide
from regard.core.errors import ConfigError, InputError
from regard.data.batching import Rows
from regard.data.input_formats import PassageFormat
from regard.data.windows import MissingAnswer, PassageWindow, QuestionWindows, bare, cuts, teaches
from regard.metrics.answers import Answers
from regard.metrics.text import language_of
from regard.models import FAMILIES
from regard.models.family import Family
from regard.models.output import SpanHead
from regard.objectives.base import Batch, HeadAnswers, Loss, Objective, Sample, yes_or_no
from regard.objectives.causal import choose
from regard.objectives.reading import inner
from regard.tasks.base import Prediction
from regard.tasks.inference import predict_rows
from regard.tasks.labeled import LabeledObjective
from regard.tasks.multi_row import check_bare
from regard.tasks.spans import (
    SpanAnswer,
    Spans,
    beam_spans,
    beam_starts,
    best_spans,
    null_scores,
    prediction,
    reply,
    tune,
)

BEST = 20  # the number of candidates of a question
SHOWN = 3  # the number of missing answers that a note names
ANSWERABLE = "answerable"  # XLNet's second loss: does the passage answer the question?


@dataclass(frozen=True)
class AnswerOptions:
    """The options of the objective. A 0 stands for the value of the family's passage format."""

    family: str = ""  # the family whose passage format is used; it is set by the run
    stride: int = 0  # the number of tokens by which a window moves
    question: int = 0  # the maximum number of tokens of a question
    answer: int = 0  # the maximum number of tokens of a predicted answer
    impossible: str = "auto"  # may a question be unanswerable? yes, no; auto: if the data has some
    tau: float | None = None  # predict no answer if its score is above; None: best in validation
    marks: bool = True  # False: a GPT reads question and passage without special tokens


class WindowAnswers(NamedTuple):
    """The spans that a model predicts in one window, best first."""

    scores: list[float]
    starts: list[int]
    ends: list[int]
    null: float | None  # the score of the null answer
    versus: bool  # does the null answer compete with the spans?


class AnswerObjective(LabeledObjective):
    Options: ClassVar[type] = AnswerOptions
    name = "answer"
    comparable = True

    @classmethod
    def suits(cls, card: Family) -> bool:
        return card.passage_format is not None

    def prepare(self) -> None:
        choose("impossible", self.options.impossible, ("auto", "yes", "no"))
        if self.options.impossible == "auto":
            # The task of a model must not depend on the content of a test set.
            examples: Any = self.corpus.examples if self.corpus.split in ("train", "valid") else ()
            seen = any(example.impossible for example in examples)
            self.options = replace(self.options, impossible="yes" if seen else "no")
        self.refuse = self.options.impossible == "yes"
        super().prepare()
        self.conditional = self.card.answer_head == "span"
        if self.conditional and self.refuse:
            self.weights = {ANSWERABLE: 0.5}

    # -- windows

    def settled(self) -> dict[str, Any]:
        return {"impossible": self.options.impossible}

    def encode(self) -> tuple[Rows, Rows]:
        self.layout = layout_of(self.options, self.seq_len)
        self.frame = replace(self.frame, left=False, beyond=self.layout.beyond)
        self.told: Counter[str] = Counter()
        self.lost: list[str] = []
        self.reads: list[
            QuestionWindows
        ] = []  # only `merge` needs them; training does not, and they take memory
        rows: list[np.ndarray] = []
        segments: list[np.ndarray] = []
        marks: list[list[int]] = []
        examples: Any = self.corpus.examples
        for read, missing in cuts(
            examples, self.corpus.tokenizer, self.corpus.special, self.layout
        ):
            known = [teaches(read, window, self.refuse) for window in read.windows]
            self.remember(read, missing, sum(known))
            for window, taught in zip(read.windows, known, strict=True):
                if taught or not self.learning:
                    rows.append(np.array(window.ids, np.int32))
                    segments.append(np.array(window.segments, np.int8))
                    marks.append(marks_of(window, taught))
        if not rows:
            reasons = "; ".join(self.trouble())
            raise InputError(
                f"none of the {len(examples):,} questions of the {self.corpus.split} data has an "
                "answer to learn from" + (f": {reasons}" if reasons else "")
            )
        self.marks = np.array(marks, np.int32)
        return rows, segments

    def remember(self, read: QuestionWindows, missing: Sequence[MissingAnswer], known: int) -> None:
        """Counts what the notes report about a question, and keeps its windows for `merge`."""
        example = read.example
        self.told["windows"] += len(read.windows) if len(read.windows) > 1 else 0
        self.told["long"] += len(read.windows) > 1
        self.told["missing"] += len(missing)
        self.cut += read.cut
        for one in missing[: SHOWN - len(self.lost)]:
            self.lost.append(f"{example.place}: {one}" if example.place.file else str(one))
        if known == 0:
            torn, refused = read.gold is not None, example.impossible
            self.told["torn" if torn else "refused" if refused else "unknown"] += 1
        if not self.learning:
            self.reads.append(read)

    def trouble(self) -> list[str]:
        """Describes the data that cannot be learned from. A test set may have no answers at all."""
        counts, lines = self.told, []
        if counts["missing"]:
            lines.append(
                f"{counts['missing']:,} answers of the {self.corpus.split} data were not found and "
                f"are skipped, such as {'; '.join(self.lost)}"
            )
        if self.corpus.split == "test":
            return lines
        kinds = {
            "torn": f"have an answer that no window of {self.seq_len} tokens holds completely",
            "refused": "have no answer in their passage, and impossible = no leaves them out",
            "unknown": "have no known answer",
        }
        lines += [
            f"{counts[kind]:,} questions of the {self.corpus.split} data {words} and do not count"
            for kind, words in kinds.items()
            if counts[kind]
        ]
        return lines

    def notes(self) -> list[str]:
        return [*super().notes(), *self.trouble()]

    def extra(self, index: int) -> Sample:
        return {"marks": self.marks[index]}

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Adds masks over the positions. `passage`: an answer may end here. `fullest`: an answer
        may begin here. `eligible`: the passage and cls, over which XLNet normalizes. `wide`: the
        tokens that get Longformer's global attention. `known` [B] says whether the target of a
        window counts."""
        batch = super().collate(samples)
        marks = batch.pop("marks").long()
        at = torch.arange(batch["tokens"].size(1))

        def within(column: int) -> Tensor:
            return (at >= marks[:, column, None]) & (at < marks[:, column + 1, None])

        cls, passage, before = marks[:, 0], within(3), torch.arange(int(marks[:, 2].max()))
        return batch | {
            "cls": cls,
            "question": within(1),
            "passage": passage,
            "fullest": within(5),
            "eligible": passage | (at == cls[:, None]),
            "start": marks[:, 7],
            "end": marks[:, 8],
            "known": marks[:, 9].bool(),
            # The tokens before the first separator, as TriviaQA's authors and transformers do;
            # -1 if a window has fewer of these tokens.
            "wide": torch.where(before < marks[:, 2, None], before, -1),
        }

    def global_rows(self, batch: Batch) -> Tensor:
        wide: Tensor = batch["wide"]
        return wide

    # -- learning

    def heads(self) -> dict[str, int]:
        return {"span": 0} if self.conditional else {"answer": 2}

    def check(self, model: Any) -> None:
        super().check(model)
        if not {"answer", "span"} & set(inner(model).heads):
            raise ConfigError("this model has no head that finds answers; fine-tune it first")

    def counts(self, batch: Batch) -> dict[str, float]:
        known = float(batch["known"].sum())
        return {self.name: known} | dict.fromkeys(self.weights, known)

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        """Returns the mean of the start loss and the end loss, in nats. Each is normalized over the
        positions that are not padding, or with XLNet over the passage and cls. (BERT's authors and
        transformers normalize over padding as well, so that a loss depends on how far a batch was
        padded.)"""
        hidden, start, end = self.hidden(model, batch), batch["start"], batch["end"]
        known, span = batch["known"], span_of(model)
        if span is None:
            starts, ends = wide(model.read("answer", hidden, batch["attention_mask"])).unbind(-1)
            inside = batch["attention_mask"]
        else:
            starts, ends = wide(span(hidden)), wide(span.ends(hidden, start))
            inside = batch["eligible"]
        starts, ends = starts.masked_fill(~inside, -math.inf), ends.masked_fill(~inside, -math.inf)
        nats = (cross(starts, start) + cross(ends, end)) / 2
        sums = {self.name: (nats * known).sum()}
        if span is not None and self.refuse:
            none = wide(span.unanswerable(hidden, starts.to(hidden.dtype), inside))
            wanted = (start == batch["cls"]).to(none.dtype)
            nats = F.binary_cross_entropy_with_logits(none, wanted, reduction="none")
            sums[ANSWERABLE] = (nats * known).sum()
        # XLNet's ends are those of the gold start; a span with another start is not exact anyway.
        exact = (starts.argmax(1) == start) & (ends.argmax(1) == end) & known
        return Loss(sums, self.counted(batch), {"exact": (exact.sum(), known.sum())})

    def head_answers(self, scores: Mapping[str, Tensor], batch: Batch) -> list[HeadAnswers]:
        """Returns the logits of start and end. Each counts half, as in the loss."""
        if "answer" in scores:
            ends, inside = scores["answer"].transpose(1, 2), batch["attention_mask"]
        else:
            ends, inside = torch.stack([scores["span"], scores["span.ends"]], 1), batch["eligible"]
        answers = [HeadAnswers(self.name, ends, batch["known"], inside[:, None])]
        if "span.unanswerable" in scores:
            none = yes_or_no(scores["span.unanswerable"])
            answers.append(HeadAnswers(ANSWERABLE, none, batch["known"]))
        return answers

    def answer_counts(self, batch: Batch) -> dict[str, float]:
        return dict.fromkeys(self.counts(batch), float(batch["known"].size(0)))

    def measure(self, totals: Loss) -> dict[str, float]:
        exact, of = totals.seen["exact"]
        loss = sum(
            self.weights.get(name, 1.0) * float(total) / max(totals.counts[name], 1e-9)
            for name, total in totals.sums.items()
        )
        return {"exact_windows": float(exact) / max(of, 1), "loss": loss}

    # -- answers

    def cuts(self) -> Counter[str]:
        return super().cuts() + Counter(long=self.told["long"], windows=self.told["windows"])

    def cut_notes(self, counts: Counter[str], data: str = "") -> list[str]:
        notes = []
        if counts["long"]:
            notes.append(
                f"{counts['long']:,} of {counts['examples']:,} questions{data} do not fit "
                f"{self.seq_len:,} tokens with their passage, which is read in "
                f"{counts['windows']:,} windows"
            )
        if counts["cut"]:
            notes.append(
                f"{counts['cut']:,} questions{data} have more than {self.layout.question:,} tokens "
                "and were cut"
            )
        return notes

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        hidden, span = self.hidden(model, batch), span_of(model)
        best = self.beams(span, hidden, batch) if span else self.spans(model, hidden, batch)
        spans, nulls = best
        null_scores = [None] * len(spans.scores) if nulls is None else nulls.tolist()
        scores, starts, ends = (column.tolist() for column in spans)
        rows = zip(scores, starts, ends, null_scores, strict=True)
        return [WindowAnswers(*row, versus=span is None) for row in rows]

    def spans(self, model: Any, hidden: Tensor, batch: Batch) -> tuple[Spans, Tensor | None]:
        starts, ends = model.read("answer", hidden, batch["attention_mask"]).unbind(-1)
        best = best_spans(
            starts, ends, batch["fullest"], batch["passage"],
            longest=self.layout.answer, count=BEST,
        )  # fmt: skip
        return best, null_scores(starts, ends, batch["cls"]) if self.refuse else None

    def beams(self, span: SpanHead, hidden: Tensor, batch: Batch) -> tuple[Spans, Tensor | None]:
        starts, eligible = span(hidden), batch["eligible"]
        known, places = beam_starts(starts, batch["fullest"], eligible)
        ends = torch.stack([span.ends(hidden, place) for place in places.unbind(1)], 1)
        best = beam_spans(
            known, places, ends, batch["passage"], eligible, longest=self.layout.answer
        )
        if not self.refuse:
            return best, None
        return best, wide(span.unanswerable(hidden, starts, eligible))

    def merge(self, outputs: list[Any]) -> list[Prediction]:
        tau = self.options.tau or 0.0
        return [prediction(one, tau, versus) for one, versus in self.replies(outputs)]

    def replies(self, outputs: list[Any]) -> Iterator[tuple[SpanAnswer, bool]]:
        """Yields the answer to each question, and whether null competes with its spans."""
        at = 0
        for read in self.reads:
            windows: list[WindowAnswers] = outputs[at : at + len(read.windows)]
            at += len(read.windows)
            rows = [list(zip(*one[:3], strict=True)) for one in windows]
            nulls = [one.null for one in windows if one.null is not None]
            null, versus = min(nulls, default=None), windows[0].versus
            yield reply(read, rows, null, versus=versus, count=BEST), versus

    def on_train_end(self, model: Any, valid: Objective | None) -> None:
        """Chooses tau on the validation set, for a model that may refuse and has no tau of its own
        (Devlin et al. 2018, 4.3)."""
        if self.refuse and self.options.tau is None and isinstance(valid, AnswerObjective):
            self.options = replace(self.options, tau=valid.best_tau(model))

    def best_tau(self, model: Any) -> float | None:
        """Returns the tau with the best F1. Returns None if the examples are not both answerable
        and unanswerable, because then nothing can be chosen."""
        nulls, texts, gold = [], [], []
        for read, (one, _) in zip(self.reads, self.replies(predict_rows(self, model)), strict=True):
            known = read.example.impossible or read.example.answers
            if known and one.candidates and one.null is not None:
                nulls.append(one.null)
                texts.append(one.candidates[0].text)
                gold.append([answer.text for answer in read.example.answers])
        answerable = [bool(answers) for answers in gold]
        if len({*answerable}) < 2:
            return None
        scores = Answers(gold, texts, language=language_of(gold)).raw[1]
        return tune(nulls, scores, answerable)[0]

    def hf_config(self) -> dict[str, Any]:
        """Returns entries for config.json. transformers' Longformer needs `sep_token_id` to find
        the end of a question."""
        if self.conditional:
            return {}
        long = "global_tokens" in self.card.model.accepts
        more = {"sep_token_id": self.corpus.special.sep} if long else {}
        return {"id2label": {"0": "start", "1": "end"}, "label2id": {"start": 0, "end": 1}, **more}


def layout_of(options: AnswerOptions, length: int) -> PassageFormat:
    chosen = {name: getattr(options, name) for name in ("stride", "question", "answer")}
    for name, value in chosen.items():
        if value < 0:
            raise ConfigError(f"objective.{name} is {value}; it must be positive, or 0 by default")
    card = FAMILIES[options.family]
    if not options.marks:
        check_bare(card)
    layout = card.passage_format
    assert layout is not None  # every family that suits this task has one
    layout = layout if options.marks else bare(layout)
    return replace(layout, length=length, **{name: n for name, n in chosen.items() if n})


def marks_of(window: PassageWindow, known: bool) -> list[int]:
    """Returns the position of cls, the range of the question, the range of the passage, the range
    of the tokens that have their fullest context in this window, the target, and whether it counts.
    """
    fullest = window.first + (window.fullest.index(True) if any(window.fullest) else 0)
    return [
        window.cls,
        *window.question,
        window.first,
        window.first + window.count,
        fullest,
        fullest + sum(window.fullest),
        *window.target,
        int(known),
    ]


def span_of(model: Any) -> SpanHead | None:
    """Returns XLNet's span head, or None. An XLNet of other authors may score ends as BERT does."""
    heads = model.heads
    head: SpanHead | None = heads["span"] if "span" in list(heads) else None
    return head


def cross(scores: Tensor, gold: Tensor) -> Tensor:
    return F.cross_entropy(scores, gold, reduction="none")
