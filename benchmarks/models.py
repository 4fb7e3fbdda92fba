"""Every model compared with its peer, in one run, as ratios.

    python benchmarks/models.py                        # all of it, about half an hour
    python benchmarks/models.py gpt2 bert --repeats 3  # some
    python benchmarks/models.py --json results/models.json
    python benchmarks/models.py transformer-xl --peer-python .venv-golden/bin/python

For each model a training step (forward, backward, fused AdamW) and a forward pass, in fp32 and
bf16, ours and Hugging Face's in turn on the same weights and tokens, each in a separate process;
the median of several, peak memory, and the share of the machine's own matrix-product peak as
measured in this run. Both processes keep the memory they free, as `regard train` does, so that the
allocator is no part of a ratio. Transformer-XL's peer is transformers 4.35.2 in a separate
environment (`make golden` builds it). The banded GPT-3 and the LSTM have no peer; they are compared
with our dense GPT. The file of --json keeps the rows of earlier runs that this run does not measure
again; scripts/speed.py makes the table of docs/speed.md from it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, build
from measure import Apart, gemm_peak, interleaved, median, slope
from other_process import OtherProcess
from page import replace

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
GOALS = {"xlnet": 2.0, "longformer": 2.0}  # the goal of the ratio, where it is a special one
RATIO = {"fp32": 1.2, "bf16": 1.3}  # the goal of all others, or …
SHARE = {"fp32": 0.85, "bf16": 0.78}  # … this share of the peak


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def steps_of(name: str, kind: str, dtype: torch.dtype, peer_python: str | None) -> dict[str, Any]:
    """Returns our step and the peer's, on the same weights, each in a separate process."""
    case = CASES[name]
    steps: dict[str, Any] = {"ours": Apart(build, name, "ours", kind, dtype, keep=True)}
    if name.startswith("transformer-xl") and peer_python:
        try:
            steps["peer"] = OtherProcess(peer_python, case.model(), kind, dtype, case)
            steps["peer"]()
        except RuntimeError as error:
            say(f"{name} {kind} {dtype}: {error}")
            del steps["peer"]
    elif (case.peer if kind == "train" else case.forward_peer) is not None:
        steps["peer"] = Apart(build, name, "peer", kind, dtype, keep=True)
    return steps


def compare(
    name: str, kind: str, label: str, repeats: int, peer_python: str | None, peak: float
) -> dict[str, Any]:
    case, dtype = CASES[name], DTYPES[label]
    steps = steps_of(name, kind, dtype, peer_python)
    times = interleaved(steps, repeats)
    row: dict[str, Any] = {"model": name, "kind": kind, "precision": label, "tokens": case.tokens}
    row |= {"repeats": repeats, "gemm_peak": peak}
    for side, values in times.items():
        row[f"{side}_tokens_per_second"] = case.tokens / median(values)
        row[f"{side}_peak_mib"] = steps[side].ask("memory") / 2**20
    row["share_of_peak"] = steps["ours"].ask("operations") / median(times["ours"]) / peak
    if "peer" in times:
        row["ratio"] = median(times["peer"]) / median(times["ours"])
        row["goal"] = GOALS.get(name, RATIO[label])
        enough = name not in GOALS and row["share_of_peak"] >= SHARE[label]
        row["reached"] = row["ratio"] >= row["goal"] or enough
        if "peer_peak_mib" in row:
            row["memory_reached"] = row["ours_peak_mib"] <= row["peer_peak_mib"]
    for step in steps.values():
        step.close()
    return row


