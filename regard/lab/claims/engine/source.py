"""The files of claims, read as text: what they declare, without importing what they compute with;
and a mark of their code, so that nobody takes what other code has measured for their own.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from regard.lab.claims.engine.claim import Claim

HERE, PACKAGE = Path(__file__).parent.parent, "regard.lab.claims."
JUDGES = {"engine.claim", "engine.rules"}  # they do not measure
# What is said of a claim; the other keys say what is done.
SAID = {"name", "statement", "source", "setting", "rule", "charts", "seeds", "minutes", "timed",
        "printed", "notes"}  # fmt: skip


def declared(name: str) -> dict[str, Any]:
    """The statement of a claim in English, its source and its minutes."""
    (made,) = (
        node for node in ast.walk(tree(f"library.{name.replace('-', '_')}")) if declares(node)
    )
    keys: dict[str | None, Any] = {key.arg: key.value for key in made.keywords}
    minutes = keys.get("minutes")
    return {
        "statement": ast.literal_eval(keys["statement"].args[0]),
        "source": ast.literal_eval(keys["source"]),
        "minutes": Claim.minutes if minutes is None else ast.literal_eval(minutes),
    }


@cache
def mark(module: str) -> str:
    """Of the code of a module of this package and of all that it builds on here. Comments,
    docstrings, imports and what is said of a claim do not count.
    """
    names = sorted(reached(module.removeprefix(PACKAGE), set()))
    told = "".join(f"{name}: {code(name)}\n" for name in names)
    return hashlib.blake2b(told.encode(), digest_size=4).hexdigest()


def reached(name: str, seen: set[str]) -> set[str]:
    """The module and those that it imports, however far; others than this package's are none."""
    if name in seen or name in JUDGES or not path(name).is_file():
        return seen
    seen.add(name)
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            reached(str(node.module).removeprefix(PACKAGE), seen)
    return seen


def code(name: str) -> str:
    made = tree(name)
    for node in ast.walk(made):
        if declares(node):
            node.keywords = [key for key in node.keywords if key.arg not in SAID]
        held = getattr(node, "body", None)
        if isinstance(held, list):
            held[:] = [part for part in held if not silent(part)]
    return ast.dump(made)


def declares(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Claim"


def silent(node: ast.AST) -> bool:
    """Does it do nothing: a docstring, or an import?"""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom)


def tree(name: str) -> ast.Module:
    return ast.parse(path(name).read_text(encoding="utf-8"))


def path(name: str) -> Path:
    """The file of a module, named from this package on."""
    return HERE.joinpath(*name.split(".")).with_suffix(".py")
