"""Task-adaptive pre-training (Gururangan et al. 2020, section 4): pre-training continues on the
text of a task, with the model's own objective, before the task is learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.core.errors import InputError
from regard.core.files import replacing
from regard.data.corpus import MARKER, read_marker
from regard.data.prepare import PreparePlan, prepare
from regard.data.sources import SourceOptions
from regard.data.special_tokens import special_of
from regard.data.splits import SplitShares
from regard.formats.directory import load, save
from regard.formats.registry import read_config
from regard.methods.finetune.multi_stage import FinetuneOptions, amount, read_unlabeled
from regard.methods.runs import Facts, model_facts, part, runner
from regard.models import FAMILIES
from regard.objectives import objective
from regard.tasks.as_text import divided
from regard.tasks.corpus import tokenizer_of
from regard.training.build import family
from regard.training.progress import watch
from regard.training.recipe import Recipe, make, replaced
from regard.training.resolve import LENGTH, STEP

TEXT, ADAPTED = "text", "adapted"
SHORTEST = 16  # tokens of a sample, at least
PIECES = 4  # samples that a short text is divided into, at least
WARMUP = 0.1  # of the steps


def adapt(recipe: Recipe, out: Path, stages: FinetuneOptions, display: str) -> Facts:
    """Writes RUN/text and RUN/adapted, the model that was pre-trained further on it; returns the
    content of that run's run.json."""
    check_tokenizer(recipe.model)
    if not (out / TEXT / MARKER).is_file():
        write_text(recipe, out, stages)
    own, model = adaptation_recipe(recipe, out, stages), Path(recipe.model)
    start = model_facts(model)
    if FAMILIES[start.family].model.fills == "masked" and "masked" not in start.heads:
        watch(display).note(
            f"{recipe.model} has no masked language modeling head; a new one starts at random"
        )
    facts = part(own, out / ADAPTED, runner(display))
    keep_heads(model, out / ADAPTED)
    return facts


def check_tokenizer(model: str) -> None:
    """Raises an error if the tokenizer has no token that ends a text: no text can be prepared with
    it."""
    special_of(tokenizer_of(model), model)


def write_text(recipe: Recipe, out: Path, stages: FinetuneOptions) -> None:
    """Writes the texts of the training examples and of the unlabeled examples, each once, and no
    text of the validation set. A passage that several questions share is written once.

    All of it is training text. No part is held out: how well the model predicts words does not
    matter here, only the task does.
    """
    splits = divided(recipe, "silent")
    examples = splits.train
    if stages.unlabeled:
        examples = [*examples, *read_unlabeled(recipe, stages)]
    texts = dict.fromkeys(text for example in examples for text in example.texts())
    for example in splits.valid:
        for text in example.texts():
            texts.pop(text, None)
    if not texts:
        raise InputError(
            f"every text of {recipe.data} also stands in the validation set, so --adapt has no "
            "text to learn from; leave it out, or give --unlabeled examples"
        )
    file = out / f"{TEXT}.jsonl"
    with replacing(file) as hidden, hidden.open("w", encoding="utf-8") as written:
        for text in texts:
            written.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    tokenizer = str(Path(recipe.model).resolve())
    reading, shares = SourceOptions(form="jsonl"), SplitShares(0.0, 0.0)
    prepare(PreparePlan((str(file),), out / TEXT, reading, tokenizer=tokenizer, shares=shares))


def adaptation_recipe(recipe: Recipe, out: Path, stages: FinetuneOptions) -> Recipe:
    """Builds the recipe of the adaptation. Learning rate and schedule are those of fine-tuning,
    because the pre-trained weights should change little, and because in Noam's schedule a rate is
    only a factor. Texts of a task are too short for BERT's sentence pairs, so BERT learns masked
    tokens only."""
    card = FAMILIES[family(recipe)]
    own = card.running_objective
    paper = card.finetuned(recipe.examples.task or "")
    tokens = read_marker(out / TEXT)["splits"]["train"]["tokens"]
    config = model_facts(Path(recipe.model)).config
    context = getattr(config, "context", None) or LENGTH
    length = max(SHORTEST, min(LENGTH, context, tokens // PIECES) // SHORTEST * SHORTEST)
    length = min(length, context)
    samples = max(2, min(STEP, tokens // 2) // length // 2 * 2)  # XLNet reads in two directions
    table: dict[str, Any] = {
        "model": recipe.model,
        "data": str(out / TEXT),
        "seed": recipe.seed,
        "objective": {"name": own} | objective(own).separate_texts(config),
        "batch": {"seq_len": length, "size": samples},
        "budget": amount(stages.adapt or ""),
        "optimizer": {"lr": paper.lr},
        "schedule": {"name": "constant", "warmup": 0.0}
        if paper.schedule == "constant"
        else {"name": "linear", "warmup": WARMUP},
    }
    return replaced(make(table), engine=recipe.engine)


def keep_heads(before: Path, after: Path) -> None:
    """Copies the heads that the model came with, such as BERT's pooler: the adaptation drops
    them."""
    heads = model_facts(before).heads
    if heads.keys() <= model_facts(after).heads.keys():
        return
    old, new = load(before).model.state_dict(), load(after, heads=heads)
    weights = {name: old[name] for name in new.model.state_dict() if name.startswith("heads.")}
    new.model.load_state_dict(weights, strict=False)
    save(new.model, after, new.tokenizer, read_config(before))
