"""Small parts of a comparison's page: words in two languages, numbers, tables, inks and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from regard.lab.compare.page_words import WORDS
from regard.lab.compare.verdict import Measure
from regard.report.heatmap import clean

INKS = 10  # told apart by colour and by shape; an eleventh model is the first again, dashed

# Shapes on a ground of 12 by 12, one for each ink.
SHAPES = (
    "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9z",
    "M2 2h8v8h-8z",
    "M6 .6L11.4 6L6 11.4L.6 6z",
    "M6 1L11.2 10.4H.8z",
    "M6 11L.8 1.6H11.2z",
    "M4.4 1h3.2v3.4h3.4v3.2h-3.4v3.4h-3.2v-3.4h-3.4v-3.2h3.4z",
    "M2.8 .8L6 4L9.2 .8L11.2 2.8L8 6L11.2 9.2L9.2 11.2L6 8L2.8 11.2L.8 9.2L4 6L.8 2.8z",
    "M6 .6L7.6 4.3L11.6 4.7L8.6 7.3L9.5 11.3L6 9.2L2.5 11.3L3.4 7.3L.4 4.7L4.4 4.3z",
    "M3.3 1.3h5.4L11.4 6L8.7 10.7H3.3L.6 6z",
    "M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10zM6 3.4a2.6 2.6 0 1 1 0 5.2a2.6 2.6 0 1 1 0-5.2z",
)


def shapes() -> str:
    """All shapes, to be used by their names m1 … m10."""
    made = "".join(
        f'<symbol id="m{i}" viewBox="0 0 12 12"><path d="{path}"/></symbol>'
        for i, path in enumerate(SHAPES, 1)
    )
    return f'<svg width="0" height="0" class="shapes" aria-hidden="true">{made}</svg>'


def ink(models: Sequence[str], model: str) -> int:
    """The number of its ink: that of its place in the plan."""
    return models.index(model) % INKS + 1


def mark(models: Sequence[str], model: str) -> str:
    """The classes of what is drawn for a model."""
    return f"i{ink(models, model)}" + (" again" if models.index(model) >= INKS else "")


def model_name(report: Mapping[str, Any], model: str) -> str:
    """Its shape in its ink, and its name."""
    models = report["models"]
    return (
        f'<span class="model"><svg class="{mark(models, model)}" viewBox="0 0 12 12" width="12" '
        f'height="12" aria-hidden="true"><use href="#m{ink(models, model)}"/></svg>'
        f"{safe(model)}</span>"
    )


def t(key: str) -> str:
    """Our own words."""
    return know(WORDS[key]._asdict())


def know(said: Mapping[str, str]) -> str:
    """A sentence in both languages, of which one is seen."""
    return (
        f'<span class="en" lang="en">{safe(said["en"])}</span>'
        f'<span class="zh" lang="zh-Hans">{safe(said["zh"])}</span>'
    )


def safe(text: str) -> str:
    """The words of others in one line."""
    return escape(clean(text))


def lines(text: str) -> str:
    """The words of others with their line breaks."""
    return "\n".join(safe(line.replace("\t", "    ")) for line in text.split("\n"))


def value(number: float | None, shown: Measure | str) -> str:
    """A number as people read it, which also carries itself exactly."""
    if number is None:
        return ""
    text = shown if isinstance(shown, str) else shown.shown(number)
    return f'<data value="{number!r}">{escape(text)}</data>'


def section(key: str, inside: str, kind: str = "") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<section id="{key}"{chosen}>\n<h2>{t(key)}</h2>\n{inside}\n</section>'


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], name: str = "") -> str:
    """A table of cells that are already safe. It scrolls by itself where it is too wide, for the
    keyboard too.
    """
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    called = f' data-table="{name}"' if name else ""
    above = f"<thead><tr>{top}</tr></thead>" if head else ""
    return (
        f'<div class="wide" tabindex="0"><table{called}>{above}<tbody>{body}</tbody></table></div>'
    )
