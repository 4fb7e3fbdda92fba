"""Every kind of tokenizer: its roles, its files, what comes back, and that it never changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import FormatError, InputError, UnknownName
from regard.data.corpus import ROLES, Corpus
from regard.data.prepare import PreparePlan, prepare
from regard.data.sentences import sentences
from regard.data.special_tokens import SPELLINGS, special_of
from regard.data.tokenizer import Tokenizer
from regard.data.unigram import learn
from regard.data.vocabulary import KINDS, RUN, WORD, train
from tests.refusals import refuses

from .conftest import ALL, CHINESE, ENGLISH

TEXTS = ENGLISH + CHINESE


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train(kind, TEXTS, vocab_size=None, lower=None, marks=5) for kind in KINDS}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("kinds")
    source = place / "text.txt"
    source.write_text("\n\n".join(TEXTS), "utf-8")
    for kind in KINDS:
        prepare(PreparePlan((str(source),), place / kind, tokenizer=kind, shares=ALL))
    return {kind: place / kind for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_every_role_has_a_token(kind: str, trained: dict[str, Tokenizer]) -> None:
    special = special_of(trained[kind], kind)
    ids = [special.need(role) for role in ROLES] + special.sentinels
    assert len(set(ids)) == len(ROLES) + 5
    tokens = trained[kind].tokens(ids)
    assert tokens == [*SPELLINGS[kind].values(), *(f"<extra_id_{i}>" for i in range(5))]
    assert max(ids) < len(trained[kind])
    vocabulary = trained[kind].ready.get_vocab()
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))


def test_transformers_keeps_the_segments_of_two_texts(prepared: dict[str, Path]) -> None:
    """BERT learned which text a token is of; a generic tokenizer drops that unless it is told."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(prepared["wordpiece"])("a", "b")
    assert sorted(set(theirs["token_type_ids"])) == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_gives_the_same_ids(kind: str, prepared: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(prepared[kind])
    corpus = Corpus.open(prepared[kind], "train")
    assert len(theirs) == corpus.vocab_size == len(corpus.tokenizer)
    assert theirs.eos_token_id == corpus.special.end
    assert theirs.mask_token_id == corpus.special.mask
    assert theirs.pad_token_id == corpus.special.pad
    for i, text in enumerate(TEXTS):
        expected = [
            token
            for sentence in sentences(text)
            for token in theirs(sentence, add_special_tokens=False)["input_ids"]
        ]
        assert corpus.document(i).tolist() == [*expected, corpus.special.end]
        boundaries = corpus.sentences_of(i)
        assert len(boundaries) == len(sentences(text)) + 1


@pytest.mark.parametrize("kind", ["bytes-bpe", "gpt2-bpe", "bytes", "characters"])
def test_text_comes_back_exactly(kind: str, prepared: dict[str, Path]) -> None:
    corpus = Corpus.open(prepared[kind], "train")
    for i, text in enumerate(TEXTS):
        ids = corpus.document(i).tolist()
        assert corpus.tokenizer.decode(ids[:-1], special=True) == text
        assert ids[-1] == corpus.special.end
        assert corpus.document_bytes[i] == len(text.encode())


@settings(max_examples=60)
@given(st.text(max_size=80))
def test_bytes_hold_any_text(text: str) -> None:
    for kind in ("bytes", "bytes-bpe", "gpt2-bpe"):
        ids = BYTES[kind].encode(text, special=False)
        assert BYTES[kind].decode(ids, special=True) == text
    if "<" not in text:  # the spelling of a special token is read as this token
        assert bytes(BYTES["bytes"].encode(text, special=False)) == text.encode()


BYTES = {
    kind: train(kind, ["a b c a b c"], vocab_size=None, lower=None, marks=0)
    for kind in ("bytes", "bytes-bpe", "gpt2-bpe")
}


def test_families_look_as_they_should(trained: dict[str, Tokenizer]) -> None:
    def tokens(kind: str, text: str) -> list[str]:
        return trained[kind].tokens(trained[kind].encode(text, special=False))

    assert tokens("bytes-bpe", "The street") == ["The", "Ġstreet"]
    assert tokens("bpe", "The street.") == ["the</w>", "street</w>", ".</w>"]
    assert tokens("wordpiece", "The 猫") == ["The", "猫"]
    assert tokens("wordpiece", "streeted")[1].startswith("##")
    assert tokens("unigram", "The street") == ["▁The", "▁street"]
    assert tokens("unigram", " street") == ["▁street"]
    assert not tokens("unigram", "猫过了")[0].startswith("▁")
    assert tokens("words", "The street. 猫狗") == ["The", "street", ".", "猫", "狗"]
    assert tokens("words", "a zebra") == ["<unk>", "<unk>"]
    assert tokens("words", "<unk>") == ["<unk>"]
    assert tokens("characters", "a 猫") == ["a", " ", "猫"]
    assert trained["bytes"].encode("aé", special=False) == list("aé".encode())
    pair = trained["wordpiece"].encode("The", "cat")
    assert trained["wordpiece"].tokens(pair) == ["[CLS]", "The", "[SEP]", "cat", "[SEP]"]
    assert trained["unigram"].decode(trained["unigram"].encode("The  old\ncat.")) == "The old cat."
    assert trained["bpe"].decode(trained["bpe"].encode("The Cat")) == "the cat"


def test_words_are_sorted_by_frequency(trained: dict[str, Tokenizer]) -> None:
    counts = Counter(
        token for text in TEXTS for token in trained["words"].encode(text, special=False)
    )
    ranked = [counts[i] for i in range(len(ROLES), max(counts) + 1)]
    assert ranked == sorted(ranked, reverse=True)


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_in_the_text_are_text(kind: str, tmp_path: Path) -> None:
    spelled = list(SPELLINGS[kind].values())
    text = f"{' '.join(spelled)} {''.join(spelled)} <extra_id_0> <extra_id_99>. " * 3
    (tmp_path / "a.txt").write_text(text)
    prepare(PreparePlan((str(tmp_path / "a.txt"),), tmp_path / "out", tokenizer=kind, shares=ALL))
    corpus = Corpus.open(tmp_path / "out", "train")
    forbidden = set(corpus.special.ids()) - {corpus.special.unknown}
    assert forbidden.isdisjoint(corpus.document(0)[:-1].tolist())


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"gpt2-bpe"}))  # GPT-2's rule has no bound
def test_long_runs_are_cut(kind: str, trained: dict[str, Tokenizer]) -> None:
    """No word is longer than the bounds, whatever the script."""
    fast = trained[kind].ready
    for letter, bound in (("猫", RUN), ("a", WORD), ("ก", RUN), ("-", WORD), ("5", WORD)):
        text = letter * 5000
        normal = fast.normalizer.normalize_str(text) if fast.normalizer else text
        spans = [span for _, span in fast.pre_tokenizer.pre_tokenize_str(normal)]
        assert max(end - start for start, end in spans) <= bound


