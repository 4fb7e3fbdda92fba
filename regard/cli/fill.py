"""`regard fill`: a model fills the blanks of a text."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from regard.cli.generate import utf8


def register(app: typer.Typer) -> None:
    app.command(short_help="Let a model fill the blanks of a text.")(fill)


def fill(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model directory.")],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="With blanks: [MASK] or ___; - reads the input.")
    ],
    top: Annotated[int, typer.Option(metavar="N", help="Candidates shown of each blank.")] = 5,
    order: Annotated[
        str,
        typer.Option(
            help="Of several blanks: the most confident first, from the left, or each as if the "
            "others stayed blank."
        ),
    ] = "confident",
    tokens: Annotated[int, typer.Option(metavar="N", help="T5: at most so many a blank.")] = 10,
    download: Annotated[
        bool, typer.Option("--download", help="MODEL is a name on the Hugging Face Hub: fetch it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let a model fill the blanks of a text (BERT, Longformer, XLNet, T5).

    \b
    Examples:
      regard fill ./my-bert "The [MASK] sat on the mat."
      regard fill ./my-bert "The ___ sat on the ___." --order left --top 3
      regard fill ./my-t5 "Thank you <extra_id_0> me to your party." --json
    """
    given = utf8(sys.stdin.read).removesuffix("\n") if text == "-" else text
    from regard.decoding import fill as run
    from regard.formats.directory import load
    from regard.training.run import pick_device

    loaded = load(model, download=download)
    loaded.model.to(pick_device(None))
    found = run(loaded, given, top=top, order=order, tokens=tokens)[0]
    if as_json:
        print(json.dumps(described(model, given, found), indent=2, ensure_ascii=False))
        return
    print(found.text)
    for number, candidates in enumerate(found.blanks, 1):
        if len(found.blanks) > 1:
            print(f"blank {number}")
        for each in candidates:
            print(f"  {100 * each.probability:6.2f}%  {each.text}")


def described(model: str, given: str, found: Any) -> dict[str, Any]:
    blanks = [
        [{"text": c.text, "ids": c.ids, "probability": c.probability} for c in candidates]
        for candidates in found.blanks
    ]
    return {"model": model, "given": given, "text": found.text, "blanks": blanks}
