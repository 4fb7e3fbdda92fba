"""Text embeddings: the hidden states of one layer, pooled over the tokens of each text.

The default is the mean over all tokens, special tokens included, normalized to length 1, as in
models of sentence-transformers such as all-MiniLM (Reimers and Gurevych 2019).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.batching import padded
from regard.data.corpus import Special
from regard.data.input_formats import FormattedInput, framed
from regard.data.special_tokens import special_of
from regard.decoding.prompts import readable
from regard.formats.directory import Checkpoint
from regard.tasks.inference import by_tokens, tokens_per_batch
from regard.training.train_module import autocast, blocks, evaluating

POOLING = ("mean", "first", "last")


def embed(
    loaded: Checkpoint,
    texts: Sequence[str],
    *,
    pooling: str = "mean",
    layer: int = -1,
    normalize: bool = True,
    length: int = 0,
    precision: str = "fp32",
) -> np.ndarray:
    """Returns the embeddings [texts, width], in the order of the texts.

    `layer` 0 is the input of the first layer, 1 its output, and -1 the output of the last layer.
    Texts of more than `length` tokens (0: the model's context) lose their end; a warning says so.
    """
    if pooling not in POOLING:
        raise UnknownName("pooling", pooling, POOLING)
    if loaded.tokenizer is None:
        raise InputError(
            f"{loaded.path or 'this model'} has no tokenizer, so it cannot read text; add its "
            "tokenizer.json"
        )
    reader = Embedder(loaded, layer, length)
    rows = reader.encode([readable(text) for text in texts])
    table = np.zeros((len(rows), loaded.config.width), np.float32)
    like = next(loaded.model.parameters())
    sizes = np.array([len(row.ids) for row in rows])
    with evaluating(loaded.model), autocast(like.device, precision):
        for places in by_tokens(sizes, tokens_per_batch(like.device)) if len(rows) else ():
            hidden, attention_mask = reader.states([rows[place] for place in places])
            vectors = pooled(hidden.float(), attention_mask, pooling)
            table[places] = (F.normalize(vectors, dim=1) if normalize else vectors).cpu().numpy()
    if reader.cut:
        warnings.warn(
            f"{reader.cut:,} of {len(rows):,} texts have more than {reader.length:,} tokens and "
            "were cut",
            stacklevel=3,
        )
    return table


class Embedder:
    """Reads the hidden states of one layer of a model."""

    def __init__(self, loaded: Checkpoint, layer: int, length: int) -> None:
        assert loaded.tokenizer is not None
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.pair = self.model.kind == "encoder-decoder"
        self.special: Special = special_of(self.tokenizer, str(loaded.path or "this model"))
        context = getattr(loaded.config, "context", None)
        self.length = length or context or 2**31
        if context is not None and self.length > context:
            raise ConfigError(
                f"length is {length}, and this model reads {context} tokens at once; choose less"
            )
        self.frame = self.model.family.input_format if self.model.kind == "encoder" else None
        self.cut = 0
        writing = list(self.model.decoder_blocks) if self.pair else []
        self.layers: list[nn.Module] = [
            block for block in blocks(self.model) if all(block is not each for each in writing)
        ]
        self.layer = layer if layer >= 0 else len(self.layers) + 1 + layer
        if not 0 <= self.layer <= len(self.layers) or (not self.layers and layer != -1):
            most = f"0 to {len(self.layers)}, or " if self.layers else ""
            raise ConfigError(
                f"layer is {layer}; for this {self.model.family.name} it must be {most}-1"
            )

    # -- tokens

    def encode(self, texts: Sequence[str]) -> list[FormattedInput]:
        fast = self.tokenizer.ready
        ids = [e.ids for e in fast.encode_batch_fast(list(texts), add_special_tokens=False)]
        rows = [self.row(row) for row in ids]
        self.cut = sum(row.cut for row in rows)
        return rows

    def row(self, ids: list[int]) -> FormattedInput:
        if self.frame is not None:
            return framed(self.frame, self.special, ids, None, self.length)
        after = [self.model.config.eos_id] if self.pair else []
        text = ids[: self.length - len(after)]
        tokens = [*text, *after] or [self.special.end]  # an empty text is read as one end token
        return FormattedInput(tokens, [0] * len(tokens), len(text) < len(ids))

    # -- states

    def states(self, rows: Sequence[FormattedInput]) -> tuple[Tensor, Tensor]:
        """Returns the hidden states of the layer [B, T, width], and the attention mask [B, T]."""
        left = self.frame is not None and self.frame.left
        pad = self.special.pad or 0
        tokens, attention_mask = self.table([row.ids for row in rows], pad, left)
        more: dict[str, Any] = {}
        if self.frame is not None and self.frame.segments:
            segments = [row.segments for row in rows]
            more["segments"] = self.table(segments, self.frame.beyond, left)[0]
        with self.heard() as states:
            hidden = self.read(tokens, None if bool(attention_mask.all()) else attention_mask, more)
        return states[0] if states else hidden, attention_mask

    def table(self, rows: Sequence[list[int]], fill: int, left: bool) -> tuple[Tensor, Tensor]:
        cells, attention_mask = padded([np.array(row) for row in rows], fill, left=left)
        device = self.model.device
        return torch.from_numpy(cells).to(device), torch.from_numpy(attention_mask).to(device)

    def read(self, tokens: Tensor, attention_mask: Tensor | None, more: dict[str, Any]) -> Tensor:
        hidden: Tensor
        if self.pair:
            hidden = self.model.encode(tokens, attention_mask)
        elif self.model.causal:  # no token attends to the padding on its right
            hidden = self.model(tokens)[..., : self.model.config.width]  # a pointer adds columns
        else:
            with self.model.one_direction():
                hidden = self.model(tokens, attention_mask, **more)
        return hidden

    @contextmanager
    def heard(self) -> Iterator[list[Tensor]]:
        """Collects the input of the next layer. It stays empty for the last layer, whose output is
        the output of the model."""
        states: list[Tensor] = []
        if self.layer == len(self.layers):
            yield states
            return
        above, here = self.layers[self.layer], get_ident()

        def hear(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if get_ident() == here:  # another thread may run the same model
                states.append(inputs[0])

        hook = above.register_forward_pre_hook(hear)
        try:
            yield states
        finally:
            hook.remove()


def pooled(hidden: Tensor, attention_mask: Tensor, pooling: str) -> Tensor:
    """Returns one vector per text, [B, width]."""
    if pooling == "mean":
        share = attention_mask.to(hidden.dtype)
        return torch.einsum("btd,bt->bd", hidden, share) / share.sum(1, keepdim=True)
    marks = attention_mask.long()
    size = attention_mask.size(1)
    place = marks.argmax(1) if pooling == "first" else size - 1 - marks.flip(1).argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), place]
