"""Tests a model: its answers are compared with the gold answers, in figures with intervals and as a
page.

DIR/
  report.html        the page
  test.json          everything on it, for programs
  predictions.jsonl  every example with its gold answer and the model's answer
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
from regard.core.files import make_directory, replacing, storing, write_json
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
    ExamplePredictor,
    check_task,
    has_task_file,
    load_to_device,
    names_of,
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
from regard.formats.directory import Checkpoint
from regard.metrics.base import TaskMetric
from regard.metrics.figures import jsonable, summarize
from regard.metrics.significance import compare
from regard.tasks import read
from regard.tasks import task as find
from regard.tasks.base import Prediction
from regard.tasks.classify import NONE
from regard.tasks.corpus import files_of

PAGE, FACTS, ANSWERS = "report.html", "test.json", "predictions.jsonl"
Watch = Callable[[str, int, int], None]  # (what, done, of)


def examine(
    run: str, data: Sequence[str], plan: Plan | None = None, *, quiet: bool = True
) -> dict[str, Any]:
    """Tests a model directory on data and writes the results. Returns the content of test.json."""
    plan = plan or Plan()
    out = place(run, data, plan)
    began = time.monotonic()
    progress = Progress(quiet=quiet)
    try:
        loaded = load_to_device(run)
        watch = progress_callback(progress)
        if plan.pairs:
            from regard.evaluation.minimal_pairs import examine_pairs

            result, rows = examine_pairs(loaded, data, plan, watch)
        elif examples_asked(loaded, data, plan := checked(loaded, plan)):
            result, rows = examine_task(loaded, run, data, plan, watch)
        else:
            from regard.evaluation.language_modeling import examine_text

            result, rows = examine_text(loaded, run, data, plan, watch)
    finally:
        progress.close()
    result |= {"title": f"{Path(run).resolve().name}: {result['task']}", "model": run,
               "data": ", ".join(data), "precision": plan.precision, "out": str(out),
               "seconds": round(time.monotonic() - began, 3)}  # fmt: skip
    plain: dict[str, Any] = jsonable(result)
    write(out, plain, rows)
    return plain


def checked(loaded: Checkpoint, plan: Plan) -> Plan:
    """Returns the plan with the name of a task that this model has; refuses another task."""
    return replace(plan, task=check_task(loaded, [plan.task])) if plan.task else plan


def examples_asked(loaded: Checkpoint, data: Sequence[str], plan: Plan) -> bool:
    """Returns whether this is a test of labeled examples, not of text."""
    task = task_of(loaded, plan.task)
    if not task or len(data) != 1 or not Path(data[0], MARKER).is_file():
        return bool(task)
    if writes(loaded):
        return False
    raise InputError(
        f"{data[0]} is prepared text, and {loaded.path} was trained for {task}; give a labeled file"
    )


def progress_callback(progress: Progress) -> Watch:
    """Returns a callback that prints the progress from time to time."""

    def step(what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if not progress.quiet and now - progress.last >= progress.pause:
            progress.last = now
            progress.say(f"{what}: {done:,} of {of:,} ({done / max(of, 1):.0%})")

    return step


# -- a model that has learned a task


def examine_task(
    loaded: Checkpoint, run: str, data: Sequence[str], plan: Plan, watch: Watch
) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Tests a model that was trained for a task. All checks run before the first prediction."""
    predictor, other = both_predictors(loaded, run, plan)
    task, labels = find(predictor.task), predictor.labels
    metric = task.metric(labels)
    examples, notes = examples_of(data, predictor, plan)
    gold = [task.gold(example, labels) for example in examples]
    options = task.metric_options(labels, gold, strict=plan.strict, language=plan.language)
    check_used(plan, {"strict": metric.has_schemes, "language": "language" in options,
                      "length": False, "split": False}, predictor.task)  # fmt: skip
    check_measures(metric, predictor.task, options.get("language", ""))
    with meanwhile(metric):
        predictions_made = answers(predictor, examples, watch)
    values, void = task.values(labels, predictions_made, gold)
    result = summarize(
        metric,
        task.readable(gold, labels),
        task.readable(values, labels),
        scores=scores_of(metric, predictions_made),
        texts=[example.shown() for example in examples],
        seed=plan.seed,
        resamples=plan.resamples,
        worst=plan.worst,
        **options,
    )
    explain(result["worst"], examples, predictions_made)
    result |= task.more_figures(gold, predictions_made, options)
    unseen = task.unseen(examples, labels)
    notes += [task.unseen_note(unseen, len(examples), labels)] if unseen else []
    notes += [void_note(predictor, void)] if void else []
    notes += predictor.notes
    result |= {"task": predictor.task, "options": options, "unseen": unseen, "notes": notes}
    if other is not None:
        values_of_other, void = task.values(other.labels, answers(other, examples, watch), gold)
        theirs = task.aligned(values_of_other, other.labels, labels)
        notes += [f"{plan.against}: {void_note(other, void)}"] if void else []
        result["comparison"] = compare(  # above 0: the tested run is higher
            metric,
            *(task.readable(side, labels) for side in (gold, theirs, values)),
            names=names_of(plan.against, run),
            seed=plan.seed,
            resamples=plan.resamples,
            **options,
        )
    if not task.keeps_scores:
        predictions_made = [one._replace(scores=None) for one in predictions_made]
    return result, predictions(examples, gold, predictions_made)


