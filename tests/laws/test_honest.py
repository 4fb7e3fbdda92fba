"""An object is of the class that it says, and does what its class says.

What has to change a model has a seam for it: a part that is replaced by another, a hook,
`Attention.kernel`, `Block.run`, `Output.rows`, `Objective.build`.
"""

import ast
from pathlib import Path

import pytest

import regard

FILES = sorted(Path(regard.__file__).parent.rglob("*.py"))
LIES = {"__new__", "__class__", "__instancecheck__", "__subclasscheck__", "__getattribute__"}
METHODS = {"__class__", "forward", "encode", "decode", "loss", "collate"}


def tricks(text: str) -> list[str]:
    """Classes that lie about what they are, and methods that are replaced from outside."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name in LIES:
            lines.append(f"line {node.lineno}: def {node.name}")
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in (part for one in targets for part in ast.walk(one)):
            if isinstance(target, ast.Attribute) and target.attr in METHODS:
                lines.append(f"line {node.lineno}: {ast.unparse(target)} = …")
    return lines


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n def __new__(cls): return 1",
        "class A:\n @property\n def __class__(self): return int",
        "part.__class__ = A",
        "model.forward = Reads(model)",
        "a, made.collate = 1, collate",
    ],
)
def test_tricks_are_seen(text: str) -> None:
    assert tricks(text)


def test_nothing_lies() -> None:
    assert len(FILES) > 300
    lies = {str(file): lines for file in FILES if (lines := tricks(file.read_text("utf-8")))}
    assert not lies
