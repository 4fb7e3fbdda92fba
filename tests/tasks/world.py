"""Tiny models that have learned each task, made when they are asked for, and data to test them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.core.seeding import keyed, seed_torch
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.longformer import Longformer, LongformerConfig
from regard.models.lstm import LSTM, LSTMConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from regard.models.xlnet import XLNet, XLNetConfig
from tests.tasks import tuning

KINDS = {"good": "praise", "bad": "blame"}
SHAPE: dict[str, Any] = {
    "vocab_size": len(tuning.WORDS), "width": 32, "layers": 1, "heads": 2, "ffn_size": 64,
    "dropout": 0.0,
}  # fmt: skip


OTHERS: dict[str, Callable[[], Any]] = {
    "gpt": lambda: GPT(GPTConfig(**SHAPE, context=32)),
    "xlnet": lambda: XLNet(XLNetConfig(**SHAPE, head_size=16)),
    "longformer": lambda: Longformer(LongformerConfig(**SHAPE, context=64, window=4)),
    "transformer-xl": lambda: TransformerXL(
        TransformerXLConfig(
            **SHAPE | {"dropout": 0.0}, cutoffs=(), ratio=1, head_size=16, mem_len=12, clamp_len=0
        )
    ),
    "llama": lambda: Llama(
        LlamaConfig(
            **{
                name: SHAPE[name] for name in ("vocab_size", "width", "layers", "heads", "ffn_size")
            },
            kv_heads=1,
            context=48,
        )
    ),
    "lstm": lambda: LSTM(LSTMConfig(vocab_size=len(tuning.WORDS), width=32, layers=1)),
}


def conll(file: Path, records: list[dict[str, str]], kinds: dict[str, str] = KINDS) -> Path:
    """Telling words are entities, of a kind by their class; two in a row are one."""
    lines = []
    for record in records:
        before = "O"
        for word in record["text"].split():
            kind = kinds["good"] if word in tuning.GOOD else kinds["bad"]
            tag = "O" if word in tuning.OTHERS else f"{'I' if before == kind else 'B'}-{kind}"
            before = kind if tag != "O" else "O"
            lines.append(f"{word}\t{tag}")
        lines.append("")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def opinions(count: int, seed: int) -> list[dict[str, str]]:
    """Reviews; in data to test with (of another seed than 0) every seventh label is wrong."""
    records = tuning.reviews(count, seed)
    for record in records[::7] if seed else ():
        record["label"] = {"good": "bad", "bad": "good"}[record["label"]]
    return records


def texts(count: int, seed: int) -> list[str]:
    return [record["text"] for record in tuning.reviews(count, seed)]


def similarities(count: int, seed: int) -> list[dict[str, Any]]:
    dice = keyed(seed, "similarities")
    pairs = zip(texts(count, seed), texts(count, seed + 1), strict=True)
    return [{"a": a, "b": b, "similarity": round(5 * float(dice.random()), 2)} for a, b in pairs]


def entailments(count: int, seed: int) -> list[dict[str, Any]]:
    others = texts(count, seed + 1)
    return [
        {"premise": record["text"], "hypothesis": other, "label": record["label"]}
        for record, other in zip(opinions(count, seed), others, strict=True)
    ]


def alternatives(count: int, seed: int) -> list[dict[str, Any]]:
    return [
        {"premise": text, "choices": ["the film was great", "the plot was dull"], "label": i % 2}
        for i, text in enumerate(texts(count, seed))
    ]


def questions(count: int, seed: int, impossible: bool = True) -> list[dict[str, Any]]:
    """The answer is one word of the passage; every third question has none."""
    records = []
    for i, text in enumerate(texts(count, seed)):
        none = impossible and i % 3 == 2
        word = text.split()[i % len(text.split())]
        start = -1 if none else f" {text} ".index(f" {word} ")
        records.append({
            "id": f"q{i}", "question": "the film", "context": text, "is_impossible": none,
            "answers": {"text": [] if none else [word], "answer_start": [] if none else [start]},
        })  # fmt: skip
    return records


def translations(count: int, seed: int) -> list[dict[str, str]]:
    return [{"source": text, "target": text[::-1]} for text in texts(count, seed)]


def topics(count: int, seed: int) -> list[dict[str, Any]]:
    """Texts of every class that one of their words tells; some have none."""
    labels = {word: kind for kind, words in (("good", tuning.GOOD), ("bad", tuning.BAD))
              for word in words} | {"music": "sound"}  # fmt: skip
    return [
        {"text": text, "labels": sorted({labels[w] for w in text.split() if w in labels})}
        for text in texts(count, seed)
    ]


def mentions(count: int, seed: int) -> list[dict[str, Any]]:
    """The film that is described as great is meant."""
    candidates = [{"name": "warm film", "description": "great moving"},
                  {"name": "cold film", "description": "dull poor"}]  # fmt: skip
    return [
        {"text": f"the film {text}", "mention": "film", "label": "warm film",
         "candidates": candidates[:: -1 if i % 2 else 1]}
        for i, text in enumerate(texts(count, seed))
    ]  # fmt: skip


def candidates(count: int, seed: int) -> list[dict[str, Any]]:
    return [
        {"query": text[::-1], "positive": text, "label": i % 2}
        for i, text in enumerate(texts(count, seed))
    ]


def talks(count: int, seed: int) -> list[dict[str, list[str]]]:
    every = texts(3 * count, seed)
    return [{"turns": every[3 * i : 3 * i + 3]} for i in range(count)]


MADE: dict[str, Callable[[int, int], list[Any]]] = {
    "classify": opinions,
    "entail": entailments,
    "tag": tuning.reviews,
    "similar": similarities,
    "choose": alternatives,
    "answer": questions,
    "translate": translations,
    "converse": talks,
    "multilabel": topics,
    "link": mentions,
    "rerank": candidates,
}
RUNS: dict[str, dict[str, Any]] = {  # what is not the same for all
    "reviewer": {"task": "classify", "examples": 160, "steps": 40, "rate": 0.01},
    "beginner": {"task": "classify", "examples": 160, "steps": 1, "seed": 2},
    "entailer": {"task": "entail", "steps": 2},
    "writer": {"task": "classify", "model": "t5", "steps": 1},
    "writing-entailer": {"task": "entail", "model": "t5", "steps": 1},
    "tagger": {"task": "tag", "examples": 120, "steps": 30},
    "judge": {"task": "similar", "steps": 6},
    "chooser": {"task": "choose", "steps": 2},
    "answerer": {"task": "answer", "steps": 3},
    "translator": {"task": "translate", "model": "t5", "steps": 2},
    "talker": {"task": "converse", "model": "gpt", "steps": 2},
    "sorter": {"task": "multilabel", "examples": 160, "steps": 60, "rate": 0.01},
    "linker": {"task": "link", "steps": 4},
    "ranker": {"task": "rerank", "steps": 4},
}


class World:
    """`world.run("tagger")` is its directory, `world.data("tag")` a file to test it on."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def model(self, name: str) -> str:
        place = self.place / name
        if not place.exists():
            seed_torch(1, name)
            if name == "bert":
                tuning.bert(place)
            elif name == "t5":
                ends = {"pad_id": 0, "start_id": 0, "eos_id": 3, "head_size": 16}
                save(T5(T5Config(**SHAPE, **ends)).initialize(), place, tuning.tokenizer())
            else:
                save(OTHERS[name]().initialize(), place, tuning.tokenizer())
        return str(place)

    def data(self, task: str, count: int = 60, seed: int = 5) -> str:
        records = MADE[task](count, seed)
        if task == "tag":
            return str(conll(self.place / f"tag-{count}-{seed}.conll", records))
        return str(tuning.write(self.place / f"{task}-{count}-{seed}.jsonl", records))

    def run(self, name: str) -> str:
        place = self.place / name
        if not place.exists():
            settings = RUNS[name]
            data = self.data(settings["task"], settings.get("examples", 40), seed=0)
            run_recipe = tuning.recipe(
                Path(self.model(settings.get("model", "bert"))),
                Path(data),
                examples={"task": settings["task"]},
                budget={"steps": settings["steps"]},
                optimizer={"lr": settings.get("rate", 0.003)},
                seed=settings.get("seed", 1),
            )
            finetune(run_recipe, place, display="silent")
        return str(place)


def rows(out: Path) -> list[dict[str, Any]]:
    """What a test wrote of each example."""
    text = (out / "predictions.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def sides(written: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The right answers, and what was predicted."""
    return [row["gold"] for row in written], [row["predicted"] for row in written]
