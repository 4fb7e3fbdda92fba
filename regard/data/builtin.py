"""`builtin:python-docs`: the English reference text that comes with every CPython, about 2.3 MB.

It holds the topics of `help()`, one document each, and the docstrings of the standard library, one
document per module. The modules are not imported; their source is only parsed.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from regard.core.errors import InputError

NAME = "builtin:python-docs"
LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test",
            "pydoc_data"}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def python_docs() -> tuple[str, ...]:
    """Returns the documents, always in the same order."""
    documents = [*topics(), *modules(Path(sysconfig.get_path("stdlib")))]
    if not documents:
        raise InputError(f"this Python has no documentation, so there is no {NAME}; give a file")
    return tuple(documents)


def fingerprint() -> str:
    """Returns the SHA-256 of all documents. The text comes with Python, and so differs between its
    versions."""
    return hashlib.sha256("\0".join(python_docs()).encode("utf-8", "surrogatepass")).hexdigest()


def topics() -> Iterator[str]:
    try:
        from pydoc_data.topics import topics as found
    except ImportError:
        return
    seen = set()
    for _, text in sorted(found.items()):
        text = text.strip()
        if text and text not in seen:  # several topics may share one text
            seen.add(text)
            yield text


def modules(library: Path) -> Iterator[str]:
    seen: set[str] = set()
    for file in sorted(library.rglob("*.py")):
        parts = file.relative_to(library).parts
        if LEFT_OUT.intersection(parts) or parts[0].startswith("config-"):
            continue
        texts = [text for text in docstrings(file) if text not in seen]
        texts = list(dict.fromkeys(texts))
        seen.update(texts)
        if texts:
            yield "\n\n".join(texts)


def docstrings(file: Path) -> Iterator[str]:
    """Yields the docstrings of a file in the order of the source."""
    try:
        with warnings.catch_warnings(action="ignore"):  # warnings about escapes in old sources
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # templates with another syntax
        return
    yield from inside(tree)


def inside(node: ast.AST) -> Iterator[str]:
    if isinstance(node, DOCUMENTED):
        text = (ast.get_docstring(node) or "").strip()
        if text:
            yield text
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from inside(child)
