"""The disk after a power loss, from the journal that scripts/torture_disk.cpp writes.

A file holds what it held at its last fsync. A directory names what it named at its last fsync; or,
as file systems with a journal of their own may do, all names survived and only contents are lost.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

HEAD = struct.Struct("<6q")
EXCHANGE = 2


class FileOperation(NamedTuple):
    kind: str
    a: int
    b: int
    c: int
    one: bytes
    two: bytes


def operations(journal: Path) -> list[FileOperation]:
    content, place, result = journal.read_bytes(), 0, []
    while place + HEAD.size <= len(content):
        kind, a, b, c, first, second = HEAD.unpack_from(content, place)
        place += HEAD.size
        one, two = content[place : place + first], content[place + first : place + first + second]
        place += first + second
        result.append(FileOperation(chr(kind), a, b, c, one, two))
    return result


@dataclass
class DiskFile:
    """A file, a directory or a link: what programs see, and what is on the disk."""

    entries: dict[bytes, DiskFile] | None = None  # of a directory
    content: bytearray = field(default_factory=bytearray)
    link: bytes | None = None
    synced: bytes = b""
    synced_entries: dict[bytes, DiskFile] = field(default_factory=dict)

    def sync(self) -> None:
        if self.entries is None:
            self.synced = bytes(self.content)
        else:
            self.synced_entries = dict(self.entries)


class SimulatedDisk:
    """Begins with what stands in `root`, all of it on the disk."""

    def __init__(self, root: Path) -> None:
        self.inodes: dict[int, DiskFile] = {}
        self.root = self.read(root)

    def read(self, path: Path) -> DiskFile:
        node = DiskFile()
        if path.is_symlink():
            node.link = os.fsencode(os.readlink(path))  # noqa: PTH115
        elif path.is_dir():
            node.entries = {os.fsencode(child.name): self.read(child) for child in path.iterdir()}
        else:
            node.content = bytearray(path.read_bytes())
        node.sync()
        self.inodes[path.lstat().st_ino] = node
        return node

    def apply(self, operation: FileOperation) -> None:
        kind, a, b, c, one, two = operation
        if kind in "CM":
            self.inodes[b] = DiskFile(entries={} if kind == "M" else None)
            self.names(a)[one] = self.inodes[b]
        elif kind == "W":
            content = self.inodes[a].content
            content.extend(bytes(max(0, b - len(content))))
            content[b : b + len(one)] = one
        elif kind == "T":
            content = self.inodes[a].content
            del content[b:]
            content.extend(bytes(b - len(content)))
        elif kind == "S":
            self.inodes[a].sync()
        elif kind == "U":
            self.names(a).pop(one, None)
        elif kind == "L":
            self.names(a)[one] = self.inodes[b]
        elif kind == "Y":
            self.names(a)[one] = DiskFile(link=two)
        elif kind == "R":
            source, target = self.names(a), self.names(b)
            if c & EXCHANGE:
                source[one], target[two] = target[two], source[one]
            else:
                target[two] = source.pop(one)

    def names(self, inode: int) -> dict[bytes, DiskFile]:
        entries = self.inodes[inode].entries
        assert entries is not None
        return entries

    def write(self, root: Path, *, names_survive: bool) -> None:
        """Writes the disk as it is after the power came back."""
        for path, node in self.walk(self.root, root, names_survive):
            if node.link is not None:
                path.symlink_to(os.fsdecode(node.link))
            elif node.entries is not None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(node.synced)

    def walk(self, node: DiskFile, path: Path, all_names: bool) -> Iterator[tuple[Path, DiskFile]]:
        yield path, node
        if node.entries is not None:
            for name, child in (node.entries if all_names else node.synced_entries).items():
                yield from self.walk(child, path / os.fsdecode(name), all_names)
