"""Products with matrices of 4 bits: 32 neighboring inputs of an output are a group with a scale and
a low end of its own.

W ≈ scale · n + low with n from 0 to 15; scale and low are bfloat16. So a weight takes 5 bits. Rows
of x are rounded at run time by the same groups to 255 values around 0 (7 bits and a sign). Without
native code, floats are multiplied, and x is rounded in the same way.

A matrix lies in memory as the native code reads it: in blocks of 16 outputs and 32 inputs, one
after the other. A block holds 16 scales, 16 lows, and four lines of 16 × 4 bytes; byte j of output
o in line i holds input 8 i + j in its lower half and 8 i + 4 + j in its upper half.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import wide
from regard.attention.native.int8 import SMALL, NativeMatrix, kernel, prepared

GROUP, LANES, LEVELS = 32, 16, 15
BLOCK = 4 * LANES + LANES * GROUP // 2  # bytes
LARGEST = 127  # of a rounded x
SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)  # of the range of a group
AT_ONCE = 2**22  # weights that are fitted at once


def fitted(weight: Tensor, mean: Tensor | None = None) -> Tensor:
    """Returns the blocks of a matrix [outputs, inputs].

    For each group we try several shares of its range, fit scale and low to the numbers by least
    squares, and take what has the least Σ_j E[x_j²] (w_j - ŵ_j)²; `mean` [inputs] is E[x_j²], and
    1 if it is not known.
    """
    inputs = weight.size(1)
    missing = -inputs % GROUP  # the last weight is repeated, and counts only once
    exact = F.pad(wide(weight.detach()), (0, missing), mode="replicate")
    counts = exact.new_ones(inputs) if mean is None else mean.to(exact)
    counts = F.pad(counts, (0, missing)).view(-1, GROUP)
    counts = torch.where(counts.sum(-1, keepdim=True) > 0, counts, 1.0)
    rows = max(1, AT_ONCE // exact.size(1))
    parts = [fit_groups(part.view(len(part), -1, GROUP), counts) for part in exact.split(rows)]
    numbers, scale, low = (torch.cat(each) for each in zip(*parts, strict=True))
    return packed(numbers, scale, low)


def fit_groups(weight: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the numbers [outputs, groups, 32], and the scale and low of each group."""
    ends = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    middle, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    shares = counts / counts.sum(-1, keepdim=True)
    best = weight.new_full((*weight.shape[:-1], 1), torch.inf)
    result = [torch.zeros_like(weight), half, middle]
    for share in SHARES:
        plain = half * share * 2 / LEVELS, middle - half * share
        finer = least_squares(weight, nearest(weight, *plain), shares, plain)
        for scale, low in (plain, finer) if share == 1.0 else (finer,):
            some = brain(scale), brain(low)
            numbers = nearest(weight, *some)
            missed = torch.addcmul(some[1], numbers, some[0]).sub_(weight).square_()
            error = missed.mul_(shares).sum(-1, keepdim=True)
            better, best = error < best, torch.minimum(error, best)
            pairs = zip((numbers, *some), result, strict=True)
            result = [torch.where(better, new, old) for new, old in pairs]
    return result[0], result[1][..., 0], result[2][..., 0]


def nearest(weight: Tensor, scale: Tensor, low: Tensor) -> Tensor:
    inverse = torch.where(scale > SMALL, 1 / scale, 0.0)
    return ((weight - low) * inverse).round_().clamp_(0, LEVELS)


