"""A share of the BabyLM setting, and how long the whole would take: 10 million words, ten passes.

    python benchmarks/babylm.py --data TEXT [--families gpt bert] [--minutes 5] [--pairs FILE...]
        [--page docs/results.md] [--json]

Each family learns by `regard train FAMILY TEXT --config babylm-10m` for some minutes instead of ten
passes; TEXT is prepared, or a file. From the words that it reads in a second follows how long ten
passes over 10 million words take here: an extrapolation, and marked as one. With --pairs (files
like those of BLiMP) the models that were saved on the way are asked which sentence they prefer.
Each family is one cell in OUT/cells, which is not measured again; --page puts the table into the
section "babylm" of a page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learn import name_of, prepared
from page import once, put_both, say, table

from regard.data.corpus import read_marker
from regard.models import FAMILIES

WORDS, PASSES = 10_000_000, 10
SAVED = [n * 10**5 for n in (1, 2, 5, 10, 20, 50)]  # words after which a model of a share is saved


def regard(words: Sequence[str], threads: int) -> dict[str, Any]:
    """Runs a command of ours in a process of its own, and returns what it reports."""
    env = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "regard", *words, "--json"]
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def measure(data: Path, family: str, options: argparse.Namespace) -> dict[str, Any]:
    """Trains a family for the minutes, and asks the saved models for the pairs."""
    run = options.out / "runs" / f"{data.name}-{family}"
    words = ["train", family, str(data), "--config", "babylm-10m", "--out", str(run), "--quiet",
             "--minutes", f"{options.minutes:g}", f"engine.threads={options.threads}",
             f"checkpoint.at_words={json.dumps(SAVED)}"]  # fmt: skip
    say(f"{family}: {options.minutes:g} minutes")
    facts = regard(words, options.threads)
    train = read_marker(data)["splits"]["train"]
    progress = facts["progress"]
    read = progress["tokens"] * train["words"] / train["tokens"]
    metric, value = next(iter(facts["valid"].items()))
    saved = sorted(run.glob("words-*"), key=lambda place: place.stat().st_mtime_ns)
    pairs = {
        place.name.removeprefix("words-"): regard(
            ["evaluate", str(place), "--pairs", *map(str, options.pairs), "--out",
             str(options.out / "pairs" / f"{run.name}-{place.name}"), "--quiet"],
            options.threads,
        )["figures"]["macro_accuracy"]
        for place in (saved if options.pairs else [])
    }  # fmt: skip
    return {
        "parameters": facts["model"]["parameters"], "steps": progress["step"], "words": read,
        "seconds": progress["seconds"], "metric": metric, "value": value, "pairs": pairs,
    }  # fmt: skip


def hours(cell: dict[str, Any]) -> float:
    """Returns how long ten passes over 10 million words take at the speed of the cell."""
    return float(PASSES * WORDS / cell["words"] * cell["seconds"] / 3600)


def in_words(cells: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            cell["family"], f"{cell['parameters'] / 1e6:.1f} M", f"{cell['words'] / 1e6:.2f} M",
            f"{cell['seconds'] / 60:.1f}",
            f"{cell['metric'].replace('_', ' ')} {cell['value']:.3f}",
            ", ".join(f"{words}: {share:.1%}" for words, share in cell["pairs"].items()),
            f"{hours(cell):.1f} (extrapolated)",
        ]
        for cell in cells
    ]  # fmt: skip
    heads = ["family", "parameters", "words read", "minutes", "then", "minimal pairs",
             "hours for ten passes over 10 M words"]  # fmt: skip
    return table(heads, rows)


def section(cells: Sequence[dict[str, Any]], options: argparse.Namespace) -> str:
    return f"""## BabyLM: a share of the 10-million-word setting

Made by `python benchmarks/babylm.py` on {options.threads} cores with {name_of(str(options.data))},
which is not the corpus of BabyLM: each family learned by `--config babylm-10m` for
{options.minutes:g} minutes instead of ten passes. The hours of the whole are extrapolated from its
speed; nothing else in this table is.

{in_words(cells)}
"""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="a text, or a directory of 'regard prepare'")
    parser.add_argument("--families", nargs="+", default=["gpt", "bert"], choices=list(FAMILIES))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--pairs", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("results", "babylm"))
    parser.add_argument("--page", type=Path, help="a page of results, such as docs/results.md")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    ready = Path(options.data, "data.json").is_file()
    data = Path(options.data) if ready else prepared(options.data, options.out)
    settings = {"minutes": options.minutes, "threads": options.threads, "data": str(options.data),
                "pairs": list(map(str, options.pairs))}  # fmt: skip
    cells = []
    for family in options.families:
        file = options.out / "cells" / f"{data.name}-{family}.json"
        cell = once(file, lambda family=family: measure(data, family, options), settings)  # type: ignore[misc]
        cells.append({"family": family, **cell, "extrapolated_hours": hours(cell)})
    if options.page:
        put_both("babylm", section(cells, options), options.page)
    print(json.dumps(cells, indent=1) if options.json else in_words(cells))


if __name__ == "__main__":
    main()
