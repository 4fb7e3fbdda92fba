"""What all models share: base classes of configurations and models, and checks of the inputs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_type_hints

import torch
from torch import Tensor, nn

from regard.attention.block import ACTIVATIONS, NORM_PLACES, Block, CrossBlock
from regard.attention.kernels import working_dtype
from regard.attention.memory import CrossKV
from regard.attention.pattern import Pattern
from regard.attention.position import View
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.core.tables import fits, from_table
from regard.models.output import Heads, Output
from regard.models.state import (
    NOTHING,
    KnowledgeView,
    State,
    caches,
    causal,
    everything,
    positions,
    recall,
)

if TYPE_CHECKING:
    from regard.models.family import Family


@dataclass(frozen=True)
class Config:
    """The configuration of a model. Subclasses are frozen dataclasses with plain field names."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuses fields of a wrong type, and fields that contradict each other."""
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not fits(value, kinds[field.name]):
                raise ConfigError(f"{field.name} is {value!r}; it must be {field.type}")
            if field.name in CHOICES and value not in CHOICES[field.name]:
                raise UnknownName(field.name, value, CHOICES[field.name])
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if field.name.startswith("dropout") and not 0.0 <= value < 1.0:
                raise ConfigError(f"{field.name} is {value}; a dropout rate lies in [0, 1)")
            if field.name in POSITIVE and value <= 0:
                raise ConfigError(f"{field.name} is {value}; it must be at least 1")
            if field.name in ("layers", "decoder_layers") and value > MOST_LAYERS:
                raise ConfigError(f"{field.name} is {value:,}; it must be at most {MOST_LAYERS:,}")
        width, heads = getattr(self, "width", None), getattr(self, "heads", None)
        if width and heads and getattr(self, "head_size", None) is None and width % heads:
            raise ConfigError(
                f"width {width} is not divisible by heads {heads}; choose a divisor of the width"
                + (", or give head_size" if hasattr(self, "head_size") else "")
            )

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Builds a configuration from a dictionary; an error names the unknown field."""
        return from_table(cls, values, what="field", advice=f"({cls.__name__})")

    def replace(self, **changes: Any) -> Self:
        return self.of(dataclasses.asdict(self) | changes)

    def without_dropout(self) -> dict[str, float]:
        """Returns the fields that switch dropout off, except the dropout of a task's head."""
        names = [field.name for field in dataclasses.fields(self)]
        own = [name for name in names if name.startswith("dropout") and name != "dropout_head"]
        return dict.fromkeys(own, 0.0)


POSITIVE = {
    "vocab_size", "context", "width", "layers", "heads", "kv_heads", "ffn_size", "head_size",
    "window", "band", "embedding", "ratio", "buckets", "segments", "decoder_layers",
    "decoder_heads", "decoder_ffn_size",
}  # fmt: skip
MOST_LAYERS = 10_000  # a larger number is an error in the configuration
CHOICES = {
    "activation": set(ACTIVATIONS),
    "norm": set(NORM_PLACES),
    "positions": {"halves", "interleaved", "tensor2tensor"},
}


