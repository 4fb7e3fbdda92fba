"""Text embeddings: the hidden states of one layer, pooled over the tokens of each text.

A directory of sentence-transformers says itself how its vectors are made; so does a model that was
fine-tuned for embeddings. Else the default is the mean over all tokens, special tokens included,
normalized to length 1 (Reimers and Gurevych 2019).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.batching import padded
from regard.data.corpus import Special
from regard.data.input_formats import FormattedInput, framed
from regard.data.special_tokens import special_of
from regard.decoding.prompts import readable
from regard.formats.directory import Checkpoint
from regard.formats.sentence import UNLIMITED, SentencePipeline, read_pipeline, unit
from regard.models.packed import packed
from regard.tasks.inference import batches_of, side_by_side
from regard.tasks.pooling import POOLINGS, pooled
from regard.training.train_module import autocast, blocks, evaluating

PLAIN = SentencePipeline(steps=(unit,))  # of a directory that does not say it


def embed(
    loaded: Checkpoint,
    texts: Sequence[str | Sequence[int]],
    *,
    pooling: str | None = None,
    layer: int = -1,
    normalize: bool | None = None,
    width: int | None = None,
    length: int = 0,
    precision: str = "fp32",
) -> np.ndarray:
    """Returns the embeddings [texts, width], in the order of the texts.

    A text may be the list of its ids, without special tokens. `layer` 0 is the input of the first
    layer, 1 its output, and -1 the output of the last layer. `width` cuts vectors to their first
    numbers before they are normalized (Matryoshka). Texts of more than `length` tokens (0: those
    that the directory says, or the model's context) lose their end; a warning says so. What is None
    is as the directory says.
    """
    if pooling is not None and pooling not in POOLINGS:
        raise UnknownName("pooling", pooling, POOLINGS)
    if loaded.tokenizer is None:
        raise InputError(
            f"{loaded.path or 'this model'} has no tokenizer, so it cannot read text; add its "
            "tokenizer.json"
        )
    pipeline = read_pipeline(loaded.path) or PLAIN
    if pooling is not None or layer != -1:  # the dense layers are for their own pooling
        pipeline = replace(
            pipeline, pooling=pooling or pipeline.pooling,
            steps=tuple(step for step in pipeline.steps if step is unit),
        )  # fmt: skip
    context = getattr(loaded.config, "context", None) or UNLIMITED
    reader = Embedder(loaded, layer, length or min(pipeline.length or 0, context), precision)
    rows = reader.encode([prepared(pipeline, text) for text in texts])
    vectors: list[np.ndarray] = [np.empty(0, np.float32)] * len(rows)
    like = next(loaded.model.parameters())
    sizes = np.array([len(row.ids) for row in rows])

    def read(places: list[int]) -> np.ndarray:
        with torch.no_grad(), autocast(like.device, precision):
            hidden, attention_mask = reader.states([rows[place] for place in places])
            part = pooled(hidden.float(), attention_mask, pipeline.pooling)
            numbers: np.ndarray = finished(part, pipeline, normalize, width).float().cpu().numpy()
        return numbers

    batches = batches_of(sizes, like.device)
    with evaluating(loaded.model):
        for places, part in zip(batches, side_by_side(read, batches, like.device), strict=True):
            for place, vector in zip(places, part, strict=True):
                vectors[place] = vector
    if reader.cut:
        warnings.warn(
            f"{reader.cut:,} of {len(rows):,} texts have more than {reader.length:,} tokens and "
            "were cut",
            stacklevel=3,
        )
    if vectors:
        return np.stack(vectors)
    return np.zeros((0, width or loaded.config.width), np.float32)


def prepared(pipeline: SentencePipeline, text: str | Sequence[int]) -> str | list[int]:
    return pipeline.prepared(readable(text)) if isinstance(text, str) else list(text)


def finished(
    vectors: Tensor, pipeline: SentencePipeline, normalize: bool | None, width: int | None
) -> Tensor:
    """Returns vectors after the steps of a pipeline; a given `normalize` replaces its own."""
    with torch.autocast(vectors.device.type, enabled=False):
        for step in pipeline.steps:
            if step is not unit or normalize is None:
                vectors = step(vectors)
        if width is not None:
            if not 0 < width <= vectors.size(1):
                raise ConfigError(
                    f"width is {width}, and the vectors have {vectors.size(1)} numbers; choose at "
                    "most that"
                )
            vectors = vectors[:, :width]
            normalize = unit in pipeline.steps if normalize is None else normalize
        return unit(vectors) if normalize else vectors


class Embedder:
    """Reads the hidden states of one layer of a model."""

    def __init__(
        self, loaded: Checkpoint, layer: int, length: int, precision: str = "fp32"
    ) -> None:
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
        self.reads = packed(self.model, precision)  # the model, or what does the same faster
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

    def encode(self, texts: Sequence[str | list[int]]) -> list[FormattedInput]:
        words = [text for text in texts if isinstance(text, str)]
        encoded = self.tokenizer.ready.encode_batch_fast(words, add_special_tokens=False)
        ids = iter(encoded)
        rows = [self.row(next(ids).ids if isinstance(text, str) else text) for text in texts]
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
                hidden = self.reads(tokens, attention_mask, **more)
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
