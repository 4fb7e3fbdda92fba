"""The text of a task, and how a model goes on reading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Fast
from tokenizers import models, pre_tokenizers

from regard.core.errors import InputError
from regard.data.examples import (
    DialogueExample,
    LabeledExample,
    MultipleChoice,
    Question,
    TaggedExample,
    TextPair,
)
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import save
from regard.methods.finetune.adaptation import adapt, adaptation_recipe, write_text
from regard.methods.finetune.multi_stage import FinetuneOptions
from regard.models import FAMILIES
from regard.models.gpt import GPT, GPTConfig
from regard.training.schedule import schedule
from tests.refusals import refuses
from tests.tasks import tuning

STAGES = FinetuneOptions(adapt="4 steps")


@pytest.mark.parametrize(
    ("example", "texts"),
    [
        (LabeledExample("a b", "c"), ["a b", "c"]),
        (LabeledExample("a b"), ["a b"]),
        (TaggedExample(("a", "b")), ["a b"]),
        (Question("who?", "a man"), ["who?", "a man"]),
        (MultipleChoice("a", ("right", "wrong"), asks="why?"), ["a", "why?"]),
        (MultipleChoice("", ("right", "wrong"), asks="why?"), ["why?"]),
        (TextPair("a", "b"), ["a"]),
        (DialogueExample(("hi", "ho")), ["hi\nho"]),
    ],
)
def test_what_is_read_of_an_example(example: Any, texts: list[str]) -> None:
    """Neither a target nor choices, most of which are wrong."""
    assert example.texts() == texts


def squad(passages: int) -> dict[str, Any]:
    """Five questions about each passage."""
    paragraphs = []
    for number in range(passages):
        text = " ".join(tuning.OTHERS[(number + i) % 10] for i in range(10)) + f" {number}"
        questions = [
            {"id": f"{number}-{i}", "question": f"what was the {i}", "is_impossible": False,
             "answers": [{"text": text.split()[0], "answer_start": 0}]}
            for i in range(5)
        ]  # fmt: skip
        paragraphs.append({"context": text, "qas": questions})
    return {"version": "2.0", "data": [{"title": "", "paragraphs": paragraphs}]}


def test_a_passage_is_read_once(tmp_path: Path) -> None:
    data = tmp_path / "squad.json"
    data.write_text(json.dumps(squad(20)), encoding="utf-8")
    recipe = tuning.recipe(tuning.bert(tmp_path / "bert"), data, examples={"task": "answer"})
    write_text(recipe, tmp_path, STAGES)
    lines = (tmp_path / "text.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert len(texts) == len({*texts}) == 18  # of two passages, and of what is asked of them, none


@pytest.mark.parametrize(
    ("family", "name", "rate"),
    [("transformer", "linear", 1e-4), ("t5", "constant", 1e-3), ("gpt", "linear", 6.25e-5)],
)
def test_rate_and_schedule_belong_together(
    family: str, name: str, rate: float, tmp_path: Path
) -> None:
    """The Transformer's own schedule would take the rate of fine-tuning for a factor."""
    if family == "transformer":
        model = transformer(tmp_path / family)
    else:
        model = tuning.model(tmp_path / family, family)
    data = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(40))
    recipe = tuning.recipe(model, data)
    write_text(recipe, tmp_path, STAGES)
    adapted = adaptation_recipe(recipe, tmp_path, STAGES)
    planned = adapted.schedule
    assert (planned.name, adapted.optimizer.lr) == (name, rate)
    rates = schedule(planned.name, lr=rate, warmup=planned.warmup, steps=100, width=16)
    assert max(map(rates, range(1, 101))) == pytest.approx(rate)


def transformer(directory: Path) -> Path:
    torch.manual_seed(1)
    model, config = FAMILIES["transformer"].model, FAMILIES["transformer"].config
    shape: dict[str, Any] = {"vocab_size": len(tuning.WORDS), "width": 16, "layers": 1, "heads": 2,
                             "ffn_size": 32, "eos_id": 3}  # fmt: skip
    built: Any = model(config(**shape))
    return save(built.initialize(), directory, tuning.tokenizer())


def test_a_transformer_learns_what_it_reads(tmp_path: Path) -> None:
    model = transformer(tmp_path / "model")
    data = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(40))
    recipe = tuning.recipe(model, data)
    facts = adapt(recipe, tmp_path, FinetuneOptions(adapt="20 steps"), "silent")
    lines = (tmp_path / "adapted" / "metrics.jsonl").read_text().splitlines()
    rates = [step["lr"] for step in map(json.loads, lines) if "lr" in step]
    assert facts["outcome"] == "done" and max(rates) == pytest.approx(1e-4)


def test_a_tokenizer_that_cannot_end_a_text(tmp_path: Path) -> None:
    """As that of published GPT-1: refused before anything is written."""
    fast = Fast(models.WordLevel({"x": 0, "y": 1}, unk_token="x"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(fast, {"tokenizer.json": fast.to_str().encode()})
    config = GPTConfig(vocab_size=2, context=16, width=16, layers=1, heads=2)
    save(GPT(config).initialize(), tmp_path / "model", tokenizer)
    data = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(40))
    out = tmp_path / "run"
    with refuses(InputError, tmp_path / "model", "eos_token"):
        adapt(tuning.recipe(tmp_path / "model", data), out, STAGES, "silent")
    assert not out.exists()


def test_nothing_left_to_read(tmp_path: Path) -> None:
    data = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(40))
    recipe = tuning.recipe(tuning.bert(tmp_path / "bert"), data, examples={"valid": str(data)})
    with refuses(InputError, data, "--adapt", "--unlabeled"):
        write_text(recipe, tmp_path, STAGES)
