"""What all models share: a configuration in words, and checks of what comes in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from regard.attention.block import Block, CrossBlock
from regard.attention.memory import Fixed
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.models.config import Config as Config  # for the models: both from one place
from regard.models.heads import Heads
from regard.models.output import Output
from regard.models.state import State, caches

if TYPE_CHECKING:
    from regard.models.family import Family


class Model(nn.Module):
    """A map from tokens to hidden states; `output` maps those to the vocabulary.

    What a model can do stands here as its capabilities, so that nobody asks which model it is.
    """

    config: Any
    output: Output
    kind: ClassVar[str] = "decoder"  # or "encoder", "encoder-decoder"
    causal: ClassVar[bool] = False  # does each row see only what came before it?
    # What its forward takes besides tokens and their marks: "state", "segments", "known",
    # "order" (who sees whom), "targets" (rows that ask for a word), "prefix", "global_tokens".
    accepts: ClassVar[frozenset[str]] = frozenset()
    remembers: ClassVar[str] = ""  # "rows" or a "vector" of an earlier segment, in its state
    fills: ClassVar[str] = ""  # how it guesses blanks: "masked", "queries" or "sentinels"
    summary_row: ClassVar[str] = "last"  # the row that stands for a whole text, or "first"
    # What the scores of a row are about: all "rows", "windows" of them, or "": no attention.
    attends: ClassVar[str] = "rows"

    @property
    def decoding(self) -> str:
        """How it goes on with a text: by a "kv_cache", with the source beside it ("cross"), a
        "recurrent" memory, rows that ask ("queries"), or "recompute". "": it does not.
        """
        return ""

    @property
    def reach(self) -> int | None:
        """How many rows before the last one matter to it; None: all."""
        return None

    def stacks(self) -> dict[str, list[nn.Module]]:
        """Its layers; an encoder's and a decoder's apart."""
        blocks: Any = self.blocks
        return {"": list(blocks)}

    def unlimited(self) -> Self:
        """The model without limits that only training has."""
        return self

    def read_forwards(self) -> None:
        """Ends what only training does: reading half of the texts backwards."""

    @contextmanager
    def one_direction(self) -> Iterator[None]:
        """Within it a single text can be read, also by a model that learns in two directions."""
        yield

    def grow_vocabulary(self, vocabulary: int) -> None:
        """Makes rows for new tokens, drawn as the first ones were."""
        raise ConfigError(f"{type(self).__name__} cannot learn tokens that it was not made with")

    def __init__(self) -> None:
        super().__init__()
        self.extensions: dict[str, dict[str, Any]] = {}  # parts added to it: name -> options

    def initialise(self) -> Self:
        """Sets the weights as the paper does."""
        raise TypeError(f"{type(self).__name__} does not say how it is initialised")

    def logits(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.output(hidden)
        return y

    def start(self, batch: int, capacity: int) -> State:
        """An empty state for `batch` sequences of up to `capacity` tokens."""
        return State()

    @property
    def family(self) -> Family:
        """The card at the end of the file that defines the model."""
        card: Family = sys.modules[type(self).__module__].FAMILY
        return card

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def parameter_count(self) -> int:
        """The numbers that were learned. Small ones are no parameters: what holds them says how
        many they are (`learned_numbers`).
        """
        small: int = sum(getattr(part, "learned_numbers", 0) for part in self.modules())
        return small + sum(p.numel() for p in self.parameters() if p.requires_grad)


class Encoder(Model):
    """A model that reads a whole text at once and can carry heads."""

    kind = "encoder"
    fills = "masked"
    summary_row = "first"

    def add_heads(self, heads: Heads, head: Callable[[str, int], nn.Module]) -> None:
        """One module for each head but "masked", which is the output."""
        made = {name: head(name, classes) for name, classes in heads.items() if name != "masked"}
        self.heads = nn.ModuleDict(made)

    def read(self, head: str, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """What a head makes of the hidden states."""
        if head not in self.heads:
            raise UnknownName("head", head, list(self.heads), "(of this model)")
        y: Tensor = self.heads[head](hidden, real)
        return y


class EncoderDecoder(Model):
    """An encoder reads the source once; a decoder reads itself and what the encoder made of it."""

    kind = "encoder-decoder"
    fills = "sentinels"
    decoder_blocks: nn.ModuleList

    def stacks(self) -> dict[str, list[nn.Module]]:
        blocks: list[nn.Module] = [part for part in self.modules() if isinstance(part, Block)]
        return {
            "encoder": [part for part in blocks if not isinstance(part, CrossBlock)],
            "decoder": [part for part in blocks if isinstance(part, CrossBlock)],
        }

    def encode(self, source: Tensor, real: Tensor | None = None) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how it encodes")

    def decode(
        self,
        target: Tensor,
        source: list[Fixed],
        source_real: Tensor | None = None,
        real: Tensor | None = None,
        state: State | None = None,
    ) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how it decodes")

    @property
    def decoding(self) -> str:
        return "cross"

    def start(self, batch: int, capacity: int) -> State:
        own = self.output.caches(batch, capacity)
        return State([*caches(self.decoder_blocks, batch, capacity), *own])

    def project_source(self, encoded: Tensor) -> list[Fixed]:
        """The encoder's output as each decoder layer reads it, projected once."""
        blocks: Any = self.decoder_blocks
        return [Fixed(block.cross.layer.project.pairs(encoded)) for block in blocks]

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_real: Tensor | None = None,
        target_real: Tensor | None = None,
    ) -> Tensor:
        """source [B, S], target [B, T] (shifted right) -> hidden states of the target."""
        encoded = self.project_source(self.encode(source, source_real))
        return self.decode(target, encoded, source_real, target_real)


def check_tokens(tokens: Tensor, vocabulary: int) -> None:
    """Refuses ids outside the vocabulary; inside a compiled graph the embedding itself has to."""
    if torch.compiler.is_compiling() or not tokens.is_cpu or tokens.numel() == 0:
        return
    if tokens.is_floating_point():
        raise InputError(f"tokens are {tokens.dtype}; they must be integers")
    if tokens.dim() != 2:
        raise InputError(f"tokens are of shape {list(tokens.shape)}; expected is [batch, length]")
    low, high = (int(x) for x in tokens.aminmax())
    if low < 0 or high >= vocabulary:
        raise InputError(
            f"token id {low if low < 0 else high} is outside the vocabulary of {vocabulary}; "
            "is this the model's own tokenizer?"
        )


def check_length(rows: int, context: int) -> None:
    if rows > context:
        raise InputError(
            f"{rows} tokens are more than the {context} positions this model has learned; "
            "shorten the text, or choose a model with a longer context"
        )


def normal(module: nn.Module, std: float) -> None:
    """N(0, std) for matrices and embeddings, zeros for biases, ones for norms."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=std)
        elif isinstance(part, nn.LayerNorm | nn.RMSNorm):
            nn.init.ones_(part.weight)
        if isinstance(getattr(part, "bias", None), Tensor):
            nn.init.zeros_(part.bias)  # type: ignore[arg-type]
