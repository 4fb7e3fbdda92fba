"""What all targets of an export have in common."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from regard.core.errors import ConfigError, InputError, RegardError
from regard.data.special_tokens import special_of
from regard.data.tokenizer import Tokenizer
from regard.formats import Checkpoint
from regard.formats.registry import format_for
from regard.models.output import answering_head

PRECISIONS = ("fp32", "int8")
TOLERANCE = 1e-4  # the largest difference of fp32, as a share of the largest number of a text


class ExportDiffers(RegardError):
    """The runtime of a target does not compute what the model computes."""


@dataclass(frozen=True)
class ExportSample:
    """One text that both sides read: its tokens, and those of the decoder if there is one."""

    input_ids: list[int]
    decoder_input_ids: list[int] | None = None

    @property
    def written(self) -> list[int]:
        """The tokens to which a decoder adds others."""
        return self.input_ids if self.decoder_input_ids is None else self.decoder_input_ids

    def extended(self, token: int) -> ExportSample:
        if self.decoder_input_ids is None:
            return ExportSample([*self.input_ids, token])
        return ExportSample(self.input_ids, [*self.decoder_input_ids, token])


class ExportSource:
    """A model that is to be exported, and what a target asks about it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.model, self.config = checkpoint.model, checkpoint.config
        self.tokenizer: Tokenizer | None = checkpoint.tokenizer
        self.traced: dict[str, Any] = {}  # its graphs by name: tracing takes most of the time

    @cached_property
    def format(self) -> str:
        """The type of config.json that a saved directory has."""
        model = self.model
        return format_for(model.family.name, model.config, model.extensions)[0].type

    @property
    def kind(self) -> str:
        kind: str = self.model.kind
        return kind

    @cached_property
    def head(self) -> str | None:
        """The head that answers; None: the output over the vocabulary, or none at all."""
        heads = [name for name in getattr(self.model, "heads", ()) if name != "pool"]
        return answering_head(self.model) if hasattr(self.model, "output") or heads else None

    @property
    def writes(self) -> bool:
        """Whether the model predicts the next token of a text."""
        causal = self.model.causal or self.kind == "encoder-decoder"
        return self.head is None and hasattr(self.model, "output") and causal

    @cached_property
    def quantity(self) -> str:
        """What the model answers with: "logits", or "hidden states" if it has no output."""
        plain = self.head is None and not hasattr(self.model, "output")
        return "hidden states" if plain else "logits"

    @property
    def context(self) -> int | None:
        return getattr(self.config, "context", None)

    @property
    def pad_id(self) -> int:
        """The id that fills a batch; the attention mask hides it."""
        value = getattr(self.config, "pad_id", None)
        size: int = self.config.vocab_size
        return value if isinstance(value, int) and 0 <= value < size else 0

    def words(self) -> list[str]:
        """Returns the entry of the vocabulary for each row of the embedding. Rows that the
        tokenizer does not use get names of their own."""
        if self.tokenizer is None or self.tokenizer.fast is None:
            raise InputError(
                "the model has no tokenizer that opens, and this target stores the vocabulary; add "
                "the files of its tokenizer to the directory"
            )
        known = {i: word for word, i in self.tokenizer.ready.get_vocab().items()}
        size: int = self.config.vocab_size
        if known and max(known) >= size:
            raise InputError(
                f"the tokenizer has an entry with the id {max(known)}, and the embedding has "
                f"{size} rows; save the model with its own tokenizer"
            )
        return [known.get(i, f"<unused_{i}>") for i in range(size)]

    def special(self) -> dict[str, int | None]:
        """Returns the ids of the special tokens by role; empty if there are none."""
        if self.tokenizer is None or self.tokenizer.fast is None:
            return {}
        try:
            special = special_of(self.tokenizer, "this model")
        except InputError:
            return {}
        roles = ("end", "pad", "unknown", "start", "cls", "sep", "mask")
        return {role: getattr(special, role) for role in roles}

    def answer(self, sample: ExportSample, quantity: str) -> np.ndarray:
        """Returns what our own model computes for one text, [rows, columns]."""
        model = self.model
        ids = torch.tensor([sample.input_ids])
        with torch.no_grad(), model.one_direction():
            if sample.decoder_input_ids is None:
                hidden = model(ids)
            else:
                hidden = model(ids, torch.tensor([sample.decoder_input_ids]))
            if quantity == "hidden states":
                answer = hidden
            elif self.head is None:
                answer = model.logits(hidden)
            else:
                answer = model.read(self.head, hidden)
        rows: np.ndarray = answer[0].reshape(-1, answer.size(-1)).float().numpy()
        return rows


class Runtime(ABC):
    """An export that its own runtime has opened."""

    quantity = "logits"  # what it returns: "logits", "hidden states", or "vectors" of texts
    batches = False  # whether `batch` pads several texts into one

    @abstractmethod
    def rows(self, sample: ExportSample) -> np.ndarray:
        """Returns what the runtime computes for one text, [rows, columns]."""

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Returns one vector for each text, if the runtime reads texts and not tokens."""
        raise TypeError(f"{type(self).__name__} reads tokens")

    def batch(self, samples: list[ExportSample]) -> list[np.ndarray]:
        """Returns the same for several texts, which it reads at once."""
        return [self.rows(sample) for sample in samples]

    def continued(self, sample: ExportSample, count: int) -> list[int]:
        """Returns the `count` most probable next tokens, one after the other."""
        tokens: list[int] = []
        for _ in range(count):
            tokens.append(int(self.rows(sample)[-1].argmax()))
            sample = sample.extended(tokens[-1])
        return tokens

    def tokens(self, text: str) -> list[int] | None:
        """Returns the ids of a text, if the export holds a tokenizer."""
        return None


# Why a target cannot hold a model: a sentence, and the test that finds such a model.
Limit = tuple[str, Callable[[ExportSource], Any]]


class Target(ABC):
    """A format of another runtime. Subclasses stand in one file each."""

    name: ClassVar[str]
    about: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]  # the modules that convert and open it
    limits: ClassVar[tuple[Limit, ...]]  # the table of what it cannot hold
    precisions: ClassVar[tuple[str, ...]] = PRECISIONS

    def refuses(self, source: ExportSource) -> str | None:
        """Returns why this target cannot hold the model, or None if it can."""
        return next((reason for reason, applies in self.limits if applies(source)), None)

    def tolerance(self, source: ExportSource) -> float:
        """Returns the largest difference of fp32, as a share of the largest number of a text."""
        return TOLERANCE

    def missing(self) -> list[str]:
        """Returns the modules that are not installed."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]

    @abstractmethod
    def convert(self, source: ExportSource, directory: Path, precision: str) -> None:
        """Writes the files of the target into an empty directory."""

    @abstractmethod
    def open(self, source: ExportSource, directory: Path, precision: str) -> Runtime:
        """Opens the files with the real runtime."""


def settled(source: ExportSource) -> ExportSource:
    """Refuses models whose numbers are not plain floats: every target stores its own."""
    if "int8" in source.model.extensions:
        raise ConfigError(
            "this model is quantized already; export the model that it was made from, with "
            "--precision int8"
        )
    return source
