"""Translation from scratch compared with Hugging Face's Marian: same size, initial weights and
data.

    python benchmarks/translate.py --data DIR [--minutes 8] [--seeds 3]   # the same minutes
    python benchmarks/translate.py --data DIR --minutes 30 --seeds 1
    python benchmarks/translate.py --data DIR --steps 400                 # the same steps
    python benchmarks/translate.py --data DIR --same-allocator
    python benchmarks/translate.py --data DIR --side-by-side              # one core each, at once

Tatoeba, English to Chinese; a tenth is held out, and no sentence (source or target) is in both
parts. One tokenizer (unigram, 8,000 entries) serves both sides and both languages. Our Transformer
and their MarianMTModel start with exactly the same weights and learn with the same loss, optimizer
and schedule from 64 pairs per step, ours in our loop, theirs in its Seq2SeqTrainer, each in a
separate process. The clock runs while they train, not while they write checkpoints. The schedule
does not depend on the number of steps, so neither side has to know it. With `--steps` both see the
same batches in the same order; with `--dropout 0 --precision fp32` they must agree up to rounding.
Our process keeps the memory it frees, as `regard train` does; theirs runs as it is, unless
--same-allocator gives it the same setting. Sides take turns on all cores; with --side-by-side they
run at the same time, each on its own core, and exchange cores with every seed, so that other work
on the machine affects both.

Goals: 1.5 times the tokens (without padding) in the same minutes and a better score; no difference
at equal steps (above a standard deviation of the scores, or without dropout above 1 % of the
perplexity). Each finished cell is saved with its settings; the section "translation" of
docs/results.md is made of all cells.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from page import apart, goal, in_process, once, plain, put_both, replace, spread, table
from page import cells as cells_in
from translate_sides import OWN, SAMPLES, SIDES, SMOOTHING, Job

from regard.tasks import read
from regard.tasks.corpus import divide
from regard.training.hardware import quick_malloc

ROOT = Path(__file__).resolve().parent.parent
HELD = 0.1  # the share of pairs that is held out
GOAL = 1.5  # the goal: this many times the tokens in the same minutes
NOISE = 1.0  # the maximum difference of scores at equal steps, in standard deviations
ROUNDING = 0.01  # the maximum difference of perplexity at equal steps without dropout
# The settings that compared cells have in common, with the defaults, which are not named.
COMMON = {"minutes": None, "steps": None, "precision": None, "dropout": Job.dropout,
          "width": Job.width, "vocabulary": Job.vocabulary, "same_allocator": False,
          "side_by_side": False}  # fmt: skip

Rows = list[dict[str, Any]]


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def prepare(data: Path, out: Path, pairs: int, vocab_size: int) -> None:
    """Writes out/pairs for training and out/held for testing, tokenized with one tokenizer."""
    if (out / "held" / "data.json").is_file():
        return
    out.mkdir(parents=True, exist_ok=True)
    examples: Any = read(data / "translation" / "tatoeba.en-zh.tsv.gz", "translate")
    examples = examples[:: max(1, len(examples) // pairs)] if pairs else examples
    inside = divide(examples, HELD, 0, 0)
    for name, for_test in (("pairs", False), ("held", True)):
        rows = [e for e, test in zip(examples, inside, strict=True) if test == for_test]
        lines = [json.dumps({"source": e.source, "target": e.target}) + "\n" for e in rows]
        replace(out / f"{name}.jsonl", "".join(lines))
        tokenizer = (
            [str(out / "pairs")] if for_test else ["unigram", "--vocab-size", str(vocab_size)]
        )
        words = ["prepare", str(out / f"{name}.jsonl"), "--pairs", "--out", str(out / name)]
        words += ["--valid-fraction", "0", "--test-fraction", "0", "--sentinels", "0", "--force"]
        command = [sys.executable, "-m", "regard", *words, "--tokenizer", *tokenizer]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def job_of(place: Path, settings: Mapping[str, Any]) -> Job:
    """Returns the job with these settings. Other keys of the settings are ignored."""
    names = [field.name for field in fields(Job) if field.name not in OWN]
    return Job(place, **{name: settings[name] for name in names})


def cells(options: Any) -> Rows:
    """Measures the cells that are missing, and returns all cells."""
    for seed in range(1, options.seeds + 1):
        if options.side_by_side:
            only_pairs(options, seed)
            cores = sorted(os.sched_getaffinity(0))[:: 1 if seed % 2 else -1]
            with ThreadPoolExecutor(len(SIDES)) as pool:
                list(pool.map(partial(cell, options, seed), SIDES, cores))
        else:
            for side in ("theirs", "ours"):
                cell(options, seed, side)
    return cells_in(
        options.cells,
        lambda row: job_of(options.place, row["settings"]).settings(row["settings"]["side"]),
    )


def file_of(options: Any, seed: int, side: str) -> Path:
    name = f"{named(vars(options), '-', '-')}-{side}-{seed}".replace(" ", "-")
    return Path(options.cells, f"{name}.json")


def only_pairs(options: Any, seed: int) -> None:
    """Removes both sides unless both have these settings: they must run at the same time."""
    files = {side: file_of(options, seed, side) for side in SIDES}
    job = job_of(options.place, vars(options) | {"seed": seed})
    stored = {s: json.loads(f.read_text("utf-8")) for s, f in files.items() if f.is_file()}
    if not all(s in stored and stored[s]["settings"] == plain(job.settings(s)) for s in SIDES):
        for file in files.values():
            file.unlink(missing_ok=True)


def cell(options: Any, seed: int, side: str, core: int | None = None) -> None:
    """Measures a cell that is missing, on one core or on all."""
    if core is not None:
        os.sched_setaffinity(0, {core})  # for this thread and the process that it starts
    file = file_of(options, seed, side)
    say(f"{file.stem} …")
    words = ["--side", side, "--seeds", str(seed)]
    for option in ("data", "out", "minutes", "steps", "precision", "dropout", "width",
                   "vocabulary", "pairs"):  # fmt: skip
        words += [f"--{option}", str(getattr(options, option))]
    for option in ("same_allocator", "side_by_side"):
        words += [f"--{option.replace('_', '-')}"] * getattr(options, option)
    row = once(
        file,
        lambda: in_process(__file__, words),
        job_of(options.place, vars(options) | {"seed": seed}).settings(side),
    )
    best = row["scores"]["greedy, last"]
    say(f"  {side}: {row['tokens']:,} tokens in {row['steps']:,} steps, BLEU {best['bleu']:.2f}")


def named(settings: Mapping[str, Any], between: str = ", ", figure: str = " ") -> str:
    """Describes what cells have in common, as far as it differs from the defaults."""
    steps = settings["steps"]
    amount = f"{steps:,} steps" if steps else f"{settings['minutes']:g} minutes"
    parts = [amount.replace(",", "") if between == "-" else amount, settings["precision"]]
    for name in ("dropout", "width", "vocabulary"):
        if settings[name] != COMMON[name]:
            parts.append(f"{name}{figure}{settings[name]:g}")
    for name in ("same_allocator", "side_by_side"):
        parts += [name.replace("_", " ")] * settings[name]
    return between.join(parts)


def groups(rows: Rows) -> list[dict[str, Rows]]:
    """Groups the cells of both sides by common settings, with the seeds that both sides have."""
    by_setting: dict[tuple[Any, ...], dict[str, Rows]] = {}
    order = ("minutes", "steps", "seed")
    for row in sorted(rows, key=lambda row: [row["settings"][name] for name in order]):
        key = tuple(row["settings"][name] for name in COMMON)
        sides = by_setting.setdefault(key, {"ours": [], "theirs": []})
        sides[row["settings"]["side"]].append(row)
    complete = []
    for sides in by_setting.values():
        both = set.intersection(
            *({row["settings"]["seed"] for row in cells} for cells in sides.values())
        )
        paired = {
            side: [row for row in cells if row["settings"]["seed"] in both]
            for side, cells in sides.items()
        }
        if both:
            complete.append(paired)
    return complete


def values(rows: Rows, way: str, measure: str) -> list[float]:
    return [row["scores"][way][measure] for row in rows]


def summary(sides: dict[str, Rows]) -> dict[str, Any]:
    """Summarizes one setting: the tokens read, the scores, and which goals were reached."""
    settings = sides["ours"][0]["settings"]
    tokens = {side: [r["tokens"] for r in cells] for side, cells in sides.items()}
    bleu = {side: values(cells, "greedy, last", "bleu") for side, cells in sides.items()}
    mean = {side: statistics.fmean(each) for side, each in bleu.items()}
    ratio = statistics.median(o / t for o, t in zip(tokens["ours"], tokens["theirs"], strict=True))
    by = apart(bleu["ours"], bleu["theirs"])
    report: dict[str, Any] = {name: settings[name] for name in COMMON}
    report |= {"seeds": len(sides["ours"]), "ratio": ratio, "bleu": bleu, "apart": by}
    report["gained"] = mean["ours"] - mean["theirs"]
    if settings["steps"]:
        perplexities = [[row["perplexity"] for row in sides[side]] for side in SIDES]
        report["perplexity_apart"] = max(abs(a / b - 1) for a, b in zip(*perplexities, strict=True))
        exact = settings["dropout"] == 0
        agree = report["perplexity_apart"] <= ROUNDING if exact else by is None or abs(by) <= NOISE
        report["reached"] = {"tokens": abs(ratio - 1) < 1e-3, "scores": agree}
    else:
        report["reached"] = {"tokens": ratio >= GOAL, "scores": report["gained"] > 0}
    return report


def told(report: dict[str, Any]) -> str:
    """Puts a summary in words, with the goals that it misses."""
    reached = report["reached"]
    wanted = "the same" if report["steps"] else f"at least {GOAL:g}, and a higher BLEU"
    tokens = goal(f"{report['ratio']:.2f} times theirs", reached["tokens"])
    score = f"BLEU {report['gained']:+.2f}"
    if report["apart"] is not None:
        score += f", {report['apart']:+.2f} deviations"
    if report["steps"]:
        score += f", perplexities {report['perplexity_apart']:.2%} apart at most"
    if report["steps"] and report["dropout"] and report["apart"] is None:
        score += "; one seed cannot tell a difference from noise"
    return f"Tokens: {tokens}; {goal(score, reached['scores'])}. Goal: {wanted}."


def lines_of(sides: dict[str, Rows]) -> list[list[str]]:
    lines = []
    for side, title in (("ours", "ours"), ("theirs", "Marian, Seq2SeqTrainer")):
        cells = sides[side]
        for way in cells[0]["scores"]:
            first = way == "greedy, last"
            lines.append(
                [
                    title,
                    way,
                    spread([r["steps"] for r in cells], ",.0f") if first else "",
                    spread([r["tokens"] / 1e6 for r in cells], ".2f") if first else "",
                    spread([r["loss"] for r in cells]) if first else "",
                    spread([r["perplexity"] for r in cells], ".2f") if first else "",
                    spread(values(cells, way, "bleu"), ".2f"),
                    spread(values(cells, way, "chrf"), ".2f"),
                ]
            )
    return lines


HEADS = ["", "decoding, weights", "steps", "M tokens", "training loss", "perplexity", "BLEU",
         "chrF"]  # fmt: skip


def section(rows: Rows) -> str:
    paired = groups(rows)
    first = (paired[0]["ours"] if paired else rows)[0]
    parts = [
        "## Translation",
        "Made by `python benchmarks/translate.py`: Tatoeba, English to Chinese, from scratch; "
        f"{first['pairs']:,} pairs to learn from, {first['held']:,} held out, with no sentence in "
        "both. Ours is beside Hugging Face's MarianMTModel of the same shape, with the same first "
        f"weights, tokenizer, loss (label smoothing {SMOOTHING:g}), optimizer and schedule, "
        f"{SAMPLES} pairs a step; the Seq2SeqTrainer pads to the longest of a batch. Our process "
        "keeps the memory it frees, as `regard train` does, and theirs comes as it is, so part of "
        "the ratio is that, except under “same allocator”. Under “side by side” both ran at the "
        "same time, each on one core, elsewhere in turn on all. Tokens are counted without "
        "padding. "
        "“Average” is the mean of the last five checkpoints. Beams have each side's usual length "
        "rule: ((5 + n) / 6)^0.6 for ours, n for `generate`. BLEU: "
        f"`{first['signature']}`. The training loss is that of the last steps.",
    ]
    for sides in paired:
        row = sides["ours"][0]
        seeds, shape = len(sides["ours"]), row["settings"]["shape"]
        parts += [
            f"### {named(row['settings'])}, {seeds} seed{'s' * (seeds > 1)}",
            f"{shape['layers']} + {shape['layers']} layers, width {shape['width']}, "
            f"{shape['heads']} heads, hidden {shape['ffn_size']}, "
            f"{row['settings']['vocabulary']:,} entries: {row['parameters'] / 1e6:.1f} M weights.",
            table(HEADS, lines_of(sides)),
            told(summary(sides)),
        ]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--out", type=Path, default=Path("results/translate"))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=0, help="train for N steps, not for minutes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--dropout", type=float, default=Job.dropout)
    parser.add_argument("--width", type=int, default=Job.width)
    parser.add_argument("--pairs", type=int, default=0, help="use about N pairs, to try the script")
    parser.add_argument("--vocabulary", type=int, default=Job.vocabulary)
    parser.add_argument(
        "--same-allocator", action="store_true", help="give theirs our setting of malloc too"
    )
    parser.add_argument(
        "--side-by-side", action="store_true", help="both at once, each on one core of its own"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--no-page", action="store_true", help="leave docs/results.md as it is")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.data:
        parser.error("give the directory of the data: --data DIR, or REGARD_DATA")
    options.out = options.out.resolve()
    place = options.out / f"try-{options.pairs}" if options.pairs else options.out
    options.place = place / f"data-{options.vocabulary}"
    options.cells = place / "cells"
    options.minutes = 0.0 if options.steps else options.minutes
    if options.side:
        if options.same_allocator or options.side == "ours":
            quick_malloc()
        job = job_of(options.place, vars(options) | {"seed": options.seeds})
        text = json.dumps(SIDES[options.side](job), ensure_ascii=False)
        options.cell.write_text(text, encoding="utf-8")
        return
    if options.side_by_side and (sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2):
        parser.error("--side-by-side needs Linux and two cores")
    prepare(Path(options.data), options.place, options.pairs, options.vocabulary)
    rows = cells(options)
    if not options.no_page and not options.pairs:
        put_both("translation", section(rows), options.page)
    report = {"summary": [summary(sides) for sides in groups(rows)], "cells": rows}
    print(json.dumps(report, indent=1) if options.json else section(rows))


if __name__ == "__main__":
    main()
