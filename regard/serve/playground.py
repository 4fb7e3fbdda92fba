"""The page at `/`, where a person tries the models, and what a run left behind, at `/run`.

The page itself holds nothing of the models: its script asks the routes for everything, with the key
that a person types in, where one is needed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from regard.core.text import Bilingual, clean
from regard.report import pages
from regard.report.charts import plain
from regard.report.pages import Figure, words
from regard.serve.asking import in_thread, state_of
from regard.training.report import WORDS, RunRecord, charts, figures

router = APIRouter()
LONGEST = 2**17  # characters of a model card
HEADERS = {
    "content-security-policy": "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@router.get("/", include_in_schema=False)
async def page() -> HTMLResponse:
    return HTMLResponse(await in_thread(html), headers=HEADERS)


@cache
def html() -> str:
    locales = ["look", "serve", "tasks"]
    return pages.page(
        "serve", "regard serve", locales=locales, spoken=words(*locales), script="serve",
        styles=["look", "serve"], connect=True,
    )  # fmt: skip


@router.get("/run", tags=["Server"], summary="How a model was trained: its curves and its card")
async def run(request: Request, model: str | None = None) -> dict[str, Any]:
    served = state_of(request).models.find(model)
    return {"model": served.name, **await in_thread(story_of, Path(served.path))}


def story_of(directory: Path) -> dict[str, Any]:
    """Returns what a run's directory tells; of what is missing, nothing."""
    story = RunRecord.read(directory)
    recorded = bool(story.records or story.facts)
    known = figures(story)
    paper = known.pop("paper", None)
    rows = [(WORDS[key], readable(value)) for key, value in known.items()]
    return {
        "verdict": plain(story.verdict()) if recorded else None,
        "paper": paper and readable(paper),
        "figures": [[plain(name), value] for name, value in rows] if recorded else [],
        "charts": {name: chart.data() for name, chart in charts(story).items()},
        "card": card_of(directory / "README.md"),
    }


def readable(value: Any) -> Any:
    if isinstance(value, Figure):
        return value.text
    return plain(value if isinstance(value, Bilingual) else str(value))


def card_of(file: Path) -> str | None:
    """Returns the text of a model card, without its metadata."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(LONGEST)
    except OSError:
        return None
    if text.startswith("---\n") and "\n---\n" in text:
        text = text.partition("\n---\n")[2]
    return "\n".join(clean(line.replace("\t", "    ")) for line in text.strip().split("\n"))
