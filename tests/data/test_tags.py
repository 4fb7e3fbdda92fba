"""Schemes of tags, and their way to sub-tokens and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Fast
from tokenizers import pre_tokenizers

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.tags import (
    IGNORED,
    LETTERS,
    Entity,
    TagWindow,
    align_all,
    cut,
    detect,
    entities,
    labels,
    legal,
    problems,
    repair,
    spaced,
    split,
    write,
)
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_classes import bert_pieces
from regard.data.vocabulary import train
from tests.refusals import Refusal, refuses

PIECES = "[PAD] [UNK] [CLS] [SEP] new york ##er ##s likes a b c 你 好".split()
CLS, SEP = PIECES.index("[CLS]"), PIECES.index("[SEP]")
MARKS = [CLS], [SEP]
BARE: tuple[list[int], list[int]] = [], []


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    return Tokenizer(bert_pieces(PIECES))


@pytest.fixture(scope="module")
def bytes_bpe() -> Tokenizer:
    texts = ["the cat sat on the mat with the other cats"] * 4
    return train("bytes-bpe", texts, vocab_size=None, lower=None, marks=0)


def texts_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return tokenizer.tokens(list(ids))


# -- schemes

WRITTEN = {
    "bio": "B-PER I-PER B-PER O B-LOC B-ORG I-ORG I-ORG",
    "iob1": "I-PER I-PER B-PER O I-LOC I-ORG I-ORG I-ORG",
    "bioes": "B-PER E-PER S-PER O S-LOC B-ORG I-ORG E-ORG",
    "bilou": "B-PER L-PER U-PER O U-LOC B-ORG I-ORG L-ORG",
}
ENTITIES = [("PER", 0, 2), ("PER", 2, 3), ("LOC", 4, 5), ("ORG", 5, 8)]


@pytest.mark.parametrize("scheme", WRITTEN)
def test_the_same_entities(scheme: str) -> None:
    tags = WRITTEN[scheme].split()
    assert entities(tags) == ENTITIES
    assert write(ENTITIES, 8, scheme) == tags
    assert problems(tags, scheme) == []
    assert repair(tags, scheme) == tags
    assert detect([tags, ["O"]]) == scheme
    for other in WRITTEN:
        assert repair(tags, other) == WRITTEN[other].split()


@pytest.mark.parametrize("tag", ["X-PER", "B-", "PER", "", "O-PER", "BI-PER", "o"])
def test_no_tag(tag: str) -> None:
    with refuses(InputError, repr(tag), "no tag"):
        entities([tag])
    assert problems(["O", tag])[0].place == 1


@pytest.mark.parametrize(
    ("scheme", "tags", "places", "mended"),
    [
        ("bio", "I-PER O I-LOC I-LOC", [0, 2], "B-PER O B-LOC I-LOC"),
        ("bio", "B-PER I-LOC", [1], "B-PER B-LOC"),
        ("bio", "B-PER E-PER", [1], "B-PER I-PER"),
        ("iob1", "B-PER O B-LOC", [0, 2], "I-PER O I-LOC"),
        ("iob1", "I-PER B-LOC", [1], "I-PER I-LOC"),
        ("bioes", "B-PER O", [1], "S-PER O"),
        ("bioes", "B-PER I-PER", [2], "B-PER E-PER"),
        ("bioes", "I-PER E-PER S-PER E-PER", [0, 3], "B-PER E-PER S-PER S-PER"),
        ("bioes", "B-PER B-PER E-PER", [1], "S-PER B-PER E-PER"),
        ("bilou", "B-PER L-LOC", [1], "U-PER U-LOC"),
        ("bilou", "B-PER E-PER", [1], "B-PER L-PER"),
    ],
)
def test_broken_tags(scheme: str, tags: str, places: list[int], mended: str) -> None:
    assert [problem.place for problem in problems(tags.split(), scheme)] == places
    assert repair(tags.split(), scheme) == mended.split()


def test_problems_are_named() -> None:
    (step,) = problems(["B-PER", "I-LOC"])
    assert step.message == "I-LOC follows B-PER, which 'bio' forbids"
    (begin,) = problems(["I-LOC"])
    assert "has no tag before it" in begin.message
    (end,) = problems(["O", "B-PER"], "bioes")
    assert end == (2, "the sentence ends after B-PER, inside of an entity")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-B I-B", [("A", 0, 1), ("B", 1, 3)]),
        ("B-A E-A I-A", [("A", 0, 2), ("A", 2, 3)]),
        ("E-A E-A", [("A", 0, 1), ("A", 1, 2)]),
        ("B-A O I-A", [("A", 0, 1), ("A", 2, 3)]),
        ("B-creative-work I-creative-work", [("creative-work", 0, 2)]),
        ("B I O", [("", 0, 2)]),
    ],
)
def test_conlleval_cases(tags: str, expected: list[Entity]) -> None:
    """conlleval.pl: a change of type begins an entity, and so does I after E."""
    assert entities(tags.split()) == expected


def test_detect() -> None:
    assert detect([]) == "bio"
    assert detect([["O", "O"]]) == "bio"
    assert detect([["I-PER", "O", "I-LOC"], ["O", "I-LOC"]]) == "iob1"
    # One slip does not turn a file over.
    assert detect([["B-PER", "O", "B-LOC"], ["O", "I-LOC"]]) == "bio"
    assert detect([["B-PER", "?"], ["S-LOC"]]) == "bioes"


@pytest.mark.parametrize(
    ("work", "refusal"),
    [
        (lambda: detect([["B-PER", "L-PER", "S-LOC"]]), (InputError, "L, S")),
        (lambda: write([], 0, "bioe"), (UnknownName, "'bioe'", "'bioes'")),
        (lambda: legal(None, "O", "iobes2"), (UnknownName, "'iobes2'")),
        (lambda: write([("A", 0, 2), ("B", 1, 3)], 4), (InputError, "entity 'B'", "1 to 3")),
        (lambda: write([("A", 1, 1)], 4), (InputError, "entity 'A'", "1 to 1")),
        (lambda: write([("A", 2, 9)], 4), (InputError, "entity 'A'", "2 to 9", "4 words")),
    ],
)
def test_what_is_refused(work: Callable[[], object], refusal: Refusal) -> None:
    with refuses(*refusal):
        work()


def test_letters_and_types() -> None:
    assert split("B-creative-work") == ("B", "creative-work")
    assert labels(["PER", "LOC", "PER"]) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert len(labels(["PER", "LOC"], "bilou")) == 9


@st.composite
def sentence_entities(draw: st.DrawFn) -> tuple[list[Entity], int]:
    spans: list[Entity] = []
    at = 0
    for gap, size, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("AB")), max_size=5)
    ):
        spans.append((kind, at + gap, at + gap + size))
        at += gap + size
    return spans, at + draw(st.integers(0, 2))


@settings(deadline=None)
@given(sentence_entities(), st.sampled_from(sorted(LETTERS)))
def test_round_trip(spans: tuple[list[Entity], int], scheme: str) -> None:
    tags = write(*spans, scheme)
    assert entities(tags) == spans[0]
    assert problems(tags, scheme) == []
    assert repair(tags, scheme) == tags


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["O", *(f"{x}-{t}" for x in "BIESLU" for t in "AB")]), max_size=8),
    st.sampled_from(sorted(LETTERS)),
)
def test_repair_is_legal_and_keeps_entities(tags: list[str], scheme: str) -> None:
    mended = repair(tags, scheme)
    assert problems(mended, scheme) == []
    assert entities(mended) == entities(tags)
    if not problems(tags, scheme):
        assert mended == tags


@settings(deadline=None)
@given(st.lists(st.sampled_from(["O", *(f"{x}-{t}" for x in "BIES" for t in "AB")]), max_size=8))
def test_seqeval_reads_the_same(tags: list[str]) -> None:
    reader = pytest.importorskip("seqeval.metrics.sequence_labeling")
    assert entities(tags) == [
        (kind, start, last + 1) for kind, start, last in reader.get_entities(tags)
    ]


# -- sub-tokens


def align(
    words: Sequence[str],
    tags: Sequence[int] | None,
    tokenizer: Tokenizer,
    length: int,
    *,
    around: tuple[list[int], list[int]] = MARKS,
    shared: int | None = None,
) -> list[TagWindow]:
    """The windows of one sentence."""
    rows = None if tags is None else [tags]
    return align_all([words], rows, tokenizer, length, around=around, shared=shared)[0]


def test_first_piece_carries_the_label(pieces: Tokenizer) -> None:
    """new york ##er ##s likes a: labels on york, not on ##er; none on [CLS] and [SEP]."""
    (window,) = align(["New", "Yorkers", "likes", "a"], [1, 2, 0, 0], pieces, 16)
    assert texts_of(pieces, window.ids) == "[CLS] new york ##er ##s likes a [SEP]".split()
    assert window.labels == [IGNORED, 1, 2, IGNORED, IGNORED, 0, 0, IGNORED]
    assert window.rows == [1, 2, 5, 6]
    assert window.words == [0, 1, 2, 3]


