"""Reads the answers of questions from all common layouts, with their positions in the passage."""

from __future__ import annotations

from typing import Any

from regard.data.examples import AnswerSpan
from regard.data.read_fields import BadRecord, FieldRecord, short


def placed(
    answers: list[tuple[str, int | None]], passage: str, record: FieldRecord
) -> tuple[AnswerSpan, ...]:
    """Returns the answers that stand at their offset; the wrong ones are reported."""
    good, wrong, name = [], [], record.id
    for text, start in answers:
        trouble = misplaced(text, start, passage) if record.options.offsets else ""
        if trouble:
            wrong.append(f"{name}: {trouble}")
            continue
        good.append(AnswerSpan(text, passage.find(text) if start is None else start))
        if start is None and passage.count(text) > 1:
            record.warn(
                "answer-offset",
                f"{name}: the answer {short(text)} has no offset and occurs "
                f"{passage.count(text)} times; the first place is used",
            )
    if wrong and not good:
        raise BadRecord("answer-offset", "; ".join(dict.fromkeys(wrong)))
    for message in wrong:
        record.warn("answer-offset", f"{message}; the others are right")
    return tuple(good)


def read_answers(value: Any, start: Any) -> list[tuple[str, int | None]]:
    """Returns answer texts with their offsets from all common layouts; an offset may be None."""
    if value is None:
        return []
    if isinstance(value, dict):  # a dict of lists, as on the Hub
        texts, starts = value.get("text", []), value.get("answer_start")
        texts = [texts] if isinstance(texts, str) else list(texts)
        starts = [starts] if isinstance(starts, int) else starts or [None] * len(texts)
        if len(texts) != len(starts):
            raise BadRecord(
                "wrong-type", f"there are {len(texts)} answers but {len(starts)} offsets"
            )
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(value, list):
        pairs = [
            (a.get("text"), a.get("answer_start", a.get("start"))) if isinstance(a, dict) else a
            for a in value
        ]
        pairs = [(each, None) if isinstance(each, str) else each for each in pairs]
    else:
        pairs = [(value, None if start in (None, "") else start)] if value != "" else []
    answers: list[tuple[str, int | None]] = []
    for each in pairs:
        if not isinstance(each, tuple) or not isinstance(each[0], str):
            raise BadRecord(
                "wrong-type", f"an answer is {type(each).__name__}, not a text with an offset"
            )
        at = each[1]
        if isinstance(at, str) and at.strip().isdecimal():
            at = int(at)
        if at is not None and not isinstance(at, int):
            raise BadRecord("wrong-type", f"the offset of {short(each[0])} is {at!r}, not a number")
        answers.append((each[0], at))
    return answers


def misplaced(text: str, start: int | None, passage: str) -> str:
    """Says what is wrong with an answer's position; empty if nothing is."""
    if not text.strip():
        return "the answer is empty"
    if start is not None and start >= 0 and passage.startswith(text, start):
        return ""
    nearest = nearest_place(text, start or 0, passage)
    if start is None:
        return "" if nearest >= 0 else f"the answer {short(text)} is nowhere in the passage"
    there = short(passage[start : start + len(text)]) if 0 <= start < len(passage) else "nothing"
    where = f"the nearest place is {nearest}" if nearest >= 0 else "it is nowhere in the passage"
    return f"the answer {short(text)} is not at character {start}, there is {there}; {where}"


def nearest_place(text: str, start: int, passage: str) -> int:
    """Returns the position of the text nearest to `start`, or -1 if it is not in the passage."""
    places = (passage.rfind(text, 0, max(0, start) + len(text)), passage.find(text, max(0, start)))
    known = [place for place in places if place >= 0]
    return min(known, key=lambda place: abs(place - start), default=-1)
