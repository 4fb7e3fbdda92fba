"""Checkpoints that survive a kill at any moment, a full disk and a damaged file.

    checkpoints/
        step-00001000/        complete from the moment it has this name
            weights.safetensors, optimizer.safetensors, …
            facts.json        values that are not tensors
            checkpoint.json   the marker, written last: size and SHA-256 of every other file
        .writing-…            not yet complete
        .removing-…           no longer complete

Every file and directory is flushed to disk before the rename that makes it count. Old checkpoints
are removed only after that. Nothing here is a pickle.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.core.errors import StorageError
from regard.core.files import (
    check_kinds,
    create_hidden,
    flush_directory,
    open_new,
    read_json,
)
from regard.formats.weights import aligned, serialized, write_pieces

FORMAT = 1
MARKER = "checkpoint.json"
FACTS = "facts.json"
MARKER_KINDS: dict[str, Any] = {"step": int, "best": bool, "files": dict[str, dict[str, Any]]}
ADVICE = "remove this checkpoint to go on with the one before it"
NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")  # .1: the same step was written again
ROOM = 2**16  # bytes beside the tensors: JSON, headers, half-filled blocks of the disk


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint on disk."""

    step: int
    path: Path
    facts: dict[str, Any]
    best: bool
    files: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, *, verify: bool = True) -> SavedCheckpoint:
        """Reads the marker and the facts; `verify` hashes every file."""
        marker = read_marker(path)
        for name in marker["files"] if verify else (FACTS,):
            verify_file(path / name, **marker["files"][name])
        facts = read_json(path / FACTS, advice=ADVICE, nan=True)
        if facts is None:
            raise StorageError(f"{path / FACTS} is missing")
        return cls(marker["step"], path, facts, marker["best"], tuple(marker["files"]))

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Returns the tensors that were saved under this name, on the CPU."""
        file = f"{name}.safetensors"
        if file not in self.files:
            raise StorageError(f"{self.path} has no {file}; it holds {', '.join(self.files)}")
        try:
            return load_file(self.path / file)
        except (SafetensorError, OSError) as error:
            raise StorageError(f"{self.path / file} cannot be read: {error}") from None


class Checkpoints:
    """The newest `keep` checkpoints of a run, and its best one.

    One process writes: the one that holds the run's lock. Any process may read.
    """

    def __init__(self, directory: Path, keep: int = 2) -> None:
        if keep < 1:
            raise StorageError(f"keep is {keep}; it must be at least 1")
        self.directory, self.keep = Path(directory), keep

    def save(
        self,
        step: int,
        files: Mapping[str, Mapping[str, Tensor]],
        facts: Mapping[str, Any],
        *,
        best: bool = False,
    ) -> Path:
        """Writes the tensors of `files` and the facts, which must be JSON (a tuple comes back as a
        list, a key as a string). An existing checkpoint of the same step is replaced.

        If weights are sharded over processes, one process writes, and all others run through
        `whole(files)` at the same time.
        """
        tensors = [tensor for one in files.values() for tensor in one.values()]
        contents = whole(files)
        try:
            with self.draft(step, sum(tensor.nbytes for tensor in tensors), facts, best) as draft:
                for name, one in files.items():
                    draft.write(name, one, contents)
                return draft.finish()
        finally:
            for _ in contents:  # after a failure, the other processes still wait for the rest
                pass

    @contextmanager
    def draft(
        self, step: int, needed: int, facts: Mapping[str, Any], best: bool = False
    ) -> Iterator[CheckpointDraft]:
        """Yields a directory to fill, which vanishes unless it is finished. `needed` bytes must be
        free."""
        text = json.dumps(dict(facts), ensure_ascii=False).encode()
        needed += len(text) + ROOM
        draft = CheckpointDraft(self, step, self.directory, text, best)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            flush_directory(self.directory.parent)
            self.clean()
            if shutil.disk_usage(self.directory).free < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            name = f".writing-{step:08d}-*"
            draft.path, handle = create_hidden(name, self.directory, directory=True)
            os.close(handle)  # the run's lock keeps others away
            yield draft
        except OSError as error:
            draft.discard()
            raise StorageError(self.explain(draft, needed, error)) from error
        except BaseException:
            draft.discard()
            raise

    def latest(self) -> SavedCheckpoint | None:
        """Returns the newest intact checkpoint (None in a new run); warns of newer damaged ones."""
        return self.newest(self.entries())

    def best(self) -> SavedCheckpoint | None:
        """Returns the newest checkpoint saved as the best, or None."""
        return self.newest([path for path in self.entries() if says_best(path)])

    def intact(self) -> list[SavedCheckpoint]:
        """Returns all undamaged checkpoints, one per step, the newest last."""
        checkpoints: dict[int, SavedCheckpoint] = {}
        for path in self.entries():
            try:
                saved = SavedCheckpoint.open(path)
            except (StorageError, OSError):
                continue
            checkpoints[saved.step] = saved
        return list(checkpoints.values())

    def newest(self, entries: list[Path]) -> SavedCheckpoint | None:
        reasons: list[str] = []
        for path in reversed(entries):
            try:
                checkpoint = SavedCheckpoint.open(path)
            except (StorageError, OSError) as error:
                reasons.append(str(error))
                continue
            for reason in reasons:
                warnings.warn(
                    f"a checkpoint is damaged: {reason}. Step {checkpoint.step} is used instead",
                    stacklevel=3,
                )
            return checkpoint
        if reasons:
            listed = "".join(f"\n  {reason}" for reason in reasons)
            raise StorageError(
                f"no checkpoint in {self.directory} is intact:{listed}\n"
                "Copy them again from where they came, or begin a new run"
            )
        return None

    def entry(self, step: int, again: int) -> Path:
        """Returns the directory of a step that was written `again` times before."""
        return self.directory / (f"step-{step:08d}" + (f".{again}" if again else ""))

    def entries(self) -> list[Path]:
        """Returns all complete checkpoints, damaged or not, the newest last."""
        if not self.directory.is_dir():
            return []
        return sorted((p for p in self.directory.iterdir() if NAME.fullmatch(p.name)), key=order)

    def clean(self) -> None:
        """Removes what dead processes left half written or half removed; only the lock's holder
        may."""
        for pattern in (".writing-*", ".removing-*"):
            for path in self.directory.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)

    def prune(self, newest: Path) -> None:
        """Keeps the newest checkpoint, `keep` - 1 before it, and the best. Steps after the newest
        are damaged checkpoints from which the run could not continue."""
        until = [p for p in self.entries() if order(p) <= order(newest)]
        before = [p for p in until if order(p)[0] < order(newest)[0]]
        staying = {newest, *before[max(0, len(before) - self.keep + 1) :]}
        staying |= set([path for path in until if says_best(path)][-1:])
        for path in set(self.entries()) - staying:
            gone = path.with_name(f".removing-{path.name}")
            try:
                path.rename(gone)
                shutil.rmtree(gone)
            except OSError as error:
                warnings.warn(f"the old checkpoint {path} cannot be removed: {error}", stacklevel=4)

    def explain(self, draft: CheckpointDraft, needed: int, error: OSError) -> str:
        """Says what could not be written, how much space there is, and which checkpoint is left."""
        try:
            room = f"{amount(shutil.disk_usage(self.directory).free)} are free"
        except OSError:
            room = "the directory cannot be reached"
        try:
            with warnings.catch_warnings(action="ignore"):
                last = self.latest()
        except (StorageError, OSError):
            last = None
        left = "" if last is None else f"The last good checkpoint is intact: {last.path}. "
        return (
            f"step {draft.step} cannot be saved: {error.strerror or error} "
            f"(writing {draft.doing} in {self.directory}; {amount(needed)} are needed, {room}). "
            f"{left}Make room or access, then resume"
        )


class CheckpointDraft:
    """A checkpoint that is being written."""

    def __init__(
        self, checkpoints: Checkpoints, step: int, path: Path, facts: bytes, best: bool
    ) -> None:
        self.checkpoints, self.step, self.path = checkpoints, step, path
        self.facts, self.best = facts, best
        self.doing = "the first file"
        self.files: dict[str, dict[str, Any]] = {}

    def write(self, name: str, tensors: Mapping[str, Tensor], contents: Iterator[Tensor]) -> None:
        """Writes a safetensors file; it is hashed while it is written, and flushed."""
        self.doing = f"{name}.safetensors"
        with open_new(self.path / self.doing) as handle:
            self.files[self.doing] = write_pieces(handle, serialized(tensors, contents))

    def write_bytes(self, name: str, content: bytes) -> None:
        self.doing = name
        with open_new(self.path / name) as handle:
            self.files[name] = write_pieces(handle, [memoryview(content)])

    def discard(self) -> None:
        if self.path != self.checkpoints.directory:
            shutil.rmtree(self.path, ignore_errors=True)

    def finish(self) -> Path:
        """Writes facts and marker, flushes, renames the directory, then removes old checkpoints."""
        checkpoints, files = self.checkpoints, self.files
        self.write_bytes(FACTS, self.facts)
        marker = {"format": FORMAT, "step": self.step, "best": self.best, "files": dict(files)}
        self.write_bytes(MARKER, json.dumps(marker, indent=1).encode())
        flush_directory(self.path)
        written = [order(p)[1] + 1 for p in checkpoints.entries() if order(p)[0] == self.step]
        target = self.path.rename(checkpoints.entry(self.step, max(written, default=0)))
        flush_directory(checkpoints.directory)
        checkpoints.prune(target)
        return target


def order(path: Path) -> tuple[int, int]:
    """Returns the step, and how often it was written before."""
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2] or 0)


def says_best(path: Path) -> bool:
    """Tells whether the marker says that this is the best; a damaged marker says nothing."""
    try:
        return bool(read_marker(path)["best"])
    except (StorageError, OSError):
        return False


def read_marker(path: Path) -> dict[str, Any]:
    """Returns the marker after checking that its entries can be relied on."""
    file = path / MARKER
    marker = read_json(file, advice=ADVICE, kinds=MARKER_KINDS)
    if marker is None:
        raise StorageError(f"{file} is missing")
    files = marker["files"]
    right = marker["step"] == order(path)[0] and FACTS in files
    for name, entry in files.items():
        check_kinds(entry, {"bytes": int, "sha256": str}, f"{name!r} in {file}", advice=ADVICE)
        right &= is_inside(name) and len(entry) == 2
    if marker.get("format") != FORMAT:
        raise StorageError(
            f"{file} has format {marker.get('format')!r}; this is {FORMAT}, so use the version "
            "that wrote it"
        )
    if not right:
        raise StorageError(f"{file} contradicts itself or its directory")
    return marker


def is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def verify_file(file: Path, bytes: int, sha256: str) -> None:
    if not file.is_file():
        raise StorageError(f"{file} is missing")
    size = file.stat().st_size
    if size != bytes:
        raise StorageError(f"{file} has {size:,} bytes instead of {bytes:,}")
    with file.open("rb") as handle:
        if hashlib.file_digest(handle, "sha256").hexdigest() != sha256:
            raise StorageError(f"{file} has changed: its SHA-256 is not that of the marker")


def whole(files: Mapping[str, Mapping[str, Tensor]]) -> Iterator[Tensor]:
    """Yields the contents of all tensors in the order in which they are written, one at a time.
    Sharded weights are gathered here, which all processes must do together."""
    for tensors in files.values():
        for name in aligned(tensors):
            tensor: Any = tensors[name].detach()
            yield tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def amount(size: int) -> str:
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size} bytes"


def mean(weights: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the elementwise mean of the weights of several models."""
    return {
        name: torch.stack([w[name].double() for w in weights]).mean(0).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in weights[-1].items()
    }
