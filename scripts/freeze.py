"""What the package does today, in one file, to be compared with what it does after a change.

    python scripts/freeze.py --out before.json [--parts models,training] [--fresh]
    python scripts/freeze.py --compare before.json after.json [--renamed names.json]

A snapshot holds digests of weights and of outputs, names and shapes of tensors, losses, figures and
settled recipes of many small models. Texts and examples are made on the spot, and nothing in it
depends on time, on paths, or on where in the package something is defined: only the public names of
`regard` and its command line are used. Two snapshots of the same code are equal on one machine
with the same libraries; on another one the last bits, and so the digests, may differ.

The package is the one that PYTHONPATH finds first. Commands run two at a time, each in a process
of its own that is forked from one in which torch is imported already; with `--fresh` each is a new
interpreter instead, which takes three times as long and must give the same.

`--compare` prints every difference and ends with 1 if there are any. The file of `--renamed` maps
parts of old keys to new ones, wherever they stand: {"recipe/batch/samples": "recipe/batch/rows"}.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import itertools
import json
import math
import multiprocessing
import os
import platform
import random
import runpy
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import regard

Table = dict[str, Any]
ROOT = Path(regard.__file__).resolve().parent.parent
LANES = 2  # commands that run at the same time
ALONE = {  # one thread for each command, and no pictures of progress
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONHASHSEED": "0",
    "COLUMNS": "100",
    "NO_COLOR": "1",
}
# Imported before a command begins: what is slow to import and belongs to others.
HEAVY = ["torch", "torch._inductor", "torch.utils.tensorboard", "tokenizers", "click", "numpy",
         "scipy.stats", "sklearn.metrics", "seqeval.metrics", "sacrebleu",
         "rouge_score.rouge_scorer"]  # fmt: skip
FAMILIES = ("transformer", "gpt", "bert", "transformer-xl", "xlnet", "t5", "longformer",
            "longformer-characters", "lstm")  # fmt: skip
COMMANDS = """prepare,check,augment,train,finetune,distill,align,generate,fill,chat,predict,embed,
    evaluate,probe,compare,claims,claims list,claims run,claims show,quantize,prune,look,models,
    info,convert,recipes,draw,draw attention,draw positions,draw schedules,draw masks,draw order,
    draw parameters,draw operations""".split(",")


# -- digests and files


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_of_tensors(tensors: dict[str, Any]) -> str:
    """Of names, kinds, shapes and every bit."""
    sha256 = hashlib.sha256()
    for name, value in tensors.items():
        plain = value.detach().cpu().contiguous()
        sha256.update(f"{name} {plain.dtype} {list(plain.shape)}\n".encode())
        sha256.update(plain.numpy().tobytes())
    return sha256.hexdigest()


def tensors_in(file: Path) -> dict[str, str]:
    """Kind and shape of every tensor of a safetensors file, by its header alone."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    header.pop("__metadata__", None)
    return {name: f"{about['dtype']} {about['shape']}" for name, about in sorted(header.items())}


def weights_in(directory: Path) -> Table:
    file = directory / "model.safetensors"
    return {"sha256": digest(file.read_bytes()), "tensors": tensors_in(file)}


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def without(value: Any, *names: str) -> Any:
    """A copy that has nothing of these names at any depth."""
    if isinstance(value, dict):
        return {key: without(inner, *names) for key, inner in value.items() if key not in names}
    if isinstance(value, list):
        return [without(inner, *names) for inner in value]
    return value


# -- commands, each in a process of its own


class Said(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    error: str


def behave(words: list[str], place: str, out: str, error: str) -> None:
    """`python -m regard …` inside of a process that was forked for it."""
    for number, name in ((1, out), (2, error)):
        with Path(name).open("w") as file:
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), "utf-8", line_buffering=True)
        for number in (1, 2)
    )
    os.chdir(place)
    sys.dont_write_bytecode, sys.pycache_prefix = False, f"{place}/compiled"  # not in the package
    sys.argv = ["regard", *words]
    runpy.run_module("regard", run_name="__main__", alter_sys=True)


