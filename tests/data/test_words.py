from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, pre_tokenizers, trainers

from regard.core.errors import ConfigError
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_classes import bert_pieces
from regard.data.vocabulary import KINDS, train
from regard.data.words import WordStarts, byte_alphabet, chinese_cutter, is_unspaced, text_of
from tests.refusals import refuses

TEXT = "the tokenizers' words don't (always) begin, alas, where\nwe think: 1984 words."


def grouped(fast: Fast, text: str, *, chinese: bool = False) -> list[str]:
    """The pieces of each word, joined by |."""
    encoded = fast.encode(text, add_special_tokens=False)
    ids = np.array(encoded.ids)
    begins = WordStarts(Tokenizer(fast), fast.get_vocab_size(), chinese=chinese).begins(ids)
    words: list[str] = []
    for piece, begin in zip(encoded.tokens, begins.tolist(), strict=True):
        if begin or not words:
            words.append(piece)
        else:
            words[-1] += "|" + piece
    return words


def byte_level(entries: list[str]) -> Fast:
    merges: list[tuple[str, str]] = []
    table = {letter: i for i, letter in enumerate(byte_alphabet())}
    for entry in entries:
        for end in range(2, len(entry) + 1):
            if entry[:end] not in table:
                table[entry[:end]] = len(table)
                merges.append((entry[: end - 1], entry[end - 1]))
    fast = Fast(models.BPE(table, merges))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    return fast


def pieces_of(*entries: str) -> Fast:
    return bert_pieces(["[UNK]", "[CLS]", "[SEP]", *entries])


def metaspace(*names: str) -> Fast:
    fast = Fast(models.Unigram([(name, -1.0) for name in ("<unk>", *names)], unk_id=0))
    fast.pre_tokenizer = pre_tokenizers.Metaspace()
    return fast


def marked_metaspace() -> Fast:
    fast = metaspace(*"<sep> ▁the ▁to ken s ' t , ▁don ( 中 文".split())
    fast.add_special_tokens(["<sep>"])
    return fast


