"""Tiny models of every family that can judge a text, and a tokenizer with all that they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.core.seeding import keyed, seed_torch
from regard.data.examples import Example, LabeledExample
from regard.data.tokenizer import Tokenizer
from regard.objectives.base import Batch, Loss
from regard.tasks.corpus import TaskCorpus
from regard.tasks.labeled import LabeledObjective
from regard.training.train_module import moved
from tests.tasks.tuning import STILL, of_words, tiny
from tests.tasks.tuning import write as write

FAMILIES = ("bert", "xlnet", "longformer", "gpt")
MARKS = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "cls": "<cls>", "sep": "<sep>",
         "eos": "</s>"}  # fmt: skip
WORDS = "a b c d e f g h i j k l What was the cause of this? happened as result?".split()
VOCABULARY = [*MARKS.values(), *WORDS]
PAD, UNK, START, CLS, SEP, END = range(6)
ID = {word: i for i, word in enumerate(VOCABULARY)}
SIZE: dict[str, Any] = {"vocab_size": len(VOCABULARY), "width": 32, "layers": 2, "heads": 2,
                        "ffn_size": 64}  # fmt: skip


def tokenizer(marks: Sequence[str] = tuple(MARKS)) -> Tokenizer:
    """Words at blanks; only these `marks` are declared, and only they are there."""
    roles = {name: MARKS[name] for name in marks}
    return of_words([*roles.values(), *WORDS], roles)


TOKENIZER = tokenizer()


def ids(text: str) -> list[int]:
    return [ID[word] for word in text.split()]


def examples(
    task: str, rows: Sequence[Example], labels: Sequence[str] = (), split: str = "train"
) -> TaskCorpus:
    return TaskCorpus(task, rows, TOKENIZER, list(labels), split)


def build(kind: Any, family: str, corpus: TaskCorpus, length: int = 24, **options: Any) -> Any:
    """An objective; a seed of its own may be among the options."""
    seed = options.pop("seed", 1)
    learning = options.pop("learning", corpus.split == "train")
    settings = kind.Options(family=family, **options)
    return kind(corpus, settings, seq_len=length, batch_size=8, seed=seed, learning=learning)


def model_of(
    family: str, heads: dict[str, int], dtype: torch.dtype = torch.float32, **changes: Any
) -> Any:
    """Without dropout, and with weights large enough that no error can hide."""
    torch.manual_seed(3)
    fixed = STILL | {"context": 64, "head_size": 16, "window": 8, "pad_id": PAD}
    model = tiny(family, heads, **(fixed | SIZE | changes))
    model.initialize()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.mul_(4.0)
    return model.to(dtype).eval()


def batch_of(objective: LabeledObjective, places: Sequence[int] | None = None) -> Batch:
    """In double precision, as the models that it is compared with."""
    chosen = range(len(objective)) if places is None else places
    batch = objective.collate([objective.sample(0, i) for i in chosen])
    return moved(batch, torch.device("cpu"), torch.float64)


def learn(objective: Any, model: Any, steps: int = 60, rate: float = 0.003) -> None:
    """As the training loop does: sums over counts, each with its weight."""
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    model.train()
    for step in range(steps):
        seed_torch(1, "dropout", step)
        places = range(step * objective.batch_size, (step + 1) * objective.batch_size)
        batch = objective.collate([objective.get(place) for place in places])
        loss: Loss = objective.loss(model, batch)
        total: Tensor = sum(
            value * objective.weights.get(name, 1.0) / max(loss.counts[name], 1)
            for name, value in loss.sums.items()
        )  # type: ignore[assignment]
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()


@torch.no_grad()
def said(objective: Any, model: Any) -> list[Any]:
    """The answers of a model to the examples of an objective."""
    whole = objective.collate([objective.sample(0, i) for i in range(len(objective))])
    return list(objective.merge(objective.predict(model, whole)))


def some_words(count: int, *key: int | str, among: str = "c d e f g h i j k l") -> str:
    return " ".join(keyed(*key).choice(among.split(), count))


def deciding(count: int, seed: int) -> list[LabeledExample]:
    """One word of a text, "a" or "b", decides."""
    texts = []
    for i in range(count):
        words = some_words(2 + i % 5, "text", seed, i).split()
        words.insert(i % len(words), "ab"[i % 2])
        texts.append(LabeledExample(" ".join(words), label=["first", "second"][i % 2]))
    return texts
