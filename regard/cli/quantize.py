"""`regard quantize`: a model in small numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.check import chosen
from regard.cli.reading import Field, Format, Header, Learned, Limit, Repeats, Skip, Split
from regard.core.errors import ConfigError

NAMED = 5  # matrices in a line


def register(app: typer.Typer) -> None:
    app.command(short_help="Make a model smaller and faster: weights of 8 bits.")(quantize)


def quantize(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run or a model directory.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new directory for the model.")],
    kind: Annotated[
        str,
        typer.Option(
            metavar="K", help="int8: weights of 8 bits; int8-dynamic: what is multiplied with them "
            "too, faster on many tokens at once; bf16: weights of 16 bits.",
        ),
    ] = "int8",
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Layers that stay as they are, such as 'blocks.0.*'."),
    ] = None,
    calibrate: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Fit the scales to what the layers read in this text.",
            show_default=False,
        ),
    ] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Labelled data or text: the score before and after. Also twice, "
            "for two files of one text.",
        ),
    ] = None,
    task: Learned = None,
    split: Split = None,
    limit: Limit = None,
    repeats: Repeats = 5,
    skip: Skip = None,
    field: Field = None,
    form: Format = None,
    header: Header = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on standard error.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:  # fmt: skip
    """Make a model smaller and faster on a processor: its matrices become numbers of 8 bits.

    DIR is a model directory like any other: it is tested, asked and continued with the same
    commands. It does not learn further, and transformers does not open it. Size and speed are
    measured before and after, and with --data the score too.

    \b
    Examples:
      regard quantize ./my-gpt --out ./my-gpt-int8
      regard quantize ./reviewer --kind int8-dynamic --data test.jsonl --out ./reviewer-int8
      regard quantize ./my-gpt --calibrate typical.txt --out ./my-gpt-int8
      regard quantize ./my-gpt --exclude 'blocks.0.*' --exclude output --out ./other
    """
    from regard.methods.quantize import run as workshop
    from regard.training.hardware import quick_malloc

    quick_malloc()
    given = {
        "limit": limit, "task": task, "split": split, "skip": skip, "field": field,
        "format": form, "header": header,
    }  # fmt: skip
    testing = testing_of(data, given)
    plan = workshop.Plan(
        kind=kind, exclude=exclude or (), data=data or (), limit=limit or 0, repeats=repeats,
        calibrate=calibrate, testing=testing,
    )  # fmt: skip

    def watch(what: str) -> None:
        if not quiet:
            print(f"regard: {what} …", file=sys.stderr, flush=True)

    report = workshop.quantize(run, out, plan, watch=watch)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print("\n".join(in_lines(report)))
    for note in [] if quiet else report["notes"]:
        print(f"regard: note: {note}", file=sys.stderr)


def testing_of(data: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
    """How a test reads the data; `given` are the options that say so, by their names, and without
    data they would say nothing.
    """
    said = [name for name, value in given.items() if value not in (None, [], ())]
    if said and not data:
        raise ConfigError(
            f"--{said[0]} is about the data that a model is tested on, and --data is not given; "
            "give it, or leave the option out"
        )
    return {
        "task": given["task"] or "", "split": given["split"] or "test",
        "skip": given["skip"] or (),
        "reading": {"fields": chosen(given["field"] or []), "form": given["format"],
                    "header": given["header"]},
    }  # fmt: skip


def in_lines(report: dict[str, Any]) -> Iterator[str]:
    """Before and after, side by side."""
    size, speed, score = report["bytes"], report.get("speed"), report.get("score")
    name = "" if score is None else score["figure"].replace("_", " ")
    margin = max(len("error of layers"), len(name), len(speed["unit"]) if speed else 0) + 2
    yield f"{'':<{margin}}{'before':>10}{'after':>10}"
    before, after = size["before"], size["after"]
    yield (
        f"{'size, MB':<{margin}}{before / 1e6:>10,.1f}{after / 1e6:>10,.1f}{after / before:>8.1%}"
    )
    if speed:
        ratio = speed["after"] / speed["before"]
        cells = f"{speed['before']:>10,.1f}{speed['after']:>10,.1f}"
        yield f"{speed['unit']:<{margin}}{cells}{ratio:>7.2f} ×"
    if score:
        kept = "" if score["kept"] is None else f"{score['kept']:>8.1%}"
        yield f"{name:<{margin}}{score['before']:>10.4f}{score['after']:>10.4f}{kept}"
    if fitted := report.get("calibration"):
        error = fitted["error"]
        yield f"{'error of layers':<{margin}}{error['before']:>10.2%}{error['after']:>10.2%}"
        if unread := fitted["unread"]:  # a text is only read: nothing is seen of what writes
            yield f"not fitted, as the text does not pass them: {listed(unread)}"
    if stays := report["stays"]:
        yield f"as they were: {listed(stays)}"


def listed(names: list[str]) -> str:
    """The first ones, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
