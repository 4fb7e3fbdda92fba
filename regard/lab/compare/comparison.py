"""A comparison from beginning to end: one text, one budget, every model; then the report.

OUT/
  compare.json     the plan, to resume with
  data/            the text, prepared once for all models
  runs/GPT-1/ …    a run of `regard train` for every model and seed
  cells/GPT-1.json its measurements; a finished cell is not measured again
  cells/costs.json the cost of a forward pass of each model as texts grow longer
  facts.json       the estimated time, the time that each part took, and the hash of the text
  report.html, report.json, report.md
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from regard.core.errors import ConfigError, FormatError, InputError, RegardError
from regard.core.files import naming, read_json, write_json
from regard.core.options import SEEDS, VOCAB_SIZE, Option
from regard.core.processes import RunLock
from regard.core.tables import from_table
from regard.data.corpus import MARKER, Corpus, read_marker
from regard.lab.compare.children import Children
from regard.lab.compare.lineup import NGRAM, LineupEntry, ModelBudget
from regard.lab.compare.timing import FACTS, ComparisonFacts, text_hashes
from regard.objectives import objective
from regard.training.progress import read_metrics

PLAN, CELLS, RUNS, DATA = "compare.json", "cells", "runs", "data"
FORMAT = 2  # of a cell; 1 did not know what guessing gives
COSTS = "costs"  # one cell for all models
COST_KINDS: dict[str, Any] = {"curves": dict[str, Any]}
CELL_KINDS: dict[str, Any] = {
    "model": str | None, "objective": str | None, "seed": int | None, "parameters": int | None,
    "steps": int | None, "tokens": int | None, "flops": float | None,
    "seconds": float | dict[str, float] | None,
    "valid": dict[str, Any] | None, "curve": list[dict[str, Any]] | None,
    "bits_per_byte": float | None, "peak_memory": float | None,
}  # fmt: skip
RUN_KINDS: dict[str, Any] = {"outcome": str, "progress": dict[str, Any], "model": dict[str, Any]}
TURNING = ("two_directions", "pairs")  # options by which a model reads text backwards, or in pairs


@dataclass(frozen=True)
class ComparisonPlan:
    """Everything that defines a comparison."""

    sources: tuple[str, ...]
    entries: tuple[LineupEntry, ...]
    budget: ModelBudget
    seeds: Annotated[int, SEEDS] = 1
    size: Annotated[
        str,
        Option(
            "The size of the models: tiny, small or medium.",
            metavar="NAME",
            default="what suits the machine and the budget",
        ),
    ] = "tiny"
    seq_len: Annotated[
        int, Option("The tokens of a sample.", "--seq-len", "N", "what suits the budget")
    ] = 128
    batch_size: Annotated[
        int, Option("The samples of a step.", "--batch-size", "N", "1,024 tokens in all")
    ] = 8
    vocab_size: Annotated[int, VOCAB_SIZE] = 4000  # of the tokenizer that all models share
    jobs: Annotated[
        int,
        Option(
            "How many models learn at the same time, each on its share of the cores.",
            "--jobs",
            "N",
            "one on each core, or one alone if models are medium",
        ),
    ] = 1
    order: int = 5  # of the n-gram; 0: no n-gram
    blanks: int = 1000
    pairs: int = 200
    prompts: Annotated[
        tuple[str, ...],
        Option("Let every model continue this text; may be repeated.", "--prompt", "TEXT"),
    ] = ()
    reading: dict[str, Any] = field(default_factory=dict)  # options for reading the sources
    settings: tuple[str, ...] = ()  # KEY=VALUE for the recipe of every model

    def table(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, table: dict[str, Any]) -> ComparisonPlan:
        """Builds the plan that `table` wrote."""
        entries = [from_table(LineupEntry, entry) for entry in table["entries"]]
        return replace(from_table(cls, table | {"entries": []}), entries=tuple(entries))


@dataclass(frozen=True)
class ComparisonCell:
    """One model with one seed."""

    entry: LineupEntry
    seed: int

    @property
    def name(self) -> str:
        return f"{self.entry.name}-{self.seed}"


class ComparisonStopped(RegardError):
    """The user stopped the comparison; what is finished is kept."""


class ComparisonFailed(RegardError):
    """Some of the models could not be compared; the others were."""


Tell = Callable[[str, dict[str, Any]], None]  # (name of a cell, its state and figures so far)


class Comparison:
    def __init__(self, plan: ComparisonPlan, out: Path, tell: Tell) -> None:
        self.plan, self.out, self.tell = plan, out, tell
        self.cells = [ComparisonCell(e, s) for s in range(1, plan.seeds + 1) for e in plan.entries]
        self.facts, self.children = ComparisonFacts(out), Children()

    def go(self) -> dict[str, Any]:
        """Does everything that is not done yet and returns what was measured, for the report. If a
        model cannot learn from this text, or its loss diverges, the other models are still
        compared."""
        with RunLock(self.out):
            try:
                with self.children.stopping():
                    self.everything()
            except KeyboardInterrupt:
                raise ComparisonStopped(
                    "stopped; what is finished is kept. Resume with: regard compare --resume "
                    f"{self.out}"
                ) from None
        return self.found()

    def everything(self) -> None:
        self.prepare()
        if not self.facts.text:
            self.facts.text = text_hashes(self.plan.sources, self.out / DATA)
            self.facts.write()
        if self.plan.order:
            self.once(NGRAM, self.ngram)
        errors = [error for error in (*self.attempt_all(), self.attempt_costs()) if error]
        if errors:
            raise ComparisonFailed(
                f"{'; '.join(errors)}. The other models are in the report; leave these out "
                f"in a new comparison, or try again: regard compare --resume {self.out}"
            )

    def attempt_all(self) -> list[str]:
        """Measures all models, `jobs` of them at a time. Returns what each failed with, or ""."""
        with ThreadPoolExecutor(self.plan.jobs) as pool:
            tries = [pool.submit(self.attempt, c.name, partial(self.cell, c)) for c in self.cells]
            try:
                return [each.result() for each in tries]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.children.stop()
                raise

    def found(self) -> dict[str, Any]:
        """Returns everything that has been measured so far."""
        names = [NGRAM, *(cell.name for cell in self.cells)]
        cells = {name: read_cell(self.out / CELLS / f"{name}.json") for name in names}
        cells = {n: None if c is None or is_outdated(n, c) else c for n, c in cells.items()}
        return {
            "plan": self.plan.table(),
            "data": read_marker(self.out / DATA)["splits"] if self.prepared else {},
            "cells": {name: cell for name, cell in cells.items() if cell is not None},
            "missing": [name for name in names[1:] if cells[name] is None],
            "time": {"estimate": self.facts.estimate, "took": self.facts.took},
            "text": self.facts.text,
            "costs": read_cell(self.out / CELLS / f"{COSTS}.json"),
        }

    def attempt(self, name: str, make: Callable[[], dict[str, Any]]) -> str:
        """Measures a cell. Returns why that failed, or ""."""
        try:
            self.once(name, make)
        except RegardError as error:
            self.tell(name, {"state": "failed"})
            return f"{name}: {error}"
        return ""

    def attempt_costs(self) -> str:
        """Measures the costs of all trained models, and again if a model was trained after the last
        time."""
        file = self.out / CELLS / f"{COSTS}.json"
        firsts = (cell for cell in self.cells if cell.seed == 1)
        learned = {c.entry.name for c in firsts if (file.parent / f"{c.name}.json").is_file()}
        known = read_cell(file)
        if known is not None and not learned <= known["curves"].keys():
            file.unlink()
        return self.attempt(COSTS, self.costs) if learned else ""

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> None:
        file = self.out / CELLS / f"{name}.json"
        known = read_cell(file)
        if known is not None and is_outdated(name, known):
            self.tell(name, {"state": "measured by an older version, so it is measured again"})
            known = None
        if known is None:
            known = make()
            write_json(file, known)
        self.tell(name, known | {"state": "done"})

    # -- the text

    @property
    def prepared(self) -> bool:
        return (self.out / DATA / MARKER).is_file()

    def prepare(self) -> None:
        if not self.prepared:
            with self.facts.clock("preparing"):
                self.make_data()
        if not read_marker(self.out / DATA)["splits"]["test"]["tokens"]:
            raise ConfigError(
                f"{', '.join(self.plan.sources)}: the text is too short and leaves no test set; "
                "give more text, and another --out"
            )

    def make_data(self) -> None:
        self.tell("", {"state": "preparing the text"})
        plan = self.plan
        first = Path(plan.sources[0])
        if len(plan.sources) == 1 and (first / MARKER).is_file():
            self.borrow(first)
            return
        from regard.data import prepare
        from regard.data.sources import SourceOptions
        from regard.data.splits import SplitShares

        def make(vocab_size: int | None) -> None:
            shares = SplitShares(0.05, 0.05)
            how = SourceOptions(**plan.reading)
            wanted = prepare.PreparePlan(
                plan.sources, self.out / DATA, how, vocab_size=vocab_size, shares=shares
            )
            prepare.prepare(wanted)

        try:
            make(plan.vocab_size)
        except InputError:
            if plan.vocab_size != ComparisonPlan.vocab_size:
                raise
            make(None)  # a small text may have fewer tokens than the default vocabulary

    def borrow(self, prepared: Path) -> None:
        """Links to text that is prepared already, and keeps its tokens and splits."""
        if self.plan.reading or self.plan.vocab_size != ComparisonPlan.vocab_size:
            raise ConfigError(
                f"{prepared} is prepared already, so --split-by, --max-bytes and --vocab-size "
                "have no effect; leave them out, or give the text itself"
            )
        splits = read_marker(prepared)["splits"]
        for name in ("valid", "test"):
            if not splits.get(name, {}).get("tokens"):
                raise ConfigError(
                    f"{prepared} has no text for the {name} split; prepare it with "
                    "--valid-fraction and --test-fraction, or give the text itself"
                )
        (self.out / DATA).symlink_to(prepared.resolve(), target_is_directory=True)

    # -- one cell

    def ngram(self) -> dict[str, Any]:
        self.tell(NGRAM, {"state": "counting"})
        from regard.evaluation.ngram_baseline import count, document_nats, measure
        from regard.lab.compare.measures import BITS, by_blocks

        data = self.out / DATA
        with self.facts.clock("counting"):
            model, corpus = count(data, self.plan.order), Corpus.open(data, "test")
            each = by_blocks(document_nats(model, corpus) / BITS, corpus.document_bytes)
            return measure(model, data, "test") | {"bits_per_byte_each": each}

    def cell(self, cell: ComparisonCell) -> dict[str, Any]:
        run = self.out / RUNS / cell.name
        with self.facts.clock("training"):
            facts = self.train(cell, run)
        self.tell(cell.name, {"state": "measuring"})
        began = time.monotonic()
        with self.facts.clock("measuring"):
            measured = self.children.run(
                ["-m", "regard.lab.compare.measures", str(self.out), cell.name]
            )
        lines = read_metrics(run / "metrics.jsonl")
        progress = facts["progress"]
        return {
            "format": FORMAT,
            "model": cell.entry.model,
            "objective": facts["objective"],
            "seed": cell.seed,
            "parameters": facts["model"]["parameters"],
            "steps": progress["step"],
            "tokens": progress["tokens"],
            "seconds": progress["seconds"],
            "tokens_per_second": progress["tokens"] / max(progress["seconds"], 1e-9),
            "flops": facts["step_flops"] * progress["step"],
            "peak_memory": facts["peak_memory"],
            "valid": facts["valid"],
            "curve": curve_of(lines),
            "seconds_measuring": time.monotonic() - began,
            **measured,
        }

    def costs(self) -> dict[str, Any]:
        """Measures the cost of a forward pass as texts grow longer, for all models."""
        self.tell(COSTS, {"state": "measuring"})
        with self.facts.clock("costs"):
            return self.children.run(["-m", "regard.lab.compare.costs", str(self.out)])

    def train(self, cell: ComparisonCell, run: Path) -> dict[str, Any]:
        facts = read_json(run / "run.json", kinds=RUN_KINDS, nan=True)
        if facts is not None and facts.get("outcome") in ("done", "out of time"):
            with RunLock(run):  # takes over, and so removes, what a killed process left
                return facts
        words = ["-m", "regard", "train", *self.command(cell, run), "--quiet", "--json"]
        facts = self.children.run(words, lambda: self.look(cell, run))
        if facts["outcome"] == "interrupted":
            raise KeyboardInterrupt
        return facts

    def command(self, cell: ComparisonCell, run: Path) -> list[str]:
        """Returns the words after `regard train`. The report also shows them, so that a single run
        can be repeated."""
        if (run / "recipe.toml").is_file():
            return ["--resume", str(run)]
        plan, entry = self.plan, cell.entry
        budget = {
            "minutes": [f"budget.minutes={plan.budget.amount}", "budget.clock=true"],
            "tokens": [f"budget.tokens={int(plan.budget.amount)}"],
            "flops": [f"budget.flops={plan.budget.amount}"],
        }[plan.budget.kind]
        settings = [
            *budget, f"batch.seq_len={plan.seq_len}", f"batch.size={plan.batch_size}",
            *reading_onward(entry.objective),
            *([f"engine.threads={threads(plan.jobs)}"] if plan.jobs > 1 else []), *plan.settings,
        ]  # fmt: skip
        words = ["--out", str(run), "--seed", str(cell.seed), "--objective", entry.objective]
        size = entry.size or plan.size
        return [entry.model, str(self.out / DATA), *settings, *words, "--size", size]

    def look(self, cell: ComparisonCell, run: Path) -> None:
        """Reports what a run has written about itself so far."""
        lines = read_metrics(run / "metrics.jsonl")
        if not lines:
            self.tell(cell.name, {"state": "starting"})
            return
        steps = [line for line in lines if "loss" in line]
        valid = [line["valid"] for line in lines if "valid" in line]
        last = steps[-1] if steps else {}
        known = {"objective": cell.entry.objective, "valid": valid[-1] if valid else {}}
        self.tell(cell.name, {"state": "training", **last, **known})


def curve_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns every validation, with the time of the last logged step before it."""
    curve: list[dict[str, Any]] = []
    seconds: float | None = None
    for line in lines:
        seconds = line.get("seconds", seconds)
        if "valid" in line:
            point = {"step": line["step"], "tokens": line["tokens"], **line["valid"]}
            curve.append(point | {"seconds": seconds})
    return curve


