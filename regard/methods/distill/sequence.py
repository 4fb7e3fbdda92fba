"""Sequence-level distillation (Kim and Rush 2016, 3.2): the targets of a student are the
translations that its teacher finds by beam search.

The pairs come from prepared data. Only the targets of the training split are replaced; the
validation and test splits keep the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.atomic_dir import workplace
from regard.core.errors import ConfigError, FormatError
from regard.core.files import storing, write_text
from regard.core.tables import brief, fits
from regard.data.corpus import MARKER, SPLITS, Corpus, CorpusWriter, read_marker, write_marker
from regard.data.tokenizer import FILES
from regard.decoding.generation import generate
from regard.formats.directory import Checkpoint
from regard.methods.runs import digest_of, weights_digest

BLOCK = 128  # sources between two writes
BATCH = 32  # sources decoded together
LONGER = 2.0  # a target has at most this many times the tokens of its source, and a few more
FEW = 16

Watch = Callable[[int, int], None]  # (sources done, sources in total)

AGAIN = "delete it to let the teacher write again"


def teach_pairs(
    teacher: Checkpoint,
    data: Path,
    out: Path,
    *,
    beams: int = 4,
    alpha: float = 0.6,
    precision: str = "own",
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """Writes prepared pairs to `out`: the sources of `data` with the teacher's targets. Finished
    targets are stored beside it, so that an interrupted call resumes. Returns the content of
    data.json."""
    facts = read_marker(data)
    if facts.get("kind") != "pairs":
        raise ConfigError(
            f"{data} holds {facts.get('kind', 'text')}, and pairs are needed; prepare them with "
            "'regard prepare --pairs'"
        )
    corpus = Corpus.open(data, "train")
    room_of(teacher, int(np.diff(np.asarray(corpus.sentences))[::2].max(initial=0)))  # the longest
    notes = out.with_name(f"{out.name}.jsonl")
    train = sorted([*data.glob("train-*"), *data.glob("train.*")])  # tokens, ends of sources
    done = count_finished(notes, {
        "data": str(data), "split": digest_of(train), "teacher": str(teacher.path),
        "weights": weights_digest([str(teacher.path)]), "beams": beams, "alpha": alpha,
    })  # fmt: skip
    total = len(corpus.documents) - 1
    options = {
        "num_beams": beams,
        "length_penalty": alpha,
        "precision": precision,
        "batch_size": BATCH,
    }
    with storing(notes), notes.open("a", encoding="utf-8") as file:
        for start in range(done, total, BLOCK):
            sources = [source_of(corpus, i) for i in range(start, min(start + BLOCK, total))]
            for ids in targets(teacher, sources, options):
                file.write(json.dumps(ids) + "\n")
            file.flush()
            os.fsync(file.fileno())
            watch(min(start + BLOCK, total), total)
    write_pairs(corpus, facts, notes, out, str(teacher.path))
    return read_marker(out)


def source_of(corpus: Corpus, index: int) -> list[int]:
    first, last = (int(edge) for edge in corpus.sentences[2 * index : 2 * index + 2])
    source: list[int] = corpus.read(first, last).tolist()
    return source


def targets(
    teacher: Checkpoint, sources: list[list[int]], options: dict[str, Any]
) -> list[list[int]]:
    """Returns the likeliest target of each source. Its maximal length depends only on its own
    source, not on the other sources of the batch."""
    likeliest: list[list[int]] = [[] for _ in sources]
    rooms = [room_of(teacher, len(source)) for source in sources]
    for room in sorted(set(rooms)):
        chosen = [i for i, own in enumerate(rooms) if own == room]
        written = generate(teacher, [sources[i] for i in chosen], max_new_tokens=room, **options)
        for i, results in zip(chosen, written, strict=True):
            likeliest[i] = results[0].ids
    return likeliest


def room_of(teacher: Checkpoint, length: int) -> int:
    """Returns the number of tokens that the target of a source of this length may have."""
    room = -(-int(LONGER * length) // FEW) * FEW + FEW
    context = getattr(teacher.config, "context", None)
    if context is not None and context <= length:
        raise ConfigError(
            f"a source has {length} tokens, and the context of {teacher.path} is {context} tokens; "
            "leave out pairs as long as this"
        )
    return room if context is None else min(room, context - length)


def count_finished(notes: Path, settings: dict[str, Any]) -> int:
    """Returns how many targets are written already; an unfinished last line is cut off."""
    if not notes.is_file():
        write_text(notes, json.dumps(settings) + "\n")
        return 0
    text = notes.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    lines = whole.splitlines()
    if not lines or parsed(lines[0], notes) != settings:
        raise FormatError(
            f"{notes} was begun with other data, another teacher (or other weights of it) or other "
            "beams; restore them, or begin with another --out"
        )
    if len(whole) < len(text):
        with notes.open("r+b") as file:
            file.truncate(len(whole))
    return len(lines) - 1


def lines_of(notes: Path) -> Iterator[list[int]]:
    with notes.open("rb") as file:
        next(file)
        for line in file:
            ids = parsed(line, notes)
            if not fits(ids, list[int]):
                raise FormatError(f"{notes} is damaged: {brief(ids)} is no list of ids; {AGAIN}")
            yield ids


def parsed(line: bytes, notes: Path) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{notes} is damaged ({error}); {AGAIN}") from None


def write_pairs(
    corpus: Corpus, facts: dict[str, Any], notes: Path, out: Path, teacher: str
) -> None:
    """Writes the pairs as `regard prepare` does. A half-written directory never stands at `out`."""
    end, tokenizer = corpus.special.end, corpus.tokenizer
    with workplace(out, False, MARKER) as work:
        writer = CorpusWriter(work, "train", facts["dtype"])
        for index, ids in enumerate(lines_of(notes)):
            source = source_of(corpus, index)
            target = ids if ids[-1:] == [end] else [*ids, end]
            text = "".join(tokenizer.decode(part[:-1]) for part in (source, target))
            writer.add([np.asarray(source), np.asarray(target)], len(text.encode()))
        splits = dict(facts["splits"])
        splits["train"] = splits["train"] | writer.close()
        for file in corpus.directory.iterdir():
            other = file.name.partition("-")[0].partition(".")[0] in set(SPLITS) - {"train"}
            if other or file.name in FILES:
                shutil.copyfile(file, work / file.name)
        write_marker(work, facts | {"splits": splits, "targets": f"of {teacher}"})
