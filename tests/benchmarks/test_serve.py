"""What the benchmark of servers says of its turns."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

import pytest
from serve import unwanted
from serve_load import Others, own
from serve_page import goals, in_chinese, in_english, medians, missed, section


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_own_work_is_not_that_of_others() -> None:
    before, begun = own(), time.process_time()
    with Others() as others:
        while time.process_time() < begun + 0.3:
            pass
    assert 0.2 < own() - before < 1.0 and 0 <= others.share <= 1.1


def turn(side: str, clients: int, speed: float, first: float, between: float) -> dict[str, Any]:
    return {"load": "write", "side": side, "clients": clients, "repeat": 1, "per_second": speed,
            "first_p50": first, "first_p99": first, "between_p50": between,
            "between_p99": between, "others": 0.01}  # fmt: skip


def turns() -> list[dict[str, Any]]:
    rows = [turn("ours, int8", 8, speed, 90.0, 20.0) for speed in (290.0, 310.0, 300.0)]
    rows += [turn("slow, int8", 8, 100.0, 1.0, 5.0), turn("fast, int8", 8, 240.0, 60.0, 25.0)]
    rows += [turn("ours, int8", 1, 96.0, 9.0, 5.0)]
    return [*rows, turn("our Python call, int8", 1, 100.0, 0.0, 0.0)]


def test_a_server_stands_beside_the_best_peer() -> None:
    """Its speed, and both of its waits: each of them can miss its goal."""
    bare, speed, first, between = goals(medians(turns()))
    assert (bare.peer, bare.ratio, bare.reached) == ("our Python call, int8", 0.96, True)
    assert {row.peer for row in (speed, first, between)} == {"fast, int8"}
    assert (speed.ratio, speed.least, speed.reached) == (1.25, 1.5, False)
    assert (first.ratio, first.reached) == (1.5, False)
    assert (between.ratio, between.reached) == (0.8, True)
    lines = missed([bare, speed, first, between])
    assert len(lines) == 2 and "the goal is ≥ 1.5" in lines[0]
    assert "first token p99 is 1.50 times fast, int8" in lines[1]


def test_a_server_alone_is_not_judged() -> None:
    rows = goals(medians([turn("ours, int8", clients, 300.0, 9.0, 9.0) for clients in (1, 32)]))
    assert [row.reached for row in rows] == [None] * 4
    assert all("was not judged" in line for line in missed(rows)) and len(missed(rows)) == 4


def test_encoders_have_a_goal_of_their_own() -> None:
    def reads(side: str, speed: float, late: float) -> dict[str, Any]:
        return {"load": "embed", "side": side, "clients": 32, "per_second": speed,
                "answer_p50": late, "answer_p99": late}  # fmt: skip

    speed, late = goals(medians([reads("ours", 119.0, 5.0), reads("onnxruntime", 100.0, 5.0)]))
    assert (speed.least, speed.reached, late.reached) == (1.2, False, True)


def test_both_languages_have_the_same_numbers() -> None:
    pages = [
        section(turns(), {"gone, int8": "no gone"}, ["write"], 2, say)
        for say in (in_english, in_chinese)
    ]
    tables = ["".join(line for line in page.splitlines() if line[0:1] == "|") for page in pages]
    numbers = [re.findall(r"\d[\d.,]*", cells) for cells in tables]
    assert numbers[0] == numbers[1] and "1.25" in numbers[0]
    assert "1.25 (missed)" in pages[0] and "1.25 (未达到)" in pages[1]
    assert "Left out: gone, int8 (no gone)." in pages[0] and "未测量：gone, int8" in pages[1]
    assert "our Python call" not in pages[1] and "first p99" not in pages[1]


def test_sides_are_left_out_by_a_word() -> None:
    assert unwanted("ours, fp32", "bf16,fp32") == "--without fp32"
    assert unwanted("ours, int8", "fp32") == unwanted("ours, int8", "") == ""
