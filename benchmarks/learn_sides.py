"""The sides of benchmarks/learn.py. Each learns one text for some minutes, and returns its curve.

A curve has points of [seconds of learning, value]: the clock stands still while a side measures.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.data.corpus import Corpus
from regard.evaluation import ngram_baseline
from regard.evaluation.test import Plan, examine
from regard.models import FAMILIES
from regard.training.parallel import ProcessGroup
from regard.training.plan import prepare
from regard.training.recipe import make

POINTS = 10  # of a curve
CALIBRATION = 30  # steps of another library that are timed before its run
ORDER = 5  # of the n-gram
MODEL = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
         "tokenizer_config.json", "special_tokens_map.json")  # fmt: skip
# The README of nanoGPT, "I only have a macbook": what it says for a CPU.
NANO = {"device": "cpu", "compile": "False", "block_size": 64, "batch_size": 12, "n_layer": 4,
        "n_head": 4, "n_embd": 128, "dropout": 0.0, "log_interval": 1}  # fmt: skip
NANO_CONFIG = "config/train_shakespeare_char.py"
STEP = re.compile(r"^iter (\d+): loss \S+, time ([\d.]+)ms", re.M)
VALUE = re.compile(r"^step (\d+): train loss \S+, val loss ([\d.]+)", re.M)


class Job(NamedTuple):
    """What one side has to do."""

    data: Path  # prepared text
    minutes: float
    seed: int
    threads: int
    size: str  # of our models; "": what the command chooses
    nanogpt: Path | None
    place: Path  # for its files

    def environment(self) -> dict[str, str]:
        return os.environ | {"OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1"}


Points = list[tuple[float, float]]


def cell(metric: str, value: float, seconds: float, curve: Points, **facts: Any) -> dict[str, Any]:
    return {"metric": metric, "value": value, "seconds": seconds, "curve": curve, **facts}


# -- ours


def ours(job: Job, family: str) -> dict[str, Any]:
    """Runs the default command, and reads what it wrote."""
    run = job.place / "run"
    shutil.rmtree(run, ignore_errors=True)
    size = ["--size", job.size] if job.size else []
    words = ["train", family, str(job.data), "--minutes", f"{job.minutes:g}", *size, "--seed",
             str(job.seed), "--out", str(run), f"engine.threads={job.threads}"]  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "regard", *words], check=True, env=job.environment(),
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    curve = curve_of(run / "metrics.jsonl")
    metric, value = next(iter(facts["valid"].items()))
    if metric != "bits_per_byte":  # by the objective that the Trainer's model is measured by, too
        metric, value = measured(run, job.data)
    return cell(
        metric, value, facts["progress"]["seconds"], curve, steps=facts["progress"]["step"],
        tokens=facts["progress"]["tokens"], parameters=facts["model"]["parameters"],
    )  # fmt: skip


def curve_of(metrics: Path) -> Points:
    """Returns the first figure of each validation, over the seconds of the steps before it."""
    points, seconds = [], 0.0
    for line in metrics.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "valid" in record:
            points.append((seconds, float(next(iter(record["valid"].values())))))
        else:
            seconds = record["seconds"]
    return points


def measured(model: Path, data: Path) -> tuple[str, float]:
    """Returns the first figure of a model on the whole validation text, by the objective of its
    family: the model is opened without its recipe."""
    with tempfile.TemporaryDirectory() as place:
        for name in MODEL:
            if (model / name).is_file():
                shutil.copy(model / name, place)
        plan = Plan(split="valid", out=Path(place, "out"), worst=0, resamples=1)
        figures = examine(place, [str(data)], plan)["figures"]
    metric = "bits_per_byte" if "bits_per_byte" in figures else next(iter(figures))
    return metric, float(figures[metric])


def ngram(job: Job) -> dict[str, Any]:
    """Counts the whole training text, whatever the minutes are."""
    model = ngram_baseline.count(job.data, ORDER)
    figures = ngram_baseline.measure(model, job.data, "valid")
    seconds = figures["seconds"]["counting"]
    return cell("bits_per_byte", figures["bits_per_byte"], seconds, [])


# -- nanoGPT


def nanogpt(job: Job) -> dict[str, Any]:
    """Runs nanoGPT's own train.py, unchanged, on the characters of the same splits. Its seed is
    fixed, and it measures windows of the text that it draws (200 batches)."""
    assert job.nanogpt is not None
    data = job.place / "characters"
    bytes_per_character = write_characters(job.data, data)
    first = {"max_iters": CALIBRATION, "lr_decay_iters": CALIBRATION, "eval_iters": 1}
    times = step_times(run_nanogpt(job, data, first | {"eval_interval": 10**9}))
    seconds = statistics.median(list(times.values())[CALIBRATION // 3 :])
    every = max(1, int(job.minutes * 60 / seconds / POINTS))
    steps = every * POINTS
    log = run_nanogpt(job, data, {"max_iters": steps, "lr_decay_iters": steps,
                                  "eval_interval": every, "eval_iters": 200})  # fmt: skip
    times, usual = step_times(log), 0.0
    usual = statistics.median(times.values())
    curve = []
    for number, loss in VALUE.findall(log):
        # a step that measured is as long as others: its own time holds the measuring, too
        before = [usual if i % every == 0 else each for i, each in times.items() if i < int(number)]
        curve.append((sum(before), float(loss) / math.log(2) / bytes_per_character))
    tokens = steps * NANO["batch_size"] * NANO["block_size"]  # type: ignore[operator]
    return cell("bits_per_byte", curve[-1][1], curve[-1][0], curve[1:], steps=steps, tokens=tokens)


def write_characters(data: Path, place: Path) -> float:
    """Writes the splits as nanoGPT reads characters; returns the bytes of a character of the
    validation text. As in its own preparation, the vocabulary has the characters of both."""
    texts = {split: text_of(Corpus.open(data, split)) for split in ("train", "valid")}
    letters = {letter: i for i, letter in enumerate(sorted(set("".join(texts.values()))))}
    place.mkdir(parents=True, exist_ok=True)
    for split, name in (("train", "train.bin"), ("valid", "val.bin")):
        np.array([letters[letter] for letter in texts[split]], np.uint16).tofile(place / name)
    # The table {"vocab_size": N} in the oldest protocol of pickle, which nanoGPT reads.
    (place / "meta.pkl").write_bytes(f"(dS'vocab_size'\nI{len(letters)}\ns.".encode())
    return len(texts["valid"].encode()) / len(texts["valid"])


def text_of(corpus: Corpus) -> str:
    words = corpus.tokenizer
    documents = (corpus.document(i)[:-1].tolist() for i in range(len(corpus.documents) - 1))
    return "\n\n".join(map(words.decode, documents))


def run_nanogpt(job: Job, data: Path, options: dict[str, Any]) -> str:
    table = NANO | options | {"dataset": data.resolve(), "out_dir": (job.place / "out").resolve()}
    words = [f"--{name}={value}" for name, value in table.items()]
    done = subprocess.run(
        [sys.executable, "train.py", NANO_CONFIG, *words], cwd=job.nanogpt, check=False,
        env=job.environment() | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"nanoGPT ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def step_times(log: str) -> dict[int, float]:
    """Returns the seconds of every step that nanoGPT has printed."""
    return {int(number): float(time) / 1000 for number, time in STEP.findall(log)}


# -- Hugging Face's Trainer


class Chunks(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The training text in pieces of one length, with the special tokens of BERT around them."""

    def __init__(self, corpus: Corpus, length: int, framed: bool) -> None:
        self.corpus, self.framed = corpus, framed
        self.room = length - 2 * framed

    def __len__(self) -> int:
        return len(self.corpus) // self.room

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.corpus.read(index * self.room, (index + 1) * self.room).tolist()
        special = self.corpus.special
        if self.framed:
            ids = [special.need("cls"), *ids, special.need("sep")]
        return {"input_ids": ids}


