"""`regard prune`: a model without its least important parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.quantize import testing_of
from regard.cli.reading import Field, Format, Header, Learned, Limit, Repeats, Skip, Split
from regard.core.errors import ConfigError


def register(app: typer.Typer) -> None:
    app.command(short_help="Remove what matters least: heads, units, weights.")(prune)


def prune(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run or a model directory.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new directory for the model.")],
    heads: Annotated[
        float, typer.Option(metavar="SHARE", help="Of all heads, the least important ones.")
    ] = 0.0,
    head_list: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER:HEADS", help="These heads, counted from 0: blocks.0:1,3. Also twice."
        ),
    ] = None,
    hidden: Annotated[
        float, typer.Option(metavar="SHARE", help="Of the units of every feed-forward network.")
    ] = 0.0,
    weights: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Of the layers' single weights, the smallest: they become 0, "
            "which makes a model neither smaller nor faster.",
        ),
    ] = 0.0,
    scope: Annotated[
        str, typer.Option(help="The smallest weights of all layers (global), or of each (layer).")
    ] = "global",
    by: Annotated[
        str,
        typer.Option(
            metavar="M", help="Units matter by gradient or by magnitude.  [default: gradient, "
            "without --data magnitude]",
        ),
    ] = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="Compare heads of different layers as they are.")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Labelled data or text: what matters is seen from it, and the "
            "score before and after. Also twice, for two files of one text.",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Of the data, to see what matters; 0: all.  [default: 2048]"
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
    """Remove what matters least to a model: heads, units of its networks, single weights.

    How much a head matters is how much the loss changes with it (Michel et al. 2019). Heads and
    units are really removed: DIR is a smaller model, opened like any other, which can learn on.
    Size, speed and score are measured before and after. DIR/heads.svg shows how much heads matter.

    \b
    Examples:
      regard prune ./reviewer --heads 0.3 --data valid.jsonl --out ./smaller
      regard prune ./my-gpt --hidden 0.25 --data ./data --split valid --out ./narrower
      regard prune ./my-gpt --head-list blocks.0:1,3 --head-list blocks.2:0 --out ./fewer
      regard prune ./my-bert --weights 0.5 --out ./sparse
    """
    from regard.methods.prune import run as workshop
    from regard.training.hardware import quick_malloc

    quick_malloc()
    given = {
        "samples": samples, "limit": limit, "task": task, "split": split, "skip": skip,
        "field": field, "format": form, "header": header,
    }  # fmt: skip
    testing = testing_of(data, given)
    if samples is not None and not heads and (not hidden or by == "magnitude"):
        raise ConfigError(
            "--samples says from how much of --data it is seen what matters, and nothing that is "
            "asked for is chosen so; leave it out"
        )
    plan = workshop.Plan(
        heads=heads, listed=head_list or (), hidden=hidden, weights=weights, scope=scope, by=by,
        normal=not raw, data=data or (), limit=limit or 0, repeats=repeats, testing=testing,
        samples=workshop.SAMPLES if samples is None else samples,
    )  # fmt: skip

    def watch(what: str) -> None:
        if not quiet:
            print(f"regard: {what} …", file=sys.stderr, flush=True)

    report = workshop.prune(run, out, plan, watch=watch)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print("\n".join(in_lines(report)))
    if not quiet:
        for note in report["notes"]:
            print(f"regard: note: {note}", file=sys.stderr)


def in_lines(report: dict[str, Any]) -> Iterator[str]:
    """Before and after, side by side, and what went."""
    rows = list(figures(report))
    margin = max(len(name) for name, *_ in rows) + 2
    yield f"{'':<{margin}}{'before':>14}{'after':>14}"
    for name, before, after, change in rows:
        yield f"{name:<{margin}}{before:>14}{after:>14}{change:>9}".rstrip()
    for name, heads in report["heads"]["removed"].items():
        yield f"{name} without heads {', '.join(map(str, heads))}"


def figures(report: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for name, key, unit in (("parameters", "parameters", 1), ("size, MB", "bytes", 1e6)):
        before, after = (report[key][side] / unit for side in ("before", "after"))
        form = ",.0f" if unit == 1 else ",.1f"
        yield name, f"{before:{form}}", f"{after:{form}}", f"{after / before:.1%}"
    heads = report["heads"]
    if heads["removed"]:
        before, after = heads["before"], heads["after"]
        yield "heads", str(before), str(after), f"{after / before:.1%}"
    if report["hidden"]:
        before, after = (sum(n[k] for n in report["hidden"].values()) for k in ("before", "after"))
        yield "units", f"{before:,}", f"{after:,}", f"{after / before:.1%}"
    if zeros := report["zeros"]:
        left = zeros["weights"] - zeros["zeros"]
        cells = f"{zeros['weights']:,}", f"{left:,}"
        yield "weights not 0", *cells, f"{left / zeros['weights']:.1%}"
    if speed := report.get("speed"):
        before, after = speed["before"], speed["after"]
        yield speed["unit"], f"{before:,.1f}", f"{after:,.1f}", f"{after / before:.2f} ×"
    if score := report.get("score"):
        kept = "" if score["kept"] is None else f"{score['kept']:.1%}"
        name = score["figure"].replace("_", " ")
        yield name, f"{score['before']:.4f}", f"{score['after']:.4f}", kept
