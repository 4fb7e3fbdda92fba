"""The cells of scripts/learning.py: which trainings it compares, stage by stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

MINUTE = 5e12  # operations
NGRAM, ORDER = "ngram", 5
DOCS, NEWS, SPEECHES = "docs", "zh", "sotu"
SOURCES = {
    DOCS: ["builtin:python-docs"],
    SPEECHES: ["text/sotu.txt.gz"],
    NEWS: ["text/zh.txt.gz", "--split-by", "line"],
}
USUAL = ("batch.seq_len=256", "batch.size=4")  # what a row names in its change replaces these


@dataclass(frozen=True)
class Cell:
    change: str  # what is different; "": nothing, the usual recipe
    family: str
    settings: tuple[str, ...] = ()
    size: str = "tiny"
    vocab: int = 8192
    text: str = DOCS
    minutes: float = 1.0
    seed: int = 1

    def identity(self) -> dict[str, Any]:
        """Returns what decides its figures: the same training has the same key, whatever stage asks
        for it, and however it is called there."""
        fields = asdict(self)
        del fields["change"]
        return fields | {"settings": sorted(dict(s.split("=", 1) for s in self.all()).items())}

    def all(self) -> tuple[str, ...]:
        return (*USUAL, *self.settings)

    @property
    def key(self) -> str:
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode())
        return digest.hexdigest()[:12]


# -- the stages

Changes = dict[str, dict[str, Any]]


def sets(*settings: str, **fields: Any) -> dict[str, Any]:
    return {"settings": settings, **fields}


COMMON: Changes = {
    "": {},
    "vocabulary 2048": {"vocab": 2048},
    "vocabulary 4096": {"vocab": 4096},
    "rate 0.0025": sets("optimizer.lr=0.0025"),
    "rate 0.01": sets("optimizer.lr=0.01"),
    "512 tokens a step": sets("batch.size=2"),
    "2,048 tokens a step": sets("batch.size=8"),
    "samples of 128 tokens": sets("batch.seq_len=128", "batch.size=8"),
    "samples of 64 tokens": sets("batch.seq_len=64", "batch.size=16"),
}
SHORT, STEP, WORDS = 64, 1024, 4096  # tokens of a sample, and of a step; entries
SHAPES = {
    "2 layers of 128": (2, 128, 2),
    "3 layers of 192": (3, 192, 3),
    "4 layers of 256": (4, 256, 4),
}


def short(tokens: int = SHORT, step: int = STEP, *more: str) -> tuple[str, ...]:
    return (f"batch.seq_len={tokens}", f"batch.size={step // tokens}", *more)


def shaped(layers: int, width: int, heads: int) -> tuple[str, ...]:
    return (f"shape.layers={layers}", f"shape.width={width}", f"shape.heads={heads}",
            f"shape.ffn_size={4 * width}")  # fmt: skip


def counted() -> Iterator[Cell]:
    """What counting gives: the 5-gram of the whole training text, for every vocabulary."""
    for text, sizes in ((DOCS, (8192, 4096, 2048)), (SPEECHES, (WORDS,)), (NEWS, (WORDS,))):
        for vocab in sizes:
            yield Cell(f"vocabulary {vocab}", NGRAM, vocab=vocab, text=text)


def probe() -> Iterator[Cell]:
    """One change at a time, one seed, one text, one minute."""
    for change, fields in COMMON.items():
        yield Cell(change, "gpt", **fields)


def order() -> Iterator[Cell]:
    """Samples in a new order in every pass, or as one stream of text that is cut the same way in
    every pass."""
    in_order = ("batch.order=streams", "objective.shift=false")
    for name, more in (("in a new order", ()), ("in the order of the text", in_order)):
        yield Cell(name, "gpt", short(SHORT, STEP, *more), vocab=WORDS)


def shorter() -> Iterator[Cell]:
    """Short samples and a vocabulary of 4,096 had won; one change at a time beside them."""
    for family in ("gpt", "bert", "transformer-xl", "t5"):
        for change, settings in second(family).items():
            yield Cell(change, family, settings, vocab=WORDS)
        if family == "gpt":
            yield Cell("vocabulary 2048", family, short(), vocab=2048)


def second(family: str) -> dict[str, tuple[str, ...]]:
    changes = {
        "samples of 64 tokens": short(),
        "samples of 32 tokens": short(32),
        "samples of 128 tokens": short(128),
        "rate 0.01": short(SHORT, STEP, "optimizer.lr=0.01"),
        "512 tokens a step": short(SHORT, 512),
    }
    if family == "gpt":
        changes |= {
            "2,048 tokens a step": short(SHORT, 2048),
            "falls from the start": short(SHORT, STEP, "schedule.decay_fraction=0.95"),
            "weight decay 0": short(SHORT, STEP, "optimizer.weight_decay=0"),
            "weight decay 0.3": short(SHORT, STEP, "optimizer.weight_decay=0.3"),
        }
    return changes


def hidden() -> Iterator[Cell]:
    """How much is hidden from a BERT, and how XLNet reads, with samples of 32 tokens."""
    yield Cell("30% hidden", "bert", short(32), vocab=WORDS)
    for share in (0.15, 0.2, 0.4):
        settings = short(32, STEP, f"objective.share={share}")
        yield Cell(f"{share:.0%} hidden", "bert", settings, vocab=WORDS)
    one_way = ("objective.two_directions=false",)
    for name, more in (
        ("both directions, pairs", ()), ("one direction, pairs", one_way),
        ("one direction, running text", (*one_way, "objective.pairs=false")),
    ):  # fmt: skip
        yield Cell(name, "xlnet", short(32, STEP, *more), vocab=WORDS)


def sizes() -> Iterator[Cell]:
    """How large a GPT is best; the law of `--size auto` is fitted to these."""
    for minutes in (1.0, 3.0):
        for name, shape in SHAPES.items():
            more = () if shape == (2, 128, 2) else shaped(*shape)  # that is size tiny
            yield Cell(name, "gpt", short(SHORT, STEP, *more), vocab=WORDS, minutes=minutes)


def longer() -> Iterator[Cell]:
    """Three minutes: how long samples are then."""
    for family, tokens in (("gpt", 64), ("bert", 64), ("bert", 32), ("gpt", 128), ("bert", 128)):
        yield Cell(f"samples of {tokens} tokens", family, short(tokens), vocab=WORDS, minutes=3.0)


def families() -> Iterator[Cell]:
    """Every family in one minute, with the short samples that had won."""
    for tokens in (64, 32):
        for family in ("transformer-xl", "llama", "t5", "lstm", "transformer", "longformer",
                       "roberta"):  # fmt: skip
            yield Cell(f"samples of {tokens} tokens", family, short(tokens), vocab=WORDS)


def texts() -> Iterator[Cell]:
    """Other texts, three minutes, three seeds."""
    for seed in (1, 2, 3):
        for text in (SPEECHES, NEWS, DOCS):
            for family, tokens in (("gpt", 64), ("bert", 32)):
                yield Cell(f"samples of {tokens} tokens", family, short(tokens), vocab=WORDS,
                           text=text, minutes=3.0, seed=seed)  # fmt: skip


STAGES = {"counted": counted, "order": order, "sizes": sizes, "hidden": hidden, "probe": probe,
          "shorter": shorter, "longer": longer, "families": families, "texts": texts}  # fmt: skip
