"""Preference tuning of a small dialogue model: a planted preference, learned in every way.

    python benchmarks/prefer.py --data DIR [--seeds 3] [--only dpo,grpo-judge] [--small] [--json]

A small GPT learns dialogues (as in benchmarks/finetune.py). It then writes replies to the first
turns of its training data, and a hidden rule makes pairs of them: a reply that asks something back
(it has a question mark) is chosen. From these pairs a reward model and DPO learn; GRPO learns from
the reward model, and from the rule itself with a large KL weight, with the usual one and with none.
All are measured with first turns that no model has seen: how often a reply asks back, and how far a
token is from the first model (KL by the k3 estimator, on the model's own replies).

Goals: the reward model is right for at least 90 % of unseen pairs; DPO and GRPO raise the share of
replies that ask back by at least 30 points; with the large KL weight the distance is less than half
of that without one. Each finished cell is saved with its settings. The section is "preference" of
docs/results.md.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from finetune_sides import settings as converse_settings
from finetune_sides import talker
from finetune_tasks import NUMBERS, TASKS, files, in_lines
from page import cells, goal, in_process, once, replace, say, spread, table
from script import options_of, parser_for, publish, write_cell

RULE = "contains:?"
LENGTH, TOKENS, GROUP = 96, 24, 8
PAIRS = 4  # the maximum number of pairs of one prompt
RIGHT, RISE, LEASH = 0.9, 0.3, 0.5  # the goals
SHOWN = 5  # the number of replies shown
FEW = 24  # the number of prompts with --small

# The options of each way of learning; beta is the KL weight.
WAYS: dict[str, dict[str, Any]] = {
    "judge": {"method": "reward", "rate": 1e-4, "epochs": 3.0},
    "dpo": {"method": "dpo", "rate": 5e-5, "epochs": 3.0, "beta": 0.1},
    "ipo": {"method": "ipo", "rate": 5e-5, "epochs": 3.0, "beta": 0.1},
    "grpo-judge": {"method": "grpo", "rate": 1e-4, "steps": 100, "beta": 0.04},
    "grpo-rule": {"method": "grpo", "rate": 1e-4, "steps": 100, "beta": 0.04},
    "grpo-firm": {"method": "grpo", "rate": 1e-4, "steps": 100, "beta": 0.5},
    "grpo-free": {"method": "grpo", "rate": 1e-4, "steps": 100, "beta": 0.0},
}
TITLES = {
    "start": "the start",
    "judge": "reward model",
    "dpo": "DPO",
    "ipo": "IPO",
    "grpo-judge": "GRPO, by the reward model",
    "grpo-rule": "GRPO, by the rule",
    "grpo-firm": "GRPO, by the rule, firm leash",
    "grpo-free": "GRPO, by the rule, no leash",
}
NAMES = tuple(TITLES)


def settings_of(name: str, seed: int, small: bool) -> dict[str, Any]:
    """Returns all settings that a cell depends on, including those of the first model, and of the
    reward model if the cell learned from it."""
    sizes = {"length": LENGTH, "tokens": TOKENS, "group": GROUP, "pairs": PAIRS, "rule": RULE}
    begun = {each: getattr(TASKS["dialogue"], each) for each in NUMBERS}
    judged = {"judge": WAYS["judge"]} if name == "grpo-judge" else {}
    plain = {"name": name, "seed": seed, "small": small, **sizes, **WAYS.get(name, {})}
    return {**plain, "dialogue": begun, **judged}


# -- cells


def place_of(options: Any, seed: int) -> Path:
    return Path(options.out) / ("small" if options.small else "runs") / f"seed-{seed}"


def start(options: Any, seed: int) -> dict[str, Any]:
    """Trains the dialogue model, and makes the pairs of its replies."""
    from regard.methods.finetune.run import finetune
    from regard.tasks import read
    from regard.training import recipe as recipes

    place, began = place_of(options, seed), time.perf_counter()
    shutil.rmtree(place, ignore_errors=True)
    task = TASKS["dialogue"]
    data = files(task, Path(options.data), Path(options.out) / "data", 120 if options.small else 0)
    base = talker(data, seed, place / "talker")
    words = converse_settings(task, "fp32")
    words = [w for w in words if not w.startswith("budget.") or not options.small]
    recipe = recipes.make(
        {"budget": {"steps": 5}} if options.small else {},
        recipes.overrides(words),
        {"model": str(base), "data": str(data.train), "seed": seed},
        {"examples": {"task": "converse"}},
    )
    finetune(recipe, place / "start", display="silent")
    counts = {}
    for split, file in (("train", data.train), ("test", data.test)):
        talks: Any = read(file, "converse")
        prompts = [{"prompt": [turn]} for turn in dict.fromkeys(e.turns[0] for e in talks)]
        prompts = prompts[: FEW if options.small else len(prompts)]
        replace(place / f"{split}.prompts.jsonl", in_lines(prompts))
        pairs = pairs_of(place, split, seed)
        replace(place / f"{split}.pairs.jsonl", in_lines(pairs))
        counts[split] = {"prompts": len(prompts), "pairs": len(pairs)}
    figures = measured(place / "start", place, seed)
    return {**figures, "data": counts, "seconds": time.perf_counter() - began}


def objective_on(place: Path, split: str, seed: int) -> Any:
    """Returns an objective that writes replies to a split's prompts and scores them by the rule."""
    from regard.methods.preference.grpo import Reinforce, ReinforceOptions
    from regard.tasks import read
    from regard.tasks.corpus import TaskCorpus, tokenizer_of

    examples = read(place / f"{split}.prompts.jsonl", "prefer")
    corpus = TaskCorpus("prefer", examples, tokenizer_of(str(place / "start")), split="valid")
    corpus.path = str(place / "start")
    options = ReinforceOptions(family="gpt", reward=RULE, group=GROUP, max_new_tokens=TOKENS)
    return Reinforce(corpus, options, seq_len=LENGTH, batch_size=32, seed=seed, learning=False)  # type: ignore[arg-type]


