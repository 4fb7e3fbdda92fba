"""What all pages share: templates, words in two languages, and the data that a page carries.

A page is one file that needs nothing else: its style, script and data are inside of it, and its
content security policy lets nothing else run. Whatever others wrote only ever becomes text:
templates escape all that they are given, and what neither a browser nor a terminal may see is made
visible. A template writes a `Bilingual` in both languages (a reader sees one at a time) and a
`Figure` as a number that also carries itself exactly.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from regard.core.text import Bilingual, clean
from regard.report.charts import PageChart, Text, plain

HERE = Path(__file__).parent
NUMBERS = "count|total|length|number"  # blanks of sentences that hold a number


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


def translated(text: str, locale: str = "notes") -> Text:
    """A sentence that a program wrote in English, in both languages if the locale has it; what
    fills its blanks is looked up the same way. Any other text stays as it is."""
    for form, sentence in forms(locale):
        if match := form.fullmatch(text):
            values = {name: translated(part, locale) for name, part in match.groupdict().items()}
            return filled(sentence, **values)
    return text


@cache
def forms(locale: str) -> list[tuple[re.Pattern[str], Bilingual]]:
    """The English sentences of a locale as patterns, in which NUMBERS fill some blanks."""
    table = []
    for sentence in words(locale).values():
        form = re.sub(rf"\\{{({NUMBERS})\\}}", r"(?P<\1>[\\d,]+)", re.escape(sentence.en))
        form = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", form)
        table.append((re.compile(form, re.DOTALL), sentence))
    return table


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
    connect: bool = False,
    **values: Any,
) -> str:
    """A whole page from templates/TEMPLATE.html.

    `locales` are files of words for the template, `spoken` those of them that the script says, too.
    `charts` go by the names that the template gives to `chart`; `data` is what else the script, or
    a program that reads the page, finds in its JSON. A page that a server gives may `connect` to
    this server.
    """
    known = words("page", *locales)
    aloud = {*words("page"), *spoken}
    boot, program = text_of("boot.js"), script_of(script)
    look = styles_of(("base", "chart", *styles))
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
            policy=policy((boot, program), look, connect),
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


# -- one file that needs nothing else
#
# Puts ES modules and style sheets of `static/` into one file that needs nothing else.
#
# A module is wrapped into a function, in the order in which modules need each other, and what it
# imports becomes a constant: names of two modules never meet. The files themselves are plain ES
# modules, so a server can hand them out as they are. Two forms are understood, each on one line:
#
#     import { a, b as c } from "./file.js";
#     export const a = …            (or function, or class)

STATIC = Path(__file__).parent / "static"
IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w-]+)\.js";$', re.M)
EXPORT = re.compile(r"^export (?=(?:const|class|function) (\w+))", re.M)


@cache
def text_of(file: str) -> str:
    return (STATIC / file).read_text(encoding="utf-8")


@cache
def script_of(entry: str) -> str:
    """The module `entry`.js and all that it needs, as one script."""
    return "\n".join(map(wrapped, in_order(entry)))


@cache
def styles_of(names: tuple[str, ...]) -> str:
    """Style sheets, one after the other."""
    return "\n".join(text_of(f"{name}.css") for name in names)


def in_order(entry: str, waiting: tuple[str, ...] = ()) -> list[str]:
    """Names of modules: each stands behind those that it imports."""
    if entry in waiting:
        raise ValueError(f"modules import each other: {' -> '.join((*waiting, entry))}")
    needed = [name for _, name in IMPORT.findall(text_of(f"{entry}.js"))]
    every = [each for name in needed for each in in_order(name, (*waiting, entry))]
    return list(dict.fromkeys([*every, entry]))


def wrapped(name: str) -> str:
    """One module as a function that returns what it exports."""
    body = text_of(f"{name}.js")
    exports = ", ".join(EXPORT.findall(body))
    body = IMPORT.sub(
        lambda m: f"const {{ {m[1].replace(' as ', ': ')} }} = {variable(m[2])};", body
    )
    return (
        f"const {variable(name)} = (() => {{\n{EXPORT.sub('', body)}return {{ {exports} }};\n}})();"
    )


def variable(name: str) -> str:
    return "module_" + name.replace("-", "_")


def policy(scripts: Iterable[str], style: str, connect: bool = False) -> str:
    """A content security policy under which only these scripts and this style are obeyed."""
    allowed = " ".join(map(digest, scripts))
    asks = " connect-src 'self';" if connect else ""
    return (
        f"default-src 'none'; script-src {allowed}; style-src {digest(style)}; img-src data:;"
        f"{asks} base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    code = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{code}'"
