"""The whole training loop compared with Hugging Face's Trainer: same model, same data, same run.

    python benchmarks/train.py [--json] [--steps 12] [--rounds 3] [--data DIR]

It answers two questions: how much does our loop add to the bare step (goal: under 3 %), and how
many tokens per second does it learn from, compared with the Trainer (goal: 1.5 times in bf16, 1.3
times in fp32)? The runs alternate, each in a separate process that keeps the memory it frees, as
`regard train` does. Medians are reported. The data is the built-in text unless --data names a
prepared directory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from regard.formats.directory import save
from regard.training.hardware import quick_malloc
from regard.training.optimizer import clip
from regard.training.parallel import ProcessGroup
from regard.training.plan import TrainingPlan, prepare
from regard.training.progress import watch
from regard.training.recipe import make
from regard.training.run import TrainingRun, settings
from regard.training.train_module import autocast, moved

SHAPE = {"layers": 6, "width": 512, "heads": 8}
SAMPLES, LENGTH = 8, 256
WARM = 2  # the number of warmup steps, which are not counted


def recipe(data: Path, precision: str, steps: int) -> Any:
    return make(
        {
            "model": "gpt2",
            "data": str(data),
            "shape": SHAPE,
            "batch": {"size": SAMPLES, "seq_len": LENGTH},
            "budget": {"steps": steps},
            "validation": {"every": 10**9},
            "checkpoint": {"minutes": 1e9},
            "optimizer": {"name": "adamw", "lr": 1e-4, "grad_clip": 1.0},
            "engine": {"precision": precision, "compile": "no"},
        }
    )


def planned(data: Path, precision: str, steps: int) -> TrainingPlan:
    chosen = recipe(data, precision, steps)
    return prepare(chosen, ProcessGroup(), torch.device("cpu"), lambda text: None)


def ours(data: Path, precision: str, steps: int) -> float:
    """Returns the seconds of a step in the whole loop, with reading, logging and display."""
    times: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        plan = planned(data, precision, steps)
        run = TrainingRun(plan, Path(place), ProcessGroup(), watch("plain"), "")
        record = run.record

        def timed(metrics: Any) -> None:
            record(metrics)
            times.append(time.perf_counter())

        run.record = timed  # type: ignore[method-assign]
        run.save = lambda *_, **__: None  # type: ignore[method-assign]
        run.export = lambda: None  # type: ignore[method-assign]
        run.valid = None
        run.go(resume=False)
    return (times[-1] - times[WARM]) / (len(times) - 1 - WARM)


def bare(data: Path, precision: str, steps: int) -> float:
    """Returns the seconds of forward, backward, clipping and optimizer, on ready batches."""
    plan = planned(data, precision, steps)
    loop = plan.loop
    batches = [moved(plan.batches.make(i)[0], loop.device) for i in range(steps)]
    times = []
    for batch in batches:
        with autocast(loop.device, precision):
            sums, _ = loop.engine.module(batch, None)
        (sums["causal"] / (SAMPLES * LENGTH)).backward()
        clip(loop.model.parameters(), 1.0, loop.optimizer)
        loop.optimizer.step()
        loop.optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter())
    plan.batches.close()
    return (times[-1] - times[WARM]) / (len(times) - 1 - WARM)


class Chunks(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The same tokens as a dataset for the Trainer."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.objective = plan.objective

    def __len__(self) -> int:
        return len(self.objective)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.objective.corpus.read(index * LENGTH, (index + 1) * LENGTH)
        tokens = torch.from_numpy(ids)
        return {"input_ids": tokens, "labels": tokens}


def theirs(data: Path, precision: str, steps: int) -> float:
    from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

    plan = planned(data, precision, steps)
    plan.batches.close()
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as place:
        save(plan.loop.model, place)
        model = AutoModelForCausalLM.from_pretrained(place)
        arguments = TrainingArguments(
            output_dir=place,
            max_steps=steps,
            per_device_train_batch_size=SAMPLES,
            learning_rate=1e-4,
            bf16=precision == "bf16",
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            logging_steps=1,
            disable_tqdm=True,
            optim="adamw_torch_fused",
        )
        Trainer(model, arguments, train_dataset=Chunks(plan), callbacks=[Clock()]).train()
    return (times[-1] - times[WARM]) / (len(times) - 1 - WARM)


def quietly(run: Callable[..., float], data: Path, precision: str, steps: int) -> float:
    """Runs in a separate process. Its output goes to standard error."""
    os.dup2(2, 1)
    if run is theirs:  # ours has all settings of `regard train`
        quick_malloc()
        return run(data, precision, steps)
    with settings(torch.device("cpu")):
        return run(data, precision, steps)


def measure(data: Path, precision: str, steps: int, rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {"ours": [], "bare": [], "theirs": []}
    context = multiprocessing.get_context("spawn")
    for _ in range(rounds):
        for name, run in (("theirs", theirs), ("bare", bare), ("ours", ours)):
            with ProcessPoolExecutor(1, context) as pool:
                seconds = pool.submit(quietly, run, data, precision, steps).result()
            print(f"{precision} {name} {seconds:.3f} s a step", file=sys.stderr)
            times[name].append(seconds)
    middle = {name: statistics.median(values) for name, values in times.items()}
    tokens = SAMPLES * LENGTH
    return {
        "tokens_per_second": tokens / middle["ours"],
        "trainer_tokens_per_second": tokens / middle["theirs"],
        "ratio": middle["theirs"] / middle["ours"],
        "overhead": middle["ours"] / middle["bare"] - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        data = options.data or built_in(Path(place, "data"))
        report = {
            precision: measure(data, precision, options.steps, options.rounds)
            for precision in ("fp32", "bf16")
        }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{'':6}{'tokens/s':>10}{'Trainer':>10}{'ratio':>8}{'goal':>6}{'overhead':>10}")
    for precision, row in report.items():
        print(
            f"{precision:6}{row['tokens_per_second']:10,.0f}{row['trainer_tokens_per_second']:10,.0f}"
            f"{row['ratio']:8.2f}{1.5 if precision == 'bf16' else 1.3:6}{row['overhead']:10.1%}"
        )


def built_in(place: Path) -> Path:
    import subprocess

    command = [sys.executable, "-m", "regard", "prepare", "builtin:python-docs"]
    subprocess.run([*command, "--out", str(place)], check=True, stdout=subprocess.DEVNULL)
    return place


if __name__ == "__main__":
    main()
