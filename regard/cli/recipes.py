"""`regard recipes`: the set-ups of the papers, as files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

HERE = Path(__file__).parent.parent / "recipes"


def register(app: typer.Typer) -> None:
    app.command(short_help="List the recipes that come along.")(recipes)


def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this one.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> None:
    """List the recipes that come along, each with its paper, or show one.

    A recipe is a starting point: what is given beside it on the command line overrules it.

    \b
    Examples:
      regard recipes
      regard recipes bert-ner > mine.toml
      regard finetune my-bert --recipe bert-ner --data train.conll --out tagger
      regard finetune my-bert --recipe mine.toml --data train.conll --out tagger batch.samples=8
    """
    from regard.training.recipe import find

    if name is not None:
        text = find(name).read_text(encoding="utf-8")
        if as_json:
            show_json({"name": name, "recipe": text})
        else:
            print(text, end="")
        return
    files = sorted(HERE.glob("*.toml"))
    found = {file.stem: about(file.read_text(encoding="utf-8")) for file in files}
    if as_json:
        show_json({"recipes": [{"name": stem, "about": words} for stem, words in found.items()]})
        return
    width = max(map(len, found))
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for stem, words in found.items():
        line = f"{stem:<{width}}  {words}"
        print(line if wide is None or len(line) <= wide else line[: wide - 1] + "…")


def about(text: str) -> str:
    """The first line, a comment."""
    return text.partition("\n")[0].removeprefix("# ")


def show_json(value: object) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))