def ends_of_words() -> Fast:
    names = ["<unk>", "t", "h", "e", "e</w>", "th", "the</w>", "x</w>"]
    merges = [("t", "h"), ("th", "e</w>")]
    table = {n: i for i, n in enumerate(names)}
    fast = Fast(models.BPE(table, merges, unk_token="<unk>", end_of_word_suffix="</w>"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.add_special_tokens(["<unk>"])
    return fast


def word_level(cut: pre_tokenizers.PreTokenizer) -> Fast:
    fast = Fast(models.WordLevel(unk_token="<unk>"))
    fast.pre_tokenizer = cut
    fast.train_from_iterator([TEXT, "中文"], trainers.WordLevelTrainer(special_tokens=["<unk>"]))
    return fast


WHOLE = word_level(pre_tokenizers.WhitespaceSplit())
CHARACTERS = word_level(pre_tokenizers.Split("", "isolated"))


@pytest.mark.parametrize(
    ("fast", "text", "words"),
    [
        (
            pieces_of("un", "##afford", "##able", "the", ",", "is"),
            "the unaffordable, unable is",
            ["the", "un|##afford|##able", ",", "un|##able", "is"],
        ),
        (
            byte_level(["don", "'t", "Ġ(", "alw", "ays", "Ġthe"]),
            "don't (always)\nthe the",
            ["don|'t", "Ġ(", "alw|ays", ")", "Ċ", "t|h|e", "Ġthe"],
        ),
        (byte_level([]), "ab c.d", ["a|b", "Ġ", "c", ".", "d"]),  # raw bytes: by their letters
        (
            marked_metaspace(),
            "the tokens, don't<sep>tokens(中文",
            ["▁the", "▁to|ken|s", ",", "▁don|'|t", "<sep>", "▁to|ken|s", "(", "中", "文"],
        ),
        (ends_of_words(), "the hthe x", ["the</w>", "h|the</w>", "x</w>"]),
        (WHOLE, "the words think:", ["the", "words", "think:"]),
        (CHARACTERS, "don't be, 中文", ["d|o|n|'|t", " ", "b|e", ",", " ", "中", "文"]),
        (CHARACTERS, "中19文be", ["中", "1|9", "文", "b|e"]),
    ],
)
def test_words_by_hand(fast: Fast, text: str, words: list[str]) -> None:
    assert grouped(fast, text) == words


def test_a_chinese_character_is_of_one_word_even_where_its_bytes_are_apart() -> None:
    words = grouped(byte_level([]), "go 中文")
    assert [word.count("|") + 1 for word in words] == [2, 1, 3, 3]


def test_special_tokens_stand_alone() -> None:
    fast = pieces_of("a", "##b")
    fast.add_special_tokens(["[SEP]"])
    begins = WordStarts(Tokenizer(fast), 6).begins(np.array([4, 3, 4, 2, 4, 5]))
    # a ## at the very front does not begin, one behind [SEP] does, an id without a piece does
    assert begins.tolist() == [False, True, False, True, True, True]


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_tokenizers(kind: str) -> None:
    """Whatever cuts words into pieces, the pieces of a word spell it."""
    texts = ["the cats sat on the mats and the rats ran to the cat's mat"] * 3
    fast = train(kind, texts, vocab_size=None, lower=None, marks=2).ready
    words = grouped(fast, "the rats sat on mats")
    spelled = [re.sub("##|▁|Ġ|</w>|[|]", "", word).strip() for word in words]
    assert [word for word in spelled if word] == ["the", "rats", "sat", "on", "mats"]


@pytest.mark.parametrize("letter", [*"中ひカไaé한яั ", ""])
def test_scripts_without_spaces(letter: str) -> None:
    """Marks upon letters are of no script."""
    assert is_unspaced(letter) == (letter != "" and letter in "中ひカไ")


def test_bytes_as_letters_are_those_of_gpt2() -> None:
    letters = byte_alphabet()
    assert sorted(letters.values()) == list(range(256))
    assert (letters["Ġ"], letters["Ċ"], letters["A"]) == (0x20, 0x0A, 0x41)
    assert text_of("Ġcaf" + "Ã©") == " café"


class TestChinese:
    TEXT = "自然语言处理很重要"  # jieba: 自然语言 处理 很 重要

    @pytest.fixture(autouse=True)
    def _needs_jieba(self) -> None:
        pytest.importorskip("jieba")

    def test_characters_of_a_word_belong_together(self) -> None:
        fast = pieces_of(*self.TEXT, "ok", "##ay")
        words = grouped(fast, self.TEXT + " okay", chinese=True)
        assert words == ["自|然|语|言", "处|理", "很", "重|要", "ok|##ay"]

    def test_without_it_each_character_is_a_word(self) -> None:
        fast = pieces_of(*self.TEXT)
        assert grouped(fast, self.TEXT) == list(self.TEXT)

    def test_broken_characters(self) -> None:
        words = grouped(byte_level([]), self.TEXT, chinese=True)
        assert [word.count("|") + 1 for word in words] == [12, 6, 3, 6]

    def test_pieces_with_a_space_in_front(self) -> None:
        fast = metaspace("▁自", "然", "语言", "处理", "▁")
        words = grouped(fast, "自然语言处理 自然语言", chinese=True)
        assert words == ["▁自|然|语言", "处理", "▁自|然|语言"]

    def test_a_word_does_not_reach_over_a_special_token(self) -> None:
        fast = pieces_of(*self.TEXT)
        fast.add_special_tokens(["[SEP]"])
        assert grouped(fast, "自然[SEP]语言", chinese=True) == ["自|然", "[SEP]", "语|言"]


def test_jieba_is_asked_for_only_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    with refuses(ConfigError, "jieba", "pip install regard[chinese]", "whole_words"):
        chinese_cutter.__wrapped__()
    WordStarts(Tokenizer(bert_pieces(["[UNK]", "a"])), 2)
