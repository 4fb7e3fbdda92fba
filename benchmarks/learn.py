"""The board: what is learned in equal minutes on equal cores, ours beside others.

    python benchmarks/learn.py --minutes 1 3 --nanogpt ~/nanoGPT [--data builtin:python-docs a.txt]

Our families learn by their default commands (`regard train FAMILY DATA --minutes M`). Beside them
stand nanoGPT by its own recipe for a CPU (give its clone; nothing in it is changed), Hugging Face's
Trainer with a GPT-2 and a BERT of our shape and tokenizer and its usual settings, and the 5-gram of
the same text. One thing runs at a time. Each result is a file in OUT/cells: what is there is not
measured again, so a board that was stopped goes on (--most 1 measures one cell more). Models that
read from left to right are compared in bits per byte of the validation text, models that fill
blanks by the share of hidden words that they guess. OUT/curves.html shows the curves,
OUT/board.json has everything; --page puts the table into the section "board" of a page, and the
cells beside it (results/board.jsonl).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from learn_sides import OTHERS, TRAINERS, Job, learn
from page import goal, in_process, once, put_both, replace, say, spread, table
from script import write_cell

from regard.models import FAMILIES
from regard.report import notebook
from regard.report.drawings import Curves

Cell = dict[str, Any]
BITS = "bits_per_byte"
USUAL = ["gpt", "transformer-xl", "llama", "bert"]
ONCE = ("ngram", "nanogpt")  # whose result does not depend on the seed
RIVALS = {"gpt": ("nanogpt", "trainer-gpt2"), "bert": ("trainer-bert",)}
GOALS = {"nanogpt": 0.92, "trainer-gpt2": 0.85}  # the most of a rival's bits per byte


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["builtin:python-docs"], metavar="TEXT")
    parser.add_argument("--minutes", nargs="+", type=float, default=[1.0, 3.0], metavar="M")
    parser.add_argument("--families", nargs="*", default=USUAL, metavar="FAMILY")
    parser.add_argument("--others", nargs="*", default=list(OTHERS), metavar="SIDE",
                        help=f"some of {', '.join(OTHERS)}")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--size", default="", help="of our models; else what the command chooses")
    parser.add_argument("--most", type=int, default=-1, metavar="N",
                        help="measure at most N of the missing cells")  # fmt: skip
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--nanogpt", type=Path, help="the directory of a clone of nanoGPT")
    parser.add_argument("--out", type=Path, default=Path("results", "learn"))
    parser.add_argument("--page", type=Path, help="a page of results, such as docs/results.md")
    parser.add_argument("--json", action="store_true", help="print the board as JSON")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    return parser


def checked(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the options; refuses what would be noticed only after an hour."""
    of = parser()
    options = of.parse_args(words)
    for name, known, chosen in (("family", list(FAMILIES), options.families),
                                ("side", list(OTHERS), options.others)):  # fmt: skip
        if unknown := [each for each in chosen if each not in known]:
            of.error(f"unknown {name} {unknown[0]!r}; known are {', '.join(known)}")
    if min(*options.minutes, options.seeds, options.threads) <= 0:
        of.error("--minutes, --seeds and --threads must be above 0")
    for text in options.data:
        if not text.startswith("builtin:") and not Path(text).exists():
            of.error(f"--data: there is no {text}; give a file, or builtin:python-docs")
    if options.nanogpt is None:
        options.others = [each for each in options.others if each != "nanogpt"]
    elif not (options.nanogpt / "train.py").is_file():
        of.error(f"--nanogpt: {options.nanogpt} has no train.py; give a clone of nanoGPT")
    else:
        options.nanogpt = options.nanogpt.resolve()
    if set(TRAINERS) & set(options.others) and find_spec("accelerate") is None:
        of.error("the Trainer needs the library 'accelerate'; install it, or leave the Trainer out "
                 "(--others ngram nanogpt)")  # fmt: skip
    options.out = options.out.resolve()
    return options


