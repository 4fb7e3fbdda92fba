"""What the exports of small models came to, as `scripts/exports.py` measured it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.core.errors import StorageError

FILE = Path(__file__).parent / "matrix.json"


def measured() -> dict[str, Any]:
    """Returns the cells of the matrix, and the versions of the runtimes."""
    if not FILE.is_file():
        raise StorageError(f"{FILE.name} is missing; 'python scripts/exports.py' measures it")
    table: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return table
