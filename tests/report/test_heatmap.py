"""Pictures hold every weight, any text, and nothing that breaks a page or a terminal."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import InputError
from regard.report.heatmap import LONGEST, PLAIN_SHADES, SHADES, blocks, label, width
from tests.refusals import refuses

WEIGHTS = [[1.0, 0.0], [0.25, 0.75]]

matrices = st.integers(0, 5).flatmap(
    lambda columns: st.lists(
        st.lists(st.floats(0, 1), min_size=columns, max_size=columns), max_size=5
    )
)


@settings(deadline=None)
@given(matrices, st.data())
def test_any_text_can_be_shown(weights: list[list[float]], data: st.DataObject) -> None:
    columns = len(weights[0]) if weights else 0
    rows = data.draw(st.lists(st.text(), min_size=len(weights), max_size=len(weights)))
    names = data.draw(st.lists(st.text(), min_size=columns, max_size=columns))
    lines = blocks(weights, rows, names)
    lines.encode("utf-8")
    assert not any(unicodedata.category(c) == "Cc" for c in lines.replace("\n", ""))


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
    assert label("\n") == "↵"
    assert label("\x1b[31m") == "␛[31m"
    assert label("\u202eabc") == "\ufffdabc"


def test_names_must_fit_the_weights() -> None:
    with refuses(InputError, "2 rows", "1 row names"):
        blocks(WEIGHTS, ["a"], ["a", "b"])
    with refuses(InputError, "row 0", "2 weights", "3 column names"):
        blocks(WEIGHTS, ["a", "b"], ["a", "b", "c"])