class Bench:
    """A scratch directory, and the lanes in which commands run there."""

    def __init__(self, place: Path, fresh: bool) -> None:
        self.place, self.fresh = place, fresh
        self.lanes = ThreadPoolExecutor(LANES)
        self.forks = multiprocessing.get_context("forkserver")
        self.forks.set_forkserver_preload(HEAVY)
        self.numbers = itertools.count()
        (place / "said").mkdir()

    def call(self, *words: object) -> Said:
        """Runs a command in the scratch directory and waits for it."""
        arguments = [str(word) for word in words]
        if self.fresh:
            done = subprocess.run(
                [sys.executable, "-m", "regard", *arguments], cwd=self.place, encoding="utf-8",
                capture_output=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            return Said(done.returncode, done.stdout, done.stderr)
        number = next(self.numbers)
        files = [self.place / "said" / f"{number}.{end}" for end in ("out", "err")]
        process = self.forks.Process(
            target=behave, args=(arguments, str(self.place), *map(str, files))
        )
        process.start()
        process.join()
        out, error = (file.read_text(encoding="utf-8") for file in files)
        return Said(process.exitcode or 0, out, error)

    def later(self, name: str, work: Callable[[], Any]) -> Future[Any]:
        """Work for a lane. What it waits for must have been given before it."""

        def timed() -> Any:
            began = time.monotonic()
            try:
                answer = work()
            except Exception as error:  # one that fails does not keep the others from it
                answer = {"failed": type(error).__name__, "said": str(error)[-600:]}
            failed = isinstance(answer, dict) and "failed" in answer
            suffix = f" FAILED: {answer['said']}" if failed else ""
            print(f"{time.monotonic() - began:6.1f} s  {name}{suffix}", file=sys.stderr, flush=True)
            return self.neutral(answer)

        return self.lanes.submit(timed)

    def neutral(self, value: Any) -> Any:
        """Without the name of the scratch directory, and as JSON gives it back."""
        text = json.dumps(value).replace(f"{self.place}/", "").replace(str(self.place), ".")
        return json.loads(text)

    def run(self, out: str, *words: object) -> Table:
        """A command that writes a run or a model, and what stands there afterwards."""
        result = self.call(*words, "--out", out, "--quiet")
        return failure(result) or of_run(self.place / out)

    def shown(self, *words: object, leave: tuple[str, ...] = ()) -> Any:
        """What a command prints as JSON, without what is named."""
        result = self.call(*words, "--json")
        return failure(result) or without(json.loads(result.out), *leave)


def failure(result: Said) -> Table:
    """What is kept of a command that failed; empty if it did not."""
    return {"failed": result.code, "said": result.error.strip()[-600:]} if result.code else {}


def of_run(place: Path) -> Table:
    """All of a run's directory that depends on nothing but what was asked for."""
    table: Table = {"files": sorted(file.name for file in place.iterdir())}
    if (place / "recipe.toml").is_file():
        table["recipe"] = tomllib.loads((place / "recipe.toml").read_text(encoding="utf-8"))
        for name in ("device", "threads", "native"):
            table["recipe"]["engine"].pop(name, None)
    if (place / "metrics.jsonl").is_file():
        lines = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        table["metrics"] = [
            without(json.loads(line), "seconds", "tokens_per_second") for line in lines
        ]
    if (place / "run.json").is_file():
        keys = ("objective", "samples", "tokens_per_step", "memory_needed", "steps", "step_flops",
                "valid", "outcome", "best", "model", "data", "distilled")  # fmt: skip
        table["facts"] = {
            key: value for key, value in read(place / "run.json").items() if key in keys
        }
    for name in ("config.json", "task.json"):
        if (place / name).is_file():
            table[name.removesuffix(".json")] = read(place / name)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (place / name).is_file():
            table[name.removesuffix(".json")] = digest((place / name).read_bytes())
    if (place / "model.safetensors").is_file():
        table["weights"] = weights_in(place)
    return table


# -- texts and examples, made on the spot

VOCABULARY = 480
DICE = random.Random(20)
WORDS = sorted({
    "".join(DICE.choice("bcdfglmnprst") + DICE.choice("aeiou") for _ in range(DICE.randint(1, 3)))
    for _ in range(160)
})  # fmt: skip
GOOD, BAD = WORDS[:8], WORDS[8:16]


def sentence(dice: random.Random, least: int = 4, most: int = 9) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(dice.randint(least, most)))


def write_text(file: Path, documents: int, seed: int) -> None:
    """Paragraphs of a few sentences, in made-up words of which some are likelier after others."""
    dice = random.Random(seed)
    paragraphs = []
    for _ in range(documents):
        sentences = [sentence(dice).capitalize() + "." for _ in range(dice.randint(3, 8))]
        paragraphs.append(" ".join(sentences))
    file.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")


def write_pairs(file: Path, count: int, seed: int) -> None:
    """A source, and its words in the other order."""
    dice = random.Random(seed)
    sources = [sentence(dice) for _ in range(count)]
    lines = [f"{text}\t{' '.join(reversed(text.split()))}" for text in sources]
    file.write_text("source\ttarget\n" + "\n".join(lines) + "\n", encoding="utf-8")