def prepared(text: str, out: Path) -> Path:
    """Prepares a text once, by the command's defaults: one tokenizer and one split for all."""
    place = out / "data" / name_of(text)
    if not (place / "data.json").is_file():
        command = [sys.executable, "-m", "regard", "prepare", text, "--out", str(place)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return place


def digest_of(data: Path, side: str) -> str:
    """Returns a digest of the text, and of its tokenizer, which nanoGPT's characters do without."""
    facts = json.loads((data / "data.json").read_text(encoding="utf-8"))
    if side == "nanogpt":
        splits = facts["splits"]
        facts = {name: [splits[name]["bytes"], splits[name]["checksums"][f"{name}.bytes"]]
                 for name in sorted(splits)}  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def name_of(text: str) -> str:
    return text.replace(":", "-") if text.startswith("builtin:") else Path(text).name.split(".")[0]


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, float, int]]:
    """Yields side, minutes and seed; the n-gram is counted once, and has no minutes."""
    if "ngram" in options.others:
        yield "ngram", 0.0, 1
    others = [side for side in options.others if side != "ngram"]
    for minutes in options.minutes:
        for seed in range(1, options.seeds + 1):
            for side in [*options.families, *others]:
                if seed == 1 or side not in ONCE:
                    yield side, minutes, seed


class Enough(Exception):
    """As many cells were measured as the command was to measure."""


def measured(options: argparse.Namespace) -> list[Cell]:
    """Measures the cells that are missing, one after the other."""
    cells, new = [], list[str]()
    for text in options.data:
        data = prepared(text, options.out)
        for side, minutes, seed in jobs(options):
            settings = {"data": digest_of(data, side), "threads": options.threads}
            settings |= {} if side in ONCE else {"size": options.size}
            file = options.out / "cells" / f"{name_of(text)}-{side}-{minutes:g}m-{seed}.json"
            words = ["--side", side, "--data", str(data), "--minutes", f"{minutes or 1:g}",
                     "--threads", str(options.threads), "--seeds", str(seed),
                     "--out", str(options.out / "work"), "--size", options.size,
                     "--others"]  # fmt: skip
            words += ["--nanogpt", str(options.nanogpt)] if side == "nanogpt" else []

            def make(words: list[str] = words) -> Cell:
                if len(new) == options.most:
                    raise Enough
                new.append(words[1])
                say(f"{words[1]}: {words[5]} minutes")
                return in_process(__file__, words)

            facts = {"text": name_of(text), "side": side, "minutes": minutes, "seed": seed}
            with suppress(Enough):
                cells.append(once(file, make, settings) | facts)
    return cells


# -- what they say


def time_to_beat(curve: Sequence[Sequence[float]], value: float) -> float | None:
    """Returns the seconds after which a curve is below a value for the first time; between two
    points it is a straight line."""
    before: Sequence[float] | None = None
    for point in curve:
        if point[1] < value:
            if before is None or before[1] <= value:
                return point[0]
            share = (before[1] - value) / (before[1] - point[1])
            return before[0] + share * (point[0] - before[0])
        before = point
    return None


