"""`regard distil`: a small model learns from a large one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.check import chosen
from regard.cli.finetune import said
from regard.cli.reading import Field, Format, Header, Skip
from regard.cli.resuming import check_resume
from regard.core.errors import ConfigError


def register(app: typer.Typer) -> None:
    app.command(short_help="Teach a small model what a large one knows.")(distil)


def distil(
    teacher: Annotated[
        str,
        typer.Argument(
            metavar="TEACHER",
            help="A run or a model directory; with --resume the run to go on with.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE…", help="Changes of the recipe.", show_default=False),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="layers=6 begins with layers of the teacher; layers=4,width=256,heads=4 begins at "
            "random; or a model directory.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="What 'regard prepare' made of a text or of pairs, or a file of labelled examples "
            "for a teacher that has learned a task.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="Of labelled examples; else the task that the teacher has learned."),
    ] = None,
    style: Annotated[
        str | None,
        typer.Option(
            help="hinton (softened answers), distilbert (with the last states), tinybert (the "
            "layers; for a task then the answers, for as long again).",
        ),
    ] = None,
    sequence: Annotated[
        bool,
        typer.Option(
            "--sequence",
            help="For pairs: the teacher's own translations (RUN/first/pairs) are the targets.",
        ),
    ] = False,
    beams: Annotated[
        int | None,
        typer.Option(min=1, help="--sequence: with which the teacher translates (4)."),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="For a task: keep N words, those that its text uses among them.",
        ),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Examples to validate with; else a tenth of the data."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The directory of the run.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A recipe in TOML, or the name of one that comes along."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to learn for.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes to learn for.")] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides every random choice.")] = None,
    skip: Skip = None,
    field: Field = None,
    form: Format = None,
    header: Header = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="TEACHER is a run: go on as if it had never stopped.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing on the way.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end.")
    ] = False,
) -> None:
    """Teach a small model what a large one knows; RUN is the student, a model like any other.

    Without --style a task and pairs are learned from softened answers (Hinton et al. 2015), text
    as DistilBERT was (Sanh et al. 2019). objective.temperature=4, objective.hidden=1 and so on
    change the parts; a student is no wider and no deeper than its teacher.

    \b
    Examples:
      regard distil my-bert --student layers=6 --data text --out small-bert --epochs 3
      regard distil my-gpt --student layers=4 --data docs --style hinton --out small-gpt
      regard distil reviewer --student layers=3 --data reviews.jsonl --out small-reviewer
      regard distil reviewer --student layers=3 --vocabulary 15000 --data reviews.jsonl --out tiny
      regard distil tagger --student layers=2,width=128,heads=2,hidden=512 --style tinybert \\
        objective.attention=0 --data train.conll --out small-tagger
      regard distil translator --student layers=2 --data pairs --sequence --out quick-translator
      regard distil --resume small-bert
    """
    from regard.training import recipe as recipes

    changes = recipes.overrides(settings or [])
    if resume:
        given = {
            "student": student, "data": data, "task": task, "style": style, "sequence": sequence,
            "beams": beams, "vocabulary": vocabulary, "valid": valid, "out": out, "recipe": recipe,
            "epochs": epochs, "minutes": minutes, "rate": rate, "seed": seed, "skip": skip,
            "field": field, "format": form, "header": header is not None,
        }  # fmt: skip
        check_resume(given, changes)
    options = said({
        "examples": said({
            "task": task, "valid": valid, "skip": skip, "fields": chosen(field or []),
            "form": form, "header": None if header is None else ("no", "yes")[header],
        }),
        "budget": said({"steps": steps, "epochs": epochs, "minutes": minutes}),
        "optimizer": said({"rate": rate}),
    })  # fmt: skip
    base = recipes.read(recipes.find(recipe)) if recipe else {}
    if "budget" in options or "budget" in changes:
        base.pop("budget", None)  # steps in place of its epochs, not beside them
    made = recipes.make(base, options, changes, said({"seed": seed, "data": data}))
    from regard.methods.distill.run import Asked
    from regard.methods.distill.run import distil as run

    asked, place = None, Path(teacher)
    if not resume:
        shape, place = check(made, student, out)
        if beams and not sequence:
            raise ConfigError(f"--beams is {beams}, which only --sequence uses; leave it out")
        asked = Asked(teacher, shape, style, sequence, beams or 4, vocabulary)
    found = run(made, place, asked, resume=resume, display="silent" if quiet else "auto")
    if found["first"]:
        show(found, as_json)
    if found["outcome"] == "interrupted":
        raise typer.Exit(130)


def check(made: Any, student: str | None, out: Path | None) -> tuple[str, Path]:
    """The student and the run's directory, once it is clear what is asked for."""
    if not student:
        raise ConfigError("--student is missing; give its shape, such as --student layers=6")
    if not made.data:
        raise ConfigError(
            "--data is missing; give prepared text, prepared pairs, or a file of labelled examples"
        )
    if out is None:
        raise ConfigError("--out is missing; give the directory that the run shall write")
    return student, out


def show(found: dict[str, Any], as_json: bool) -> None:
    """A run has said by itself how it ended."""
    if as_json:
        import json

        print(json.dumps(found, indent=2, default=str))
    elif "distilled" in found:
        sizes = found["distilled"]
        print(
            f"{sizes['student']:,} parameters, {sizes['share']:.0%} of the teacher's "
            f"{sizes['teacher']:,}",
            file=sys.stderr,
        )
