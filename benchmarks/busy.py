"""Compares the speed of a small model on a quiet and on a busy machine, with two ways of waiting.

    python benchmarks/busy.py [--size tiny] [--steps 40] [--rounds 3] [--json]

A tiny GPT learns with a thread on each core, alone and beside as many busy processes as there are
cores; with the setting of `import regard` (threads that wait for each other sleep soon), with the
default of the OpenMP library (they spin), and with one thread, which waits for nobody. The sides
take turns, and each figure is the median of all rounds. A fair share of a busy machine is half of
its cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CORES = os.cpu_count() or 1
# How often a thread spins before it sleeps (ours, and what the OpenMP library does), and threads.
SIDES = {"ours": ("2000", CORES), "default": ("300000", CORES), "one thread": ("2000", 1)}


def tokens_per_second(data: Path, options: argparse.Namespace, side: str) -> float:
    spins, threads = SIDES[side]
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-m", "regard", "train", "gpt", str(data), "--out", f"{place}/run",
                 "--size", options.size, "--steps", str(options.steps), "--quiet", "--json",
                 f"validation.every={options.steps}", f"engine.threads={threads}"]  # fmt: skip
        env = os.environ | {"GOMP_SPINCOUNT": spins, "OMP_NUM_THREADS": str(threads)}
        run = subprocess.run(words, env=env, check=True, capture_output=True, text=True)
    progress = json.loads(run.stdout)["progress"]
    return float(progress["tokens"] / progress["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    speeds: dict[str, list[float]] = {f"{s}, {m}": [] for m in ("quiet", "busy") for s in SIDES}
    with tempfile.TemporaryDirectory() as place:
        data = Path(place, "data")
        words = [sys.executable, "-m", "regard", "prepare", "--out", str(data)]
        subprocess.run(words, check=True, capture_output=True)
        for machine, busy in (("quiet", 0), ("busy", CORES)):
            spinning = [sys.executable, "-c", "while True: pass"]
            others = [subprocess.Popen(spinning) for _ in range(busy)]
            try:
                for side in list(SIDES) * options.rounds:
                    speed = tokens_per_second(data, options, side)
                    speeds[f"{side}, {machine}"].append(speed)
            finally:
                for other in others:
                    other.kill()
                    other.wait()
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    ratios = {
        f"{side}, {machine}": medians[f"ours, {machine}"] / medians[f"{side}, {machine}"]
        for machine in ("quiet", "busy")
        for side in list(SIDES)[1:]
    }
    if options.json:
        print(json.dumps({"tokens_per_second": medians, "ratios": ratios}))
        return
    for name, value in medians.items():
        print(f"{name:18} {value:10,.0f} tokens/s")
    for name, ratio in ratios.items():
        print(f"ours is {ratio:.2f} x {name}")


if __name__ == "__main__":
    main()
