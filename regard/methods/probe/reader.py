"""Reads texts with a model that is probed: rows of tokens, and the hidden states of every layer.

Layer 0 is the input of the first layer, layer n the output of the n-th. The last one is the output
of the model, its final norm included.
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
LENGTH = 512  # tokens of a row, for a model without a maximal context


class TokenRow(NamedTuple):
    """Tokens that are read at once. A span (unit, begin, end) says that the vector of a unit (a
    word or a text) is the mean of these tokens."""

    ids: list[int]
    segments: list[int]
    spans: list[tuple[int, int, int]]
    inner: tuple[int, int]  # begin and end of the tokens without the special tokens around them
    item: int = 0  # the index of its sentence or text
    whole: bool = True  # whether it holds the whole sentence or text


class StateReader(Embedder):
    """Reads with one model. With `pooling` "first", a word is represented by its first piece, and a
    text by its summary token (the first token of BERT and Longformer, else the last)."""

    def __init__(
        self, loaded: Checkpoint, pooling: str = "mean", length: int | None = None
    ) -> None:
        if loaded.tokenizer is None:
            raise InputError(
                f"{loaded.path or 'this model'} has no tokenizer, so it cannot read text; put "
                "tokenizer.json into its directory"
            )
        if pooling not in POOLING:
            raise UnknownName("pooling", pooling, POOLING)
        context = getattr(loaded.config, "context", None)
        super().__init__(loaded, -1, length or context or LENGTH)
        self.pooling = pooling
        self.long = 0  # number of sentences that are read in windows
        if not self.layers:
            self.layers = [part for part in self.model.modules() if isinstance(part, nn.LSTM)]

    @property
    def depth(self) -> int:
        """Returns the number of layers above layer 0."""
        return len(self.layers)

    # -- rows

    @property
    def around(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Returns the special tokens before and after a text as (id, segment)."""
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
        """Returns rows whose units are the words of all sentences, in order. A sentence that is too
        long is read in windows, and each word is taken from the window with the most context around
        it; `long` counts these sentences."""
        before, after = self.around
        room = self.length - len(before) - len(after)
        if room < 1:
            raise ConfigError(
                f"a sequence length of {self.length} has no room for words besides the special "
                "tokens; give a larger one"
            )
        marks = [token for token, _ in before], [token for token, _ in after]
        edges = [segment for _, segment in before], [segment for _, segment in after]
        blank = self.special.end if self.special.unknown is None else self.special.unknown
        rows: list[TokenRow] = []
        whole = self.pooling == "mean"  # use all pieces of a word, not only the first
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
        """Returns rows whose units are the texts. A text that is too long loses its end; `cut`
        counts these texts."""
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
        """Returns notes for the user about long texts."""
        notes = []
        if self.long:
            notes.append(f"{self.long:,} sentences of more than {self.length:,} tokens are read in "
                        "several windows")  # fmt: skip
        if self.cut:
            notes.append(f"{self.cut:,} texts of more than {self.length:,} tokens lost their end")
        return notes

    # -- states

    def inputs(self, rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Returns the tokens [B, T], the attention mask [B, T], and the other arguments of the
        model."""
        left = self.frame is not None and self.frame.left
        tokens, attention_mask = self.table([row.ids for row in rows], self.special.pad or 0, left)
        more: dict[str, Any] = {}
        if self.frame is not None and self.frame.segments:
            segments = [row.segments for row in rows]
            more["segments"] = self.table(segments, self.frame.beyond, left)[0]
        return tokens, attention_mask, more

    def shifts(self, rows: Sequence[TokenRow]) -> list[int]:
        """Returns the column of each row's first token. It is not 0 if padding stands before it."""
        widest = max(len(row.ids) for row in rows)
        left = self.frame is not None and self.frame.left
        return [widest - len(row.ids) if left else 0 for row in rows]

    def every(self, rows: Sequence[TokenRow]) -> list[Tensor]:
        """Returns the hidden states [B, T, width] of layers 0 … depth."""
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
