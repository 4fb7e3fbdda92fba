"""The report of a run: one page that needs nothing else, made from what the run left behind.

metrics.jsonl gives the curves, recipe.toml what was asked, run.json what it was and how it ended.
What is missing is left out.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, TypeGuard

from regard.core.files import write_text
from regard.report.curves import STYLE, Line, Panel, inline, smooth
from regard.training.progress import Record, duration, number, read_metrics, size

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  :root {{ color-scheme: light dark; --ink: #1f2937; --soft: #6b7280; --ground: #ffffff;
    --rule: #e5e7eb; --inset: #f9fafb }}
  @media (prefers-color-scheme: dark) {{
    :root {{ --ink: #e5e7eb; --soft: #9ca3af; --ground: #111827; --rule: #374151;
      --inset: #1f2937 }}
  }}
  body {{ margin: 0 auto; max-width: 1080px; padding: 1.25rem; color: var(--ink);
    background: var(--ground); font: 16px/1.5 system-ui, 'Noto Sans', 'Noto Sans CJK SC',
    sans-serif }}
  h1 {{ font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere }}
  h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem }}
  .verdict {{ font-size: 1.1rem; margin: 0 0 1rem }} .soft {{ color: var(--soft) }}
  .curves {{ display: grid; gap: 1rem;
    grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)) }}
  .curves svg {{ width: 100%; height: auto; border: 1px solid var(--rule); border-radius: 6px }}
  .wide {{ overflow-x: auto }}
  table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
  th, td {{ padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid var(--rule);
    overflow-wrap: anywhere }}
  th {{ font-weight: 500; color: var(--soft) }} td.number {{ text-align: right }}
  pre {{ padding: .75rem; background: var(--inset); border-radius: 6px; overflow-x: auto;
    font-size: .85rem }}{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""


@dataclass
class Story:
    """Everything a run has written about itself."""

    directory: Path
    facts: Record = field(default_factory=dict)
    recipe: Record = field(default_factory=dict)
    recipe_text: str = ""
    records: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> Story:
        recipe = text_of(directory / "recipe.toml")
        try:
            table = tomllib.loads(recipe)
        except tomllib.TOMLDecodeError:
            table = {}
        try:
            facts = json.loads(text_of(directory / "run.json") or "{}")
        except ValueError:
            facts = {}
        facts = facts if isinstance(facts, dict) else {}
        return cls(directory, facts, table, recipe, read_metrics(directory / "metrics.jsonl"))

    @property
    def steps(self) -> list[Record]:
        return [r for r in self.records if "valid" not in r]

    @property
    def validations(self) -> list[Record]:
        return [r for r in self.records if isinstance(r.get("valid"), dict) and r["valid"]]

    @property
    def model(self) -> Record:
        return table_of(self.facts.get("model"), "name")

    @property
    def name(self) -> str:
        return str(self.model.get("name") or self.recipe.get("model") or self.directory.name)

    @property
    def objective(self) -> str:
        named = table_of(self.recipe.get("objective"), "name").get("name")
        return str(self.facts.get("objective") or named or "")

    @property
    def measures(self) -> list[str]:
        """The names of what was validated; the first one chose the best model."""
        return list(self.validations[-1]["valid"]) if self.validations else []

    def best(self) -> Record | None:
        """The validation that the run calls its best, or the lowest of the first measure."""
        if not self.validations:
            return None
        step = table_of(self.facts.get("best"), "step").get("step")
        named = [r for r in self.validations if r["step"] == step]
        if named:
            return named[-1]
        known = [r for r in self.validations if plain(r["valid"].get(self.measures[0]))]
        return min(known, key=lambda r: r["valid"][self.measures[0]], default=None)

    def points(self, name: str) -> list[tuple[float, float]]:
        """A number of every step that has it."""
        return [(r["step"], r[name]) for r in self.steps if plain(r.get(name))]

    def verdict(self) -> str:
        best, last = self.best(), self.steps[-1] if self.steps else {}
        if best is not None and self.measures[0] in best["valid"]:
            figure = f"{words(self.measures[0])} {number(best['valid'][self.measures[0]])}"
            tokens = f", after {best['tokens']:,} tokens" if plain(best.get("tokens")) else ""
            return f"Best validation: {figure} at step {best['step']:,}{tokens}."
        if plain(last.get("loss")):
            return f"Loss {number(last['loss'])} at step {last['step']:,}; nothing was validated."
        return "Nothing was measured."


def write_report(directory: Path | str) -> Path:
    """Writes report.html into the directory of a run."""
    story = Story.read(Path(directory))
    title = f"{story.name} · {story.objective}" if story.objective else story.name
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="verdict">{escape(story.verdict())}</p>',
        f'<div class="curves">{"".join(inline(p) for p in panels(story))}</div>',
        section("Figures", table(figures(story))),
        section("Validation", validation_table(story)),
        section("Data", data_table(story)),
        section("Recipe", f"<pre>{escape(story.recipe_text)}</pre>" if story.recipe_text else ""),
        section("Model", table(list(table_of(story.model.get("config")).items()))),
        section("Machine", table(list(table_of(story.facts.get("machine")).items()))),
    ]
    page = PAGE.format(title=escape(title), style=STYLE, body="\n".join(p for p in parts if p))
    return replace(story.directory / "report.html", page)


def panels(story: Story) -> list[Panel]:
    """Loss, each measure of the validation, rate and speed, all over the same steps."""
    taken = [r["step"] for r in story.records]
    span = (min(taken, default=0), max(taken, default=0))
    loss, rate, speed = (story.points(k) for k in ("loss", "rate", "tokens_per_second"))
    noisy, mean = Line("step", loss, faint=True), Line("mean", smooth(loss))
    made = [Panel("Loss of each step, in nats", [noisy, mean], span=span)]
    for name in story.measures[:3]:
        found = [(r["step"], r["valid"].get(name)) for r in story.validations]
        line = Line(words(name), [(x, y) for x, y in found if plain(y)], 2, dots=True)
        made.append(Panel(f"Validation: {words(name)}", [line], span=span))
    made.append(Panel("Learning rate", [Line("rate", rate, 3)], zero=True, span=span))
    made.append(Panel("Tokens per second", [Line("speed", speed, 4)], zero=True, span=span))
    return made


def figures(story: Story) -> list[tuple[str, str]]:
    """What the run was and cost, in words."""
    facts, last = story.facts, story.steps[-1] if story.steps else {}
    progress = table_of(facts.get("progress"))
    seconds = progress.get("seconds", last.get("seconds"))
    rows: list[tuple[str, Any]] = [
        ("outcome", facts.get("outcome")),
        ("parameters", story.model.get("parameters")),
        ("paper", story.model.get("paper")),
        ("steps", progress.get("step", last.get("step"))),
        ("tokens learned from", progress.get("tokens", last.get("tokens"))),
        ("time in steps", duration(seconds) if plain(seconds) else None),
        ("tokens per second", last.get("tokens_per_second")),
        ("share of the machine's GEMM peak", peak_share(story, seconds)),
        ("peak memory", facts.get("peak_memory") and size(facts["peak_memory"])),
        ("precision", facts.get("precision")),
        ("processes", facts.get("world")),
        ("last loss", last.get("loss")),
    ]
    rows = [(k, round(v) if k == "tokens per second" and plain(v) else v) for k, v in rows]
    return [(k, number(v) if plain(v) else str(v)) for k, v in rows if v not in (None, "")]


def peak_share(story: Story, seconds: Any) -> str | None:
    facts = story.facts
    steps = table_of(facts.get("progress")).get("step")
    given = (facts.get("step_flops"), facts.get("gemm_peak"), steps, seconds)
    if not all(plain(x) and x > 0 for x in given):
        return None
    return f"{facts['step_flops'] * steps / seconds / facts['gemm_peak']:.0%}"


def validation_table(story: Story, most: int = 25) -> str:
    """Step and measures of every validation, or of so many of them."""
    found = story.validations
    chosen = found[:: -(-len(found) // most)] if len(found) > most else found
    if found and chosen[-1] is not found[-1]:
        chosen = [*chosen, found[-1]]
    head = ["step", *map(words, story.measures)]
    rows = [[r["step"], *(r["valid"].get(name) for name in story.measures)] for r in chosen]
    return grid(head, rows) if rows else ""


def splits(story: Story) -> tuple[list[str], list[list[Any]]]:
    """The data's summary as a table: one row for each split."""
    data = table_of(story.facts.get("data"))
    found = {k: v for k, v in table_of(data.get("splits")).items() if isinstance(v, dict)}
    columns = [
        name for name in ("documents", "sentences", "tokens", "bytes")
        if any(plain(split.get(name)) for split in found.values())
    ]  # fmt: skip
    rows = []
    for name, split in found.items():
        tokens, count = split.get("tokens"), split.get("bytes")
        ratio = count / tokens if plain(tokens) and plain(count) and tokens else None
        rows.append([name, *(split.get(column) for column in columns), ratio])
    return ["split", *columns, "bytes per token"], rows


