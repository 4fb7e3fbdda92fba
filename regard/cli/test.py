"""`regard test`: how good a model is on data it has not learned from."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.check import chosen
from regard.cli.reading import Download, Field, Format, Header, Skip
from regard.core.errors import InputError

CLASSES = 20  # in the table


def register(app: typer.Typer) -> None:
    app.command(short_help="Measure a model on data it has not learned from.")(test)


def test(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run or a model directory.")],
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA", help="Labelled files (regard check), or hub:NAME; of a language model "
            "text, or what 'regard prepare' made of it.",
        ),
    ],
    against: Annotated[
        str, typer.Option(metavar="RUN", help="Another run: is the difference more than chance?")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For report.html.  [default: RUN/test-DATA]"),
    ] = None,
    task: Annotated[
        str, typer.Option(metavar="T", help="What the model must have learned.")
    ] = "",
    limit: Annotated[int, typer.Option(metavar="N", help="Only the first N examples.")] = 0,
    worst: Annotated[int, typer.Option(metavar="N", help="Errors shown on the page.")] = 20,
    skip: Skip = None,
    field: Field = None,
    form: Format = None,
    header: Header = None,
    download: Download = False,
    language: Annotated[
        str, typer.Option(metavar="CODE", help="Of texts, such as zh.  [default: by their letters]")
    ] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Tags: only entities that the scheme allows.")
    ] = False,
    beams: Annotated[
        int | None, typer.Option(metavar="N", help="Texts: search with so many beams.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Texts: at most so many new tokens.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Texts: strength of the beams' length penalty.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="Texts: at most so many are written at a time.")
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Published T5: stands before every text, such as 'translate "
            "English to German: '.",
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(metavar="NAME", help="Of a prepared directory: train, valid or test.")
    ] = "test",
    length: Annotated[
        int, typer.Option(metavar="N", help="Language models: tokens read at once.")
    ] = 0,
    precision: Annotated[str, typer.Option(help="Of the computation: fp32 or bf16.")] = "fp32",
    resamples: Annotated[int, typer.Option(metavar="N", help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on standard error.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:  # fmt: skip
    """Measure a model on data it has not learned from, by the field's own metrics.

    Figures come with 95% intervals. DIR gets a page with the worst errors (report.html), every
    answer (predictions.jsonl) and all of it for programs (test.json).

    \b
    Examples:
      regard test ./reviewer test.jsonl
      regard test ./tagger test.conll --against ./old-tagger
      regard test ./translator test.en test.zh --language zh --beams 4
      regard test ./my-gpt book.txt
      regard test ./my-gpt ./data --split valid --json
    """
    if any(value < 0 for value in (limit, worst, length)):
        raise InputError("--limit, --worst and --length are numbers of 0 or more")
    from regard.evaluation.test import Plan, examine
    from regard.training.hardware import quick_malloc

    quick_malloc()
    given = {"beams": beams, "tokens": tokens, "alpha": alpha, "batch": batch, "prefix": prefix}
    reading: dict[str, Any] = {
        "fields": chosen(field or []), "form": form, "header": header, "download": download,
    }  # fmt: skip
    plan = Plan(
        against=against, out=out, task=task, skip=skip or (), limit=limit, worst=worst,
        precision=precision, language=language, strict=strict, split=split, length=length,
        seed=seed, resamples=resamples, reading=reading,
        decoding={name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    found = examine(run, data, plan, quiet=quiet)
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print("\n".join(in_lines(found)))
    if not quiet:
        for note in found["notes"]:
            print(f"regard: note: {note}", file=sys.stderr)
        print(f"the page is {Path(found['out'], 'report.html')}", file=sys.stderr)


def in_lines(found: dict[str, Any]) -> Iterator[str]:
    """Figures with their intervals, the classes, and what two runs compare to."""
    yield f"{found['task']}, {found['examples']:,} {found.get('units', 'examples')}"
    yield from figures(found)
    if found.get("classes"):
        yield ""
        yield from classes(found["classes"])
    for name, value in (found.get("signatures") or {}).items():
        yield f"{name}  {value}"
    if found.get("comparison"):
        yield ""
        yield from compared(found["comparison"], found.get("units", "examples"))


def figures(found: dict[str, Any]) -> Iterator[str]:
    margin = max(map(len, found["figures"])) + 2
    for name, value in found["figures"].items():
        span = found["intervals"].get(name)
        told = f"{shown(span[0])} to {shown(span[1])}" if span else ""
        yield f"{name.replace('_', ' '):<{margin}}{shown(value):>9}   {told}".rstrip()


def classes(rows: list[dict[str, Any]]) -> Iterator[str]:
    margin = max(5, *(len(row["label"]) for row in rows)) + 2
    columns = ("precision", "recall", "f1", "support")
    yield f"{'class':<{margin}}" + "".join(f"{name:>11}" for name in columns)
    for row in rows[:CLASSES]:
        cells = (*(shown(row[name]) for name in columns[:3]), f"{row['support']:,}")
        yield f"{row['label']:<{margin}}" + "".join(f"{cell:>11}" for cell in cells)
    if len(rows) > CLASSES:
        yield f"and {len(rows) - CLASSES:,} more"


def compared(found: dict[str, Any], units: str) -> Iterator[str]:
    first, second = found["names"]
    yield f"{second} against {first}: {found['verdict']}"
    yield f"{found['differing']:,} of {found['examples']:,} {units} were answered differently"


def shown(value: float | None) -> str:
    if value is None:
        return "undefined"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"
