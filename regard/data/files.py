"""Files as blocks of text: compression, broken UTF-8, and never more than a block in memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from regard.core.errors import InputError

BLOCK = 2**20  # bytes
RECORD = 2**25  # characters of the longest line of jsonl, csv or tsv: such a line is read whole
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
BROKEN = ("replace", "refuse", "skip")
MARK = "\ufeff"  # some programs write it at the start of a UTF-8 file


@dataclass
class Tally:
    """What is counted while reading."""

    read: int = 0  # bytes of the files themselves, compressed as they are
    broken: int = 0  # places where the bytes are no UTF-8
    blank: int = 0  # records without text


def opened(file: Path, name: str) -> IO[bytes]:
    """The bytes of a file, decompressed if its first bytes say that it is compressed."""
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
    if magic and suffix in (".gz", ".zst"):
        raw.close()
        raise InputError(
            f"{name} is named {suffix} but is not compressed so; give the file its right name"
        )
    return raw


def needed(module: str, why: str, extra: str = "data") -> Any:
    """An optional library, or an error that says how to get it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{why}, which needs the library {module!r} ({error}); "
            f"install it with: pip install 'regard[{extra}]'"
        ) from None


def blocks(file: Path, name: str, tally: Tally) -> Iterator[bytes]:
    """The content in blocks; refuses what is no text."""
    with opened(file, name) as stream:
        raw = getattr(stream, "fileobj", None)  # of gzip: where the compressed file stands
        before, offset = tally.read, 0
        while True:
            try:
                block = stream.read(BLOCK)
            except Exception as error:
                if isinstance(error, DAMAGED) or type(error).__name__ == "ZstdError":
                    raise InputError(f"{name} is damaged ({error}); get it anew") from None
                raise
            if not block:
                break
            if b"\0" in block:
                raise InputError(
                    f"{name} is a binary file: byte {offset + block.index(0):,} is zero; give text "
                    "in UTF-8 (convert UTF-16 with: iconv -f utf-16 -t utf-8)"
                )
            offset += len(block)
            tally.read = before + (raw.tell() if raw is not None else offset)
            yield block


def texts(file: Path, name: str, broken: str, tally: Tally) -> Iterator[str]:
    """The decoded content in blocks; a character is never cut."""
    rest, offset = b"", 0
    for block in blocks(file, name, tally):
        block = rest + block
        cut = len(block) - unfinished(block)
        text = decoded(block[:cut], name, offset, broken, tally)
        rest = block[cut:]
        yield text.removeprefix(MARK) if offset == 0 else text
        offset += cut
    if rest:
        yield decoded(rest, name, offset, broken, tally)


def unfinished(block: bytes) -> int:
    """How many bytes at the end begin a character that the next block goes on with."""
    for length in range(1, min(3, len(block)) + 1):
        byte = block[-length]
        if byte & 0xC0 == 0x80:  # inside a character
            continue
        whole = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return length if whole > length else 0
    return 0


def decoded(block: bytes, name: str, offset: int, broken: str, tally: Tally) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        if broken == "refuse":
            raise InputError(
                f"{name} is not UTF-8 at byte {offset + error.start:,} ({error.reason}); convert "
                "it, or choose --broken replace or --broken skip"
            ) from None
        text = block.decode(errors="replace")
        tally.broken += text.count("\ufffd") - block.count("\ufffd".encode())
        return text if broken == "replace" else block.decode(errors="ignore")


def mended(text: str, name: str, broken: str, tally: Tally) -> str:
    """A text without lone surrogates, which an escape in JSON can bring and UTF-8 cannot hold."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError as error:
        if broken == "refuse":
            raise InputError(
                f"{name} holds half a character ({error.object[error.start]!a}); mend it, or "
                "choose --broken replace or --broken skip"
            ) from None
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        tally.broken += whole.count("\ufffd") - text.count("\ufffd")
        return whole if broken == "replace" else text.encode(errors="ignore").decode()


def lines(file: Path, name: str, broken: str, tally: Tally) -> Iterator[str]:
    """Whole lines with their ends, for the formats in which a line is a record."""
    parts: list[str] = []
    length = count = 0
    for text in texts(file, name, broken, tally):
        found = text.split("\n")
        for line in found[:-1]:
            yield "".join((*parts, line, "\n"))
            parts.clear()
            length, count = 0, count + 1
        parts.append(found[-1])
        length += len(found[-1])
        if length > RECORD:
            raise InputError(
                f"line {count + 1:,} of {name} is longer than {RECORD:,} characters; a record is "
                "read whole, so give long documents as text files (--split-by file)"
            )
    if length:
        yield "".join(parts)
