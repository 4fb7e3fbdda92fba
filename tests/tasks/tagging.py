"""Tiny models that tag, and sentences whose words decide their tags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.core.seeding import keyed
from regard.data.examples import TaggedExample
from regard.data.special_tokens import completed, special_of
from regard.data.tags import labels, write
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_classes import bert_pieces
from regard.tasks.corpus import TaskCorpus
from regard.tasks.tag_objective import Tag, TagOptions
from tests.tasks.tuning import STILL, tiny

NAMES = ["anna", "bert", "carl"]
PLACES = ["rome", "oslo"]
OTHERS = "the a of is in and likes new york ##er ##s x ##y ##z".split()
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, *PLACES, *OTHERS]
PAD, UNK, CLS, SEP = range(4)
KINDS = labels(["LOC", "PER"])  # O B-LOC I-LOC B-PER I-PER
FAMILIES = ["bert", "longformer", "xlnet", "gpt"]
SIZE: dict[str, Any] = {"vocab_size": len(PIECES), "width": 16, "layers": 2, "heads": 2}


def pieces() -> Tokenizer:
    tokenizer = Tokenizer(bert_pieces(PIECES))
    return completed(tokenizer, special_of(tokenizer, "pieces"))


def model(family: str, classes: int = len(KINDS), **changes: Any) -> Any:
    """Without dropout; large weights, for small ones hide mistakes."""
    torch.manual_seed(0)
    options = SIZE | STILL | {"context": 64, "window": 8, "head_size": 8}
    options |= {} if family == "gpt" else {"ffn_size": 32}
    tagger = tiny(family, {"tag": classes}, **options | changes).initialize()
    with torch.no_grad():
        for name, parameter in tagger.named_parameters():
            if "norm" not in name:
                parameter.mul_(3.0)
    return tagger


def tagged(words: str, tags: str | None = None) -> TaggedExample:
    return TaggedExample(tuple(words.split()), None if tags is None else tuple(tags.split()))


def objective(
    examples: list[TaggedExample],
    tokenizer: Tokenizer,
    family: str = "bert",
    *,
    known: list[str] = KINDS,
    length: int = 32,
    batch: int = 4,
    learning: bool = True,
    **options: Any,
) -> Tag:
    corpus: Any = TaskCorpus("tag", examples, tokenizer, known, "train" if learning else "valid")
    settings = TagOptions(family, **options)
    return Tag(corpus, settings, seq_len=length, batch_size=batch, seed=0, learning=learning)


def whole(objective: Tag) -> Any:
    return objective.collate([objective.sample(0, i) for i in range(len(objective))])


def sentences(count: int, seed: int = 0) -> list[TaggedExample]:
    """Names are persons, one in a row; places are places, and so are the two words of new york."""
    examples = []
    for index in range(count):
        dice = keyed(seed, "sentence", index)
        words: list[str] = []
        tags = []
        for part in dice.permutation(["PER", "LOC", "", "LOC", ""])[: dice.integers(2, 6)].tolist():
            source = {"PER": NAMES, "LOC": [*PLACES, "new york"], "": OTHERS[:7]}[part]
            new = str(dice.choice(source)).split()
            if part:
                tags.append((part, len(words), len(words) + len(new)))
            words += new
        examples.append(TaggedExample(tuple(words), tuple(write(tags, len(words)))))
    return examples


def conll(path: Path, examples: list[TaggedExample]) -> Path:
    blocks = [
        "\n".join(f"{word}\t{tag}" for word, tag in zip(e.words, e.tags or (), strict=True))
        for e in examples
    ]
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path
