"""The model card of a run: README.md with metadata, and its curves beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.formats.directory import describe
from regard.report.curves import svg
from regard.report.heatmap import clean
from regard.training.progress import number
from regard.training.report import (
    Story,
    about_data,
    figures,
    panels,
    plain,
    replace,
    splits,
    table_of,
    words,
)

TASKS = {
    "causal": "text-generation",
    "recurrent": "text-generation",
    "prefix": "text-generation",
    "masked": "fill-mask",
    "sentences": "fill-mask",
    "permuted": "text-generation",
}


def write_card(directory: Path | str, *, license: str = "") -> Path:
    """Writes README.md and curves.svg into the directory of a run."""
    story = Story.read(Path(directory))
    held = described(story.directory)
    shown = [panel for panel in panels(story) if panel.known]
    if shown:
        replace(story.directory / "curves.svg", svg(shown))
    parts = [
        front(story, held, license or str(story.facts.get("license") or "")),
        f"# {line(story.directory.resolve().name)}",
        introduction(story),
        "## How to open it\n\n" + opening(story, held) if held else "",
        f"## Results\n\n{results(story)}" if story.records else "",
        "![The curves of the run](curves.svg)" if shown else "",
        data(story),
        f"## Recipe\n\n{fenced(story.recipe_text, 'toml')}" if story.recipe_text else "",
    ]
    return replace(story.directory / "README.md", "\n\n".join(p for p in parts if p) + "\n")


def described(directory: Path) -> dict[str, Any]:
    """What the model directory holds; nothing where no model was written."""
    try:
        return describe(directory) if (directory / "config.json").is_file() else {}
    except RegardError:
        return {}


def front(story: Story, held: dict[str, Any], license: str) -> str:
    """The metadata between two lines of dashes; only what is known."""
    opens = bool(held.get("opens_in_transformers"))
    lines = [f"library_name: {'transformers' if opens else 'regard'}"]
    if license:
        lines.append(f"license: {quoted(license)}")
    if opens and story.objective in TASKS:
        lines.append(f"pipeline_tag: {TASKS[story.objective]}")
    tags = ["regard", held.get("family") or story.model.get("family"), story.objective]
    lines += ["tags:", *(f"- {quoted(tag)}" for tag in dict.fromkeys(tags) if tag)]
    best = story.best()
    measured = [(k, v) for k, v in best["valid"].items() if plain(v)] if best else []
    if measured:
        dataset = Path(str(table_of(story.facts.get("data")).get("path") or "text")).name
        lines += [
            "model-index:",
            f"- name: {quoted(story.directory.resolve().name)}",
            "  results:",
            "  - task:",
            f"      type: {TASKS.get(story.objective, 'other')}",
            "    dataset:",
            f"      name: {quoted(dataset)}",
            f"      type: {quoted(dataset)}",
            "      split: valid",
            "    metrics:",
        ]
        for name, value in measured:
            lines += [f"    - type: {quoted(name)}", f"      value: {value}"]
    return "\n".join(["---", *lines, "---"])


def introduction(story: Story) -> str:
    count = story.model.get("parameters")
    size = f" of {count:,} parameters" if plain(count) else ""
    how = f" with the objective `{line(story.objective)}`" if story.objective else ""
    paper = f" ({line(story.model['paper'])})" if story.model.get("paper") else ""
    return f"A `{line(story.name)}`{size}{paper}, trained{how} by regard. {line(story.verdict())}"


def opening(story: Story, held: dict[str, Any]) -> str:
    name = story.directory.resolve().name
    own = (
        f"import regard\n\nloaded = regard.load({name!r})\n"
        "model, tokenizer = loaded.model, loaded.tokenizer"
    )
    if not held["opens_in_transformers"]:
        return f"{fenced(own, 'python')}\n\nIt does not open in transformers: {held['because']}."
    theirs = (
        f"from transformers import AutoTokenizer, {held['class']}\n\n"
        f"model = {held['class']}.from_pretrained({name!r})"
    )
    if held.get("tokenizer"):
        theirs += f"\ntokenizer = AutoTokenizer.from_pretrained({name!r})"
    else:
        theirs = theirs.replace("AutoTokenizer, ", "")
    return f"{fenced(own, 'python')}\n\nIn transformers:\n\n{fenced(theirs, 'python')}"


def results(story: Story) -> str:
    best = story.best()
    rows = [[words(k), number(v)] for k, v in best["valid"].items() if plain(v)] if best else []
    run = [[k, v] for k, v in figures(story) if k not in ("parameters", "paper")]
    head = f"validation at step {best['step']:,}" if best else ""
    tables = [([head, "value"], rows), (["run", "value"], run)]
    return "\n\n".join(markdown(*table) for table in tables if table[1])


def data(story: Story) -> str:
    """The summary; of where the text lay, only the last name."""
    head, rows = splits(story)
    about = [f"- {k}: {line(Path(v).name if k == 'path' else v)}" for k, v in about_data(story)]
    shown = [[number(c) if plain(c) else "" if c is None else c for c in row] for row in rows]
    parts = ["\n".join(about), markdown(head, shown) if rows else ""]
    return "\n\n".join(["## Data", *filter(None, parts)]) if any(parts) else ""


def markdown(head: list[str], rows: list[list[str]]) -> str:
    def row(cells: list[str]) -> str:
        return "| " + " | ".join(line(c).replace("|", "\\|") for c in cells) + " |"

    return "\n".join([row(head), row(["---"] * len(head)), *map(row, rows)])


def fenced(text: str, language: str) -> str:
    """A block of code; its fence is longer than any inside."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.strip()}\n{fence}"


def line(text: Any) -> str:
    """One line of plain text: no markup, no break."""
    return clean(str(text)).replace("<", "&lt;").replace("`", "'")


def quoted(text: Any) -> str:
    """A string as YAML has it; JSON's is one of its kinds."""
    return json.dumps(clean(str(text)), ensure_ascii=False)
