"""What all pages share: templates, words in two languages, and the data that a page carries.

A page is one file that needs nothing else: its styles, scripts and data are inside of it. Whatever
others wrote only ever becomes text: templates escape all that they are given, and what neither a
browser nor a terminal may see is made visible.
"""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from regard.core.bilingual import Bilingual
from regard.report import clean

HERE = Path(__file__).parent


@cache
def words(name: str) -> dict[str, Bilingual]:
    """The words of a page in both languages, from locales/NAME.toml."""
    table = tomllib.loads((HERE / "locales" / f"{name}.toml").read_text(encoding="utf-8"))
    return {key: Bilingual(**sentence) for key, sentence in table.items()}


def rendered(directory: Path, name: str, **values: Any) -> str:
    """The template of this name in a directory; `part(FILE)` puts a style or a script into it."""
    return str(environment(directory).get_template(name).render(**values))


@cache
def environment(directory: Path) -> Any:
    """Templates of a directory, and those that all pages share."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        return clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value

    def part(file: str) -> Markup:
        return Markup((directory / file).read_text(encoding="utf-8"))

    templates = Environment(
        loader=FileSystemLoader([directory, HERE / "templates"]),
        autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=shown,
    )  # fmt: skip
    templates.globals |= {"part": part, "data": embedded, "lines": lines}
    return templates


def embedded(value: Any) -> Any:
    """JSON that can stand in a script element: no text in it can end the element."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(
        text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


def lines(text: str) -> Any:
    """The words of others with their line breaks."""
    from markupsafe import Markup, escape

    rows = (escape(clean(line.replace("\t", "    "))) for line in text.split("\n"))
    return Markup("\n").join(rows)
