"""`regard classify`, `tag`, `answer`, …: what a model that has learned a task says of texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.core.errors import InputError

WANTED = {  # what a model must have learned; the first names it
    "classify": ("classify", "entail", "similar"),
    "similar": ("similar",),
    "tag": ("tag",),
    "answer": ("answer",),
    "choose": ("choose",),
    "translate": ("translate",),
    "summarise": ("summarise",),
}

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A run or a model directory.")]
Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT…", help="Else standard input is read, a text a line.", show_default=False
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="FILE", help="Read them from jsonl, json, csv, tsv, or a text a line."
    ),
]
Field = Annotated[
    list[str] | None,
    typer.Option(metavar="ROLE=NAME", help="Name a field of the records, such as text=review."),
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="Of FILE: jsonl, json, csv, tsv, conll, lines."),
]
Precision = Annotated[str, typer.Option(help="Of the computation: fp32 or bf16.")]
Download = Annotated[
    bool, typer.Option("--download", help="MODEL is a name on the Hugging Face Hub: fetch it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]
Lines = Annotated[bool, typer.Option("--jsonl", help="Print a JSON object a line, as they come.")]
Beams = Annotated[int | None, typer.Option(metavar="N", help="Search with so many beams.")]
Tokens = Annotated[int | None, typer.Option(metavar="N", help="At most so many new tokens.")]
Alpha = Annotated[float | None, typer.Option(help="Strength of the beams' length penalty.")]
Prefix = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Published T5: stands before every text, such as 'summarize: '."
    ),
]


def register(app: typer.Typer) -> None:
    commands: dict[Callable[..., None], str] = {
        classify: "Say which class texts belong to.",
        tag: "Tag words: names in sentences, parts of speech.",
        answer: "Answer questions with words of a passage.",
        choose: "Choose the best of several alternatives.",
        similar: "Say how similar two texts are.",
        translate: "Translate texts.",
        summarise: "Summarise texts.",
        embed: "Make vectors of texts.",
    }
    for command, told in commands.items():
        app.command(short_help=told)(command)


def classify(
    model: Model,
    texts: Texts = None,
    pair: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, where two are compared.")
    ] = None,
    file: File = None,
    field: Field = None,
    form: Format = None,
    precision: Precision = "fp32",
    download: Download = False,
    as_json: Json = False,
    as_lines: Lines = False,
) -> None:
    """Say which class texts belong to: a line each, with the probability of the class.

    Two texts that are compared (entail) stand in a line with a tab between them.

    \b
    Examples:
      regard classify reviewer "a warm and moving film" "a dull plot"
      regard classify reviewer --file reviews.txt > classes.tsv
      regard classify reviewer --file reviews.csv --field text=review --jsonl
      regard classify judge "A man sleeps." --pair "A man is awake."
    """
    request = Request(model, texts, file, field, form, precision, download, as_json, as_lines)
    run("classify", request, pair=pair)


def tag(
    model: Model,
    texts: Texts = None,
    file: File = None,
    field: Field = None,
    form: Format = None,
    precision: Precision = "fp32",
    download: Download = False,
    as_json: Json = False,
    as_lines: Lines = False,
) -> None:
    """Tag the words of sentences: a line each, with the entities, or with every word and its tag
    where tags are no entities' (parts of speech).

    \b
    Examples:
      regard tag tagger "Angela Merkel visited Paris."
      regard tag tagger --file sentences.txt --jsonl > tagged.jsonl
      regard tag tagger --file words.conll --json
    """
    request = Request(model, texts, file, field, form, precision, download, as_json, as_lines)
    run("tag", request)


def answer(
    model: Model,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUESTION PASSAGE",
            help="Else standard input is read: both in a line with a tab between, or as JSON.",
            show_default=False,
        ),
    ] = None,
    file: File = None,
    field: Field = None,
    form: Format = None,
    precision: Precision = "fp32",
    download: Download = False,
    as_json: Json = False,
    as_lines: Lines = False,
) -> None:
    """Answer questions with words of a passage: a line each.

    \b
    Examples:
      regard answer reader "Who sat?" "The cat sat on the mat."
      regard answer reader --file squad.json --jsonl > answers.jsonl
    """
    request = Request(model, texts, file, field, form, precision, download, as_json, as_lines)
    run("answer", request)


def choose(
    model: Model,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PREMISE CHOICE CHOICE…",
            help="Else standard input is read: all in a line with tabs between, or as JSON.",
            show_default=False,
        ),
    ] = None,
    asks: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What is asked of the premise: cause or effect, …"),
    ] = None,
    file: File = None,
    field: Field = None,
    form: Format = None,
    precision: Precision = "fp32",
    download: Download = False,
    as_json: Json = False,
    as_lines: Lines = False,
) -> None:
    """Choose the best of several alternatives: a line each, with its probability.

    \b
    Examples:
      regard choose chooser "The ground was wet." "It had rained." "The sun shone." --asks cause
      regard choose chooser --file copa.jsonl --jsonl
    """
    request = Request(model, texts, file, field, form, precision, download, as_json, as_lines)
    run("choose", request, asks=asks)


def similar(
    model: Model,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT TEXT",
            help="Else standard input is read: both in a line with a tab between, or as JSON.",
            show_default=False,
        ),
    ] = None,
    file: File = None,
    field: Field = None,
    form: Format = None,
    precision: Precision = "fp32",
    download: Download = False,
    as_json: Json = False,
    as_lines: Lines = False,
) -> None:
    """Say how similar two texts are: a line each, with a number, or a class where it was learned
    so.

    \b
    Examples:
      regard similar judge "A man plays a guitar." "Someone makes music."
      regard similar judge --file pairs.tsv > scores.txt
    """
    request = Request(model, texts, file, field, form, precision, download, as_json, as_lines)
    run("similar", request)


def translate(
    model: Model,
    texts: Texts = None,
    file: File = None,
    field: Field = None,
    form: Format = None,
    beams: Beams = None,
    tokens: Tokens = None,
    alpha: Alpha = None,
    prefix: Prefix = None,
    precision: Precision = "fp32",
    download: Download = False,
    as_json: Json = False,
    as_lines: Lines = False,
) -> None:
    """Translate texts: a line each.

    \b
    Examples:
      regard translate translator "Good morning." --beams 4
      regard translate t5-small "Good morning." --prefix "translate English to German: "
      regard translate translator < book.en > book.zh
    """
    request = Request(model, texts, file, field, form, precision, download, as_json, as_lines)
    run("translate", request, beams=beams, tokens=tokens, alpha=alpha, prefix=prefix)


def summarise(
    model: Model,
    texts: Texts = None,
    file: File = None,
    field: Field = None,
    form: Format = None,
    beams: Beams = None,
    tokens: Tokens = None,
    alpha: Alpha = None,
    prefix: Prefix = None,
    precision: Precision = "fp32",
    download: Download = False,
    as_json: Json = False,
    as_lines: Lines = False,
) -> None:
    """Summarise texts: a line each.

    \b
    Examples:
      regard summarise editor --file articles.jsonl --beams 4
      regard summarise editor "$(cat article.txt)" --tokens 60
    """
    request = Request(model, texts, file, field, form, precision, download, as_json, as_lines)
    run("summarise", request, beams=beams, tokens=tokens, alpha=alpha, prefix=prefix)


def embed(
    model: Model,
    texts: Texts = None,
    file: File = None,
    field: Field = None,
    form: Format = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Write a table of numpy, a row for each text."),
    ] = None,
    pooling: Annotated[
        str, typer.Option(help="Of the tokens: their mean, the first or the last.")
    ] = "mean",
    layer: Annotated[int, typer.Option(help="Which layer's; -1 is the last.")] = -1,
    raw: Annotated[bool, typer.Option("--raw", help="Not brought to length 1.")] = False,
    precision: Precision = "fp32",
    download: Download = False,
    as_json: Json = False,
    as_lines: Lines = False,
) -> None:
    """Make vectors of texts, with any model: a line each, or a table of numpy.

    \b
    Examples:
      regard embed my-bert --file texts.txt --out vectors.npy
      regard embed my-bert "a film" "a book" --json
    """
    if out is not None and (out.suffix != ".npy" or as_json or as_lines):
        raise InputError(
            f"--out is {out}; give a name that ends in .npy, without --json or --jsonl"
        )
    from regard.evaluation.embeddings import embed as embedded

    request = Request(model, texts, file, field, form, precision, download, as_json, as_lines)
    found, notes = request.examples("embed")
    loaded = opened(model, download)
    vectors = embedded(
        loaded,
        [example.text for example in found],
        pooling=pooling, layer=layer, normalize=not raw, precision=precision,
    )  # fmt: skip
    tell(notes)
    if out is not None:
        import numpy as np

        np.save(out, vectors)
        print(f"{len(vectors):,} vectors of {vectors.shape[1]:,} are in {out}", file=sys.stderr)
    elif as_json:
        print(json.dumps({"model": model, "vectors": vectors.tolist()}))
    else:
        for row in vectors.tolist():
            print(json.dumps({"vector": row}) if as_lines else " ".join(f"{x:.6g}" for x in row))


@dataclass(frozen=True)
class Request:
    """What is common to all of these commands."""

    model: str
    texts: list[str] | None
    file: Path | None
    field: list[str] | None
    form: str | None
    precision: str
    download: bool
    as_json: bool
    as_lines: bool

    def examples(
        self, command: str, pair: str | None = None, asks: str | None = None
    ) -> tuple[list[Any], list[str]]:
        """The examples, and what a user should know of them."""
        from regard.cli.asked import examples_given

        texts, field = self.texts or [], self.field or []
        return examples_given(command, texts, self.file, field, self.form, pair, asks)


def run(
    command: str,
    request: Request,
    *,
    pair: str | None = None,
    asks: str | None = None,
    **decoding: float | str | None,
) -> None:
    """Reads, asks and prints; what cannot be read is refused before a model is opened."""
    if request.as_json and request.as_lines:
        raise InputError("--json prints one object and --jsonl many; choose one of them")
    from regard.cli.asked import check_pairs, described, in_line

    found, notes = request.examples(command, pair, asks)
    loaded = opened(request.model, request.download)
    from regard.evaluation.predictors import check_task, predictor_for

    task = check_task(loaded, WANTED[command])
    check_pairs(found, task, request.model)
    how: dict[str, Any] = {k: value for k, value in decoding.items() if value is not None}
    asked = predictor_for(loaded, task=task, precision=request.precision, **how)
    answers = zip(found, asked.stream(found), strict=True)
    if request.as_json:
        rows = [described(task, example, said, asked.labels) for example, said in answers]
        made = {"model": request.model, "task": task, "answers": rows}
        print(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        for example, said in answers:
            if request.as_lines:
                row = described(task, example, said, asked.labels)
                print(json.dumps(row, ensure_ascii=False), flush=True)
            else:
                print(in_line(task, example, said, asked.labels), flush=True)
    tell([*notes, *asked.notes])


def opened(model: str, download: bool) -> Any:
    from regard.formats.directory import load
    from regard.training.hardware import quick_malloc
    from regard.training.run import pick_device

    quick_malloc()
    loaded = load(model, download=download)
    loaded.model.to(pick_device(None))
    return loaded


def tell(notes: list[str]) -> None:
    for note in notes:
        print(f"regard: note: {note}", file=sys.stderr)
