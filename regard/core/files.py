"""JSON on disk: read with a clear error, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.core.errors import StorageError


def read_json(file: Path) -> dict[str, Any] | None:
    """What a file holds; None where there is none."""
    if not file.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StorageError(f"{file} is damaged ({error}); remove it to make it again") from None
    return found


def write_json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(file)
