"""`regard compare`: the whole lineage on one text under one budget."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.resuming import check_resume
from regard.core.errors import ConfigError

BUDGET, LENGTH, SAMPLES, VOCABULARY = "2m", 128, 16, 4000  # unless others are given
OF_A_COMPARISON = "a comparison goes on by its own plan; leave it out, or begin a new comparison"


def register(app: typer.Typer) -> None:
    app.command(short_help="Compare models on your text under one budget.")(compare)


def compare(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE…",
            help="Text in any form that 'regard prepare' reads, or what it made; with --resume the "
            "comparison.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="Of each model: a time (90s, 10m, 2h), tokens (2Mtok) or operations (0.3Pflop)."
        ),
    ] = BUDGET,
    models: Annotated[
        str,
        typer.Option(
            metavar="A,B,…",
            help="MODEL, MODEL:OBJECTIVE or MODEL:OBJECTIVE@SIZE; by default one of each family.",
        ),
    ] = "",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where everything goes.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of every model; noise shows from 2 on.")] = 1,
    size: Annotated[
        str, typer.Option(help="tiny, small or medium; by default what suits machine and budget.")
    ] = "",
    length: Annotated[int, typer.Option(help="Tokens of a sample.")] = LENGTH,
    samples: Annotated[int, typer.Option(help="Samples of a step.")] = SAMPLES,
    vocabulary: Annotated[
        int, typer.Option(help="Tokens of the common tokenizer; a small text has fewer to give.")
    ] = VOCABULARY,
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="What every model goes on with; more than once for several."),
    ] = None,
    split_by: Annotated[
        str | None, typer.Option(help="What ends a document: file, line or blank.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A change of every model's recipe."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="SOURCE is a comparison: go on with it.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing on the way.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json at the end.")] = False,
) -> None:
    """Put the models side by side: same text, tokenizer and division, each with its own objective
    and the same budget.

    What can be compared is: bits per byte of unseen text among models that read from left to right,
    hidden words among those that see both sides, sentences against counterfeits, speed and memory.
    Ctrl-C keeps what is there; --resume goes on.

    \b
    Examples:
      regard compare builtin:python-docs --budget 1m --out lineage
      regard compare book.txt --budget 10m --models gpt,transformer-xl,lstm --seeds 3 --out three
      regard compare corpus/ --budget 2Mtok --models bert,xlnet,t5@small --out both-ways
      regard compare --resume lineage
    """
    from regard.lab.compare.comparison import Comparison, Failed, Stopped, again, begin
    from regard.lab.compare.display import display
    from regard.lab.compare.lineup import NGRAM, Budget, lineup
    from regard.lab.compare.planning import planned

    if not sources:
        raise ConfigError("SOURCE is missing; give a text, or --resume and a comparison")
    if resume:
        if len(sources) > 1:
            raise ConfigError(f"--resume goes on with one comparison; {len(sources)} are given")
        check_resume({
            "budget": budget != BUDGET, "models": models, "out": out, "seeds": seeds != 1,
            "size": size, "length": length != LENGTH, "samples": samples != SAMPLES,
            "vocabulary": vocabulary != VOCABULARY, "prompt": prompt, "split-by": split_by,
            "set": settings,
        }, why=OF_A_COMPARISON)  # fmt: skip
        place = Path(sources[0])
        plan = again(place)
    else:
        if out is None:
            raise ConfigError("--out is missing; give the directory that the comparison writes")
        place = out
        plan = planned(
            tuple(sources),
            tuple(lineup(models.split(","))),
            Budget.of(budget),
            size=size,
            seeds=seeds,
            length=length,
            samples=samples,
            vocabulary=vocabulary,
            prompts=tuple(prompt or ()),
            reading={"split_by": split_by} if split_by else {},
            settings=tuple(settings or ()),
        )
        begin(plan, place)
    names = [NGRAM, *(f"{e.name}-{s}" for s in range(1, plan.seeds + 1) for e in plan.entries)]
    shown = display("quiet" if quiet else "auto", names)
    tell: Any = (lambda name, record: None) if quiet else shown.tell
    made = Comparison(plan, place, tell)
    try:
        made.go()
    except (Stopped, Failed) as ended:
        shown.stop()
        finish(made, as_json)
        print(ended, file=sys.stderr)
        raise typer.Exit(130 if isinstance(ended, Stopped) else 1) from None
    finally:
        shown.stop()
    finish(made, as_json)


def finish(made: Any, as_json: bool) -> None:
    from regard.lab.compare.report import write_report

    found = write_report(made.found(), made.out)
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        print(found["summary"])
        print(f"the report is {made.out / 'report.html'}", file=sys.stderr)
