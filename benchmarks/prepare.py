"""`regard prepare` compared with the bare `tokenizers` library, on the same documents, in one run.

    python benchmarks/prepare.py                                # 200 MB English, 50 MB Chinese
    python benchmarks/prepare.py --english 40 --chinese 10
    python benchmarks/prepare.py --data DIRECTORY --json result.json

Speed: everything `prepare` does with an existing tokenizer (look, read, cut, encode, write) against
`encode_batch` alone on documents in memory; in turn, the median of several. Memory: the peak of a
process that prepares the file and also trains the tokenizer. Each measurement has a separate
process. DIRECTORY (or REGARD_DATA) holds text/sotu.txt.gz and text/zh.txt.gz; without them English
is the built-in text and Chinese is made of random words.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

GOAL_RATIO, GOAL_MEMORY = 0.9, 2**30
RAW_BATCH = 2**22  # characters per call of the bare library; more only needs more memory


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


# -- the files


def english(data: Path | None) -> list[str]:
    file = data / "text" / "sotu.txt.gz" if data else None
    if file is not None and file.is_file():
        return gzip.decompress(file.read_bytes()).decode().split("\n\n")
    from regard.data.builtin import python_docs

    return ["\n".join(line for line in text.split("\n") if line.strip()) for text in python_docs()]


def chinese(data: Path | None) -> list[str]:
    file = data / "text" / "zh.txt.gz" if data else None
    if file is not None and file.is_file():
        lines = gzip.decompress(file.read_bytes()).decode().split("\n")
        return ["".join(line.split()) for line in lines if line.strip()]
    draw = np.random.default_rng(0)
    letters = [chr(0x4E00 + i) for i in range(3000)]
    lengths = draw.integers(1, 4, 20_000)
    words = ["".join(draw.choice(letters, many)) for many in lengths]
    ranks = draw.zipf(1.3, 500_000) % len(words)
    marks = draw.choice(["", "，", "。"], len(ranks), p=[0.85, 0.1, 0.05])
    text = "".join(words[rank] + mark for rank, mark in zip(ranks, marks, strict=True))
    return [text[start : start + 800] for start in range(0, len(text), 800)]


def permuted(documents: list[str], size: int) -> Iterator[str]:
    """Yields new documents from the same sentences, up to `size` bytes."""
    from regard.data.sentences import sentences

    parts = [sentence for document in documents for sentence in sentences(document)]
    each = max(1, len(parts) // len(documents))
    written = epoch = 0
    while True:
        order = np.random.default_rng([1, epoch]).permutation(len(parts))
        epoch += 1
        for start in range(0, len(order), each):
            text = "".join(parts[i] for i in order[start : start + each]).strip()
            text = text.replace("\n\n", "\n")
            written += len(text.encode())
            yield text
            if written >= size:
                return


def write(file: Path, documents: Iterator[str], between: str) -> None:
    with file.open("w", encoding="utf-8") as out:
        for document in documents:
            out.write(document + between)


# -- one measurement, in a process of its own


def step(kind: str, file: Path, split_by: str, tokenizer: str, out: Path) -> dict[str, float]:
    from regard.data.files import ReadCounts
    from regard.data.prepare import PreparePlan, prepare
    from regard.data.sources import SourceOptions, documents, find

    reading = SourceOptions(split_by=split_by)
    if kind == "raw":
        from tokenizers import Tokenizer

        pieces = documents(find([str(file)], reading, out.parent), reading, ReadCounts())
        batches: list[list[str]] = [[]]
        waiting = 0
        for piece in pieces:
            assert piece.ends, "the bare library wants whole documents"
            batches[-1].append(piece.text)
            waiting += len(piece.text)
            if waiting > RAW_BATCH:
                batches.append([])
                waiting = 0
        bare = Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json"))
        began = time.perf_counter()
        for batch in batches:
            bare.encode_batch(batch, add_special_tokens=False)
        seconds = time.perf_counter() - began
    else:
        began = time.perf_counter()
        prepare(PreparePlan((str(file),), out, reading, tokenizer=tokenizer, force=True))
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak": peak()}


def peak() -> int:
    """Returns the peak memory in bytes. getrusage would also count the parent process."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measured(*arguments: str) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__)), "--step", *arguments]
    root = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measure(name: str, file: Path, split_by: str, kind: str, repeats: int) -> dict[str, Any]:
    place = file.parent
    row: dict[str, Any] = {"case": name, "tokenizer": kind, "megabytes": file.stat().st_size / 1e6}
    whole = measured("whole", str(file), split_by, kind, str(place / "trained"))
    row.update(whole_seconds=whole["seconds"], peak_mib=whole["peak"] / 2**20)
    row["memory_reached"] = whole["peak"] < GOAL_MEMORY
    say(name, kind, row)
    if repeats:
        times: dict[str, list[float]] = {"prepare": [], "raw": []}
        for _ in range(repeats):
            for side, seconds in times.items():
                figures = measured(
                    side, str(file), split_by, str(place / "trained"), str(place / "o")
                )
                seconds.append(figures["seconds"])
                say(name, kind, side, figures)
        ours, raw = (statistics.median(times[side]) for side in ("prepare", "raw"))
        row.update(ours=row["megabytes"] / ours, raw=row["megabytes"] / raw, ratio=raw / ours)
        row["ratio_reached"] = row["ratio"] >= GOAL_RATIO
    return row


COLUMNS = {
    "case": ("case", "<18"),
    "tokenizer": ("tokenizer", "<10"),
    "megabytes": ("MB", ">7.1f"),
    "ours": ("ours MB/s", ">10.2f"),
    "raw": ("raw MB/s", ">9.2f"),
    "ratio": ("ratio", ">6.2f"),
    "whole_seconds": ("with training s", ">16.1f"),
    "peak_mib": ("peak MiB", ">9.0f"),
}


def table(rows: list[dict[str, Any]]) -> str:
    def plain(form: str) -> str:
        return form.split(".")[0]

    lines = [" ".join(format(head, plain(form)) for head, form in COLUMNS.values())]
    for row in rows:
        cells = [
            format(row[key], form) if key in row else format("-", plain(form))
            for key, (_, form) in COLUMNS.items()
        ]
        met = row["memory_reached"] and row.get("ratio_reached", True)
        lines.append(" ".join(cells) + ("" if met else "  goal missed"))
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--step"]:
        kind, file, split_by, tokenizer, out = sys.argv[2:]
        print(json.dumps(step(kind, Path(file), split_by, tokenizer, Path(out))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--english", type=int, default=200, metavar="MB")
    parser.add_argument("--chinese", type=int, default=50, metavar="MB")
    parser.add_argument("--tokenizers", nargs="*", default=["bytes-bpe"], metavar="KIND")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    data = Path(options.data) if options.data else None
    rows = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        files = {key: place / f"{key}.txt" for key in ("english", "chinese", "one-line")}
        write(files["english"], permuted(english(data), options.english * 10**6), "\n\n")
        write(files["chinese"], permuted(chinese(data), options.chinese * 10**6), "\n")
        write(files["one-line"], permuted(chinese(data), options.chinese * 10**6), "")
        for kind in options.tokenizers:
            for case, split_by, repeats in (
                ("english", "blank", options.repeats),
                ("chinese", "line", options.repeats),
                ("one-line", "line", 0),
            ):
                label = "chinese, one line" if case == "one-line" else case
                rows.append(measure(label, files[case], split_by, kind, repeats))
                shutil.rmtree(place / "trained")
    print(table(rows))
    if options.json:
        result = {"goals": {"ratio": GOAL_RATIO, "memory": GOAL_MEMORY}, "rows": rows}
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
