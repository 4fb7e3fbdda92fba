"""The two sides of benchmarks/translate.py: our loop, and Hugging Face's Seq2SeqTrainer."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import torch

from regard.api import LoadedModel, load
from regard.data.corpus import Corpus
from regard.decoding.pieces import TextStreamer
from regard.formats.directory import save
from regard.metrics.text import TranslationMetric
from regard.objectives.pairs import Pairs, PairsOptions
from regard.training.build import model_for, resolved
from regard.training.checkpoint import Checkpoints, mean
from regard.training.data import TextData
from regard.training.parallel import ProcessGroup
from regard.training.plan import prepare
from regard.training.progress import watch
from regard.training.recipe import Recipe, make
from regard.training.resolve import MachineFacts
from regard.training.run import TrainingRun, settings
from regard.training.schedule import schedule
from regard.training.train_module import TrainModule, validate

CPU = torch.device("cpu")
SAMPLES, LENGTH = 64, 128  # pairs per step; tokens of the longest pair
PEAK, WARMUP = 1e-3, 400  # the highest learning rate, and the step that has it
BETAS, EPSILON, LIMIT = (0.9, 0.98), 1e-9, 1.0
SMOOTHING = 0.1
MANY = 100_000  # a number of steps that no run reaches: the clock ends it before
AVERAGED = 5  # the number of averaged checkpoints
SAVES = 30  # the number of checkpoints of a run
LAST = 50  # the number of last steps whose loss is reported
LOGGED = 10  # the number of steps between two reports of the Trainer
TOKENS = 64  # the maximum number of tokens of a translation
DECODINGS = {"greedy": 1, "beam 4": 4}  # the number of beams
OWN = ("out", "model")  # what the cells of benchmarks/translate.py do not depend on
ROWS = 64  # the number of texts that generate translates together


@dataclass(frozen=True)
class Job:
    out: Path  # the directory of the pairs
    seed: int
    minutes: float  # 0: `steps` decides
    steps: int
    precision: str
    dropout: float = 0.1
    width: int = 256
    vocabulary: int = 8000
    same_allocator: bool = False  # theirs keeps freed memory, as ours does
    side_by_side: bool = False  # both run at the same time, on one core each
    model: str = "transformer"  # or "t5", which has no peer that trains beside it
    layers: ClassVar[int] = 3

    @property
    def shape(self) -> dict[str, Any]:
        """Returns the shape of both models. Marian's attention has biases, T5's has none."""
        own = {"bias": True} if self.model == "transformer" else {"head_size": 64}
        return {
            "layers": self.layers,
            "width": self.width,
            "heads": max(1, self.width // 64),
            "ffn_size": 4 * self.width,
            **own,
            "dropout": self.dropout,
        }

    def recipe(self) -> Recipe:
        every = {"minutes": self.minutes / SAVES} if self.minutes else {"every": self.spacing}
        return make(
            {
                "model": self.model,
                "data": str(self.out / "pairs"),
                "seed": self.seed,
                "shape": self.shape,
                "objective": {"name": "pairs", "smoothing": SMOOTHING, "smoothing_kind": "all"},
                "batch": {"size": SAMPLES, "seq_len": LENGTH},
                "budget": {"steps": self.steps or MANY},
                "optimizer": {
                    "name": "adam",
                    "lr": PEAK * (self.width * WARMUP) ** 0.5,  # noam multiplies by this factor
                    "betas": list(BETAS),
                    "eps": EPSILON,
                    "grad_clip": LIMIT,
                },
                "schedule": {"name": "noam", "warmup": WARMUP},
                "checkpoint": {"keep": AVERAGED, **every},
                "engine": {"precision": self.precision, "compile": "no"},
            }
        )

    @property
    def spacing(self) -> int:
        return max(1, self.steps // SAVES)

    def settings(self, side: str) -> dict[str, Any]:
        """Returns all settings that a measured cell depends on."""
        keeps = self.same_allocator or side == "ours"
        return {
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in OWN},
            "side": side,
            "shape": self.shape,
            "batch": [SAMPLES, LENGTH],
            "rate": [PEAK, WARMUP],
            "adam": [*BETAS, EPSILON, LIMIT],
            "smoothing": SMOOTHING,
            "averaged": [AVERAGED, SAVES],
            "decoding": [DECODINGS, TOKENS],
            "allocator": "keeps freed memory" if keeps else "as it comes",
        }


# -- ours


class Timed(TrainingRun):
    """A run that ends by the clock. The clock stops while a checkpoint is written."""

    minutes = 0.0
    began = paused = ended = 0.0

    def steps(self, steps: int, stop: Any) -> None:
        self.losses: list[float] = []
        self.began = time.perf_counter()
        super().steps(steps, stop)

    def spent(self) -> float:
        return time.perf_counter() - self.began - self.paused

    def late(self) -> bool:
        return bool(self.minutes) and self.spent() >= self.minutes * 60

    def record(self, step: Any) -> None:
        super().record(step)
        self.losses.append(step.loss)
        self.ended = self.spent()

    def save(self, reason: str = "", best: bool = False) -> None:
        before = time.perf_counter()
        super().save(reason, best)
        self.paused += time.perf_counter() - before


def ours(job: Job) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=job.out) as name:
        place = Path(name, "run")
        with settings(CPU):
            shown = watch("silent")
            plan = prepare(
                job.recipe(), ProcessGroup(), CPU, shown.note, resumed=False, data=TextData()
            )
            run = Timed(plan, place, ProcessGroup(), shown, "")
            run.minutes = job.minutes
            report = run.go(resume=False)
        loaded = load(place)
        scores, signature = {}, ""
        for weights in ("last", "average"):
            if weights == "average":
                last = Checkpoints(place / "checkpoints", AVERAGED).intact()[-AVERAGED:]
                loaded.model.load_state_dict(mean([s.tensors("weights") for s in last]))
            else:
                nats = perplexity(job, loaded)
            for decoding, beams in DECODINGS.items():
                texts = translations(job, loaded, beams)
                scores[f"{decoding}, {weights}"], signature = scored(job, texts)
    return {
        "parameters": report["model"]["parameters"],
        "steps": len(run.losses),
        "tokens": report["progress"]["tokens"],
        "seconds": run.ended,
        "loss": statistics.fmean(run.losses[-LAST:]),
        "losses": run.losses[:: max(1, len(run.losses) // 100)],
        "perplexity": nats,
        "scores": scores,
        "signature": signature,
        "pairs": len(run.plan.objective),
        "held": len(held_out(job)),
    }


def translations(job: Job, loaded: LoadedModel, beams: int) -> list[str]:
    from regard.decoding import generate

    sources = [row["source"] for row in held_out(job)]
    results = generate(loaded, sources, max_new_tokens=TOKENS, num_beams=beams, batch_size=ROWS)
    return [best[0].text or "" for best in results]


# -- theirs


class Numbered:
    """Pairs for the Trainer: of one epoch, or of a whole training in our order."""

    def __init__(self, objective: Any, count: int) -> None:
        self.objective, self.count = objective, count

    def __len__(self) -> int:
        return self.count or len(self.objective)

    def __getitem__(self, index: int) -> dict[str, Any]:
        of = self.objective
        sample = of.get(index) if self.count else of.sample(0, index)
        first = int(sample["sizes"][0])
        tokens = sample["tokens"].tolist()
        return {
            "input_ids": tokens[:first],
            "attention_mask": [1] * first,
            "labels": tokens[first:],
        }


def theirs(job: Job) -> dict[str, Any]:
    import transformers as hf

    data = TextData()
    objective, _, recipe = data.build(resolved(job.recipe(), data, MachineFacts()))
    with tempfile.TemporaryDirectory(dir=job.out) as name:
        place, done = Path(name, "start"), Path(name, "done")
        save(model_for(recipe, objective), place, objective.corpus.tokenizer)
        hf.set_seed(job.seed)
        tokenizer = hf.AutoTokenizer.from_pretrained(place)
        model = hf.MarianMTModel.from_pretrained(place)
        trained = learn(job, recipe, objective, model, tokenizer, Path(name))
        model.save_pretrained(done)
        shutil.copy(place / "tokenizer.json", done)
        loaded = load(done)
        scores, signature = {}, ""
        for decoding, beams in DECODINGS.items():
            texts = [text_of(loaded, ids) for ids in written(job, model, beams)]
            scores[f"{decoding}, last"], signature = scored(job, texts)
        nats = perplexity(job, loaded)
    return {
        "parameters": sum(p.numel() for n, p in model.named_parameters() if "positions" not in n),
        **trained,
        "perplexity": nats,
        "scores": scores,
        "signature": signature,
        "pairs": len(objective),
        "held": len(held_out(job)),
    }


def learn(
    job: Job, recipe: Recipe, objective: Any, model: Any, tokenizer: Any, place: Path
) -> dict[str, Any]:
    """Runs their loop, and returns what it has read."""
    import transformers as hf

    sizes: list[int] = []  # the tokens of each batch that are not padding
    clock: dict[str, float] = {}
    losses: list[float] = []

    class Clock(hf.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.setdefault("began", time.perf_counter())

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock["spent"] = time.perf_counter() - clock["began"]
            if job.minutes and clock["spent"] >= job.minutes * 60:
                control.should_training_stop = True

        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
            if "loss" in logs:
                losses.append(float(logs["loss"]))

    class Given(hf.Seq2SeqTrainer):
        """A trainer that reads our batches if steps are compared."""

        def _get_train_sampler(self, *data: Any) -> Any:
            if job.steps:
                return torch.utils.data.SequentialSampler(self.train_dataset)
            return super()._get_train_sampler(*data)

    pad = hf.DataCollatorForSeq2Seq(tokenizer, model=model)

    def collate(rows: list[dict[str, Any]]) -> Any:
        sizes.append(sum(len(row["input_ids"]) + len(row["labels"]) for row in rows))
        return pad(rows)

    arguments = hf.Seq2SeqTrainingArguments(
        output_dir=str(place / "trainer"),
        max_steps=job.steps or MANY,
        per_device_train_batch_size=SAMPLES,
        label_smoothing_factor=SMOOTHING,
        max_grad_norm=LIMIT,
        bf16=job.precision == "bf16",
        use_cpu=True,
        seed=job.seed,
        save_strategy="no",
        logging_steps=1 if job.steps else LOGGED,
        report_to=[],
        disable_tqdm=True,
    )
    chosen = recipe.optimizer
    rate = schedule("noam", lr=chosen.lr, warmup=WARMUP, steps=MANY, width=job.width)
    optimizer = torch.optim.AdamW(
        model.parameters(), PEAK, BETAS, EPSILON, weight_decay=0.0, fused=True
    )
    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step + 1) / PEAK)
    trainer = Given(
        model,
        arguments,
        train_dataset=Numbered(objective, job.steps * SAMPLES),
        data_collator=collate,
        optimizers=(optimizer, falling),
        callbacks=[Clock()],
    )
    trainer.train()
    steps = trainer.state.global_step
    losses = losses or [trainer.state.log_history[-1]["train_loss"]]
    ends = losses[-LAST:] if job.steps else losses[-LAST // LOGGED :]
    return {
        "steps": steps,
        "tokens": sum(sizes[:steps]),
        "seconds": clock["spent"],
        "loss": statistics.fmean(ends),
        "losses": losses[:: max(1, len(losses) // 100)],
    }


def text_of(loaded: LoadedModel, ids: list[int]) -> str:
    """Decodes the ids of `generate` with the same code that decodes ours."""
    assert loaded.tokenizer is not None
    voice = TextStreamer(loaded.tokenizer)
    voice.add(*(i for i in ids if i not in (loaded.config.pad_id, loaded.config.eos_id)))
    voice.finish()
    return voice.text


def written(job: Job, model: Any, beams: int) -> Iterator[list[int]]:
    """Yields the ids that `generate` gives for the held-out sources, in their order."""
    sources = [pair["input_ids"] for pair in pairs_of(job)]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    texts: list[list[int]] = [[] for _ in sources]
    model.eval()
    pad = model.config.pad_token_id
    for at in range(0, len(order), ROWS):
        part = order[at : at + ROWS]
        width = max(len(sources[i]) for i in part)
        rows = [sources[i] + [pad] * (width - len(sources[i])) for i in part]
        ids = torch.tensor(rows)
        mask = torch.tensor([[1] * len(sources[i]) + [0] * (width - len(sources[i])) for i in part])
        with torch.inference_mode():
            tokens = model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=TOKENS, num_beams=beams,
                do_sample=False,
            )  # fmt: skip
        for i, row in zip(part, tokens.tolist(), strict=True):
            texts[i] = row
    return iter(texts)


# -- what both are measured by


def held_out(job: Job) -> list[dict[str, str]]:
    lines = (job.out / "held.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def held_objective(job: Job) -> Pairs:
    corpus = Corpus.open(job.out / "held", "train")
    return Pairs(
        corpus, PairsOptions(), seq_len=LENGTH, batch_size=SAMPLES, seed=job.seed, learning=False
    )


def pairs_of(job: Job) -> Iterator[dict[str, Any]]:
    objective = held_objective(job)
    rows = Numbered(objective, 0)
    return (rows[i] for i in range(len(rows)))


def perplexity(job: Job, loaded: LoadedModel) -> float:
    """Returns the perplexity per token of the held-out targets; both sides use the same code."""
    objective = held_objective(job)
    learner = TrainModule(loaded.model, objective)
    return float(validate(learner, objective, ProcessGroup(), CPU, "fp32").figures["perplexity"])


def scored(job: Job, texts: list[str]) -> tuple[dict[str, float], str]:
    """Returns sacreBLEU (tokenizer zh) and chrF, and the signature of the former."""
    gold = [row["target"] for row in held_out(job)]
    metric = TranslationMetric(gold, texts, language="zh")
    figures = {name: float(metric.figures[name]) for name in ("bleu", "chrf")}
    return figures, metric.details["signatures"]["bleu"]


SIDES: dict[str, Callable[[Job], dict[str, Any]]] = {"ours": ours, "theirs": theirs}
