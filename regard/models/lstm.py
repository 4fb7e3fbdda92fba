"""The LSTM baseline that attention replaced (Zaremba et al. 2014, with tied embeddings)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.attention.dropout import Dropout
from regard.models.base import Config, Model, as_booleans, check_tokens
from regard.models.family import WORDS_PLAN, Family, PaperDefaults, Shape
from regard.models.output import Output
from regard.models.state import State


@dataclass(frozen=True)
class LSTMConfig(Config):
    vocab_size: int = 10000
    width: int = 650
    layers: int = 2
    dropout: float = 0.5
    start_range: float = 0.05


class LSTM(Model):
    causal = True
    accepts = frozenset({"state"})
    remembers = "vector"
    attends = ""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.width)
        self.dropout = Dropout(c.dropout)
        self.layers = nn.ModuleList(
            nn.LSTM(c.width, c.width, batch_first=True) for _ in range(c.layers)
        )
        self.output = Output(self.tokens.weight, bias="learned")

    def initialize(self) -> Self:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -self.config.start_range, self.config.start_range)
        return self

    @property
    def decoding(self) -> str:
        return "recurrent"

    def stacks(self) -> dict[str, list[nn.Module]]:
        return {"": list(self.layers)}

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, state: State | None = None
    ) -> Tensor:
        """Maps input_ids [B, T] to hidden states [B, T, width]. Padding leaves the state as is."""
        check_tokens(input_ids, self.config.vocab_size)
        attention_mask = as_booleans(attention_mask, input_ids)
        x = self.dropout(self.tokens(input_ids))
        count = len(self.layers)
        pairs = state.hidden[:count] if state is not None and state.hidden else [None] * count
        ends = []
        for layer, pair in zip(self.layers, pairs, strict=True):
            before = (
                None
                if pair is None
                else (pair[None, :, 0].contiguous(), pair[None, :, 1].contiguous())
            )
            y, end = (
                recur(layer, x, before)
                if attention_mask is None
                else padded(layer, x, attention_mask, before)
            )
            ends.append(torch.stack([end[0][0], end[1][0]], 1))  # [B, 2, width]
            x = self.dropout(y)
        if state is not None:
            state.hidden = [*(end.detach() for end in ends), *state.hidden[count:]]
            state.length += input_ids.size(1)
        return self.output.rows(x, input_ids, attention_mask, state)


HALF_ON_CPU: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()


def recur(
    layer: nn.Module, x: Tensor, before: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Applies a layer to its rows. oneDNN refuses a bfloat16 LSTM on a processor without AVX-512;
    there it is computed in 32 bits."""
    if HALF_ON_CPU or not x.is_cpu:
        y, end = layer(x, before)
        return y, end
    with torch.autocast("cpu", enabled=False):
        own: Tensor = layer.weight_ih_l0  # type: ignore[assignment]
        wide = torch.promote_types(own.dtype, torch.float32)
        first = None if before is None else (before[0].to(wide), before[1].to(wide))
        if own.dtype == wide:
            y, end = layer(x.to(wide), first)
            return y, end
        weights = {name: value.to(wide) for name, value in layer.named_parameters()}
        y, (h, c) = torch.func.functional_call(layer, weights, (x.to(wide), first))
        return y.to(x.dtype), (h.to(x.dtype), c.to(x.dtype))


def padded(
    layer: nn.Module, x: Tensor, attention_mask: Tensor, before: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Applies a layer step by step and keeps the state unchanged at padding."""
    empty = x.new_zeros(1, x.size(0), x.size(2))
    h, c = before or (empty, empty)
    rows = []
    for t in range(x.size(1)):
        y, (next_h, next_c) = recur(layer, x[:, t : t + 1], (h, c))
        here = attention_mask[:, t][None, :, None]
        h, c = torch.where(here, next_h, h), torch.where(here, next_c, c)
        rows.append(y)
    return torch.cat(rows, 1), (h, c)


SIZES = {
    "lstm-medium": LSTMConfig(),
    "lstm-large": LSTMConfig(width=1500, dropout=0.65, start_range=0.04),
}


def laptop(shape: Shape, seq_len: int) -> dict[str, Any]:
    return {"layers": 2, "width": 2 * shape.width, "dropout": 0.2}


FAMILY = Family(
    name="lstm",
    model=LSTM,
    config=LSTMConfig,
    paper="Zaremba et al., Recurrent Neural Network Regularization",
    year=2014,
    sizes=SIZES,
    objective="recurrent",
    other_objectives=("causal",),
    training={
        "": PaperDefaults(
            lr=1e-3, optimizer="adam", grad_clip=5.0, schedule="cosine", warmup=0.02, batch_size=20,
            seq_len=35,
            differs="the paper's SGD needs a learning rate for every corpus; Adam is our choice",
        ),
    },
    finetuning={
        "": PaperDefaults(
            lr=5e-4, optimizer="adam", grad_clip=5.0, batch_size=32, seq_len=256, epochs=10
        ),
    },
    tensor_plan=WORDS_PLAN,  # its layers stay whole
    laptop=laptop,
)  # fmt: skip
