"""Sentence trees: K-BERT's own examples, and the laws that its reference names."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import InputError
from regard.data.knowledge.graph import Graph
from regard.data.knowledge.tree import FlatTree, KnowledgeTree, Node
from tests.laws.zoo import few
from tests.refusals import refuses

PAPER = Graph(
    [("Tim Cook", "CEO", "Apple"), ("Beijing", "capital", "China"), ("Beijing", "is_a", "City")]
)


def drawn(flat: FlatTree) -> list[str]:
    return ["".join(str(int(cell)) for cell in row) for row in flat.visible()]


def golden() -> KnowledgeTree:
    """A B C, and B has the branches (x y) and (z)."""
    return KnowledgeTree([Node("A"), Node("B", [[Node("x"), Node("y")], [Node("z")]]), Node("C")])


def test_the_golden_example() -> None:
    flat = golden().flatten()
    assert "".join(flat.tokens) == "ABxyzC"
    assert flat.soft == [0, 1, 2, 3, 2, 2]
    assert flat.tags == [0, 0, 1, 1, 1, 0]
    assert drawn(flat) == ["110001", "111111", "011100", "011100", "010010", "110001"]


def test_the_papers_sentence() -> None:
    words = "[CLS] Tim Cook is visiting Beijing now".split()
    flat = KnowledgeTree.of(words, PAPER).flatten()
    assert " ".join(flat.tokens) == (
        "[CLS] Tim Cook CEO Apple is visiting Beijing capital China is_a City now"
    )
    assert flat.soft == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 6, 7, 6]
    seen = flat.visible()
    cook, ceo, beijing, capital, is_a = (
        flat.tokens.index(w) for w in ("Cook", "CEO", "Beijing", "capital", "is_a")
    )
    assert seen[ceo, [1, cook]].all() and not seen[ceo, 0] and not seen[ceo, beijing]
    assert not seen[capital, is_a] and not seen[0, ceo] and seen[0, beijing]


def test_branches_are_the_first_ones_and_may_be_the_object_alone() -> None:
    graph = Graph([("a", "has", f"o{i}") for i in range(9)])
    assert KnowledgeTree.of(["a"], graph).flatten().tokens == ["a", "has", "o0", "has", "o1"]
    flat = KnowledgeTree.of(["a"], graph, branches=3, predicate=False).flatten()
    assert flat.tokens == ["a", "o0", "o1", "o2"] and flat.soft == [0, 1, 1, 1]
    assert KnowledgeTree.of(["a"], graph, branches=0).flatten().tokens == ["a"]
    with refuses(InputError, "depth of 9"):
        KnowledgeTree.of(["a"], graph, depth=9)


def test_a_circle_ends_at_the_depth() -> None:
    graph = Graph([("a", "to", "b"), ("b", "to", "a")])
    sizes = [
        len(KnowledgeTree.of(["a"], graph, depth=depth).flatten().tokens) for depth in (1, 2, 3, 4)
    ]
    assert sizes == [3, 5, 7, 9]
    flat = KnowledgeTree.of(["a", "c"], graph, depth=2).flatten()
    assert flat.tokens == ["a", "to", "b", "to", "a", "c"]
    assert flat.soft == [0, 1, 2, 3, 4, 1]
    assert drawn(flat)[3] == "001110"  # a branch upon a branch sees itself, and what it grows from
    assert drawn(flat)[0] == "111001"


def test_branches_without_room_are_left_out_whole() -> None:
    tree = golden()
    assert [tree.flatten(room).left_out for room in (3, 4, 5, 6)] == [2, 1, 1, 0]
    assert "".join(tree.flatten(4).tokens) == "ABzC"  # (x y) does not fit, (z) does
    assert "".join(tree.flatten(5).tokens) == "ABxyC"
    assert "".join(tree.flatten(4, whole=False).tokens) == "ABxC"
    assert "".join(tree.flatten(2).tokens) == "AB"  # the trunk alone is too long


@st.composite
def trees(draw: st.DrawFn, depth: int = 2) -> list[Node]:
    def line(left: int) -> list[Node]:
        nodes = []
        for _ in range(draw(st.integers(1, 4))):
            tokens = [draw(st.integers(0, 28)) for _ in range(draw(st.integers(1, 2)))]
            count = draw(st.integers(0, 2)) if left else 0
            nodes.append(Node(tokens, [line(left - 1) for _ in range(count)]))
        return nodes

    return line(depth)


@few(40)
@given(trees(), st.integers(1, 40))
def test_the_laws_of_a_tree(nodes: list[Node], room: int) -> None:
    flat = KnowledgeTree(nodes).flatten(room)
    seen, trunk = flat.visible(), ~np.array(flat.tags, bool)
    assert len(flat.tokens) <= room
    assert (seen == seen.T).all() and seen.diagonal().all()
    assert seen[np.ix_(trunk, trunk)].all()  # the trunk sees the trunk
    plain = [token for node in nodes for token in node.tokens][:room]
    assert [t for t, own in zip(flat.tokens, trunk, strict=True) if own] == plain
    assert np.array(flat.soft)[trunk].tolist() == list(range(len(plain)))


@few(20)
@given(trees())
def test_without_knowledge_nothing_changes(nodes: list[Node]) -> None:
    flat = KnowledgeTree([Node(node.tokens) for node in nodes]).flatten()
    assert flat.soft == list(range(len(flat.tokens))) and flat.visible().all()
