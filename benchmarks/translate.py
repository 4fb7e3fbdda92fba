"""Translation from scratch beside Hugging Face's Marian: same size, same start, same data.

    python benchmarks/translate.py --data DIR [--minutes 8] [--seeds 3]   # the same minutes
    python benchmarks/translate.py --data DIR --minutes 30 --seeds 1
    python benchmarks/translate.py --data DIR --steps 400                 # the same steps

Tatoeba, English to Chinese; a tenth is held out, and no sentence of either side is in both parts.
One tokenizer (unigram, 8,000 entries) serves both sides and both languages. Our Transformer and
their MarianMTModel begin with the very same weights and learn with the same loss, optimiser and
schedule from 64 pairs a step, ours by our loop, theirs by its Seq2SeqTrainer; sides take turns,
each in a process of its own. The clock runs while they train, not while they write checkpoints.
The schedule does not depend on the number of steps, so neither side has to know it. With `--steps`
both see the same batches in the same order; with `--dropout 0` they must then agree to rounding.

Goals: 1.5 times the tokens (padding not counted) in the same minutes and a better score; no
difference at equal steps. Each cell is saved when it is done; the section "translation" of
docs/results.md is made of all cells that there are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from page import apart, in_process, once, put, replace, spread, table
from translate_sides import SIDES, Job

from regard.tasks.readers import read
from regard.tasks.text_forms import divide_pairs

ROOT = Path(__file__).resolve().parent.parent
HELD = 0.1  # of the pairs
GOAL = 1.5  # times the tokens in the same minutes


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def prepare(data: Path, out: Path, pairs: int, vocabulary: int) -> None:
    """out/pairs to learn from and out/held to test with, cut by one tokenizer."""
    if (out / "held" / "data.json").is_file():
        return
    out.mkdir(parents=True, exist_ok=True)
    found: Any = read(data / "translation" / "tatoeba.en-zh.tsv.gz", "translate")
    found = found[:: max(1, len(found) // pairs)] if pairs else found
    inside = divide_pairs(found, HELD, 0, 0)
    for name, held in (("pairs", False), ("held", True)):
        rows = [e for e, test in zip(found, inside, strict=True) if test == held]
        lines = [json.dumps({"source": e.source, "target": e.target}) + "\n" for e in rows]
        replace(out / f"{name}.jsonl", "".join(lines))
        tokenizer = [str(out / "pairs")] if held else ["unigram", "--vocabulary", str(vocabulary)]
        words = ["prepare", str(out / f"{name}.jsonl"), "--pairs", "--out", str(out / name)]
        words += ["--valid", "0", "--test", "0", "--sentinels", "0", "--force", "--tokenizer"]
        command = [sys.executable, "-m", "regard", *words, *tokenizer]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def cells(options: Any) -> None:
    """Measures what is not there yet, the sides in turn."""
    kind = f"steps-{options.steps}" if options.steps else f"minutes-{options.minutes:g}"
    if options.dropout != Job.dropout:
        kind += f"-dropout-{options.dropout:g}"
    for seed in range(1, options.seeds + 1):
        for side in ("theirs", "ours"):
            name = f"{kind}-{options.precision}-{side}-{seed}"
            say(f"{name} …")
            words = ["--side", side, "--seeds", str(seed)]
            for option in ("data", "out", "minutes", "steps", "precision", "dropout", "width"):
                words += [f"--{option}", str(getattr(options, option))]
            row = once(
                options.out / "cells" / f"{name}.json",
                lambda words=words: in_process(__file__, words),
            )
            best = row["scores"]["greedy, last"]
            say(f"  {row['tokens']:,} tokens in {row['steps']:,} steps, BLEU {best['bleu']:.2f}")


def groups(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]]:
    """The cells of both sides by what they have in common; only seeds that both have."""
    found: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for row in sorted(rows, key=lambda row: (row["minutes"], row["asked"], row["seed"])):
        key = (row["minutes"], row["asked"], row["precision"], row["dropout"])
        found.setdefault(key, {"ours": [], "theirs": []})[row["side"]].append(row)
    for sides in found.values():
        both = set.intersection(*({row["seed"] for row in held} for held in sides.values()))
        for side, held in sides.items():
            sides[side] = [row for row in held if row["seed"] in both]
    return {key: sides for key, sides in found.items() if sides["ours"]}


def values(rows: list[dict[str, Any]], way: str, measure: str) -> list[float]:
    return [row["scores"][way][measure] for row in rows]


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each setting: what was seen, and what came of it."""
    made = []
    for (minutes, steps, precision, dropout), sides in groups(rows).items():
        tokens = {side: [r["tokens"] for r in held] for side, held in sides.items()}
        bleu = {side: values(held, "greedy, last", "bleu") for side, held in sides.items()}
        made.append(
            {
                "minutes": minutes,
                "steps": steps,
                "precision": precision,
                "dropout": dropout,
                "ratio": statistics.median(
                    o / t for o, t in zip(tokens["ours"], tokens["theirs"], strict=True)
                ),
                "goal": 1.0 if steps else GOAL,
                "bleu": bleu,
                "apart": apart(bleu["ours"], bleu["theirs"]),
            }
        )
    return made


