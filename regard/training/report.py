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
from pathlib import Path
from typing import Any, TypeGuard

import jinja2

from regard.core.errors import RegardError, StorageError
from regard.core.files import read_json, write_text
from regard.core.text import Bilingual, clean
from regard.formats.directory import describe
from regard.report.charts import ChartAxis, Line, LineChart, smooth, thin
from regard.report.pages import Figure, both_of, filled, named, page, words
from regard.training.progress import Record, duration, number, peak_share, read_metrics, size

HERE = Path(__file__).with_name("templates")
WORDS = words("run")


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
        except (ValueError, RecursionError):
            table = {}
        try:
            facts = read_json(directory / "run.json", nan=True) or {}
        except StorageError:
            facts = {}
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

    def verdict(self) -> Bilingual:
        best, last = self.best(), self.steps[-1] if self.steps else {}
        if best is not None and self.measures[0] in best["valid"]:
            name, value = both_of(named(self.measures[0])), number(best["valid"][self.measures[0]])
            figure = Bilingual(f"{name.en} {value}", f"{name.zh} {value}")
            step, tokens = f"{best['step']:,}", best.get("tokens")
            if plain(tokens):
                return filled(WORDS["best_after"], figure=figure, step=step, tokens=f"{tokens:,}")
            return filled(WORDS["best"], figure=figure, step=step)
        if plain(last.get("loss")):
            return filled(WORDS["only_loss"], loss=number(last["loss"]), step=f"{last['step']:,}")
        return WORDS["nothing"]


def write_report(directory: Path | str) -> Path:
    """Writes report.html into the directory of a run."""
    story = RunRecord.read(Path(directory))
    columns, splits = splits_of(story)
    rows = figures(story)
    text = page(
        "run",
        f"{story.name} · {story.objective}" if story.objective else story.name,
        locales=["run"],
        charts=charts(story),
        verdict=story.verdict(),
        paper=rows.pop("paper", ""),
        figures=[(WORDS[key], value) for key, value in rows.items()],
        measures=[WORDS["step"], *map(named, story.measures)],
        validations=validation_rows(story),
        about=[(WORDS[key], value) for key, value in about_data(story).items()],
        columns=[WORDS[key] for key in columns],
        splits=splits,
        recipe=story.recipe_text.strip(),
        config=[(k, flat(v)) for k, v in table_of(story.model.get("config")).items()],
        machine=[(k, flat(v)) for k, v in table_of(story.facts.get("machine")).items()],
    )
    return replace(story.directory / "report.html", text)


