"""What it costs to refuse NaN: opening a model with the check and without it, in turn, in one run.

python benchmarks/load.py                                 # GPT-2 124M with random weights
python benchmarks/load.py --model bert-base-uncased --repeats 9
python benchmarks/load.py --directory my-run --precision bf16
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import interleaved, median

from regard.formats.directory import load, save
from regard.models import create

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measure(directory: Path, precision: str, repeats: int) -> dict[str, float]:
    opened: Callable[..., Any] = partial(load, directory, dtype=PRECISIONS[precision])
    steps = {name: partial(opened, allow_nan=name == "without") for name in ("with", "without")}
    return {name: median(times) for name, times in interleaved(steps, repeats).items()}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt2", help="a published size, with random weights")
    parser.add_argument("--directory", type=Path, help="a model directory in its place")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as work:
        directory = options.directory or Path(work, options.model)
        if options.directory is None:
            torch.manual_seed(0)
            save(create(options.model), directory)
        seconds = measure(directory, options.precision, options.repeats)
    for name, value in seconds.items():
        print(f"{name:<8} the check  {value * 1000:8.1f} ms")
    print(f"ratio               {seconds['with'] / seconds['without']:8.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