def name_of(key: tuple[Any, ...], seeds: int) -> str:
    minutes, steps, precision, dropout = key
    amount = f"{steps:,} steps" if steps else f"{minutes:g} minutes"
    more = "" if dropout == Job.dropout else f", dropout {dropout:g}"
    return f"{amount}, {precision}{more}, {seeds} seed{'s' if seeds > 1 else ''}"


def lines_of(sides: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    made = []
    for side, title in (("ours", "ours"), ("theirs", "Marian, Seq2SeqTrainer")):
        held = sides[side]
        for way in held[0]["scores"]:
            first = way == "greedy, last"
            made.append(
                [
                    title,
                    way,
                    spread([r["steps"] for r in held], ",.0f") if first else "",
                    spread([r["tokens"] / 1e6 for r in held], ".2f") if first else "",
                    spread([r["loss"] for r in held]) if first else "",
                    spread([r["perplexity"] for r in held], ".2f") if first else "",
                    spread(values(held, way, "bleu"), ".2f"),
                    spread(values(held, way, "chrf"), ".2f"),
                ]
            )
    return made


HEADS = ["", "decoding, weights", "steps", "M tokens", "training loss", "perplexity", "BLEU",
         "chrF"]  # fmt: skip


def section(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    parts = [
        "## Translation",
        "Made by `python benchmarks/translate.py`: Tatoeba, English to Chinese, from scratch; "
        f"{first['pairs']:,} pairs to learn from, {first['held']:,} held out, with no sentence in "
        "both. Ours is beside Hugging Face's MarianMTModel of the same shape "
        f"({first['shape']}, {first['parameters'] / 1e6:.1f} M weights), with the same first "
        "weights, tokenizer, loss (label smoothing 0.1), optimiser and schedule, 64 pairs a step; "
        "the Seq2SeqTrainer pads to the longest of a batch. Tokens are counted without padding. "
        "“Average” is the mean of the last five checkpoints. BLEU: "
        f"`{first['signature']}`. The training loss is that of the last steps.",
    ]
    for key, sides in groups(rows).items():
        told = next(
            row for row in summary(rows)
            if key == (row["minutes"], row["steps"], row["precision"], row["dropout"])
        )  # fmt: skip
        difference = "" if told["apart"] is None else f" ({told['apart']:+.2f} deviations)"
        gained = statistics.fmean(told["bleu"]["ours"]) - statistics.fmean(told["bleu"]["theirs"])
        parts += [
            f"### {name_of(key, len(sides['ours']))}",
            table(HEADS, lines_of(sides)),
            f"Tokens: {told['ratio']:.2f} times theirs (goal {told['goal']:g}); BLEU {gained:+.2f}"
            f"{difference}.",
        ]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--out", type=Path, default=Path("results/translate"))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=0, help="so many steps instead of minutes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--dropout", type=float, default=Job.dropout)
    parser.add_argument("--width", type=int, default=Job.width)
    parser.add_argument("--pairs", type=int, default=0, help="about so many: to try the script")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--no-page", action="store_true", help="leave docs/results.md as it is")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.data:
        parser.error("give the directory of the data: --data DIR, or REGARD_DATA")
    options.out = options.out.resolve()
    if options.pairs:  # not to be mixed up with the real cells
        options.out /= f"try-{options.pairs}"
    if options.side:
        minutes = 0.0 if options.steps else options.minutes
        job = Job(options.out, options.seeds, minutes, options.steps, options.precision,
                  options.dropout, options.width)  # fmt: skip
        text = json.dumps(SIDES[options.side](job), ensure_ascii=False)
        options.cell.write_text(text, encoding="utf-8")
        return
    prepare(Path(options.data), options.out, options.pairs, options.vocabulary)
    cells(options)
    rows = [json.loads(file.read_text()) for file in sorted((options.out / "cells").glob("*.json"))]
    if not options.no_page:
        put("translation", section(rows), options.page)
    print(json.dumps({"summary": summary(rows), "cells": rows}, indent=1) if options.json
          else section(rows))  # fmt: skip


if __name__ == "__main__":
    main()
