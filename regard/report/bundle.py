"""Puts ES modules and style sheets of `static/` into one file that needs nothing else.

A module is wrapped into a function, in the order in which modules need each other, and what it
imports becomes a constant: names of two modules never meet. The files themselves are plain ES
modules, so a server can hand them out as they are. Two forms are understood, each on one line:

    import { a, b as c } from "./file.js";
    export const a = …            (or function, or class)
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w-]+)\.js";$', re.M)
EXPORT = re.compile(r"^export (?=(?:const|class|function) (\w+))", re.M)


@cache
def text_of(file: str) -> str:
    return (STATIC / file).read_text(encoding="utf-8")


@cache
def script(entry: str) -> str:
    """The module `entry`.js and all that it needs, as one script."""
    return "\n".join(map(wrapped, in_order(entry)))


@cache
def styles(names: tuple[str, ...]) -> str:
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


def policy(scripts: Iterable[str], style: str) -> str:
    """A content security policy under which only these scripts and this style are obeyed."""
    allowed = " ".join(map(digest, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    code = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{code}'"
