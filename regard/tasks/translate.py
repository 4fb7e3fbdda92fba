"""Translation: a text in another language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from regard.data.read_fields import ID
from regard.metrics.text import Translation
from regard.tasks.written import Rewriting


class Translate(Rewriting):
    name = "translate"
    measured_by = Translation
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
        """{"translation": {"en": …, "de": …}}: two languages in the order of the file."""
        inside = values.get("translation")
        if not isinstance(inside, dict):
            return values
        flat = {**values, **inside}
        if len(inside) == 2 and not chosen:
            flat["source"], flat["target"] = inside.values()
        return flat

    def template(self, examples: Sequence[Any]) -> str:
        """GPT-2's (Radford et al. 2019, 3.7)."""
        return "{source} = {target}"


TASK = Translate()
