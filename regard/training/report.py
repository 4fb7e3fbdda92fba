"""The report of a run, one page that needs nothing else, and its model card: both are made from
what the run left behind.

metrics.jsonl gives the curves, recipe.toml what was asked, run.json what it was and how it ended.
What is missing is left out.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, TypeGuard

import jinja2

from regard.core.errors import RegardError
from regard.core.files import write_text
from regard.formats.directory import describe
from regard.report import clean
from regard.report.curves import STYLE, CurveLine, Panel, inline, smooth, svg
from regard.training.progress import Record, duration, number, peak_share, read_metrics, size

HERE = Path(__file__).with_name("templates")
PAGE = (HERE / "page.html").read_text(encoding="utf-8")  # of all pages, for `str.format`


@dataclass
class RunRecord:
    """Everything a run has written about itself."""

    directory: Path
    facts: Record = field(default_factory=dict)
    recipe: Record = field(default_factory=dict)
    recipe_text: str = ""
    records: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> RunRecord:
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
    story = RunRecord.read(Path(directory))
    title = f"{story.name} · {story.objective}" if story.objective else story.name
    columns, splits = splits_of(story)
    body = TEMPLATES.get_template("report.html").render(
        title=title,
        story=story,
        curves="".join(inline(panel) for panel in panels(story)),
        figures=figures(story),
        measures=["step", *map(words, story.measures)],
        validations=validation_rows(story),
        about=about_data(story),
        columns=columns,
        splits=splits,
        config=list(table_of(story.model.get("config")).items()),
        machine=list(table_of(story.facts.get("machine")).items()),
    )
    page = PAGE.format(title=escape(title), style=STYLE, body=body)
    return replace(story.directory / "report.html", page)


def write_card(directory: Path | str, *, license: str | None = None) -> Path:
    """Writes the model card, README.md with metadata, and curves.svg into a run's directory."""
    story = RunRecord.read(Path(directory))
    model = described(story.directory)
    curves = [panel for panel in panels(story) if panel.known]
    if curves:
        replace(story.directory / "curves.svg", svg(curves))
    best = story.best()
    measured = [(k, v) for k, v in best["valid"].items() if plain(v)] if best else []
    tags = ["regard", model.get("family") or story.model.get("family"), story.objective]
    columns, splits = splits_of(story)
    fence = "```"
    while fence in story.recipe_text:
        fence += "`"
    text = TEMPLATES.get_template("card.md").render(
        story=story,
        model=model,
        name=story.directory.resolve().name,
        license=license or str(story.facts.get("license") or ""),
        pipeline=story.facts.get("pipeline_tag"),
        tags=[tag for tag in dict.fromkeys(tags) if tag],
        dataset=Path(str(table_of(story.facts.get("data")).get("path") or "text")).name,
        best=best,
        measured=measured,
        results=[(words(name), value) for name, value in measured],
        figures=[row for row in figures(story) if row[0] not in ("parameters", "paper")],
        curves=curves,
        # Of where the text lay, only the last name.
        about=[(k, Path(v).name if k == "path" else v) for k, v in about_data(story)],
        columns=columns,
        splits=splits,
        fence=fence,
    )
    return replace(story.directory / "README.md", re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")


def described(directory: Path) -> dict[str, Any]:
    """What the model directory holds; nothing where no model was written."""
    try:
        return describe(directory) if (directory / "config.json").is_file() else {}
    except RegardError:
        return {}


def panels(story: RunRecord) -> list[Panel]:
    """Loss, each measure of the validation, rate and speed, all over the same steps."""
    steps = [r["step"] for r in story.records]
    span = (min(steps, default=0), max(steps, default=0))
    loss, rate, speed = (story.points(k) for k in ("loss", "lr", "tokens_per_second"))
    noisy, mean = CurveLine("step", loss, faint=True), CurveLine("mean", smooth(loss))
    drawn = [Panel("Loss of each step, in nats", [noisy, mean], span=span)]
    for name in story.measures[:3]:
        points = [(r["step"], r["valid"].get(name)) for r in story.validations]
        line = CurveLine(words(name), [(x, y) for x, y in points if plain(y)], 2, dots=True)
        drawn.append(Panel(f"Validation: {words(name)}", [line], span=span))
    drawn.append(Panel("Learning rate", [CurveLine("lr", rate, 3)], zero=True, span=span))
    drawn.append(Panel("Tokens per second", [CurveLine("speed", speed, 4)], zero=True, span=span))
    return drawn


def figures(story: RunRecord) -> list[tuple[str, str]]:
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
        ("share of the machine's GEMM peak", share_of_peak(story, seconds)),
        ("peak memory", facts.get("peak_memory") and size(facts["peak_memory"])),
        ("precision", facts.get("precision")),
        ("processes", facts.get("world")),
        ("last loss", last.get("loss")),
    ]
    rows = [(k, round(v) if k == "tokens per second" and plain(v) else v) for k, v in rows]
    return [(k, number(v) if plain(v) else str(v)) for k, v in rows if v not in (None, "")]


def share_of_peak(story: RunRecord, seconds: Any) -> str | None:
    facts = story.facts
    steps = table_of(facts.get("progress")).get("step")
    numbers = (facts.get("step_flops"), facts.get("gemm_peak"), steps, seconds)
    if not all(plain(x) and x > 0 for x in numbers):
        return None
    return f"{peak_share(facts['step_flops'] * steps, seconds, facts['gemm_peak']):.0%}"


def validation_rows(story: RunRecord, most: int = 25) -> list[list[Any]]:
    """Step and measures of every validation, or of so many of them."""
    records = story.validations
    chosen = records[:: -(-len(records) // most)] if len(records) > most else records
    if records and chosen[-1] is not records[-1]:
        chosen = [*chosen, records[-1]]
    return [[r["step"], *(r["valid"].get(name) for name in story.measures)] for r in chosen]


def splits_of(story: RunRecord) -> tuple[list[str], list[list[Any]]]:
    """The data's summary as a table: one row for each split."""
    data = table_of(story.facts.get("data"))
    splits = {k: v for k, v in table_of(data.get("splits")).items() if isinstance(v, dict)}
    columns = [
        name for name in ("documents", "sentences", "tokens", "bytes")
        if any(plain(split.get(name)) for split in splits.values())
    ]  # fmt: skip
    rows = []
    for name, split in splits.items():
        tokens, count = split.get("tokens"), split.get("bytes")
        ratio = count / tokens if plain(tokens) and plain(count) and tokens else None
        rows.append([name, *(split.get(column) for column in columns), ratio])
    return ["split", *columns, "bytes per token"], rows


def about_data(story: RunRecord) -> list[tuple[str, str]]:
    data = table_of(story.facts.get("data"))
    rows = [(k, data.get(k)) for k in ("path", "sources", "tokenizer", "vocab_size")]
    return [(k, number(v) if plain(v) else flat(v)) for k, v in rows if v]


# -- small parts


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


def one_line(text: Any) -> str:
    """Plain text without markup and without a break."""
    return clean(str(text)).replace("<", "&lt;").replace("`", "'")


def cell(value: Any) -> str:
    return number(value) if plain(value) else "" if value is None else str(value)


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE),
    autoescape=jinja2.select_autoescape(["html"]),
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.tests["plain"] = plain
TEMPLATES.filters |= {
    "flat": flat,
    "cell": cell,
    "one_line": one_line,
    # A string as YAML has it; JSON's is one of its kinds.
    "quoted": lambda text: json.dumps(clean(str(text)), ensure_ascii=False),
    "python": repr,
}
