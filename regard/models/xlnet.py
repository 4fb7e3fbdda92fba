"""XLNet (Yang et al. 2019): predicts words in a sampled order while every word keeps its position.

The two streams are one pass: the rows are [content ; query], and only content rows can be read. The
order of a query row is one less than the order of the word that it predicts, so it sees everything
before that word and never the word itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import Block, FeedForward, PostNorm
from regard.attention.dropout import Dropout
from regard.attention.kernels import working_dtype
from regard.attention.memory import HERE, Memory, Segment
from regard.attention.pattern import Full, Ordered, Pattern
from regard.attention.position import Distances, View, sinusoids
from regard.core.errors import InputError
from regard.data.input_formats import InputFormat, PassageFormat, parts
from regard.models.base import Config, Encoder, as_booleans, check_tokens, normal
from regard.models.extensions import extend
from regard.models.family import CORE_PLAN, RELATIVE_PLAN, WORDS_PLAN, Family, PaperDefaults, Shape
from regard.models.output import Heads, Output, SpanHead, SummaryHead, TokenHead
from regard.models.recurrent import (
    ORDERS,
    ContentMemory,
    MemoryLimits,
    OtherRowsMemory,
    RelativeSegments,
    asking,
)
from regard.models.state import NOTHING, KnowledgeView, State, joined_marks


@dataclass(frozen=True)
class XLNetConfig(Config):
    vocab_size: int = 32000
    width: int = 768
    layers: int = 12
    heads: int = 12
    head_size: int = 64
    ffn_size: int = 3072
    activation: str = "gelu"
    mem_len: int | None = None  # the rows that every layer remembers; None: all
    reuse_len: int | None = None  # the rows of a segment that the next may remember; None: all
    clamp_len: int = 0  # larger distances count as this one; 0: no limit
    two_directions: bool = False  # the second half of a batch reads its positions backwards
    left_to_right: bool = False
    untied: bool = True
    dropout: float = 0.1
    dropout_head: float = 0.1
    norm_eps: float = 1e-12
    init_std: float = 0.02
    pad_id: int = 5


class XLNet(Encoder):
    accepts = frozenset({"segments", "order", "targets", "state", "known"})
    remembers = "rows"
    fills = "queries"
    summary_row = "last"

    def __init__(self, config: XLNetConfig, heads: Heads | None = None) -> None:
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.width)
        self.query = nn.Parameter(torch.zeros(c.width))  # the first hidden state of a query row
        self.dropout = Dropout(c.dropout)
        self.directions = (1, -1) if c.two_directions else (1,)
        self.limits = MemoryLimits.of(c)
        self.unordered = ORDERS[c.left_to_right]
        shared = None if c.untied else self.biases()
        self.blocks = nn.ModuleList(self.block(shared or self.biases()) for _ in range(c.layers))
        heads = {"masked": 0} if heads is None else heads
        if "masked" in heads:
            self.output = Output(self.tokens.weight, bias="learned")
        self.add_heads(heads)

    def biases(self) -> tuple[nn.Parameter, ...]:
        """Returns u, v and s: the content, distance and segment biases of all queries."""
        c = self.config
        return tuple(nn.Parameter(torch.zeros(c.heads, c.head_size)) for _ in range(3))

    def block(self, biases: tuple[nn.Parameter, ...]) -> Block:
        c = self.config
        score = RelativeSegments(c.width, *biases)
        attention = Attention(
            c.width, c.heads, size=c.head_size, bias=False, dropout=c.dropout, score=score
        )
        feed_forward = FeedForward(c.width, c.ffn_size, c.activation, dropout=c.dropout)
        return Block(
            PostNorm(attention, nn.LayerNorm(c.width, c.norm_eps), c.dropout),
            PostNorm(feed_forward, nn.LayerNorm(c.width, c.norm_eps), c.dropout),
        )

    def head(self, name: str, classes: int) -> nn.Module:
        c = self.config
        if name in ("tag", "answer"):
            return TokenHead(c.width, classes)
        if name == "span":
            return SpanHead(c.width, c.norm_eps, c.dropout)
        return SummaryHead(c.width, classes, "last", after=c.dropout_head)

    def initialize(self) -> Self:
        normal(self, self.config.init_std)
        for name, parameter in self.named_parameters():
            if name.endswith((".u", ".v", ".s", ".segment")) or name == "query":
                nn.init.normal_(parameter, std=self.config.init_std)
        return self

    @property
    def decoding(self) -> str:
        return "queries" if hasattr(self, "output") else ""

    def unlimited(self) -> Self:
        """Returns the same weights without training's limits: segments and two directions."""
        config = self.config.replace(mem_len=None, reuse_len=None, two_directions=False)
        with torch.device("meta"):
            twin = type(self)(config, {"masked": 0})
            for name, options in self.extensions.items():
                extend(twin, name, options)
        twin.load_state_dict(self.state_dict(), strict=False, assign=True)
        return twin.eval()

    def read_forwards(self) -> None:
        """Makes a model that read half of the batch backwards read everything forwards."""
        self.config = self.config.replace(two_directions=False)
        self.directions = (1,)

    @contextmanager
    def one_direction(self) -> Iterator[None]:
        directions, self.directions = self.directions, (1,)
        try:
            yield
        finally:
            self.directions = directions

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        order: Tensor | None = None,
        targets: Tensor | None = None,
        state: State | None = None,
        known: KnowledgeView = NOTHING,
    ) -> Tensor:
        """Maps input_ids [B, T] to the hidden states of the content rows or, with `targets` [B, R],
        of the query rows.

        `order` [B, T] is each word's rank in the factorization, -1 for words that all words may
        see; a word sees the words whose rank is not above its own. Without an order every word sees
        every other word.
        """
        check_tokens(input_ids, self.config.vocab_size)
        attention_mask = as_booleans(attention_mask, input_ids)
        if input_ids.size(0) % len(self.directions):
            raise InputError(
                f"the batch has {input_ids.size(0)} texts; the second half reads backwards, so "
                "give an even number"
            )
        rows = input_ids.size(1)
        x = self.tokens(input_ids)
        if targets is not None:
            x = torch.cat([x, self.query.expand(*targets.shape, -1).to(x.dtype)], 1)
        x = self.dropout(x)
        pasts = state.hidden if state is not None and state.hidden else []
        past = pasts[0].size(1) if pasts else 0
        known.only_text(past, targets)
        attention_mask = joined_marks(
            None if state is None else state.attention_mask, attention_mask, past, input_ids
        )
        view = self.view(x, past, rows, attention_mask, segments, order, targets, known)
        inputs = []
        for i, block in enumerate(self.blocks):
            inputs.append(x[:, :rows])
            memory: Memory = ContentMemory(rows, Segment(pasts[i]) if pasts else HERE)
            if self.training and targets is not None and i + 1 == len(self.blocks):
                x, memory = x[:, rows:], OtherRowsMemory(torch.cat([*pasts[i:], inputs[i]], 1))
                view = asking(view, rows)  # the content rows' output would not be used
            x = block(x, view, memory)
        if state is not None:
            keep = min(self.limits.reuse_len, rows)
            marks = None if attention_mask is None else attention_mask[:, : past + keep]
            self.limits.remember(state, [h[:, :keep] for h in inputs], marks)
        y: Tensor = self.dropout(x if targets is None else x[:, -targets.size(1) :])
        return y

    def view(
        self,
        x: Tensor,
        past: int,
        rows: int,
        attention_mask: Tensor | None,
        segments: Tensor | None,
        order: Tensor | None,
        targets: Tensor | None,
        known: KnowledgeView = NOTHING,
    ) -> View:
        place = torch.arange(rows, device=x.device)[None]
        order = self.unordered(place) if order is None else order
        pattern: Pattern = Full()
        if order is not None or attention_mask is not None or targets is not None:
            rank = torch.zeros_like(place) if order is None else order
            own = rank if targets is None else torch.cat([rank, at(rank, targets) - 1], 1)
            keys = torch.cat([rank.new_full((rank.size(0), past), -1), rank], 1)
            keys = (
                keys
                if attention_mask is None
                else torch.where(attention_mask, keys, Ordered.HIDDEN)
            )
            pattern = Ordered(own, keys, working_dtype(x))
        index = None
        if targets is not None:  # the column of the distance past + target - key
            own = rows - 1 - targets[:, None, :, None]
            index = torch.arange(past + rows, device=x.device) + own
        differs = None
        if segments is not None:
            keys = torch.cat([segments.new_zeros(segments.size(0), past), segments], 1)
            own = segments if targets is None else torch.cat([segments, at(segments, targets)], 1)
            differs = (own[:, None, :, None] != keys[:, None, None, :]).to(working_dtype(x))
        table = self.table(x, past, rows)
        distances = Distances(table, rows, past + rows, index, differs)
        return known.view(pattern, working_dtype(x), distances=distances)

    def table(self, x: Tensor, past: int, rows: int) -> Tensor:
        """Returns sinusoids of the distances past + rows - 1 … -rows and, for two directions, of
        their negatives."""
        distance = torch.arange(past + rows - 1, -rows - 1, -1, device=x.device)
        distance = distance.clamp(-self.limits.clamp_len, self.limits.clamp_len)
        both = torch.stack([distance * sign for sign in self.directions])
        y: Tensor = self.dropout(sinusoids(both, self.config.width).to(x.dtype))
        return y


