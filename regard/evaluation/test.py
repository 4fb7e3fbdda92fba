"""A test: a model's answers beside the right ones, in figures with intervals, and as a page.

DIR/
  report.html        the page
  test.json          everything on it, for programs
  predictions.jsonl  every example with its right answer and the model's
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, InputError, StorageError
from regard.core.files import replacing, write_json
from regard.core.progress import Progress
from regard.data.corpus import MARKER
from regard.data.examples import Example
from regard.data.files import PACKED
from regard.data.problems import Problems
from regard.data.readers import BY_SUFFIX
from regard.data.sources import BY_SUFFIX as TEXT_BY_SUFFIX
from regard.evaluation.options import EvaluateOptions as Plan
from regard.evaluation.page import write_page
from regard.evaluation.predictors import (
    Asked,
    check_task,
    kept,
    names_of,
    opened,
    predictor_for,
    task_of,
    writes,
)
from regard.evaluation.preflight import (
    check_measures,
    check_place,
    check_used,
    meanwhile,
)
from regard.formats.directory import Loaded
from regard.metrics.base import Measured
from regard.metrics.figures import jsonable, summarise
from regard.metrics.significance import compare
from regard.tasks import read
from regard.tasks import task as find
from regard.tasks.base import Prediction
from regard.tasks.corpus import files_of
from regard.tasks.labelled_text import NONE

PAGE, FACTS, ANSWERS = "report.html", "test.json", "predictions.jsonl"
Watch = Callable[[str, int, int], None]  # (what, done, of)


def examine(
    run: str, data: Sequence[str], plan: Plan | None = None, *, quiet: bool = True
) -> dict[str, Any]:
    """Tests a model directory on data and writes the results; gives what test.json says."""
    plan = plan or Plan()
    out = place(run, data, plan)
    began = time.monotonic()
    progress = Progress(quiet=quiet)
    try:
        loaded = opened(run)
        if plan.task:
            plan = replace(plan, task=check_task(loaded, [plan.task]))
        if examples_asked(loaded, data, plan):
            result, rows = examine_task(loaded, run, data, plan, told(progress))
        else:
            from regard.evaluation.language_modeling import examine_text

            result, rows = examine_text(loaded, run, data, plan, told(progress))
    finally:
        progress.close()
    result |= {"title": f"{Path(run).resolve().name}: {result['task']}", "model": run,
               "data": ", ".join(data), "precision": plan.precision, "out": str(out),
               "seconds": round(time.monotonic() - began, 3)}  # fmt: skip
    made: dict[str, Any] = jsonable(result)
    write(out, made, rows)
    return made


def examples_asked(loaded: Loaded, data: Sequence[str], plan: Plan) -> bool:
    """Is it a test of labelled examples, not of text?"""
    task = task_of(loaded, plan.task)
    if not task or len(data) != 1 or not Path(data[0], MARKER).is_file():
        return bool(task)
    if writes(loaded):
        return False
    raise InputError(
        f"{data[0]} is prepared text, and {loaded.path} has learned {task}; give it a labelled file"
    )


def told(progress: Progress) -> Watch:
    """How far it is, now and then."""

    def step(what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if not progress.quiet and now - progress.last >= progress.pause:
            progress.last = now
            progress.say(f"{what}: {done:,} of {of:,} ({done / max(of, 1):.0%})")

    return step


# -- a model that has learned a task


def examine_task(
    loaded: Loaded, run: str, data: Sequence[str], plan: Plan, watch: Watch
) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """All that can be refused is refused before anything is asked."""
    asked, other = both(loaded, run, plan)
    task, labels = find(asked.task), asked.labels
    metric = task.metric(labels)
    examples, notes = examples_of(data, asked, plan)
    gold = [task.gold(example, labels) for example in examples]
    options = task.metric_options(labels, gold, strict=plan.strict, language=plan.language)
    check_used(plan, {"strict": metric.has_schemes, "language": "language" in options,
                      "length": False, "split": False}, asked.task)  # fmt: skip
    check_measures(metric, asked.task, options.get("language", ""))
    with meanwhile(metric):
        said = answers(asked, examples, watch)
    values, void = task.values(labels, said, gold)
    result = summarise(
        metric,
        task.readable(gold, labels),
        task.readable(values, labels),
        scores=scores_of(metric, said),
        texts=[example.shown() for example in examples],
        seed=plan.seed,
        resamples=plan.resamples,
        worst=plan.worst,
        **options,
    )
    explain(result["worst"], examples, said)
    result |= task.more_figures(gold, said, options)
    unseen = task.unseen(examples, labels)
    notes += [task.unseen_note(unseen, len(examples), labels)] if unseen else []
    notes += [void_note(asked, void)] if void else []
    notes += asked.notes
    result |= {"task": asked.task, "options": options, "unseen": unseen, "notes": notes}
    if other is not None:
        found, void = task.values(other.labels, answers(other, examples, watch), gold)
        theirs = task.aligned(found, other.labels, labels)
        notes += [f"{plan.against}: {void_note(other, void)}"] if void else []
        result["comparison"] = compare(  # above 0: the tested run is higher
            metric,
            *(task.readable(side, labels) for side in (gold, theirs, values)),
            names=names_of(plan.against, run),
            seed=plan.seed,
            resamples=plan.resamples,
            **options,
        )
    return result, predictions(examples, gold, said)


def void_note(asked: Asked, void: int) -> str:
    return f"{void:,} answers were {find(asked.task).void_words(asked.labels)}"


def scores_of(metric: type[Measured], said: Sequence[Prediction]) -> list[Any] | None:
    """What the model thought of its answers, where the metric has a use for it."""
    if not metric.calibrates:
        return None
    found = [one.score if one.scores is None else one.scores for one in said]
    return None if any(one is None for one in found) else found


def explain(worst: list[dict[str, Any]], examples: Sequence[Example], said: Any) -> None:
    """Says where an error stands, and what was really written."""
    for row in worst:
        if isinstance(row.get("text"), list):  # the words of a sentence
            row["text"] = " ".join(row["text"])
        if row["predicted"] == NONE:
            row["predicted"] = f"{said[row['index']].value} {NONE}"
        row["place"] = str(examples[row["index"]].place)


def examples_of(data: Sequence[str], asked: Asked, plan: Plan) -> tuple[list[Example], list[str]]:
    """The examples that are tested, all with a right answer, and what was left out."""
    problems = Problems()
    task, classes = find(asked.task), bool(asked.labels)
    files = [file for name in data for file in files_of(name, asked.task)]
    found = read(
        files, asked.task, skip=plan.skip, problems=problems, classes=classes, offsets=False,
        **plan.reading,
    )  # fmt: skip
    notes = problems.notes()
    task.check_tested(found, asked.labels)
    known = [example for example in found if example.labelled]
    if not known:
        raise InputError(
            f"{', '.join(data)} holds no right answers for {asked.task}, so nothing can be tested; "
            f"'regard check {data[0]} --task {asked.task}' says what it holds"
        )
    if missing := len(found) - len(known):
        first = next(example for example in found if not example.labelled)
        if "missing-label" not in plan.skip:
            raise InputError(
                f"{missing:,} of {len(found):,} examples have no right answer, the first is at "
                f"{first.place}; --skip missing-label leaves them out"
            )
        notes.append(f"{missing:,} examples were left out: they have no right answer")
    known = task.expanded(known)
    if plan.limit and plan.limit < len(known):
        notes.append(f"only the first {plan.limit:,} of {len(known):,} examples were tested")
        known = known[: plan.limit]
    return known, notes


def answers(asked: Asked, examples: Sequence[Example], watch: Watch) -> list[Prediction]:
    said = []
    for one in asked.stream(examples):
        said.append(one)
        watch("testing", len(said), len(examples))
    return said


# -- two runs


def both(loaded: Loaded, run: str, plan: Plan) -> tuple[Asked, Asked | None]:
    """What asks the tested run, and what asks the other one, if there is one."""
    models = [loaded, *([opened(plan.against)] if plan.against else [])]
    if "prefix" in plan.decoding and all(map(kept, models)):
        raise ConfigError(
            f"prefix is {plan.decoding['prefix']!r}, but {run} knows what stands before its texts "
            "(task.json); leave it out: it is for a published model"
        )
    asked = asking(loaded, plan, plan.task)
    if not plan.against:
        return asked, None
    other = asking(models[1], plan, check_task(models[1], [asked.task]))
    ours, theirs = (find(each.task).kind_of(each.labels) for each in (asked, other))
    if ours != theirs:
        raise ConfigError(
            f"{run} answers {asked.task} with {ours} and {plan.against} with {theirs}; they cannot "
            "be compared"
        )
    return asked, other


def asking(loaded: Loaded, plan: Plan, task: str) -> Asked:
    """A run that has learned its task has a prefix of its own."""
    given = {k: v for k, v in plan.decoding.items() if k != "prefix" or not kept(loaded)}
    return predictor_for(loaded, task=task, precision=plan.precision, **given)


# -- what is left


def place(run: str, data: Sequence[str], plan: Plan) -> Path:
    """Where the results go: never where a run has its own report."""
    if plan.out is not None:
        out = plan.out
    else:
        out = (Path(run) if Path(run).is_dir() else Path()) / f"test-{stem(data[0])}"
    check_place(out)
    if any((out / name).exists() for name in ("config.json", "run.json", "recipe.toml")):
        raise StorageError(
            f"{out} is a model directory, and its report.html is that of its training; give --out "
            "another place"
        )
    return out


def stem(name: str) -> str:
    """The name of a file without the endings that say how it is written."""
    found = Path(name.rstrip("/")).name
    while Path(found).suffix.lower() in PACKED:
        found = Path(found).stem
    if Path(found).suffix.lower() in {*BY_SUFFIX, *TEXT_BY_SUFFIX}:
        found = Path(found).stem
    return re.sub(r"[^\w\-]+", "-", found).strip("-") or "data"


def predictions(
    examples: Sequence[Example], gold: Sequence[Any], said: Sequence[Prediction]
) -> Iterator[dict[str, Any]]:
    for example, right, one in zip(examples, gold, said, strict=True):
        text = example.shown()
        row: dict[str, Any] = {"id": example.id, "place": str(example.place)}
        row |= text if isinstance(text, dict) else {"text": text}
        row |= {"gold": right, "predicted": one.value}
        row |= {"score": one.score} if one.score is not None else {}
        row |= {"scores": one.scores} if one.scores is not None else {}
        yield row


def write(out: Path, result: dict[str, Any], rows: Iterator[dict[str, Any]]) -> None:
    """Each file is written beside its place, then moved there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with replacing(out / ANSWERS) as part, part.open("w", encoding="utf-8") as file:
            file.writelines(map(in_line, rows))
        write_page(out / PAGE, result)
        write_json(out / FACTS, result)
    except OSError as error:
        raise StorageError(
            f"the results cannot be written to {out}: {error.strerror}; give --out another place"
        ) from None


def in_line(row: dict[str, Any]) -> str:
    """A row of JSON; only what is no plain value takes the slow way."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError):
        return json.dumps(jsonable(row), ensure_ascii=False) + "\n"
