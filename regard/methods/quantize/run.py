"""Quantizes a model and reports its size, its speed and its score before and after.

DIR/
  config.json, model.safetensors, …  the model, opened like any other
  quantize.json                      the report
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.attention.native.int8 import kernel
from regard.core.errors import ConfigError
from regard.formats.directory import Checkpoint, load
from regard.methods.options import KINDS
from regard.methods.options import QuantizeOptions as Plan
from regard.methods.smaller import Watch, check_out, write_measured
from regard.models.extensions import extend

REPORT = "quantize.json"
LARGE = 4096  # the report names matrices of this many numbers that were not quantized
SLOW = (
    "this machine multiplies {0} numbers as floats, which is slower than a float model; a "
    "processor with AVX512-VNNI and an installed g++ make {0} faster"
)


def quantize(
    run: str, out: Path, plan: Plan | None = None, *, watch: Watch = lambda what: None
) -> dict[str, Any]:
    """Writes the quantized model of `run` to `out` and returns the report."""
    plan = plan or Plan()
    check_out(out)
    before, after = load(run), load(run)
    if (small := after.model.extensions.get("int8")) is not None:
        raise ConfigError(
            f"{run} is quantized already ({small['kind']}); quantize the model that it was made "
            "from"
        )
    options: dict[str, Any] = {"kind": KINDS[plan.kind], "exclude": list(plan.exclude)}
    calibration: dict[str, Any] = {}
    if plan.calibrate:
        fitted = extended_by_text(after, options, plan.calibrate, watch)
        calibration = {"calibration": {"data": plan.calibrate, **fitted}}
    else:
        extend(after.model, "int8", options)
    stays = [  # the matrices that were not quantized
        name
        for name, value in after.model.named_parameters()
        if value.dim() > 1 and value.numel() >= LARGE
    ]
    numbers = plan.kind.partition("-")[0]
    slow = numbers != "bf16" and kernel(f"product_{numbers}") is None
    notes = [SLOW.format(numbers)] if slow else []
    report = {"run": run, "out": str(out), "kind": plan.kind, "exclude": list(plan.exclude),
              "stays": stays, "notes": notes, **calibration}  # fmt: skip
    return write_measured(run, before, after, out, plan, report, {REPORT: ""}, watch)


def extended_by_text(
    loaded: Checkpoint, options: dict[str, Any], file: str, watch: Watch
) -> dict[str, Any]:
    """Quantizes the model with scales that are fitted to a text; returns a report."""
    from regard.methods.quantize import calibrate as fitting
    from regard.models.extensions.int8 import Int8

    texts = fitting.texts_of(file)
    watch(f"reading {len(texts)} texts to fit the scales to")
    layers = Int8(Int8.Options(**options)).chosen(loaded.model)
    inputs = fitting.inputs_of(loaded, layers, texts)
    if options["kind"] == "int4":
        extend(loaded.model, "int8", options)
        return fitting.calibrate_groups(inputs, loaded.model)
    report = fitting.calibrate(inputs)
    extend(loaded.model, "int8", options)
    return report
