"""An opened model directory: plain data, without anything that can be asked of a model."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.data.tokenizer import Tokenizer

BESIDE = ("task.json", "crf.safetensors", "knowledge.tsv")  # learned, beside the weights


@dataclass
class Loaded:
    """An opened model directory: the model and what belongs to it."""

    model: Any
    tokenizer: Tokenizer | None = None
    source: dict[str, Any] = field(default_factory=dict)  # config.json as it was
    path: Path | None = None

    @property
    def config(self) -> Any:
        return self.model.config

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a directory that `transformers` opens unchanged wherever it has a class for the
        model.
        """
        from regard.formats.directory import save

        made = save(self.model, path, self.tokenizer, self.source)
        for name in BESIDE:
            held = (self.path or made) / name
            if held.is_file() and made.resolve() != held.parent.resolve():
                shutil.copyfile(held, made / name)
        return made
