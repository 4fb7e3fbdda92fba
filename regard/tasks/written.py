"""What tasks share whose answer is a text, measured by the rules of its language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.data.examples import Example, Pair
from regard.data.read_fields import Bad, Record
from regard.tasks.base import Task


class Written(Task):
    """A subclass says its metric."""

    def metric_options(
        self, labels: Sequence[str], gold: Sequence[Any], *, strict: bool, language: str
    ) -> dict[str, Any]:
        from regard.metrics.text import language_of

        return {"language": language or language_of(gold)}


class Rewriting(Written):
    """A text from a text."""

    example = Pair
    needed = ("source",)
    answers = ("target",)
    in_two_files = True
    text_only = True
    fields = ("source",)
    answer_fields = ("target",)
    whole_lines = True
    record_texts = ("source",)

    def parse(self, record: Record) -> Example:
        source, target = record.text("source"), None
        if record.has("target"):
            if record.get("target") is None:
                raise Bad("missing-label", f"no target in {record.field('target')!r}")
            target = record.text("target")
        return Pair(source, target, record.place, record.id)

    def source(self, example: Example) -> str:
        return example.source if isinstance(example, Pair) else super().source(example)

    def target(self, example: Example) -> str:
        target = getattr(example, "target", None)
        return target if target is not None else super().target(example)

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        return {"source": example.source}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        target: str | None = example.target
        return target