def example(task: str, number: int, dice: random.Random) -> Table:
    """One labeled example of a task."""
    good = bool(number % 2)
    text = f"{sentence(dice, 3, 6)} {dice.choice(GOOD if good else BAD)} {sentence(dice, 1, 3)}"
    other = sentence(dice, 3, 6)
    label = "good" if good else "bad"
    words = text.split()
    match task:
        case "classify":
            return {"text": text, "label": label}
        case "entail":
            return {"premise": text, "hypothesis": other, "label": label}
        case "similar":
            return {"a": text, "b": other, "similarity": number * 7 % 26 / 5}
        case "tag":
            kinds = {**dict.fromkeys(GOOD, "praise"), **dict.fromkeys(BAD, "blame")}
            return {
                "words": words,
                "tags": [f"B-{kinds[word]}" if word in kinds else "O" for word in words],
            }
        case "answer":
            word = words[number % len(words)]
            begin = f" {text} ".index(f" {word} ")
            answers = {"text": [word], "answer_start": [begin]}
            return {"id": f"q{number}", "question": other, "context": text, "answers": answers}
        case "choose":
            choices = [f"{other} {dice.choice(GOOD)}", f"{other} {dice.choice(BAD)}"]
            return {"premise": text, "choices": choices, "label": 1 - number % 2}
        case "translate":
            return {"source": text, "target": " ".join(reversed(words))}
        case "summarize":
            return {"document": text, "summary": " ".join(words[:3])}
        case "converse":
            return {"turns": [text, other, sentence(dice, 2, 5), sentence(dice, 2, 5)]}
        case "prefer":
            return {"prompt": other, "chosen": f"{words[0]} {GOOD[0]}", "rejected": words[1]}
    raise ValueError(task)


def write_examples(file: Path, task: str, count: int, seed: int) -> None:
    dice = random.Random(seed)
    records = [example(task, number, dice) for number in range(count)]
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def prepare_words(source: str, out: str, *more: object) -> tuple[object, ...]:
    return ("prepare", source, "--out", out, "--vocab-size", VOCABULARY, *more)


def of_data(place: Path) -> Table:
    """A data directory: its description, and every file of it."""
    files = [file for file in sorted(place.iterdir()) if file.name != "data.json"]
    return {
        "data": without(read(place / "data.json"), "seconds", "made", "created"),
        "files": {file.name: digest(file.read_bytes()) for file in files},
    }


# -- part: models

SMALL: Table = {  # for fields that a configuration has; some only where the size sets them
    "vocab_size": 101, "context": 48, "width": 32, "layers": 2, "heads": 4, "ffn_size": 64,
    "kv_heads": 2, "head_size": 8, "window": 8, "windows": (4, 8),
}  # fmt: skip
SET_ONLY: Table = {
    "ffn_size": 64, "cutoffs": (30, 60), "ratio": 2, "embedding": 32, "mem_len": 16, "band": 4,
    "dilations": (1, 2), "decoder_layers": 2, "decoder_heads": 4, "decoder_ffn_size": 64,
}  # fmt: skip


def models(bench: Bench) -> Iterator[tuple[str, Future[Any]]]:
    yield "sizes", bench.later("models: published sizes", published)
    yield "tiny", bench.later("models: tiny ones", lambda: tiny_models(bench.place / "models"))
    yield "listed", bench.later("models: listed", lambda: bench.shown("models", "--family", "gpt"))


def published() -> Table:
    return {
        name: {"parameters": regard.count_parameters(name), "config": dataclasses.asdict(config)}
        for name, config in regard.sizes().items()
    }


def tiny_models(place: Path) -> Table:
    """Every family and every published size, made small."""
    return {name: tiny_model(name, place / name) for name in (*FAMILIES, *regard.sizes())}


def shrunk(config: Any) -> Table:
    """What makes a configuration small, whatever its family."""
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    changes = {name: value for name, value in SMALL.items() if name in fields}
    changes |= {name: value for name, value in SET_ONLY.items() if fields.get(name)}
    if changes.get("cutoffs") is None:
        changes.pop("ratio", None)
    return changes


def tiny_model(name: str, place: Path) -> Table:
    """Names, weights, output and files of one model."""
    import torch

    torch.set_num_threads(1)
    with torch.device("meta"):
        config = regard.create(name, initialize=False).config
    torch.manual_seed(7)
    model: Any = regard.create(name, **shrunk(config)).eval()
    regard.save(model, place)
    loaded: Any = regard.load(place)
    state = model.state_dict()
    table = {
        "config": dataclasses.asdict(model.config),
        "state": {key: f"{value.dtype} {list(value.shape)}" for key, value in state.items()},
        "parameters": model.parameter_count(),
        "initialized": digest_of_tensors(state),
        "loaded": digest_of_tensors(loaded.model.state_dict()),
        "files": sorted(file.name for file in place.iterdir()),
        "config.json": read(place / "config.json"),
        "weights": weights_in(place),
    }
    dice = torch.Generator().manual_seed(11)
    tokens = torch.randint(6, 101, (2, 24), generator=dice)
    attention_mask = torch.ones(2, 24, dtype=torch.bool)
    attention_mask[1, 17:] = False
    with torch.no_grad():
        for key, marks in (("output", None), ("padded", attention_mask)):
            if hasattr(model, "encode"):
                hidden = model(tokens, tokens[:, :20], attention_mask=marks)
            else:
                hidden = model(tokens, attention_mask=marks)
            table[key] = digest_of_tensors({"hidden": hidden, "logits": model.logits(hidden)})
        if "lstm" not in name:
            with regard.record(model) as seen:
                model(tokens, tokens[:, :20]) if hasattr(model, "encode") else model(tokens)
            table["attention"] = {
                layer.name: digest_of_tensors({"": layer.weights}) for layer in seen
            }
    return table


