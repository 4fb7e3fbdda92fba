"""Counts the lines of Python in each package, and writes the table of CONTRIBUTING.md.

python scripts/sizes.py               # a test says when a number is a tenth, and 150, off
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
MARKED = re.compile(r"(<!-- sizes -->\n).*?(<!-- end -->)", re.DOTALL)


class Part(NamedTuple):
    packages: str  # of regard/, or a directory beside it
    goal: int | None  # lines; none: the part was not thought of when the goals were set
    later: str = ""  # what came after the goals


PARTS = (
    Part("core report", 3_000, "core/doctor.py report/notebook.py report/plot.py"),
    Part("attention", 1_500, "attention/native"),
    Part("data", 4_400),
    Part("models", 3_500, "models/step.py models/packed.py models/extensions/lora.py"),
    Part("formats", 1_700),
    Part(
        "metrics tasks evaluation", 8_300,
        "tasks/embed.py tasks/rerank.py tasks/contrast.py evaluation/embeddings.py "
        "evaluation/harness.py evaluation/harness_model.py evaluation/pseudo_likelihood.py",
    ),
    Part("objectives", 2_400),
    Part(
        "training", 4_200,
        "training/plan.py training/layouts.py training/layout_costs.py "
        "training/tensor_parallel.py training/loggers.py training/vocab_surprisal.py",
    ),
    Part("decoding", 1_600, "decoding/batcher.py decoding/joined.py decoding/speculative.py"),
    Part("methods", 9_000),
    Part("lab", 7_400, "lab/deeper lab/claims/engine/rulings.py"),
    Part("api.py cli", 3_000, "cli/serve.py"),
    Part("exports", None, "exports"),
    Part("serve", None, "serve"),
    Part("tests", 40_000),
)  # fmt: skip


def lines(name: str) -> int:
    """Lines of Python in a file or a directory of regard/, or of the project."""
    place = ROOT / name if name == "tests" else ROOT / "regard" / name
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def rows() -> Iterator[tuple[str, int, int | None, str]]:
    """Rows: the packages, their lines, the goal, what came later with its lines."""
    for part in PARTS:
        later = [(name, lines(name)) for name in part.later.split()]
        some = ", ".join(f"`{name}` {count:,}" for name, count in later if count)
        yield part.packages, sum(map(lines, part.packages.split())), part.goal, some


def table() -> str:
    head = [
        "| in `regard/` | lines | goal | what came after the goal |",
        "| --- | --: | --: | --- |",
    ]
    every = list(rows())
    whole = sum(count for name, count, *_ in every if name != "tests")
    goal = sum(part.goal or 0 for part in PARTS if part.packages != "tests")
    body = [
        f"| {name} | {count:,} | {f'{limit:,}' if limit else '–'} | {some} |"
        for name, count, limit, some in [*every[:-1], ("all", whole, goal, ""), every[-1]]
    ]
    return "\n".join([*head, *body]) + "\n"


def main() -> None:
    text, count = MARKED.subn(lambda m: m[1] + table() + m[2], PAGE.read_text("utf-8"))
    if count != 1:
        raise SystemExit(f"{PAGE.name} has no marks for the table of sizes")
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
