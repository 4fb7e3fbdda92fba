"""How to repeat a comparison: its command, the commands of its runs, versions and machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
from pathlib import Path
from typing import Any

from regard.core import VERSION
from regard.core.files import read_json
from regard.core.options import option_of
from regard.lab.compare.comparison import RUNS, Comparison, ComparisonPlan
from regard.lab.compare.lineup import ModelBudget

LIBRARIES = ("torch", "numpy", "tokenizers", "safetensors")


def recipe(plan: ComparisonPlan, out: Path) -> dict[str, Any]:
    """Returns what the report says about repeating it. A run that does not exist yet has no
    report."""
    comparison = Comparison(plan, out, lambda name, record: None)
    runs = []
    for cell in comparison.cells:
        report = out / RUNS / cell.name / "report.html"
        words = comparison.command(cell, Path(f"{cell.name}-again"))
        runs.append({
            "name": cell.name,
            "report": report.relative_to(out).as_posix() if report.is_file() else None,
            "command": shlex.join(["regard", "train", *words]),
        })  # fmt: skip
    return {
        "command": command(plan, f"{out.resolve().name}-again"),
        "runs": runs,
        "versions": versions(),
        "machine": machine(out, [cell.name for cell in comparison.cells]),
    }


def command(plan: ComparisonPlan, out: str) -> str:
    """Returns the `regard compare …` command, with every option whose default depends on the
    machine."""
    models = ",".join(
        f"{e.model}:{e.objective}{'@' + e.size if e.size else ''}" for e in plan.entries
    )
    words = ["regard", "compare", *plan.sources, "--budget", spelt(plan.budget), "--models", models]
    for name in ("seeds", "size", "seq_len", "batch_size", "vocab_size", "jobs"):
        words += [option_of(ComparisonPlan, name), str(getattr(plan, name))]
    for prompt in plan.prompts:
        words += ["--prompt", prompt]
    if plan.reading.get("split_by"):
        words += ["--split-by", str(plan.reading["split_by"])]
    if "max_bytes" in plan.reading:
        words += ["--max-bytes", str(plan.reading["max_bytes"])]
    return shlex.join([*words, *plan.settings, "--out", out])


def spelt(budget: ModelBudget) -> str:
    """Returns the budget as --budget parses it."""
    unit = {"minutes": "m", "tokens": "tok", "flops": "flop"}[budget.kind]
    return f"{budget.amount:.15g}{unit}"


def versions() -> dict[str, str]:
    own = {"regard": VERSION, "python": platform.python_version()}
    return own | {name: importlib.metadata.version(name) for name in LIBRARIES}


def machine(out: Path, names: list[str]) -> dict[str, Any]:
    """Returns the machine of the first run that names one, with the processor of this machine,
    which writes the report."""
    facts: dict[str, Any] = {}
    for name in names:
        facts = facts or (read_json(out / RUNS / name / "run.json") or {}).get("machine", {})
    system = {"system": facts.get("system", platform.platform()), "processor": processor()}
    return system | {"cores": os.cpu_count(), "threads": facts.get("threads")}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
