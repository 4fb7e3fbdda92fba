"""How a model that is only looked at reads: rows of tokens, and the states of every layer.

Layer 0 is what the first layer reads, layer n what the n-th makes of it; the last is what the model
gives, its closing norm included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.tags import divide, pieces
from regard.evaluation.embeddings import Embedder
from regard.formats.directory import Checkpoint

POOLING = ("mean", "first")
LENGTH = 512  # tokens of a row, where a model has no last position


class TokenRow(NamedTuple):
    """Some tokens that are read at once. A span (unit, begin, end) says that the vector of a unit
    (a word, or a text) is the mean of these tokens.
    """

    ids: list[int]
    segments: list[int]
    spans: list[tuple[int, int, int]]
    inner: tuple[int, int]  # the tokens that are no marks: begin, end
    item: int = 0  # the sentence or text it comes from
    whole: bool = True  # is it all of it?


class StateReader(Embedder):
    """One model; `pooling` first takes a word's first piece, and of a text the token that speaks
    for it (the first of BERT and Longformer, else the last).
    """

    def __init__(
        self, loaded: Checkpoint, pooling: str = "mean", length: int | None = None
    ) -> None:
        if loaded.tokenizer is None:
            raise InputError(f"{loaded.path or 'this model'} has no tokenizer, so it reads no text")
        if pooling not in POOLING:
            raise UnknownName("pooling", pooling, POOLING)
        context = getattr(loaded.config, "context", None)
        super().__init__(loaded, -1, length or context or LENGTH)
        self.pooling = pooling
        self.long = 0  # sentences that are read in windows
        if not self.layers:
            self.layers = [part for part in self.model.modules() if isinstance(part, nn.LSTM)]

    @property
    def depth(self) -> int:
        """How many layers there are above layer 0."""
        return len(self.layers)

    # -- rows

    @property
    def around(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The marks before and after a text: (id, segment)."""
        if self.frame is None:
            return [], [(self.model.config.eos_id, 0)] if self.pair else []
        layout = self.frame.single
        place = layout.index(("a", 0))
        before, after = (
            [(self.special.need(part), segment) for part, segment in side]
            for side in (layout[:place], layout[place + 1 :])
        )
        return before, after

    def words(self, sentences: Sequence[Sequence[str]]) -> list[TokenRow]:
        """Units are the words of all sentences in their order. A sentence that is too long is read
        in windows, each word where its context is fullest; `long` counts how many are.
        """
        before, after = self.around
        room = self.length - len(before) - len(after)
        if room < 1:
            raise ConfigError(f"a length of {self.length} has no room for words beside the marks")
        marks = [token for token, _ in before], [token for token, _ in after]
        edges = [segment for _, segment in before], [segment for _, segment in after]
        blank = self.special.end if self.special.unknown is None else self.special.unknown
        rows: list[TokenRow] = []
        whole = self.pooling == "mean"  # all pieces of a word make its vector, or the first
        unit = self.long = 0
        for item, cut in enumerate(pieces(sentences, self.tokenizer.ready, blank)):
            windows = divide(cut, None, marks, room, room // 4)
            self.long += len(windows) > 1
            for window in windows:
                inner = len(before), len(window.ids) - len(after)
                spans = [
                    (unit + word, place, place + (min(len(cut[word]), room) if whole else 1))
                    for place, word in zip(window.rows, window.words, strict=True)
                ]
                segments = [*edges[0], *[0] * (inner[1] - inner[0]), *edges[1]]
                rows.append(TokenRow(window.ids, segments, spans, inner, item, len(windows) == 1))
            unit += len(cut)
        return rows

    def texts(self, texts: Sequence[str]) -> list[TokenRow]:
        """A unit a text; what is too long loses its end, and `cut` counts how many did."""
        before, after = self.around
        rows = []
        for item, framed in enumerate(self.encode(list(texts))):
            count = len(framed.ids)
            inner = min(len(before), count), max(count - len(after), 0)
            if self.pooling == "mean":
                span = (item, 0, count)
            elif self.model.summary_row == "first":
                span = (item, 0, 1)
            else:
                span = (item, count - 1, count)
            rows.append(TokenRow(framed.ids, framed.segments, [span], inner, item))
        return rows

    @property
    def notes(self) -> list[str]:
        """What a user should know about long texts."""
        notes = []
        if self.long:
            notes.append(f"{self.long:,} sentences of more than {self.length:,} tokens are read in "
                        "several windows")  # fmt: skip
        if self.cut:
            notes.append(f"{self.cut:,} texts of more than {self.length:,} tokens lost their end")
        return notes

    # -- states

    def inputs(self, rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Tokens [B, T], which are no padding [B, T], and what else the model is told."""
        left = self.frame is not None and self.frame.left
        tokens, attention_mask = self.table([row.ids for row in rows], self.special.pad or 0, left)
        more: dict[str, Any] = {}
        if self.frame is not None and self.frame.segments:
            segments = [row.segments for row in rows]
            more["segments"] = self.table(segments, self.frame.beyond, left)[0]
        return tokens, attention_mask, more

    def shifts(self, rows: Sequence[TokenRow]) -> list[int]:
        """The column of each row's first token: not 0 where padding stands before it."""
        widest = max(len(row.ids) for row in rows)
        left = self.frame is not None and self.frame.left
        return [widest - len(row.ids) if left else 0 for row in rows]

    def every(self, rows: Sequence[TokenRow]) -> list[Tensor]:
        """The states [B, T, width] of layers 0 … depth."""
        tokens, attention_mask, more = self.inputs(rows)
        states: list[Tensor] = []
        hooks = [
            layer.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
            for layer in self.layers
        ]
        try:
            last = self.read(tokens, None if bool(attention_mask.all()) else attention_mask, more)
        finally:
            for hook in hooks:
                hook.remove()
        return [*states, last]
