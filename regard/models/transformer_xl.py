"""Transformer-XL (Dai et al. 2019): a memory of earlier segments, and relative positions.

Every layer reads the inputs that it had in earlier segments (no gradient flows there). The paper
starts with an empty memory, the published PyTorch port with `zeros`, to which the rows attend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import NORM_PLACES, Block, FeedForward
from regard.attention.dropout import Dropout
from regard.attention.kernels import working_dtype
from regard.attention.memory import HERE, RECENT, KVCache, Memory, Segment
from regard.attention.pattern import Causal, Ordered, Pattern
from regard.attention.position import Distances, Relative, View, sinusoids
from regard.core.errors import ConfigError
from regard.models.adaptive import AdaptiveEmbedding, AdaptiveOutput
from regard.models.base import Config, Model, as_booleans, check_tokens, normal
from regard.models.family import CORE_PLAN, RELATIVE_PLAN, Family, PaperDefaults, Shape
from regard.models.recurrent import MemoryLimits
from regard.models.state import State, joined_marks


@dataclass(frozen=True)
class TransformerXLConfig(Config):
    vocab_size: int = 267735
    cutoffs: tuple[int, ...] = (20000, 40000, 200000)
    ratio: int = 4  # the vectors of each rarer cluster are narrower by this factor
    width: int = 1024
    embedding: int | None = None  # the width of the frequent words' vectors; `width` unless given
    layers: int = 18
    heads: int = 16
    head_size: int = 64
    ffn_size: int = 4096
    mem_len: int = 1600  # the rows that every layer remembers
    same_length: bool = True  # every row sees exactly `mem_len` keys
    clamp_len: int = 1000  # larger distances count as this one; 0: no limit
    untied: bool = True  # every layer has its own u and v
    shared_projections: bool = True  # input and output share the rare clusters' projections
    norm: str = "post"
    dropout: float = 0.1
    dropout_attention: float = 0.0
    norm_eps: float = 1e-5
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        if list(self.cutoffs) != sorted(set(self.cutoffs)) or any(
            not 0 < c < self.vocab_size for c in self.cutoffs
        ):
            raise ConfigError(
                f"cutoffs is {self.cutoffs}; the numbers must rise and lie between 0 and "
                f"vocab_size, which is {self.vocab_size}"
            )


class TransformerXL(Model):
    causal = True
    accepts = frozenset({"state"})
    remembers = "rows"

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        c = self.config = config
        size = c.embedding or c.width
        self.tokens = AdaptiveEmbedding(c.vocab_size, c.cutoffs, size, c.ratio, c.width)
        self.dropout = Dropout(c.dropout)
        shared = None if c.untied else self.biases()
        self.blocks = nn.ModuleList(self.block(shared or self.biases()) for _ in range(c.layers))
        self.output = AdaptiveOutput(self.tokens, size, c.shared_projections)
        self.limits = MemoryLimits.of(c)
        self.recalled = normed if c.norm == "pre" else unchanged

    def biases(self) -> tuple[nn.Parameter, nn.Parameter]:
        """Returns u and v, the content and position biases."""
        shape = self.config.heads, self.config.head_size
        return nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape))

    def block(self, biases: tuple[nn.Parameter, nn.Parameter]) -> Block:
        c, rate = self.config, self.config.dropout_attention
        residual = NORM_PLACES[c.norm]
        score = Relative(c.width, *biases)
        attention = Attention(
            c.width, c.heads, size=c.head_size, bias=False, dropout=rate, score=score
        )
        feed_forward = FeedForward(c.width, c.ffn_size, "relu", dropout=c.dropout)
        return Block(
            residual(attention, nn.LayerNorm(c.width, c.norm_eps), c.dropout),
            residual(feed_forward, nn.LayerNorm(c.width, c.norm_eps), c.dropout),
        )

    def initialize(self) -> Self:
        """Initializes with N(0, 0.02); norms with N(1, 0.02), cluster projections N(0, 0.01)."""
        std = self.config.init_std
        normal(self, std)
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                nn.init.normal_(parameter, 1.0, std)
            elif name.endswith((".score.u", ".score.v", "cluster_weight")):
                nn.init.normal_(parameter, std=std)
            elif "projections" in name:
                nn.init.normal_(parameter, std=0.01)
            elif "biases" in name or name.endswith("cluster_bias"):
                nn.init.zeros_(parameter)
        return self

    def zeros(self, batch: int) -> State:
        """Returns a memory full of zeros, to which the rows do attend."""
        c, like = self.config, next(self.parameters())
        empty = like.new_zeros(batch, c.mem_len, c.width)
        return State(hidden=[empty] * c.layers)

    @property
    def decoding(self) -> str:
        return "recurrent" if self.config.mem_len > 0 else "recompute"

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, state: State | None = None
    ) -> Tensor:
        """Maps input_ids [B, T] to hidden states [B, T, width]; the state holds the memory."""
        check_tokens(input_ids, self.config.vocab_size)
        attention_mask = as_booleans(attention_mask, input_ids)
        x = self.dropout(self.tokens(input_ids))
        past, memories = self.recall(state)
        marks = joined_marks(
            None if state is None else state.attention_mask, attention_mask, past, input_ids
        )
        view = self.view(x, past, marks)
        inputs = []
        for block, memory in zip(self.blocks, memories, strict=True):
            inputs.append(x)
            x = block(x, view, memory)
        if state is not None:
            self.limits.remember(state, inputs, marks)
        return self.output.rows(self.dropout(x), input_ids, attention_mask, state)

    def recall(self, state: State | None) -> tuple[int, Sequence[Memory]]:
        """Returns the number of remembered rows and each layer's memory."""
        if state is not None and state.layers:
            caches: list[Any] = state.layers
            return caches[0].rows, caches
        if state is None or not state.hidden:
            return 0, [HERE] * len(self.blocks)
        pairs = zip(self.blocks, state.hidden, strict=False)  # an output may remember more
        return state.hidden[0].size(1), [Segment(self.recalled(*pair)) for pair in pairs]

    def projected(self, state: State) -> State:
        """Returns a state that remembers keys and values in the place of hidden states: the next
        tokens need not project them again. A state in which an output remembers something stays."""
        if len(state.hidden) != len(self.blocks):
            return state
        blocks: Any = self.blocks
        layers: list[KVCache] = []
        for block, past in zip(blocks, state.hidden, strict=True):
            attention = block.attention.layer
            pair = attention.project.pairs(self.recalled(block, past))
            layers.append(RECENT[attention.cache].of(*pair))
        return State(layers, attention_mask=state.attention_mask, length=state.length)

    def view(self, x: Tensor, past: int, attention_mask: Tensor | None) -> View:
        rows, keys = x.size(1), past + x.size(1)
        distance = torch.arange(keys - 1, -2, -1, device=x.device).clamp_max(self.limits.clamp_len)
        table = self.dropout(sinusoids(distance, self.config.width).to(x.dtype))[None]
        pattern: Pattern = Causal(past)
        if attention_mask is not None or keys > self.limits.reach:
            order = torch.arange(keys, device=x.device)[None]
            floor = order[:, past:] - self.limits.reach + 1
            key_order = (
                order
                if attention_mask is None
                else torch.where(attention_mask, order, Ordered.HIDDEN)
            )
            pattern = Ordered(order[:, past:], key_order, working_dtype(x), floor)
        return View(pattern, distances=Distances(table, rows, keys))


