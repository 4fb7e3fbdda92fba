"""What scripts/overload.py calls a failure, and that its clients do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from overload import failures, late_statuses, main, section
from overload_clients import Seen, is_right

ENDED: dict[str, Any] = {"code": 0, "seconds": 3.0, "finished": 9, "lost": 0,
                         "late": {"503": 40, "refused": 5, "gone": 1}}  # fmt: skip
FACTS: dict[str, Any] = {
    "seconds": 600.0, "wanted_times": 4, "sustained_per_second": 20.0, "times": 4.4,
    "statuses": {"200": 900, "400": 90, "408": 9, "429": 2000, "gone": 99, "dropped": 7},
    "wrong": [], "first_half_mib": 500.0, "second_half_mib": 510.0, "wait_before": 0.1,
    "wait_after": 0.9, "shutdown": ENDED,
}  # fmt: skip
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"times": 3.9}, "3.90 times the sustained rate"),
    ({"wrong": [1]}, "1 answers were wrong"),
    ({"statuses": FACTS["statuses"] | {"500": 1}}, "nobody may get: 500"),
    ({"statuses": FACTS["statuses"] | {"connection: X": 1}}, "nobody may get: connection: X"),
    ({"statuses": FACTS["statuses"] | {"endured": 1}}, "nobody may get: endured"),
    ({"statuses": FACTS["statuses"] | {"408": 0}}, "no slow sender"),
    ({"statuses": FACTS["statuses"] | {"dropped": 0}}, "no slow reader"),
    ({"statuses": FACTS["statuses"] | {"429": 0}}, "nobody was refused"),
    ({"second_half_mib": 533.0}, "the memory grew by 33 MiB"),
    ({"wait_after": 1.2}, "a request after the load took 1.2 s"),
    ({"shutdown": ENDED | {"code": None}}, "ended with None"),
    ({"shutdown": ENDED | {"lost": 1}}, "1 accepted requests were lost"),
    ({"shutdown": ENDED | {"finished": 0}}, "no accepted request was finished"),
    ({"shutdown": ENDED | {"late": {"refused": 3}}}, "nobody got 503"),
    ({"shutdown": ENDED | {"late": {"503": 3, "200": 1}}}, "other answers than 503: 200"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG, ids=[name for _, name in WRONG])
def test_each_failure_is_told(change: dict[str, Any], sentence: str) -> None:
    (line,) = failures(FACTS | change)
    assert sentence in line
    assert line in section(FACTS | change, chinese=False)


def test_a_good_run_fails_nothing_and_is_the_same_in_both_languages() -> None:
    assert failures(FACTS) == []
    pages = [section(FACTS, chinese) for chinese in (False, True)]
    numbers = [re.findall(r"\d[\d.,]*", page.replace("503、", "503, ")) for page in pages]
    assert numbers[0] == numbers[1] and "4.40" in numbers[0]


def test_who_stands_before_a_closing_door_is_cut_off() -> None:
    """Half a second before the first refusal; what is cut off earlier is the server's mistake."""
    reset = "connection: ConnectionResetError"
    seen = [Seen(1.0, 2.0, reset), Seen(1.0, 4.5, reset), Seen(1.0, 5.0, "refused"),
            Seen(1.0, 1.5, "503")]  # fmt: skip
    assert late_statuses(seen, 9.0) == [reset, "refused", "503"]
    assert late_statuses(seen[:2], 9.0) == [reset, reset]


def test_right_answers() -> None:
    assert is_right("a", "a") and not is_right("a", "b")
    assert is_right([0.5, 0.1], [0.50001, 0.1])
    assert not is_right([0.5], [0.51]) and not is_right([0.5], [0.5, 0.5])


@pytest.mark.slow
def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How much of the load a busy machine makes is not judged here, nor how long a request then
    waits, nor the memory of seconds; all else is."""
    page = tmp_path / "serving.md"
    main(["--seconds", "12", "--calm", "3", "--page", str(page)])
    problems = [line for line in capsys.readouterr().err.splitlines() if "failed: " in line]
    not_judged = ("sustained rate", "a request after the load", "the memory grew")
    assert [line for line in problems if not any(words in line for words in not_judged)] == []
    assert not page.exists()  # a short run is no figure