def at(values: Tensor, places: Tensor) -> Tensor:
    return values.expand(places.size(0), -1).gather(1, places)


SIZES = {
    "xlnet-base": XLNetConfig(),
    "xlnet-large": XLNetConfig(width=1024, layers=24, heads=16, ffn_size=4096),
}


def laptop(shape: Shape, seq_len: int) -> dict[str, Any]:
    memory = {"mem_len": seq_len * 3 // 4, "reuse_len": seq_len // 2}
    return shape.fields() | {"head_size": shape.head_size} | memory


def objective_fields(objective: str, options: Any, seq_len: int) -> dict[str, Any]:
    """Returns fields that the permuted objective needs: its directions and the memory."""
    if objective != "permuted":
        return {}
    return {
        "two_directions": options.two_directions,
        "reuse_len": seq_len // 2 if options.pairs else None,
        "mem_len": seq_len * 3 // 4,
    }


_finetuning = PaperDefaults(lr=2e-5, eps=1e-6, warmup=0.1, batch_size=32, seq_len=512, epochs=3)

FAMILY = Family(
    name="xlnet",
    model=XLNet,
    config=XLNetConfig,
    paper="Yang et al., XLNet: Generalized Autoregressive Pretraining for Language Understanding",
    year=2019,
    sizes=SIZES,
    objective="permuted",
    other_objectives=("causal", "prefix"),
    training={
        "": PaperDefaults(
            lr=4e-4, eps=1e-6, weight_decay=0.01, schedule="polynomial", warmup=40_000,
            steps=500_000, batch_size=8192, seq_len=512,
            differs="the authors' Adam has no bias correction: optimizer bert-adam",
        ),
    },
    finetuning={
        "": _finetuning,
        "similar": _finetuning.replace(lr=5e-5, seq_len=128),
        "answer": _finetuning.replace(lr=3e-5, batch_size=48, layer_decay=0.75),
    },
    tensor_plan={**CORE_PLAN, **WORDS_PLAN, **RELATIVE_PLAN},
    laptop=laptop,
    objective_fields=objective_fields,
    # padded on the left, so that <cls> is last, as in run_classifier.py of zihangdai/xlnet
    input_format=InputFormat(
        parts("a sep cls:2"), parts("a sep b:1 sep:1 cls:2"), left=True, beyond=4
    ),
    answer_head="span",
    # the passage first and <cls> last, as in run_squad.py of zihangdai/xlnet
    passage_format=PassageFormat(
        ("passage", "sep", "question", "sep", "cls"), (0, 0, 1, 1, 2), 3, length=512, answer=64
    ),
)  # fmt: skip
