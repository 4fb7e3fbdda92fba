"""Encoders that read texts of mixed lengths, beside onnxruntime, OpenVINO and CTranslate2.

    python benchmarks/encode.py [--models bert,roberta,longformer] [--precision fp32 bf16 int8]
    python benchmarks/encode.py --json results/encode.json
    python benchmarks/encode.py --tiny                    small models: to try it

All sides have the same random weights, exported by `regard export`, and read the same tokens: one
text at a time ("1"), batches of 32 texts in the order of their arrival ("mixed"), and batches of 32
of texts that were sorted by length before ("sorted", which only the peers need: ours reads no
padding). Every side stands in a process of its own; the sides take turns, and medians are reported.
Goals: 1.3 times the best peer of the same precision with mixed batches, 1.1 times the best one
with sorted batches, and no less than the best one with single texts. The file of --json keeps what
was measured before; scripts/speed.py makes a table of docs/speed.md from it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from measure import Apart, interleaved, median
from page import replace

from regard.api import LoadedModel, load
from regard.core.errors import RegardError
from regard.core.seeding import seed_torch
from regard.data.batching import padded
from regard.data.vocabulary import train
from regard.exports.base import ExportSource
from regard.exports.run import export
from regard.models import FAMILIES
from regard.models.extensions import extend
from regard.models.packed import packed
from regard.tasks.inference import batches_of, side_by_side

MODELS = {"bert": "bert-base-uncased", "roberta": "roberta-base",
          "longformer": "longformer-base-4096"}  # fmt: skip
TINY = {"width": 64, "heads": 2, "layers": 2, "vocab_size": 999}
PRECISIONS = ("fp32", "bf16", "int8")
PEERS = ("onnx", "openvino", "ctranslate2")
PACKAGES = {"onnx": "onnxruntime", "openvino": "openvino", "ctranslate2": "ctranslate2"}
BATCH = 32
TEXTS, SINGLE = 96, 12  # the texts of the batches, and those that are read one at a time
MEDIAN, SPREAD, SHORTEST, LONGEST = 48, 0.8, 8, 384  # of the lengths, which are log-normal
LONGER = 8  # so many times longer texts for a Longformer, and so many times fewer
GOALS = {"mixed": 1.3, "sorted": 1.1, "1": 1.0}
Rows = list[list[int]]
Read = Callable[[Rows], Any]


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def model_in(place: Path, name: str, tiny: bool) -> Path:
    """Saves an encoder with random weights and a small tokenizer, which CTranslate2 asks for."""
    seed_torch(0, "weights")
    changes: dict[str, Any] = dict(TINY) if tiny else {}
    if tiny and name == "longformer":
        changes["window"] = 32
    card = FAMILIES[name]
    config = card.sizes[MODELS[name]].replace(**changes)
    model = card.model(config, {"pool": 0}).initialize().eval()  # type: ignore[call-arg]
    words = train("gpt2-bpe", ["a few words for a tokenizer " * 9], vocab_size=None, lower=None,
                  marks=0)  # fmt: skip
    return LoadedModel(model, words).save(place / name)


def texts_for(name: str, count: int, vocab_size: int) -> Rows:
    """Returns texts of random tokens whose lengths are as mixed as those of real texts."""
    dice = np.random.default_rng(0)
    times = LONGER if name == "longformer" else 1
    lengths = np.exp(dice.normal(np.log(MEDIAN), SPREAD, max(1, count // times)))
    sizes = np.clip(lengths, SHORTEST, LONGEST).astype(int) * times
    return [dice.integers(10, vocab_size, size).tolist() for size in sizes]


# -- the sides: each function returns what reads a list of texts at once


def ours(directory: Path, precision: str) -> Read:
    model = load(directory).model
    if precision == "int8":
        extend(model, "int8", {"kind": "dynamic"})
    quick = packed(model, "bf16" if precision == "bf16" else "fp32")
    first = "global_tokens" in model.accepts

    def read(rows: Rows) -> Any:
        def part(places: list[int]) -> torch.Tensor:
            ids, mask = padded([np.array(rows[place]) for place in places], 1)
            more = {"global_tokens": torch.zeros(len(ids), 1, dtype=torch.long)} if first else {}
            with torch.no_grad():
                hidden: torch.Tensor = quick(torch.from_numpy(ids), torch.from_numpy(mask), **more)
            return hidden

        batches = batches_of(np.array([len(row) for row in rows]), model.device)
        return list(side_by_side(part, batches, model.device))  # as `embed` and `predict` do

    return read


def filled(rows: Rows, pad: int = 1) -> dict[str, np.ndarray]:
    ids = np.full((len(rows), max(map(len, rows))), pad, np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    first = np.zeros_like(ids, dtype=bool)
    first[:, 0] = True
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids),
            "global_tokens": first}  # fmt: skip


def onnx(directory: Path, precision: str) -> Read:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        next(directory.glob("*.onnx")), options, providers=["CPUExecutionProvider"]
    )
    kinds = {node.name: node.type for node in session.get_inputs()}

    def read(rows: Rows) -> Any:
        inputs = filled(rows)
        return session.run(None, {k: inputs[k].astype(TYPES[kinds[k]]) for k in kinds})

    return read


TYPES = {"tensor(int64)": np.int64, "tensor(bool)": np.bool_}


def openvino(directory: Path, precision: str) -> Read:
    import openvino as ov

    hint = {"bf16": "bf16"}.get(precision, "f32")
    settings = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = ov.Core().compile_model(next(directory.glob("*.[ox][nm][nl]*")), "CPU", settings)
    names = [port.get_any_name() for port in compiled.inputs]
    kinds = {port.get_any_name(): port.element_type.to_dtype() for port in compiled.inputs}

    def read(rows: Rows) -> Any:
        inputs = filled(rows)
        return compiled({name: inputs[name].astype(kinds[name]) for name in names})[0]

    return read


def ctranslate2(directory: Path, precision: str) -> Read:
    import ctranslate2 as ct

    kind = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}[precision]
    encoder = ct.Encoder(str(directory), device="cpu", compute_type=kind, inter_threads=1,
                         intra_threads=torch.get_num_threads())  # fmt: skip

    def read(rows: Rows) -> Any:
        return np.array(encoder.forward_batch(rows).last_hidden_state.to(ct.DataType.float32))

    return read


SIDES: dict[str, Callable[[Path, str], Read]] = {
    "ours": ours, "onnx": onnx, "openvino": openvino, "ctranslate2": ctranslate2,
}  # fmt: skip


def step(side: str, directory: Path, precision: str, batches: list[Rows]) -> Callable[[], None]:
    """Returns a step that reads all batches, one after the other."""
    read = SIDES[side](directory, precision)

    def run() -> None:
        for rows in batches:
            read(rows)

    return run


# -- measuring


def versions() -> dict[str, str]:
    """Returns the versions of the peers' packages; those that are not installed are left out."""
    installed = {}
    for peer, package in PACKAGES.items():
        try:
            installed[peer] = version(package)
        except PackageNotFoundError:
            say(f"{package} is not installed, so {peer} is not measured: pip install {package}")
    return installed