# -- part: training

EXACT = ("engine.precision=fp32", "engine.compile=no", "engine.threads=1")
STEPS = ("--steps", 4, "batch.seq_len=32", "batch.size=4", "validation.every=2",
         "validation.samples=16", *EXACT)  # fmt: skip
HEADS = ("transformer-xl", "xlnet", "t5")  # families whose heads have a size of their own
KINDS = {  # of tokenizers, with the entries asked for; 0: what the text gives
    "bytes-bpe": VOCABULARY, "bpe": 360, "wordpiece": VOCABULARY, "unigram": VOCABULARY,
    "words": 0, "characters": 0, "bytes": 0,
}  # fmt: skip


class Training(NamedTuple):
    model: str
    settings: tuple[str, ...] = ()
    data: str = "text"


def mixed(*parts: str) -> str:
    """`objective.parts=[…]`, as TOML has it on the command line."""
    return f"objective.parts=[{', '.join(parts)}]"


SPAN = '{name = "spans", objective = "span", share = 0.5}'
PREFIX = '{name = "rest", objective = "prefix", share = 0.5}'
CAUSAL = '{name = "next", objective = "causal", share = 0.75}'
PAIRS = '{name = "pairs", objective = "pairs", share = 0.25, data = "data/pairs"}'
MASKED = '{name = "hidden", objective = "masked", share = 0.5, options = {whole_words = "pieces"}}'
SENTENCES = '{name = "order", objective = "sentences", share = 0.5, options = {task = "order"}}'
TRAININGS: dict[str, Training] = {
    **{f"{family}": Training(family) for family in FAMILIES},
    "gpt-prefix": Training("gpt", ("objective.name=prefix",)),
    "gpt-span": Training("gpt", ("objective.name=span", "shape.context=64")),
    "gpt-separate": Training("gpt", ("objective.documents=separate", "batch.grad_accum=2")),
    "gpt-streams": Training("gpt", ("batch.order=streams", "objective.shift=false")),
    "gpt1": Training("gpt1"),
    "gpt3-small": Training("gpt3-small", ("shape.band=8",)),
    "bert-masked": Training("bert", ("objective.name=masked", "objective.whole_words=pieces")),
    "bert-masked-static": Training("bert", ("objective.name=masked", "objective.dynamic=false")),
    "bert-causal": Training("bert", ("objective.name=causal",)),
    "bert-prefix": Training("bert", ("objective.name=prefix",)),
    "bert-order": Training("bert", ("objective.task=order",)),
    "bert-wordpiece": Training("bert", data="wordpiece"),
    "longformer-sentences": Training("longformer", ("objective.name=sentences",
                                                    "objective.task=none")),
    "transformer-xl-causal": Training("transformer-xl", ("objective.name=causal",)),
    "transformer-xl-adaptive": Training("transformer-xl", ("shape.cutoffs=[100, 200]",
                                                           "shape.ratio=2"), "words"),
    "xlnet-causal": Training("xlnet", ("objective.name=causal",)),
    "xlnet-prefix": Training("xlnet", ("objective.name=prefix",)),
    "xlnet-recurrent": Training("xlnet", ("objective.name=recurrent", "size=",
                                          "shape.layers=2", "shape.heads=2", "shape.mem_len=24")),
    "xlnet-alone": Training("xlnet", ("objective.pairs=false", "objective.two_directions=false",
                                      "objective.memory=false"), "unigram"),
    "lstm-causal": Training("lstm", ("objective.name=causal",)),
    "longformer-characters-bytes": Training("longformer-characters", data="bytes"),
    "t5-prefix": Training("t5", ("objective.name=prefix",)),
    "t5-unigram": Training("t5", ("objective.z_loss=1e-4",), "unigram"),
    "t5-v1_1-small": Training("t5-v1_1-small"),
    "t5-pairs": Training("t5", data="pairs"),
    "transformer-span": Training("transformer", ("objective.name=span",)),
    "transformer-pairs": Training("transformer", data="pairs"),
    "gpt-pairs": Training("gpt", ("objective.both_sides=true",), "pairs"),
    "lstm-pairs": Training("lstm", data="pairs"),
    "t5-mixture": Training("t5", ("objective.name=mixture", mixed(SPAN, PREFIX, PAIRS))),
    "gpt-mixture": Training("gpt", ("objective.name=mixture", mixed(CAUSAL, PREFIX))),
    "bert-mixture": Training("bert", ("objective.name=mixture", mixed(MASKED, SENTENCES))),
    "gpt-gates": Training("gpt", ("extensions.gates={kind = \"gru\"}",)),
    "gpt-pointer": Training("gpt", ("extensions.pointer={window = 16}",)),
    "gpt-characters": Training("gpt", ("extensions.characters={size = 8}",)),
    "gpt-robust": Training("gpt", ("robust.drop_path=0.2", "robust.token_noise=0.1",
     "robust.neftune=1.0")),
    "bert-agree": Training("bert", ("robust.rdrop=0.5",)),
    "gpt-average": Training("gpt", ("checkpoint.every=1", "checkpoint.average=2")),
}  # fmt: skip


