"""Records attention: `with record(model) as seen: model(tokens)` shows every head's weights.

A recorder replaces the kernel of each Attention inside the `with` block. Its kernel computes the
output exactly as the model would, and keeps the queries, keys and biases, from which the weights
are computed when they are read. Outside the block there is no cost. In training, the recorded
weights are those before dropout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from torch import Tensor, nn

from regard.attention.attention import Attention, Kernel, unseen
from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Pattern
from regard.core.errors import InputError
from regard.core.text import Bilingual

if TYPE_CHECKING:
    from regard.report import notebook
    from regard.report.drawings import HeatDrawing

MOST_LAYERS, MOST_HEADS, SMALL = 24, 16, 32  # of what a notebook shows


@dataclass(frozen=True)
class AttentionCall:
    """One call of one Attention module."""

    name: str  # the module's name in the model: "blocks.3.attention.layer"
    queries: Tensor
    keys: Tensor
    values: Tensor
    how: AttentionArgs
    pattern: Pattern

    @property
    def weights(self) -> Tensor:
        """The attention weights [B, H, Q, K], computed when they are read."""
        return self.pattern.weights(self.queries, self.keys, self.how)

    @property
    def output(self) -> Tensor:
        """The weights times the values, [B, H, Q, D]: the model's own output, computed again."""
        return (self.weights @ self.values.to(self.weights.dtype)).to(self.values.dtype)

    def __repr__(self) -> str:
        batch, heads, queries, _ = self.queries.shape
        return f"{self.name}: weights [{batch}, {heads}, {queries}, {self.keys.size(-2)}]"


@dataclass
class Recording:
    """All recorded calls, in the order in which they were made."""

    layers: list[AttentionCall] = field(default_factory=list)
    tokens: Sequence[str] = ()  # what the rows are called in pictures; numbers unless given

    def __iter__(self) -> Iterator[AttentionCall]:
        return iter(self.layers)

    def __repr__(self) -> str:
        return "\n".join([f"{len(self)} recorded attentions", *map(repr, self.layers)])

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> AttentionCall:
        return self.layers[index]

    def named(self, part: str) -> list[AttentionCall]:
        """Returns the calls whose module name contains `part`: "cross", "encoder", "wide", …"""
        return [seen for seen in self.layers if part in seen.name]

    def picture(self, layer: int = 0, head: int | None = None) -> HeatDrawing:
        """The weights of one call (counted from 0) and head, or the mean of all heads, for the
        first text of the batch. `.plot()` and `.save("weights.png")` are methods of the picture.
        """
        from regard.report.drawings import HeatDrawing
        from regard.report.heatmap import largest

        call = self.layers[layer]
        heads = call.weights[0].float()
        weights = (heads.mean(0) if head is None else heads[head]).tolist()
        title = f"{call.name} · {'mean of heads' if head is None else f'head {head}'}"
        rows, columns = self.names(*heads.shape[1:])
        return HeatDrawing(title, weights, rows, columns, high=largest(weights))

    def names(self, rows: int, columns: int) -> tuple[list[str], list[str]]:
        """The names of queries and keys; keys before the first query are remembered ones."""
        tokens, past = list(self.tokens), columns - rows
        if len(tokens) != rows or past < 0:
            return [str(i + 1) for i in range(rows)], [str(j + 1) for j in range(columns)]
        return tokens, [*(f"m{i + 1}" for i in range(past)), *tokens]

    def _repr_html_(self) -> str:
        """Every head of every call as a small heat map."""
        from regard.report import notebook

        parts: list[notebook.Part] = []
        if self.tokens:
            parts.append(notebook.Facts([(Bilingual("tokens", "词元"), " ".join(self.tokens))]))
        for call in self.layers[:MOST_LAYERS]:
            weights = call.weights[0].float()
            heads = [self.thumbnail(i, head) for i, head in enumerate(weights[:MOST_HEADS])]
            parts.append(notebook.Matrices(heads, call.name))
        hidden = len(self.layers) - MOST_LAYERS
        if hidden > 0:
            more = Bilingual(f"and {hidden:,} more calls", f"还有 {hidden:,} 次调用")
            parts.append(notebook.Paragraph(more))
        title = Bilingual(f"{len(self):,} recorded attentions", f"记录了 {len(self):,} 次注意力")
        return notebook.rendered(title, *parts)

    def thumbnail(self, number: int, weights: Tensor) -> notebook.Matrix:
        """A head in at most SMALL × SMALL squares, each as strong as the strongest inside."""
        from regard.report import notebook

        rows, columns = self.names(*weights.shape)
        row, column = divmod(int(weights.argmax()), weights.size(1))
        size = min(SMALL, weights.size(0)), min(SMALL, weights.size(1))
        small = nn.functional.adaptive_max_pool2d(weights[None], size)[0].tolist()
        strongest = f"{rows[row]} → {columns[column]}: {float(weights.max()):.4f}"
        name = Bilingual(f"head {number}", f"第 {number} 个头")
        return notebook.Matrix(name, small, [""] * size[0], [""] * size[1], small=True,
                               tip=strongest)  # fmt: skip


