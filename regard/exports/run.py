"""Exports a model: convert, open with the real runtime, compare, and keep only what agrees."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.core.atomic_dir import workplace
from regard.core.errors import ConfigError, RegardError, StorageError, UnknownName
from regard.core.files import recover, write_text
from regard.exports.base import PRECISIONS, ExportDiffers, ExportSource, Target, settled
from regard.exports.compare import compared
from regard.formats import Checkpoint

TARGETS = {  # name -> the file that knows it
    "onnx": "onnx",
    "openvino": "openvino",
    "ctranslate2": "ctranslate2",
    "gguf": "gguf",
    "sentence-transformers": "sentence_transformers",
}
REPORT = "export.json"  # what was compared; it marks a directory as an export
EXTRA = "regard[export]"


def target(name: str) -> Target:
    """Returns a target by its name."""
    if name not in TARGETS:
        raise UnknownName("target", name, TARGETS)
    chosen: Target = import_module(f"regard.exports.{TARGETS[name]}").TARGET
    return chosen


def able(source: ExportSource) -> list[str]:
    """Returns the targets that can hold a model."""
    return [name for name in TARGETS if target(name).refuses(source) is None]


def check(source: ExportSource, chosen: Target, precision: str) -> None:
    """Refuses what the target cannot hold, and a runtime that is not installed."""
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    reason = chosen.refuses(settled(source))
    if reason is not None:
        others = [name for name in able(source) if name != chosen.name]
        advice = f"it can be exported to {', '.join(others)}" if others else "no other target can"
        raise ConfigError(
            f"{chosen.name} cannot hold this {source.format} model: {reason}; {advice}"
        )
    if precision not in chosen.precisions:
        raise ConfigError(
            f"{chosen.name} is written as {', '.join(chosen.precisions)}, not as {precision}"
        )
    if absent := chosen.missing():
        raise ConfigError(
            f"an export to {chosen.name} is proven with its runtime, and {', '.join(absent)} is "
            f"not installed; install {EXTRA}"
        )


def export(
    checkpoint: Checkpoint,
    name: str,
    out: Path,
    precision: str = "fp32",
    texts: tuple[str, ...] = (),
    watch: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Writes a model into the new directory `out`, and returns the report of the comparison."""
    return export_source(ExportSource(checkpoint), name, out, precision, texts, watch)


def export_source(
    source: ExportSource,
    name: str,
    out: Path,
    precision: str = "fp32",
    texts: tuple[str, ...] = (),
    watch: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """The same for a source, which may become several exports."""
    chosen = target(name)
    check(source, chosen, precision)
    recover(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StorageError(f"{out} exists; give --out a directory that does not exist yet")
    begin = time.perf_counter()
    source.model.eval()
    with workplace(out, False, REPORT) as work:
        watch(f"converting to {name}")
        try:
            chosen.convert(source, work, precision)
        except RegardError:
            raise
        except Exception as error:  # converters have kinds of their own
            first = str(error).strip().partition("\n")[0]
            raise ExportDiffers(
                f"the converter of {name} fails on this model: {first}; nothing is kept"
            ) from error
        watch("comparing with the model")
        runtime = chosen.open(source, work, precision)
        result = compared(source, runtime, precision, chosen.tolerance(source), texts)
        files = sorted(file for file in work.rglob("*") if file.is_file())
        report = {
            "to": name,
            "precision": precision,
            "format": source.format,
            "files": {str(file.relative_to(work)): file.stat().st_size for file in files},
            "compared": result.table(),
            "seconds": round(time.perf_counter() - begin, 1),
        }
        write_text(work / REPORT, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return report | {"out": str(out)}
