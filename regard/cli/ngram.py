"""`regard ngram`: the n-gram baseline of prepared text."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.core.errors import InputError

ENDINGS = (".json", ".safetensors")


def register(app: typer.Typer) -> None:
    app.command("ngram", short_help="Measure the n-gram that a neural model has to beat.")(ngram)


def ngram(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A data directory.")],
    order: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The longest n-gram; all shorter ones come along.  [default: 5]"
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(metavar="NAME", help="What to score: train, valid or test.")
    ] = "valid",
    tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Count only the first N tokens of the training text."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Score with this saved n-gram instead of counting."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the figures (.json) or the n-gram (.safetensors) here."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> None:
    """Measure the n-gram (modified Kneser-Ney) that a neural model has to beat.

    Counts the training text, then scores another split: perplexity per token and bits per byte,
    for every order up to the highest. The data directory is only read.

    \b
    Examples:
      regard ngram ./data
      regard ngram ./data --order 3 --split test --json
      regard ngram ./data --out ngram.safetensors
      regard ngram ./data --model ngram.safetensors --out ngram.json
    """
    if model is not None and (order is not None or tokens is not None):
        raise InputError("--model brings its own counts; leave out --order and --tokens")
    if out is not None:
        check(out)
    from regard.data.corpus import Corpus
    from regard.evaluation.ngram import Ngram
    from regard.evaluation.ngram_baseline import count, measure

    Corpus.open(data, split)  # an unknown split is refused before the work
    report = progress if sys.stderr.isatty() else None
    try:
        made = (
            count(data, 5 if order is None else order, tokens, report)
            if model is None
            else Ngram.load(model)
        )
        found = measure(made, data, split, report)
    finally:
        if report is not None:
            report("")
    if out is not None and out.suffix == ".safetensors":
        made.save(out)
    elif out is not None:
        out.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    print(json.dumps(found, indent=2) if as_json else "\n".join(table(found)))


def check(out: Path) -> None:
    """Whether the result can be written, before the work."""
    if out.suffix not in ENDINGS:
        raise InputError(f"--out is {out}; its name ends in {' or '.join(ENDINGS)}")
    if not out.parent.is_dir():
        raise InputError(f"--out is {out}, but there is no directory {out.parent}; make it first")


def progress(text: str) -> None:
    """One line of the terminal, written over by the next."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def table(found: dict[str, Any]) -> list[str]:
    """The figures for people: a line an order, then what was counted and scored."""
    lines = [f"{'order':>5}  {'perplexity':>12}  {'bits per byte':>13}  {'n-grams':>12}"]
    for row in found["orders"]:
        mark = "  fallback discounts" if row["fallback"] else ""
        numbers = f"{row['perplexity']:>12,.2f}  {row['bits_per_byte']:>13.4f}"
        lines.append(f"{row['order']:>5}  {numbers}  {row['ngrams']:>12,}{mark}")
    seconds = found["seconds"]
    return [
        *lines,
        f"counted  {found['training_tokens']:,} tokens in {seconds['counting']:.1f} s, "
        f"{found['size'] / 1e6:,.1f} MB",
        f"scored   {found['split']}: {found['tokens']:,} tokens, {found['bytes']:,} bytes "
        f"in {seconds['scoring']:.1f} s",
    ]
