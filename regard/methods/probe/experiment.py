"""Probes a model and untrained models of its shape, layer by layer, with several seeds.

OUT/
  plan.json      the options, to resume with
  cells.jsonl    one line for each layer, seed and model, written when it is finished
  states/        frozen hidden states; deleted at the end
  probe.json     means and deviations, for programs
  probe.html     the page: curves over the layers, heat maps of heads, and a table
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, FormatError, InputError, StorageError
from regard.core.files import parse_json, read_json, storing, write_text
from regard.core.processes import RunLock
from regard.core.progress import Progress
from regard.formats.directory import load
from regard.methods.probe.page import page
from regard.methods.probe.plan import PLAN, ProbePlan
from regard.methods.probe.questions import Frozen, question
from regard.methods.probe.report import Key, summary
from regard.methods.probe.states import add_weights, forget, untrained
from regard.methods.runs import read_plan, write_plan

CELL_KINDS: dict[str, Any] = {
    "source": str, "what": str, "seed": int, "layer": int | str | None, "figures": dict[str, Any],
}  # fmt: skip
CELLS, RESULT, PAGE, STATES = "cells.jsonl", "probe.json", "probe.html", "states"


def probe(plan: ProbePlan, out: Path, *, quiet: bool = False) -> dict[str, Any]:
    """Runs the experiment and writes OUT. Returns the content of probe.json, with an outcome."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        hint = "resume it with --resume, or " if (out / PLAN).is_file() else ""
        raise StorageError(f"{out} exists already; {hint}choose another --out")
    experiment = ProbeExperiment(plan, out, quiet)
    with RunLock(out):
        write_plan(out / PLAN, plan, digests=experiment.digests())
        return experiment.go()


def resume(out: Path, *, quiet: bool = False) -> dict[str, Any]:
    """Resumes an interrupted experiment. The data and the model must be the same."""
    plan, _, table = read_plan(out / PLAN, ProbePlan, "there is no probe experiment to resume")
    result = read_json(out / RESULT, error=ConfigError)
    if result is not None:
        return {**result, "outcome": "done", "out": str(out)}
    experiment = ProbeExperiment(plan, out, quiet)
    for what, now in experiment.digests().items():
        if table.get("digests", {}).get(what) != now:
            raise InputError(f"the {what} has changed since {out} began; an experiment resumes "
                             f"only with the same {what}: restore it, or begin anew")  # fmt: skip
    with RunLock(out):
        return experiment.go()


class ProbeExperiment:
    def __init__(self, plan: ProbePlan, out: Path, quiet: bool = False) -> None:
        self.plan, self.out = plan, out
        self.loaded, self.question = load(plan.run, download=plan.download), question(plan)
        self.cells: dict[Key, dict[str, Any]] = {}
        self.progress, self.doing = Progress(quiet=quiet), "probing"
        # The states of the model may be kept for other questions. Those of untrained models are not
        # kept: they are large and cheap to compute again.
        cache = Path(plan.cache) if plan.cache else out / STATES
        self.frozen = Frozen(self.loaded, plan, cache, self.tell)
        self.question.check(self.frozen)
        self.layers = self.question.layers(self.frozen)

    def digests(self) -> dict[str, str]:
        weights = hashlib.blake2b(json.dumps(self.loaded.model.extensions).encode(), digest_size=16)
        add_weights(weights, self.loaded.model)
        return {"data": self.question.digest(), "model": weights.hexdigest()}

    def tell(self, what: str, done: int, total: int) -> None:
        self.progress.step(f"{self.doing}: {what} {done:,} of {total:,}", 0, 0)

    # -- the work

    def work(self) -> Iterator[tuple[str, int]]:
        """Yields each model with each seed. Head statistics are not learned, so the trained model
        needs only one seed for them."""
        seeds = range(1, self.plan.seeds + 1)
        looks = seeds if self.question.name != "heads" else (1,)
        yield from (("trained", seed) for seed in looks)
        if self.plan.untrained:
            yield from (("untrained", seed) for seed in seeds)

    def go(self) -> dict[str, Any]:
        self.cells = read_cells(self.out / CELLS)
        try:
            for source, seed in self.work():
                self.one(source, seed)
        except KeyboardInterrupt:
            return {"outcome": "interrupted", "cells": len(self.cells), "out": str(self.out)}
        finally:
            self.progress.close()
        return self.finish()

    def one(self, source: str, seed: int) -> None:
        """Measures all cells that are still missing for one model and one seed."""
        missing = {
            what: [x for x in self.layers if (source, what, seed, x) not in self.cells]
            for what in self.question.whats
        }
        if not any(missing.values()):
            return
        self.doing = f"{source}, seed {seed}"
        frozen = self.frozen
        if source == "untrained":
            fresh = untrained(self.loaded, seed)
            frozen = Frozen(fresh, self.plan, self.out / STATES, self.tell)
        for what, layers in missing.items():
            if not layers:
                continue

            def keep(layer: int, figures: dict[str, Any], what: str = what) -> None:
                self.keep((source, what, seed, layer), figures)

            def tell(epoch: int, left: int, what: str = what) -> None:
                self.tell(f"{what}, epoch {epoch}, layers still learning", left, len(self.layers))

            self.question.ask(what, seed, layers, frozen, keep, tell)
        if frozen is not self.frozen and frozen.states is not None:
            forget(frozen.states)

    def keep(self, key: Key, figures: dict[str, Any]) -> None:
        self.cells[key] = figures
        line = dict(zip(("source", "what", "seed", "layer"), key, strict=True))
        with storing(self.out / CELLS), (self.out / CELLS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "figures": figures}) + "\n")

    def finish(self) -> dict[str, Any]:
        """Writes figures and their page, and deletes the temporary states."""
        result = summary(self.cells, self.question, self.plan, self.layers, self.facts())
        write_text(self.out / PAGE, page(result))
        write_text(self.out / RESULT, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        shutil.rmtree(self.out / STATES, ignore_errors=True)
        return {**result, "outcome": "done", "out": str(self.out)}

    def facts(self) -> dict[str, Any]:
        notes = [*self.question.notes, *self.frozen.reader.notes]
        if self.plan.seeds < 3 and (self.question.pace or self.plan.untrained):
            few = "1 seed says" if self.plan.seeds == 1 else f"{self.plan.seeds} seeds say"
            notes.append(f"{few} little about random variation; use 3 or more")
        last = self.question.pace.epochs if self.question.pace else -1
        late = sum(cell.get("epochs") == last for cell in self.cells.values())
        if late:
            notes.append(f"{late:,} of {len(self.cells):,} probes were still getting better at the "
                         f"last of {last} epochs; raise --epochs")  # fmt: skip
        return {"run": self.plan.run, "family": self.frozen.reader.model.family.name,
                "depth": self.frozen.reader.depth, "notes": notes}  # fmt: skip


# -- files


def read_cells(file: Path) -> dict[Key, dict[str, Any]]:
    """Reads the finished cells. An unfinished last line is cut off."""
    cells: dict[Key, dict[str, Any]] = {}
    if not file.is_file():
        return cells
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines(), 1):
        cell = parse_json(
            line, f"{file}:{number}", error=FormatError, kinds=CELL_KINDS, nan=True,
            advice="delete the line to go on",
        )  # fmt: skip
        cells[cell["source"], cell["what"], cell["seed"], cell["layer"]] = cell["figures"]
    if whole != content:
        write_text(file, whole.decode())
    return cells
