"""Kills, fills disks, cuts the power and damages files, and counts what survives.

    python scripts/torture.py kills --count 1000     SIGKILL, timed and at the N-th file operation
    python scripts/torture.py files --count 100000   damaged files, given to every reader
    python scripts/torture.py disk                   the disk is full at every operation that writes
    python scripts/torture.py power                  what was not synced is lost, at every operation
    python scripts/torture.py all --seconds 60       some of each
    python scripts/torture.py table                  writes docs/reliability.md from the journal

Every case has a number, and what came of it stands in the journal, so that a run that was stopped
goes on where it was. It ends with 1 if any case failed. Linux and g++ are needed.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import importlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PARTS = ("kills", "files", "disk", "power")
KILL, FAIL, RECORD = 1, 2, 3  # as in torture_disk.cpp
CONTROL = struct.Struct("<qqqqq1024s1024s")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
MODULES = ("api", "cli.catalog", "cli.data", "cli.learn", "cli.measure", "evaluation.embeddings",
           "formats.directory", "lab.compare.comparison", "methods.distill.run",
           "methods.finetune.run", "methods.runs", "training.report", "training.run")  # fmt: skip
REFUSED = 2  # the exit code of an error that the program explains
TRACEBACK = 70
MORE = 40  # damaged files in `all`, for each case of another part
PATIENCE = 300  # seconds of one command
KILLS = {"prepare": 3, "save": 3, "train": 4, "finetune": 4, "distill": 4, "compare": 1}  # shares


@dataclass(frozen=True)
class Ending:
    code: int  # negative: a signal
    text: str  # what the command wrote
    count: int = 0  # its file operations
    hits: int = 0  # how often the layer interfered
    seconds: float = 0.0


class Workshop:
    """A directory with the inputs of the scenes, and a place to run them in."""

    def __init__(self, place: Path) -> None:
        from torture_scenes import SCENES, make_inputs

        self.place, self.inputs, self.work = place, place / "inputs", place / "work"
        self.scenes = SCENES
        self.library = ctypes.CDLL(None)
        self.ends: dict[str, Ending] = {}
        self.digests: dict[str, tuple[str, str]] = {}  # before and after, of each scene
        if not (self.inputs / ".ready").is_file():
            shutil.rmtree(self.inputs, ignore_errors=True)
            ending = self.child(lambda: make_inputs(self.inputs) or 0)
            if ending.code or not (self.inputs / "tuned" / "manifest.json").is_file():
                raise SystemExit(f"the inputs cannot be made:\n{ending.text}")
            (self.inputs / ".ready").touch()

    def begin(self, scene: Any) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        scene.begin(self.inputs, self.work)

    def go(self, scene: Any, **how: Any) -> Ending:
        return self.child(lambda: scene.go(self.inputs, self.work), **how)

    def measure(self, scene: Any) -> Ending:
        """Runs a scene undisturbed, once: how many operations it has, and how it ends."""
        if scene.name not in self.ends:
            self.begin(scene)
            before = scene.digest(self.work) if scene.whole else ""
            ending = self.go(scene, action=KILL)
            if ending.code or left(self.work):
                raise SystemExit(
                    f"{scene.name} fails undisturbed: {left(self.work)}\n{ending.text}"
                )
            self.ends[scene.name] = ending
            self.digests[scene.name] = before, scene.digest(self.work)
        return self.ends[scene.name]

    def child(
        self,
        call: Callable[[], int],
        *,
        action: int = 0,
        at: int = 0,
        error: int = 0,
        after: float = PATIENCE,
    ) -> Ending:
        """Runs a call in a forked process, under the layer if there is an action. The process is
        killed after some seconds."""
        self.place.mkdir(parents=True, exist_ok=True)
        control, log = self.place / "control", self.place / "log"
        root, journal = str(self.work.resolve()), self.place / "operations"
        journal.unlink(missing_ok=True)
        control.write_bytes(
            CONTROL.pack(0, at, action, error, 0, root.encode(), str(journal).encode())
        )
        began = time.monotonic()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self.run_child(call, control if action else None, log)
        while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if time.monotonic() - began > after:
                os.kill(child, signal.SIGKILL)
                break
            time.sleep(0.002)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        count, _, _, _, hits, _, _ = CONTROL.unpack(control.read_bytes())
        text = log.read_text(encoding="utf-8", errors="replace")
        return Ending(code, text[-4000:], count, hits, time.monotonic() - began)

    def run_child(self, call: Callable[[], int], control: Path | None, log: Path) -> None:
        from regard.core.errors import RegardError

        code = TRACEBACK
        try:
            with log.open("wb") as file:
                for number in (1, 2):
                    os.dup2(file.fileno(), number)
            if control is not None:
                os.environ["TORTURE_CONTROL"] = str(control)
                self.library.torture_arm(os.fsencode(control))
            code = call()
        except RegardError as error:
            print(f"regard: {error}", file=sys.stderr)
            code = REFUSED
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def left(work: Path) -> list[str]:
    from torture_scenes import left_behind

    return left_behind(work)


# -- the parts: each yields what was wrong in one case, "" if nothing was


def kills(shop: Workshop, dice: random.Random) -> dict[str, Any]:
    """One to three kills, one after the other; then the command runs to its end."""
    scene = shop.scenes[dice.choices(list(KILLS), list(KILLS.values()))[0]]
    whole = shop.measure(scene)
    shop.begin(scene)
    facts: dict[str, Any] = {"scene": scene.name, "kills": 0, "timed": 0}
    for _ in range(dice.choice((1, 1, 2, 3))):
        if dice.random() < 0.5:
            ending = shop.go(scene, action=KILL, at=dice.randint(1, whole.count))
        else:
            ending = shop.go(scene, after=dice.uniform(0, whole.seconds))
            facts["timed"] += ending.code == -signal.SIGKILL
        facts["kills"] += ending.code == -signal.SIGKILL or ending.hits > 0
        if ending.code == TRACEBACK:
            return facts | {"wrong": f"traceback: {ending.text}"}
        if scene.whole and scene.digest(shop.work) not in shop.digests[scene.name]:
            return facts | {"wrong": "neither the old nor the new is whole"}
    return facts | {"wrong": finished(shop, scene)}


def finished(shop: Workshop, scene: Any) -> str:
    """Runs a scene to its end and returns what is wrong with it."""
    ending = shop.go(scene)
    if ending.code:
        return f"not finished, code {ending.code}: {ending.text}"
    if scene.digest(shop.work) != shop.digests[scene.name][1]:
        return "the end differs from the uninterrupted one"
    return f"left behind: {rest}" if (rest := left(shop.work)) else ""


def disk(shop: Workshop, dice: random.Random) -> dict[str, Any]:
    """The disk is full from some operation on. The refusal names a file of ours; afterwards there
    is room again, and the command runs to its end."""
    scene = shop.scenes[dice.choice([name for name in KILLS if name != "compare"])]
    shop.measure(scene)
    at = dice.randint(1, writes_of(shop, scene))
    number = dice.choice(FULL)
    shop.begin(scene)
    ending = shop.go(scene, action=FAIL, at=at, error=number)
    facts = {"scene": scene.name, "at": at, "error": errno.errorcode[number], "hits": ending.hits}
    if ending.hits and scene.whole and scene.digest(shop.work) not in shop.digests[scene.name]:
        return facts | {"wrong": "neither the old nor the new is whole"}
    if ending.code not in (0, REFUSED) or "Traceback" in ending.text:
        return facts | {"wrong": f"code {ending.code}: {ending.text}"}
    if ending.code == REFUSED and not names_a_file(ending.text, shop.work):
        return facts | {"wrong": f"no file is named: {ending.text}"}
    return facts | {"wrong": finished(shop, scene)}


def names_a_file(text: str, work: Path) -> bool:
    """Tells whether a refusal names a file as the user knows it, not a hidden one."""
    last = text.strip().splitlines()[-1]
    return str(work) in last and ".part" not in last and ".writing-" not in last


def writes_of(shop: Workshop, scene: Any) -> int:
    """Returns how many operations of a scene a full disk can refuse."""
    key = f"{scene.name} writes"
    if key not in shop.ends:
        shop.begin(scene)
        shop.ends[key] = shop.go(scene, action=FAIL, at=2**62)
    return shop.ends[key].count


def power(shop: Workshop, dice: random.Random) -> dict[str, Any]:
    """The power fails after some operation. What is there then opens, resumes, or is refused."""
    from torture_power import SimulatedDisk, operations

    scene = shop.scenes[dice.choice([name for name in KILLS if name != "compare"])]
    shop.measure(scene)
    shop.begin(scene)
    disk_then = SimulatedDisk(shop.work)
    shop.go(scene, action=RECORD)
    journal = operations(shop.place / "operations")
    at, survive = dice.randint(0, len(journal)), dice.random() < 0.5
    for operation in journal[:at]:
        disk_then.apply(operation)
    shutil.rmtree(shop.work)
    disk_then.write(shop.work, names_survive=survive)
    facts = {"scene": scene.name, "at": at, "of": len(journal), "names_survive": survive}
    if scene.whole and scene.digest(shop.work) not in shop.digests[scene.name]:
        return facts | {"wrong": "neither the old nor the new is whole"}
    ending = shop.go(scene)
    if ending.code == REFUSED and not scene.whole:
        return facts | {"refused": ending.text.strip().splitlines()[-1], "wrong": ""}
    return facts | {"wrong": finished(shop, scene) if not ending.code else ending.text}


# -- the journal


class ResultJournal:
    """What came of each case: one JSON object per line."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: list[dict[str, Any]] = []
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
            try:
                self.rows.append(json.loads(line))
            except ValueError:  # the last line of a run that was killed
                continue

    def known(self, part: str) -> set[int]:
        return {row["case"] for row in self.rows if row["part"] == part}

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if row["wrong"]:
            print(f"{row['part']} {row['case']}: {json.dumps(row, ensure_ascii=False)[:3000]}")

    def summary(self) -> list[str]:
        """Rows of a table, one a part."""
        lines = []
        for part in PARTS:
            rows = [row for row in self.rows if row["part"] == part]
            if not rows:
                continue
            wrong = sum(bool(row["wrong"]) for row in rows)
            kinds = Counter(str(row.get("scene") or row.get("reader")) for row in rows)
            detail = ", ".join(f"{name} {count:,}" for name, count in sorted(kinds.items()))
            number = f"{len(rows):,}"
            if part == "kills":
                timed = sum(row["timed"] for row in rows)
                number += f" ends, {sum(row['kills'] for row in rows):,} kills ({timed:,} timed)"
            if part == "power":
                number += f" ({sum('refused' in row for row in rows):,} refused)"
            if part == "files":
                number += f" ({sum(row['refused'] for row in rows):,} refused)"
            lines.append(f"| `{part}` | {number} | {detail} | {wrong} |")
        return lines