def shape_of(model: str) -> tuple[str, ...]:
    """A small shape of a family, or of a published size of it."""
    family = next(name for name in sorted(FAMILIES, key=len)[::-1] if model.startswith(name))
    if family == "lstm":
        return ("size=tiny", "shape.width=32")
    head = ("shape.head_size=16",) if family in HEADS else ()
    return ("size=tiny", "shape.width=32", "shape.ffn_size=64", *head)


def train_words(training: Training) -> tuple[object, ...]:
    shape = shape_of(training.model)
    return ("train", training.model, f"data/{training.data}", *shape, *STEPS, *training.settings)


def prepared(bench: Bench, name: str, *words: object) -> Future[Any]:
    """A data directory, made in a lane."""

    def work() -> Table:
        return failure(bench.call(*words)) or of_data(bench.place / "data" / name)

    return bench.later(f"prepare {name}", work)


def training(bench: Bench) -> Iterator[tuple[str, Future[Any]]]:
    write_text(bench.place / "text.txt", 300, seed=1)
    write_pairs(bench.place / "pairs.tsv", 200, seed=2)
    data = {"text": prepared(bench, "text", *prepare_words("text.txt", "data/text"))}
    for kind, entries in KINDS.items():
        many = ("--vocab-size", entries) if entries else ()
        words = ("prepare", "text.txt", "--out", f"data/{kind}", "--tokenizer", kind, *many)
        data[kind] = prepared(bench, kind, *words)
    data["text"].result()
    words = ("prepare", "pairs.tsv", "--pairs", "--out", "data/pairs", "--tokenizer", "data/text")
    data["pairs"] = prepared(bench, "pairs", *words)
    chunks = ("--chunk", "overlapping", "--chunk-length", 24, "--overlap", 8, "--split-by", "line")
    data["chunks"] = prepared(bench, "chunks", *prepare_words("text.txt", "data/chunks", *chunks))
    for name, future in data.items():
        yield f"prepared/{name}", future
        future.result()
    for name, options in TRAININGS.items():
        yield f"runs/{name}", trained(bench, f"runs/{name}", options)
    yield (
        "ngram",
        bench.later(
            "ngram", lambda: bench.shown("evaluate", "data/text", "--baseline", leave=TIMED)
        ),
    )
    for name in ("gpt", "transformer-xl", "lstm", "xlnet-causal", "t5-prefix", "transformer"):
        yield f"generated/{name}", bench.later(f"generate {name}", generating(bench, name))
    for name in ("bert", "longformer", "xlnet", "t5"):
        yield f"filled/{name}", bench.later(f"fill {name}", filling(bench, name))
    for name in ("gpt", "bert", "lstm", "t5"):
        yield f"tested/{name}", bench.later(f"test {name}", testing(bench, f"runs/{name}"))
    alone = bench.later("resume gpt", lambda: resumed(bench, "runs/gpt-separate"))
    yield "resumed/gpt-separate", alone


TIMED = ("seconds", "out", "tokens_per_second", "speed")


def trained(bench: Bench, out: str, options: Training) -> Future[Any]:
    return bench.later(out, lambda: bench.run(out, *train_words(options)))


def resumed(bench: Bench, run: str) -> Table:
    """A run that goes on for two more steps."""
    result = bench.call("train", "--resume", run, "--steps", 6, "--quiet")
    return failure(result) or of_run(bench.place / run)