def written(objective: Any, model: Any, most: int = 2**31) -> list[tuple[list[str], list[str]]]:
    """Returns (the turns before, the replies) of every prompt, or of the first `most` prompts."""
    decode, texts_of, count = objective.corpus.tokenizer.decode, [], min(most, len(objective))
    for at in range(0, count, objective.batch_size):
        places = range(at, min(at + objective.batch_size, count))
        batch = objective.write(model, objective.collate([objective.sample(0, i) for i in places]))
        texts = [decode(reply).strip() for reply in batch.replies]
        for i in range(len(places)):
            prompt = decode(batch.prompts[i * GROUP]).strip()
            texts_of.append(([prompt], texts[i * GROUP : (i + 1) * GROUP]))
    return texts_of


def pairs_of(place: Path, split: str, seed: int) -> list[dict[str, Any]]:
    """Pairs each reply that asks back with a reply of the same group that does not."""
    from regard.api import load

    pairs = []
    for turns, replies in written(objective_on(place, split, seed), load(place / "start").model):
        texts = [text for text in dict.fromkeys(replies) if text]
        asking = [text for text in texts if "?" in text]
        plain = [text for text in texts if "?" not in text]
        for chosen, rejected in [*zip(asking, plain, strict=False)][:PAIRS]:
            pairs.append({"prompt": turns, "chosen": chosen, "rejected": rejected})
    return pairs


def measured(run: Path, place: Path, seed: int) -> dict[str, Any]:
    """Measures on unseen prompts how often a model asks back, and its KL from the first model."""
    import torch

    from regard.api import load
    from regard.training.parallel import ProcessGroup
    from regard.training.train_module import TrainModule, validate

    model, objective = load(run).model, objective_on(place, "test", seed)
    device = torch.device("cpu")
    figures, _ = validate(TrainModule(model, objective), objective, ProcessGroup(), device, "fp32")
    shown = [(turns[0], texts[0]) for turns, texts in written(objective, model, SHOWN)]
    return {"figures": figures, "samples": shown}


def learned(options: Any, name: str, seed: int) -> dict[str, Any]:
    """Trains in one way and measures the result."""
    from regard.methods.preference.run import prefer, recipe_for

    place, way, began = place_of(options, seed), WAYS[name], time.perf_counter()
    method, out = way["method"], place / name
    shutil.rmtree(out, ignore_errors=True)
    kind = "prompts" if method == "grpo" else "pairs"
    objective: dict[str, Any] = {} if method == "reward" else {"beta": way["beta"]}
    if method == "grpo":
        objective |= {"group": GROUP, "tokens": TOKENS}
        objective["reward"] = str(place / "judge") if name == "grpo-judge" else RULE
    budget = {k: way[k] for k in ("steps", "epochs") if k in way}
    valid = str(place / "test.pairs.jsonl")
    recipe = recipe_for(
        method,
        {
            "model": str(place / "start"),
            "data": str(place / f"train.{kind}.jsonl"),
            "seed": seed,
            "examples": {"valid_fraction": 0.0} if method == "grpo" else {"valid": valid},
            "objective": objective,
            "batch": {"seq_len": LENGTH, "size": 8 if method == "grpo" else 16},
            "budget": {"steps": 3} if options.small else budget,
            "optimizer": {"lr": way["rate"]},
            "validation": {"every": 10**9},  # the last model counts
            "checkpoint": {"minutes": 1e9, "keep": 1},
            "engine": {"precision": "fp32"},
        },
    )
    facts = prefer(recipe, out, display="silent")
    spent = time.perf_counter() - began
    row = {"valid": facts["valid"], "seconds": spent, "steps": facts["progress"]["step"]}
    return row if method == "reward" else row | measured(out, place, seed)