def void_note(predictor: ExamplePredictor, void: int) -> str:
    return f"{void:,} answers were {find(predictor.task).void_words(predictor.labels)}"


def scores_of(metric: type[TaskMetric], answers: Sequence[Prediction]) -> list[Any] | None:
    """Returns the probabilities of the answers, if the metric measures calibration."""
    if not metric.calibrates:
        return None
    scores = [one.score if one.scores is None else one.scores for one in answers]
    return None if any(one is None for one in scores) else scores


def explain(worst: list[dict[str, Any]], examples: Sequence[Example], answers: Any) -> None:
    """Adds the place of each error in the data, and the text that the model really wrote."""
    for row in worst:
        if isinstance(row.get("text"), list):  # the words of a sentence
            row["text"] = " ".join(row["text"])
        if row["predicted"] == NONE:
            row["predicted"] = f"{answers[row['index']].value} {NONE}"
        row["place"] = str(examples[row["index"]].place)


def examples_of(
    data: Sequence[str], predictor: ExamplePredictor, plan: Plan
) -> tuple[list[Example], list[str]]:
    """Returns the examples to test on, all with a gold answer, and notes on those left out."""
    problems = Problems()
    task, classes = find(predictor.task), bool(predictor.labels)
    files = [file for name in data for file in files_of(name, predictor.task)]
    examples = read(
        files, predictor.task, skip=plan.skip, problems=problems, classes=classes, offsets=False,
        **plan.reading,
    )  # fmt: skip
    notes = problems.notes()
    task.check_tested(examples, predictor.labels)
    known = [example for example in examples if example.labeled]
    if not known:
        raise InputError(
            f"{', '.join(data)} has no gold answers for {predictor.task}, so nothing can be "
            f"tested; 'regard check {data[0]} --task {predictor.task}' shows what it holds"
        )
    if missing := len(examples) - len(known):
        first = next(example for example in examples if not example.labeled)
        if "missing-label" not in plan.skip:
            raise InputError(
                f"{missing:,} of {len(examples):,} examples have no gold answer, the first is at "
                f"{first.place}; --skip missing-label leaves them out"
            )
        notes.append(f"{missing:,} examples were left out: they have no gold answer")
    known = task.expanded(known)
    if plan.limit and plan.limit < len(known):
        notes.append(f"only the first {plan.limit:,} of {len(known):,} examples were tested")
        known = known[: plan.limit]
    return known, notes


