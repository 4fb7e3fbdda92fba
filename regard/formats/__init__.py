"""Reads and writes model directories. An opened directory is plain data, a `Checkpoint`; importing
this package imports no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.data.tokenizer import Tokenizer

BESIDE = ("task.json", "crf.safetensors", "knowledge.tsv")  # other learned files of a directory


@dataclass
class Checkpoint:
    """An opened model directory: the model, its tokenizer and its config.json."""

    model: Any
    tokenizer: Tokenizer | None = None
    source: dict[str, Any] = field(default_factory=dict)  # config.json as it was read
    path: Path | None = None
    generation_config: dict[str, Any] | None = None  # generation_config.json, if there is one

    @property
    def config(self) -> Any:
        return self.model.config

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a directory that `transformers` can open, if it has a class for the model."""
        from regard.formats.directory import save

        target = Path(path)
        beside = [self.path / name for name in BESIDE] if self.path else []
        if self.path is not None and target.resolve() == self.path.resolve():
            beside = []
        copied = [file for file in beside if file.is_file()]
        saved = save(
            self.model, target, self.tokenizer, self.source, self.generation_config, copied
        )
        if beside:
            from regard.formats.sentence import copy_pipeline

            copy_pipeline(beside[0].parent, saved)
        return saved
