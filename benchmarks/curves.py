"""Cost curves: how time and memory grow, beside what theory says, as slopes in log-log scale.

    python benchmarks/curves.py                                   # all curves, about ten minutes
    python benchmarks/curves.py training-length decoding-context --repeats 3
    python benchmarks/curves.py --json results/curves.json
    python benchmarks/curves.py --tiny                            # a small model: to try it

A slope of 1 is linear growth, 2 is quadratic. The theory of a time is the same slope of the counted
operations (in decoding: of the bytes that a token reads, which are the weights and the cache); that
of a memory is the slope of what `regard train --dry-run` estimates. So both sides of a row mix
constant, linear and quadratic parts in the same way. Decoding is what `generate` does, token by
token. Every point of training is measured in a fresh
process that keeps the memory it frees; times are medians. The file of --json keeps curves that
are not measured again; scripts/speed.py makes a table of docs/speed.md from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from cases import CASES, build
from measure import Apart, interleaved, median, slope
from page import replace

from regard.api import LoadedModel
from regard.decoding.generation import Decoder
from regard.decoding.generation_config import options_for
from regard.training.hardware import step_flops, training_memory

SHAPE = {"context": 8192, "vocab_size": 8000}
TINY = {"width": 64, "heads": 2, "layers": 2}
NEW = 24  # the tokens that are decoded at each length of the context
Curve = dict[str, Any]


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def shaped(family: str, changes: dict[str, Any]) -> Any:
    """Returns the model of a case with changed fields."""
    case = CASES[family]
    return dataclasses.replace(case, changes=case.changes | changes).model()


def training(
    family: str, what: str, sizes: list[int], batch: int, length: int, options: Any
) -> Curve:
    """Measures a training step while one of "length", "batch" and "layers" grows."""
    seconds, memory, operations, estimate = [], [], [], []
    for size in sizes:
        changes: dict[str, Any] = SHAPE | (TINY if options.tiny else {})
        if what == "layers":
            changes["layers"] = size
        rows, tokens = (size if what == "batch" else batch), (size if what == "length" else length)
        step = Apart(
            build, family, "ours", "train", torch.float32, changes, tokens, rows, keep=True
        )
        seconds.append(median(interleaved({"ours": step}, options.repeats, 1)["ours"]))
        memory.append(step.ask("memory"))
        step.close()
        model = shaped(family, changes)
        operations.append(step_flops(model, tokens, rows))
        estimate.append(training_memory(model, rows, tokens))
        say(f"{family} {what} {size}: {seconds[-1]:.3f} s, {memory[-1] / 2**20:.0f} MiB")
    return {
        "sizes": sizes, "seconds": seconds, "bytes": memory,
        "time_slope": slope(sizes, seconds), "time_theory": slope(sizes, operations),
        "memory_slope": slope(sizes, [float(m) for m in memory]),
        "memory_theory": slope(sizes, [float(m) for m in estimate]),
    }  # fmt: skip


def durations_of_tokens(model: Any, size: int) -> list[float]:
    """Returns the seconds of each new token that `generate` writes after a prompt of `size`."""
    loaded = LoadedModel(model)
    chosen = options_for(loaded, {"max_new_tokens": NEW + 1, "eos_ids": [], "suppress_tokens": []})
    decoder, prompt, durations = Decoder(loaded, chosen), [0] * size, []
    with decoder.ready():
        steps = decoder.loop([prompt], [0], *decoder.limits(prompt)).steps()
        next(steps)  # the first token follows from reading the prompt
        for _ in range(NEW):
            begun = time.perf_counter()
            next(steps)
            durations.append(time.perf_counter() - begun)
    return durations


def decoding(family: str, sizes: list[int], options: Any) -> Curve:
    """Measures the time of one more token while the context before it grows."""
    changes: dict[str, Any] = SHAPE | (TINY if options.tiny else {})
    model = shaped(family, changes).eval()
    weights = (
        sum(4.0 * p.numel() for p in model.parameters()) - 4.0 * model.positions.weight.numel()
    )
    rows = 2 * 4.0 * model.config.width * model.config.layers  # a token's keys and values
    seconds = []
    for size in sizes:
        times = [median(durations_of_tokens(model, size)) for _ in range(options.repeats)]
        seconds.append(median(times))
        say(f"{family} after {size} tokens: {seconds[-1] * 1e3:.2f} ms a token")
    return {
        "sizes": sizes, "seconds": seconds, "time_slope": slope(sizes, seconds),
        "time_theory": slope(sizes, [weights + rows * size for size in sizes]),
    }  # fmt: skip


DOUBLING = [1, 2, 4, 8, 16]
CURVES: dict[str, Callable[[Any], Curve]] = {
    "decoding-context": partial(decoding, "gpt2", [256, 512, 1024, 2048, 4096, 8160]),
    "training-length": partial(training, "gpt2", "length", [128, 256, 512, 1024, 2048], 2, 0),
    "training-batch": partial(training, "gpt2", "batch", DOUBLING, 0, 256),
    "training-layers": partial(training, "gpt2", "layers", DOUBLING, 4, 256),
    "longformer-length": partial(
        training, "longformer", "length", [512, 1024, 2048, 4096, 8192], 1, 0
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("curves", nargs="*", help=f"some of {', '.join(CURVES)} (default: all)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path, help="write the curves here, beside earlier ones")
    options = parser.parse_args()
    unknown = [name for name in options.curves if name not in CURVES]
    if unknown:
        parser.error(f"unknown curve {unknown[0]!r}; known are {', '.join(CURVES)}")
    for name in options.curves or CURVES:
        curve = CURVES[name](options)
        slopes = {key: round(value, 2) for key, value in curve.items() if "_" in key}
        print(name, " ".join(f"{key} {value:.2f}" for key, value in slopes.items()), flush=True)
        if options.json:
            before = json.loads(options.json.read_text("utf-8")) if options.json.is_file() else {}
            options.json.parent.mkdir(parents=True, exist_ok=True)
            replace(options.json, json.dumps(before | {name: curve}, indent=1) + "\n")


if __name__ == "__main__":
    main()