def answers(
    predictor: ExamplePredictor, examples: Sequence[Example], watch: Watch
) -> list[Prediction]:
    answers_so_far = []
    for one in predictor.stream(examples):
        answers_so_far.append(one)
        watch("testing", len(answers_so_far), len(examples))
    return answers_so_far


# -- two runs


def both_predictors(
    loaded: Checkpoint, run: str, plan: Plan
) -> tuple[ExamplePredictor, ExamplePredictor | None]:
    """Returns the predictor of the tested run, and that of the run to compare with, or None."""
    models = [loaded, *([load_to_device(plan.against)] if plan.against else [])]
    if "prefix" in plan.decoding and all(map(has_task_file, models)):
        raise ConfigError(
            f"prefix is {plan.decoding['prefix']!r}, but {run} has its own prefix (task.json); "
            "leave it out: it is for a published model"
        )
    predictor = predictor_of(loaded, plan, plan.task)
    if not plan.against:
        return predictor, None
    other = predictor_of(models[1], plan, check_task(models[1], [predictor.task]))
    ours, theirs = (find(each.task).kind_of(each.labels) for each in (predictor, other))
    if ours != theirs:
        raise ConfigError(
            f"{run} answers {predictor.task} with {ours} and {plan.against} with {theirs}; they "
            "cannot be compared"
        )
    return predictor, other


def predictor_of(loaded: Checkpoint, plan: Plan, task: str) -> ExamplePredictor:
    """Returns the predictor of a model. A run that was trained for its task has its own prefix."""
    decoding = {
        k: v for k, v in plan.decoding.items() if k != "prefix" or not has_task_file(loaded)
    }
    return predictor_for(loaded, task=task, precision=plan.precision, **decoding)


# -- what is left


def place(run: str, data: Sequence[str], plan: Plan) -> Path:
    """Returns the directory of the results. It is never one with the report of a training run."""
    if plan.out is not None:
        out = plan.out
    else:
        out = (Path(run) if Path(run).is_dir() else Path()) / f"test-{stem(data[0])}"
    check_place(out)
    if any((out / name).exists() for name in ("config.json", "run.json", "recipe.toml")):
        raise StorageError(
            f"{out} is a model directory, and its report.html is that of its training; give "
            "another directory with --out"
        )
    return out


def stem(name: str) -> str:
    """Returns the name of a file without the suffixes of its format."""
    name_left = Path(name.rstrip("/")).name
    while Path(name_left).suffix.lower() in PACKED:
        name_left = Path(name_left).stem
    if Path(name_left).suffix.lower() in {*BY_SUFFIX, *TEXT_BY_SUFFIX}:
        name_left = Path(name_left).stem
    return re.sub(r"[^\w\-]+", "-", name_left).strip("-") or "data"


def predictions(
    examples: Sequence[Example], gold: Sequence[Any], answers: Sequence[Prediction]
) -> Iterator[dict[str, Any]]:
    for example, right, one in zip(examples, gold, answers, strict=True):
        text = example.shown()
        row: dict[str, Any] = {"id": example.id, "place": str(example.place)}
        row |= text if isinstance(text, dict) else {"text": text}
        row |= {"gold": right, "predicted": one.value}
        row |= {"score": one.score} if one.score is not None else {}
        row |= {"scores": one.scores} if one.scores is not None else {}
        yield row


def write(out: Path, result: dict[str, Any], rows: Iterator[dict[str, Any]]) -> None:
    """Writes the results. Each file is written under another name first, then moved into place."""
    with storing(out):
        make_directory(out)
    with replacing(out / ANSWERS) as part, part.open("w", encoding="utf-8") as file:
        file.writelines(map(json_line, rows))
    write_page(out / PAGE, result)
    write_json(out / FACTS, result)


def json_line(row: dict[str, Any]) -> str:
    """Returns a line of JSON. Only rows with values that are not plain take the slow path."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError):
        return json.dumps(jsonable(row), ensure_ascii=False) + "\n"