def cell(options: Any, name: str, seed: int) -> dict[str, Any]:
    figures = start(options, seed) if name == "start" else learned(options, name, seed)
    return {"name": name, "seed": seed, **figures}


def rows_of(options: Any) -> list[dict[str, Any]]:
    """Measures the chosen cells that are missing, and returns all cells."""
    for seed in range(1, options.seeds + 1):
        for name in (name for name in NAMES if name in options.only):
            say(f"{name}-{seed} …")
            words = ["--data", str(options.data), "--out", str(options.out), "--one", name]
            words += ["--seeds", str(seed), "--small", str(options.small)]
            once(
                options.cells / f"{name}-{seed}.json",
                partial(in_process, __file__, words),
                settings_of(name, seed, bool(options.small)),
            )

    def wanted(row: dict[str, Any]) -> dict[str, Any] | None:
        known = row["name"] in NAMES
        return settings_of(row["name"], row["seed"], bool(options.small)) if known else None

    rows = cells(options.cells, wanted)
    return sorted(rows, key=lambda row: (NAMES.index(row["name"]), row["seed"]))


# -- the page


def named(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["name"] == name]


def figures(rows: list[dict[str, Any]], name: str, figure: str) -> list[float]:
    return [row["figures"][figure] for row in named(rows, name)]


def mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)


def reached(rows: list[dict[str, Any]], name: str) -> bool:
    """Returns whether a way of learning reached its goal; it is True if there is no goal."""
    if name == "grpo-firm":
        free = figures(rows, "grpo-free", "kl")
        return not free or mean(figures(rows, name, "kl")) < LEASH * mean(free)
    if name in ("dpo", "grpo-judge", "grpo-rule"):
        return mean(figures(rows, name, "reward")) >= mean(figures(rows, "start", "reward")) + RISE
    return True


def lines_of(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = []
    for name in NAMES:
        cells = named(rows, name)
        if not cells or name == "judge":
            continue
        beta = WAYS.get(name, {}).get("beta")
        leash = spread(figures(rows, name, "kl"))
        asks = spread(figures(rows, name, "reward"))
        lines.append(
            [
                TITLES[name],
                "–" if beta is None else f"{beta:g}",
                str(len(cells)),
                asks if name == "grpo-firm" else goal(asks, reached(rows, name)),
                goal(leash, reached(rows, name)) if name == "grpo-firm" else leash,
                spread(figures(rows, name, "length"), ".1f"),
                spread([row["seconds"] for row in cells], ".0f"),
            ]
        )
    return lines


HEADS = ["learned", "β", "seeds", "asks back", "KL a token", "tokens of a reply", "seconds"]


def section(rows: list[dict[str, Any]]) -> str:
    parts = [
        "## Preference tuning",
        "Made by `python benchmarks/prefer.py`: mean ± standard deviation over seeds. A small GPT "
        "(4 layers, width 256) that has learned some 1,800 dialogues and nothing else; pairs of "
        "its own replies, of which the one with a question mark is chosen. Measured on first turns "
        f"that no model has seen, {GROUP} replies to each. The goal is a share that rises by "
        f"{100 * RISE:.0f} points, and a firm leash that keeps under {LEASH:.0%} of the distance "
        "without one.",
    ]
    if judges := named(rows, "judge"):
        right = [row["valid"]["accuracy"] for row in judges]
        data = [row["data"] for row in named(rows, "start")]
        counts = ", ".join(f"{d['train']['pairs']:,}" for d in data)
        tested = ", ".join(f"{d['test']['pairs']:,}" for d in data)
        shown = goal(spread(right), mean(right) >= RIGHT)
        parts.append(
            f"The reward model is right for {shown} of unseen pairs (goal {RIGHT:.0%}; pairs to "
            f"learn from: {counts}; to test: {tested})."
        )
    if lines := lines_of(rows):
        parts.append(table(HEADS, lines))
    parts.append(
        "A reward is not a wish. The rule sees a question mark and nothing else, so whoever "
        "follows it far enough asks whatever gets one in; what was written (seed 1):"
    )
    for name in ("start", "dpo", "grpo-judge", "grpo-free"):
        cells = [row for row in named(rows, name) if row.get("samples")]
        if cells:
            samples = "\n".join(f"  * {turn} → {reply}" for turn, reply in cells[0]["samples"])
            parts.append(f"* {TITLES[name]}:\n{samples}")
    return "\n\n".join(parts)


def main() -> None:
    parser = parser_for(__doc__, "prefer", NAMES, few="small")
    parser.add_argument("--one", choices=NAMES, help=argparse.SUPPRESS)
    options = options_of(parser, NAMES, "name", few="small")
    if options.one:
        write_cell(options, cell(options, options.one, options.seeds))
        return
    rows = rows_of(options)
    publish(options, "preference", section(rows), cells=rows)


if __name__ == "__main__":
    main()