def unchanged(block: Any, past: Tensor) -> Tensor:
    return past


def normed(block: Any, past: Tensor) -> Tensor:
    """Applies the norm to the memory: with pre-norm, the memory holds rows before the norm."""
    y: Tensor = block.attention.norm(past)
    return y


def character(layers: int, width: int, ffn_size: int, dropout: float) -> TransformerXLConfig:
    return TransformerXLConfig(
        204, (), 1, width, None, layers, 8, width // 8, ffn_size, mem_len=3800, clamp_len=1000,
        untied=False, dropout=dropout, dropout_attention=dropout,
    )  # fmt: skip


_base = TransformerXLConfig(
    ratio=1, width=410, layers=16, heads=10, head_size=41, ffn_size=2100, mem_len=640,
     clamp_len=400,
    untied=False,
)  # fmt: skip
_billion = TransformerXLConfig(
    793471, (60000, 100000, 640000), 4, 1024, None, 18, 8, 128, 4096, mem_len=128, clamp_len=0,
    shared_projections=False, untied=False, dropout=0.0,
)  # fmt: skip

# mem_len and clamp_len are those of the published evaluation.
SIZES = {
    "transformer-xl-wt103-base": _base,
    "transformer-xl-wt103-large": TransformerXLConfig(dropout=0.2, dropout_attention=0.2),
    "transformer-xl-enwik8-base": character(12, 512, 2048, 0.1).replace(
        mem_len=2100, clamp_len=820, dropout_attention=0.0
    ),
    "transformer-xl-enwik8-large": character(24, 1024, 3072, 0.15),
    "transformer-xl-text8-large": character(24, 1024, 3072, 0.15).replace(vocab_size=27),
    "transformer-xl-lm1b-base": _billion,
    "transformer-xl-lm1b-large": _billion.replace(
        width=1280, layers=24, heads=16, head_size=80, ffn_size=8192, untied=True,
        dropout=0.05, dropout_attention=0.05,
    ),
}  # fmt: skip


def laptop(shape: Shape, seq_len: int) -> dict[str, Any]:
    memory = {"mem_len": seq_len, "same_length": False, "clamp_len": 0}
    words = {"cutoffs": (), "ratio": 1}
    return shape.fields() | {"head_size": shape.head_size} | memory | words


_training = PaperDefaults(
    lr=2.5e-4, optimizer="adam", grad_clip=0.25, schedule="cosine", steps=200_000, batch_size=60,
    seq_len=150,
)  # fmt: skip

FAMILY = Family(
    name="transformer-xl",
    model=TransformerXL,
    config=TransformerXLConfig,
    paper="Dai et al., Transformer-XL: Attentive Language Models beyond a Fixed-Length Context",
    year=2019,
    sizes=SIZES,
    objective="recurrent",
    other_objectives=("causal",),
    training={
        "": _training,
        "transformer-xl-wt103-large": _training.replace(
            warmup=16_000, steps=4_000_000, batch_size=128, seq_len=384
        ),
        "transformer-xl-enwik8-base": _training.replace(steps=400_000, batch_size=22, seq_len=512),
        "transformer-xl-enwik8-large": _training.replace(
            warmup=4000, steps=400_000, batch_size=64, seq_len=768
        ),
        "transformer-xl-text8-large": _training.replace(
            warmup=4000, steps=400_000, batch_size=64, seq_len=768
        ),
        "transformer-xl-lm1b-base": _training.replace(
            warmup=20_000, steps=500_000, batch_size=224, seq_len=32
        ),
        "transformer-xl-lm1b-large": _training.replace(
            warmup=30_000, steps=1_200_000, batch_size=512, seq_len=32
        ),
    },
    finetuning={
        "": PaperDefaults(
            lr=1e-4, weight_decay=0.01, warmup=0.002, batch_size=32, seq_len=256, epochs=3
        ),
    },
    tensor_plan={**CORE_PLAN, **RELATIVE_PLAN},  # the adaptive tables stay whole
    laptop=laptop,
)