def generating(bench: Bench, name: str) -> Callable[[], Any]:
    """The likeliest text, a drawn one, and the best of several."""
    prompt = ("generate", f"runs/{name}", " ".join(WORDS[20:24]), "--max-new-tokens", 8)
    ways = {"likeliest": (), "drawn": ("--top-p", 0.9, "--seed", 3), "beams": ("--num-beams", 3)}
    return lambda: {way: bench.shown(*prompt, *more) for way, more in ways.items()}


def filling(bench: Bench, name: str) -> Callable[[], Any]:
    text = f"{WORDS[20]} ___ {WORDS[22]} {WORDS[23]} ___ {WORDS[25]}"
    return lambda: bench.shown("fill", f"runs/{name}", text, "--candidates", 3)


def testing(bench: Bench, run: str) -> Callable[[], Any]:
    words = ("evaluate", run, "data/text", "--quiet", "--resamples", 50)
    return lambda: bench.shown(*words, leave=TIMED)


# -- part: finetuning

TUNING = ("budget.steps=3", "batch.size=4", "batch.seq_len=64", "validation.every=2", *EXACT)
READERS = ("bert", "gpt", "xlnet", "longformer", "t5")
WRITING = ("translate", "summarize", "converse")
LEARNERS: dict[str, tuple[str, ...]] = {
    "classify": READERS,
    "entail": READERS,
    "similar": READERS,
    "tag": READERS[:-1],
    "answer": READERS,
    "choose": READERS,
    "translate": ("t5", "gpt", "transformer"),
    "summarize": ("t5", "gpt", "transformer"),
    "converse": ("t5", "gpt", "transformer-xl"),
}
VARIANTS: dict[str, tuple[str, str, tuple[str, ...]]] = {  # task, model, what is different
    "tag-bert-crf": ("tag", "bert", ("objective.crf=true",)),
    "classify-bert-balanced": ("classify", "bert", ("objective.weights=balanced",)),
    "classify-bert-adversary": ("classify", "bert", ("robust.adversary=fgm",)),
    "classify-bert-frozen": (
        "classify",
        "bert",
        ("optimizer.freeze_layers=1", "optimizer.layer_decay=0.9"),
    ),
    "classify-bert-varied": ("classify", "bert", ('augment.methods=["swap", "delete"]',)),
    "classify-gpt-recipe": ("classify", "gpt", ("--config", "gpt1-classify")),
    "tag-bert-recipe": ("tag", "bert", ("--config", "bert-ner")),
}
PREFERRING: dict[str, tuple[str, ...]] = {
    "dpo": (),
    "ipo": ("--method", "ipo"),
    "reward": ("--method", "reward"),
    "grpo": ("--method", "grpo", "--reward", f"contains:{GOOD[0]}", "--group-size", "3",
             "--max-new-tokens", "4"),
}  # fmt: skip


def finetuning(bench: Bench) -> Iterator[tuple[str, Future[Any]]]:
    (bench.place / "files").mkdir()
    for task in (*LEARNERS, "prefer"):
        write_examples(bench.place / "files" / f"{task}.jsonl", task, 40, seed=3)
        write_examples(bench.place / "files" / f"{task}-test.jsonl", task, 16, seed=4)
    write_text(bench.place / "tuned.txt", 200, seed=5)
    yield "data", prepared(bench, "tuned", *prepare_words("tuned.txt", "data/tuned"))
    bases = {}
    for family in (*READERS, "transformer", "transformer-xl"):
        long = ("batch.seq_len=64", "budget.steps=2")
        bases[family] = trained(bench, f"bases/{family}", Training(family, long, "tuned"))
        yield f"bases/{family}", bases[family]
    for base in bases.values():
        base.result()
    tunings = {
        f"{task}-{family}": (task, family, ())
        for task, families in LEARNERS.items()
        for family in families
    }
    for name, (task, family, more) in (tunings | VARIANTS).items():
        work = tuning(bench, name, task, family, more)
        yield f"runs/{name}", bench.later(f"finetune {name}", work)
    for name, more in PREFERRING.items():
        yield f"runs/prefer-{name}", bench.later(f"prefer {name}", preferring(bench, name, more))
    yield from workshop(bench)


def tuning(
    bench: Bench, name: str, task: str, family: str, more: tuple[str, ...]
) -> Callable[[], Table]:
    """A fine-tuning, and a test of what it has learned."""

    def work() -> Table:
        data = f"files/{task}.jsonl"
        words = ("finetune", f"bases/{family}", "--task", task, "--data", data, *TUNING, *more)
        table = bench.run(f"tuned/{name}", *words)
        if "failed" in table:
            return table
        return table | {"tested": tested(bench, f"tuned/{name}", task, family == "t5")}

    return work


