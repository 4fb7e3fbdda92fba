"""Prints results: as lines for people, or as one JSON object for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from regard.core.errors import InputError
from regard.core.text import json_visible, shown, visible

if TYPE_CHECKING:
    from regard.cli.options import Command


def show(command: Command, result: dict[str, Any], as_json: bool, quiet: bool) -> int:
    """Prints the result of a command; returns its exit code."""
    if not result.get("first", True):  # only the first of several processes prints
        return command.code(result)
    if as_json:
        print_json(result)
    elif command.lines is not None:
        for line in command.lines(result):
            print(shown(line))
    remarks = result.get("notes")  # in a report of `check`, it is their number
    notes(remarks if isinstance(remarks, list | tuple) else (), quiet)
    if not quiet and (last := command.after(result)):
        say(last)
    return command.code(result)


def print_json(value: Any) -> None:
    """Prints JSON. It is indented, unless it holds tables of numbers."""
    numbers = isinstance(value, dict) and any(
        isinstance(row, list) and row and isinstance(row[0], list) for row in value.values()
    )
    print(json_text(value, None if numbers else 2))


def json_text(value: Any, indent: int | None = None) -> str:
    """Returns JSON in which no character of a text steers a terminal."""
    return json_visible(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def notes(lines: Sequence[str], quiet: bool = False) -> None:
    for line in () if quiet else lines:
        say(f"regard: note: {line}")


def say(line: str) -> None:
    """Prints a message, in which names and texts of files may stand, on standard error."""
    print(visible(line), file=sys.stderr, flush=True)


def fitted(line: str) -> str:
    """Cuts a line to the width of the terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def columns(rows: Sequence[Sequence[str]], aligned: str) -> Iterator[str]:
    """Yields the lines of a table; `aligned` has < or > for each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, aligned, widths, strict=True)
        yield "  ".join(f"{cell:{side}{width}}" for cell, side, width in cells).rstrip()


def utf8(read: Callable[[], str], where: str = "standard input") -> str:
    try:
        return read()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 text: {error}") from None


def text_or_input(text: str) -> str:
    """Returns the text, or standard input if the text is "-"."""
    return utf8(sys.stdin.read).removesuffix("\n") if text == "-" else text


def unescaped(text: str) -> str:
    """Turns \\n and \\t, as typed, into a line break and a tab."""
    return text.replace("\\n", "\n").replace("\\t", "\t")
