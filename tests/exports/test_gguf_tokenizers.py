"""Tokenizers that llama.cpp has a name for: it is in the file, and the ids are the same there."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Fast

import regard
from regard.data.builtin import python_docs
from regard.data.special_tokens import add_roles, configuration
from regard.data.tokenizer import Tokenizer
from regard.exports.base import ExportSource
from regard.exports.gguf import FILES, TARGET
from regard.exports.gguf_tokenizer import LLAMA3, described, rule_of, why_not
from regard.exports.run import export_source
from tests.exports.conftest import needs_llama

SIZE = 400
SHAPE: dict[str, Any] = {"width": 32, "heads": 4, "layers": 2, "context": 128}
TEXTS = [text[:3000] for text in python_docs()[:20]]


def byte_level(before: pre_tokenizers.PreTokenizer, whole: bool = False) -> Fast:
    fast = Fast(models.BPE(ignore_merges=whole))
    fast.pre_tokenizer = pre_tokenizers.Sequence([
        before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not whole)
    ])  # fmt: skip
    fast.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=alphabet, show_progress=False)
    )
    return fast


def wordpiece() -> Fast:
    """BERT's uncased one; that of `regard prepare` has bounds that llama.cpp has not."""
    fast = Fast(models.WordPiece(unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    fast.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=names, show_progress=False)
    )
    fast.decoder = decoders.WordPiece()
    return fast


TRAINED = {  # name in the file -> the kind of its special tokens, the model that reads it, itself
    "smollm": ("gpt2-bpe", "llama3-8b",
               lambda: byte_level(pre_tokenizers.Digits(individual_digits=True))),
    "llama-bpe": ("gpt2-bpe", "llama3-8b",
                  lambda: byte_level(pre_tokenizers.Split(Regex(LLAMA3), "isolated"), whole=True)),
    "default": ("wordpiece", "bert-tiny", wordpiece),
}  # fmt: skip


@cache
def source(name: str) -> ExportSource:
    kind, size, make = TRAINED[name]
    fast = make()
    add_roles(fast, kind, 0)
    words = Tokenizer(fast, {
        "tokenizer.json": fast.to_str().encode(),
        "tokenizer_config.json": json.dumps(configuration(kind, 0)).encode(),
    })  # fmt: skip
    more = {"kv_heads": 2, "ffn_size": 64} if size == "llama3-8b" else {"ffn_size": 64}
    model = regard.create(size, **SHAPE | more | {"vocab_size": len(words)})
    return ExportSource(regard.LoadedModel(model.eval(), words))


@pytest.mark.parametrize("name", TRAINED)
def test_the_file_names_the_rule_and_holds_the_tokenizer(name: str, tmp_path: Path) -> None:
    from gguf import GGUFReader

    one = source(name)
    assert why_not(one) is None
    TARGET.convert(one, tmp_path, "fp32")
    fields = GGUFReader(tmp_path / FILES["fp32"][0]).fields
    assert fields["tokenizer.ggml.pre"].contents() == name
    words = fields["tokenizer.ggml.tokens"].contents()
    assert len(words) == one.config.vocab_size
    table = described(one)
    if name == "default":
        assert fields["tokenizer.ggml.model"].contents() == "bert"
        ids = table["model"]["vocab"]
        inside = next(word for word in ids if word.startswith("##"))
        begins = next(word for word in ids if len(word) > 1 and word.isalpha())
        assert words[ids[inside]] == inside[2:] and words[ids[begins]] == f"▁{begins}"
        assert words[ids["[CLS]"]] == "[CLS]"
    else:
        assert rule_of(table) == name and fields["tokenizer.ggml.model"].contents() == "gpt2"
        merges = [" ".join(pair) for pair in table["model"]["merges"]]
        assert fields["tokenizer.ggml.merges"].contents() == merges
        assert all(words[i] == word for word, i in table["model"]["vocab"].items())


@needs_llama
@pytest.mark.parametrize("name", TRAINED)
def test_llama_cpp_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    figures = export_source(source(name), "gguf", tmp_path / "out")["compared"]
    assert figures["tokenizer"].startswith("the same ids")
    assert figures["difference"] <= figures["tolerance"]


def test_a_rule_that_is_only_similar_has_no_name() -> None:
    fast = byte_level(pre_tokenizers.Digits(individual_digits=False))
    add_roles(fast, "gpt2-bpe", 0)
    table = json.loads(fast.to_str())
    assert rule_of(table) is None
    table["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = True
    assert rule_of(table) == "smollm"
    assert rule_of(table | {"normalizer": {"type": "Lowercase"}}) is None
