"""Where the time of a training step goes, family by family: forward, backward, optimizer, the rest.

    python benchmarks/steps.py [--families gpt bert] [--sizes tiny small] [--tokens 1024 4096]
        [--optimizers muon adamw] [--steps 16] [--json] [--page docs/results.md]

A model of a laptop's size learns the built-in text (or --data, a prepared directory) by its default
recipe with so many tokens a step. The steps of all optimizers are taken in turn, in one process, so
that a disturbance of the machine affects all of them. A figure is the median, in milliseconds, of
the faster half of the steps. Logits are part of "forward", together with their gradient.
"optimizer" is clipping and the step of the optimizer, "rest" everything else: waiting for the
batch, counting, checks. "share" is the share of the optimizer in a step: the goal for Muon is at
most 15 % from 4,096 tokens on. --page puts the table into the section "steps" of a page.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import regard  # noqa: F401  (before torch, as in every command: it says how threads wait)

# isort: split
import torch
from page import goal, put_both, table
from train import built_in

from regard.models import FAMILIES
from regard.training import loop as loops
from regard.training.parallel import ProcessGroup
from regard.training.plan import prepare
from regard.training.recipe import make
from regard.training.run import settings

WARM = 3  # steps that are not counted
PARTS = ("forward", "backward", "optimizer", "rest")
SHARE, FROM = 0.15, 4096  # of Muon in a step, from so many tokens on


class Clock:
    """Adds up the seconds of named calls; a call within another belongs to both."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*values, **options)
            finally:
                passed = time.perf_counter() - began
                self.seconds[name] = self.seconds.get(name, 0.0) + passed

        return run


class Side:
    """A training loop whose parts are timed."""

    def __init__(self, table: dict[str, Any], steps: int) -> None:
        group = ProcessGroup()
        plan = prepare(make(table), group, torch.device("cpu"), lambda text: None)
        self.plan, self.loop, self.steps = plan, plan.loop, steps
        self.clock = Clock()
        self.splits: list[dict[str, float]] = []
        engine: Any = self.loop.engine
        engine.module = self.clock.timed("forward", engine.module)
        self.loop.go = self.clock.timed("both", self.loop.go)  # type: ignore[method-assign]
        chosen: Any = self.loop.optimizer
        chosen.step = self.clock.timed("step", chosen.step)

    def step(self) -> None:
        self.clock.seconds.clear()
        clip = loops.clip
        loops.clip = self.clock.timed("clip", clip)
        try:
            began = time.perf_counter()
            self.loop.step(self.steps + 1)
            whole = time.perf_counter() - began
        finally:
            loops.clip = clip
        parts = self.clock.seconds
        split = {
            "forward": parts["forward"],
            "backward": parts["both"] - parts["forward"],
            "optimizer": parts["step"] + parts["clip"],
        }
        self.splits.append(split | {"rest": whole - sum(split.values()), "step": whole})

    def medians(self) -> dict[str, float]:
        counted = sorted(self.splits[WARM:], key=lambda split: split["step"])
        counted = counted[: (len(counted) + 1) // 2]
        return {
            name: 1000 * statistics.median(split[name] for split in counted)
            for name in (*PARTS, "step")
        }


def measure(
    data: Path, family: str, size: str, tokens: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    sides = {}
    for name in options.optimizers:
        table: dict[str, Any] = {
            "model": family, "size": size, "data": str(data), "optimizer": {"name": name},
            "recipe": "budget", "budget": {"steps": options.steps + WARM + 1},
            "engine": {"compile": "no", "threads": options.threads},
        }  # fmt: skip
        length = options.seq_len
        table["batch"] = {"seq_len": length, "size": max(1, tokens // length)}
        sides[name] = Side(table, options.steps + WARM)
    for _ in range(options.steps + WARM):
        for side in sides.values():
            side.step()
    rows = []
    for name, side in sides.items():
        side.plan.batches.close()
        split = side.medians()
        rows.append({
            "family": family, "size": size, "tokens": tokens, "by": name,
            "precision": side.plan.recipe.engine.precision,
            "parameters": side.loop.model.parameter_count(), **split,
            "share": split["optimizer"] / split["step"],
        })  # fmt: skip
    return rows


def in_words(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        due = row["by"] == "muon" and row["tokens"] >= FROM
        share = goal(f"{row['share']:.1%}", not due or row["share"] <= SHARE)
        names = [row["family"], row["size"], f"{row['tokens']:,}", row["by"]]
        lines.append([*names, *(f"{row[name]:.1f}" for name in (*PARTS, "step")), share])
    return table(["family", "size", "tokens", "optimizer", *PARTS, "step", "share"], lines)


def section(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> str:
    return f"""## Where the time of a step goes

Made by `python benchmarks/steps.py`, with {options.threads} threads, samples of {options.seq_len}
tokens and the precision that the command chooses ({rows[0]["precision"]}). Milliseconds: the median
of the faster half of {options.steps} steps, with both optimizers in turn in one process. Logits and
their gradient are part of "forward". The optimizer with clipping is to take at most {SHARE:.0%} of
a step from {FROM:,} tokens on.

{in_words(rows)}
"""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="prepared text; else the built-in text")
    parser.add_argument("--families", nargs="+", default=["gpt", "bert"], choices=list(FAMILIES))
    parser.add_argument("--sizes", nargs="+", default=["tiny", "small"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[1024, 4096])
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--optimizers", nargs="+", default=["muon", "adamw"])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--page", type=Path, help="a page of results, such as docs/results.md")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    rows = []
    with tempfile.TemporaryDirectory() as place, settings(torch.device("cpu")):
        data = options.data or built_in(Path(place, "data"))
        for family in options.families:
            for size in options.sizes:
                for tokens in options.tokens:
                    print(f"{family} {size} {tokens}", file=sys.stderr)
                    rows += measure(data, family, size, tokens, options)
    if options.page:
        put_both("steps", section(rows, options), options.page)
    print(json.dumps(rows, indent=1) if options.json else in_words(rows))


if __name__ == "__main__":
    main()