def board(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Returns one row per text, minutes and side: values, the time to beat the n-gram, and the
    share by which ours is better than each rival."""
    rows = []
    groups: dict[tuple[str, float, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell["text"], cell["minutes"], cell["side"]), []).append(cell)
    for (text, minutes, side), group in groups.items():
        values = [cell["value"] for cell in group]
        row = {"text": text, "minutes": minutes, "side": side, "metric": group[0]["metric"],
               "values": values, "mean": fmean(values),
               "seconds": fmean(cell["seconds"] for cell in group)}  # fmt: skip
        counted = groups.get((text, 0.0, "ngram"))
        if counted and side != "ngram" and row["metric"] == BITS:
            times = [time_to_beat(cell["curve"], counted[0]["value"]) for cell in group]
            row["beats_ngram"] = None if None in times else fmean(map(float, times))  # type: ignore[arg-type]
        for rival in RIVALS.get(side, ()):
            theirs = groups.get((text, minutes, rival))
            if theirs and theirs[0]["metric"] == row["metric"]:
                ratio = row["mean"] / fmean(cell["value"] for cell in theirs)
                row.setdefault("ratio", {})[rival] = ratio
        rows.append(row)
    return rows


def in_words(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        ratios = [
            goal(f"{rival} × {ratio:.3f}", ratio <= GOALS.get(rival, math.inf))
            for rival, ratio in row.get("ratio", {}).items()
        ]
        beats = row.get("beats_ngram", "")
        beats = "not yet" if beats is None else f"{beats:.0f} s" if beats != "" else ""
        lines.append([
            row["text"], f"{row['minutes']:g}" if row["minutes"] else "", row["side"],
            row["metric"].replace("_", " "), spread(row["values"]), f"{row['seconds']:.0f}", beats,
            ", ".join(ratios),
        ])  # fmt: skip
    heads = ["text", "minutes", "side", "measure", "value", "seconds", "below the 5-gram after",
             "beside"]  # fmt: skip
    return table(heads, lines)


def publish(options: argparse.Namespace, rows: Sequence[dict[str, Any]], cells: list[Cell]) -> None:
    """Puts the table into a page, and the cells beside it."""
    text = f"""## The board: equal minutes, equal cores

Made by `python benchmarks/learn.py --nanogpt DIR --page docs/results.md` on {options.threads}
cores, one thing at a time; the cells with their curves are in `docs/results/board.jsonl`. Our
families learn by `regard train FAMILY DATA --minutes M`. nanoGPT learns characters by its README's
recipe for a CPU, with steps that fill the minutes; the Trainer has its usual arguments (AdamW at
5e-5, falling to zero) and a model of our shape, tokenizer and samples. All have one split, and a
side's own measuring is not part of its minutes. "Beside" is our figure over a rival's; the goals in
bits per byte are at most {GOALS["nanogpt"]} of nanoGPT's and {GOALS["trainer-gpt2"]} of the
Trainer's.

{in_words(rows)}
"""
    put_both("board", text, options.page)
    file = options.page.parent / "results" / "board.jsonl"
    file.parent.mkdir(exist_ok=True)
    lines = ({k: v for k, v in cell.items() if k != "settings"} for cell in cells)
    replace(file, "".join(f"{json.dumps(cell, ensure_ascii=False)}\n" for cell in lines))


def picture(cells: Sequence[Cell]) -> str:
    """Returns the curves of the longest runs of the first seed, one panel per text and measure."""
    longest = max((cell["minutes"] for cell in cells), default=0.0)
    panels = []
    for text in dict.fromkeys(cell["text"] for cell in cells):
        for bits in (True, False):
            chosen = [
                cell for cell in cells
                if cell["text"] == text and cell["minutes"] == longest and cell["seed"] == 1
                and (cell["metric"] == BITS) == bits and cell["curve"]
            ]  # fmt: skip
            lines = {cell["side"]: [(s / 60, v) for s, v in cell["curve"]] for cell in chosen}
            flat = [cell for cell in cells if cell["text"] == text and cell["side"] == "ngram"]
            if bits and flat and lines:
                lines["5-gram"] = [(0.0, flat[0]["value"]), (longest, flat[0]["value"])]
            what = "bits per byte" if bits else "by its own validation"
            if lines:
                panels.append(Curves(f"{text}: {what}", lines, "minutes", zero=False))
    return f'<!doctype html>\n<meta charset="utf-8">\n{notebook.curves(panels)}\n'


def main(words: Sequence[str] | None = None) -> None:
    options = checked(words)
    if options.cell:
        place = options.out / options.side
        place.mkdir(parents=True, exist_ok=True)
        job = Job(Path(options.data[0]), options.minutes[0], options.seeds, options.threads,
                  options.size, options.nanogpt, place)  # fmt: skip
        write_cell(options, learn(job, options.side))
        return
    if "bert" not in options.families:  # nothing of ours to compare it with
        options.others = [each for each in options.others if TRAINERS.get(each) != "bert"]
    cells = measured(options)
    rows = board(cells)
    replace(options.out / "board.json", json.dumps({"rows": rows, "cells": cells}, indent=1) + "\n")
    replace(options.out / "curves.html", picture(cells))
    if options.page:
        publish(options, rows, cells)
    print(json.dumps(rows, indent=1) if options.json else in_words(rows))


if __name__ == "__main__":
    main()