def write_tables(rows: list[str]) -> None:
    """Puts the table into both languages of docs/reliability.md, between its two marks."""
    from regard.core.files import write_text

    for name, head in (
        ("reliability.md", "| part | cases | of which | wrong |"),
        ("reliability.zh.md", "| 部分 | 用例 | 其中 | 出错 |"),
    ):
        file = HERE.parent / "docs" / name
        text = file.read_text(encoding="utf-8")
        before, begin, rest = text.partition("<!-- table -->\n")
        _, end, after = rest.partition("<!-- end -->")
        table = "\n".join([head, "| --- | --- | --- | ---: |", *rows, ""])
        write_text(file, before + begin + table + end + after)


# -- the program


def cases(part: str, journal: ResultJournal, count: int, seconds: float) -> Iterator[int]:
    """Yields the numbers of cases that are not done yet, as long as there is time."""
    began, known = time.monotonic(), journal.known(part)
    for case in range(count):
        if time.monotonic() - began > seconds:
            return
        if case not in known:
            yield case


def under_the_layer(place: Path) -> None:
    """Compiles the layer and starts this program again with it, unless it runs already."""
    if os.environ.get("TORTURE_LAYER"):
        return
    place.mkdir(parents=True, exist_ok=True)
    library = place / "torture_disk.so"
    source = str(HERE / "torture_disk.cpp")
    words = ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", source, "-o", str(library)]
    subprocess.run(words, check=True)
    changes = {"LD_PRELOAD": str(library), "TORTURE_LAYER": "1", "OMP_NUM_THREADS": "1",
               "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE.parent)}  # fmt: skip
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | changes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*PARTS, "all", "table"])
    parser.add_argument("--count", type=int, default=2**31, help="the cases of a part")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir(), "regard-torture"))
    options = parser.parse_args()
    place = options.place.resolve()
    under_the_layer(place)
    journal = ResultJournal(place / f"journal-{options.seed}.jsonl")
    parts = PARTS if options.part == "all" else (options.part,) if options.part in PARTS else ()
    if parts:
        import torch

        torch.set_num_threads(1)
        for name in MODULES:
            importlib.import_module(f"regard.{name}")
        shop = Workshop(place)
    begun = len(journal.rows)
    for part in parts:
        many = MORE if options.part == "all" and part == "files" else 1
        todo = cases(part, journal, options.count * many, options.seconds / len(parts))
        if part == "files":
            from torture_files import damaged

            for row in damaged(shop, todo, options.seed):
                journal.add(row)
            continue
        run = {"kills": kills, "disk": disk, "power": power}[part]
        for case in todo:
            facts = run(shop, random.Random(f"{options.seed} {part} {case}"))
            journal.add({"part": part, "case": case, **facts})
    print("\n".join(journal.summary()))
    if options.part == "table":
        write_tables(journal.summary())
    return int(any(row["wrong"] for row in journal.rows[begun:]))


if __name__ == "__main__":
    sys.exit(main())
