"""Kills, fills disks, cuts the power and damages files, and counts what survives.

    python scripts/torture.py kills --count 1000     SIGKILLs, timed and at the N-th file operation
    python scripts/torture.py files --count 100000   damaged files, given to every reader
    python scripts/torture.py disk                   the disk is full, at every write of each scene
    python scripts/torture.py power                  what was not synced is lost, at every operation
    python scripts/torture.py all --seconds 60       some of each
    python scripts/torture.py table                  writes docs/reliability.md from the journal

Every case has a number, and what came of it stands in the journal, so that a run that was stopped
goes on where it was. It ends with 1 if any case failed. Linux and g++ are needed.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import errno
import gc
import importlib
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture_journal import PARTS, ResultJournal, write_tables

HERE = Path(__file__).resolve().parent
KILL, FAIL, RECORD = 1, 2, 3  # as in torture_disk.cpp
CONTROL = struct.Struct("<qqqqq1024s1024s")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
MODULES = ("api", "cli.catalog", "cli.data", "cli.learn", "cli.measure", "evaluation.embeddings",
           "formats.directory", "lab.compare.comparison", "methods.distill.run",
           "methods.finetune.run", "methods.runs", "training.report", "training.run")  # fmt: skip
PR_SET_PDEATHSIG = 1
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
        self.recordings: dict[str, tuple[Any, list[Any]]] = {}
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

    def warm(self, scene: Any) -> None:
        """Imports what a scene imports. Every command is forked from this process: what is killed
        is the process that does the work, and it has no imports to wait for."""
        names = self.place / "modules"

        def call() -> int:
            code: int = scene.go(self.inputs, self.work)
            names.write_text("\n".join(sys.modules), encoding="utf-8")
            return code

        self.begin(scene)
        ending = self.child(call)
        if ending.code:
            raise SystemExit(f"{scene.name} fails undisturbed:\n{ending.text}")
        for name in names.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ImportError):  # a name that is made, not imported
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # the pages of all these objects stay shared with the children

    def measure(self, scene: Any) -> Ending:
        """Runs a scene undisturbed, once: how many operations it has, and how it ends."""
        if scene.name not in self.ends:
            self.warm(scene)
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

    def end_with_parent(self) -> None:
        """Called by a child: it is killed when this program is, and leaves the place alone."""
        self.library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def run_child(self, call: Callable[[], int], control: Path | None, log: Path) -> None:
        from regard.core.errors import RegardError

        code = TRACEBACK
        self.end_with_parent()
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


def places(shop: Workshop, part: str, dice: random.Random) -> list[tuple[str, int]]:
    """Every scene (a comparison has too many) with every operation at which the disk can be full
    or the power can fail, in a random order."""
    counts = {
        name: writes_of(shop, scene) if part == "disk" else len(recorded(shop, scene)[1])
        for name, scene in shop.scenes.items()
        if name != "compare"
    }
    pairs = [(name, at) for name, count in counts.items() for at in range(1, count + 1)]
    dice.shuffle(pairs)
    return pairs


def disk(shop: Workshop, dice: random.Random, scene: Any, at: int) -> dict[str, Any]:
    """The disk is full from some operation on. The refusal names a file of ours; afterwards there
    is room again, and the command runs to its end."""
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
    shop.measure(scene)
    shop.begin(scene)
    return shop.go(scene, action=FAIL, at=2**62).count


def recorded(shop: Workshop, scene: Any) -> tuple[Any, list[Any]]:
    """Returns the disk before an undisturbed run, and the operations of the run."""
    from torture_power import SimulatedDisk, operations

    if scene.name not in shop.recordings:
        shop.measure(scene)
        shop.begin(scene)
        before = SimulatedDisk(shop.work)
        shop.go(scene, action=RECORD)
        shop.recordings[scene.name] = before, operations(shop.place / "operations")
    return shop.recordings[scene.name]


def power(shop: Workshop, dice: random.Random, scene: Any, at: int) -> dict[str, Any]:
    """The power fails after some operation. What is there then opens, resumes, or is refused."""
    before, journal = recorded(shop, scene)
    disk_then, survive = copy.deepcopy(before), dice.random() < 0.5
    for operation in journal[:at]:
        disk_then.apply(operation)
    shutil.rmtree(shop.work)
    disk_then.write(shop.work, names_survive=survive)
    facts = {"scene": scene.name, "at": at, "names_survive": survive}
    if scene.whole and scene.digest(shop.work) not in shop.digests[scene.name]:
        return facts | {"wrong": "neither the old nor the new is whole"}
    wrong = finished(shop, scene)
    if wrong.startswith(f"not finished, code {REFUSED}:") and not scene.whole:
        return facts | {"refused": wrong.strip().splitlines()[-1], "wrong": ""}
    return facts | {"wrong": wrong}


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


def rows_of(
    part: str, shop: Workshop, journal: ResultJournal, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yields what came of each case of a part that is not in the journal."""
    count, seed = options.count, options.seed
    seconds = options.seconds / (len(PARTS) if options.part == "all" else 1)
    if part == "files":
        from torture_files import damaged

        count *= MORE if options.part == "all" else 1
        yield from damaged(shop, cases(part, journal, count, seconds), seed)
        return
    spots = [] if part == "kills" else places(shop, part, random.Random(f"{seed} {part}"))
    limit = 2**31 if part == "kills" else min(count, len(spots))
    for case in cases(part, journal, limit, seconds):
        dice = random.Random(f"{seed} {part} {case}")
        if part == "kills":
            if journal.kills() >= count:
                return
            facts = kills(shop, dice)
        else:
            name, at = spots[case]
            facts = {"of": len(spots)} | (disk if part == "disk" else power)(
                shop, dice, shop.scenes[name], at
            )
        yield {"part": part, "case": case, **facts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*PARTS, "all", "table"])
    parser.add_argument("--count", type=int, default=2**31, help="the SIGKILLs, files, … of a part")
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
        for row in rows_of(part, shop, journal, options):
            journal.add(row)
    print("\n".join(journal.summary()), flush=True)
    if options.part == "table":
        write_tables(journal.summary())
    return int(any(row["wrong"] for row in journal.rows[begun:]))


if __name__ == "__main__":
    sys.exit(main())
