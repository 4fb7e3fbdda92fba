"""Formats the results of `regard evaluate` for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from regard.core.tables import Table

CLASSES = 20  # the number of classes in the table


def in_lines(result: Table) -> Iterator[str]:
    """Yields the figures of a test, of prompts, or of an n-gram."""
    if "orders" in result:
        yield from ngram_lines(result)
    elif "harness" in result:
        yield from harness_lines(result)
    elif "shots" in result:
        yield from prompt_lines(result)
    else:
        yield from test_lines(result)


def test_lines(result: Table) -> Iterator[str]:
    """Yields figures with their intervals, the classes, and the comparison of two runs."""
    units = result.get("units", "examples")
    yield f"{result['task']}, {result['examples']:,} {units}"
    margin = max(map(len, result["figures"])) + 2
    for name, value in result["figures"].items():
        span = result["intervals"].get(name)
        interval = f"{shown(span[0])} to {shown(span[1])}" if span else ""
        yield f"{name.replace('_', ' '):<{margin}}{shown(value):>9}   {interval}".rstrip()
    if result.get("classes"):
        yield ""
        yield from class_table(result["classes"])
    if result.get("phenomena"):
        yield ""
        yield from phenomenon_table(result["phenomena"])
    for name, value in (result.get("signatures") or {}).items():
        yield f"{name}  {value}"
    if compared := result.get("comparison"):
        first, second = compared["names"]
        yield ""
        yield f"{second} against {first}: {compared['verdict']}"
        differing, examples = compared["differing"], compared["examples"]
        yield f"{differing:,} of {examples:,} {units} were answered differently"


def class_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    margin = max(5, *(len(row["label"]) for row in rows)) + 2
    columns = ("precision", "recall", "f1", "support")
    yield f"{'class':<{margin}}" + "".join(f"{name:>11}" for name in columns)
    for row in rows[:CLASSES]:
        cells = (*(shown(row[name]) for name in columns[:3]), f"{row['support']:,}")
        yield f"{row['label']:<{margin}}" + "".join(f"{cell:>11}" for cell in cells)
    if len(rows) > CLASSES:
        yield f"and {len(rows) - CLASSES:,} more"


def phenomenon_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yields the accuracy of each phenomenon of minimal pairs with its interval."""
    margin = max(10, *(len(row["label"]) for row in rows)) + 2
    yield f"{'phenomenon':<{margin}}{'pairs':>9}{'accuracy':>11}"
    for row in rows:
        low, high = map(shown, row["interval"])
        counts = f"{row['pairs']:>9,}{shown(row['accuracy']):>11}"
        yield f"{row['label']:<{margin}}{counts}   {low} to {high}"


def shown(value: float | None) -> str:
    if value is None:
        return "undefined"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def prompt_lines(result: Table) -> Iterator[str]:
    """Yields the prompt and the figures; for answers to choose from, each score and baselines."""
    shots, between = result["shots"], f"{result['level']:.0%} interval"
    drawn = f", {result['draw']}{', fixed' * result['fixed']}, seed {result['seed']}"
    demonstrations = f"{shots} demonstration{'s' * (shots != 1)}{drawn if shots else ''}"
    yield f"{result['model']} on {', '.join(result['data'])}: {result['task']}, {demonstrations}"
    yield f"template   {result['template']!r}"
    if result["labels"]:
        words = ", ".join(f"{label}: {word!r}" for label, word in result["labels"].items())
        yield f"words      {words}"
    yield f"examples   {result['examples']:,}"
    yield ""
    if "by_score" in result:
        yield f"{'decided by':<24}{'accuracy':>9}   {between}"
        for name, by in result["by_score"].items():
            mark = " (decides)" if name == result["score"] else ""
            yield figure_line(name + mark, by["accuracy"], by["interval"])
        frequent = result["most_frequent"]
        yield figure_line(f"always {frequent['label']}"[:23], frequent["accuracy"])
        yield figure_line("chance", result["chance"])
        yield ""
    yield f"{'figure':<24}{'value':>9}   {between}"
    for name, value in result["figures"].items():
        yield figure_line(name, value, result["intervals"].get(name))


def figure_line(name: str, value: float | None, between: Sequence[float] | None = None) -> str:
    text = f"{name:<24}" + (f"{value:>9.4f}" if value is not None else f"{'–':>9}")
    return text + (f"   {between[0]:.4f} … {between[1]:.4f}" if between else "")


def harness_lines(result: Table) -> Iterator[str]:
    """Yields the figures of each task of lm-evaluation-harness with their standard errors."""
    yield f"lm-evaluation-harness {result['versions']['lm_eval']}, by {result['measure']}"
    for name, table in result["harness"].items():
        count = result["examples"].get(name)
        yield f"{name}" + (f", {count:,} examples" if count is not None else "")
        margin = max(map(len, table), default=0) + 2
        for figure, row in table.items():
            error = f"   ± {shown(row['stderr'])}" if row["stderr"] is not None else ""
            value = row["value"]
            text = shown(value) if isinstance(value, int | float) else str(value)
            yield f"  {figure:<{margin}}{text:>9}{error}"
    yield from (f"note: {note}" for note in result["notes"])


def ngram_lines(result: Table) -> Iterator[str]:
    """Yields one line per order, then what was counted and scored."""
    yield f"{'order':>5}  {'perplexity':>12}  {'bits per byte':>13}  {'n-grams':>12}"
    for row in result["orders"]:
        mark = "  fallback discounts" if row["fallback"] else ""
        numbers = f"{row['perplexity']:>12,.2f}  {row['bits_per_byte']:>13.4f}"
        yield f"{row['order']:>5}  {numbers}  {row['ngrams']:>12,}{mark}"
    seconds = result["seconds"]
    yield (
        f"counted  {result['training_tokens']:,} tokens in {seconds['counting']:.1f} s, "
        f"{result['size'] / 1e6:,.1f} MB"
    )
    yield (
        f"scored   {result['split']}: {result['tokens']:,} tokens, {result['bytes']:,} bytes "
        f"in {seconds['scoring']:.1f} s"
    )
