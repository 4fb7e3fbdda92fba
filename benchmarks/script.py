"""The options that the scripts of docs/results.md share, and how they publish their results."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from page import put_both

ROOT = Path(__file__).resolve().parent.parent


def regard(words: Sequence[str]) -> None:
    """Runs a command of ours in this process."""
    from regard.cli.main import main

    if code := main(list(words)):
        raise SystemExit(f"regard {' '.join(words)} ended with {code}")


def parser_for(
    doc: str | None,
    name: str,  # the directory of its cells, in results/
    known: Iterable[str] = (),  # the names that --only accepts
    *,
    data: bool = True,  # does it read files of --data?
    few: str = "examples",  # the option that makes it small and short
) -> argparse.ArgumentParser:
    """Returns a parser with the options that all scripts share."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if data:
        parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--out", type=Path, default=Path("results", name))
    parser.add_argument("--seeds", type=int, default=3)
    if known := list(known):
        parser.add_argument("--only", default="", help=f"some of {','.join(known)}")
    tried = {"type": int, "nargs": "?", "const": 1, "default": 0}
    parser.add_argument(f"--{few}", help="few and short: to try it", **tried)  # type: ignore[arg-type]
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    return parser


def options_of(
    parser: argparse.ArgumentParser,
    known: Iterable[str] = (),
    what: str = "task",  # the kind of names that --only accepts
    few: str = "examples",
) -> argparse.Namespace:
    """Returns the checked options: `only` is a list (everything known, if nothing is chosen), and
    `cells` is the directory of the cells."""
    options, known = parser.parse_args(), list(known)
    if "data" in options:
        if not options.data:
            parser.error("give the directory of the data: --data DIR, or REGARD_DATA")
        options.data = Path(options.data).resolve()
    if known:
        options.only = [word for word in options.only.split(",") if word] or known
        if unknown := [name for name in options.only if name not in known]:
            parser.error(f"unknown {what} {unknown[0]!r}; known are {', '.join(known)}")
    options.out, options.few = options.out.resolve(), getattr(options, few)
    options.cells = options.out / (f"cells-{options.few}" if options.few else "cells")
    return options


def write_cell(options: argparse.Namespace, cell: Mapping[str, Any]) -> None:
    """Writes the cell for `in_process`."""
    options.cell.write_text(json.dumps(cell, ensure_ascii=False), encoding="utf-8")


def publish(
    options: argparse.Namespace, section: str, text: str, **result: Sequence[Mapping[str, Any]]
) -> None:
    """Puts a section into the page (not in a trial), and prints it, or the result as JSON."""
    if not options.few:
        put_both(section, text, options.page)
    print(json.dumps(result, indent=1) if options.json else text)
