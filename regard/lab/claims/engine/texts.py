"""Texts that claims train on: Python's documentation, and artificial texts with known answers.

Each text is prepared once, for all claims that train on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.core.seeding import keyed
from regard.data.corpus import MARKER
from regard.lab.claims.engine.cache import mark, once

TASKS, SYMBOLS, SHOTS = 8, 12, 8  # the number of ciphers, of letters, and of letters of a line
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def home(place: Path, name: str) -> Path:
    """Returns the directory of a text. Another version of this code has another directory."""
    return place / f"{name}-{mark(__file__)}"


def python_docs(place: Path, vocab_size: int = 2000) -> Path:
    """Prepares the reference of Python, once for all claims."""
    from regard.data import prepare

    out = home(place, f"python-docs-{vocab_size}")
    plan = prepare.PreparePlan(("builtin:python-docs",), out, vocab_size=vocab_size)
    return once(out, MARKER, lambda: prepare.prepare(plan))


def many_words(place: Path, vocab_size: int = 16000) -> Path:
    """Prepares the same text with whole words as tokens, the frequent ones first: a large
    vocabulary of mostly rare words."""
    from regard.data import prepare

    out = home(place, f"python-docs-words-{vocab_size}")
    options: dict[str, Any] = {"tokenizer": "words", "vocab_size": vocab_size}
    plan = prepare.PreparePlan(("builtin:python-docs",), out, **options)
    return once(out, MARKER, lambda: prepare.prepare(plan))


def numerals(place: Path, count: int = 20_000) -> Path:
    """Prepares pairs of a number in digits and in words: "4 0 7" and "four hundred seven"."""
    chosen = keyed(0, "numerals").choice(1_000_000, count, replace=False).tolist()
    pairs = (f"{' '.join(str(n))}\t{spelled(n)}" for n in chosen)
    return prepared(place, "numerals", pairs, pairs=True)


def spelled(n: int) -> str:
    """Returns a number below a million in words."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + (f" {ONES[n % 10]}" if n % 10 else "")
    large, unit = (1000, "thousand") if n >= 1000 else (100, "hundred")
    rest = f" {spelled(n % large)}" if n % large else ""
    return f"{spelled(n // large)} {unit}{rest}"


def ciphers(place: Path, count: int = 12_000) -> Path:
    """Prepares lines of one of eight fixed ciphers: a letter, its cipher, the next letter, …

    A line does not name its cipher: only its examples show it. Two letters may have the same
    cipher, so that an answer is not excluded because it was given before: later answers are no
    easier to guess.
    """
    tables = [keyed(0, "cipher", i).integers(SYMBOLS, size=SYMBOLS).tolist() for i in range(TASKS)]

    def lines() -> Iterable[str]:
        for i in range(count):
            draw = keyed(0, "line", i)
            table = tables[int(draw.integers(TASKS))]
            letters = draw.permutation(SYMBOLS)[:SHOTS].tolist()
            yield " ".join(f"x{letter} y{table[letter]}" for letter in letters)

    return prepared(place, "ciphers", lines())


def refrains(place: Path, count: int = 400) -> Path:
    """Prepares long lines that repeat the same eight words: a masked word also stands eight
    positions to either side, and only the position embeddings show where that is."""

    def lines() -> Iterable[str]:
        for i in range(count):
            words = keyed(0, "refrain", i).integers(64, size=8).tolist()
            yield " ".join(f"w{word}" for word in words * 80)

    return prepared(place, "refrains", lines())


def paragraphs(place: Path, vocab_size: int = 2000) -> Path:
    """Prepares the reference of Python with every paragraph as a document: texts of very different
    lengths."""
    from regard.data.builtin import python_docs as documents

    parts = (" ".join(part.split()) for text in documents() for part in text.split("\n\n"))
    lines = (part for part in parts if part)
    return prepared(place, f"paragraphs-{vocab_size}", lines, "bytes-bpe", vocab_size)


def prepared(
    place: Path,
    name: str,
    lines: Iterable[str],
    tokenizer: str = "words",
    vocab_size: int | None = None,
    *,
    pairs: bool = False,
) -> Path:
    """Prepares lines as data, with one document a line."""
    out = home(place, name)

    def make() -> None:
        from regard.data import prepare
        from regard.data.sources import SourceOptions

        with TemporaryDirectory(prefix="text-", dir=place) as work:
            file = Path(work, f"{name}.{'tsv' if pairs else 'txt'}")
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            options: dict[str, Any] = {"tokenizer": tokenizer, "vocab_size": vocab_size}
            options |= {"pairs": pairs, "sentinels": 0}
            reading = SourceOptions(split_by="blank" if pairs else "line")
            prepare.prepare(prepare.PreparePlan((str(file),), out, reading, **options))

    return once(out, MARKER, make)
