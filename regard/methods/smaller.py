"""Writes a model that was made smaller as a model directory, with its size, its speed and its score
before and after."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from regard.core.atomic_dir import hidden_beside, put, write_manifest
from regard.core.errors import InputError, StorageError
from regard.core.files import copy_file, write_json, write_text
from regard.core.seeding import keyed
from regard.evaluation.preflight import check_place
from regard.formats.directory import Checkpoint, load
from regard.methods.options import MeasureOptions
from regard.training.run import RECIPE

PROMPT, NEW = 8, 64  # tokens of the prompt, and new tokens, for a model that generates
SENTENCES, LENGTH = 16, 64  # rows of a batch and tokens of a row, for a model that only reads

Watch = Callable[[str], None]


def check_out(out: Path) -> None:
    check_place(out)
    if out.exists() and any(out.iterdir()):
        raise StorageError(f"{out} is not empty, and nothing is overwritten; choose another --out")


def write_measured(
    run: str,
    before: Checkpoint,
    after: Checkpoint,
    out: Path,
    plan: MeasureOptions,
    report: dict[str, Any],
    files: dict[str, str],  # the name of the report's file first; then other names and their texts
    watch: Watch,
    *,
    speed: bool = True,
) -> dict[str, Any]:
    """Writes the smaller model to `out` and the report to the first of `files`. Returns the report,
    with the measurements added."""
    with hidden_beside(out.absolute()) as work:
        model = work / "model"
        after.save(model)
        recipe = (after.path or model) / RECIPE  # the recipe says how the model reads a text
        if recipe.is_file():
            copy_file(recipe, model / RECIPE)
        directories = {"before": before.path or Path(run), "after": model}
        report["bytes"] = {
            name: sum(file.stat().st_size for file in directory.glob("*.safetensors"))
            for name, directory in directories.items()
        }
        if plan.repeats and speed:
            watch("measuring the speed")
            report["speed"] = speeds(before, load(model), plan.repeats)
        if plan.data:
            report["score"] = scores(run, model, work, plan, watch)
        name, *others = files
        write_json(model / name, report)
        for other in others:
            write_text(model / other, files[other])
        write_manifest(model)
        check_out(out)
        put(model, out.absolute())
    return report


def speeds(before: Checkpoint, after: Checkpoint, repeats: int) -> dict[str, Any]:
    """Returns the median speed of both models. They run in turn, so that a disturbance of the
    machine slows both."""
    unit, amount, steps = "", 0, []
    times: tuple[list[float], list[float]] = ([], [])
    for loaded in (before, after):
        unit, amount, step = task_for(loaded)
        steps.append(step)
        step()
    for _ in range(repeats):
        for step, seconds in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
    return {"unit": unit} | {
        name: amount / statistics.median(seconds)
        for name, seconds in zip(("before", "after"), times, strict=True)
    }


def task_for(loaded: Checkpoint) -> tuple[str, int, Callable[[], Any]]:
    """Returns what the speed is measured by: the unit, how many units one step does, and the
    step."""
    from regard.decoding import generate
    from regard.decoding.decode_state import reader_for

    config, dice = loaded.config, keyed(0, "quantize", "speed")
    context = getattr(config, "context", None) or PROMPT + NEW
    try:
        reader_for(loaded.model)
    except InputError:  # the model cannot generate
        length = max(1, min(LENGTH, context - 2))  # the positions of some models start at 2
        tokens = torch.from_numpy(dice.integers(config.vocab_size, size=(SENTENCES, length)))

        def read() -> None:
            with torch.inference_mode():
                loaded.model(tokens.to(loaded.model.device))

        return "sentences/s", SENTENCES, read
    prompt = dice.integers(config.vocab_size, size=max(1, min(PROMPT, context - 1))).tolist()
    new = max(1, min(NEW, context - len(prompt)))

    def write() -> None:
        generate(loaded, [prompt], max_new_tokens=new, eos_ids=[], suppress_tokens=[])

    return "tokens/s, decoding one text", new, write


def scores(run: str, model: Path, work: Path, plan: MeasureOptions, watch: Watch) -> dict[str, Any]:
    """Evaluates both models on the same data and returns the main metric of each."""
    from regard.evaluation.test import Plan as Testing
    from regard.evaluation.test import examine

    reports: list[dict[str, Any]] = []
    for name, directory in (("before", run), ("after", str(model))):
        watch(f"testing: {name}")
        testing = Testing(out=work / name, limit=plan.limit or 0, resamples=1, **plan.testing)
        reports.append(examine(directory, list(plan.data), testing))
    main = reports[0]["main"]
    before, after = (float(report["figures"][main]) for report in reports)
    falling = bool(reports[0]["falling"])
    return {"data": list(plan.data), "examples": reports[0]["examples"], "figure": main,
            "lower_is_better": falling, "before": before, "after": after,
            "kept": share_kept(before, after, falling)}  # fmt: skip


def share_kept(before: float, after: float, falling: bool) -> float | None:
    """Returns the share of the score that is left. It is None where a share has no meaning: where
    the score before is 0 or below, or a metric for which lower is better has fallen to 0."""
    if before <= 0 or (falling and after <= 0):
        return None
    return before / after if falling else after / before
