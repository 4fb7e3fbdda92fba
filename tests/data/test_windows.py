"""Windows over a passage, worked out by hand, and answers found again at their characters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from regard.core.errors import ConfigError, FormatError
from regard.data.corpus import Special
from regard.data.examples import AnswerSpan, Question
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_classes import bert_pieces
from regard.data.vocabulary import train
from regard.data.windows import (
    QuestionWindows,
    as_text,
    cuts,
    homes,
    locate,
    slide,
    tokens_of,
    trimmed,
)
from regard.models import FAMILIES as CARDS
from tests.data.windowing import collate, cut, encode, to_learn
from tests.refusals import refuses

PIECES = "[PAD] [UNK] [CLS] [SEP] [BOS] a b c d e f q r ##x ' 你 好 世 界".split()
PAD, _, CLS, SEP, BOS = range(5)
SPECIAL = Special(SEP, pad=PAD, unknown=1, start=BOS, cls=CLS, sep=SEP)
TEXTS = [
    "the cat sat on the mat",
    "une café à Besançon",
    "你好世界，世界",
    "well 😀 done",
    "a-b c's",
]
SHORT = replace(CARDS["bert"].passage_format, length=9, stride=2)


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    return Tokenizer(bert_pieces(PIECES))


TRAINED = {
    name: train(kind, TEXTS * 4, vocab_size=None, lower=None, marks=0)
    for name, kind in (("wordpiece", "wordpiece"), ("bytes", "bytes-bpe"), ("unigram", "unigram"))
}


def example(passage: str, *answers: tuple[str, int], impossible: bool = False) -> Question:
    spots = tuple(AnswerSpan(*answer) for answer in answers)
    return Question("q r", passage, spots, impossible, id="one")


def words(tokenizer: Tokenizer, ids: tuple[int, ...]) -> str:
    return " ".join(tokenizer.tokens(list(ids)))


# -- windows by hand


def test_bert_by_hand(pieces: Tokenizer) -> None:
    """Length 9 leaves room for 4 of 6 tokens; windows move by 2."""
    read, missing = cut(example("a b c d e f", ("e f", 8)), pieces, SPECIAL, SHORT)
    assert missing == []
    first, second = read.windows
    assert words(pieces, first.ids) == "[CLS] q r [SEP] a b c d [SEP]"
    assert words(pieces, second.ids) == "[CLS] q r [SEP] c d e f [SEP]"
    assert first.segments == second.segments == (0, 0, 0, 0, 1, 1, 1, 1, 1)
    assert (first.first, first.start, second.first, second.start) == (4, 0, 4, 2)
    # c: min(2, 1) in the first, min(0, 3) in the second; d: min(3, 0) and min(1, 2).
    assert first.fullest == (True, True, True, False)
    assert second.fullest == (False, True, True, True)
    assert (first.answered, first.target) == (False, (0, 0))
    assert (second.answered, second.target) == (True, (6, 7))
    assert read.gold == (4, 5)
    assert second.token(6) == 4
    assert (second.cls, second.question) == (0, (1, 3))


def test_xlnet_by_hand(pieces: Tokenizer) -> None:
    layout = replace(CARDS["xlnet"].passage_format, length=9, stride=2)
    read, _ = cut(example("a b c d e f", ("e f", 8)), pieces, SPECIAL, layout)
    first, second = read.windows
    assert words(pieces, first.ids) == "a b c d [SEP] q r [SEP] [CLS]"
    assert first.segments == (0, 0, 0, 0, 0, 1, 1, 1, 2)
    assert (first.cls, first.first, first.question, first.target) == (8, 0, (5, 7), (8, 8))
    assert second.target == (2, 3)
    batch = collate([first], PAD, layout.beyond, length=11)
    assert batch["segments"][0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 3, 3]
    assert batch["ids"][0, 9:].tolist() == [PAD, PAD]
    assert batch["eligible"][0].nonzero()[0].tolist() == [0, 1, 2, 3, 8]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("bert", "[CLS] q r [SEP] a b [SEP]"),
        ("xlnet", "a b [SEP] q r [SEP] [CLS]"),
        ("longformer", "[CLS] q r [SEP] [SEP] a b [SEP]"),
        ("gpt", "[BOS] q r [SEP] a b [CLS]"),
    ],
)
def test_layouts(pieces: Tokenizer, name: str, form: str) -> None:
    read, _ = cut(example("a b", ("b", 2)), pieces, SPECIAL, CARDS[name].passage_format)
    (window,) = read.windows
    assert words(pieces, window.ids) == form
    assert form.split()[window.target[0]] == "b"
    assert form.split()[window.cls] == "[CLS]"
    assert window.ids[slice(*window.question)] == (PIECES.index("q"), PIECES.index("r"))


def test_published_numbers() -> None:
    bert, xlnet, long = (CARDS[name].passage_format for name in ("bert", "xlnet", "longformer"))
    assert (bert.length, bert.stride, bert.question, bert.answer) == (384, 128, 64, 30)
    assert (xlnet.length, xlnet.stride, xlnet.question, xlnet.answer) == (512, 128, 64, 64)
    assert (long.length, long.question, long.answer) == (4096, 55, 30)


def test_windows_move_by_half_their_room_at_most(pieces: Tokenizer) -> None:
    """Else a token at the rim of its only window would lack half of what stands around it."""
    for stride, starts in ((1, [0, 1, 2]), (3, [0, 2]), (100, [0, 2])):
        read, _ = cut(example("a b c d e f"), pieces, SPECIAL, replace(SHORT, stride=stride))
        assert [window.start for window in read.windows] == starts
    passage = " ".join("abcdef"[i % 6] for i in range(9000))
    read, _ = cut(example(passage), pieces, SPECIAL, CARDS["longformer"].passage_format)
    assert [window.start for window in read.windows] == [0, 2045, 4090, 6135]
    tight = replace(SHORT, length=6)  # room for one token
    read, _ = cut(example("a b c"), pieces, SPECIAL, tight)
    assert [window.start for window in read.windows] == [0, 1, 2]


def test_maximum_context_of_the_authors() -> None:
    """The example in run_squad.py: "bought" has min(1, 3) in span C, min(4, 0) in span B."""
    passage = "the man went to the store and bought a gallon of milk".split()
    spans = slide(len(passage), 5, 3)
    assert spans == [(0, 5), (3, 5), (6, 5), (9, 3)]
    assert homes(spans, len(passage))[passage.index("bought")] == 2


def test_slide() -> None:
    assert slide(4, 4, 2) == [(0, 4)]
    assert slide(5, 4, 2) == [(0, 4), (2, 3)]
    assert slide(9, 4, 100) == [(0, 4), (4, 4), (8, 1)]  # never a gap
    assert slide(0, 4, 2) == [(0, 0)]
    with refuses(ConfigError, "4 tokens", "by 0"):
        slide(5, 4, 0)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 15))
def test_every_token_has_one_home(count: int, room: int, stride: int) -> None:
    spans = slide(count, room, stride)
    best = homes(spans, count)
    for token in range(count):
        context = {
            i: min(token - s, s + n - 1 - token) + 0.01 * n
            for i, (s, n) in enumerate(spans)
            if s <= token < s + n
        }
        assert best[token] == max(context, key=context.__getitem__)  # the first of equals


def test_long_question_is_cut(pieces: Tokenizer) -> None:
    questions = replace(example("a b"), question=" ".join("q" * 70))
    read, _ = cut(questions, pieces, SPECIAL, CARDS["bert"].passage_format)
    (window,) = read.windows
    assert window.question == (1, 65)


def test_no_room_and_no_role(pieces: Tokenizer) -> None:
    with refuses(ConfigError, "length of 5", "question of 2"):
        cut(example("a b"), pieces, SPECIAL, replace(SHORT, length=5))
    with refuses(FormatError, "'cls'"):
        cut(example("a b"), pieces, Special(SEP, sep=SEP), CARDS["bert"].passage_format)


def test_empty_passage(pieces: Tokenizer) -> None:
    read, missing = cut(example(" ", ("a", 0)), pieces, SPECIAL, SHORT)
    (window,) = read.windows
    assert words(pieces, window.ids) == "[CLS] q r [SEP] [SEP]"
    assert window.count == 0
    assert len(missing) == 1


# -- gold answers


def test_windows_to_learn(pieces: Tokenizer) -> None:
    """1.1 keeps what holds the answer, 2.0 all; what was not found is in neither."""
    passage = "a b c d e f"
    questions = [
        example(passage, ("e f", 8)),
        example(passage, impossible=True),
        example(passage, ("z", 3)),
        example(passage),  # nobody knows
    ]
    expected = list(cuts(questions, pieces, SPECIAL, SHORT))
    reads, missing = [read for read, _ in expected], [lost for _, some in expected for lost in some]
    assert [len(read.windows) for read in reads] == [2, 2, 2, 2]
    assert [window.target for window in to_learn(reads, refuse=False)] == [(6, 7)]
    targets = [window.target for window in to_learn(reads, refuse=True)]
    assert targets == [(0, 0), (6, 7), (0, 0), (0, 0)]
    (lost,) = missing
    assert str(lost).startswith("one: the answer 'z' is not at character 3, where the passage ")


def test_second_answer_serves(pieces: Tokenizer) -> None:
    read, missing = cut(example("a b c", ("c", 0), ("b", 2)), pieces, SPECIAL, SHORT)
    assert read.gold == (1, 1)
    assert [lost.answer.text for lost in missing] == ["c"]


@pytest.mark.parametrize(
    ("passage", "text", "start", "expected"),
    [
        ("a b c", "b", 2, "b"),
        ("a b c", " b ", 2, "b"),
        ("a b c", " b", 1, "b"),
        ("a b c", "b", 1, "b"),  # the offset points at the space before
        ("a  b\nc", "b c", 3, "b\nc"),
        ("a b\u00a0\u3000c", "b c", 2, "b\u00a0\u3000c"),
        ("你好世界", "世界", 2, "世界"),
        ("a.b", ".b", 1, ".b"),  # not a pattern
        ("a b c", "b", 0, None),
        ("a b c", "b", 4, None),
        ("a b c", "b", -3, None),
        ("a b c", "b", 99, None),
        ("a b c", "  ", 1, None),
        ("a bc", "b c", 2, None),
    ],
)
def test_locate(passage: str, text: str, start: int, expected: str | None) -> None:
    place = locate(passage, AnswerSpan(text, start))
    assert (passage[slice(*place)] if place else None) == expected


def test_answer_inside_of_a_token(pieces: Tokenizer) -> None:
    """ "ax" is a ##x: the x is found in its own token; in [UNK] the whole word has to do."""
    read, _ = cut(example("b ax zzz", ("x", 3)), pieces, SPECIAL, SHORT)
    assert read.gold == (2, 2)
    read, _ = cut(example("b ax zzz", ("z", 6)), pieces, SPECIAL, SHORT)
    assert read.gold is not None
    assert text_of(read, *read.gold) == "zzz"