def trainer(job: Job, family: str) -> dict[str, Any]:
    """Trains a model of our default shape with the Trainer's default arguments: AdamW at 5e-5, a
    linear schedule, 8 samples a step."""
    import transformers as hf

    torch.set_num_threads(job.threads)
    model, length = blank_model(job, family)
    tokenizer = hf.AutoTokenizer.from_pretrained(str(job.data))
    dataset = Chunks(Corpus.open(job.data, "train"), length, family == "bert")
    collator = hf.DataCollatorForLanguageModeling(tokenizer, mlm=family == "bert")
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def run(steps: int, clock: Any) -> None:
        arguments = hf.TrainingArguments(
            output_dir=str(job.place / "trainer"), max_steps=steps, seed=job.seed, use_cpu=True,
            save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        hf.Trainer(model, arguments, train_dataset=dataset, data_collator=collator,
                   callbacks=[clock]).train()  # fmt: skip

    trial = clock_for(hf, lambda: None, CALIBRATION + 1)
    run(CALIBRATION, trial)
    model.load_state_dict(start)
    usual = statistics.median(np.diff(trial.times)[CALIBRATION // 3 :].tolist())
    steps = max(POINTS, int(job.minutes * 60 / usual))

    def value() -> float:
        place = job.place / "model"
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
        values.append(measured(place, job.data))
        return values[-1][1]

    values: list[tuple[str, float]] = []
    clock = clock_for(hf, value, max(1, steps // POINTS))
    run(steps, clock)
    if len(clock.times) % clock.every:
        clock.points.append((clock.times[-1], value()))
    tokens = steps * 8 * length
    seconds, last = clock.points[-1]
    parameters = model.num_parameters()
    return cell(values[-1][0], last, seconds, clock.points, steps=steps, tokens=tokens,
                parameters=parameters)  # fmt: skip


def blank_model(job: Job, family: str) -> tuple[Any, int]:
    """Returns a model of transformers in the shape of our default, with weights of its own."""
    import transformers as hf

    table = {"model": family, "data": str(job.data), "budget": {"minutes": job.minutes}}
    recipe = make(table | ({"size": job.size} if job.size else {}))
    plan = prepare(recipe, ProcessGroup(), torch.device("cpu"), lambda text: None)
    plan.batches.close()
    shape, length = plan.loop.model.config, plan.recipe.batch.seq_len
    special, count = plan.objective.corpus.special, plan.objective.corpus.vocab_size
    hf.set_seed(job.seed)
    if family == "bert":
        return hf.BertForMaskedLM(hf.BertConfig(
            vocab_size=count, hidden_size=shape.width, num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads, intermediate_size=4 * shape.width,
            max_position_embeddings=length, pad_token_id=special.pad,
        )), length  # fmt: skip
    return hf.GPT2LMHeadModel(hf.GPT2Config(
        vocab_size=count, n_positions=length, n_embd=shape.width, n_layer=shape.layers,
        n_head=shape.heads, bos_token_id=special.end, eos_token_id=special.end,
    )), length  # fmt: skip


def clock_for(hf: Any, value: Callable[[], Any], every: int) -> Any:
    """Returns a callback that adds up the seconds of steps, and measures after every so many."""

    class Clock(hf.TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.every, self.since = every, 0.0
            self.times: list[float] = []  # of learning, up to the end of each step
            self.points: Points = []

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.since = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            before = self.times[-1] if self.times else 0.0
            self.times.append(before + time.perf_counter() - self.since)
            if len(self.times) % self.every == 0:
                self.points.append((self.times[-1], value()))
            self.since = time.perf_counter()

    return Clock()


TRAINERS = {"trainer-gpt2": "gpt", "trainer-bert": "bert"}
OTHERS = ("ngram", "nanogpt", *TRAINERS)


def learn(job: Job, side: str) -> dict[str, Any]:
    """Runs one side of the board."""
    if side in TRAINERS:
        return trainer(job, TRAINERS[side])
    if side in FAMILIES:
        return ours(job, side)
    return {"ngram": ngram, "nanogpt": nanogpt}[side](job)
