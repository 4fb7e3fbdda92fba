"""Tokenizers in GGUF files: which of ours llama.cpp can express, and how they are written.

llama.cpp does not store the rule that splits a text into words: it has a list of names. The rule of
a tokenizer must be one of them exactly; a similar one would give other ids for some texts.
"""

from __future__ import annotations

import json
from typing import Any

from regard.exports.base import ExportSource

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False}
# llama.cpp's name -> (the pre-tokenizer of tokenizer.json, whether whole words skip the merges)
RULES: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "gpt-2": ([BYTES | {"use_regex": True}], False),
    "smollm": ([{"type": "Digits", "individual_digits": True}, BYTES | {"use_regex": True}], False),
    "llama-bpe": (
        [
            {
                "type": "Split",
                "pattern": {"Regex": LLAMA3},
                "behavior": "Isolated",
                "invert": False,
            },
            BYTES | {"use_regex": False},
        ],
        True,
    ),
}
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5  # types of entries
ROLES = {"start": "bos", "end": "eos", "unknown": "unk", "pad": "pad", "sep": "sep", "cls": "cls",
         "mask": "mask"}  # fmt: skip


def described(source: ExportSource) -> dict[str, Any]:
    """Returns tokenizer.json as it is computed with."""
    assert source.tokenizer is not None
    table: dict[str, Any] = json.loads(source.tokenizer.ready.to_str())
    return table


def rule_of(table: dict[str, Any]) -> str | None:
    """Returns llama.cpp's name for a byte-level BPE, or None."""
    model, before = table["model"], table["pre_tokenizer"]
    plain = (
        model["type"] == "BPE"
        and table["normalizer"] is None
        and not any(model.get(key) for key in ("end_of_word_suffix", "continuing_subword_prefix",
                                               "byte_fallback", "dropout"))
    )  # fmt: skip
    if not plain or before is None:
        return None
    parts = before["pretokenizers"] if before["type"] == "Sequence" else [before]
    parts = [{k: v for k, v in part.items() if k != "trim_offsets"} for part in parts]
    for name, (rule, whole) in RULES.items():
        if parts == rule and bool(model.get("ignore_merges")) == whole:
            return name
    return None


def is_wordpiece(table: dict[str, Any]) -> bool:
    """Returns whether it is BERT's uncased WordPiece: llama.cpp lowers and strips accents."""
    before, normalizer = table["pre_tokenizer"] or {}, table["normalizer"] or {}
    return (
        table["model"]["type"] == "WordPiece"
        and table["model"]["continuing_subword_prefix"] == "##"
        and before.get("type") == "BertPreTokenizer"
        and normalizer.get("type") == "BertNormalizer"
        and normalizer["lowercase"]
        and normalizer["strip_accents"] is not False
        and normalizer["handle_chinese_chars"]
    )


def why_not(source: ExportSource) -> str | None:
    """Returns why a GGUF file cannot hold the tokenizer, or None if it can."""
    if source.tokenizer is None or source.tokenizer.fast is None:
        return "a GGUF file holds its tokenizer, and this model has none that opens"
    if source.tokenizer.target_side is not None:
        return "it has two tokenizers, and a GGUF file holds one"
    table = described(source)
    if rule_of(table) is None and not is_wordpiece(table):
        return (
            f"llama.cpp has no name for the splitting rule of its {table['model']['type']} "
            "tokenizer; train one with 'regard prepare --tokenizer gpt2-bpe', and the model with it"
        )
    return None


def tokenizer_fields(writer: Any, source: ExportSource) -> None:
    """Writes the vocabulary, the merges, the special tokens and the name of the rule."""
    table = described(source)
    words, added = source.words(), {token["id"] for token in table["added_tokens"]}
    used = {i for _, i in source.tokenizer.ready.get_vocab().items()}  # type: ignore[union-attr]
    special = source.special()
    types = []
    for i in range(len(words)):
        kind = UNKNOWN if i == special.get("unknown") else CONTROL if i in added else NORMAL
        types.append(kind if i in used else UNUSED)
    if is_wordpiece(table):
        writer.add_tokenizer_model("bert")
        writer.add_tokenizer_pre("default")
        words = [w if i in added or i not in used else phantom(w) for i, w in enumerate(words)]
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(rule_of(table) or "")
        merges = table["model"]["merges"]
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_token_list(words)
    writer.add_token_types(types)
    add_special(writer, source, special)


def phantom(word: str) -> str:
    """Returns a piece as llama.cpp has it: `▁` begins a word, and nothing a piece inside one."""
    return word[2:] if word.startswith("##") else f"▁{word}"


def add_special(writer: Any, source: ExportSource, special: dict[str, int | None]) -> None:
    """Names the special tokens, and says which are added to a text."""
    encoder = source.kind == "encoder"
    if source.kind == "encoder-decoder":
        special = special | {"end": source.config.eos_id, "pad": source.config.pad_id}
    if encoder and special.get("cls") is not None:
        special = special | {"start": special["cls"], "end": special.get("sep")}
    for role, name in ROLES.items():
        place = special.get(role)
        if place is not None and name != "cls":
            getattr(writer, f"add_{name}_token_id")(place)
    writer.add_add_bos_token(encoder)
    writer.add_add_eos_token(encoder or source.kind == "encoder-decoder")