def about_data(story: Story) -> list[tuple[str, str]]:
    data = table_of(story.facts.get("data"))
    rows = [(k, data.get(k)) for k in ("path", "sources", "tokenizer", "vocabulary")]
    return [(k, number(v) if plain(v) else flat(v)) for k, v in rows if v]


def data_table(story: Story) -> str:
    head, rows = splits(story)
    return table(about_data(story)) + (grid(head, rows) if rows else "")


# -- small parts


def section(title: str, inside: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{inside}" if inside else ""


def table(rows: Iterable[tuple[Any, Any]]) -> str:
    lines = [f"<tr><th>{escape(str(k))}</th><td>{escape(flat(v))}</td></tr>" for k, v in rows]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>' if lines else ""


def grid(head: list[str], rows: list[list[Any]]) -> str:
    def cell(value: Any) -> str:
        kind = ' class="number"' if plain(value) else ""
        text = number(value) if plain(value) else "" if value is None else str(value)
        return f"<td{kind}>{escape(text)}</td>"

    lines = ["".join(f"<th>{escape(name)}</th>" for name in head)]
    lines += ["".join(map(cell, row)) for row in rows]
    inside = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table>{inside}</table></div>'


def plain(value: Any) -> TypeGuard[float]:
    """Is it a number?"""
    return isinstance(value, int | float) and not isinstance(value, bool)


def flat(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def table_of(value: Any, key: str = "value") -> Record:
    """A dictionary; a bare value becomes one under `key`."""
    if isinstance(value, dict):
        return value
    return {} if value is None else {key: value}


def words(name: str) -> str:
    return name.replace("_", " ")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def replace(path: Path, text: str) -> Path:
    """Written whole or not at all."""
    write_text(path, text, errors="replace")
    return path
