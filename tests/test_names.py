"""Names say what they hold, and no two public classes share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Participles that could stand for anything.
BANNED = {"found", "made", "given", "held", "told", "said", "kept", "asked", "taken", "gotten"}
LINES = 60  # of a function
# Files whose matched sentences are of others: torch has no names for what it refuses.
SENTENCES = {"tests/models/test_refusals.py"}
MODULES = sorted((ROOT / "regard").rglob("*.py"))
PLACES = sorted({m.relative_to(ROOT).parts[1] for m in MODULES})
PLACES = [f"regard/{name}" for name in PLACES] + ["benchmarks", "scripts", "tests"]


def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every local variable and parameter, with its line; fields of a dataclass are no locals."""
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if id(node) in fields:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def public_classes() -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(module.relative_to(ROOT)))
    return places


@pytest.mark.parametrize("place", PLACES)
def test_local_names_say_what_they_hold(place: str) -> None:
    path = ROOT / place
    vague = [
        f"{module.relative_to(ROOT)}:{line}: {name}"
        for module in ([path] if path.is_file() else sorted(path.rglob("*.py")))
        for name, line in bound_names(tree_of(module))
        if name in BANNED
    ]
    assert not vague, "\n".join(vague)


def test_no_two_public_classes_share_a_name() -> None:
    shared = {name: places for name, places in public_classes().items() if len(places) > 1}
    assert not shared


def test_a_vague_name_and_a_shared_class_are_seen() -> None:
    assert ("found", 1) in set(bound_names(ast.parse("found = 1")))
    assert ("given", 1) in set(bound_names(ast.parse("def f(given): ...")))
    assert len(public_classes()["Attention"]) == 1


def test_functions_are_short_enough_to_be_read_at_once() -> None:
    """Signature and help included: options stand in the dataclasses that hold them."""
    long = [
        f"{module.relative_to(ROOT)}: {node.name}"
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= LINES
    ]
    assert not long


def test_refusals_are_known_by_class_and_names() -> None:
    """Sentences may change: `refuses` and `warns` of tests/refusals.py look for names alone."""
    matching = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("pytest.raises", "pytest.warns")
        if any(keyword.arg == "match" for keyword in node.keywords)
    }
    assert matching == SENTENCES
