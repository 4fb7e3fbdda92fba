"""task.json, which says of a model directory what the model has learned."""

from __future__ import annotations

from typing import Any

TASK = "task.json"
TASK_KINDS: dict[str, Any] = {
    "task": str,
    "objective": dict[str, Any],
    "labels": list[str],
    "length": int,
    "prefix": str | None,
    "form": str | None,
    "tokens": int | None,
}
