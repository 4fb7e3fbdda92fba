"""GPT-2 124M, BERT base and Marian base with random weights: our own fp32, bf16 and int8 beside
onnxruntime, OpenVINO, CTranslate2 and llama.cpp, from the same directory, with 1 text and with 8.

    python benchmarks/exports.py --only-export    export first, and time later
    python benchmarks/exports.py                  at most 20 minutes on two cores after that
    python benchmarks/exports.py --only gpt2      one model; the others' figures stay
    python benchmarks/exports.py --tiny           small models: to try it

Models and exports stay in --kept, and each cell (a model, reading or writing, a number of texts)
in --out: a run that was stopped goes on where it was. An export is only timed after it was proven
equal (or, in int8, close). In a cell all sides read the same tokens, each in a process of its own
with the same number of threads; they take turns, and medians count. What is missing on this machine
is left out and named. The section is "runtimes" of docs/exports.md and its Chinese sister.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from exports_sides import BATCHES, ENCODED, FILE, OURS, PEERS, Sizes, computes, step, writes
from measure import Apart, interleaved, median
from page import cells, once, put, say, table

from regard.api import LoadedModel, load
from regard.core.errors import RegardError
from regard.core.seeding import seed_torch
from regard.data.vocabulary import train
from regard.exports.base import ExportDiffers, ExportSource
from regard.exports.run import REPORT, export_source
from regard.models import create, family_of

ROOT = Path(__file__).resolve().parent.parent
MODELS = {"gpt2": "gpt2", "bert": "bert-base-uncased", "marian": "transformer-base"}
TITLES = {"gpt2": "GPT-2 124M", "bert": "BERT base", "marian": "Marian base"}
TINY = {"width": 64, "heads": 2, "layers": 2, "vocab_size": 999}
FILES = tuple(dict.fromkeys((to, precision) for to, precision, _ in PEERS.values()))
CASES = tuple((case, count) for case in ("read", "write") for count in BATCHES)
PRECISIONS = {"fp32": ("fp32",), "bf16": ("bf16",), "int8": ("int8", "int8 dynamic", "Q8_0")}
PACKAGES = ("torch", "onnxruntime", "openvino", "ctranslate2", "llama-cpp-python")
WORDS = {
    "ours, fp32": "我们，fp32", "ours, bf16": "我们，bf16", "ours, int8": "我们，int8",
    "ours, int8 dynamic": "我们，int8 dynamic", "model": "模型", "precision": "精度",
    "side": "运行时", "read 1": "读取，1 条文本", "read 8": "读取，8 条文本",
    "write 1": "写出，1 条文本", "write 8": "写出，8 条文本",
    "threads": "线程", "versions": "版本", "left out": "未测量",
}  # fmt: skip
ENGLISH = {"read 1": "read, 1 text", "read 8": "read, 8 texts", "write 1": "written, 1 text",
           "write 8": "written, 8 texts"}  # fmt: skip
Say = Callable[[str], str]


def in_english(words: str) -> str:
    return ENGLISH.get(words, words)


def in_chinese(words: str) -> str:
    return WORDS.get(words, words)


# -- the models and their exports


def model_in(place: Path, name: str, tiny: bool) -> Path:
    """Saves a model with random weights and a small tokenizer that every target can express."""
    directory = place / name
    if (directory / "config.json").is_file():
        return directory
    seed_torch(0, "weights")
    model: Any = create(MODELS[name], **(TINY if tiny else {}))
    if name == "bert":  # without the heads of its pre-training, which not every target can hold
        model = family_of("bert").model(model.config, {"pool": 0}).initialize()  # type: ignore[call-arg]
    words = train("gpt2-bpe", ["a few words for a tokenizer " * 9], vocab_size=None, lower=None,
                  marks=0)  # fmt: skip
    return LoadedModel(model.eval(), words).save(directory)


def versions() -> dict[str, str]:
    """Returns the versions of the runtimes that are installed."""
    table = {}
    for name in PACKAGES:
        try:
            table[name] = version(name)
        except PackageNotFoundError:
            continue
    return table


def exported(name: str, place: Path, tiny: bool) -> tuple[dict[FILE, Path], dict[FILE, str]]:
    """Exports a model to every target; what an earlier call has proven, or found to differ, is not
    tried again with the same runtimes. Returns the directories, and why others are missing."""
    directory = model_in(place, name, tiny)
    sources: list[ExportSource] = []
    proven, missing = {}, {}

    def outcome(to: str, precision: str, out: Path) -> dict[str, str]:
        sources[:] = sources or [ExportSource(load(directory))]
        try:
            say(f"{name}: exporting to {to}, {precision} …")
            export_source(sources[0], to, out, precision)
        except ExportDiffers as error:
            return {"because": str(error)}
        return {}

    for to, precision in FILES:
        out = place / f"{name}-{to}-{precision}"
        try:
            differs: dict[str, Any] = {}
            if not (out / REPORT).is_file():
                differs = once(out.with_suffix(".json"), partial(outcome, to, precision, out),
                               {"runtimes": versions()})  # fmt: skip
            if "because" in differs:
                missing[to, precision] = differs["because"]
            else:
                proven[to, precision] = out
        except RegardError as error:
            missing[to, precision] = str(error)
    return proven, missing


# -- measuring


def sides_of(name: str, case: str, proven: dict[FILE, Path]) -> list[str]:
    """Returns the sides that can take part in a case."""
    own = [side for side in OURS if name != "bert" or side in ENCODED]
    peers = [side for side, (to, of, _) in PEERS.items() if (to, of) in proven and computes(side)]
    return [side for side in own + peers if case == "read" or writes(side, name)]


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings that all cells of a page share."""
    names = ("rows", "prompt", "new", "threads", "repeats")
    return {name: getattr(options, name) for name in names} | {"runtimes": versions()}