def exported(
    directory: Path, name: str, place: Path, among: Iterable[str]
) -> dict[tuple[str, str], Path]:
    """Returns the directory of each of these peers and precision that can hold the model."""
    loaded, places = load(directory), {}
    for peer in among:
        for precision in ("fp32", "int8"):
            of, out = "onnx" if (peer, precision) == ("openvino", "int8") else peer, None
            out = place / f"{name}-{of}-{precision}"
            try:
                if not out.is_dir():
                    export(loaded, of, out, precision)
                places[peer, precision] = out
            except RegardError as error:
                say(f"{name} {peer} {precision} is left out: {error}")
    places |= {(p, "bf16"): places[p, "fp32"] for p in PEERS[1:] if (p, "fp32") in places}
    return places


def measure(
    name: str, precision: str, place: Path, options: Any, among: Iterable[str]
) -> list[dict[str, Any]]:
    directory = model_in(place, name, options.tiny)
    peers = exported(directory, name, place, among)
    vocab_size = ExportSource(load(directory)).config.vocab_size
    texts = texts_for(name, TEXTS, vocab_size)
    ordered = sorted(texts, key=len)
    size = max(1, BATCH // LONGER) if name == "longformer" else BATCH
    groups = {
        "mixed": [texts[i : i + size] for i in range(0, len(texts), size)],
        "sorted": [ordered[i : i + size] for i in range(0, len(ordered), size)],
        "1": [[text] for text in texts[:SINGLE]],
    }
    seconds: dict[str, dict[str, float]] = {}
    for kind, batches in groups.items():
        steps: dict[str, Any] = {}
        for side in ("ours", *PEERS):
            if side != "ours" and (side, precision) not in peers:
                continue
            where = directory if side == "ours" else peers[side, precision]
            try:
                steps[side] = Apart(step, side, where, precision, batches, keep=True)
                steps[side]()
            except RuntimeError as error:
                say(f"{name} {side} {precision} is left out: {error}")
                steps.pop(side, None)
        times = interleaved(steps, options.repeats, 1)
        seconds[kind] = {side: median(values) for side, values in times.items()}
        for one in steps.values():
            one.close()
    return [row_of(name, precision, kind, seconds, groups, options.repeats) for kind in groups]


def row_of(
    name: str,
    precision: str,
    kind: str,
    seconds: dict[str, dict[str, float]],
    groups: dict[str, list[Rows]],
    repeats: int,
) -> dict[str, Any]:
    """Returns one line: tokens per second of each side, and our ratio to the best peer. Sorting
    does not matter to us, so our figure beside sorted batches is the better of our two."""
    tokens = sum(len(row) for batch in groups[kind] for row in batch)
    mine = dict(seconds[kind])
    if kind == "sorted":
        mine["ours"] = min(seconds["sorted"]["ours"], seconds["mixed"]["ours"])
    speeds = {side: tokens / time for side, time in mine.items()}
    best = max((side for side in speeds if side != "ours"), key=speeds.__getitem__, default=None)
    row: dict[str, Any] = {"model": name, "precision": precision, "batch": kind, "tokens": tokens,
                           "repeats": repeats, "tokens_per_second": speeds}  # fmt: skip
    if best is not None:
        ratio = speeds["ours"] / speeds[best]
        row |= {"best": best, "ratio": ratio, "goal": GOALS[kind], "reached": ratio >= GOALS[kind]}
    say(f"{name} {precision} {kind:<7}", *(f"{s} {v:,.0f}" for s, v in speeds.items()),
        f"ratio {row.get('ratio', 0):.2f} of {row.get('goal', 0)}")  # fmt: skip
    return row


def keep(file: Path, rows: list[dict[str, Any]], installed: dict[str, str]) -> None:
    """Writes the rows, and those of the file that were not measured again."""

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return row["model"], row["precision"], row["batch"]

    before = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.is_file() else []
    table = {key(row): row for row in (*before, *rows)}
    runtimes = {"torch": torch.__version__} | {PACKAGES[p]: v for p, v in installed.items()}
    facts = {"runtimes": runtimes, "threads": torch.get_num_threads(), "rows": [*table.values()]}
    file.parent.mkdir(parents=True, exist_ok=True)
    replace(file, json.dumps(facts, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precision", nargs="*", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--place", type=Path, help="keep the exports here for the next run")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures here, beside earlier rows")
    options = parser.parse_args()
    installed = versions()
    with tempfile.TemporaryDirectory() as scratch:
        place = options.place or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        for name in options.models.split(","):
            for precision in options.precision:
                rows = measure(name, precision, place, options, installed)
                if options.json:
                    keep(options.json, rows, installed)


if __name__ == "__main__":
    main()
