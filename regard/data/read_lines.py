"""Lines with their numbers, and the two formats that are nothing but lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from regard.core.errors import InputError
from regard.data.examples import Pair, Place, Problems
from regard.data.files import MARK, RECORD, Tally, blocks, texts


def numbered(path: Path, name: str, problems: Problems) -> Iterator[tuple[int, str]]:
    """Lines with their ends, decoded one by one so that broken bytes have a line."""
    parts: list[bytes] = []
    number, length = 1, 0
    for block in blocks(path, name, Tally()):
        *whole, rest = block.split(b"\n")
        for line in whole:
            yield number, decoded(b"".join((*parts, line, b"\n")), name, number, problems)
            parts.clear()
            number, length = number + 1, 0
        parts.append(rest)
        length += len(rest)
        if length > RECORD:
            raise InputError(
                f"{name}:{number}: the line is longer than {RECORD:,} bytes; a record is read "
                "whole, so give one example a line"
            )
    if length:
        yield number, decoded(b"".join(parts), name, number, problems)


def decoded(line: bytes, name: str, number: int, problems: Problems) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        problems.add(
            Place(name, number),
            "broken-utf8",
            f"byte {error.start + 1} of the line is no UTF-8 ({error.reason}); it was replaced "
            "by \ufffd",
            "warning",
        )
        text = line.decode(errors="replace")
    return text.removeprefix(MARK) if number == 1 else text


def whole(path: Path, name: str, problems: Problems) -> str:
    """The text of a file that can only be read as one."""
    tally = Tally()
    text = "".join(texts(path, name, "replace", tally))
    if tally.broken:
        line = text.count("\n", 0, text.index("\ufffd")) + 1
        problems.add(
            Place(name, line),
            "broken-utf8",
            f"{tally.broken:,} places from here on are no UTF-8; they were replaced by \ufffd",
            "warning",
        )
    return text


def content(line: str) -> str:
    """A line without its end, of either kind."""
    return line.removesuffix("\n").removesuffix("\r")


def parallel(left: Path, right: Path, problems: Problems) -> Iterator[Pair]:
    """Two files whose lines belong together."""
    names = (str(left), str(right))
    counts = [0, 0]
    both = zip_longest(*(numbered(Path(name), name, problems) for name in names))
    for number, found in enumerate(both, 1):
        for side in (0, 1):
            counts[side] += found[side] is not None
        if found[0] is None or found[1] is None:
            continue
        source, target = content(found[0][1]), content(found[1][1])
        if source.strip() and target.strip():
            yield Pair(source, target, Place(names[0], number), f"{names[0]}:{number}")
        elif source.strip() or target.strip():
            empty, other = names if target.strip() else names[::-1]
            problems.add(
                Place(empty, number),
                "empty-text",
                f"the line is empty, but the same line of {other} is not",
            )
        else:
            problems.add(
                Place(names[0], number), "blank-line", "the line is empty in both files", "note"
            )
    if counts[0] != counts[1]:
        problems.add(
            Place(names[0]),
            "unequal-files",
            f"lines: {counts[0]:,} here but {counts[1]:,} in {names[1]}; line n of one must belong "
            "to line n of the other",
        )
