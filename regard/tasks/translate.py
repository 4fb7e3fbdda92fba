"""The task `translate`: a text in another language. `summarize` shares this code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from regard.data.examples import Example, TextPair
from regard.data.read_fields import ID, BadRecord, FieldRecord
from regard.metrics.text import TranslationMetric
from regard.tasks.base import Task


class TextToTextTask(Task):
    """A task that turns one text into another."""

    example = TextPair
    by_language = True
    needed = ("source",)
    answers = ("target",)
    in_two_files = True
    text_only = True
    fields = ("source",)
    answer_fields = ("target",)
    whole_lines = True
    record_texts = ("source",)

    def parse(self, record: FieldRecord) -> Example:
        source, target = record.text("source"), None
        if record.has("target"):
            if record.get("target") is None:
                raise BadRecord("missing-label", f"no target in {record.field('target')!r}")
            target = record.text("target")
        return TextPair(source, target, record.place, record.id)

    def source(self, example: Example) -> str:
        return example.source if isinstance(example, TextPair) else super().source(example)

    def target(self, example: Example) -> str:
        target = getattr(example, "target", None)
        return target if target is not None else super().target(example)

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        return {"source": example.source}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        target: str | None = example.target
        return target


class Translate(TextToTextTask):
    name = "translate"
    measured_by = TranslationMetric
    roles: ClassVar[Mapping[str, str]] = {
        "source": "source src a",
        "target": "target tgt b",
        "id": ID,
    }
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {
        1: ("source",),
        **dict.fromkeys(range(2, 9), ("source", "target")),
    }
    varied = True
    prefix = "translate: "
    of_pairs = True
    names_languages = True
    answer_tokens = 64

    def unpacked(self, values: dict[str, Any], chosen: Mapping[str, str]) -> dict[str, Any]:
        """Reads {"translation": {"en": …, "de": …}}: two languages in the order of the file."""
        inside = values.get("translation")
        if not isinstance(inside, dict):
            return values
        flat = {**values, **inside}
        if len(inside) == 2 and not chosen:
            flat["source"], flat["target"] = inside.values()
        return flat

    def template(self, examples: Sequence[Any]) -> str:
        """Returns GPT-2's template (Radford et al. 2019, 3.7)."""
        return "{source} = {target}"


TASK = Translate()