def threads(jobs: int) -> int:
    """Returns the threads of each of several trainings that run at the same time."""
    return max(1, (os.cpu_count() or 1) // jobs)


def reading_onward(name: str) -> list[str]:
    """Returns the settings that make an objective read running text, from left to right, as it is
    measured. The order of samples is the objective's own: shuffled anew in every pass, or streams
    for a model with a memory."""
    options = {field.name for field in fields(objective(name).Options)}
    return [f"objective.{key}=false" for key in TURNING if key in options]


def read_cell(file: Path) -> dict[str, Any] | None:
    """Returns what was measured of a model, or the costs of all."""
    return read_json(file, kinds=COST_KINDS if file.stem == COSTS else CELL_KINDS, nan=True)


def is_outdated(name: str, cell: dict[str, Any]) -> bool:
    """Returns whether an older version measured a model, without figures that a verdict needs."""
    return name not in (NGRAM, COSTS) and cell.get("format") != FORMAT


def begin(plan: ComparisonPlan, out: Path) -> None:
    """Writes the plan; raises ConfigError if the directory is in use."""
    present: set[str] = {file.name for file in out.iterdir()} if out.exists() else set()
    if present - {PLAN, FACTS}:  # only these: its text could not be read, and nothing was written
        advice = f"resume it with --resume {out}, or " if (out / PLAN).is_file() else ""
        raise ConfigError(f"{out} exists already; {advice}choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    (out / FACTS).unlink(missing_ok=True)
    write_json(out / PLAN, plan.table())


def again(out: Path) -> ComparisonPlan:
    kinds = {"entries": list[dict[str, Any]]}
    table = read_json(out / PLAN, error=FormatError, advice="restore it", kinds=kinds)
    if table is None:
        raise ConfigError(f"{out} has no {PLAN}; there is no comparison to resume")
    with naming(out / PLAN):
        return ComparisonPlan.of(table)