class Model(nn.Module):
    """A model maps tokens to hidden states; its `output` maps hidden states to the vocabulary.

    The capabilities of a model are class attributes and methods here, so that no caller has to ask
    which model it is.
    """

    config: Any
    output: Output
    kind: ClassVar[str] = "decoder"  # or "encoder", "encoder-decoder"
    causal: ClassVar[bool] = False  # True if each row sees only the rows before it
    # The arguments of its forward besides input_ids and attention_mask: "state", "segments",
    # "known", "order" (who sees whom), "targets" (query rows), "prefix", "global_tokens".
    accepts: ClassVar[frozenset[str]] = frozenset()
    remembers: ClassVar[str] = ""  # what its state keeps of earlier segments: "rows" or a "vector"
    fills: ClassVar[str] = ""  # how it fills blanks: "masked", "queries" or "sentinels"
    summary_row: ClassVar[str] = "last"  # the row that represents a whole text, or "first"
    # What a row attends to: all "rows", "windows" of rows, or "" if there is no attention.
    attends: ClassVar[str] = "rows"

    @property
    def decoding(self) -> str:
        """How the model generates: with a "kv_cache", with the source beside it ("cross"), with a
        "recurrent" memory, with query rows ("queries"), or by "recompute". "": it cannot generate.
        """
        return ""

    @property
    def reach(self) -> int | None:
        """How many rows before the last one influence it; None: all rows."""
        return None

    def stacks(self) -> dict[str, list[nn.Module]]:
        """Returns the layers by stack: one stack "", or two, "encoder" and "decoder"."""
        blocks: Any = self.blocks
        return {"": list(blocks)}

    def unlimited(self) -> Self:
        """Returns the model without the limits that only training has."""
        return self

    def read_forwards(self) -> None:
        """Switches off what only training does: reading half of the batch backwards."""

    @contextmanager
    def one_direction(self) -> Iterator[None]:
        """Lets a single text be read, also by a model that trains in two directions."""
        yield

    def grow_vocabulary(self, vocab_size: int) -> None:
        """Adds embedding rows for new tokens, initialized like the first rows."""
        raise ConfigError(f"{type(self).__name__} cannot learn new tokens; choose gpt or llama")

    def __init__(self) -> None:
        super().__init__()
        self.extensions: dict[str, dict[str, Any]] = {}  # the added parts: name -> options

    def initialize(self) -> Self:
        """Initializes the weights as the paper does."""
        raise TypeError(f"{type(self).__name__} does not say how it is initialized")

    def logits(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.output(hidden)
        return y

    def start(self, batch: int, capacity: int) -> State:
        """Returns an empty state for `batch` sequences of up to `capacity` tokens."""
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
        """Returns the number of parameters, frozen ones included. Quantized weights are buffers,
        not parameters: their modules report how many they hold (`learned_numbers`)."""
        small: int = sum(getattr(part, "learned_numbers", 0) for part in self.modules())
        return small + sum(p.numel() for p in self.parameters())


class Headed(Model):
    """A model that can carry heads. A subclass says how each head is built."""

    def head(self, name: str, classes: int) -> nn.Module:
        raise TypeError(f"{type(self).__name__} does not say what heads it has")

    def add_heads(self, heads: Heads) -> None:
        """Builds one module for each head except "masked", which is the output."""
        others = {name: classes for name, classes in heads.items() if name != "masked"}
        self.heads = nn.ModuleDict({name: self.head(name, k) for name, k in others.items()})

    def read(self, head: str, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Returns what a head computes from the hidden states."""
        if head not in self.heads:
            raise UnknownName("head", head, list(self.heads), "(of this model)")
        y: Tensor = self.heads[head](hidden, attention_mask)
        return y


class Encoder(Headed):
    """A model that reads a whole text at once."""

    kind = "encoder"
    fills = "masked"
    summary_row = "first"


class EncoderDecoder(Model):
    """An encoder reads the source once; a decoder reads its own rows and the encoder's output."""

    kind = "encoder-decoder"
    fills = "sentinels"
    encoder_blocks: nn.ModuleList
    decoder_blocks: nn.ModuleList

    def stacks(self) -> dict[str, list[nn.Module]]:
        blocks: list[nn.Module] = [part for part in self.modules() if isinstance(part, Block)]
        return {
            "encoder": [part for part in blocks if not isinstance(part, CrossBlock)],
            "decoder": [part for part in blocks if isinstance(part, CrossBlock)],
        }

    def embed(self, input_ids: Tensor, at: Tensor) -> Tensor:
        """Returns the input of the first layer for tokens at the positions `at` [B|1, T]."""
        raise TypeError(f"{type(self).__name__} does not say how it embeds")

    def source_view(
        self, pattern: Pattern, rows: int, dtype: torch.dtype, known: KnowledgeView
    ) -> View:
        """Returns what the encoder rows see of each other."""
        return known.view(pattern, dtype)

    def target_view(self, pattern: Pattern, past: int, rows: int, dtype: torch.dtype) -> View:
        """Returns what the decoder rows see of each other and of the `past` rows before them."""
        return View(pattern)

    def finish_source(self, x: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how its encoder ends")

    def finish_target(self, x: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how its decoder ends")

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        known: KnowledgeView = NOTHING,
    ) -> Tensor:
        check_tokens(input_ids, self.config.vocab_size)
        attention_mask = as_booleans(attention_mask, input_ids)
        rows = input_ids.size(1)
        x = self.embed(input_ids, known.positions(attention_mask, rows, input_ids.device))
        dtype = working_dtype(x)
        view = self.source_view(everything(attention_mask, rows, dtype), rows, dtype, known)
        for block in self.encoder_blocks:
            x = block(x, view)
        return self.finish_source(x)

    def decode(
        self,
        decoder_input_ids: Tensor,
        source: list[CrossKV],
        source_attention_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        state: State | None = None,
    ) -> Tensor:
        check_tokens(decoder_input_ids, self.config.vocab_size)
        attention_mask = as_booleans(attention_mask, decoder_input_ids)
        rows = decoder_input_ids.size(1)
        marks, past, memories = recall(
            state, attention_mask, decoder_input_ids, len(self.decoder_blocks)
        )
        x = self.embed(decoder_input_ids, positions(marks, past, rows, decoder_input_ids.device))
        dtype = working_dtype(x)
        own = self.target_view(causal(marks, past, dtype), past, rows, dtype)
        cross = View(everything(source_attention_mask, rows, dtype))
        for block, memory, read in zip(self.decoder_blocks, memories, source, strict=True):
            x = block(x, (own, memory), (cross, read))
        return self.output.rows(self.finish_target(x), decoder_input_ids, attention_mask, state)

    @property
    def decoding(self) -> str:
        return "cross"

    def start(self, batch: int, capacity: int) -> State:
        own = self.output.caches(batch, capacity)
        return State([*caches(self.decoder_blocks, batch, capacity), *own])

    def project_source(self, encoded: Tensor) -> list[CrossKV]:
        """Returns the encoder's output as keys and values of each decoder layer, projected once."""
        blocks: Any = self.decoder_blocks
        return [CrossKV(block.cross.layer.project.pairs(encoded)) for block in blocks]

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Maps input_ids [B, S] and decoder_input_ids [B, T] (shifted right) to the decoder's
        hidden states [B, T, width]."""
        attention_mask = as_booleans(attention_mask, input_ids)
        encoded = self.project_source(self.encode(input_ids, attention_mask))
        return self.decode(decoder_input_ids, encoded, attention_mask, decoder_attention_mask)


def check_tokens(input_ids: Tensor, vocab_size: int) -> None:
    """Refuses ids outside the vocabulary; in a compiled graph only the embedding can do that."""
    if torch.compiler.is_compiling() or not input_ids.is_cpu or input_ids.numel() == 0:
        return
    if input_ids.is_floating_point():
        raise InputError(f"input_ids are {input_ids.dtype}; they must be integers")
    if input_ids.dim() != 2:
        raise InputError(
            f"input_ids has shape {list(input_ids.shape)}; the expected shape is [batch, length]"
        )
    low, high = (int(x) for x in input_ids.aminmax())
    if low < 0 or high >= vocab_size:
        raise InputError(
            f"token id {low if low < 0 else high} is outside the vocabulary of {vocab_size}; "
            "use the tokenizer of this model"
        )


def as_booleans(attention_mask: Tensor | None, input_ids: Tensor) -> Tensor | None:
    """Returns the mask as booleans: True at tokens, False at padding. Tokenizers write 1 and 0."""
    if attention_mask is None:
        return None
    if attention_mask.shape != input_ids.shape:
        raise InputError(
            f"attention_mask has shape {list(attention_mask.shape)}, and input_ids has shape "
            f"{list(input_ids.shape)}; both must be [batch, length]"
        )
    return attention_mask if attention_mask.dtype == torch.bool else attention_mask.bool()


def check_length(rows: int, context: int) -> None:
    if rows > context:
        raise InputError(
            f"{rows} tokens are more than the {context} positions of this model; "
            "shorten the text, or choose a model with a longer context"
        )


def normal(module: nn.Module, std: float) -> None:
    """Initializes matrices and embeddings with N(0, std), biases with zeros, norms with ones."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=std)
        elif isinstance(part, nn.LayerNorm | nn.RMSNorm):
            nn.init.ones_(part.weight)
        if isinstance(getattr(part, "bias", None), Tensor):
            nn.init.zeros_(part.bias)  # type: ignore[arg-type]
