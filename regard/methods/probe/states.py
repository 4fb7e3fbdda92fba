"""Frozen hidden states of a model's layers, computed once and stored where probes read them.

A cache is a directory named by a digest of the weights, the tokens and the layers. It holds
states.npy [layers, units, width] in float32 and states.json. It is memory-mapped, so that neither
writing nor using it needs more memory than a batch. The directory is either complete or does not
exist.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core.atomic_dir import hidden_beside
from regard.core.errors import ConfigError, StorageError
from regard.core.files import flush_tree, write_json
from regard.core.seeding import seed_torch
from regard.data.batching import by_tokens
from regard.formats.directory import Checkpoint
from regard.methods.probe.reader import StateReader, TokenRow
from regard.models.extensions import extend
from regard.training.train_module import evaluating

FORMAT = 1
TOKENS = 2048  # tokens of a batch, with padding; the states of all its layers are in memory at once
SPARE = 2**28  # bytes to leave free on the disk

Tell = Callable[[str, int, int], None]  # (activity, amount done, total)


def silent(what: str, done: int, total: int) -> None:
    """Reports nothing: the default `tell`."""


@dataclass(frozen=True)
class States:
    """The vectors of all units in some layers."""

    table: np.ndarray  # [layers, units, width]
    layers: list[int]

    @property
    def width(self) -> int:
        return int(self.table.shape[2])

    def gather(self, layers: Sequence[int], rows: np.ndarray) -> Tensor:
        """Returns a copy of these rows, [layers, *rows, width]."""
        places = [self.layers.index(layer) for layer in layers]
        return torch.from_numpy(np.stack([self.table[place][rows] for place in places]))


def chosen_layers(layers: Sequence[int], depth: int) -> list[int]:
    """Returns the requested layers, or all layers 0 … depth. Negative numbers count from the last
    layer."""
    chosen = sorted({layer if layer >= 0 else depth + 1 + layer for layer in layers})
    if any(not 0 <= layer <= depth for layer in chosen):
        raise ConfigError(
            f"--layers {','.join(map(str, layers))} is out of range; this model has the layers 0 "
            f"(its embeddings) to {depth}"
        )
    return chosen or list(range(depth + 1))


def states_of(
    reader: StateReader,
    rows: Sequence[TokenRow],
    units: int,
    layers: Sequence[int],
    cache: Path | None = None,
    tell: Tell = silent,
) -> States:
    """Returns the states of all units, from the cache if it has them. Without a cache they are held
    in memory."""
    layers = list(layers)
    shape = (len(layers), units, int(reader.model.config.width))
    if cache is None:
        table = np.zeros(shape, np.float32)
        fill(table, reader, rows, layers, tell)
        return States(table, layers)
    place = cache / digest(reader, rows, layers)
    if not (place / "states.json").is_file():
        write(place, shape, reader, rows, layers, tell)
    return States(opened(place / "states.npy", shape), layers)


def fill(
    table: np.ndarray,
    reader: StateReader,
    rows: Sequence[TokenRow],
    layers: Sequence[int],
    tell: Tell,
) -> None:
    """Reads all rows in batches of similar length and fills the table."""
    sizes = np.array([len(row.ids) for row in rows], np.int64)
    done = 0
    with evaluating(reader.model):
        for places in by_tokens(sizes, TOKENS):
            batch = [rows[place] for place in places]
            every, shifts = reader.every(batch), reader.shifts(batch)
            spans = [
                (number, begin + shift, end + shift, unit)
                for number, (row, shift) in enumerate(zip(batch, shifts, strict=True))
                for unit, begin, end in row.spans
            ]
            if spans:
                at = np.array(spans)
                for place, layer in enumerate(layers):
                    table[place, at[:, 3]] = means(every[layer].float(), at).cpu().numpy()
            done += len(places)
            tell("reading", done, len(rows))


def means(hidden: Tensor, spans: np.ndarray) -> Tensor:
    """Returns the means over tokens begin … end of rows of a batch, for spans (row, begin,
    end, …)."""
    number, begin, end = (torch.from_numpy(spans[:, i]).to(hidden.device) for i in range(3))
    total = hidden[number, begin]
    for step in range(1, int((end - begin).max())):
        there = begin + step < end
        total[there] += hidden[number[there], (begin + step)[there]]
    return total / (end - begin)[:, None].to(total.dtype)


# -- the cache


def digest(reader: StateReader, rows: Sequence[TokenRow], layers: Sequence[int]) -> str:
    """Returns a digest of everything that the states depend on."""
    total = hashlib.blake2b(digest_size=16)
    model = reader.model  # the states also depend on more than its weights
    facts = [FORMAT, model.family.name, repr(model.config), model.extensions, *layers]
    total.update(json.dumps(facts).encode())
    add_weights(total, model)
    for row in rows:
        total.update(json.dumps([row.ids, row.segments, row.spans]).encode())
    return total.hexdigest()


def add_weights(digest: Any, model: Any) -> None:
    """Adds the names and the bytes of all weights to a digest."""
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def write(
    place: Path,
    shape: tuple[int, ...],
    reader: StateReader,
    rows: Sequence[TokenRow],
    layers: Sequence[int],
    tell: Tell,
) -> None:
    """Writes the cache into a temporary directory, which is then renamed in one step."""
    with hidden_beside(place) as part:
        room, size = shutil.disk_usage(part).free, 4 * int(np.prod(shape))
        if size + SPARE > room:
            raise StorageError(
                f"the states of {shape[1]:,} units in {shape[0]} layers take {size / 1e9:,.1f} GB, "
                f"and {place.parent} has room for {room / 1e9:,.1f}; choose fewer --layers or a "
                "smaller --limit"
            )
        table: Any = np.lib.format.open_memmap(part / "states.npy", "w+", np.float32, shape)
        with (part / "states.npy").open("rb+") as file:  # a map without room ends the process
            os.posix_fallocate(file.fileno(), 0, file.seek(0, os.SEEK_END))
        fill(table, reader, rows, layers, tell)
        table.flush()
        del table
        facts = {"format": FORMAT, "layers": list(layers), "shape": list(shape)}
        write_json(part / "states.json", facts)
        flush_tree(part)
        try:
            part.rename(place)
        except OSError:  # another process may have written it first
            if not (place / "states.json").is_file():
                raise


def opened(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    try:
        table: np.ndarray = np.load(file, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise StorageError(f"{file} cannot be read ({error}); delete {file.parent}") from None
    if table.shape != shape or table.dtype != np.float32:
        raise StorageError(f"{file} holds {list(table.shape)} {table.dtype}, not {list(shape)} of "
                           f"32 bits; delete {file.parent}")  # fmt: skip
    return table


def forget(states: States) -> None:
    """Deletes the cache that these states are mapped from. The map itself stays valid until it is
    released."""
    file = getattr(states.table, "filename", None)
    if file is not None:
        shutil.rmtree(Path(os.fspath(file)).parent, ignore_errors=True)


# -- the untrained model


def untrained(loaded: Checkpoint, seed: int) -> Checkpoint:
    """Returns a model of the same shape with the initial weights of its paper."""
    model = loaded.model
    with torch.random.fork_rng(devices=[]):
        seed_torch(seed, "untrained")
        fresh = type(model)(model.config).initialize()
        for name, options in model.extensions.items():
            fresh = extend(fresh, name, dict(options), loaded.tokenizer)
    like = next(value for value in model.parameters() if value.is_floating_point())
    return Checkpoint(fresh.to(like.device, like.dtype).eval(), loaded.tokenizer, path=loaded.path)
