"""How much of the package a training run imports: what it does not need, it does not read."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from tests.training.small import data

MOST = 60  # modules of ours with code in them, to train a GPT on plain text
ABOVE = ("tasks", "evaluation", "methods", "lab", "api", "cli", "decoding")
PROGRAM = """
import sys
from pathlib import Path
from regard.training.recipe import make
from regard.training.run import train

shape = {"layers": 1, "width": 16, "heads": 2, "ffn_size": 32}
table = {"model": "gpt", "data": sys.argv[1], "shape": shape, "budget": {"steps": 2},
         "batch": {"size": 4, "seq_len": 16}, "engine": {"compile": "no", "precision": "fp32"}}
train(make(table), Path(sys.argv[2]), display="silent")
print(*sorted(name for name in sys.modules if name.split(".")[0] == "regard"))
"""


def has_code(name: str) -> bool:
    """A file that only marks a package has a docstring and constants at most."""
    file = import_module(name).__file__
    body = ast.parse(Path(str(file)).read_text("utf-8")).body
    return any(not isinstance(node, ast.Expr | ast.Assign) for node in body)


def test_a_run_imports_what_it_needs(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, str(data(tmp_path / "data")), str(tmp_path / "run")]
    names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    with_code = [name for name in names if has_code(name)]
    assert "regard.objectives.causal" in names and len(with_code) <= MOST, with_code
    assert not [name for name in names if name.split(".")[1:2] and name.split(".")[1] in ABOVE]
