"""Directories of sentence-transformers: an encoder, a pooling, and vectors of length 1."""

from __future__ import annotations

import json
import shutil
import tempfile
from copy import copy
from pathlib import Path

import numpy as np
from tokenizers import processors

from regard.core.files import parse_json, write_text
from regard.data.special_tokens import special_of
from regard.exports.base import ExportSample, ExportSource, Limit, Runtime, Target
from regard.formats.registry import format_of
from regard.formats.sentence import MODULES, write_pipeline

OWN = "regard-"

LIMITS: tuple[Limit, ...] = (
    ("a vector of a text needs an encoder that reads it with both sides; a decoder that has "
     "learned vectors by 'regard finetune --task embed' opens in sentence-transformers without an "
     "export",
     lambda s: s.model.causal and not without_class(s)),
    ("a vector of a text needs an encoder that reads it with both sides",
     lambda s: s.kind != "encoder"),
    ("transformers has no class for it",
     lambda s: without_class(s)),
    ("it reads text, and this model has no tokenizer",
     lambda s: s.tokenizer is None or s.tokenizer.fast is None),
)  # fmt: skip


def without_class(source: ExportSource) -> bool:
    """Returns whether transformers cannot open what `save` writes."""
    return bool(format_of(source.format).opens) or source.format.startswith(OWN)


class VectorRuntime(Runtime):
    """The directory opened by sentence-transformers, which reads texts: a sample is decoded."""

    quantity = "vectors"

    def __init__(self, directory: Path) -> None:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.set_verbosity_error()  # it reports the heads of pre-training, which it leaves out
        logging.disable_progress_bar()
        self.model = SentenceTransformer(str(directory), device="cpu", local_files_only=True)

    def rows(self, sample: ExportSample) -> np.ndarray:
        raise TypeError("sentence-transformers reads texts, not tokens")

    def vectors(self, texts: list[str]) -> np.ndarray:
        table: np.ndarray = self.model.encode(texts, show_progress_bar=False)
        return table


class SentenceTransformers(Target):
    name = "sentence-transformers"
    about = "directories of sentence-transformers: vectors of texts"
    packages = ("sentence_transformers",)
    limits = LIMITS
    precisions = ("fp32",)

    def convert(self, source: ExportSource, directory: Path, precision: str) -> None:
        with tempfile.TemporaryDirectory() as scratch:  # saving replaces a whole directory
            saved = source.checkpoint.save(Path(scratch) / "model")
            shutil.copytree(saved, directory, dirs_exist_ok=True)
        set_frame(source, directory)
        if not (directory / MODULES).is_file():  # else it has learned a pooling of its own
            write_pipeline(  # with the default of `regard embed`
                directory, pooling="mean", normalize=True, length=source.context,
                width=source.config.width,
            )  # fmt: skip

    def open(self, source: ExportSource, directory: Path, precision: str) -> Runtime:
        return VectorRuntime(directory)


def set_frame(source: ExportSource, directory: Path) -> None:
    """Writes the special tokens around a text, and the side of the padding, into the files of the
    tokenizer: our own encoders add them by their input format."""
    frame, tokenizer = source.model.family.input_format, source.tokenizer
    assert tokenizer is not None and frame is not None
    special, fast = special_of(tokenizer, "this model"), copy(tokenizer.ready)
    pieces, named = [], {}
    for part, segment in frame.single:
        if part == "a":
            pieces.append(f"$A:{segment}")
            continue
        word = fast.id_to_token(special.need(part))
        pieces.append(f"{word}:{segment}")
        named[word] = special.need(part)
    fast.post_processor = processors.TemplateProcessing(
        single=" ".join(pieces), special_tokens=list(named.items())
    )
    write_text(directory / "tokenizer.json", fast.to_str(pretty=True))
    name = "tokenizer_config.json"
    known = parse_json(tokenizer.files[name], name) if name in tokenizer.files else {}
    inputs = ["input_ids", *["token_type_ids"] * frame.segments, "attention_mask"]
    pad = fast.id_to_token(source.pad_id if special.pad is None else special.pad)
    table = known | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "padding_side": "left" if frame.left else "right",
        "model_input_names": inputs,
        "pad_token": pad,
        "pad_token_type_id": frame.beyond,
    }
    write_text(directory / name, json.dumps(table, indent=2) + "\n")


TARGET = SentenceTransformers()
