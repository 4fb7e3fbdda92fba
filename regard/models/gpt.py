"""GPT-1 (Radford et al. 2018), GPT-2 (Radford et al. 2019), GPT-3 (Brown et al. 2020).

GPT-1 is post-norm and has no final norm. GPT-2 is pre-norm with a final norm, and initializes the
residual outputs with smaller values. GPT-3 is GPT-2 in which every second layer sees only a band of
the past. The width of the band is not published: the default of `band`, and the choice that the
first layer is dense, are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import NORM_PLACES, Block, FeedForward
from regard.attention.dropout import Dropout
from regard.attention.kernels import working_dtype
from regard.attention.pattern import Ordered, Pattern
from regard.attention.position import View
from regard.attention.window import Window
from regard.core.errors import InputError
from regard.data.input_formats import InputFormat, PassageFormat, parts
from regard.models.base import Config, Headed, as_booleans, check_length, check_tokens, normal
from regard.models.family import Family, PaperDefaults
from regard.models.output import Heads, LastRowHead, Output, TokenHead
from regard.models.state import State, caches, causal, positions, recall


@dataclass(frozen=True)
class GPTConfig(Config):
    vocab_size: int = 50257
    context: int = 1024
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn_size: int | None = None  # 4 · width unless given
    norm: str = "pre"  # "post": GPT-1
    band: int | None = None  # GPT-3: the rows that every second layer sees, the row itself included
    activation: str = "gelu_tanh"
    dropout: float = 0.1
    dropout_attention: float = 0.1
    dropout_embedding: float = 0.1
    norm_eps: float = 1e-5
    init_std: float = 0.02
    dropout_head: float = 0.1  # before a classifier


class GPT(Headed):
    """A language model with the requested heads; by default it has no heads."""

    causal = True
    accepts = frozenset({"state", "prefix"})

    def __init__(self, config: GPTConfig, heads: Heads | None = None) -> None:
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.width)
        self.positions = nn.Embedding(c.context, c.width)
        self.dropout = Dropout(c.dropout_embedding)
        self.blocks = nn.ModuleList(self.block(c) for _ in range(c.layers))
        self.norm: nn.Module = (
            nn.LayerNorm(c.width, c.norm_eps) if c.norm == "pre" else nn.Identity()
        )
        self.output = Output(self.tokens.weight)
        self.finish = output_rows
        self.add_heads(heads or {})

    @staticmethod
    def block(c: GPTConfig) -> Block:
        residual = NORM_PLACES[c.norm]

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(c.width, c.norm_eps)

        attention = Attention(c.width, c.heads, dropout=c.dropout_attention)
        feed_forward = FeedForward(c.width, c.ffn_size or 4 * c.width, c.activation)
        return Block(
            residual(attention, norm(), c.dropout), residual(feed_forward, norm(), c.dropout)
        )

    def head(self, name: str, classes: int) -> nn.Module:
        """Builds a head. Heads of whole texts read the last row; a bias exists where the published
        classes have one."""
        c = self.config
        if name in ("tag", "answer"):
            return TokenHead(c.width, classes, c.dropout_head if name == "tag" else 0.0)
        return LastRowHead(c.width, classes, c.dropout_head, bias=name == "choose")

    def initialize(self) -> Self:
        """Initializes with N(0, 0.02); with pre-norm, the outputs onto the residual path are
        divided by √(2 · layers)."""
        c = self.config
        normal(self, c.init_std)
        if c.norm == "pre":
            std = c.init_std / (2 * c.layers) ** 0.5
            for part in self.modules():
                if isinstance(part, Attention):
                    nn.init.normal_(part.out.weight, std=std)
                elif isinstance(part, FeedForward):
                    nn.init.normal_(part.narrow.weight, std=std)
        return self

    @property
    def decoding(self) -> str:
        return "kv_cache"

    def grow_vocabulary(self, vocab_size: int) -> None:
        def larger(old: Tensor) -> nn.Parameter:
            new = old.new_empty(vocab_size - old.size(0), old.size(1))
            rows = [old.detach(), new.normal_(std=self.config.init_std)]
            return nn.Parameter(torch.cat(rows), old.requires_grad)

        old, output = self.tokens.weight, getattr(self, "output", None)
        self.tokens.weight, self.tokens.num_embeddings = larger(old), vocab_size
        if output is not None:
            output.weight = self.tokens.weight if output.weight is old else larger(output.weight)
        if hasattr(self.tokens, "spelling"):  # the extension "characters"
            self.tokens.spelling.grow(vocab_size)  # type: ignore[operator, union-attr]
        self.config = self.config.replace(vocab_size=vocab_size)

    def start(self, batch: int, capacity: int) -> State:
        c = self.config
        check_length(capacity, c.context)
        return State([*caches(self.blocks, batch, capacity), *self.output.caches(batch, capacity)])

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: State | None = None,
        prefix: Tensor | None = None,
    ) -> Tensor:
        """Maps input_ids [B, T] to hidden states [B, T, width]; `attention_mask` [B, T] is False at
        padding.

        The first `prefix` [B] tokens that are not padding see each other (Raffel et al. 2019,
        3.2.1). The tokens of later calls need no prefix: they see everything before them anyway.
        """
        c = self.config
        check_tokens(input_ids, c.vocab_size)
        attention_mask = as_booleans(attention_mask, input_ids)
        marks, past, memories = recall(state, attention_mask, input_ids, c.layers)
        check_length(past + input_ids.size(1), c.context)
        at = positions(marks, past, input_ids.size(1), input_ids.device)
        x = self.embed(input_ids, at)
        views = self.views(x, at, marks, past, prefix)
        for i, block in enumerate(self.blocks):
            x = block(x, views[i % len(views)], memories[i])
        return self.finish(self, self.norm(x), input_ids, attention_mask, state)

    def embed(self, input_ids: Tensor, at: Tensor) -> Tensor:
        """Returns the input of the first layer for tokens at the positions `at` [B|1, T]."""
        y: Tensor = self.dropout(self.tokens(input_ids) + self.positions(at))
        return y

    def views(
        self, x: Tensor, at: Tensor, attention_mask: Tensor | None, past: int, prefix: Tensor | None
    ) -> list[View]:
        """Returns what the layers see, in turn: all rows before them and, in GPT-3, a band."""
        band = self.config.band
        if band is not None and prefix is not None:
            raise InputError(
                f"every second layer of this GPT sees a band of {band} rows, and a "
                "band cannot have a prefix; choose a GPT without 'band'"
            )
        dense = View(seen_before(x, attention_mask, past, prefix))
        if band is None:
            return [dense]
        return [dense, View(banded(band, attention_mask, past, x, working_dtype(x)))]


def output_rows(
    model: GPT,
    hidden: Tensor,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    state: State | None,
) -> Tensor:
    """Returns the hidden states with everything that the model's output needs."""
    return model.output.rows(hidden, input_ids, attention_mask, state)