def write_card(directory: Path | str, *, license: str | None = None) -> Path:
    """Writes the model card, README.md with metadata, into a run's directory."""
    story = RunRecord.read(Path(directory))
    model = described(story.directory)
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
        verdict=story.verdict().en,
        results=[(both_of(named(name)).en, number(value)) for name, value in measured],
        figures=[
            (WORDS[k].en, as_text(v))
            for k, v in figures(story).items()
            if k not in ("parameters", "paper")
        ],
        curves=bool(charts(story)),
        # Of where the text lay, only the last name.
        about=[
            (k, Path(as_text(v)).name if k == "path" else as_text(v))
            for k, v in about_data(story).items()
        ],
        columns=[WORDS[key].en for key in columns],
        splits=[[as_text(value) for value in row] for row in splits],
        fence=fence,
    )
    return replace(story.directory / "README.md", re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")


def described(directory: Path) -> dict[str, Any]:
    """What the model directory holds; nothing where no model was written."""
    try:
        return describe(directory) if (directory / "config.json").is_file() else {}
    except RegardError:
        return {}


def charts(story: RunRecord) -> dict[str, LineChart]:
    """Loss, each measure of the validation, rate and speed, all over the same steps."""
    steps = [r["step"] for r in story.records]
    x = ChartAxis(WORDS["step"], "count", span=(min(steps, default=0), max(steps, default=0)))
    loss, rate, speed = (story.points(k) for k in ("loss", "lr", "tokens_per_second"))
    noisy = Line(WORDS["each_step"], thin(loss), faint=True)
    drawn = {
        "loss": LineChart(WORDS["loss_chart"], [noisy, Line(WORDS["mean"], thin(smooth(loss)))], x)
    }
    for i, name in enumerate(story.measures[:3]):
        points = [(r["step"], r["valid"].get(name)) for r in story.validations]
        line = Line(named(name), [(a, b) for a, b in points if plain(b)], 2)
        title = filled(WORDS["validation_chart"], name=both_of(named(name)))
        drawn[f"validation-{i}"] = LineChart(title, [line], x)
    zero = ChartAxis(zero=True)
    drawn["lr"] = LineChart(WORDS["lr_chart"], [Line(WORDS["lr_chart"], thin(rate), 3)], x, zero)
    drawn["speed"] = LineChart(
        WORDS["speed_chart"], [Line(WORDS["speed_chart"], thin(speed), 4)], x, zero
    )
    return {key: chart for key, chart in drawn.items() if chart.shown}


def figures(story: RunRecord) -> dict[str, Any]:
    """What the run was and cost, by the keys of the words for it."""
    facts, last = story.facts, story.steps[-1] if story.steps else {}
    progress = table_of(facts.get("progress"))
    seconds, speed = progress.get("seconds", last.get("seconds")), last.get("tokens_per_second")
    memory = facts.get("peak_memory")
    rows: dict[str, Any] = {
        "outcome": outcome_of(facts.get("outcome")),
        "parameters": story.model.get("parameters"),
        "paper": story.model.get("paper"),
        "steps": progress.get("step", last.get("step")),
        "tokens_learned": progress.get("tokens", last.get("tokens")),
        "time": Figure(seconds, duration(seconds)) if plain(seconds) else None,
        "speed": Figure(speed, number(round(speed))) if plain(speed) else None,
        "peak_share": share_of_peak(story, seconds),
        "memory": Figure(memory, size(memory)) if plain(memory) and memory else None,
        "precision": facts.get("precision"),
        "processes": facts.get("world"),
        "last_loss": last.get("loss"),
    }
    return {key: cell(value) for key, value in rows.items() if value not in (None, "")}


def outcome_of(text: Any) -> Any:
    """How a run ended, in both languages where it ended as runs do."""
    early = re.fullmatch(r"stopped early: no better validation in (\d+)", str(text))
    if early:
        return filled(WORDS["outcome_early"], count=early[1])
    known = (word for key, word in WORDS.items() if key.startswith("outcome_") and word.en == text)
    return next(known, text)


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
    return [
        [cell(r["step"]), *(cell(r["valid"].get(name)) for name in story.measures)] for r in chosen
    ]


def splits_of(story: RunRecord) -> tuple[list[str], list[list[Any]]]:
    """The data's summary as a table, one row for each split, and the keys of its columns."""
    data = table_of(story.facts.get("data"))
    splits = {k: v for k, v in table_of(data.get("splits")).items() if isinstance(v, dict)}
    columns = [
        name for name in ("examples", "documents", "sentences", "tokens", "bytes")
        if any(plain(split.get(name)) for split in splits.values())
    ]  # fmt: skip
    rows = [[name, *(cell(split.get(column)) for column in columns)]
            for name, split in splits.items()]  # fmt: skip
    if {"tokens", "bytes"} <= set(columns):
        columns.append("bytes_per_token")
        for row, split in zip(rows, splits.values(), strict=True):
            tokens, count = split.get("tokens"), split.get("bytes")
            ratio = count / tokens if plain(tokens) and plain(count) and tokens else None
            row.append(cell(ratio))
    return ["split", *columns], rows


def about_data(story: RunRecord) -> dict[str, Any]:
    data = table_of(story.facts.get("data"))
    keys = ("path", "sources", "tokenizer", "vocab_size")
    return {k: cell(data[k]) if plain(data[k]) else flat(data[k]) for k in keys if data.get(k)}


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


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def replace(path: Path, text: str) -> Path:
    """Written whole or not at all."""
    write_text(path, text, errors="replace")
    return path


def one_line(text: Any) -> str:
    """Plain text without markup and without a break."""
    return clean(str(text)).replace("<", "&lt;").replace("`", "'")


def cell(value: Any) -> Any:
    """What a table of the page shows: a number carries itself exactly."""
    if plain(value):
        return Figure(value, number(value))
    return value if isinstance(value, Figure | Bilingual) else "" if value is None else str(value)


def as_text(value: Any) -> str:
    """A cell in plain English."""
    return value.text if isinstance(value, Figure) else both_of(value).en


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE), trim_blocks=True, lstrip_blocks=True
)
TEMPLATES.tests["plain"] = plain
TEMPLATES.filters |= {
    "one_line": one_line,
    # A string as YAML has it; JSON's is one of its kinds.
    "quoted": lambda text: json.dumps(clean(str(text)), ensure_ascii=False),
    "python": repr,
}
