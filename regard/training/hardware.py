"""Measures this machine and estimates the cost of a run: speed, memory, arithmetic."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.attention.attention import Attention
from regard.attention.block import Block, CrossBlock, FeedForward
from regard.attention.kernels import SHORT
from regard.attention.position import Relative
from regard.formats.directory import describe
from regard.models.output import chunk_rows

MULTIPLY_BF16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # flags of x86 and of ARM
UNLIMITED = 2**60  # a control group's limit of this size means no limit

# -- speed


def gemm_peak(
    dtype: torch.dtype, seconds: float = 0.3, device: torch.device | str = "cpu"
) -> float:
    """Returns the FLOP/s of the best square matrix product, measured once per process."""
    device = torch.device(device)
    return measured(dtype, seconds, str(device), torch.get_num_threads())


@cache
def measured(dtype: torch.dtype, seconds: float, device: str, threads: int) -> float:
    side = 4096 if device.startswith("cuda") else 1024
    a = torch.ones(side, side, dtype=dtype, device=device)
    b, out = a.clone(), torch.empty_like(a)
    best, end = float("inf"), time.perf_counter() + seconds
    kind = device.partition(":")[0]
    wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(kind, lambda: None)
    torch.mm(a, b, out=out)
    while best == float("inf") or time.perf_counter() < end:
        wait()
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        wait()
        best = min(best, time.perf_counter() - began)
    return 2 * side**3 / best


def fast_bf16(device: torch.device | str) -> bool:
    """Tells whether this machine has instructions for bf16 products. It reads the machine's flags
    and measures no time: a command must choose the same precision on a busy machine as on an idle
    one.

    oneDNN accepts bf16 on every CPU with AVX-512, but its guide to data types says that it is slow
    without bf16 instructions, so a CPU must have these too. MPS promises nothing.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    flags = cpu_flags()
    return any(flags.get(name, False) for name in MULTIPLY_BF16) and bool(
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def cpu_flags() -> Mapping[str, Any]:
    """Returns the features of the CPU, by the names of `torch.cpu.get_capabilities`."""
    if hasattr(torch.cpu, "get_capabilities"):
        return torch.cpu.get_capabilities()
    return {"avx512_bf16": torch.cpu._is_avx512_bf16_supported()}  # an older torch tells less


# -- memory


def memory() -> dict[str, int]:
    """Returns bytes: `resident` now and at its `peak`, `total` of the machine, and what is
    `available` to this process before the system swaps, within the limit of its control group (0:
    none)."""
    own, machine = table("/proc/self/status"), table("/proc/meminfo")
    total = machine.get("MemTotal", 0) or physical()
    limit, used = control_group()
    available = machine.get("MemAvailable", total)
    if limit:
        available = min(available, max(0, limit - used))
    resident = own.get("VmRSS", 0)
    return {
        "resident": resident,
        "peak": max(own.get("VmHWM", 0), resident) or peak_elsewhere(),
        "total": min(total, limit) if limit else total,
        "limit": limit,
        "available": available,
    }


def table(path: str) -> dict[str, int]:
    """Reads a file of lines such as "MemTotal: 123 kB", in bytes; {} if there is no such file."""
    try:
        lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    parts = (line.split() for line in lines if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in parts}


def physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not Unix
        return sys.maxsize


def peak_elsewhere() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def control_group(
    own: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")
) -> tuple[int, int]:
    """Returns (limit, used) of the tightest control group of this process; (0, 0) without one."""
    groups = [
        (limit, max(0, count_in(used) - reclaimable(used.with_name("memory.stat"))))
        for limit, used in limits(own, mount)
    ]
    return min(groups, key=lambda pair: pair[0] - pair[1], default=(0, 0))


@cache
def limits(own: Path, mount: Path) -> list[tuple[int, Path]]:
    """Returns every limit above this process, with the file that says how much of it is used."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    pairs = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = mount, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        place = root / path.strip("/")
        for directory in (place, *place.parents):  # a parent's limit may be tighter
            if directory.is_relative_to(root):
                limit = count_in(directory / names[0])
                pairs += [(limit, directory / names[1])] if 0 < limit < UNLIMITED else []
    return pairs


def count_in(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or "max"
        return 0


def reclaimable(path: Path) -> int:
    """Returns the bytes of cached files in the group, which the system would drop first."""
    try:
        words = path.read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(words[words.index("inactive_file") + 1]) if "inactive_file" in words else 0


def quick_malloc() -> bool:
    """Lets the process keep the memory it frees, so that the large tensors of one step are reused
    in the next one instead of being mapped and zeroed again. Returns True if that could be set
    (glibc).

    The price: memory that was once used is not returned to the system before the process ends.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):  # mallopt of musl and others does nothing
        return False
    trim_threshold, top_pad, map_most, never = -1, -2, -4, -1
    settings = {map_most: 0, trim_threshold: never, top_pad: 2**26}
    return sum(library.mallopt(name, value) for name, value in settings.items()) == len(settings)


