"""The command line: parses, calls, prints. Each command imports what is heavy by itself."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli import (
    ask,
    augment,
    chat,
    check,
    claims,
    compare,
    distil,
    draw,
    fill,
    finetune,
    generate,
    look,
    ngram,
    prefer,
    prepare,
    probe,
    prompt,
    prune,
    quantize,
    recipes,
    test,
    train,
)
from regard.core import VERSION
from regard.core.errors import RegardError, UnknownName

# Rich would make the help prettier and twice as slow; a paragraph after \b keeps its line breaks.
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "add_completion": False}
app = typer.Typer(name="regard", pretty_exceptions_enable=False, **PLAIN)
READING = (prepare, ngram, train, recipes)
TASKS = (check, augment, finetune, test, ask, prompt, generate, fill, chat, prefer)
WORKSHOP = (distil, quantize, prune, probe)
STUDY = (compare, claims, look, draw)
for command in (*READING, *TASKS, *WORKSHOP, *STUDY):
    command.register(app)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]

# Typer carries click's UsageError under a name of its own; its child is public in every version.
Misused: type[Exception] = typer.BadParameter.__bases__[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code: 0 done, 2 refused, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows only ASCII gets "?"
    warnings.showwarning = note
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        program = overview() if words in ([], ["--help"]) else app
        code = program(args=words, prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Misused as error:
        return complain(misuse(error))
    except RegardError as error:
        return complain(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}")


def overview() -> typer.Typer:
    """The program as its own help shows it: commands have names and short helps, and no options.
    To understand all options takes most of the time, and the help shows none of them.
    """
    light = typer.Typer(name="regard", pretty_exceptions_enable=False, **PLAIN)
    light.registered_callback = app.registered_callback
    light.registered_groups = app.registered_groups
    for info in app.registered_commands:
        name = info.name or getattr(info.callback, "__name__", "").replace("_", "-")
        light.command(name, short_help=info.short_help)(lambda: None)
    return light


def note(message: Warning | str, *_: object, **__: object) -> None:
    """A warning without the place in the code that gave it."""
    print(f"regard: note: {message}", file=sys.stderr)


def complain(message: str) -> int:
    print(f"regard: {message}", file=sys.stderr)
    return 2


def misuse(error: Any) -> str:
    program = error.ctx.command_path if error.ctx else "regard"
    return f"{error.format_message().rstrip('.')}\ntry '{program} --help'"


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"regard {VERSION}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def regard(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """The attention language models, from the Transformer to T5, on one attention core.

    \b
    Examples:
      regard models                        every published size
      regard prepare my-texts/ --out data  text to tokens
      regard train gpt data --out my-gpt --size small --minutes 10
      regard generate my-gpt "Once upon"   let it go on with a text
      regard finetune my-bert --task classify --data reviews.jsonl --out reviewer
      regard test reviewer test.jsonl      how good is it?
      regard classify reviewer "a moving film"
      regard info ./my-gpt                 what a model directory holds
      regard compare book.txt --budget 5m --out lineage   every family on your text
      regard draw attention "to be or not to be"
    """
    help_alone(context)


def help_alone(context: typer.Context) -> None:
    """A command that only groups others shows them when it is given none."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(short_help="List every published size.")
def models(
    family: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this family, such as gpt.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List every published size: paper, year, exact number of parameters, context.

    \b
    Examples:
      regard models
      regard models --family t5
      regard models --json
    """
    from regard.models import FAMILIES

    if family is not None and family not in FAMILIES:
        raise UnknownName("family", family, FAMILIES)
    found = catalogue([family] if family else list(FAMILIES))
    if as_json:
        print_json({"models": found})
    else:
        print_table(found)


def catalogue(families: list[str]) -> list[dict[str, Any]]:
    """A row for each published size of these families."""
    from regard.models import FAMILIES, count_parameters

    return [
        {
            "name": name,
            "family": family,
            "paper": FAMILIES[family].source(name)[0],
            "year": FAMILIES[family].source(name)[1],
            "parameters": count_parameters(name),
            "context": getattr(config, "context", None),
        }
        for family in families
        for name, config in FAMILIES[family].sizes.items()
    ]


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line a size; on a terminal no longer than it is wide."""
    cells = [("name", "parameters", "context", "year", "paper")]
    for row in rows:
        context = f"{row['context']:,}" if row["context"] else "any"
        numbers = (f"{row['parameters']:,}", context, str(row["year"]))
        cells.append((row["name"], *numbers, row["paper"]))
    n, p, c, y, _ = (max(map(len, column)) for column in zip(*cells, strict=True))
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for name, parameters, context, year, paper in cells:
        line = f"{name:<{n}}  {parameters:>{p}}  {context:>{c}}  {year:<{y}}  {paper}"
        print(line if wide is None or len(line) <= wide else line[: wide - 1] + "…")


@app.command(short_help="Say what a model directory holds.")
def info(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A model directory.")],
    as_json: Json = False,
    download: Annotated[
        bool, typer.Option("--download", help="PATH is a name on the Hugging Face Hub: fetch it.")
    ] = False,
) -> None:
    """Say what a model directory holds, and whether transformers opens it.

    \b
    Examples:
      regard info ./my-model
      regard info --json ./my-model
      regard info --download google-bert/bert-base-uncased
    """
    from regard.formats.directory import describe

    found = describe(path, download=download)
    if as_json:
        print_json(found)
    else:
        print("\n".join(in_words(for_people(found))))


def for_people(found: dict[str, Any]) -> dict[str, Any]:
    """The same facts, with sizes in words and a reason beside its verdict."""
    reason = found.get("because")
    opens = f"no, because {reason}" if reason else found.get("opens_in_transformers")
    files = {name: in_bytes(size) for name, size in found.get("files", {}).items()}
    kept = {key: value for key, value in found.items() if key != "because"}
    return kept | {"files": files, "opens_in_transformers": opens}


def in_bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, "TB"
    return f"{size:.3g} {unit}"


def in_words(found: dict[str, Any], indent: str = "") -> Iterator[str]:
    """A dictionary as lines, one a fact, those of a nested one indented."""
    margin = max(map(len, found), default=0) + 2
    for key, value in found.items():
        name = key.replace("_", " ") if key.isidentifier() else key  # a file keeps its name
        if isinstance(value, dict) and value:
            yield f"{indent}{name}"
            yield from in_words(value, indent + "  ")
        elif isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
            yield f"{indent}{name}"
            for item in value:
                facts = item.values() if isinstance(item, dict) else [item]
                yield f"{indent}  {'  '.join(in_word(fact) for fact in facts)}"
        else:
            yield f"{indent}{name:<{margin}}{in_word(value)}"


def in_word(value: Any) -> str:
    match value:
        case None | [] | () | {}:
            return "none"
        case True:
            return "yes"
        case False:
            return "no"
        case int():
            return f"{value:,}"
        case list() | tuple():
            return ", ".join(in_word(item) for item in value)
        case _:
            return str(value)


@app.command(short_help="Convert pickled weights to safetensors.")
def convert(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A model directory.")],
) -> None:
    """Convert a directory's pickled weights (pytorch_model.bin) to safetensors.

    Only weights are read, nothing in the file is executed, and the pickled file stays.

    \b
    Example:
      regard convert ./old-model
    """
    from regard.formats import legacy

    print(legacy.convert(path))


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2))
