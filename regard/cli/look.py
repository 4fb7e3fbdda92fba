"""`regard look`: one page of a model's attention on a text."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.generate import utf8
from regard.core.errors import InputError


def register(app: typer.Typer) -> None:
    app.command(short_help="Make a page of a model's attention on a text.")(look)


def look(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run or a model directory.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What it reads; - is the input.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page.  [default: RUN-look.html, here]"),
    ] = None,
    second: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Another text, side by side.")
    ] = None,
    against: Annotated[
        str, typer.Option(metavar="RUN", help="Another model on the same text, side by side.")
    ] = "",
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Of a decoder; else the model writes it itself."),
    ] = None,
    order: Annotated[
        str,
        typer.Option(
            metavar="3,1,2|SEED",
            help="XLNet: the tokens to guess, in this order, or a number to draw an order by.",
        ),
    ] = "",
    memory: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Transformer-XL, XLNet: the text before, remembered."),
    ] = None,
    global_tokens: Annotated[
        str, typer.Option("--global", metavar="1,7", help="Longformer: which tokens are global.")
    ] = "",
    knowledge: Annotated[
        bool, typer.Option("--knowledge", help="With facts from the run's own graph.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the page.")] = False,
    download: Annotated[
        bool, typer.Option("--download", help="RUN is a name on the Hugging Face Hub: fetch it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print tokens, layers, heads and mean weights.")
    ] = False,
) -> None:
    """Make one page of a model's attention on a text, to open in any browser.

    Every layer and head as arcs and as a matrix, their mean and rollout, cross-attention, memory,
    XLNet's two streams, windows and global tokens, facts of a graph. The page needs no network.

    \b
    Examples:
      regard look ./my-gpt "the animal did not cross the street because it was too tired"
      regard look ./my-gpt "the cat sat" --against ./my-bert --out cat.html
      regard look ./translator "Good morning." --target "Guten Morgen."
      regard look ./my-xlnet "New York is a city" --order 4,5,1
      regard look ./my-txl "and then it slept." --memory "The cat sat on the mat,"
    """
    given = utf8(sys.stdin.read).removesuffix("\n") if text == "-" else text
    file = out or Path(f"{Path(run).resolve().name}-look.html")
    if file.exists() and not force:
        raise InputError(f"{file} exists already; choose another --out, or say --force")
    if not file.parent.is_dir():
        raise InputError(f"there is no directory {file.parent} to write {file.name} into; make it")
    places = numbers("--global", global_tokens) if global_tokens else None
    wanted = ordered(order) if order else None
    from regard.formats.directory import load
    from regard.lab.look import look as record

    made = record(
        load(run, download=download),
        given,
        second=second,
        against=load(against, download=download) if against else None,
        target=target,
        order=wanted,
        memory=memory,
        knowledge=knowledge,
        global_tokens=places,
        tell=progress if sys.stderr.isatty() else None,
    )
    page = made.save(file, force=force)
    if as_json:
        print(json.dumps({"page": str(page), **made.facts()}, indent=2, ensure_ascii=False))
        return
    for side in made.sides:
        told = ", ".join(
            f"{stack.kind} {len(stack.layers)}×{max(len(layer.heads) for layer in stack.layers)}"
            for stack in side.stacks
        )
        rows = len(side.tokens[side.stacks[0].rows])
        print(f"{side.model} ({side.family}): {rows:,} tokens; layers × heads: {told}")
    print(f"the page is {page} ({page.stat().st_size / 1e6:.1f} MB)")


def progress(done: int, total: int) -> None:
    """One line that is written over, and gone at the end."""
    line = "" if done == total else f"layer {done} of {total}"
    print(f"\r{line:<24}\r", end="", file=sys.stderr, flush=True)


def ordered(given: str) -> int | list[int]:
    """A number alone is a seed."""
    found = numbers("--order", given)
    return found if "," in given else found[0]


def numbers(option: str, given: str) -> list[int]:
    parts = [part.strip() for part in given.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise InputError(f"{option} is {given!r}; it must be numbers with commas, such as 3,1,2")
    return [int(part) for part in parts]