def least_squares(
    weight: Tensor, numbers: Tensor, shares: Tensor, plain: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Returns the scale and low with which these numbers are nearest to the weights."""
    centers = [(x * shares).sum(-1, keepdim=True) for x in (weight, numbers)]
    apart = numbers - centers[1]
    spread = (apart.square() * shares).sum(-1, keepdim=True)
    scale = (apart * (weight - centers[0]) * shares).sum(-1, keepdim=True) / spread
    usable = (spread > 0) & (scale > 0)
    scale = torch.where(usable, scale, plain[0])
    return scale, torch.where(usable, centers[0] - scale * centers[1], plain[1])


def brain(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).to(x.dtype)


def packed(numbers: Tensor, scale: Tensor, low: Tensor) -> Tensor:
    """Returns blocks [outputs / 16, groups, 320] of bytes; absent outputs are 0."""
    outputs, groups = scale.shape
    missing = -outputs % LANES
    halves = F.pad(numbers.to(torch.uint8), (0, 0, 0, 0, 0, missing))
    halves = halves.view(-1, LANES, groups, 4, 2, 4).permute(0, 2, 3, 1, 5, 4)
    lines = halves[..., 0] | halves[..., 1] << 4  # [tiles, groups, lines, lanes, bytes]
    ends = torch.stack([scale, low]).to(torch.bfloat16)
    ends = F.pad(ends, (0, 0, 0, missing)).view(2, -1, LANES, groups).permute(1, 3, 0, 2)
    heads = ends.contiguous().view(torch.uint8).flatten(2)
    return torch.cat([heads, lines.flatten(2)], -1).contiguous()


def unpacked(blocks: Tensor, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the numbers [outputs, groups, 32] of these blocks as bytes, the scales and the lows
    [outputs, groups] as bfloat16."""
    heads, lines = blocks.split([4 * LANES, BLOCK - 4 * LANES], -1)
    ends = heads.contiguous().view(torch.bfloat16).unflatten(-1, (2, LANES))
    scale, low = (x.transpose(1, 2).flatten(0, 1)[:outputs] for x in ends.unbind(2))
    both = lines.unflatten(-1, (4, LANES, 4))
    halves = torch.stack([both & LEVELS, both >> 4], -1)  # [tiles, groups, lines, lanes, 4, 2]
    numbers = halves.permute(0, 3, 1, 2, 5, 4).flatten(0, 1).flatten(2)
    return numbers[:outputs], scale, low


def as_floats(blocks: Tensor, outputs: int, inputs: int) -> Tensor:
    """Returns the matrix [outputs, inputs] in 32 bits."""
    numbers, scale, low = unpacked(blocks, outputs)
    whole: Tensor = torch.addcmul(low.float()[..., None], numbers.float(), scale.float()[..., None])
    return whole.flatten(1)[:, :inputs]


def ready_blocks(blocks: Tensor, shape: tuple[int, int], bias: Tensor | None) -> NativeMatrix:
    added = None if bias is None else bias.detach().float().contiguous()
    addresses = (blocks.data_ptr(), None if added is None else added.data_ptr())
    return NativeMatrix(shape[1], shape[0], addresses, (blocks, added))


def native_int4(x: Tensor, ready: NativeMatrix) -> Tensor:
    """Multiplies x [..., inputs] with the matrix."""
    rows, y = prepared(x, ready)
    kernel("product_int4")(
        y.data_ptr(), rows.data_ptr(), rows.size(0), rows.stride(0), *ready.addresses,
        ready.inputs, ready.outputs, torch.get_num_threads(),
    )  # fmt: skip
    return y if y.dtype == x.dtype else y.to(x.dtype)


def plain_int4(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Does the same in torch; the weight [outputs, inputs] is in floats."""
    rows = rounded_groups(x).reshape(-1, x.size(-1)).contiguous()
    with torch.autocast(x.device.type, enabled=False):
        y = F.linear(rows, weight.to(x.dtype))
    y = y.view(*x.shape[:-1], -1) if x.numel() else y.new_empty(*x.shape[:-1], weight.size(0))
    return y if bias is None else y + bias.to(x.dtype)


def rounded_groups(x: Tensor) -> Tensor:
    """Rounds each group of x to 255 values around 0. The gradient passes through as if x were not
    rounded."""
    exact = F.pad(wide(x.detach()), (0, -x.size(-1) % GROUP)).unflatten(-1, (-1, GROUP))
    most = exact.abs().amax(-1, keepdim=True)
    inverse = torch.where(most > SMALL, LARGEST / most, 0.0)
    numbers = (exact * inverse).round() * (most / LARGEST)
    y: Tensor = numbers.flatten(-2)[..., : x.size(-1)].to(x.dtype)
    return x + (y - x).detach() if x.requires_grad else y
