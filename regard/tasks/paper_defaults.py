"""What learns a task from labelled rows, and as what; the others learn it as text."""

from __future__ import annotations

OBJECTIVES = {
    "classify": "classify",
    "entail": "classify",
    "similar": "classify",
    "choose": "choose",
    "tag": "tag",
    "answer": "answer",
}
TEXT = ("translate", "summarise", "converse")  # a text from a text, whatever the model