class Watched:
    """The kernel of an Attention that somebody looks at. It passes what goes in to the recordings
    of its own thread, then lets the kernel work that was there before."""

    def __init__(self, inner: Kernel) -> None:
        self.inner, self.watchers = inner, 0

    def __call__(
        self, pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs
    ) -> Tensor:
        for recording, names in WATCHING.get():
            if self in names:
                recording.layers.append(call_of(names[self], pattern, q, k, v, how))
        return self.inner(pattern, q, k, v, how)


# The recordings of this thread, each with the names of the attentions it looks at.
WATCHING: ContextVar[tuple[tuple[Recording, dict[Watched, str]], ...]] = ContextVar(
    "watching", default=()
)
LOCK = Lock()  # held while kernels are exchanged


def is_unseen(part: Attention) -> bool:
    """Returns whether nobody in this thread looks at the attention, or changes its kernel."""
    kernel = part.kernel
    if isinstance(kernel, Watched) and not any(kernel in names for _, names in WATCHING.get()):
        kernel = kernel.inner
    return kernel is unseen


@contextmanager
def record(model: nn.Module, tokens: Sequence[str] = ()) -> Iterator[Recording]:
    """Records every attention of the model inside the `with` block, without changing any output.

    `tokens` are the names of the rows in pictures. In a notebook the recording shows every head.

    A recording belongs to its thread: what other threads ask the model meanwhile is not in it.
    """
    attentions = [
        (name, part) for name, part in model.named_modules() if isinstance(part, Attention)
    ]
    if not attentions:
        raise InputError(f"{type(model).__name__} has no attention to record; choose another model")
    names: dict[Watched, str] = {}
    with LOCK:
        for name, part in attentions:
            kernel = part.kernel if isinstance(part.kernel, Watched) else Watched(part.kernel)
            kernel.watchers += 1
            part.kernel, names[kernel] = kernel, name
    mine = Recording(tokens=tokens), names
    WATCHING.set((*WATCHING.get(), mine))
    try:
        yield mine[0]
    finally:
        WATCHING.set(tuple(other for other in WATCHING.get() if other is not mine))
        with LOCK:
            for (_, part), kernel in zip(attentions, names, strict=True):
                kernel.watchers -= 1
                if not kernel.watchers:
                    part.kernel = kernel.inner


def call_of(
    name: str, pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs
) -> AttentionCall:
    """Keeps what goes into a kernel, without gradients."""
    groups = q.size(1) // k.size(1)  # every query head is recorded with the keys that it reads
    queries = q.detach().clone()
    keys, values = (x.detach().repeat_interleave(groups, 1) for x in (k, v))
    bias = None if how.bias is None else how.bias.detach().clone()
    return AttentionCall(name, queries, keys, values, how._replace(bias=bias, rate=0.0), pattern)
