"""An encoder at rest: it reads the texts of a batch one after the other, without their padding.

`packed` returns a model that computes the same as BERT, RoBERTa or Longformer, for inference on a
CPU: linear layers see only real tokens, attention goes text by text, and weights are laid out once.
Where it cannot, it returns the model itself. Both are called alike, so a caller decides once.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C import _len_torch_function_stack as len_torch_function_stack

from regard.attention.attention import Attention, Projection
from regard.attention.block import ACTIVATIONS, Block, FeedForward, PostNorm
from regard.attention.linear import Linear
from regard.attention.native.encode import (
    FullLayer,
    HalfLayer,
    Layer,
    Norm,
    Rows,
    SmallLayer,
    Sums,
    Texts,
    attend_texts,
    attention_form,
    rows_pass,
    usable,
)
from regard.attention.position import Plain
from regard.attention.recorder import is_unseen
from regard.models.base import Model, as_booleans, check_length, check_tokens
from regard.models.bert import Bert, Embeddings
from regard.models.extensions.small import SmallEmbedding, SmallLinear, SmallProjection
from regard.models.longformer import LongAttention, Longformer, places
from regard.models.roberta import Roberta

FAMILIES = (Bert, Roberta, Longformer)
NAMES = {function: name for name, function in ACTIVATIONS.items()}
NEAR = 256  # rows whose wide layer stays near the processor
GRAIN = 32  # rows are filled up to a multiple: oneDNN prepares itself for every new number of rows


class LongLayers:
    """The projections of a Longformer's global rows.

    There are few of these rows, so the keys and values of all others are never computed: q · (W x +
    b) = (Wᵀ q) · x + q · b, and Σ p (W x + b) = W (Σ p x) + b.
    """

    def __init__(self, wide: Attention) -> None:
        part: Any = wide.project
        self.heads, self.size, self.scale = part.heads, part.size, wide.scale
        self.bias = part.bias.detach().float()
        small = isinstance(part, SmallProjection)
        self.weight = (part.matrix.whole() if small else part.weight.detach()).float()

    def __call__(self, x: Tensor, texts: Texts, y: Tensor) -> None:
        """Replaces the attention's result y [N, inner] at the global rows."""
        edges, far, far_edges = (t.tolist() for t in texts if t is not None)
        q_w, k_w, v_w = self.weight.view(3, self.heads, self.size, -1)
        q_b, k_b, v_b = self.bias.view(3, self.heads, 1, self.size)
        for t in range(len(edges) - 1):
            rows = far[far_edges[t] : far_edges[t + 1]]
            if not rows:
                continue
            text = x[edges[t] : edges[t + 1]]
            q = (text[rows] @ q_w.mT + q_b) * self.scale  # [heads, G, size]
            scores = (q @ k_w) @ text.T + (q * k_b).sum(-1, keepdim=True)
            mixed = scores.softmax(-1) @ text  # [heads, G, width]
            out = mixed @ v_w.mT + v_b
            y[edges[t] + torch.tensor(rows)] = out.transpose(0, 1).flatten(1).to(y.dtype)


