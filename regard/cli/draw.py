"""`regard draw`: pictures of what a model attends to, and of what models are made of."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.report.drawings import Picture

SENTENCE = "the animal did not cross the street because it was too tired"
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "add_completion": False}
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write an SVG, or a PNG (letters in ASCII), here instead."
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")]
Download = Annotated[
    bool, typer.Option("--download", help="The model is a name on the Hugging Face Hub: fetch it.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(**PLAIN)
    group.callback(invoke_without_command=True)(draw)
    for name, command in COMMANDS.items():
        group.command(name)(command)
    app.add_typer(group, name="draw")


def draw(context: typer.Context) -> None:
    """Draw what a model attends to, and what models are made of."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def attention(
    text: Annotated[str, typer.Argument(metavar="TEXT", show_default=False)] = SENTENCE,
    model: Annotated[
        str,
        typer.Option(metavar="NAME", help="A model directory, or a published size (untrained)."),
    ] = "gpt2",
    layer: Annotated[
        int,
        typer.Option(help="Which layer, counted from 1; a decoder's cross-attention is another."),
    ] = 1,
    head: Annotated[
        int | None, typer.Option(help="Which head, counted from 1; else the mean of all.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an SVG, or a PNG (letters in ASCII), as well."),
    ] = None,
    download: Download = False,
    as_json: Json = False,
) -> None:
    """Draw who looks at whom while a model reads TEXT.

    The terminal gets a small picture; --out writes one for a page, with the weights as tooltips.
    A model without a tokenizer, or of a published size, reads the words of TEXT as numbers.

    \b
    Examples:
      regard draw attention "to be or not to be"
      regard draw attention --model ./my-model --layer 3 --head 5 --out attention.svg "the cat sat"
    """
    from regard.lab.draw.pictures import ending

    if out is not None:
        ending(out)  # refused before a model is opened
    from regard.lab.draw.attention import look

    show(look(model, text, layer, head, download=download), out, as_json, also=True)


def positions(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", show_default=False, help="A model directory; none: sinusoids."
        ),
    ] = "",
    length: Annotated[int, typer.Option(help="Positions that are shown.")] = 32,
    width: Annotated[int, typer.Option(help="Numbers of each that are shown.")] = 64,
    layout: Annotated[
        str, typer.Option(help="Of sinusoids: interleaved, halves or tensor2tensor.")
    ] = "interleaved",
    out: Out = None,
    download: Download = False,
    as_json: Json = False,
) -> None:
    """Draw positions as a heat map: sinusoids, or the table that a model has learned.

    \b
    Examples:
      regard draw positions --length 50 --width 128 --out positions.png
      regard draw positions ./my-bert
    """
    from regard.lab.draw import pictures

    show(pictures.positions(model, length, width, layout, download=download), out, as_json)


def schedules(
    names: Annotated[
        str, typer.Argument(metavar="NAME,NAME,…", show_default=False, help="Which ones.")
    ] = "noam,linear,cosine",
    steps: Annotated[int, typer.Option(help="Of the whole run.")] = 1000,
    warmup: Annotated[float, typer.Option(help="In steps, or a share of all if below 1.")] = 0.1,
    rate: Annotated[float, typer.Option(help="The highest rate.")] = 1.0,
    power: Annotated[float, typer.Option(help="Of polynomial.")] = 1.0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Draw learning rates over the steps of a run.

    \b
    Examples:
      regard draw schedules noam,linear,cosine,inverse-square-root
      regard draw schedules polynomial --power 3 --warmup 500 --steps 3000 --out rates.svg
    """
    from regard.lab.draw import pictures

    chosen = [name.strip() for name in names.split(",") if name.strip()]
    given = {"steps": steps, "warmup": warmup, "rate": rate, "power": power}
    show(pictures.schedules(chosen, **given), out, as_json)  # type: ignore[arg-type]


def masks(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="full, causal, prefix, window, longformer, bigbird, xlnet, knowledge.",
        ),
    ] = "causal",
    length: Annotated[int, typer.Option(help="Rows.")] = 16,
    past: Annotated[int | None, typer.Option(help="causal: remembered rows before.")] = None,
    prefix: Annotated[int | None, typer.Option(help="prefix: rows that see each other.")] = None,
    window: Annotated[int | None, typer.Option(help="window, longformer: both sides.")] = None,
    globals_: Annotated[
        int | None, typer.Option("--globals", help="longformer, bigbird: global tokens.")
    ] = None,
    block: Annotated[int | None, typer.Option(help="bigbird: tokens of a block.")] = None,
    random: Annotated[int | None, typer.Option(help="bigbird: blocks that are drawn.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="xlnet: draws the order; bigbird: draws the blocks.")
    ] = None,
    memory: Annotated[int | None, typer.Option(help="xlnet: remembered rows before.")] = None,
    branches: Annotated[int | None, typer.Option(help="knowledge: branches of a word.")] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Draw who may see whom: a row asks, a column is looked at.

    \b
    Examples:
      regard draw masks prefix --prefix 6
      regard draw masks longformer --length 40 --window 8 --globals 2 --out mask.svg
    """
    from regard.lab.draw import pictures

    given = {"past": past, "prefix": prefix, "window": window, "globals": globals_, "block": block,
             "random": random, "seed": seed, "memory": memory, "branches": branches}  # fmt: skip
    options = {name: value for name, value in given.items() if value is not None}
    show(pictures.masks(kind, length, **options), out, as_json)


def order(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", show_default=False)
    ] = "the cat sat on the mat",
    seed: Annotated[int, typer.Option(help="Draws the order.")] = 1,
    memory: Annotated[int, typer.Option(help="Remembered rows before.")] = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Draw one of XLNet's orders and what both streams see in it: h is content, g is query.

    \b
    Example:
      regard draw order "the cat sat on the mat" --seed 3 --memory 2
    """
    from regard.data.words import words_of
    from regard.lab.draw import pictures

    show(pictures.order(words_of(text), seed, memory), out, as_json)


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model directory, or a published size.")
]


def parameters(model: Model, out: Out = None, as_json: Json = False) -> None:
    """Draw how many weights stand in which layer.

    \b
    Example:
      regard draw parameters bert-base-uncased --out parameters.svg
    """
    from regard.lab.draw import pictures

    show(pictures.parameters(model), out, as_json)


def operations(
    model: Model,
    length: Annotated[int, typer.Option(help="Tokens of the text.")] = 512,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Draw what reading a text costs, by layer: operations of one pass forward.

    \b
    Example:
      regard draw operations gpt2 --length 1024
    """
    from regard.lab.draw import pictures

    show(pictures.operations(model, length), out, as_json)


COMMANDS: dict[str, Callable[..., None]] = {
    "attention": attention,
    "positions": positions,
    "schedules": schedules,
    "masks": masks,
    "order": order,
    "parameters": parameters,
    "operations": operations,
}


def show(picture: Picture, out: Path | None, as_json: bool, *, also: bool = False) -> None:
    """In a file, as numbers, or for the terminal, `also` where it is in a file."""
    if out is not None:
        from regard.lab.draw.pictures import write

        write(picture, out)
    if as_json:
        print(json.dumps(picture.data() | ({} if out is None else {"out": str(out)})))
        return
    if out is None or also:
        print(picture.text(shades()))
    if out is not None:
        print(f"the picture is in {out}")


def shades() -> str:
    """What this terminal can show."""
    from regard.report.heatmap import PLAIN_SHADES, SHADES

    return SHADES if "utf" in (sys.stdout.encoding or "").lower() else PLAIN_SHADES