def test_words_without_a_token(pieces: Tokenizer) -> None:
    words = ["\x01", "new", "\u200b", "york", ""]
    (window,) = align(words, [3, 1, 3, 2, 3], pieces, 16)
    assert window.words == [1, 3]
    assert window.labels == [IGNORED, 1, 2, IGNORED]
    assert align(["\x01", ""], [1, 1], pieces, 16) == []
    assert align([], [], pieces, 16) == []


def test_without_tags(pieces: Tokenizer) -> None:
    (window,) = align(["new", "yorkers"], None, pieces, 16)
    assert set(window.labels) == {IGNORED}
    assert window.rows == [1, 2]


def test_long_sentence_by_hand(pieces: Tokenizer) -> None:
    """Six words of one token, room for 4, 2 shared: words 0-3 and 2-5.

    Word 2 has min(2, 1) = 1 in the first and min(0, 3) = 0 in the second; word 3 the reverse.
    """
    first, second = align(list("abcabc"), [0, 1, 2, 3, 4, 5], pieces, 6, shared=2)
    assert texts_of(pieces, first.ids) == "[CLS] a b c a [SEP]".split()
    assert texts_of(pieces, second.ids) == "[CLS] c a b c [SEP]".split()
    assert first.labels == [IGNORED, 0, 1, 2, IGNORED, IGNORED]
    assert second.labels == [IGNORED, IGNORED, 3, 4, 5, IGNORED]
    assert (first.words, second.words) == ([0, 1, 2], [3, 4, 5])


