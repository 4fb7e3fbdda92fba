"""What all pages share: templates, words in two languages, and the data that a page carries.

A page is one file that needs nothing else: its style, script and data are inside of it, and its
content security policy lets nothing else run. Whatever others wrote only ever becomes text:
templates escape all that they are given, and what neither a browser nor a terminal may see is made
visible. A template writes a `Bilingual` in both languages (a reader sees one at a time) and a
`Figure` as a number that also carries itself exactly.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from regard.core.bilingual import Bilingual
from regard.report import bundle, clean
from regard.report.charts import PageChart, Text, plain

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    """A number and how people read it."""

    value: float
    text: str


@cache
def words(*names: str) -> dict[str, Bilingual]:
    """The words of pages in both languages, from locales/NAME.toml."""
    known: dict[str, Bilingual] = {}
    for name in names:
        table = tomllib.loads((HERE / "locales" / f"{name}.toml").read_text(encoding="utf-8"))
        known |= {key: Bilingual(**sentence) for key, sentence in table.items()}
    return known


def named(name: str) -> Text:
    """What a measure is called, or where nobody named it, its name in words."""
    return words("metrics").get(name) or name.replace("_", " ")


def filled(sentence: Bilingual, **values: Text) -> Bilingual:
    """A sentence with its blanks filled in, in both languages."""
    pairs = {name: both_of(value) for name, value in values.items()}
    return Bilingual(
        sentence.en.format(**{name: text.en for name, text in pairs.items()}),
        sentence.zh.format(**{name: text.zh for name, text in pairs.items()}),
    )


def page(
    template: str,
    title: Text,
    *,
    locales: Sequence[str] = (),
    charts: Mapping[str, PageChart] | None = None,
    data: Mapping[str, Any] | None = None,
    script: str = "page",
    styles: Sequence[str] = (),
    spoken: Iterable[str] = (),
    **values: Any,
) -> str:
    """A whole page from templates/TEMPLATE.html.

    `locales` are files of words for the template, `spoken` those of them that the script says, too.
    `charts` go by the names that the template gives to `chart`; `data` is what else the script, or
    a program that reads the page, finds in its JSON.
    """
    known = words("page", *locales)
    aloud = {*words("page"), *spoken}
    boot, program = bundle.text_of("boot.js"), bundle.script(script)
    look = bundle.styles(("base", "chart", *styles))
    drawn = {name: chart.data() for name, chart in (charts or {}).items()}
    carried = {
        "title": plain(both_of(title)),
        "words": {key: text for key, text in known.items() if key in aloud},
        "charts": drawn,
        **(data or {}),
    }
    return str(
        environment()
        .get_template(f"{template}.html")
        .render(
            title=both_of(title),
            words=known,
            charts=charts or {},
            carried=carried,
            boot=as_it_is(boot),
            program=as_it_is(program),
            look=as_it_is(look),
            policy=bundle.policy((boot, program), look),
            **values,
        )
    )


@cache
def environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"), undefined=StrictUndefined,
        autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=shown,
    )  # fmt: skip
    templates.globals |= {"embedded": embedded, "lines": lines, "named": named, "both": shown}
    return templates


def shown(value: Any) -> Any:
    """How a template writes a value."""
    from markupsafe import Markup, escape

    if isinstance(value, Bilingual) and value.en != value.zh:
        tagged = '<span class="en" lang="en">{}</span><span class="zh" lang="zh-Hans">{}</span>'
        return Markup(tagged).format(*(escape(clean(text)) for text in value))
    if isinstance(value, Bilingual):
        return clean(value.en)
    if isinstance(value, Figure):
        return Markup('<data value="{}">{}</data>').format(value.value, value.text)
    if value is None:
        return "–"
    return clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def both_of(text: Text) -> Bilingual:
    return text if isinstance(text, Bilingual) else Bilingual(text, text)


def as_it_is(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def embedded(value: Any) -> Any:
    """JSON that can stand in a script element: no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return as_it_is(
        text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


def lines(text: str) -> Any:
    """The words of others with their line breaks."""
    from markupsafe import Markup, escape

    rows = (escape(clean(line.replace("\t", "    "))) for line in text.split("\n"))
    return Markup("\n").join(rows)
