"""`regard probe`: what a model's layers and heads know."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.check import chosen
from regard.cli.reading import Download, Field, Format, Header, Skip
from regard.cli.resuming import check_resume
from regard.core.errors import ConfigError

OF_A_PROBING = "a probing goes on as it began; give OUT alone"


def register(app: typer.Typer) -> None:
    app.command(short_help="Ask what a model's layers and heads know.")(probe)


def probe(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run or a model directory; with --resume the OUT to go on with."
        ),
    ],
    task: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="A labelled file (CoNLL, CoNLL-U, jsonl, csv, …), auto:NAME, structure (trees), "
            "or heads (attention).",
            show_default=False,
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help="The directory to write.")
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="What auto:NAME and heads read: a text or a prepared directory; structure (and "
            "heads) read CoNLL-U.",
            show_default=False,
        ),
    ] = "",
    valid: Annotated[
        str,
        typer.Option(metavar="FILE", help="Tells when to stop; else a tenth of the data does.",
                     show_default=False),
    ] = "",
    test: Annotated[
        str,
        typer.Option(metavar="FILE", help="Is measured on; else FILE of --valid, or a tenth.",
                     show_default=False),
    ] = "",
    kind: Annotated[
        str, typer.Option(metavar="NAME", help="linear, mlp, mlp-2, or rank-N such as rank-32.")
    ] = "linear",
    hidden: Annotated[int, typer.Option(metavar="N", help="Width of an MLP.")] = 256,
    dropout: Annotated[float, typer.Option(help="Of what a probe reads.")] = 0.0,
    decay: Annotated[float, typer.Option(help="Weight decay of a probe.")] = 0.0,
    epochs: Annotated[
        int,
        typer.Option(metavar="N", help="At most so many; validation ends it before.  [default: "
                     "100, of structure 40]", show_default=False),
    ] = 0,
    control: Annotated[
        bool,
        typer.Option("--control", help="Also learn random labels of word types: selectivity."),
    ] = False,
    untrained: Annotated[
        bool,
        typer.Option("--untrained/--no-untrained", help="Also ask untrained models of the shape."),
    ] = True,
    mix: Annotated[
        bool, typer.Option("--mix", help="Also a probe that reads a learned mix of all layers.")
    ] = False,
    seeds: Annotated[int, typer.Option(metavar="N", help="How often everything is repeated.")] = 3,
    layers: Annotated[
        str,
        typer.Option(metavar="LIST", help="Such as 0,3,-1; 0 is what the first layer reads.  "
                     "[default: all]", show_default=False),
    ] = "",
    pooling: Annotated[
        str, typer.Option(help="mean of a word's pieces (of a text's tokens), or first.")
    ] = "mean",
    length: Annotated[
        int, typer.Option(metavar="N", help="Tokens read at once.  [default: the model's context]",
                          show_default=False)
    ] = 0,
    limit: Annotated[
        int,
        typer.Option(metavar="N", help="Sentences or texts to learn from (heads: to look at), at "
                     "most."),
    ] = 4000,
    split: Annotated[
        str, typer.Option(metavar="NAME", help="Of a prepared directory.")
    ] = "train",
    cache: Annotated[
        str,
        typer.Option(metavar="DIR", help="Keep the states of RUN here for other questions.",
                     show_default=False),
    ] = "",
    skip: Skip = None,
    field: Field = None,
    form: Format = None,
    header: Header = None,
    download: Download = False,
    going_on: Annotated[
        bool, typer.Option("--resume", help="RUN is an OUT that was stopped: go on with it.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on standard error.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:  # fmt: skip
    """Ask what a model's layers and heads know, beside what an untrained model would.

    Small probes learn labels from frozen states, layer by layer; OUT gets figures (probe.json) and
    curves (probe.svg). What --task can be:

    \b
      FILE               words with tags, texts or pairs with labels; of CoNLL-U the parts of
                         speech (--field tags=xpos or tags=relation: others)
      auto:NAME          capital, number, punctuation-next, word-length, position, previous-word,
                         sentence-length, word-order, same-document: made from plain text
      structure          distances, depths and heads of dependency trees
      heads              how far and at whom each head looks; with CoNLL-U, along which relations

    \b
    Examples:
      regard probe my-bert --task ner.conll --control --out probed
      regard probe my-gpt --task auto:punctuation-next --data book.txt --out probed
      regard probe my-bert --task structure --data train.conllu --valid dev.conllu --kind rank-64
        --out probed
      regard probe my-bert --task heads --data dev.conllu --out looked
      regard probe --resume probed
    """
    plan: dict[str, Any] = {
        "task": task, "data": data or None, "valid": valid or None, "test": test or None,
        "kind": kind, "hidden": hidden, "dropout": dropout, "decay": decay,
        "epochs": epochs or None, "control": control,
        "untrained": untrained, "mix": mix, "seeds": seeds, "layers": numbers(layers),
        "pooling": pooling, "length": length or None, "limit": limit, "split": split,
        "cache": cache or None, "fields": chosen(field or []), "form": form, "header": header,
        "download": download, "skip": list(skip or ()),
    }  # fmt: skip
    from regard.methods.probe.plan import OPTIONS, Plan, usual

    if going_on:
        before, named = usual() | {"task": ""}, OPTIONS | {"untrained": "no-untrained"}
        given = {named.get(name, name): value != before[name] for name, value in plan.items()}
        check_resume({"out": out, **given}, why=OF_A_PROBING)
    elif out is None:
        raise ConfigError("--out is missing; give the directory that shall be written")
    from regard.methods.probe.experiment import probe as begin
    from regard.methods.probe.experiment import resume
    from regard.training.hardware import quick_malloc

    quick_malloc()
    if going_on:
        found = resume(Path(run), quiet=quiet)
    else:
        assert out is not None
        found = begin(Plan(run, **plan), out, quiet=quiet)
    show(found, as_json, quiet)


def numbers(given: str) -> list[int]:
    """0,3,-1"""
    try:
        return [int(part) for part in given.split(",") if part.strip()]
    except ValueError:
        raise ConfigError(f"--layers is {given!r}; expected are numbers such as 0,3,-1") from None


def show(found: dict[str, Any], as_json: bool, quiet: bool) -> None:
    from regard.methods.probe.report import in_lines

    if found["outcome"] == "interrupted":
        print(f"stopped; go on with: regard probe --resume {found['out']}", file=sys.stderr)
        raise typer.Exit(130)
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print("\n".join(in_lines(found)))
    if not quiet:
        for note in found["notes"]:
            print(f"regard: note: {note}", file=sys.stderr)
        print(f"the picture is {Path(found['out'], 'probe.svg')}", file=sys.stderr)