def measure(name: str, options: argparse.Namespace) -> None:
    """Times all sides of a model in turn, in every case that has no cell of these settings."""
    place = options.kept / ("tiny" if options.tiny else "full")
    proven, missing = exported(name, place, options.tiny)
    for (to, precision), reason in missing.items():
        say(f"{name} to {to}, {precision} is left out: {reason}")
    if options.only_export:
        return
    sizes = Sizes(options.rows, options.prompt, options.new, options.threads)
    with ExitStack() as stack:
        running: dict[str, Apart] = {}

        def process(side: str) -> Apart:
            """Opens a side when it is first needed; one at a time, for the sake of the memory."""
            if side not in running:
                say(f"{name}: opening {side} …")
                files = None if side in OURS else proven[PEERS[side][:2]]
                running[side] = Apart(step, side, place / name, files, sizes, keep=True)
                stack.callback(running[side].close)
                running[side].ask("memory")  # waits until it is open
            return running[side]

        def timed(case: str, count: int, sides: list[str]) -> dict[str, Any]:
            steps = {side: partial(process(side), case, count) for side in sides}
            say(f"{name}: {case}, {count} …")
            seconds = interleaved(steps, options.repeats, warmup=1)
            tokens = count * (options.rows if case == "read" else options.new)
            speeds = {side: tokens / median(times) for side, times in seconds.items()}
            left_out = {" ".join(key): reason for key, reason in missing.items()}
            return {"model": name, "case": case, "count": count, "seconds": seconds,
                    "tokens_per_second": speeds, "missing": left_out}  # fmt: skip

        for case, count in CASES:
            sides = sides_of(name, case, proven)
            if case == "read" or name != "bert":
                file = options.out / f"{name}-{case}-{count}.json"
                settings = settings_of(options) | {"sides": sides}
                once(file, partial(timed, case, count, sides), settings)


# -- the page


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns for every cell and precision the ratio of our best side to the best of the others."""
    results = []
    for row in rows:
        for precision, names in PRECISIONS.items():
            speeds = {side: speed for side, speed in row["tokens_per_second"].items()
                      if side.partition(", ")[2] in names}  # fmt: skip
            own = [speed for side, speed in speeds.items() if side in OURS]
            peers = [side for side in speeds if side not in OURS]
            if own and peers:
                best = max(peers, key=speeds.__getitem__)
                results.append({"model": row["model"], "case": row["case"], "count": row["count"],
                                "precision": precision, "peer": best.partition(",")[0],
                                "ratio": max(own) / speeds[best]})  # fmt: skip
    return results


def section(rows: list[dict[str, Any]], language: Say) -> str:
    """Returns the tables of all sides and of the ratios, and what was left out."""
    by_case = {(row["model"], f"{row['case']} {row['count']}"): row for row in rows}
    models = [name for name in MODELS if any(model == name for model, _ in by_case)]
    heads = [f"{case} {count}" for case, count in CASES]
    speeds, compared = [], []
    for name in models:
        cases = [by_case.get((name, head), {}).get("tokens_per_second", {}) for head in heads]
        for side in (*OURS, *PEERS):
            if any(side in case for case in cases):
                shown = [f"{case[side]:,.0f}" if side in case else "–" for case in cases]
                speeds.append([TITLES[name], language(side), *shown])
    for name in models:
        for precision in PRECISIONS:
            line = {
                f"{row['case']} {row['count']}": f"{row['ratio']:.2f} ({row['peer']})"
                for row in ratios(rows)
                if (row["model"], row["precision"]) == (name, precision)
            }
            if line:
                compared.append([TITLES[name], precision, *(line.get(head, "–") for head in heads)])
    settings = rows[0]["settings"]
    runtimes = ", ".join(f"{name} {number}" for name, number in settings["runtimes"].items())
    lines = [f"* {language('threads')}: {settings['threads']}; {language('versions')}: {runtimes}"]
    for name in models:
        cases = [row for row in rows if row["model"] == name]
        if missing := sorted({what for row in cases for what in row["missing"]}):
            lines.append(f"* {TITLES[name]}, {language('left out')}: {'; '.join(missing)}")
    titles = [language(head) for head in heads]
    return "\n\n".join([
        table([language("model"), language("side"), *titles], speeds),
        table([language("model"), language("precision"), *titles], compared),
        "\n".join(lines),
    ])  # fmt: skip


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rows", type=int, default=128, help="tokens of a text that is read")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of a text that is continued")
    parser.add_argument("--new", type=int, default=32, help="tokens that are written")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of every side")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--kept", type=Path, default=ROOT / "results" / "exports" / "kept")
    parser.add_argument("--only-export", action="store_true", help="time nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "exports" / "cells")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "exports.md")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args(words)
    if options.tiny:
        options.out /= "tiny"
    for name in options.only:
        measure(name, options)
    if options.only_export:
        return
    shared = settings_of(options)
    rows = cells(options.out, lambda row: shared | {"sides": row["settings"].get("sides")})
    if not options.tiny:
        for page, language in (
            (options.page, in_english),
            (options.page.with_suffix(".zh.md"), in_chinese),
        ):
            put("runtimes", section(rows, language), page)
    print(json.dumps(rows, indent=1) if options.json else section(rows, in_english))


if __name__ == "__main__":
    main()
