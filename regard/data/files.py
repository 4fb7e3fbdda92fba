"""Reads text files in blocks: compression, broken UTF-8, and lines with their numbers."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from regard.core.errors import InputError
from regard.data.problems import FileLine, Problems

BLOCK = 2**20  # bytes in a block
MOST = 2**36  # bytes that a compressed file may unpack to, if no option says otherwise
RECORD = 2**25  # characters of the longest line or field, which is read as a whole
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PACKED = (".gz", ".zst")
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
BROKEN = ("replace", "refuse", "skip")
MARK = "\ufeff"  # the byte order mark, which some programs write at the start of a UTF-8 file
REPLACED = "\ufffd"


def needed(module: str, why: str, extra: str = "data") -> Any:
    """Imports an optional library, or raises an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{why}, which needs the library {module!r} ({error}); "
            f"install it with: pip install 'regard[{extra}]'"
        ) from None


def suffix_of(path: Path) -> str:
    """Returns the suffix that names the format, in lower case; a compression suffix is ignored."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def opened(file: Path, name: str) -> IO[bytes]:
    """Opens a file for reading bytes; decompresses it if its first bytes say it is compressed."""
    raw = file.open("rb")
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(GZIP):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if magic == ZSTD:
        zstandard = needed("zstandard", f"{name} is compressed with zstd")
        reader: IO[bytes] = zstandard.ZstdDecompressor().stream_reader(
            raw, read_across_frames=True, closefd=True
        )
        return reader
    suffix = file.suffix.lower()
    if magic and suffix in PACKED:
        raw.close()
        raise InputError(
            f"{name} is named {suffix} but is not compressed in that format; rename the file"
        )
    return raw


def check_max_bytes(max_bytes: int) -> None:
    if max_bytes < 1:
        raise InputError(f"--max-bytes is {max_bytes:,}; it must be 1 or more")


def is_packed(stream: IO[bytes]) -> bool:
    """Returns whether a stream of `opened` decompresses."""
    return not isinstance(stream, io.BufferedReader)


@dataclass
class ReadCounts:
    """Counters of what a reader has met."""

    read: int = 0  # bytes of the files on disk, compressed or not
    broken: int = 0  # places where the bytes are not UTF-8
    blank: int = 0  # records without text


@dataclass
class TextFile:
    """A file to read, and what happens when something in it is wrong.

    With `problems`, every problem is collected there, and broken characters are replaced. Without
    `problems`, the first error is raised, and `broken` says what happens to broken characters.
    """

    path: Path
    name: str
    problems: Problems | None = None
    broken: str = "replace"
    tally: ReadCounts = field(default_factory=ReadCounts)
    max_bytes: int = MOST  # a compressed file may unpack to so many

    def unpacked(self, count: int) -> None:
        """Refuses a compressed file that has unpacked to too many bytes."""
        if count > self.max_bytes:
            raise InputError(
                f"{self.name} unpacks to more than {self.max_bytes:,} bytes; if that is right, "
                "allow more with --max-bytes, or unpack the file first"
            )

    def wrong(self, line: int, kind: str, message: str, severity: str = "error") -> None:
        place = FileLine(self.name, line)
        if self.problems is not None:
            self.problems.add(place, kind, message, severity)
        elif severity == "error":
            raise InputError(f"{place}: {message}")

    def damaged(self, line: int, count: int, message: str) -> None:
        """Reports that `count` characters of a line (0: of the file) are broken."""
        self.tally.broken += count
        if self.problems is None and self.broken == "refuse":
            advice = "repair it, or choose --broken replace or --broken skip"
            raise InputError(f"{FileLine(self.name, line)}: {message}; {advice}")
        self.wrong(line, "broken-utf8", f"{message}; it was replaced by {REPLACED}", "warning")

    def blocks(self) -> Iterator[bytes]:
        """Yields the content in blocks of bytes, and refuses a binary file."""
        with opened(self.path, self.name) as stream:
            raw = getattr(stream, "fileobj", None)  # of gzip: the compressed file below
            packed = is_packed(stream)
            before, offset = self.tally.read, 0
            while True:
                try:
                    block = stream.read(BLOCK)
                except Exception as error:
                    if isinstance(error, DAMAGED) or type(error).__name__ == "ZstdError":
                        message = f"{self.name} is damaged ({error}); get a new copy of it"
                        raise InputError(message) from None
                    raise
                if not block:
                    break
                if b"\0" in block:
                    raise InputError(
                        f"{self.name} is a binary file: byte {offset + block.index(0):,} is zero; "
                        "give text in UTF-8 (convert UTF-16 with: iconv -f utf-16 -t utf-8)"
                    )
                offset += len(block)
                if packed:
                    self.unpacked(offset)
                self.tally.read = before + (raw.tell() if raw is not None else offset)
                yield block

    def texts(self) -> Iterator[str]:
        """Yields the decoded content in blocks; a character is never cut."""
        rest, offset = b"", 0
        for block in self.blocks():
            block = rest + block
            cut = len(block) - unfinished(block)
            text = self.decoded(block[:cut], offset=offset)
            rest = block[cut:]
            yield text.removeprefix(MARK) if offset == 0 else text
            offset += cut
        if rest:
            yield self.decoded(rest, offset=offset)

    def lines(self, *, ends: bool = False) -> Iterator[tuple[int, str]]:
        """Yields (number, line), with or without line ends; broken bytes are reported with their
        line."""
        parts: list[bytes] = []
        number, length = 1, 0
        for block in self.blocks():
            *whole, rest = block.split(b"\n")
            for line in whole:
                yield number, self.line(b"".join((*parts, line, b"\n")), number, ends)
                parts.clear()
                number, length = number + 1, 0
            parts.append(rest)
            length += len(rest.decode(errors="ignore"))
            if length > RECORD:
                raise InputError(
                    f"{self.name}:{number}: the line is longer than {RECORD:,} characters; a line "
                    "is read as a whole, so give one example per line, and long documents as text "
                    "files (--split-by file)"
                )
        if any(parts):
            yield number, self.line(b"".join(parts), number, ends)

    def line(self, data: bytes, number: int, ends: bool = False) -> str:
        text = self.decoded(data, number)
        text = text.removeprefix(MARK) if number == 1 else text
        return text if ends else text.removesuffix("\n").removesuffix("\r")

    def whole(self) -> str:
        """Returns the whole text of the file, for formats that cannot be read in blocks."""
        silent = TextFile(self.path, self.name, max_bytes=self.max_bytes)
        text = "".join(silent.texts())
        if silent.tally.broken:
            line = text.count("\n", 0, text.index(REPLACED)) + 1
            places = f"{silent.tally.broken:,} places from here on are not UTF-8"
            self.damaged(line, silent.tally.broken, places)
        return text

    def decoded(self, data: bytes, line: int = 0, offset: int = 0) -> str:
        """Decodes bytes; `offset` is their position in the file, used if the line is unknown."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            text = data.decode(errors="replace")
            count = text.count(REPLACED) - data.count(REPLACED.encode())
            byte = f"{error.start + 1} of the line" if line else f"{offset + error.start:,}"
            self.damaged(line, count, f"byte {byte} is not UTF-8 ({error.reason})")
            return data.decode(errors="ignore") if self.broken == "skip" else text

    def mended(self, values: dict[str, Any], line: int) -> dict[str, Any]:
        """Returns the values without lone surrogates, which a JSON escape can hold but UTF-8
        cannot."""
        text = json.dumps(values, ensure_ascii=False)
        try:
            text.encode()
            return values
        except UnicodeEncodeError as error:
            half = f"{error.object[error.start]!a}"
        repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        count = repaired.count(REPLACED) - text.count(REPLACED)
        self.damaged(line, count, f"an escape holds half a character ({half})")
        if self.broken == "skip":
            repaired = text.encode(errors="ignore").decode()
        result: dict[str, Any] = json.loads(repaired)
        return result


def unfinished(block: bytes) -> int:
    """Returns the number of bytes at the end that begin a character whose rest is missing."""
    for length in range(1, min(3, len(block)) + 1):
        byte = block[-length]
        if byte & 0xC0 == 0x80:  # a byte inside a character
            continue
        whole = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return length if whole > length else 0
    return 0