@pytest.mark.parametrize("kind", ["bytes-bpe", "bpe", "wordpiece", "unigram", "words"])
def test_a_vocabulary_of_the_size_asked_for(kind: str, trained: dict[str, Tokenizer]) -> None:
    size = len(trained[kind]) - 20
    assert len(train(kind, TEXTS, vocab_size=size, lower=None, marks=5)) == size
    possible = len(trained[kind]) - 5 + 100
    for wrong, parts in ((50_000, [kind, possible]), (110, [kind, "100 sentinels"])):
        with refuses(InputError, f"--vocab-size {wrong:,}", *parts):
            train(kind, TEXTS, vocab_size=wrong, lower=None, marks=100)


def test_a_large_alphabet_fits_into_a_small_vocabulary() -> None:
    """Of two thousand characters the commonest are kept; the rest are unknown."""
    rare = ["".join(chr(0xAC00 + i) for i in range(n, n + 9)) for n in range(2000)]
    texts = [
        *rare,
        *(f"가나 각 {a}{b}{c} " * 9 for a in "bdfghk" for b in "aeiou" for c in "lmnst"),
    ]
    for kind in ("bpe", "wordpiece", "unigram", "characters"):
        tokenizer = train(kind, texts, vocab_size=500, lower=False, marks=100)
        assert len(tokenizer) == 500
        unknown = special_of(tokenizer, kind).unknown
        assert unknown not in tokenizer.encode("가나", special=False)
        assert unknown in tokenizer.encode("\uac00\ub123", special=False)


