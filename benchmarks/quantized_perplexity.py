"""The perplexity of a trained GPT in few bits: ours beside llama.cpp's formats, on the same ids.

    regard prepare TEXT --out DATA
    regard train gpt DATA shape.width=512 --out RUN
    python benchmarks/quantized_perplexity.py RUN --data TEST.txt --calibrate TEXT \\
        --llama-quantize DIR/llama-quantize [--texts 64] [--json]

The model has the layout of GPT-2, and a width that 256 divides (Q4_K needs it). Windows of as many
tokens as the model reads at once are cut from the test text by the model's own tokenizer; both
sides read the same ids and predict every token but the first. llama.cpp's files are made from our
export in 32 bits by its own program, and opened by llama-cpp-python; without them only our rows are
measured. Calibrate on another text than the one that is tested.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from page import goal, table

from regard.api import LoadedModel, load
from regard.methods.quantize.run import Plan, quantize

OURS = {"ours, fp32": None, "ours, int8": ("int8", False), "ours, int4": ("int4", False),
        "ours, int4 calibrated": ("int4", True)}  # fmt: skip
THEIRS = {"llama.cpp, fp32": "F32", "llama.cpp, Q8_0": "Q8_0", "llama.cpp, Q4_K_M": "Q4_K_M",
          "llama.cpp, Q4_0": "Q4_0"}  # fmt: skip
Rows = Callable[[list[int]], np.ndarray]  # ids -> logits [tokens, V]


def windows(loaded: LoadedModel, text: str, most: int) -> list[list[int]]:
    """Cuts the text's ids into windows of the model's context."""
    assert loaded.tokenizer is not None
    ids, length = loaded.tokenizer.encode(text, special=False), loaded.config.context
    count = min(most, len(ids) // length)
    if not count:
        raise SystemExit(
            f"the text has {len(ids)} tokens, and a window has {length}; give a longer text"
        )
    return [ids[i * length : (i + 1) * length] for i in range(count)]


def perplexity(rows: Rows, texts: list[list[int]]) -> float:
    """Returns the perplexity of all tokens but the first of each window."""
    nats, count = 0.0, 0
    for ids in texts:
        logits = torch.from_numpy(rows(ids)[:-1]).double()
        targets = torch.tensor(ids[1:])
        nats += float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
        count += len(targets)
    return math.exp(nats / count)


def ours(directory: Path) -> Rows:
    model: Any = load(directory).model.eval()

    def rows(ids: list[int]) -> np.ndarray:
        with torch.inference_mode():
            logits: np.ndarray = model.logits(model(torch.tensor([ids]))[0]).numpy()
        return logits

    return rows


def theirs(run: Path, place: Path, program: Path) -> dict[str, tuple[Path, Rows]]:
    """Returns llama.cpp's files in its formats, and what reads them."""
    from regard.exports.base import ExportSample, ExportSource
    from regard.exports.gguf import FILES, Gguf, GgufRuntime

    source = ExportSource(load(run))
    plain = place / FILES["fp32"][0]
    Gguf().convert(source, place, "fp32")
    sides: dict[str, tuple[Path, Rows]] = {}
    for name, form in THEIRS.items():
        file = plain if form == "F32" else place / f"{form}.gguf"
        if file != plain:
            subprocess.run([program, plain, file, form], check=True, capture_output=True)
        runtime = GgufRuntime(source, file)
        sides[name] = (file, lambda ids, runtime=runtime: runtime.rows(ExportSample(ids)))  # type: ignore[misc]
    return sides


def measured(run: Path, data: Path, calibrate: Path, most: int, program: Path | None) -> Any:
    """Returns the bytes and the perplexity of every side."""
    texts = windows(load(run), data.read_text(encoding="utf-8"), most)
    report: dict[str, Any] = {}

    def add(name: str, size: int, rows: Rows) -> None:
        print(f"{name} …", file=sys.stderr, flush=True)
        report[name] = {"bytes": size, "perplexity": perplexity(rows, texts)}

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for number, (name, way) in enumerate(OURS.items()):
            directory = run
            if way is not None:
                directory, fitted = place / str(number), str(calibrate) if way[1] else None
                quantize(str(run), directory, Plan(kind=way[0], calibrate=fitted, repeats=0))
            size = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
            add(name, size, ours(directory))
        for name, (file, rows) in theirs(run, place, program).items() if program else ():
            add(name, file.stat().st_size, rows)
    return {"windows": len(texts), "tokens": sum(len(ids) - 1 for ids in texts), "sides": report}


def section(report: dict[str, Any]) -> str:
    sides = report["sides"]
    rows = [
        [name, f"{row['bytes'] / 1e6:,.1f}", f"{row['perplexity']:.3f}",
         f"{row['perplexity'] / sides['ours, fp32']['perplexity'] - 1:+.2%}"]
        for name, row in sides.items()
    ]  # fmt: skip
    text = table(["", "MB", "perplexity", "against fp32"], rows)
    if peer := sides.get("llama.cpp, Q4_K_M"):
        best = sides["ours, int4 calibrated"]["perplexity"]
        ratio = goal(f"{best / peer['perplexity']:.4f}", best <= peer["perplexity"])
        text += f"\n\n* ours, int4 calibrated / llama.cpp, Q4_K_M: {ratio} (goal: at most 1)"
    return text


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a trained GPT with GPT-2's layout")
    parser.add_argument("--data", type=Path, required=True, help="the text that is tested")
    parser.add_argument("--calibrate", type=Path, required=True, help="a text, one a line")
    parser.add_argument("--llama-quantize", type=Path, help="llama.cpp's program of this name")
    parser.add_argument("--texts", type=int, default=64, help="the most windows")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    report = measured(
        options.run, options.data, options.calibrate, options.texts, options.llama_quantize
    )
    print(json.dumps(report, indent=1) if options.json else section(report))


if __name__ == "__main__":
    main()
