"""Marian's tokenizer: two SentencePiece models, one for each language, and one table of ids.

No tokenizer.json can express it: the pieces of two models share the ids of vocab.json, and a piece
that vocab.json lacks is unknown. So the sentencepiece library cuts the texts here, behind the same
methods that the tokenizers library has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from regard.core.errors import FormatError
from regard.core.files import parse_json
from regard.data.tokenizer_classes import MARIAN, class_of, from_vocab_files
from regard.data.vocab_files import VocabFiles, declared, str_of

ROLES = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
CODE = re.compile(r">>.*?<<", re.DOTALL)  # names the target language, first in a source


@dataclass
class Pieces:
    """An encoded text, with the attributes of the tokenizers library's Encoding (but no offsets,
    which transformers does not have for Marian either)."""

    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    @property
    def attention_mask(self) -> list[int]:
        return [1] * len(self.ids)

    @property
    def type_ids(self) -> list[int]:
        return [0] * len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


class Marian:
    """Stands where the tokenizers library has the model of a tokenizer; its name is told."""


class MarianSide:
    """One language of a Marian tokenizer, with the methods of the tokenizers library."""

    normalizer = pre_tokenizer = None
    model = Marian()

    def __init__(
        self, vocab: dict[str, int], source: Any, cutter: Any, roles: dict[str, str]
    ) -> None:
        self.vocab, self.source, self.cutter, self.roles = vocab, source, cutter, roles
        self.words = {i: word for word, i in vocab.items()}
        self.special = {vocab[word] for word in roles.values()}
        longest_first = sorted(roles.values(), key=len, reverse=True)
        self.marks = re.compile("|".join(map(re.escape, longest_first)))
        self.encode_special_tokens = False
        self.limit: int | None = None

    def encode(self, text: str, pair: str | None = None, add_special_tokens: bool = True) -> Pieces:
        """Encodes a text, or a text and one that follows it; one end token closes both."""
        result = Pieces()
        for part in (text,) if pair is None else (text, pair):
            self.extend(result, part)
        room = None if self.limit is None else max(self.limit - add_special_tokens, 0)
        for column in (result.ids, result.tokens):
            del column[len(column) if room is None else room :]
        if add_special_tokens:
            self.put(result, self.roles["eos_token"])
        return result

    def extend(self, result: Pieces, text: str) -> None:
        start = 0
        for mark in () if self.encode_special_tokens else self.marks.finditer(text):
            self.cut(result, text[start : mark.start()])
            self.put(result, mark[0])
            start = mark.end()
        self.cut(result, text[start:])

    def cut(self, result: Pieces, text: str) -> None:
        """Cuts a text without special tokens; a language code in front of it is one token."""
        code = CODE.match(text)
        if code:
            self.put(result, code[0])
            text = text[code.end() :]
        for piece in self.cutter.encode(text, out_type=str):
            self.put(result, piece)

    def put(self, result: Pieces, token: str) -> None:
        result.ids.append(self.vocab.get(token, self.vocab[self.roles["unk_token"]]))
        result.tokens.append(token)

    def encode_batch(
        self, inputs: Sequence[str | tuple[str, str]], add_special_tokens: bool = True
    ) -> list[Pieces]:
        pairs = [(each, None) if isinstance(each, str) else each for each in inputs]
        return [self.encode(text, pair, add_special_tokens) for text, pair in pairs]

    encode_batch_fast = encode_batch

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Joins pieces into a text by the source's model, as transformers does for both sides."""
        text, pieces = "", []
        for i in ids:
            if i not in self.special:
                pieces.append(self.words.get(i, self.roles["unk_token"]))
            elif not skip_special_tokens:
                text += self.source.decode_pieces(pieces) + self.words[i] + " "
                pieces = []
        return (text + self.source.decode_pieces(pieces)).replace("▁", " ").strip()

    def token_to_id(self, token: str) -> int | None:
        return self.vocab.get(token)

    def id_to_token(self, number: int) -> str | None:
        return self.words.get(number)

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        return dict(self.vocab)

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        return len(self.vocab)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        return {i: AddedToken(self.words[i], special=True) for i in self.special}

    def to_str(self, pretty: bool = False) -> str:
        raise FormatError(
            "the tokenizer of a Marian has two SentencePiece models, which no tokenizer.json can "
            "express; this step needs one. Train a tokenizer of your own with regard prepare"
        )

    def enable_truncation(self, max_length: int) -> None:
        self.limit = max_length

    def no_truncation(self) -> None:
        self.limit = None

    def no_padding(self) -> None:
        """It never pads."""


def marian(source: VocabFiles) -> tuple[Any, Any, dict[str, bytes]]:
    """Builds the tokenizers of the source and of the target language. Returns them, and the files
    with a tokenizer_config.json that names the class."""
    if source.option("separate_vocabs", False):
        raise FormatError(
            "separate_vocabs is true; a Marian with two vocabularies is not supported"
        )
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise FormatError(
            "source.spm is a SentencePiece file; pip install sentencepiece to read it"
        ) from None
    source.path("vocab.json")
    vocab = parse_json(source.files["vocab.json"], "vocab.json", error=FormatError)
    if not all(isinstance(i, int) for i in vocab.values()):
        raise FormatError("vocab.json must map every token to its id, a whole number")
    roles = {k: str_of(v) for k, v in source.named(dict(ROLES)).items() if k in ROLES}
    for role, word in roles.items():
        if word not in vocab:
            raise FormatError(f"{role} is {word!r}, which vocab.json lacks")
    cutters = []
    for name in ("source.spm", "target.spm"):
        source.path(name)
        cutters.append(SentencePieceProcessor(model_proto=source.files[name]))
    one, two = (MarianSide(vocab, cutters[0], cutter, roles) for cutter in cutters)
    config = declared(source, MARIAN, {**roles})
    return one, two, source.files | {"tokenizer_config.json": config}


def from_older_files(directory: Path, files: dict[str, bytes]) -> tuple[Any, Any, dict[str, bytes]]:
    """Builds the tokenizer of a directory without tokenizer.json, and that of the target language
    where it is another. Returns both, and the files that make them open again."""
    source = VocabFiles.read(directory, files)
    name = class_of(source)
    if name == MARIAN:
        return marian(source)
    fast, files = from_vocab_files(source, name)
    return fast, None, files