class PackedBlock:
    """The layers of one block, laid out for inference."""

    def __init__(self, block: Any, precision: str, window: int) -> None:
        attention, network = block.attention.layer, block.feed_forward.layer
        self.wide = None
        if isinstance(attention, LongAttention):
            self.wide = LongLayers(attention.wide)
            attention = attention.local
        self.window, self.scale = window, attention.scale
        self.heads, self.size = attention.project.heads, attention.project.size
        self.project, self.out = (
            layer(attention.project, precision),
            layer(attention.out, precision),
        )
        self.up, self.down = layer(network.wide, precision), layer(network.narrow, precision)
        self.activation = NAMES[network.activation]
        self.form = attention_form()
        self.norms = [norm_of(part.norm) for part in (block.attention, block.feed_forward)]

    def __call__(self, x: Rows, texts: Texts) -> Rows:
        form = self.project.form
        y = self.attended(x, texts)
        rows = Rows(half=y) if y.dtype == torch.bfloat16 else Rows(full=y)
        if form == "small":
            rows = rows_pass(Sums(rows.full, rows.half), "small")
        x = self.added(self.out(rows), x, self.norms[0])
        assert x.full is not None
        result = Rows.empty(x.full.size(0), x.full.size(1), form, also_full=True)
        for start in range(0, x.full.size(0), NEAR):
            part, room = (each.part(start, start + NEAR) for each in (x, result))
            sums = self.down(self.up.activated(part, self.activation))
            rows_pass(sums, room, residual=part.full, norm=self.norms[1])
        return result

    def attended(self, x: Rows, texts: Texts) -> Tensor:
        sums = self.project(x)
        if sums.step is not None:
            rows = rows_pass(sums, self.form)
            sums = Sums(rows.full, rows.half)
        qkv = sums.full if sums.half is None else sums.half
        assert qkv is not None and x.full is not None
        y = attend_texts(qkv, texts, self.heads, self.size, self.scale, self.window)
        if self.wide is not None and texts.far is not None:
            self.wide(x.full, texts, y)
        return y

    def added(self, sums: Sums, x: Rows, norm: Norm) -> Rows:
        return rows_pass(sums, self.project.form, residual=x.full, norm=norm, also_full=True)


def layer(part: Any, precision: str) -> Layer:
    if isinstance(part, SmallLinear | SmallProjection):
        return SmallLayer(part.matrix.weight, part.matrix.scale, part.bias)
    kind = HalfLayer if precision == "bf16" else FullLayer
    return kind(part.weight, part.bias)


def norm_of(part: Any) -> Norm:
    return Norm(part.weight.detach(), part.bias.detach(), part.eps)


