"""What a comparison has found, made up: for tests of what is said about it."""

from __future__ import annotations

from typing import Any

from regard.lab.compare.comparison import ComparisonPlan
from regard.lab.compare.lineup import ModelBudget, lineup

EVIL = "</script><script>alert('x')</script>"
MODELS = ("transformer", "gpt", "bert", "lstm")
LENGTHS = (64, 256, 2048)


def comparison(models: tuple[str, ...] = MODELS, seeds: int = 3) -> dict[str, Any]:
    """As Comparison.found() gives it, with Chinese, emoji and markup among its texts."""
    plan = ComparisonPlan(
        ("书 📚.txt",),
        tuple(lineup(models)),
        ModelBudget("tokens", 40_000.0),
        seeds=seeds,
        prompts=("The list of", "今天 <b>早上</b> 🌙"),
        settings=("shape.width=32",),
    )
    cells: dict[str, Any] = {
        "ngram": {"order": 5, "bits_per_byte": 2.25, "perplexity": 30.0, "bytes": 9000}
    }
    for seed in range(1, seeds + 1):
        for place, entry in enumerate(plan.entries):
            cells[f"{entry.name}-{seed}"] = cell(plan, entry.objective, place, seed)
    split = {"documents": 30, "sentences": 900, "tokens": 30_000, "bytes": 90_000, "unknown": 0}
    curves = {
        entry.name: [{"length": n, "seconds": n * 1e-5 * (i + 1), "bytes": n * 4000 * (i + 1)}
                     for n in LENGTHS]
        for i, entry in enumerate(plan.entries)
    }  # fmt: skip
    return {
        "plan": plan.table(),
        "data": dict.fromkeys(("train", "valid", "test"), split),
        "cells": cells,
        "missing": [],
        "costs": {"lengths": list(LENGTHS), "threads": 1, "curves": curves},
        "time": {"estimate": seconds(60.0), "took": seconds(75.0)},
        "text": {"tokens": "ab" * 32, "builtin:python-docs": "cd" * 32},
    }


def seconds(each: float) -> dict[str, float]:
    parts = ("preparing", "counting", "training", "measuring", "costs", "report")
    return dict.fromkeys(parts, each) | {"total": len(parts) * each}


def cell(plan: ComparisonPlan, objective: str, place: int, seed: int) -> dict[str, Any]:
    off = 0.1 * place + 0.013 * seed**2
    exact = objective in ("causal", "recurrent")
    name = {"masked": "masked_perplexity"}.get(objective, "bits_per_byte")
    figures: dict[str, Any] = {
        "model": plan.entries[place].model,
        "objective": objective,
        "seed": seed,
        "parameters": 100_000 + 777 * place,
        "steps": 40,
        "tokens": 39_936,
        "seconds": 12.5 + seed,
        "tokens_per_second": 39_936 / (12.5 + seed),
        "flops": 1.5e10 * (place + 1),
        "peak_memory": 390_000_000 + seed,
        "curve": [
            {"step": step, "tokens": step * 1000, name: 4 - step / 30 + off, "seconds": step / 3}
            for step in (10, 20, 30, 40)
        ],
        "minimal_pairs": 0.7 + off / 10,
        "minimal_pairs_interval": [0.6, 0.8 + off / 10],
        "probe_accuracy": 0.6 + off / 10,
        "probe_accuracy_interval": [0.55, 0.66],
        "probe_untrained": 0.52,
        "probe_majority": 0.5,
        "samples": [
            {
                "given": prompt,
                "prompt": prompt,
                "text": f"{EVIL} 月亮 🌙\n\n\nend",
                "kind": "generated",
            }
            for prompt in plan.prompts
        ],
        "attention": None if plan.entries[place].model == "lstm" else attention(),
    }
    if exact:
        figures |= {"bits_per_byte": 2.5 + off, "bits_per_byte_interval": [2.4 + off, 2.6 + off]}
    if objective == "prefix":
        figures |= {"prefix_bits_per_byte": 2.3 + off, "prefix_bits_per_byte_interval": [2.2, 2.9]}
    if objective == "masked":
        figures |= {"masked_accuracy": 0.3 + off / 10, "masked_accuracy_interval": [0.25, 0.36],
                 "masked_commonest": 0.06, "pseudo_bits_per_byte": 1.9 + off}  # fmt: skip
    return figures


def attention() -> dict[str, Any]:
    tokens = ["月亮", " the", EVIL, "🌙", "."]
    weights = [[0.6 if i == j else 0.1 for j in range(5)] for i in range(5)]
    layers = [{"name": f"blocks.{n}", "number": n + 1, "weights": weights} for n in range(2)]
    return {"text": "月亮 the 🌙.", "tokens": tokens, "layers": layers}
