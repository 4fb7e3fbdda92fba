"""Pictures hold every weight, any text, and nothing that breaks a page or a terminal."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import InputError
from regard.report.heatmap import LONGEST, PLAIN_SHADES, SHADES, blocks, heat_map, label, width

SVG = "{http://www.w3.org/2000/svg}"
WEIGHTS = [[1.0, 0.0], [0.25, 0.75]]

matrices = st.integers(0, 5).flatmap(
    lambda columns: st.lists(
        st.lists(st.floats(0, 1), min_size=columns, max_size=columns), max_size=5
    )
)


def cells(picture: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(picture)
    return [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "cell"]


def test_each_weight_is_a_cell_with_its_value() -> None:
    found = cells(heat_map(WEIGHTS, ["a", "b"], ["a", "b"], "who looks at whom"))
    assert [rect.get("fill-opacity") for rect in found] == ["1.000", "0.000", "0.250", "0.750"]
    assert [rect.findtext(f"{SVG}title") for rect in found][1] == "a → b: 0.0000"


def test_the_title_and_the_labels_are_there() -> None:
    picture = heat_map(WEIGHTS, ["<s>", "你好"], ["&", "мир"], "a < b")
    texts = [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert {"<s>", "你好", "&", "мир", "a < b"} <= set(texts)


def test_a_page_of_either_color() -> None:
    assert "prefers-color-scheme: dark" in heat_map(WEIGHTS, ["a", "b"], ["a", "b"])


@settings(deadline=None)
@given(matrices, st.data())
def test_any_text_is_a_well_formed_picture(weights: list[list[float]], data: st.DataObject) -> None:
    columns = len(weights[0]) if weights else 0
    rows = data.draw(st.lists(st.text(), min_size=len(weights), max_size=len(weights)))
    names = data.draw(st.lists(st.text(), min_size=columns, max_size=columns))
    picture = heat_map(weights, rows, names, data.draw(st.text()))
    assert len(cells(picture)) == len(weights) * columns
    picture.encode("utf-8")
    lines = blocks(weights, rows, names)
    lines.encode("utf-8")
    assert not any(unicodedata.category(c) == "Cc" for c in lines.replace("\n", ""))


def test_numbers_that_are_none_are_drawn_as_nothing() -> None:
    found = cells(heat_map([[float("nan"), 0.5, float("inf")]], ["a"], ["x", "y", "z"]))
    assert [rect.get("fill-opacity") for rect in found] == ["0.000", "1.000", "0.000"]


def test_blocks_are_darker_where_more_is_seen() -> None:
    assert blocks(WEIGHTS, ["a", "b"], ["a", "b"]).splitlines() == [
        "      1 2",
        "1 a  ██",
        "2 b  ░░▓▓",
    ]
    assert blocks([[1.0, 0.0]], ["a"], ["a", "b"], PLAIN_SHADES).splitlines() == [
        "      1 2",
        "1 a  ##",
        "columns: 1 a  2 b",
    ]


def test_numbers_are_their_own_names() -> None:
    """Positions count from 0, and so do the digits above and beside them."""
    weights = [[0.5] * 12, [0.0] * 11 + [0.5]]
    assert blocks(weights, ["0", "1"], [str(j) for j in range(12)], most=1.0).splitlines() == [
        "    0 1 2 3 4 5 6 7 8 9 0 1",
        "0  " + "▒▒" * 12,
        "1  " + "  " * 11 + "▒▒",
    ]


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_shades_never_fall(low: float, high: float) -> None:
    low, high = sorted((low, high))
    line = blocks([[low, high, 1.0]], ["x"], ["a", "b", "c"]).splitlines()[1][5:].ljust(6)
    assert SHADES.index(line[0]) <= SHADES.index(line[2]) <= SHADES.index(line[4])


def test_wide_letters_keep_the_columns_aligned() -> None:
    lines = blocks([[1.0], [1.0]], ["你好", "a"], ["x"]).splitlines()
    assert width(lines[1]) == width(lines[2])
    assert [width(x) for x in ("กิ", "e\u0301", "👩\u200d👧", "\u2764\ufe0f")] == [1, 1, 4, 1]


@given(st.text(max_size=60))
def test_labels_are_short(text: str) -> None:
    assert width(label(text)) <= LONGEST


def test_labels_show_what_cannot_be_seen() -> None:
    assert label(" ") == "␣"
    assert label("\n") == "␊"
    assert label("\x1b[31m") == "␛[31m"
    assert label("\u202eabc") == "\ufffdabc"


@pytest.mark.parametrize("draw", [heat_map, blocks])
def test_names_must_fit_the_weights(draw: object) -> None:
    assert callable(draw)
    with pytest.raises(InputError, match="2 rows of weights for 1 row names"):
        draw(WEIGHTS, ["a"], ["a", "b"])
    with pytest.raises(InputError, match="row 0 has 2 weights for 3 column names"):
        draw(WEIGHTS, ["a", "b"], ["a", "b", "c"])
