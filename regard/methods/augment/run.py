"""Turns a file of labeled examples into a file with their variants, and reports the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError
from regard.core.progress import Progress
from regard.data.augment.clean import clean_example
from regard.data.augment.eda import METHODS, published
from regard.data.augment.examples import AugmentSettings
from regard.data.problems import Problems
from regard.data.readers import ReaderOptions
from regard.methods.augment.files import (
    ExampleSource,
    ExampleWriter,
    form_for,
    open_new_file,
    read_source,
)
from regard.methods.augment.processes import augmented

SHOWN = 3  # examples in the report, each with a variant of each method
WIDTH = 160  # characters of a text in the report


def augment_file(
    data: str,
    out: Path,
    task: str,
    methods: Sequence[str],
    options: dict[str, Any],  # other fields of `AugmentSettings`; the rest is as published
    reading: ReaderOptions,
    skip: Sequence[str] = (),
    *,
    clean: bool = False,
    originals: bool = True,
    distinct: bool = False,
    jobs: int = 1,
    quiet: bool = True,
) -> dict[str, Any]:
    """Writes the examples of a file with their variants to another file and returns the report."""
    problems = Problems()
    source = read_source(data, task, reading, skip, problems)
    if clean:
        source.examples = [clean_example(example) for example in source.examples]
    names = tuple(methods) or tuple(METHODS)
    share, copies = published(len(source.examples))
    if options.get("num_beams") and names == ("back",):
        copies = 1  # beam search would find the same text again
    advised: dict[str, Any] = {"word_fraction": share, "copies": copies, "scheme": source.scheme}
    settings = AugmentSettings(names, **advised | options)
    if "word_fraction" in options and not settings.uses_share:
        raise ConfigError(
            "--word-fraction has no effect here: back-translation does not use it, and TinyBERT's "
            "rule has its own probability; leave it out"
        )
    notes = problems.notes()
    report: dict[str, Any] = {
        "out": str(out),
        "examples": len(source.examples),
        **write(source, out, settings, notes, originals, distinct, jobs, quiet),
        "share": settings.word_fraction if settings.uses_share else None,
        "copies": settings.copies,
        "seed": settings.seed,
        "notes": notes,
    }
    return report


def write(
    source: ExampleSource,
    out: Path,
    settings: AugmentSettings,
    notes: list[str],
    originals: bool,
    distinct: bool,
    jobs: int,
    quiet: bool,
) -> dict[str, Any]:
    """Writes the file. Returns the number of variants by method, and a few of them to look at."""
    by_method: Counter[str] = Counter()
    same: Counter[str] = Counter()  # variants that are equal to their examples
    shown: list[dict[str, Any]] = []
    form = form_for(out, source)
    progress, total = Progress(quiet=quiet), len(source.examples)
    with open_new_file(out) as file:
        writer = ExampleWriter(file, form, source)
        rows = augmented(source.examples, settings, jobs, notes)
        for number, (example, variants) in enumerate(zip(source.examples, rows, strict=True)):
            file.write("\n" * (source.blanks[number] if source.blanks else 0))
            if originals:
                writer.add(example)
            seen = {without_name(example)}
            for variant in variants:
                essence = without_name(variant.example)
                by_method[variant.method] += 1
                same[variant.method] += essence == without_name(example)
                if not distinct or essence not in seen:
                    writer.add(variant.example)
                seen.add(essence)
            if len(shown) < SHOWN and variants:
                old = in_line(example)
                new = {v.method: around(in_line(v.example), old) for v in variants}
                shown.append({"example": around(old, old), "variants": new})
            progress.step(f"variants of {number + 1:,} of {total:,} examples", 0, 0)
        writer.close()
    progress.close()
    unchanged = {name: count for name, count in same.items() if count}
    return {
        "variants": dict(by_method),
        "unchanged": unchanged,
        "written": writer.count,
        "shown": shown,
    }


def without_name(example: Any) -> Any:
    return replace(example, id="")


def in_line(example: Any) -> str:
    """Returns the texts of an example on one line."""
    return " | ".join(" ".join(text.split()) for _, text in example.parts())


def around(text: str, old: str) -> str:
    """Cuts a long text to the part where it begins to differ from the old one."""
    if len(text) <= WIDTH:
        return text
    same = next((i for i, (a, b) in enumerate(zip(text, old, strict=False)) if a != b), 0)
    start = max(0, min(same - WIDTH // 3, len(text) - WIDTH))
    end = start + WIDTH
    return "…" * (start > 0) + text[start:end] + "…" * (end < len(text))
