"""A model in small numbers, and what became of its size, its speed and its score.

DIR/
  config.json, model.safetensors, …  the model, opened like any other
  quantize.json                      the report
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from regard.attention.native.int8 import kernel
from regard.core.errors import ConfigError, InputError, StorageError
from regard.core.seeding import keyed
from regard.evaluation.preflight import check_place
from regard.formats.directory import Loaded, load
from regard.methods.options import QuantizeOptions as Plan
from regard.models.extensions import extend

REPORT, RECIPE = "quantize.json", "recipe.toml"
LARGE = 4096  # numbers of a weight that is named if it stays
PROMPT, NEW = 8, 64  # tokens of a text that is continued, and new ones
SENTENCES, LENGTH = 16, 64  # read at once by what reads only, and tokens of each

Watch = Callable[[str], None]


def quantize(
    run: str, out: Path, plan: Plan | None = None, *, watch: Watch = lambda what: None
) -> dict[str, Any]:
    """Writes the model of `run` in small numbers to `out`; gives the report."""
    plan = plan or Plan()
    check_out(out)
    before, after = load(run), load(run)
    held = after.model.extensions.get("int8")
    if held is not None:
        raise ConfigError(
            f"{run} is in small numbers already ({held['kind']}); quantize the model it was made "
            "from"
        )
    fitted = fit(after, plan, watch)
    extend(after.model, "int8", plan.options)
    report: dict[str, Any] = {"run": run, "out": str(out), "kind": plan.kind,
                              "exclude": list(plan.exclude), "stays": stays(after),
                              "notes": list(notes(plan.kind)), **fitted}  # fmt: skip
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=".quantize-") as place:
        made = write(after, Path(place, "model"))
        report["bytes"] = {"before": weighed(before.path or Path(run)), "after": weighed(made)}
        if plan.repeats:
            watch("measuring the speed")
            report["speed"] = speeds(before, load(made), plan.repeats)
        if plan.data:
            report["score"] = scores(run, made, Path(place), plan, watch)
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        (made / REPORT).write_text(text, encoding="utf-8")
        check_out(out)
        made.replace(out)
    return report


def fit(loaded: Loaded, plan: Plan, watch: Watch) -> dict[str, Any]:
    """Fits the scales to a text, if one is given; what that changes."""
    if not plan.calibrate:
        return {}
    from regard.methods.quantize.calibrate import calibrate, texts_of
    from regard.models.extensions.int8 import Int8

    texts = texts_of(plan.calibrate)
    watch(f"reading {len(texts)} texts to fit the scales to")
    chosen = Int8(Int8.Options(**plan.options)).chosen(loaded.model)
    return {"calibration": {"data": plan.calibrate, **calibrate(loaded, chosen, texts)}}


def check_out(out: Path) -> None:
    check_place(out)
    if out.exists() and any(out.iterdir()):
        raise StorageError(f"{out} is not empty, and nothing is overwritten; give --out another")


def write(loaded: Loaded, made: Path) -> Path:
    """The model with what belongs to it; its recipe says how it reads a text."""
    loaded.save(made)
    recipe = (loaded.path or made) / RECIPE
    if recipe.is_file():
        shutil.copyfile(recipe, made / RECIPE)
    return made


def stays(loaded: Loaded) -> list[str]:
    """The matrices that are no smaller than before."""
    named = loaded.model.named_parameters()
    return [name for name, value in named if value.dim() > 1 and value.numel() >= LARGE]


def notes(kind: str) -> Iterator[str]:
    """What a user should know of this machine."""
    if kind != "bf16" and kernel("product_int8") is None:
        yield (
            "bytes are multiplied as floats here, which is slower than a plain model: faster is a "
            "processor with AVX512-VNNI, with g++ installed"
        )


def weighed(directory: Path) -> int:
    """Bytes of the weights."""
    return sum(file.stat().st_size for file in directory.glob("*.safetensors"))


# -- speed


def speeds(before: Loaded, after: Loaded, repeats: int) -> dict[str, Any]:
    """Both in turn, so that what disturbs the machine disturbs both; the medians."""
    unit, amount, steps = work(before), 0, []
    times: tuple[list[float], list[float]] = ([], [])
    for loaded in (before, after):
        amount, step = task_for(loaded)
        steps.append(step)
        step()
    for _ in range(repeats):
        for step, taken in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
    return {"unit": unit} | {
        name: amount / statistics.median(taken)
        for name, taken in zip(("before", "after"), times, strict=True)
    }


def work(loaded: Loaded) -> str:
    return "tokens/s, decoding one text" if decodes(loaded) else "sentences/s"


def decodes(loaded: Loaded) -> bool:
    from regard.decoding.decode_state import reader_for

    try:
        reader_for(loaded.model)
    except InputError:
        return False
    return True


def task_for(loaded: Loaded) -> tuple[int, Callable[[], Any]]:
    """What is measured: how much of it a step does, and the step."""
    config = loaded.config
    dice = keyed(0, "quantize", "speed")
    context = getattr(config, "context", None) or PROMPT + NEW
    if decodes(loaded):
        from regard.decoding import generate

        prompt = dice.integers(config.vocabulary, size=max(1, min(PROMPT, context - 1))).tolist()
        new = max(1, min(NEW, context - len(prompt)))

        def write() -> None:
            generate(loaded, [prompt], tokens=new, end=[], banned=[])

        return new, write
    length = max(1, min(LENGTH, context - 2))  # some begin to count their positions at 2
    tokens = torch.from_numpy(dice.integers(config.vocabulary, size=(SENTENCES, length)))

    def read() -> None:
        with torch.inference_mode():
            loaded.model(tokens.to(loaded.model.device))

    return SENTENCES, read


# -- score


def scores(run: str, made: Path, place: Path, plan: Plan, watch: Watch) -> dict[str, Any]:
    """The main figure of a test of each, on the same data."""
    from regard.evaluation.test import Plan as Testing
    from regard.evaluation.test import examine

    found: list[dict[str, Any]] = []
    for name, directory in (("before", run), ("after", str(made))):
        watch(f"testing: {name}")
        testing = Testing(out=place / name, limit=plan.limit, resamples=1, **plan.testing)
        found.append(examine(directory, list(plan.data), testing))
    main = found[0]["main"]
    first, second = (float(each["figures"][main]) for each in found)
    falling = bool(found[0]["falling"])
    return {"data": list(plan.data), "examples": found[0]["examples"], "figure": main,
            "lower_is_better": falling, "before": first, "after": second,
            "kept": share_kept(first, second, falling)}  # fmt: skip


def share_kept(before: float, after: float, falling: bool) -> float | None:
    """What is left of a score; None where that has no meaning, as for shares of nothing."""
    if before <= 0 or (falling and after <= 0):
        return None
    return before / after if falling else after / before
