"""Graphs: read, folded, bounded, and found again in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import FormatError, InputError
from regard.data.knowledge.graph import Graph, LongestMatcher, Match, Triple, split
from tests.laws.zoo import few
from tests.refusals import refuses

FACTS = "Beijing\tcapital\tChina\nBeijing\tis_a\tCity\nTim Cook\tCEO\tApple\n"


def written(place: Path, text: str | bytes) -> Path:
    file = place / "facts.tsv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_triples_are_read_folded_and_sorted(tmp_path: Path) -> None:
    lines = FACTS.splitlines()
    mixed = "\ufeff" + "\r\n".join([lines[2], "", lines[1], " Beijing \tis_a\t City", lines[0]])
    graph = Graph.read(written(tmp_path, mixed))
    assert list(graph) == [Triple(*line.split("\t")) for line in lines]
    assert len(graph) == 3 and not graph.notes
    assert graph.names == ["Apple", "Beijing", "China", "City", "Tim Cook"]
    assert graph.predicates == ["CEO", "capital", "is_a"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    graph = Graph.read(written(tmp_path, FACTS))
    graph.write(tmp_path / "again.tsv")
    again = Graph.read(tmp_path / "again.tsv")
    assert list(again) == list(graph) and again.digest == graph.digest
    assert again.digest != Graph([*graph, ("a", "b", "c")]).digest


def test_malformed_lines_are_named_or_skipped(tmp_path: Path) -> None:
    text = FACTS.encode() + b"only two\tfields\na\t\tb\na\tb\tc\td\n\xff\xfe\tb\tc\n"
    file = written(tmp_path, text)
    lines = (f"{file}:4: 2 fields", f"{file}:5: ", f"{file}:6: 4 fields", f"{file}:7: ")
    with refuses(FormatError, "4 malformed lines", "empty field", "UTF-8", *lines):
        Graph.read(file)
    graph = Graph.read(file, skip=True)
    assert len(graph) == 3 and "4 malformed lines were left out" in graph.notes[0]


def test_many_malformed_lines_are_counted_not_listed(tmp_path: Path) -> None:
    with refuses(FormatError, "50 malformed lines", "and 40 more") as refusal:
        Graph.read(written(tmp_path, "broken\n" * 50))
    assert len(str(refusal.value).splitlines()) == 12


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with refuses(FormatError, tmp_path / "nothing.tsv"):
        Graph.read(tmp_path / "nothing.tsv")


def test_huge_entities_are_cut_and_it_is_said_once() -> None:
    graph = Graph([("hub", "has", f"{i:05}") for i in range(10_000)] + [("a", "b", "c")], most=5)
    assert [t.object for t in graph.of_entity("hub")] == [f"{i:05}" for i in range(5)]
    assert len(graph.notes) == 1 and "'hub' has 10,000" in graph.notes[0]
    with refuses(InputError, "at most 0"):
        Graph([], most=0)


def test_networkx_graphs() -> None:
    networkx = pytest.importorskip("networkx")
    one = networkx.DiGraph()
    one.add_edge("Beijing", "China", predicate="capital")
    assert list(Graph.of(one)) == [("Beijing", "capital", "China")]
    many = networkx.MultiDiGraph()
    many.add_edge("a", "b", key="likes")
    many.add_edge("a", "b", label="knows")
    with refuses(InputError, "'a' to 'b'", "'predicate'"):
        Graph.of(many)
    assert [t.predicate for t in Graph.of(many, predicate="label")] == ["knows", "likes"]
    for other in (networkx.Graph([("a", "b")]), {"a": "b"}):
        with refuses(InputError, f"{type(other).__name__} has no directed edges"):
            Graph.of(other)


def test_names_are_lines_without_tabs() -> None:
    assert list(Graph([(" New\t York\n", "is", 7)])) == [("New York", "is", "7")]
    for wrong in [("a", "", "b"), ("a", "b"), ("a", "b", "\n")]:
        with refuses(InputError, wrong, "no triple"):
            Graph([wrong])


def test_the_longest_entity_is_found() -> None:
    names = ["New York", "New York City", "York", "City Hall"]
    graph = Graph([(name, "is", "x") for name in names])
    words = "in New York City Hall and York or New".split()
    assert graph.find(words) == [Match(1, 4, "New York City"), Match(6, 7, "York")]
    assert graph.find([]) == []


def test_chinese_is_found_by_characters_and_by_words() -> None:
    graph = Graph([("北京", "首都", "中国"), ("北京大学", "在", "北京")])
    assert split("我在北京 Apple店") == ["我", "在", "北", "京", "Apple", "店"]
    assert graph.find(split("他在北京大学")) == [Match(2, 6, "北京大学")]


@few(40)
@given(
    st.sets(st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(tuple), max_size=4),
    st.lists(st.sampled_from("abc"), max_size=8),
    st.data(),
)
def test_matches_are_the_longest_whole_words_from_the_left(
    known: set[tuple[str, ...]], row: list[str], data: st.DataObject
) -> None:
    begins = data.draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row)))
    matches = LongestMatcher({key: "".join(key) for key in known}).find(row, begins)
    ends = [i for i in range(len(row) + 1) if i == len(row) or begins[i]]
    place, expected = 0, []
    while place < len(row):
        fits = [
            end for end in ends if begins[place] and end > place and tuple(row[place:end]) in known
        ]
        if fits:
            expected.append((place, max(fits), "".join(row[place : max(fits)])))
        place = max([place + 1, *fits])
    assert matches == expected
