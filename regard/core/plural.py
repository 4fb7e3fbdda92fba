"""Counts in words."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """1 step, 2 steps, 1,000 queries."""
    if number == 1:
        return f"1 {what}"
    ending = f"{what[:-1]}ies" if what.endswith("y") and what[-2] not in "aeiou" else f"{what}s"
    return f"{number:,} {ending}"
