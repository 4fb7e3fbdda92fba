"""Pseudo-labels (Lee 2013): a first model labels the examples that it is sure of, and a second
model also learns from these."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, StorageError
from regard.core.files import read_json, replacing, write_json
from regard.data.problems import Problems
from regard.evaluation.predictors import predictor_for
from regard.formats.directory import load
from regard.methods.finetune.multi_stage import FinetuneOptions, read_unlabeled
from regard.methods.runs import Facts, Learn, part
from regard.tasks.corpus import fingerprint, read_all
from regard.training.progress import watch
from regard.training.recipe import Recipe
from regard.training.run import pick_device

FIRST, SURE, SUMMARY = "first", "pseudo.jsonl", "pseudo.json"


def labeled_by_a_first(
    recipe: Recipe, out: Path, stages: FinetuneOptions, learn: Learn, display: str
) -> Facts:
    """Trains RUN/first and writes the examples that it is sure of to RUN/pseudo.jsonl; returns how
    many there are of each label."""
    part(recipe, out / FIRST, learn)
    if not (out / SURE).is_file():
        write_labels(recipe, out, stages)
    summary: Facts | None = read_json(out / SUMMARY, kinds={"kept": dict[str, int]})
    if summary is None:
        raise StorageError(f"{out / SUMMARY} is missing; remove {out / SURE} to make both again")
    watch(display).note(in_words(summary, stages))
    return summary


def write_labels(recipe: Recipe, out: Path, stages: FinetuneOptions) -> None:
    """Writes pseudo-labels for the unlabeled examples. A text that also stands in the labeled data
    is left out: a validation text must not be trained on, whoever labels it, and a training text
    has its label already."""
    first = load(out / FIRST)
    first.model.to(pick_device(recipe.engine.device))
    predictor = predictor_for(first)
    names = [name for name in (recipe.data, recipe.examples.valid) if name]
    known = {fingerprint(e) for name in names for e in read_all(name, recipe, Problems())}
    examples: list[Any] = []
    left_out = Counter[str]()
    for example in read_unlabeled(recipe, stages):
        mark = fingerprint(example)
        if mark in known:
            left_out["known"] += 1
        else:
            known.add(mark)
            examples.append(example)
    counts: Counter[str] = Counter(dict.fromkeys(predictor.labels, 0))
    highest = 0.0
    with replacing(out / SURE) as part_file:
        with part_file.open("w", encoding="utf-8") as file:
            for example, answer in zip(examples, predictor.stream(examples), strict=True):
                if answer.score is None:
                    raise ConfigError(
                        f"{recipe.model} gives no confidence for its labels, so --unlabeled cannot "
                        "be used with it; leave it out"
                    )
                highest = max(highest, answer.score)
                if answer.score >= (stages.confidence or 0.0) and answer.value in counts:
                    counts[answer.value] += 1
                    record = as_record(recipe, example, answer.value, answer.score)
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
        summary = {"asked": len(examples), "kept": dict(counts), "highest": highest, **left_out}
        write_json(out / SUMMARY, summary)


def as_record(recipe: Recipe, example: Any, label: str, score: float) -> dict[str, Any]:
    """Returns a record with the field names of the data, so that both files are read in the same
    way."""
    fields = recipe.examples.fields
    values = {**dict(example.without_gold().record()), "label": label}
    record = {str(fields.get(role, role)): value for role, value in values.items() if value}
    return record | {"confidence": round(score, 6)}


def in_words(summary: Facts, stages: FinetuneOptions) -> str:
    counts = ", ".join(f"{label} {count:,}" for label, count in summary["kept"].items())
    total = sum(summary["kept"].values())
    text = (
        f"{total:,} of {summary['asked']:,} unlabeled examples were given a label with a "
        f"confidence of at least {stages.confidence:g} ({counts})"
    )
    if summary.get("known"):
        text += f"; {summary['known']:,} more have the text of another example and were left out"
    if not total:
        text += (
            f"; the highest confidence was {summary['highest']:.3g}, so nothing is added: try a "
            "lower --confidence"
        )
    return text