def growth(repeats: int) -> dict[str, Any]:
    """Measures Longformer's time and memory against length and window; a slope of 1 is linear."""
    report: dict[str, Any] = {}
    lengths = [2048, 4096, 8192, 16384, 32768]
    config = {"context": max(lengths), "vocab_size": 1000}
    name = ("longformer", "ours")
    for kind in ("forward", "train"):
        times, memory = [], []
        for length in lengths:
            parts = (kind, torch.float32, config, length)
            step = Apart(build, *name, *parts, keep=True)
            times.append(median(interleaved({"ours": step}, repeats, 1)["ours"]))
            memory.append(step.ask("memory"))
            step.close()
            say(f"{kind} of {length}: {times[-1]:.2f} s, {memory[-1] / 2**20:.0f} MiB")
        report[kind] = {
            "lengths": lengths,
            "seconds": times,
            "bytes": memory,
            "time_slope": slope(lengths, times),
            "memory_slope": slope(lengths, [float(m) for m in memory]),
        }
    steps = {
        str(w): Apart(build, *name, "train", torch.float32, config | {"window": w}, 4096, keep=True)
        for w in (64, 128, 256, 512)
    }
    report["window_seconds"] = {w: median(v) for w, v in interleaved(steps, repeats, 1).items()}
    for step in steps.values():
        step.close()
    return report


COLUMNS = {
    "model": ("model", "<15"),
    "kind": ("step", "<8"),
    "precision": ("", "<5"),
    "ours_tokens_per_second": ("ours tok/s", ">11,.0f"),
    "peer_tokens_per_second": ("peer tok/s", ">11,.0f"),
    "ratio": ("ratio", ">6.2f"),
    "share_of_peak": ("of peak", ">8.0%"),
    "ours_peak_mib": ("ours MiB", ">9,.0f"),
    "peer_peak_mib": ("peer MiB", ">9,.0f"),
}


def table(rows: list[dict[str, Any]]) -> str:
    def width(form: str) -> str:
        return form[0] + form[1:].split(",")[0].split(".")[0]

    lines = [" ".join(format(head, width(form)) for head, form in COLUMNS.values())]
    for row in rows:
        cells = [
            format(row[key], form) if key in row else format("-", width(form))
            for key, (_, form) in COLUMNS.items()
        ]
        missed = row["kind"] == "train" and not row.get("reached", True)
        lines.append(" ".join(cells) + ("  goal missed" if missed else ""))
    return "\n".join(lines)


def keep(file: Path, result: dict[str, Any]) -> None:
    """Writes the result, and the rows of the file that were not measured again."""

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return row["model"], row["kind"], row["precision"]

    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"rows": []}
    rows = {key(row): row for row in (*before["rows"], *result["rows"])}
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(before | result | {"rows": list(rows.values())}, indent=2)
    replace(file, text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help=f"some of {', '.join(CASES)} (default: all)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--precision", nargs="*", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument(
        "--kinds", nargs="*", choices=["train", "forward"], default=["train", "forward"]
    )
    parser.add_argument(
        "--peer-python", help="an interpreter with transformers 4.35.2, for Transformer-XL"
    )
    parser.add_argument(
        "--no-growth", action="store_true", help="leave out Longformer's growth with the length"
    )
    parser.add_argument("--json", type=Path, help="write the figures here, beside earlier rows")
    options = parser.parse_args()
    unknown = [name for name in options.models if name not in CASES]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; known are {', '.join(CASES)}")
    peaks = {label: gemm_peak(DTYPES[label]) for label in options.precision}
    say({label: f"{value / 1e9:.0f} GFLOP/s" for label, value in peaks.items()})
    rows = []
    for name in options.models or CASES:
        for kind in options.kinds:
            for label in options.precision:
                rows.append(
                    compare(
                        name,
                        kind,
                        label,
                        options.repeats,
                        options.peer_python,
                        peaks[label],
                    )
                )
                say(table(rows[-1:]).splitlines()[1])
    result: dict[str, Any] = {"gemm_peak": peaks, "threads": torch.get_num_threads(), "rows": rows}
    if not options.no_growth and (not options.models or "longformer" in options.models):
        result["growth"] = growth(options.repeats)
        for kind in ("forward", "train"):
            slopes = {k: f"{v:.2f}" for k, v in result["growth"][kind].items() if "slope" in k}
            say(f"longformer {kind}: {slopes}")
        say("longformer seconds a step by window:", result["growth"]["window_seconds"])
    print(table(rows))
    if options.json:
        keep(options.json, result)


if __name__ == "__main__":
    main()