# -- what a step computes


def step_flops(
    model: Any,
    tokens: int,
    samples: int,
    *,
    targets: int | None = None,
    past: int = 0,
) -> float:
    """Returns the floating-point operations of one step over `samples` of `tokens`.

    A matrix of n numbers costs 2n per row in the forward pass and 4n in the backward pass: the
    6·N·D of the scaling papers. It counts the matrices that rows do pass (not the embedding tables,
    which are only looked up, nor projections for global tokens that do not occur), each times the
    rows that pass it, and the products of queries with visible keys and of weights with values: 12
    · inner · keys per row. Logits are computed for `targets` rows of a sample (by default all),
    which are also the length of a decoder and the query rows of XLNet. `past` is the memory of
    Transformer-XL. Recomputed activations do not count: they are no progress.
    """
    rows = tokens if targets is None else targets
    products = float(rows * output_numbers(model))
    for block, layer, decoder in blocks_of(model):
        here = rows if decoder else tokens
        if hasattr(model, "query") and targets is not None:
            here += targets
        keys = keys_of(model, layer, here if decoder else tokens, past, decoder)
        inner = (getattr(m, "wide", None) for m in block.modules())  # as in a Longformer
        skipped = {id(m) for m in inner if isinstance(m, Attention)}
        for part in block.modules():
            if isinstance(part, FeedForward):
                products += here * sum(m.weight.numel() for m in linears(part))
            elif isinstance(part, Attention) and id(part) not in skipped:
                products += attention_products(part, block, here, tokens, keys)
    if not model.attends:  # an LSTM
        products += tokens * sum(p.numel() for p in model.layers.parameters() if p.dim() > 1)
    return 6.0 * products * samples


def attention_products(part: Attention, block: Any, rows: int, source: int, keys: float) -> float:
    """Returns the multiplications of one attention layer for one sample."""
    project, out = part.project.weight.numel(), part.out.weight.numel()
    inner = part.project.heads * part.project.size
    if getattr(block, "cross", None) is not None and part is block.cross.layer:
        asking = inner * part.project.in_features
        return rows * (asking + out) + source * (project - asking) + 2 * rows * inner * source
    relative = inner * keys if isinstance(part.score, Relative) else 0.0
    return rows * (project + out + 2 * inner * keys + relative)


def blocks_of(model: Any) -> Iterator[tuple[Any, int, bool]]:
    """Yields (block, index of its layer, whether it belongs to a decoder)."""
    count = {False: 0, True: 0}
    for block in model.modules():
        if isinstance(block, Block):
            decoder = isinstance(block, CrossBlock)
            yield block, count[decoder], decoder
            count[decoder] += 1


def keys_of(model: Any, layer: int, rows: int, past: int, decoder: bool) -> float:
    """Returns how many keys a row sees on average."""
    config = model.config
    if callable(getattr(config, "window", None)):  # characters: a row sees this many before it
        return min(config.window(layer), rows)
    if hasattr(config, "windows"):
        return min(config.windows[layer] + 1, rows)
    if getattr(config, "band", None) and layer % 2:
        return min(config.band, rows)
    return past + (rows + 1) / 2 if decoder or model.causal else past + rows


def linears(part: nn.Module) -> list[nn.Linear]:
    return [m for m in part.modules() if isinstance(m, nn.Linear)]


def output_numbers(model: Any) -> int:
    """Returns the size of the matrices between a hidden row and its logits. Of an adaptive softmax
    only the first cluster counts: each of the others serves its own rare words."""
    output = getattr(model, "output", None)
    if output is None:
        return 0
    if hasattr(output, "edges"):  # an adaptive one
        return output.cluster(0)[0].numel() + sum(p.numel() for p in output.projections[:1])
    return output.weight.numel() + sum(m.weight.numel() for m in linears(output.transform))


