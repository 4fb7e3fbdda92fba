"""A tiny model that has read before, and reviews whose words decide their class."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Fast
from tokenizers import models, pre_tokenizers, processors

from regard.core.seeding import keyed
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import save
from regard.models import FAMILIES
from regard.models.bert import Bert, BertConfig
from regard.training.loop import Loop
from regard.training.recipe import Recipe, make

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GOOD, BAD = ["fine", "great", "warm", "moving"], ["dull", "poor", "cold", "empty"]
OTHERS = ["the", "film", "was", "very", "and", "plot", "music", "actor", "a", "of"]
SENTINELS = [f"<extra_id_{i}>" for i in range(16)]
LABELS = ["good", "bad", "classify", "text:"]  # what T5 reads and writes
WORDS = [*MARKS, *GOOD, *BAD, *OTHERS, *SENTINELS, *LABELS]
ROLES = dict(zip(["pad", "unk", "cls", "sep", "mask"], MARKS, strict=True))


def tokenizer() -> Tokenizer:
    return of_words(WORDS, ROLES, SENTINELS)


def of_words(words: Sequence[str], roles: dict[str, str], more: Sequence[str] = ()) -> Tokenizer:
    """Words at blanks, and special tokens: those that play a role, and more."""
    fast = Fast(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=roles["unk"]))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast.add_special_tokens([*roles.values(), *more])
    return declared(fast, roles)


def declared(fast: Fast, roles: dict[str, str], **more: Any) -> Tokenizer:
    """With the files that say which token plays which role."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"} | more
    config |= {f"{role}_token": word for role, word in roles.items()}
    files = {"tokenizer.json": fast.to_str(), "tokenizer_config.json": json.dumps(config)}
    return Tokenizer(fast, {name: text.encode() for name, text in files.items()})


STILL = dict.fromkeys(("dropout", "dropout_attention", "dropout_head", "dropout_embedding"), 0.0)


def tiny(family: str, heads_of: dict[str, int], /, **options: Any) -> Any:
    """A model of a family; options that its configuration does not have are left out."""
    card = FAMILIES[family]
    known = {field.name for field in fields(card.config)}
    return card.model(card.config(**{k: v for k, v in options.items() if k in known}), heads_of)


def marking() -> Tokenizer:
    """The tokenizer whose own file puts [CLS] and [SEP] around texts, as others read it."""
    plain = tokenizer()
    ends = (("[SEP]", WORDS.index("[SEP]")), ("[CLS]", WORDS.index("[CLS]")))
    plain.ready.post_processor = processors.BertProcessing(*ends)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return declared(plain.ready, ROLES, model_input_names=names)


def bert(
    directory: Path, *, layers: int = 2, words: Tokenizer | None = None, **changes: Any
) -> Path:
    """A model directory with the heads of pre-training."""
    torch.manual_seed(1)
    shape: dict[str, Any] = {"width": 32, "heads": 2, "ffn_size": 64, "context": 32}
    config = BertConfig(vocab_size=len(WORDS), layers=layers, **(shape | changes))
    return save(Bert(config).initialize(), directory, words or tokenizer())


def model(directory: Path, family: str) -> Path:
    """A model directory of another family."""
    torch.manual_seed(1)
    shape: dict[str, Any] = {"vocab_size": len(WORDS), "width": 16, "layers": 1, "heads": 2,
                             "ffn_size": 32}  # fmt: skip
    changes: dict[str, dict[str, Any]] = {
        "gpt": {"context": 32},
        "xlnet": {"head_size": 8, "mem_len": 0},
        "longformer": {"context": 32, "window": 8},
        "t5": {"head_size": 8, "eos_id": 3, "pad_id": 0, "start_id": 0},
    }
    kind, config = FAMILIES[family].model, FAMILIES[family].config
    built: Any = kind(config(**(shape | changes[family])))
    return save(built.initialize(), directory, tokenizer())


def reviews(count: int, seed: int = 0, share: float = 0.5) -> list[dict[str, str]]:
    """Texts of 3 to 9 words, no two alike, one or two of them telling."""
    labels: dict[str, str] = {}
    index = 0
    while len(labels) < count:
        dice = keyed(seed, "review", index)
        index += 1
        good = bool(dice.random() < share)
        words = list(dice.choice(OTHERS, int(dice.integers(3, 8))))
        for _ in range(int(dice.integers(1, 3))):
            words.insert(
                int(dice.integers(len(words) + 1)), str(dice.choice(GOOD if good else BAD))
            )
        labels.setdefault(" ".join(words), "good" if good else "bad")
    return [{"text": text, "label": label} for text, label in labels.items()]


def write(file: Path, records: Sequence[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def recipe(model: Path, data: Path, **changes: Any) -> Recipe:
    """A few fast steps of a classification in full precision."""
    base: dict[str, Any] = {
        "model": str(model),
        "data": str(data),
        "examples": {"task": "classify"},
        "batch": {"size": 8, "seq_len": 16},
        "budget": {"steps": 12},
        "optimizer": {"lr": 0.003},
        "engine": {"precision": "fp32", "compile": "no"},
    }
    return make(base, changes)


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Steps, counted over all runs of the test, in whose middle a SIGTERM comes."""
    plain, steps = Loop.step, [0]
    due: list[int] = []

    def step(self: Loop, *rest: Any) -> Any:
        steps[0] += 1
        if steps[0] in due:
            due.remove(steps[0])
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self, *rest)

    monkeypatch.setattr(Loop, "step", step)
    yield due