def tested(bench: Bench, run: str, task: str, writes: bool) -> Table:
    few = ("--max-new-tokens", 8) if writes or task in WRITING else ()
    words = ("evaluate", run, f"files/{task}-test.jsonl", "--quiet", "--resamples", 50, *few)
    table: Table = bench.shown(*words, "--out", f"{run}-test", leave=TIMED)
    if "failed" not in table:
        answers = (bench.place / f"{run}-test" / "predictions.jsonl").read_bytes()
        table["predictions"] = digest(answers)
    return table


def preferring(bench: Bench, method: str, more: tuple[str, ...]) -> Callable[[], Table]:
    def work() -> Table:
        words = ("align", "bases/gpt", "--data", "files/prefer.jsonl", *TUNING, *more)
        table = bench.run(f"tuned/prefer-{method}", *words)
        if "failed" not in table and method == "reward":
            table["tested"] = tested(bench, f"tuned/prefer-{method}", "prefer", False)
        return table

    return work


def workshop(bench: Bench) -> Iterator[tuple[str, Future[Any]]]:
    """What is made of models that have learned."""
    reviewer, data = "tuned/classify-bert", "files/classify-test.jsonl"
    distilled: dict[str, tuple[object, ...]] = {
        "task": (reviewer, "--data", "files/classify.jsonl", *TUNING),
        "text": ("bases/bert", "--data", "data/tuned", *STEPS),
        "hinton": ("bases/gpt", "--data", "data/tuned", "--method", "hinton", *STEPS),
    }
    for name, words in distilled.items():
        work = running(bench, f"made/distill-{name}", "distill", *words, "--student", "layers=1")
        yield f"distill/{name}", bench.later(f"distill {name}", work)
    for kind in ("int8", "int8-dynamic", "bf16"):
        words = ("quantize", "bases/gpt", "--scheme", kind)
        work = changing(bench, f"made/{kind}", *words)
        yield f"quantize/{kind}", bench.later(f"quantize {kind}", work)
    pruned = {"heads": ("--heads", 0.5, "--data", data), "hidden": ("--ffn-units", 0.25),
              "weights": ("--weights", 0.5)}  # fmt: skip
    for name, more in pruned.items():
        work = changing(bench, f"made/prune-{name}", "prune", reviewer, *more)
        yield f"prune/{name}", bench.later(f"prune {name}", work)
    yield "augment", bench.later("augment", lambda: augmented(bench))


def running(bench: Bench, out: str, *words: object) -> Callable[[], Table]:
    return lambda: bench.run(out, *words)


def changing(bench: Bench, out: str, *words: object) -> Callable[[], Table]:
    """A model made of another: what was said of it, and its directory."""

    def work() -> Table:
        report = bench.shown(*words, "--repeats", 1, "--quiet", "--out", out, leave=TIMED)
        return report if "failed" in report else {"report": report, **of_run(bench.place / out)}

    return work


def augmented(bench: Bench) -> Table:
    words = ("augment", "files/classify.jsonl", "--task", "classify", "--methods", "swap,delete")
    result = bench.call(*words, "--out", "files/more.jsonl")
    return failure(result) or {"sha256": digest((bench.place / "files/more.jsonl").read_bytes())}


# -- part: comparison

COMPARED = "gpt,bert,lstm,xlnet,t5,transformer-xl"
UNSURE = ("seconds", "tokens_per_second", "seconds_measuring", "peak_memory", "costs", "machine",
          "speed", "memory", "summary", "system", "repeat", "versions", "commands")  # fmt: skip


def comparison(bench: Bench) -> Iterator[tuple[str, Future[Any]]]:
    """Its own processes are new interpreters, and so it takes a lane for long: it comes first."""
    yield "", bench.later("compare", lambda: compared(bench))


def compared(bench: Bench) -> Table:
    write_text(bench.place / "compared.txt", 240, seed=6)
    changes = ("shape.width=32", "validation.samples=16", *EXACT)
    words = ("compare", "compared.txt", "--budget", "3000tok", "--models", COMPARED, "--size",
             "tiny", "--seq-len", 32, "--batch-size", 8, "--vocab-size", VOCABULARY,
             "--prompt", WORDS[20])  # fmt: skip
    result = bench.call(*words, *changes, "--out", "comparison", "--quiet")
    if result.code:
        return failure(result)
    place = bench.place / "comparison"
    cells = {file.stem: read(file) for file in sorted((place / "cells").glob("*.json"))}
    cells.pop("costs", None)
    runs = {run.name: of_run(run) for run in sorted((place / "runs").iterdir())}
    return {
        "cells": without(cells, *UNSURE),
        "runs": runs,
        "data": of_data(place / "data"),
        "plan": read(place / "compare.json"),
        "tables": without(read(place / "report.json").get("tables"), *UNSURE),
    }


# -- part: commands


