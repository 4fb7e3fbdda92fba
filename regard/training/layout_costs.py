"""What a layout of a run over many devices costs: bytes in memory, bytes sent, and seconds a step.

The formulas are those of `Sharded` in parallel.py: FSDP2 over the processes that read different
data, and tensor parallelism by the plan on the family's card. `tests/training/test_layouts.py`
compares them with what four processes allocate and send. A pipeline exists on paper only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from torch import nn
from torch.nn import functional as F

from regard.attention.attention import Attention
from regard.attention.block import KINDS, Block, FeedForward, Gated, PreNorm
from regard.attention.kernels import SHORT
from regard.attention.native import library
from regard.attention.pattern import CAUSAL_BLOCK
from regard.attention.position import Relative, Rotary
from regard.models.output import Output, chunk_rows
from regard.training.hardware import STATE, WIDTH, blocks_of, keys_of, output_numbers, step_flops
from regard.training.tensor_parallel import planned


class Numbers(NamedTuple):
    """How many parameters tensor parallelism splits, and how many every process keeps."""

    split: int = 0
    whole: int = 0

    def each(self, tensor: int) -> float:
        return self.split / tensor + self.whole


@dataclass(frozen=True)
class Layout:
    """How a step is divided: data · tensor · pipeline devices, and `accumulate` micro-batches of
    `micro` samples in each of them."""

    data: int
    tensor: int = 1
    pipeline: int = 1
    micro: int = 1
    accumulate: int = 1
    checkpointing: bool = False

    @property
    def devices(self) -> int:
        return self.data * self.tensor * self.pipeline

    @property
    def samples(self) -> int:
        return self.data * self.micro * self.accumulate


class DeviceMemory(NamedTuple):
    """Bytes in one device."""

    states: float  # its share of weights, gradients and optimizer state
    gathered: float  # weights and gradients that are whole for a while, and rounded weights
    activations: float
    logits: float

    @property
    def total(self) -> float:
        return sum(self)


class Traffic(NamedTuple):
    """Bytes that one device sends in a step, if collectives run in rings."""

    sharding: float  # weights that are gathered, and gradients that are reduced
    tensor: float  # activations that are summed
    pipeline: float  # activations that are handed on

    @property
    def total(self) -> float:
        return sum(self)


def ring(count: int) -> float:
    """Returns the share of a tensor that each of `count` devices sends to gather or to reduce it;
    summing it for all takes both."""
    return (count - 1) / count


def together(numbers: Iterable[Numbers]) -> Numbers:
    whole = Numbers()
    for each in numbers:
        whole = Numbers(whole.split + each.split, whole.whole + each.whole)
    return whole


class Costs:
    """The costs of one model, recipe and precision, for any layout. Build the model on "meta"."""

    def __init__(
        self,
        model: Any,
        tokens: int,  # of a sample
        *,
        optimizer: str = "adamw",
        precision: str = "bf16",
        targets: int | None = None,  # rows of a sample with logits, or of a decoder; None: all
        flash: bool = True,  # whether attention weights are never stored, as on CUDA
    ) -> None:
        self.model, self.tokens, self.flash = model, tokens, flash
        self.rows = tokens if targets is None else targets
        self.exact, self.half = max(4, WIDTH[precision]), WIDTH[precision]
        self.split = split_parameters(model)
        self.of_blocks, self.summed = cache(self.price_blocks), cache(self.price_sums)
        self.copies = 2 + STATE.get(optimizer, 2)  # of every weight, with itself and its gradient

    # -- parameters

    @cached_property
    def blocks(self) -> list[Numbers]:
        return [numbers_of(block, self.split) for block, _, _ in blocks_of(self.model)]

    @cached_property
    def inside(self) -> Numbers:
        """The parameters of all blocks."""
        return together(self.blocks)

    @cached_property
    def root(self) -> Numbers:
        """The parameters outside the blocks."""
        split, whole = numbers_of(self.model, self.split)
        return Numbers(split - self.inside.split, whole - self.inside.whole)

    @cached_property
    def crossing(self) -> Numbers:
        """The projections of cross-attention: queries, and keys and values, are gathered apart."""
        blocks = [block for block, _, decoder in blocks_of(self.model) if decoder]
        return together(numbers_of(block.cross.layer.project, self.split) for block in blocks)

    @cached_property
    def largest(self) -> Numbers:
        return max(self.blocks, key=sum, default=Numbers())

    def rounded(self, layout: Layout) -> float:
        """Returns the bytes of the blocks' weights in half precision, which autocast makes in every
        device: they stay until the backward pass has read them; of blocks that are computed again,
        only those of one block are there at a time."""
        if self.half == self.exact:
            return 0.0
        blocks = self.inside.each(layout.tensor) / layout.pipeline
        return self.half * (self.largest.each(layout.tensor) if layout.checkpointing else blocks)

    def memory(self, layout: Layout) -> DeviceMemory:
        """Returns the bytes of the device that needs the most."""
        t, stages = layout.tensor, layout.pipeline
        blocks = self.inside.each(t) / stages
        root = self.root.each(t)  # of the first or the last stage
        states = (blocks + root) / layout.data * self.copies * self.exact
        whole = 2 * root + 3 * self.largest.each(t) if layout.data > 1 else 0.0
        if layout.data > 1 and layout.accumulate > 1:  # until the last micro-batch
            whole += blocks + root
        stored, most = self.activations(layout)
        flying = min(stages, layout.accumulate) / stages  # micro-batches that are under way at once
        words = self.logits(layout)
        gathered = whole * self.exact + self.rounded(layout)
        return DeviceMemory(states, gathered, stored * flying + most, sum(words))

    # -- activations

    def activations(self, layout: Layout) -> tuple[float, float]:
        """Returns the bytes that the blocks keep of one micro-batch for the backward pass, and what
        one block needs besides when its activations are computed again."""
        blocks, most = self.of_blocks(layout.tensor), 0.0
        stored = self.ends
        if layout.checkpointing:
            stored += sum(inputs for inputs, _ in blocks)
            most = max((here for _, here in blocks), default=0.0)
        else:
            stored += sum(here for _, here in blocks)
        if not self.model.attends:  # an LSTM keeps four gates, a cell and a row
            stored += (
                8 * self.tokens * self.model.config.width * self.exact * len(self.model.layers)
            )
        if layout.tensor > 1 and self.reads_embeddings:
            streams = self.tokens + (self.rows if self.model.kind == "encoder-decoder" else 0)
            stored += streams * self.model.config.width * self.exact
        return layout.micro * stored, layout.micro * most

    @cached_property
    def reads_embeddings(self) -> bool:
        """Whether the first norm reads the split embeddings themselves, because no positions are
        added to them (Llama, T5). The sum that all processes receive then stays in memory."""
        styles = {style for _, style in planned(self.model).values()}
        return "vocabulary" in styles and any(isinstance(m, nn.RMSNorm) for m in self.outside)

    @cached_property
    def outside(self) -> list[nn.Module]:
        """The modules outside the blocks."""
        inside = {id(m) for b in self.model.modules() if isinstance(b, Block) for m in b.modules()}
        return [m for m in self.model.modules() if id(m) not in inside]

    @property
    def fused_norms(self) -> bool:
        return self.flash or library() is not None

    @cached_property
    def ends(self) -> float:
        """The bytes of what norms outside the blocks, and the output, keep of one sample."""
        norms = sum(isinstance(m, nn.LayerNorm | nn.RMSNorm) for m in self.outside)
        norms += sum(isinstance(m, nn.RMSNorm) for m in self.outside) * (not self.fused_norms)
        masks = self.tokens**2 * self.half * (self.model.kind != "decoder")  # of padding
        return norms * self.tokens * self.model.config.width * self.exact + masks

    def price_blocks(self, tensor: int) -> list[tuple[float, float]]:
        """Returns the bytes of each block's input, and all that it keeps, for one sample."""
        sizes = []
        for block, layer, decoder in blocks_of(self.model):
            length = self.rows if decoder else self.tokens
            parts = block.modules()
            here = sum(self.kept(part, block, layer, length, decoder, tensor) for part in parts)
            sizes.append((length * self.model.config.width * self.exact, here))
        return sizes

    def kept(
        self, part: nn.Module, block: Any, layer: int, length: int, decoder: bool, tensor: int
    ) -> float:
        """Returns the bytes that a part of a block keeps of one sample. Attention and network keep
        the input of their norm in full precision, and the input of their matrices."""
        width, exact, half = self.model.config.width, self.exact, self.half
        if isinstance(part, nn.RMSNorm):  # without a fused kernel it keeps its rows twice
            return 0.0 if self.fused_norms else length * width * exact
        if isinstance(part, FeedForward):
            inside = part.wide.out_features / tensor
            copies = 2
            if isinstance(part, Gated):  # a fused kernel does not keep the activated gate
                fused = not self.flash and self.half < self.exact and part.activation in KINDS
                fused = fused and library() is not None
                copies = 3 if fused else 4
            if part.activation is F.relu and not part.dropout.rate:  # it keeps its output alone
                copies -= 1
            copies = copies * half + bool(part.dropout.rate)
            around = exact + half + bool(block.feed_forward.dropout.rate)
            return length * (around * width + copies * inside)
        if isinstance(part, Attention):
            return length * (exact + half + bool(block.attention.dropout.rate)) * width + sum(
                self.inner(part, block, layer, length, decoder, tensor)
            )
        return 0.0

    def inner(
        self, part: Attention, block: Any, layer: int, length: int, decoder: bool, tensor: int
    ) -> Iterator[float]:
        """Yields the bytes of queries, of keys and values, of the output, and of the weights."""
        heads, size, half = part.project.heads / tensor, part.project.size, self.half
        shared = part.project.kv_heads / tensor * size
        cross = decoder and part is block.cross.layer
        source = self.tokens if cross else length
        relative = isinstance(part.score, Relative)
        explicit = not self.flash and (
            bool(part.dropout) or relative or learned_bias(self.model, cross)
            or (half == 2 and source <= SHORT)
        )  # fmt: skip
        passes = 1.0  # how often keys and values are stored
        seen: float = source
        if explicit and self.model.causal and not relative:
            count = -(-length // CAUSAL_BLOCK)
            passes, seen = (count + 1) / 2, min(source, (count + 1) / 2 * CAUSAL_BLOCK)
        turned = isinstance(part.score, Rotary)  # without native code the output is copied, too
        copied = turned * (self.flash or library() is None)
        yield (2 + turned + copied) * length * heads * size * half
        yield (2 * passes + turned) * source * shared * half
        if explicit:
            seen = keys_of(self.model, layer, length, 0, decoder) if relative else seen
            yield length * heads * seen * (half * (1 + 2 * relative) + bool(part.dropout))

    def logits(self, layout: Layout) -> tuple[float, float]:
        """Returns the bytes of one chunk of logits, and of the gradients that the loss keeps."""
        output = getattr(self.model, "output", None)
        if output is None or not hasattr(output, "weight"):
            return 0.0, 0.0
        words, width = output.weight.shape
        rows = layout.micro * self.rows
        chunk = chunk_rows(rows, words) * words / layout.tensor
        gradients = words * width / layout.tensor + rows * width
        return self.exact * 2 * chunk, self.exact * gradients

    # -- what is sent

    def traffic(self, layout: Layout) -> Traffic:
        """Returns the bytes that one device sends in a step."""
        t = layout.tensor
        blocks = self.inside.each(t) / layout.pipeline
        root = self.root.each(t)
        crossing = self.crossing.each(t) / layout.pipeline
        # the root stays gathered for the backward pass
        gathers = layout.accumulate * (2 * (blocks + crossing) + root)
        sharding = ring(layout.data) * self.exact * (gathers + blocks + root)
        summed = self.summed(layout.checkpointing) / layout.pipeline
        summed *= layout.micro * layout.accumulate
        rows = layout.micro * self.tokens * self.model.config.width
        handed = (layout.pipeline > 1) * 2 * rows * self.half * layout.accumulate
        return Traffic(sharding, 2 * ring(t) * summed, float(handed))

    def price_sums(self, checkpointing: bool) -> float:
        """Returns the bytes of activations that are summed for one sample: the output of each split
        pair of matrices, and in the backward pass the gradient of its input."""
        width, total = self.model.config.width, 0.0
        for block, _, decoder in blocks_of(self.model):
            rows = self.rows if decoder else self.tokens
            layers = [m for m in block.modules() if isinstance(m, Attention | FeedForward)]
            last = block.feed_forward
            unread = isinstance(last, PreNorm) and not last.dropout.rate  # its sum
            again = (len(layers) - unread) * checkpointing
            total += rows * width * (self.half * (len(layers) + again) + self.exact * len(layers))
            if decoder:  # keys and values of the source: its gradient
                total += self.tokens * width * self.exact
        styles = {style for part, style in planned(self.model).values()}
        if "vocabulary" in styles:
            read = self.tokens + (self.rows if self.model.kind == "encoder-decoder" else 0)
            total += read * width * self.exact  # the embeddings
            total += self.rows * (width + 3) * self.exact  # the logits
        return total

    def flops(self, samples: int) -> float:
        return samples * self.sample_flops

    @cached_property
    def whole_share(self) -> float:
        """Which share of the FLOPs every process of a tensor group computes by itself."""
        numbers = 0.0
        if not any(isinstance(part, Output) for part, _ in planned(self.model).values()):
            numbers += self.rows * output_numbers(self.model)
        if not self.model.attends:  # the layers of an LSTM
            layers = self.model.layers.parameters()
            numbers += self.tokens * sum(p.numel() for p in layers if p.dim() > 1)
        return 6 * numbers / self.sample_flops

    @cached_property
    def sample_flops(self) -> float:
        return step_flops(self.model, self.tokens, 1, targets=self.rows)


def split_parameters(model: Any) -> set[int]:
    """Returns the ids of the parameters that tensor parallelism splits."""
    return {
        id(parameter)
        for module, style in planned(model).values()
        for name, parameter in module.named_parameters(recurse=False)
        if style != "shared" and not (style == "rowwise" and name == "bias")
    }


def numbers_of(part: nn.Module, split: set[int]) -> Numbers:
    """Returns how many parameters of a part are split. A parameter that is used twice counts
    once."""
    whole = cut = 0
    for parameter in part.parameters():
        if id(parameter) in split:
            cut += parameter.numel()
        else:
            whole += parameter.numel()
    return Numbers(cut, whole)


def learned_bias(model: Any, cross: bool) -> bool:
    """Tells whether a bias that is learned is added to the scores, as in T5."""
    return hasattr(model, "encoder") and hasattr(model.encoder, "distances") and not cross