def test_answer_without_a_token(pieces: Tokenizer) -> None:
    read, missing = cut(example("a \x01 b", ("\x01", 2)), pieces, SPECIAL, SHORT)
    assert read.gold is None
    assert len(missing) == 1


def test_offsets_of_bytes() -> None:
    """The four bytes of an emoji all stand for it, and no piece has its space."""
    passage = "well  🦉 你"
    ids, offsets = encode(TRAINED["bytes"], passage)
    assert len(ids) == len(offsets)
    assert {passage[a:b] for a, b in offsets if "🦉" in passage[a:b]} == {"🦉"}
    inside = tokens_of(offsets, passage.index("🦉"), passage.index("🦉") + 1)
    assert inside is not None and inside[1] > inside[0]
    assert all(passage[a:b].strip() in (passage[a:b], "") for a, b in offsets)


def test_trimmed() -> None:
    assert trimmed(" ab ", 0, 4) == (1, 3)
    assert trimmed("a  b", 1, 3) == (1, 3)


def text_of(read: QuestionWindows, first: int, last: int) -> str:
    return read.example.passage[slice(*read.characters(first, last))]


LETTERS = "abctheé -'.,\n\t\u00a0你好世界，😀🦉ﬁÀ"
PASSAGES = st.text(alphabet=LETTERS, min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(passage=PASSAGES, data=st.data())
@pytest.mark.parametrize("kind", TRAINED)
def test_answers_come_back(kind: str, passage: str, data: st.DataObject) -> None:
    """An answer that ends where tokens do is found again exactly, in every window that holds it."""
    _, offsets = encode(TRAINED[kind], passage)
    assume(offsets)
    first = data.draw(st.integers(0, len(offsets) - 1))
    last = data.draw(st.integers(first, min(len(offsets) - 1, first + 5)))
    begin, end = offsets[first][0], offsets[last][1]
    text = passage[begin:end]
    assume(text.strip())
    # A lone ▁ before the text has its first character as its own; the next token has it as well.
    assume(not any(left < x < right for left, right in offsets for x in (begin, end)))
    layout = replace(SHORT, length=20, stride=data.draw(st.integers(1, 15)), question=2)
    read, missing = cut(example(passage, (text, begin)), TRAINED[kind], SPECIAL, layout)
    assert missing == []
    assert read.gold is not None
    assert text_of(read, *read.gold) == text.strip()
    holding = [window for window in read.windows if window.answered]
    size = read.gold[1] - read.gold[0] + 1
    room = layout.length - 5
    if size <= room - layout.stride + 1:  # windows overlap by so much that one holds it
        assert holding
    for window in read.windows:
        whole = window.start <= read.gold[0] and read.gold[1] < window.start + window.count
        assert window.answered == whole
    for window in holding:
        assert text_of(read, *map(window.token, window.target)) == text.strip()


@settings(max_examples=150, deadline=None)
@given(passage=PASSAGES, data=st.data())
@pytest.mark.parametrize("kind", ["bytes", "unigram"])
def test_any_characters_are_covered(kind: str, passage: str, data: st.DataObject) -> None:
    """Up to token boundaries: no token too many, none too few."""
    begin = data.draw(st.integers(0, len(passage) - 1))
    end = data.draw(st.integers(begin + 1, len(passage)))
    place = locate(passage, AnswerSpan(passage[begin:end], begin))
    assume(place is not None)
    assert place is not None
    read, _ = cut(
        example(passage, (passage[begin:end], begin)),
        TRAINED[kind],
        SPECIAL,
        CARDS["bert"].passage_format,
    )
    assert read.gold is not None
    first, last = read.gold
    left, right = read.characters(first, last)
    assert left <= place[0] and place[1] <= right
    assert read.offsets[first][1] > place[0] and read.offsets[last][0] < place[1]


# -- batches and text


def test_collate(pieces: Tokenizer) -> None:
    questions = [example("a b c d e f", ("e f", 8)), example("a", ("a", 0))]
    reads = [read for read, _ in cuts(questions, pieces, SPECIAL, SHORT)]
    batch = collate(to_learn(reads, refuse=False), PAD)
    assert batch["ids"].shape == (2, 9)
    assert batch["attention_mask"].sum(1).tolist() == [9, 6]
    assert batch["passage"].sum(1).tolist() == [4, 1]
    assert batch["fullest"].sum(1).tolist() == [3, 1]
    assert batch["question"][1].nonzero()[0].tolist() == [1, 2]
    assert batch["start"].tolist() == [6, 4]
    assert batch["end"].tolist() == [7, 4]
    np.testing.assert_array_equal(batch["ids"] != PAD, batch["attention_mask"])


def test_as_text() -> None:
    assert as_text("Who?", "A man.") == "question: Who? context: A man."