# -- what a step keeps in memory

STATE = {  # the optimizer's state, in copies of the weights
    "adam": 2, "adamw": 2, "bert-adam": 3, "adafactor": 0, "sgd": 0, "muon": 2,
}  # fmt: skip
WIDTH = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}  # bytes of a number in a product
CACHE = 2**26  # about the bytes that the libraries of matrix products keep for themselves


def training_memory(
    model: Any,
    batch: int,
    length: int,
    *,
    optimizer: str = "adamw",
    precision: str = "fp32",
    checkpointing: bool = False,
    targets: int | None = None,
    past: int = 0,
) -> int:
    """Estimates the bytes that training needs beyond the process without the model.

    `batch` is one micro-batch in one process. The sum holds weights, gradients and the optimizer's
    state; copies of the weights in half precision; the activations for the backward pass (with
    `checkpointing` only the input of each layer, and all of one layer); and one chunk of logits.
    """
    exact, half = max(4, WIDTH[precision]), WIDTH[precision]
    numbers = sum(p.numel() for p in model.parameters())
    learning = [p.numel() for p in model.parameters() if p.requires_grad] or [0]
    state = sum(learning) * (1 + STATE.get(optimizer, 2)) + 2 * max(learning)
    fixed = exact * (numbers + state)
    if half < exact:
        fixed += half * numbers
    rows = length if targets is None else targets
    activations, most = 0.0, 0.0
    for block, layer, decoder in blocks_of(model):
        here = batch * (rows if decoder else length)
        layer_bytes = block_bytes(model, block, layer, here, length, past, exact, half, decoder)
        activations += here * model.config.width * exact if checkpointing else layer_bytes
        most = max(most, layer_bytes)
    if not model.attends:  # an LSTM keeps four gates, a cell and a row
        activations += 8 * batch * length * model.config.width * exact * len(model.layers)
    if past:
        activations += 2 * batch * past * model.config.width * exact * len(list(blocks_of(model)))
    return int(fixed + activations + most + logit_bytes(model, batch * rows, exact, half) + CACHE)


def resting_memory(directory: str) -> int:
    """Estimates the bytes of a saved model for inference; for int8, the size of its files."""
    description = describe(directory)
    if "int8" not in description["extensions"]:
        return 4 * int(description["parameters"])
    return sum(size for name, size in description["files"].items() if name.endswith(".safetensors"))


def block_bytes(
    model: Any,
    block: Any,
    layer: int,
    rows: int,
    length: int,
    past: int,
    exact: int,
    half: int,
    decoder: bool,
) -> float:
    """Returns the bytes that one block keeps for the backward pass: inputs of norms in full
    precision, of matrices in half; attention weights only if they are computed explicitly."""
    width = model.config.width
    keys = keys_of(model, layer, length, past, decoder)
    total = 0.0
    for part in block.modules():
        if isinstance(part, nn.RMSNorm):  # without native code, it keeps every intermediate
            total += rows * 3 * exact * width
        elif isinstance(part, FeedForward):
            total += rows * (2 * exact + half) * width  # the norm, and the residual row
            inside = sum(m.out_features for m in linears(part)) * rows
            total += inside * (2 * half + (half + 1) * bool(part.dropout.rate))
        elif isinstance(part, Attention):
            inner = part.project.heads * part.project.size
            shared = part.project.kv_heads * part.project.size
            total += rows * ((2 * exact + half) * width + (2 * inner + 4 * shared) * half)
            relative = isinstance(part.score, Relative)
            if part.dropout or relative or (half == 2 and keys <= SHORT):
                copies = 1 + 3 * relative
                total += rows * part.project.heads * keys * (copies * half + bool(part.dropout))
    return total


def logit_bytes(model: Any, rows: int, exact: int, half: int) -> float:
    output = getattr(model, "output", None)
    if output is None:
        return 0.0
    words = output.edges[1] if hasattr(output, "edges") else output.weight.size(0)
    chunk = chunk_rows(rows, words) * words
    return chunk * (exact + (half if half < exact else 0)) + exact * output_numbers(model)
