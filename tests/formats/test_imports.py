"""How much of the package opening a model directory imports, whatever the family."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from regard.formats.directory import save
from regard.models import FAMILIES, create

MOST = 30  # modules of ours, the package files (__init__) that come with them not counted
SHAPE = {"layers": 1, "width": 16, "heads": 2, "ffn_size": 32, "vocab_size": 50, "window": 8,
         "windows": (8,), "dilations": (), "cutoffs": (), "ratio": 1}  # fmt: skip
PROGRAM = """
import sys

def ours():
    return {name for name in sys.modules if name.split(".")[0] == "regard"}

for place in sys.argv[1:]:
    for name in ours():  # as in a new interpreter, but for torch, which is slow to import
        del sys.modules[name]
    import regard
    regard.load(place)
    modules = [name for name in ours() if not hasattr(sys.modules[name], "__path__")]
    print(place, len(modules), *sorted(modules))
"""


def test_opening_imports_what_it_needs(tmp_path: Path) -> None:
    for family in FAMILIES:
        fields = FAMILIES[family].config.__dataclass_fields__
        changes = {name: value for name, value in SHAPE.items() if name in fields}
        save(create(family, **changes), tmp_path / family)
    words = [sys.executable, "-c", PROGRAM, *(str(tmp_path / family) for family in FAMILIES)]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == len(FAMILIES)
    for line in lines:
        assert int(line.split()[1]) <= MOST, line
