"""Damaged files, given to every reader: each is read, or refused by an error of ours.

A worker process reads one after the other under a limit of memory. If it dies, what it was reading
is what killed it, and a new worker goes on behind it.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY = 2 * 2**30  # bytes above what the worker has when it begins
SECONDS = 10  # of the processor, for one file
BATCH = 250  # the cases of one worker
SILENCE = 60  # seconds until a worker that says nothing is ended
VALUES = (b"null", b"-1", b"1e999", b"NaN", b'""', b"[]", b"{}", b"true", b"99999999999999999999",
          b"0", b'"x"', b"[" * 5000, b"1.5", b'{"a": 1}', b"[[1]]")  # fmt: skip


@dataclass(frozen=True)
class FileReader:
    """`read(place, file)` reads the copy of `source` at `place`, in which `file` is damaged, one of
    `files`."""

    name: str
    source: str  # a directory of the inputs
    files: tuple[str, ...]  # patterns
    read: Callable[[Path, Path], None]
    share: int = 4  # how often it is chosen


# -- damage


def damage(content: bytes, dice: random.Random) -> bytes:
    """Returns the content with one to three accidents."""
    result = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        ACCIDENTS[dice.randrange(len(ACCIDENTS))](result, dice)
    return bytes(result)


def spot(content: bytearray, dice: random.Random) -> int:
    """A place; in a large file the beginning, which says what the rest is, is hit more often."""
    limit = min(len(content), 400) if dice.random() < 0.4 else len(content)
    return dice.randrange(limit) if limit else 0


def flip(content: bytearray, dice: random.Random) -> None:
    if content:
        content[spot(content, dice)] ^= 1 << dice.randrange(8)


def overwrite(content: bytearray, dice: random.Random) -> None:
    at = spot(content, dice)
    content[at : at + 8] = dice.choice(
        (bytes(8), b"\xff" * 8, dice.randbytes(8), b"\x00\x00\xc0\x7f" * 2)
    )


def cut(content: bytearray, dice: random.Random) -> None:
    del content[spot(content, dice) :]


def drop(content: bytearray, dice: random.Random) -> None:
    at = spot(content, dice)
    del content[at : at + dice.choice((1, 2, 30, 1000))]


def repeat(content: bytearray, dice: random.Random) -> None:
    at = spot(content, dice)
    content[at:at] = content[at : at + dice.choice((1, 30, 1000))]


def insert(content: bytearray, dice: random.Random) -> None:
    at = spot(content, dice)
    content[at:at] = dice.choice(
        (*VALUES, b"\r", b"\n", b"\xe2\x80\xa8", b"\x00", b"\xff\xfe", b'"')
    )


def revalue(content: bytearray, dice: random.Random) -> None:
    """Gives something between separators another value, as in JSON and TOML."""
    ends = [i for i, byte in enumerate(content[:20_000]) if byte in b":=,[\t "]
    if ends:
        at = dice.choice(ends) + 1
        behind = at
        while behind < len(content) and content[behind] not in b",}]\n\t":
            behind += 1
        content[at:behind] = dice.choice(VALUES)


ACCIDENTS = (flip, flip, overwrite, cut, drop, repeat, insert, revalue, revalue)


# -- readers


def read_model(place: Path, file: Path) -> None:
    import torch

    import regard

    loaded = regard.load(place)
    state = loaded.model.state_dict()
    nan = [k for k, v in state.items() if v.is_floating_point() and not v.isfinite().all()]
    if nan:
        raise AssertionError(f"NaN in silence: {nan[0]}")
    if loaded.tokenizer is not None:
        ids = loaded.tokenizer.encode("the cat sat")[:8] or [0]
        loaded.tokenizer.decode(ids)
        with torch.inference_mode():
            loaded.logits(torch.tensor([ids]))


def read_task(place: Path, file: Path) -> None:
    import regard

    regard.load(place).classify("the cat sat on a red house")


def read_info(place: Path, file: Path) -> None:
    command("info", place)
    command("info", place, "--verify")


def read_data(place: Path, file: Path) -> None:
    from regard.data.corpus import Corpus, damaged_files

    for split in ("train", "valid", "test"):
        corpus = Corpus.open(place, split)
        corpus.document(0)
        corpus.sentences_of(0)
        corpus.read(0, 100)
    damaged_files(place)
    corpus.tokenizer.decode([1, 2])


def read_checkpoints(place: Path, file: Path) -> None:
    from regard.training.checkpoint import Checkpoints

    saved = Checkpoints(place).latest()
    if saved is not None:
        for name in ("weights", "optimizer"):
            saved.tensors(name)
    Checkpoints(place).best()


def read_run(place: Path, file: Path) -> None:
    from regard.training import recipe
    from regard.training.progress import read_metrics
    from regard.training.report import write_card, write_report

    recipe.make(recipe.read(place / "recipe.toml"))
    read_metrics(place / "metrics.jsonl")
    write_report(place)
    write_card(place)


def read_ngram(place: Path, file: Path) -> None:
    from regard.evaluation.ngram import Ngram

    Ngram.load(place / "ngram.safetensors").probabilities((1, 2))


def read_legacy(place: Path, file: Path) -> None:
    from regard.formats.legacy import convert

    (place / "model.safetensors").unlink(missing_ok=True)
    convert(place)


def read_texts(place: Path, file: Path) -> None:
    shutil.rmtree(place.parent / "prepared", ignore_errors=True)
    command("prepare", file, "--out", place.parent / "prepared", "--tokenizer", "bytes")


def read_examples(place: Path, file: Path) -> None:
    tasks = {"conll": "tag", "squad.json": "answer"}
    task = next((name for ending, name in tasks.items() if file.name.endswith(ending)), "classify")
    command("check", file, "--task", task)


def read_vocabulary(place: Path, file: Path) -> None:
    from regard.data.tokenizer import Tokenizer

    tokenizer = Tokenizer.open(file.parent)
    if tokenizer is not None and tokenizer.fast is not None:
        tokenizer.decode(tokenizer.encode("the cat [MASK] 中文"))


def command(*words: object) -> None:
    """A command of the program; what it refuses is raised."""
    from regard.cli.main import program

    program.main([str(word) for word in words], "regard", standalone_mode=False)


READERS = (
    FileReader("model", "gpt-run", ("*.json", "*.safetensors"), read_model, 8),
    FileReader("encoder", "bert-run", ("*.json", "*.safetensors"), read_model, 6),
    FileReader("task", "tuned", ("*.json", "*.safetensors"), read_task, 6),
    FileReader("info", "gpt-run", ("*.json", "checkpoints/*/*.json"), read_info),
    FileReader("data", "data", ("*",), read_data, 8),
    FileReader("checkpoint", "gpt-run/checkpoints", ("*/*",), read_checkpoints, 6),
    FileReader("run", "gpt-run", ("recipe.toml", "metrics.jsonl", "run.json"), read_run, 6),
    FileReader("ngram", "ngram", ("*",), read_ngram),
    FileReader("legacy", "legacy", ("pytorch_model.bin",), read_legacy),
    FileReader("text", "texts", ("*",), read_texts, 2),
    FileReader("examples", "examples", ("*",), read_examples, 4),
    FileReader("vocabulary", "vocabularies", ("*/*",), read_vocabulary),
)


def make_files(inputs: Path) -> None:
    """The files that are read besides the inputs of the scenes."""
    import torch
    from safetensors.torch import load_file

    from regard.evaluation.ngram_baseline import count

    (inputs / "ngram").mkdir()
    count(inputs / "data", 3, None, None).save(inputs / "ngram" / "ngram.safetensors")
    (inputs / "legacy").mkdir()
    weights = load_file(inputs / "gpt-run" / "model.safetensors")
    torch.save(weights, inputs / "legacy" / "pytorch_model.bin")
    texts, examples = inputs / "texts", inputs / "examples"
    texts.mkdir()
    text = (inputs / "one.txt").read_bytes()[:3000]
    (texts / "a.txt").write_bytes(text)
    (texts / "b.txt.gz").write_bytes(gzip.compress(text))
    lines = [json.dumps({"text": line}) for line in text.decode().split("\n\n")]
    (texts / "c.jsonl").write_text("\n".join(lines))
    examples.mkdir()
    rows = [json.loads(line) for line in (inputs / "rows.jsonl").read_text().splitlines()]
    (examples / "rows.jsonl").write_bytes((inputs / "rows.jsonl").read_bytes())
    (examples / "rows.json").write_text(json.dumps(rows))
    for name, mark in (("csv", ","), ("tsv", "\t")):
        with (examples / f"rows.{name}").open("w", newline="") as file:
            table = csv.DictWriter(file, ["text", "label"], delimiter=mark)
            table.writeheader()
            table.writerows(rows)
    (examples / "tags.conll").write_text("Anna B-PER\nsat O\nin O\nParis B-LOC\n\n" * 8)
    answer = {"text": "cat", "answer_start": 4}
    questions = [{"id": str(i), "question": "Who sat?", "answers": [answer]} for i in range(4)]
    passage = {"context": "The cat sat on the mat.", "qas": questions}
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": [passage]}]}
    (examples / "squad.json").write_text(json.dumps(squad))
    make_vocabularies(inputs / "vocabularies")


def make_vocabularies(place: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "中", "文", "a"]
    (place / "bert").mkdir(parents=True)
    (place / "bert" / "vocab.txt").write_text("\n".join(words) + "\n")
    (place / "bert" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (place / "gpt").mkdir()
    pieces = [chr(i) for i in range(33, 127)] + ["th", "the", "Ġ", "Ġc", "<|endoftext|>"]
    (place / "gpt" / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    (place / "gpt" / "merges.txt").write_text("#version: 0.2\nt h\nth e\nĠ c\n")
    (place / "gpt" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))


# -- the worker


def attempt(case: int, seed: int, inputs: Path, scratch: Path) -> dict[str, Any]:
    """Damages one file, reads it, and puts it back."""
    from regard.core.errors import RegardError

    dice = random.Random(f"{seed} files {case}")
    reader = dice.choices(READERS, [reader.share for reader in READERS])[0]
    place = scratch / reader.name
    if not place.exists():
        shutil.copytree(inputs / reader.source, place)
    matching = {file for p in reader.files for file in place.glob(p) if file.is_file()}
    file = dice.choice(sorted(f for f in matching if not f.name.startswith(".")))
    original = file.read_bytes()
    row: dict[str, Any] = {"part": "files", "case": case, "reader": reader.name, "file": file.name,
                           "refused": False, "wrong": ""}  # fmt: skip
    file.write_bytes(damage(original, dice))
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        reader.read(place, file)
    except (RegardError, SystemExit) as error:
        row["refused"] = True
        text = str(error)
        if isinstance(error, SystemExit) and error.code not in (0, 2):
            row["wrong"] = f"exit code {text}"
    except OSError as error:
        row["refused"] = bool(error.filename)
        row["wrong"] = "" if error.filename else f"OSError without a file: {error}"
    except BaseException:
        row["wrong"] = traceback.format_exc()[-1500:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.process_time() - began
    if seconds > SECONDS:
        row["wrong"] = row["wrong"] or f"{seconds:.0f} CPU seconds"
    file.write_bytes(original)
    return row


def late(*_: Any) -> None:
    raise TimeoutError(f"beyond {SECONDS} CPU seconds")


def work(cases: list[int], seed: int, inputs: Path, scratch: Path, out: int) -> None:
    """Reads damaged files and reports each: first its number, then what came of it."""
    warnings.simplefilter("ignore")
    quiet = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(quiet, number)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGPROF, late)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for case in cases:
        os.write(out, f"{case}\n".encode())
        os.write(out, (json.dumps(attempt(case, seed, inputs, scratch)) + "\n").encode())


def damaged(shop: Any, todo: Iterator[int], seed: int) -> Iterator[dict[str, Any]]:
    """Yields what came of each case, in workers of `BATCH` cases."""
    if not (shop.inputs / "vocabularies").is_dir():
        ending = shop.child(lambda: make_files(shop.inputs) or 0)
        if ending.code:
            raise SystemExit(f"the files cannot be made:\n{ending.text}")
    waiting: list[int] = []
    while True:
        while len(waiting) < BATCH and (case := next(todo, None)) is not None:
            waiting.append(case)
        if not waiting:
            return
        yield from one_worker(shop, waiting, seed)


def one_worker(shop: Any, waiting: list[int], seed: int) -> Iterator[dict[str, Any]]:
    """Starts a worker and yields what it reports, until it ends; takes done cases off the list."""
    entry, out = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(entry)
        code = 1
        shop.end_with_parent()
        try:
            work(waiting, seed, shop.inputs, shop.place / "scratch", out)
            code = 0
        finally:
            os._exit(code)
    os.close(out)
    current, silent = -1, False
    with os.fdopen(entry, "r", encoding="utf-8") as lines:
        while not silent:
            silent = not select.select([lines], [], [], SILENCE)[0]
            line = "" if silent else lines.readline()
            if not line:
                break
            if line.strip().isdigit():
                current = int(line)
            else:
                waiting.remove(current)
                current = -1
                yield json.loads(line)
    if silent:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code or silent:
        how = f"silent for {SILENCE} s" if silent else f"the worker ended with {code}"
        case = current if current >= 0 else waiting[0]
        waiting.remove(case)
        yield {"part": "files", "case": case, "reader": "?", "refused": False, "wrong": how}
