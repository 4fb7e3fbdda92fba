"""The task `summarize`: the model writes a short version of a long text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from regard.data.read_fields import ID
from regard.metrics.text import RougeMetric
from regard.tasks.translate import TextToTextTask


class Summarize(TextToTextTask):
    name = "summarize"
    measured_by = RougeMetric
    roles: ClassVar[Mapping[str, str]] = {
        "source": "source document article text dialogue",
        "target": "target summary highlights abstract",
        "id": ID,
    }
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {1: ("source",), 2: ("source", "target")}
    prefix = "summarize: "
    answer_tokens = 100

    def template(self, examples: Sequence[Any]) -> str:
        """Returns GPT-2's template (Radford et al. 2019, 3.6)."""
        return "{source}\nTL;DR: {target}"


TASK = Summarize()
