"""The options by which commands are told how labelled data are to be read."""

from __future__ import annotations

from typing import Annotated

import typer

Skip = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND", help="Leave out records with such an error (regard check)."),
]
Field = Annotated[
    list[str] | None,
    typer.Option(metavar="ROLE=NAME", help="Name a field, such as text=review or label=2."),
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="jsonl, json, csv, tsv, parquet, conll, lines."),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Does the first line name the columns?"),
]
Download = Annotated[bool, typer.Option("--download", help="Allow hub:NAME to be fetched.")]
# Of what is measured before and after.
Learned = Annotated[str | None, typer.Option(metavar="T", help="What the model must have learned.")]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Of a prepared directory: train, valid or test.  [default: test]"
    ),
]
Limit = Annotated[int | None, typer.Option(metavar="N", help="Only the first N examples.")]
Repeats = Annotated[int, typer.Option(metavar="N", help="Measurements of speed; 0: none.")]