class PackedEncoder(nn.Module):
    """Stands for a model: its `forward` is computed here, and everything else is the model's."""

    def __init__(self, model: Any, laid_out: list[PackedBlock]) -> None:
        super().__init__()
        self.model, self.laid_out = model, laid_out

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)

    @torch.no_grad()
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        **more: Any,
    ) -> Tensor:
        """Maps input_ids [B, T] to hidden states [B, T, width], which are 0 at padding."""
        global_tokens = more.pop("global_tokens", None)
        if more or not unwatched(self.model):  # knowledge, an order: the model itself can do it
            more |= {} if global_tokens is None else {"global_tokens": global_tokens}
            y: Tensor = self.model(input_ids, attention_mask, segments, **more)
            return y
        c = self.model.config
        check_tokens(input_ids, c.vocab_size)
        check_length(input_ids.size(1), c.context)
        mask = as_booleans(attention_mask, input_ids)
        mask = torch.ones_like(input_ids, dtype=torch.bool) if mask is None else mask
        with torch.autocast("cpu", enabled=False):
            real = mask.flatten().nonzero()[:, 0]
            texts = self.texts(mask, global_tokens)
            x = self.embedded(input_ids, mask, segments, real)
            for block in self.laid_out:
                x = block(x, texts)
            assert x.full is not None
            hidden = x.full.new_zeros(mask.numel(), x.full.size(1))
            hidden[real] = x.full[: real.numel()]
        return hidden.view(*mask.shape, -1)

    def texts(self, mask: Tensor, global_tokens: Tensor | None) -> Texts:
        edges = nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))
        rows = None if global_tokens is None else places(global_tokens, mask)
        if rows is None:
            return Texts(edges)
        rank = mask.long().cumsum(1) - 1  # the number of a row within its text
        inside = (rows >= 0) & mask.gather(1, rows.clamp_min(0))
        far = rank.gather(1, rows.clamp_min(0))[inside]
        return Texts(edges, far, nn.functional.pad(inside.sum(1).cumsum(0), (1, 0)))

    def embedded(
        self, input_ids: Tensor, mask: Tensor, segments: Tensor | None, real: Tensor
    ) -> Rows:
        table = self.model.embeddings
        at = (mask.long().cumsum(1) - 1).flatten()[real]
        x = table.tokens(input_ids.flatten()[real]) + table.positions(at + table.first)
        x += (
            table.segments.weight[0]
            if segments is None
            else table.segments(segments.flatten()[real])
        )
        room = -(-real.numel() // GRAIN) * GRAIN
        x = nn.functional.pad(x.float(), (0, 0, 0, room - real.numel()))
        norm = norm_of(table.norm)
        return rows_pass(Sums(full=x), self.laid_out[0].project.form, norm=norm, also_full=True)


# -- which models


Version = tuple[tuple[int, int], ...]
# The layers of each model by precision, with the version of the weights they were laid out from.
CACHE: WeakKeyDictionary[Any, dict[str, tuple[Version, list[PackedBlock]]]] = WeakKeyDictionary()


def packed(model: Any, precision: str = "fp32") -> Any:
    """Returns a model that does the same at rest and faster, or the model itself. Its weights are
    laid out once, and again after one of them has changed; for a model in training, whose weights
    change all the time, nothing is kept."""
    if precision not in ("fp32", "bf16") or not fits(model):
        return model
    known = {} if model.training else CACHE.setdefault(model, {})
    version = version_of(model)
    if precision not in known or known[precision][0] != version:
        windows = getattr(model.config, "windows", (-2,) * len(model.blocks))  # -2: all rows
        with torch.no_grad():
            known[precision] = (
                version,
                [
                    PackedBlock(block, precision, window // 2)
                    for block, window in zip(model.blocks, windows, strict=True)
                ],
            )
    return PackedEncoder(model, known[precision][1])


def version_of(model: nn.Module) -> Version:
    """Returns what differs after a weight was changed in place or replaced."""
    tensors = (*model.parameters(), *model.buffers())
    return tuple((t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors)


def unwatched(model: nn.Module) -> bool:
    """Returns whether nobody records the attention of this model, has put hooks on its layers or
    looks at torch's functions."""
    return (
        len_torch_function_stack() == 0
        and not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
        and (all(is_unseen(part) for part in model.modules() if isinstance(part, Attention)))
    )


def fits(model: Any) -> bool:
    """Returns whether this is a plain encoder, in fp32 or with int8 weights, on a CPU."""
    if not (isinstance(model, Model) and type(model) in FAMILIES and usable()):
        return False
    table, blocks = model.embeddings, list(model.blocks)  # type: ignore[arg-type]
    plain = type(table) is Embeddings and type(table.tokens) in (nn.Embedding, SmallEmbedding)
    norms: list[Any] = [part for part in model.modules() if isinstance(part, nn.LayerNorm)]
    floats = all(
        p.dtype == torch.float32 and p.is_cpu and type(p) is nn.Parameter
        for p in model.parameters()
    )
    return (
        plain
        and floats
        and len(blocks) > 0
        and all(norm.bias is not None and norm.weight is not None for norm in norms)
        and all(fits_block(block) for block in blocks)
        and len({layer_kind(part) for block in blocks for part in linears(block)}) == 1
    )


def fits_block(block: Any) -> bool:
    if type(block) is not Block or {type(block.attention), type(block.feed_forward)} != {PostNorm}:
        return False
    attention, network = block.attention.layer, block.feed_forward.layer
    if type(attention) is LongAttention:
        if attention.wide.project.bias is None:
            return False
        attention = attention.local
    return (
        type(attention) is Attention
        and type(attention.score) is Plain
        and attention.project.kv_heads == attention.project.heads
        and type(network) is FeedForward
        and NAMES.get(network.activation) in ("relu", "gelu", "gelu_tanh")
        and all(layer_kind(part) for part in linears(block))
    )


def linears(block: Any) -> list[Any]:
    attention, network = block.attention.layer, block.feed_forward.layer
    local = attention.local if isinstance(attention, LongAttention) else attention
    return [local.project, local.out, network.wide, network.narrow]


def layer_kind(part: Any) -> str:
    """Returns "float", "int8", or "" for a layer of another kind."""
    if isinstance(part, SmallLinear | SmallProjection):
        good = part.matrix.kind == "dynamic" and SmallLayer.fits(part.in_features)
        return "int8" if good else ""
    return "float" if type(part) in (Linear, nn.Linear, Projection) else ""