def test_word_longer_than_a_window(pieces: Tokenizer) -> None:
    windows = align(["a", "yorkersersers", "b"], [0, 1, 2], pieces, 4)
    inner = [" ".join(texts_of(pieces, window.ids)[1:-1]) for window in windows]
    assert inner == ["a", "york ##er", "b"]
    assert [window.labels[1] for window in windows] == [0, 1, 2]


def test_marks(pieces: Tokenizer) -> None:
    (bare,) = align(["new"], [1], pieces, 16, around=BARE)
    assert bare.labels == [1]
    (ends,) = align(["new"], [1], pieces, 16, around=([], [SEP, CLS]))  # XLNet's
    assert texts_of(pieces, ends.ids) == ["new", "[SEP]", "[CLS]"]
    assert ends.labels == [1, IGNORED, IGNORED]


def test_windows_with_marks_behind(pieces: Tokenizer) -> None:
    windows = align(list("abcab"), [1, 2, 3, 4, 5], pieces, 5, shared=0, around=([], [SEP, CLS]))
    assert [window.ids[-2:] for window in windows] == [[SEP, CLS]] * 2
    assert [window.labels for window in windows] == [
        [1, 2, 3, IGNORED, IGNORED],
        [4, 5, IGNORED, IGNORED],
    ]


def test_byte_level_words_keep_their_space(pieces: Tokenizer, bytes_bpe: Tokenizer) -> None:
    """Word for word, GPT-2's tokenizer would never see a space; the ids are those of the text."""
    words = "the cats sat".split()
    (window,) = align(words, [1, 2, 3], bytes_bpe, 64, around=BARE)
    assert window.ids == bytes_bpe.encode("the cats sat")
    assert [texts_of(bytes_bpe, window.ids)[row][0] for row in window.rows] == ["t", "Ġ", "Ġ"]
    assert spaced(bytes_bpe.ready) and not spaced(pieces.ready)


def test_prefixed_byte_level_gets_no_second_space(bytes_bpe: Tokenizer) -> None:
    fast = Fast.from_str(bytes_bpe.ready.to_str())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    (window,) = align(["the", "cat"], [1, 2], Tokenizer(fast), 64, around=BARE)
    assert window.ids == Tokenizer(fast).encode("the cat")


def test_bad_input(pieces: Tokenizer) -> None:
    with refuses(InputError, "2 words", "1 tags"):
        align(["a", "b"], [1], pieces, 16)
    with refuses(ConfigError, "length of 2"):
        align(["a"], [1], pieces, 2)


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), max_size=30), st.integers(4, 9), st.integers(0, 9))
def test_cut_covers_every_word(sizes: list[int], room: int, shared: int) -> None:
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    parts = cut(ends, room, shared)
    assert sorted({i for first, last in parts for i in range(first, last)}) == [*range(len(sizes))]
    for (_, before), (first, last) in zip([(0, 0), *parts], parts, strict=False):
        assert ends[last] - ends[first] <= room
        assert first <= before < last


WORDS = st.sampled_from(
    ["new", "yorkers", "likes", "a", "你好", "\x01", "cat", "😀", "the", "x" * 9]
)


@settings(max_examples=60, deadline=None)
@given(words=st.lists(WORDS, max_size=25), length=st.integers(4, 12), data=st.data())
@pytest.mark.parametrize("kind", ["pieces", "bytes"])
def test_there_and_back(
    kind: str,
    pieces: Tokenizer,
    bytes_bpe: Tokenizer,
    words: list[str],
    length: int,
    data: st.DataObject,
) -> None:
    """Each word that gives a token is scored once, and its label comes back."""
    tokenizer = pieces if kind == "pieces" else bytes_bpe
    shared = data.draw(st.none() | st.integers(0, length))
    tags = list(range(len(words)))
    around = MARKS if kind == "pieces" else BARE
    windows = align(words, tags, tokenizer, length, shared=shared, around=around)
    assert all(len(window.ids) <= length for window in windows)
    scored = [word for window in windows for word in window.words]
    lost = {i for i, word in enumerate(words) if kind == "pieces" and word == "\x01"}
    assert scored == [i for i in tags if i not in lost]  # once each, and in order
    assert [window.labels[row] for window in windows for row in window.rows] == scored
    for window in windows:
        assert sum(label != IGNORED for label in window.labels) == len(window.rows)
