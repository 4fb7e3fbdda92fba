"""`regard prompt`: zero-, one- and few-shot evaluation of a model that goes on with texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.reading import Field, Header, Skip
from regard.core.errors import InputError, StorageError


def register(app: typer.Typer) -> None:
    app.command(short_help="Test a model by prompts, without training it.")(prompt)


def prompt(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run or a model directory.")],
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA…", help="Labelled files; two texts for translate."),
    ],
    task: Annotated[
        str,
        typer.Option(
            metavar="T",
            help="classify, entail, similar, choose, answer, translate, summarise, converse.",
        ),
    ],
    shots: Annotated[
        int, typer.Option(metavar="N", help="Demonstrations before each example.")
    ] = 0,
    shots_from: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Draw them from here; else from DATA, never the same."),
    ] = None,
    draw: Annotated[
        str, typer.Option(help="uniform, or balanced: as many of each class.")
    ] = "uniform",
    fixed: Annotated[
        bool, typer.Option("--fixed", help="The same demonstrations for all examples.")
    ] = False,
    template: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Fields in braces, the answer last: '{text}\\nMood: {label}'."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=WORD", help="What the model reads for a label: pos=great."),
    ] = None,
    instruction: Annotated[
        str, typer.Option(metavar="TEXT", help="Stands before everything.")
    ] = "",
    separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Between demonstrations (\\n: a line break).")
    ] = None,
    score: Annotated[
        str, typer.Option(help="What decides: raw, token, byte or calibrated; all are shown.")
    ] = "token",
    neutral: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Context of the calibrated score; else 'Answer:'."),
    ] = None,
    blank: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Or what replaces the example in it, such as N/A."),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(metavar="N", help="At most so many for an open answer.")
    ] = None,
    beams: Annotated[int, typer.Option(metavar="N", help="Search open answers so wide.")] = 1,
    language: Annotated[
        str,
        typer.Option(metavar="CODE", help="Of open answers, such as zh; else by their letters."),
    ] = "",
    length: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of a prompt; else the model's context.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Ask only so many examples, drawn by the seed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every draw.")] = 0,
    field: Field = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="jsonl, json, csv, tsv, lines.")
    ] = None,
    header: Header = None,
    skip: Skip = None,
    precision: Annotated[str, typer.Option(help="Of the weights: fp32 or bf16.")] = "fp32",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write result.json and predictions.jsonl there."),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Allow names of the Hugging Face Hub to be fetched.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on standard error.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Test a model by prompts: it reads a text that ends before the answer, and learns nothing.

    Answers to choose from are scored by their likelihood; others are written, up to the end of the
    line. Demonstrations that do not fit are left out, the first ones first.

    \b
    Examples:
      regard prompt my-gpt reviews.jsonl --task classify --label pos=great --label neg=terrible
      regard prompt my-gpt sick.jsonl --task entail --shots 4 --draw balanced --score calibrated
      regard prompt my-gpt copa.jsonl --task choose --shots 1 --shots-from train.jsonl
      regard prompt my-gpt pairs.tsv --task translate --shots 4 --out answers
      regard prompt my-gpt news.csv --task classify --template "{text}\\nTopic: {label}"
    """
    from regard.evaluation.prompting import Options

    options: dict[str, Any] = {
        "shots": shots, "draw": draw, "fixed": fixed, "score": score, "tokens": tokens,
        "beams": beams, "language": language, "length": length, "limit": limit, "seed": seed,
    }  # fmt: skip
    options["labels"] = mapping("label", "pos=great", label or [])
    for name, text in (("template", template), ("instruction", instruction),
                       ("separator", separator), ("neutral", neutral)):  # fmt: skip
        options[name] = None if text is None else unescaped(text)
    options["blank"] = tuple(unescaped(text) for text in blank or ())
    Options.of(options)  # what cannot be is refused before anything is opened
    from regard.cli.generate import opened
    from regard.core.progress import Progress
    from regard.data.problems import Problems
    from regard.evaluation.preflight import check_place
    from regard.evaluation.prompting import evaluate
    from regard.evaluation.test import told
    from regard.tasks import read

    if out is not None:
        check_place(out)
    how: dict[str, Any] = {
        "fields": mapping("field", "text=review", field or []), "form": form, "header": header,
        "classes": True, "offsets": False, "download": download, "skip": skip or (),
    }  # fmt: skip
    problems = Problems()
    examples = read(data, task, problems=problems, **how)
    pool = read(shots_from, task, problems=problems, **how) if shots_from else None
    loaded = opened(model, precision, download)
    progress = Progress(quiet=quiet)
    try:
        found = evaluate(loaded, examples, task, pool=pool, watch=told(progress), **options)
    finally:
        progress.close()
    found = {"data": data, "shots_from": shots_from or data, **found, "model": model}
    found["notes"][:0] = problems.notes()
    predictions = found.pop("predictions")
    if out is not None:
        write(out, found, predictions)
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print("\n".join(in_lines(found)))
    if quiet:
        return
    for note in found["notes"]:
        print(f"regard: note: {note}", file=sys.stderr)
    if out is not None:
        print(f"the answers are in {out / 'predictions.jsonl'}", file=sys.stderr)


def mapping(option: str, like: str, given: list[str]) -> dict[str, str]:
    """NAME=VALUE, several times."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise InputError(f"--{option} {each} is not of the form {like}")
        if name in found:
            raise InputError(f"--{option} names {name} twice: {found[name]} and {value}")
        found[name] = value
    return found


def unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def write(out: Path, found: dict[str, Any], predictions: list[dict[str, Any]]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in predictions]
    text = json.dumps(found, indent=2, ensure_ascii=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "predictions.jsonl").write_text("".join(lines), encoding="utf-8")
        (out / "result.json").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"the answers cannot be written to {out}: {error.strerror}; give --out another place"
        ) from None


def in_lines(found: dict[str, Any]) -> Iterator[str]:
    """The result for people."""
    shots = found["shots"]
    drawn = f", {found['draw']}{', fixed' * found['fixed']}, seed {found['seed']}" if shots else ""
    shown = f"{shots} demonstration{'s' * (shots != 1)}{drawn}"
    yield f"{found['model']} on {', '.join(found['data'])}: {found['task']}, {shown}"
    yield f"template   {found['template']!r}"
    if found["labels"]:
        words = ", ".join(f"{label}: {word!r}" for label, word in found["labels"].items())
        yield f"words      {words}"
    yield f"examples   {found['examples']:,}"
    yield ""
    if "by_score" in found:
        yield from choices(found)
        yield ""
    between = f"{found['level']:.0%} interval"
    yield f"{'figure':<24}{'value':>9}   {between}"
    for name, value in found["figures"].items():
        yield line(name, value, found["intervals"].get(name))


def choices(found: dict[str, Any]) -> Iterator[str]:
    """Every score beside what needs no model."""
    between = f"{found['level']:.0%} interval"
    yield f"{'decided by':<24}{'accuracy':>9}   {between}"
    for name, by in found["by_score"].items():
        chosen = " (decides)" if name == found["score"] else ""
        yield line(name + chosen, by["accuracy"], by["interval"])
    frequent = found["most_frequent"]
    yield line(f"always {frequent['label']}"[:23], frequent["accuracy"], None)
    yield line("chance", found["chance"], None)


def line(name: str, value: float | None, between: list[float] | None) -> str:
    text = f"{name:<24}" + (f"{value:>9.4f}" if value is not None else f"{'–':>9}")
    return text + (f"   {between[0]:.4f} … {between[1]:.4f}" if between else "")
