"""Vocabularies of every class, made by the libraries that published ones were made with."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "The quick brown fox jumps over the lazy dog. Don't stop!",
    "Hello, world: it's 1,234.5 € — naïve café Übergröße",
    "注意力就是你所需要的一切。我们训练了一个模型。",
    "Привет мир, как дела?",
    "def f(x):\n    return x+1",
    "emoji 😀🎉👩‍👩‍👧",
    "a b  c   d\te",
] * 30 + [f"word{i} thing{i % 7} ``quoted'' {i}, ok" for i in range(300)]


def describe(directory: Path, model_type: str) -> Path:
    (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    return directory


def wordpiece(directory: Path) -> None:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=marks, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    # Lines that str.splitlines() would cut, as in bert-base-chinese, and pieces with capitals.
    pieces[100:100] = ["\u2028", "x\u2028y", "Fox", "É"]
    (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")


def byte_level(directory: Path, marks: list[str]) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=marks,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.model.save(str(directory))


def gpt1(directory: Path) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<unk>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.model.save(str(directory))


def pieces(file: Path, size: int, **options: Any) -> None:
    """Trains a SentencePiece model."""
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=content,
        vocab_size=size,
        minloglevel=2,
        **{"model_type": "unigram"} | options,
    )
    file.write_bytes(content.getvalue())


def marian(directory: Path) -> None:
    """Two models and one table of ids, which lacks a piece and has a language code."""
    table = dict.fromkeys(["</s>", "<unk>"])
    for name, size in (("source.spm", 250), ("target.spm", 300)):
        pieces(directory / name, size, bos_id=-1)
        model = sentencepiece.SentencePieceProcessor(model_proto=(directory / name).read_bytes())
        table |= dict.fromkeys(model.id_to_piece(i) for i in range(model.get_piece_size()))
    del table["▁the"]
    table |= dict.fromkeys([">>de<<", "<pad>"])
    ids = {piece: i for i, piece in enumerate(table)}
    (directory / "vocab.json").write_text(json.dumps(ids))


MARKS = {"roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "gpt2": ["<|endoftext|>"]}


def make(kind: str, directory: Path) -> Path:
    """Writes the files of a published directory, without tokenizer.json and without weights."""
    directory.mkdir()
    match kind:
        case "bert":
            wordpiece(directory)
        case "gpt2" | "roberta":
            byte_level(directory, MARKS[kind])
        case "longformer":
            byte_level(directory, MARKS["roberta"])
        case "openai-gpt":
            gpt1(directory)
        case "t5":
            pieces(directory / "spiece.model", 300, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
        case "xlnet":
            control = "<cls>,<sep>,<pad>,<mask>,<eod>"
            pieces(
                directory / "spiece.model",
                300,
                control_symbols=control,
                user_defined_symbols="<eop>,.,(,)",
            )
        case "llama":
            pieces(
                directory / "tokenizer.model",
                600,
                model_type="bpe",
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
            )
            config = {"tokenizer_class": "LlamaTokenizer"}
            (directory / "tokenizer_config.json").write_text(json.dumps(config))
        case "marian":
            marian(directory)
    return describe(directory, kind)
