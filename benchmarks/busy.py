"""Compares the speed of a small model on a quiet and on a busy machine, with two ways of waiting.

    python benchmarks/busy.py [--size tiny] [--steps 40] [--rounds 3] [--json]

A tiny GPT learns with two threads, alone and beside as many busy processes as there are cores; with
the setting of `import regard` (threads that wait for each other sleep soon) and with the default of
the OpenMP library (they spin). The sides take turns, and each figure is the median of all rounds.
A fair share of a busy machine is half of its cores.
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

SIDES = {"ours": "2000", "default": "300000"}  # spins: ours, and the OpenMP library's own


def tokens_per_second(data: Path, options: argparse.Namespace, side: str) -> float:
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-m", "regard", "train", "gpt", str(data), "--out", f"{place}/run",
                 "--size", options.size, "--steps", str(options.steps), "--quiet", "--json",
                 f"validation.every={options.steps}"]  # fmt: skip
        env = os.environ | {"GOMP_SPINCOUNT": SIDES[side], "OMP_NUM_THREADS": str(os.cpu_count())}
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
        for machine, busy in (("quiet", 0), ("busy", os.cpu_count() or 1)):
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
    ratios = {m: medians[f"ours, {m}"] / medians[f"default, {m}"] for m in ("quiet", "busy")}
    if options.json:
        print(json.dumps({"tokens_per_second": medians, "ratios": ratios}))
        return
    for name, value in medians.items():
        print(f"{name:16} {value:10,.0f} tokens/s")
    for machine, ratio in ratios.items():
        print(f"{machine:16} {ratio:10.2f} x the default")


if __name__ == "__main__":
    main()