def test_lower(trained: dict[str, Tokenizer]) -> None:
    for kind in KINDS:
        tokenizer = train(kind, TEXTS, vocab_size=None, lower=True, marks=5)
        assert tokenizer.encode("THE CAT", special=False) == tokenizer.encode(
            "the cat", special=False
        )
    assert trained["wordpiece"].encode("THE") != trained["wordpiece"].encode("the")


def test_the_same_text_makes_the_same_files() -> None:
    """Also in another process, where the library hashes in another order."""
    program = (
        "import hashlib, sys\n"
        "from regard.data.vocabulary import KINDS, train\n"
        "texts = sys.stdin.buffer.read().decode().split('\\0')\n"
        "for kind in KINDS:\n"
        "    tokenizer = train(kind, texts, vocab_size=None, lower=None, marks=5)\n"
        "    print(kind, hashlib.sha256(tokenizer.files['tokenizer.json']).hexdigest())\n"
        "assert 'torch' not in sys.modules\n"
    )
    content = "\0".join(TEXTS).encode()
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], input=content, capture_output=True, check=True
        )
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.splitlines()) == len(KINDS)


def test_unigram_finds_the_parts_of_words() -> None:
    """Each word is rare, its parts are not."""
    stems, endings = ("walk", "talk", "jump", "climb", "open"), ("ing", "ed", "s", "er")
    counts = Counter({f"▁{a}{b}": 1 for a in stems for b in endings})
    pieces = dict(learn(counts, 30))
    assert {f"▁{stem}" for stem in stems} <= set(pieces)
    assert {"ing", "ed", "er"} <= set(pieces)
    assert 0.5 < sum(np.exp(score) for score in pieces.values()) <= 1
    assert {letter for word in counts for letter in word} <= set(pieces)


def test_unigram_forgets_no_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.unigram.CHARACTERS", 8)
    pieces = dict(learn(Counter({"abab": 9, "ba": 8, "xyxyx": 2, "z": 1}), 30))
    assert set("abxyz") <= set(pieces)


def test_unigram_expects_as_often_as_enumeration_says() -> None:
    from regard.data.unigram import SubwordPieces, WordCounts

    words = WordCounts(Counter({"abab": 3, "ba": 2, "aab": 1}))
    pieces = SubwordPieces(words, 20)
    texts = [words.text[s : s + n] for s, n in zip(pieces.start, pieces.length, strict=True)]
    chance = dict(zip(texts, np.exp(pieces.score), strict=True))

    def ways(word: str) -> list[list[str]]:
        if not word:
            return [[]]
        heads = [word[:n] for n in range(1, len(word) + 1) if word[:n] in chance]
        return [[head, *rest] for head in heads for rest in ways(word[len(head) :])]

    expected = dict.fromkeys(texts, 0.0)
    for word, count in {"abab": 3, "ba": 2, "aab": 1}.items():
        ids = ways(word)
        weights = [np.prod([chance[piece] for piece in way]) for way in ids]
        for way, weight in zip(ids, weights, strict=True):
            for piece in way:
                expected[piece] += count * weight / sum(weights)
    assert len(texts) > 3
    assert np.allclose(words.expected(pieces), [expected[text] for text in texts])


def test_unknown_kind_and_damaged_configuration(tmp_path: Path) -> None:
    with refuses(UnknownName, "'unigrams'", "'unigram'"):
        train("unigrams", TEXTS, vocab_size=None, lower=None, marks=0)
    tokenizer = train("bytes", TEXTS, vocab_size=None, lower=None, marks=0)
    tokenizer.files["tokenizer_config.json"] = b"{"
    with refuses(FormatError, "tokenizer_config.json of x", "JSON"):
        special_of(tokenizer, "x")
    bare = json.loads(tokenizer.files["tokenizer.json"])
    bare["added_tokens"] = []
    with refuses(InputError, "tokenizer of x", "eos_token"):
        special_of(Tokenizer(type(tokenizer.ready).from_str(json.dumps(bare))), "x")
