"""Tiny models that several claims begin with: they have read made texts, and no label."""

from __future__ import annotations

from regard.lab.claims.engine.finetuning import Start
from regard.lab.claims.engine.labelled_texts import mood_text
from regard.training.recipe import Table

SHAPE: Table = {"layers": 4, "width": 64, "heads": 4, "hidden": 256}
READING: Table = {
    "batch": {"samples": 32, "length": 26},
    "shape": SHAPE,
    "optimizer": {"name": "adamw", "rate": 3e-3},
    "schedule": {"name": "linear", "warmup": 0.1},
    "validation": {"samples": 200},
}
MASKED: Table = {"name": "masked", "documents": "separate", "share": 0.3}
GPT = Start("moods-gpt", mood_text, READING | {"model": "gpt"}, steps=300)
BERT = Start("moods-bert", mood_text, READING | {"model": "bert", "objective": MASKED}, steps=400)

# How a task is learned from moods.
TUNING: Table = {
    "examples": {"task": "classify"},
    "batch": {"samples": 16, "length": 10},
    "optimizer": {"name": "adamw", "rate": 1e-3},
    "schedule": {"name": "linear", "warmup": 0.1},
}