def commands(bench: Bench) -> Iterator[tuple[str, Future[Any]]]:
    """What the command line says of itself, and the recipes that come along."""
    yield "help", bench.later("help", lambda: helped(bench))
    yield "recipes", bench.later("recipes", lambda: listed_recipes(bench))


def helped(bench: Bench) -> Table:
    results = {" ".join(name.split()): bench.call(*name.split(), "--help") for name in COMMANDS}
    table: Table = {
        name: failure(result) or result.out.splitlines() for name, result in results.items()
    }
    return table | {"": bench.call("--help").out.splitlines()}


def listed_recipes(bench: Bench) -> Table:
    names = [row["name"] for row in bench.shown("recipes")["recipes"]]
    return {name: tomllib.loads(bench.call("recipes", name).out) for name in names}


# -- snapshots

Part = Callable[[Bench], Iterator[tuple[str, Future[Any]]]]
PARTS: dict[str, Part] = {
    "comparison": comparison,
    "models": models,
    "commands": commands,
    "training": training,
    "finetuning": finetuning,
}


def snapshot(parts: list[str], fresh: bool) -> Table:
    """Everything asked for, as one table."""
    table: Table = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="freeze-") as scratch:
        bench = Bench(Path(scratch).resolve(), fresh)
        with bench.lanes:
            futures = [
                (f"{name}/{key}".rstrip("/"), future)
                for name in PARTS
                if name in parts
                for key, future in PARTS[name](bench)
            ]
        for path, future in futures:
            put(table, path, future.result())
        table["machine"]["native"] = native(bench.place)
    return table


def machine() -> Table:
    """What digests depend on besides the package."""
    import torch

    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def native(place: Path) -> list[bool]:
    """Were the compiled passes there? Runs round and drop otherwise without them."""
    files = place.glob("*/*/recipe.toml")
    tables = (tomllib.loads(file.read_text(encoding="utf-8")) for file in files)
    return sorted({recipe["engine"]["native"] for recipe in tables})


def put(table: Table, path: str, value: Any) -> None:
    *names, last = path.split("/")
    for name in names:
        table = table.setdefault(name, {})
    table[last] = value


# -- comparing


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value under its key; parts of a key are joined by slashes."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}")
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{number}")
    else:
        yield path, value


def renamed(path: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        path = f"{path}/".replace(f"/{old.strip('/')}/", f"/{new.strip('/')}/").removesuffix("/")
    return path


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


def brief(value: Any, most: int = 160) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}…"


def differences(old: Table, new: Table, names: dict[str, str]) -> Iterator[str]:
    before = {renamed(path, names): value for path, value in leaves(old)}
    after = dict(leaves(new))
    for path, value in before.items():
        if path not in after:
            yield f"gone     {path[1:]}: {brief(value)}"
        elif not equal(value, after[path]):
            yield f"changed  {path[1:]}: {brief(value)} -> {brief(after[path])}"
    for path in after.keys() - before.keys():
        yield f"new      {path[1:]}: {brief(after[path])}"


def compare(old: Path, new: Path, names: dict[str, str]) -> int:
    """Prints what is different; gives the exit code."""
    before, after = read(old), read(new)
    there, here = before.pop("machine", {}), after.pop("machine", {})
    for line in differences({"machine": there}, {"machine": here}, {}):
        print(f"note: {line}", file=sys.stderr)
    missing = before.keys() ^ after.keys()
    for name in sorted(missing):
        print(f"note: only one of them has the part {name}; it is left out", file=sys.stderr)
        before.pop(name, None)
        after.pop(name, None)
    lines = sorted(differences(before, after, names))
    for line in lines:
        print(line)
    count = sum(1 for _ in leaves(before))
    print(f"{len(lines):,} differences in {count:,} values", file=sys.stderr)
    return 1 if lines or not before else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the snapshot goes")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of %(default)s")
    parser.add_argument("--fresh", action="store_true", help="a new interpreter for each command")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--renamed", type=Path, metavar="FILE", help="old keys to new ones")
    options = parser.parse_args()
    if options.compare:
        old, new = options.compare
        return compare(old, new, read(options.renamed) if options.renamed else {})
    if not options.out:
        parser.error("give --out FILE, or --compare OLD NEW")
    parts = [name.strip() for name in options.parts.split(",")]
    if unknown := set(parts) - PARTS.keys():
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    os.environ.update(ALONE)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([before] if before else [])])
    print(f"regard is {regard.__file__}", file=sys.stderr)
    began = time.monotonic()
    table = snapshot(parts, options.fresh)
    options.out.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    failed = sum(path.endswith("/failed") for path, _ in leaves(table))
    print(
        f"{sum(1 for _ in leaves(table)):,} values after {time.monotonic() - began:.0f} s; "
        f"{failed} commands failed",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