def seen_before(
    x: Tensor, attention_mask: Tensor | None, past: int, prefix: Tensor | None
) -> Pattern:
    """Returns a causal pattern; with a `prefix`, all its tokens have order 0 and see each other."""
    if prefix is None:
        return causal(attention_mask, past, working_dtype(x))
    place = positions(attention_mask, 0, past + x.size(1), x.device)
    order = (place - prefix[:, None] + 1).clamp_min(0)
    keys = order if attention_mask is None else torch.where(attention_mask, order, Ordered.HIDDEN)
    return Ordered(order[:, past:], keys, working_dtype(x))


def banded(
    band: int, attention_mask: Tensor | None, past: int, x: Tensor, dtype: torch.dtype
) -> Pattern:
    """Returns a pattern of the last `band` rows, the row itself included: a Window if all rows are
    in this call, a comparison of orders with a cache."""
    if past == 0:
        return Window(band - 1, 0, x.size(1), dtype, x.device, attention_mask)
    order = positions(attention_mask, 0, past + x.size(1), x.device)
    keys = order if attention_mask is None else torch.where(attention_mask, order, Ordered.HIDDEN)
    rows = order[:, past:]
    return Ordered(rows, keys, dtype, floor=rows - band + 1)


def gpt3(layers: int, width: int, heads: int) -> GPTConfig:
    return GPTConfig(context=2048, layers=layers, width=width, heads=heads, band=128, dropout=0.0,
                     dropout_attention=0.0, dropout_embedding=0.0)  # fmt: skip


