"""What all models share: a configuration in words, and checks of what comes in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from regard.attention.block import ACTIVATIONS, NORM_PLACES
from regard.attention.memory import Fixed
from regard.errors import ConfigError, InputError, UnknownName
from regard.models.heads import Heads
from regard.models.output import Output
from regard.models.state import State, caches


@dataclass(frozen=True)
class Config:
    """A model's few numbers. Subclasses are frozen dataclasses whose fields are words."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuses what is of another kind, or contradicts itself."""
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not fits(value, kinds[field.name]):
                raise ConfigError(f"{field.name} is {value!r}; it must be {field.type}")
            choices = CHOICES.get(field.name)
            if choices is not None and value not in choices:
                raise UnknownName(field.name, value, choices)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if field.name.startswith("dropout") and not 0.0 <= value < 1.0:
                raise ConfigError(f"{field.name} is {value}; a dropout rate lies in [0, 1)")
            if field.name in POSITIVE and value <= 0:
                raise ConfigError(f"{field.name} is {value}; it must be at least 1")
        width, heads = getattr(self, "width", None), getattr(self, "heads", None)
        if width and heads and getattr(self, "head_size", None) is None and width % heads:
            raise ConfigError(
                f"width {width} is not divisible by heads {heads}; choose heads that divide it"
                + (", or give head_size" if hasattr(self, "head_size") else "")
            )

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """From a dictionary, naming the field that is unknown."""
        known = {field.name for field in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise UnknownName("field", name, known, f"({cls.__name__})")
        return cls(**values)

    def replace(self, **changes: Any) -> Self:
        return self.of(dataclasses.asdict(self) | changes)


POSITIVE = set(
    "vocabulary context width layers heads hidden head_size window band embedding ratio buckets "
    "decoder_layers decoder_heads decoder_hidden segments".split()
)
CHOICES: dict[str, set[str]] = {
    "activation": set(ACTIVATIONS),
    "norm": set(NORM_PLACES),
    "positions": {"halves", "interleaved", "tensor2tensor"},
}


def fits(value: Any, kind: Any) -> bool:
    """Is the value what a field's annotation asks for?"""
    if isinstance(kind, UnionType):
        return any(fits(value, option) for option in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, tuple | list) and all(fits(x, get_args(kind)[0]) for x in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


class Model(nn.Module):
    """A map from tokens to hidden states; `output` maps those to the vocabulary."""

    config: Any
    output: Output
    causal: ClassVar[bool] = False  # does each row see only what came before it?

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
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


class Encoder(Model):
    """A model that reads a whole text at once and can carry heads."""

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

    decoder_blocks: nn.ModuleList

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

    def start(self, batch: int, capacity: int) -> State:
        return State(caches(self.decoder_blocks, batch, capacity))

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
