"""A text as a model reads it, with the one row of its answer that is examined: the next token, a
blank, the label of a task, or where the answer begins or ends in a passage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.decoding.prompts import Prompts
from regard.evaluation.predict import facts_of
from regard.formats.directory import Checkpoint
from regard.lab.look.reading import AttentionReading, LookOptions, check_lengths, read
from regard.lab.look.tokens import LookToken, tokens_of
from regard.models.output import answering_head

Text = str | Sequence[int]
WHOLE = LookToken("(text)")  # the row of a head that answers once for a whole text
# The heads that mark an answer in a passage, and the rows of what they score: the classes are the
# tokens. XLNet scores the end only for a given start.
SPANS = {"answer": ("start", "end"), "span": ("start",)}


class Likely(NamedTuple):
    """A token or a label with its probability; of a head with a single score, the score."""

    text: str
    id: int
    probability: float


@dataclass
class AskedText:
    """What is asked: row `row` of the scores that `scores` computes from hidden states."""

    loaded: Checkpoint
    reading: AttentionReading
    head: str | None  # None: the output over the vocabulary
    labels: list[str]  # of the head
    kind: str  # "tokens", "labels", "multilabel", "score" or "span"
    row: int | None  # None: nothing says which row is meant

    @classmethod
    def of(
        cls, loaded: Checkpoint, text: Text, options: LookOptions, position: int | None = None
    ) -> AskedText:
        """Reads a text; `position` chooses the row of the answer, counted from 1. By default it is
        the first blank; without a blank it is the last token, which predicts the next one, or the
        first token of a decoder that wrote its text itself."""
        model = loaded.model
        check_lengths(loaded, [text, options.target, options.memory, options.pair])
        head = answering_head(model)
        reading = read(loaded, text, options)
        if head in SPANS:
            names = reading.names[reading.output]
            labels, kind = [f"{i} {token.text}" for i, token in enumerate(names, 1)], "span"
        else:
            labels, kind = ([], "tokens") if head is None else labels_of(loaded, head)
        question = cls(loaded, reading, head, labels, kind, None)
        question.row = question.default_row() if position is None else question.row_at(position)
        return question

    def default_row(self) -> int | None:
        model, names = self.loaded.model, self.rows
        if len(names) == 1 or self.kind == "span" or self.reading.output == "asked":
            return 0
        if model.kind == "encoder-decoder":
            return 0 if any(n["key"] == "written" for n in self.reading.notes) else len(names) - 1
        if self.reading.blanks:
            return self.reading.blanks[0]
        reads_on = model.causal or getattr(model.config, "left_to_right", False)
        return len(names) - 1 if reads_on and self.head is None else None

    def row_at(self, position: int) -> int:
        places = [token.place or i for i, token in enumerate(self.rows, 1)]
        if position not in places:
            raise InputError(
                f"the position is {position}; the answer has the positions "
                f"{places[0]} to {places[-1]}, so choose one of them"
            )
        return places.index(position)

    def need_row(self) -> int:
        if self.row is None:
            raise InputError(
                "nothing says which token is asked for: write a blank as [MASK] or ___, or give "
                f"the position of a token, from 1 to {len(self.rows)}"
            )
        return self.row

    # -- what the model computes

    @property
    def rows(self) -> list[LookToken]:
        """The names of the rows of the answer."""
        if self.kind == "span":
            return [LookToken(name) for name in SPANS[str(self.head)]]
        by_text = self.head is not None and self.head != "tag"
        return [WHOLE] if by_text else self.reading.names[self.reading.output]

    def hidden(self) -> Tensor:
        """Runs the model. What must be changed inside it is changed by hooks around this call."""
        return self.reading.run()

    def scores(self, hidden: Tensor) -> Tensor:
        """Returns the logits [rows, classes] of hidden states, in at least 32 bits."""
        model = self.loaded.model
        scores = model.logits(hidden) if self.head is None else model.read(self.head, hidden)
        scores = scores[0] if scores.dim() == 3 else scores
        if self.head == "answer":  # [T, 2]: every token may be the start, and the end
            scores = scores.T
        exact: Tensor = scores.float() if scores.dtype.itemsize < 4 else scores
        return exact

    def answer(self) -> Tensor:
        """Returns the logits [classes] of the row that is asked for."""
        return self.scores(self.hidden())[self.need_row()]

    def probabilities(self, scores: Tensor) -> Tensor:
        if self.kind == "multilabel":
            return scores.sigmoid()
        return scores if self.kind == "score" else scores.softmax(-1)

    # -- names

    def name(self, id: int) -> str:
        if self.head is not None:
            return self.labels[id]
        return tokens_of(self.loaded.tokenizer, [id])[0].text

    def likely(self, probabilities: Tensor, top_k: int) -> list[Likely]:
        best = probabilities.topk(min(top_k, probabilities.numel()))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [Likely(self.name(i), i, p) for i, p in pairs]

    def token(self, chosen: int | str | None, scores: Tensor) -> int:
        """Returns the id of the token or label that is followed; by default it is the likeliest."""
        if chosen is None:
            return int(scores.argmax())
        if isinstance(chosen, str) and self.head is not None:
            if chosen not in self.labels:
                raise UnknownName("label", chosen, self.labels, "(of this model)")
            return self.labels.index(chosen)
        if isinstance(chosen, str):
            words = Prompts(self.loaded).words()
            ids = words.encode(chosen, special=False)
            if len(ids) != 1:
                pieces = " ".join(words.tokens(ids))
                raise InputError(
                    f"the token is {chosen!r}, which are {len(ids)} tokens of this model "
                    f"({pieces}); give a text that is one token, or its id"
                )
            return int(ids[0])
        if not 0 <= chosen < scores.numel():
            raise InputError(f"the token is {chosen}; ids go from 0 to {scores.numel() - 1}")
        return chosen


def labels_of(loaded: Checkpoint, head: str) -> tuple[list[str], str]:
    """Returns the labels of a head, or their numbers if nobody named them, and their kind."""
    part: Any = loaded.model.heads[head]
    count = part.out.out_features
    try:
        facts = facts_of(loaded)
    except ConfigError:
        facts = {}
    names = [str(name) for name in facts.get("labels") or []]
    labels = names if len(names) == count else [str(i) for i in range(count)]
    if facts.get("task") == "multilabel":
        return labels, "multilabel"
    return labels, "labels" if count > 1 else "score"


def check_attends(loaded: Checkpoint, what: str) -> None:
    if not loaded.model.attends:
        raise InputError(
            f"{what} needs layers of attention with a residual stream, and a "
            f"{loaded.model.family.name} has none; choose another model"
        )