SIZES = {
    "gpt1": GPTConfig(vocab_size=40478, context=512, norm="post"),
    "gpt2": GPTConfig(),
    "gpt2-medium": GPTConfig(width=1024, layers=24, heads=16),
    "gpt2-large": GPTConfig(width=1280, layers=36, heads=20),
    "gpt2-xl": GPTConfig(width=1600, layers=48, heads=25),
    "gpt3-small": gpt3(12, 768, 12),
    "gpt3-medium": gpt3(24, 1024, 16),
    "gpt3-large": gpt3(24, 1536, 16),
    "gpt3-xl": gpt3(24, 2048, 16),  # printed with 24 heads of 128, which do not make 2048
    "gpt3-2.7b": gpt3(32, 2560, 32),
    "gpt3-6.7b": gpt3(32, 4096, 32),
    "gpt3-13b": gpt3(40, 5120, 40),  # printed 5140; 40 heads of 128 make 5120
    "gpt3-175b": gpt3(96, 12288, 96),
}

_gpt3 = PaperDefaults(
    lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, schedule="cosine", warmup=0.00125,
    min_lr_ratio=0.1, until=260 / 300, steps=600_000, batch_size=256, seq_len=2048,
    differs="the batch of the paper grows during the first 4 to 12 billion tokens",
)  # fmt: skip

FAMILY = Family(
    name="gpt",
    model=GPT,
    config=GPTConfig,
    paper="Radford et al., Improving Language Understanding by Generative Pre-Training",
    year=2018,
    later=(
        ("gpt2", "Radford et al., Language Models are Unsupervised Multitask Learners", 2019),
        ("gpt3", "Brown et al., Language Models are Few-Shot Learners", 2020),
    ),
    sizes=SIZES,
    objective="causal",
    other_objectives=("prefix",),
    training={
        "": _gpt3.replace(
            seq_len=1024, batch_size=512, until=None,
            differs="GPT-2's settings are not published; these are GPT-3's, with GPT-2's batch",
        ),
        "gpt1": PaperDefaults(
            lr=2.5e-4, weight_decay=0.01, schedule="cosine", warmup=2000, batch_size=64,
            seq_len=512, differs="grad_clip is that of its fine-tuning",
        ),
        "gpt3": _gpt3,
        "gpt3-medium": _gpt3.replace(lr=3e-4),
        "gpt3-large": _gpt3.replace(lr=2.5e-4),
        "gpt3-xl": _gpt3.replace(lr=2e-4, batch_size=512, steps=300_000),
        "gpt3-2.7b": _gpt3.replace(lr=1.6e-4, batch_size=512, steps=300_000),
        "gpt3-6.7b": _gpt3.replace(lr=1.2e-4, batch_size=1024, steps=150_000),
        "gpt3-13b": _gpt3.replace(lr=1e-4, batch_size=1024, steps=150_000),
        "gpt3-175b": _gpt3.replace(lr=0.6e-4, batch_size=1600, steps=94_000),
    },
    finetuning={
        "": PaperDefaults(
            lr=6.25e-5, weight_decay=0.01, schedule="gpt1", warmup=0.002, batch_size=32,
            seq_len=512, epochs=3,
        ),
    },
    # start, delimiter, extract: Radford et al. 2018, 3.3
    input_format=InputFormat(parts("start a cls"), parts("start a sep b cls"), segments=False),
    # The question comes first, since a passage token sees only the tokens before it.
    passage_format=PassageFormat(
        ("start", "question", "sep", "passage", "cls"), (0,) * 5, length=512
    ),
    task_tokens=("start", "sep", "cls"),
    auxiliary_loss=0.5,  # Radford et al. 2018, 4.1
    lora_targets=("project",),  # query, key and value are published as one matrix
)  # fmt: skip
