"""Finds the tokens that begin a word, for every kind of tokenizer.

Two bits per token are enough: does it open a word whatever came before it, and does whatever comes
after it open one? Special tokens do both. In scripts without spaces (Chinese, Japanese, Thai, …)
every character is a word, unless jieba finds the words of Chinese.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from regard.core.errors import ConfigError
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import byte_letters

# From XLNet's `_is_start_piece`; without the apostrophe, so that "don't" is one word
PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
UNSPACED = (  # first and last code points
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF),  # Thai, Lao; Myanmar; Khmer
    (0x3005, 0x3007), (0x3040, 0x30FF), (0x31F0, 0x31FF),  # kana
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF),  # ideographs
)  # fmt: skip
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
STRAY = 0xDC00  # Python's "surrogateescape" writes a byte of a broken character as STRAY + byte
LEADS = (*range(0xE3, 0xEA), 0xF0)  # first bytes of ideographs and kana (and emoji) only


class WordStarts:
    """Finds the word beginnings in token ids.

    >>> WordStarts(corpus.tokenizer, corpus.vocab_size).begins(corpus.read(0, 512))
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, *, chinese: bool = False) -> None:
        facts = json.loads(tokenizer.ready.to_str())
        special = {token["id"] for token in facts["added_tokens"]}
        pieces = tokenizer.ready.get_vocab(with_added_tokens=False)
        pieces = {piece: i for piece, i in pieces.items() if i < vocab_size and i not in special}
        judge, surface = kind(facts, list(pieces))
        self.opens = np.ones(vocab_size, np.bool_)
        self.closes = np.ones(vocab_size, np.bool_)
        self.unspaced = np.zeros(vocab_size, np.bool_)
        self.surfaces = [b" "] * vocab_size if chinese else []
        self.cut = chinese_cutter() if chinese else None
        for piece, i in pieces.items():
            self.opens[i], self.closes[i] = judge(piece)
            if chinese:
                text = surface(piece)
                self.surfaces[i] = text.encode("utf-8", "surrogateescape")
                self.unspaced[i] = is_unspaced(text.strip()[:1])

    def begins(self, ids: np.ndarray) -> np.ndarray:
        """Tells for each id whether it is the first of its word; the very first id by its own bit
        alone."""
        first: np.ndarray = self.opens[ids]
        first[1:] |= self.closes[ids[:-1]]
        if self.cut is not None and self.unspaced[ids].any():
            first = np.where(self.unspaced[ids], self.cuts(ids), first)
        return first

    def cuts(self, ids: np.ndarray) -> np.ndarray:
        """Tells for each id whether a word of jieba's begins with it (after the spaces it begins
        with)."""
        assert self.cut is not None
        parts = [self.surfaces[i] for i in ids.tolist()]
        text = b"".join(parts).decode("utf-8", "surrogateescape")
        words = [len(word.encode("utf-8", "surrogateescape")) for word in self.cut(text)]
        begun = np.zeros(sum(words) + 1, np.int64)
        begun[np.cumsum([0, *words])] = 1
        before = np.concatenate([[0], begun.cumsum()])  # words begun before each byte
        ends = np.cumsum([len(part) for part in parts])
        spaces = np.array([len(part) - len(part.lstrip()) for part in parts])
        starts = ends - [len(part) for part in parts]
        return np.asarray(before[starts + spaces + 1] > before[starts])


Judge = Callable[[str], tuple[bool, bool]]  # whether a piece opens and closes a word
Surface = Callable[[str], str]  # the text of a piece


def kind(facts: dict[str, Any], pieces: list[str]) -> tuple[Judge, Surface]:
    """Returns how this tokenizer marks words, and the text that a piece of it stands for."""
    model = facts["model"]
    parts = json.dumps([facts["pre_tokenizer"], facts["decoder"]])
    prefix, suffix = model.get("continuing_subword_prefix"), model.get("end_of_word_suffix")
    if suffix:  # GPT-1
        return (
            lambda piece: (False, piece.endswith(suffix)),
            lambda piece: piece.removesuffix(suffix) + " " * piece.endswith(suffix),
        )
    if prefix:  # BERT
        return (
            lambda piece: (not piece.startswith(prefix), False),
            lambda piece: piece.removeprefix(prefix),
        )
    if '"ByteLevel"' in parts:  # GPT-2, RoBERTa; raw bytes
        return lambda piece: edges(text_of(piece)), text_of
    if '"Metaspace"' in parts or any(piece.startswith("▁") for piece in pieces):  # XLNet, T5
        return metaspace, lambda piece: piece.replace("▁", " ")
    if all(len(piece) == 1 for piece in pieces if piece != model.get("unk_token")):
        return edges, str
    return lambda piece: (True, True), str


def metaspace(piece: str) -> tuple[bool, bool]:
    """Judges pieces as XLNet does and, for scripts without spaces, as ALBERT does."""
    opens = piece.startswith(("▁", "<")) or piece in PUNCTUATION or is_unspaced(piece[:1])
    return opens, is_unspaced(piece[-1:])


def edges(text: str) -> tuple[bool, bool]:
    """Judges a token that only spells its text: words are runs of letters and digits."""
    first, last = (not is_inner(at) or is_unspaced(at) for at in (text[:1], text[-1:]))
    return first, last and not is_stray(text[-1:])


def is_inner(character: str) -> bool:
    """Tells whether a character may stand inside a word."""
    if not character:
        return False
    inside = character.isalnum() or character in "_'’"
    return inside or unicodedata.category(character) in ("Mn", "Mc", "Me", "Cs")


def is_stray(character: str) -> bool:
    return bool(character) and STRAY < ord(character) < STRAY + 0x100


def is_unspaced(character: str) -> bool:
    """Tells whether a character belongs to a script without spaces (combining marks excluded)."""
    if not character:
        return False
    code = ord(character)
    if is_stray(character):
        return code - STRAY in LEADS
    inside = any(first <= code <= last for first, last in UNSPACED)
    return inside and not unicodedata.category(character).startswith("M")


@cache
def byte_alphabet() -> dict[str, int]:
    return {letter: byte for byte, letter in enumerate(byte_letters())}


def text_of(piece: str) -> str:
    """Returns the text of a piece in GPT-2's letters; broken characters become lone surrogates."""
    letters = byte_alphabet()
    raw = b"".join(
        bytes([letters[c]]) if c in letters else c.encode("utf-8", "surrogateescape") for c in piece
    )
    return raw.decode("utf-8", "surrogateescape")


@cache
def chinese_cutter() -> Callable[[str], Any]:
    """Returns jieba's segmentation; its dictionary is read on first use."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about old escapes in its patterns
            jieba: Any = import_module("jieba")
    except ImportError:
        raise ConfigError(
            "the words of Chinese are found with jieba, which is not installed; "
            "run 'pip install regard[chinese]', or choose whole_words = \"pieces\""
        ) from None
    jieba.setLogLevel(logging.WARNING)
    cut: Callable[[str], Any] = jieba.cut
    return cut


def words_of(text: str) -> list[str]:
    """Returns words and punctuation; in scripts without spaces each character is a word."""
    return [word for run in WORD.findall(text) for word in without_spaces(run)]


def without_spaces(run: str) -> list[str]:
    """Splits a run of characters so that each character of a script without spaces stands alone."""
    words = [""]
    for character in run:
        if is_unspaced(character):
            words += [character, ""]
        else:
            words[-1] += character
    return [word for word in words if word]
