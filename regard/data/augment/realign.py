"""Moves answers and tags when the words around them change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regard.data.augment.words import WordSequence
from regard.data.examples import AnswerSpan, Example, Question, TaggedExample
from regard.data.tags import OUTSIDE, entities, write

Group = tuple[str | None, int, int]  # the kind of an entity (None: a word outside), its words

# -- answers


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the spans sorted, with overlapping ones united."""
    united: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if united and start < united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def answered(example: Question, before: WordSequence, after: WordSequence) -> Example:
    """Returns the question with its answers at their new offsets."""
    old = {
        unit.origin: start for unit, (start, _) in zip(before.units, before.places(), strict=True)
    }
    shifts = [
        (old[unit.origin], old[unit.origin] + len(unit.text), start - old[unit.origin])
        for unit, (start, _) in zip(after.units, after.places(), strict=True)
        if not unit.loose
    ]
    answers = tuple(
        AnswerSpan(a.text, a.start + next(by for s, e, by in shifts if s <= a.start < e))
        for a in example.answers
    )
    return replace(example, passage=str(after), answers=answers)


# -- tags


def grouped(example: TaggedExample, scheme: str) -> list[Group]:
    """Groups words: each entity is one group, and every other word is a group of its own."""
    names = entities(example.tags) if scheme and example.tags is not None else []
    inside = {place for _, start, end in names for place in range(start, end)}
    alone = [(None, i, i + 1) for i in range(len(example.words)) if i not in inside]
    return sorted([*alone, *names], key=lambda group: group[1])


def tagged(
    example: TaggedExample, groups: Sequence[Group], sentence: WordSequence, scheme: str
) -> TaggedExample:
    """Returns the words of a variant with their tags. The scheme writes new tags for entities at
    their new places; other words keep their tags, and an inserted word has the tag of the word it
    was chosen for."""
    words: list[str] = []
    tags: list[str] = []
    names = []
    for unit in sentence.units:
        kind, start, end = groups[unit.origin]
        new = list(example.words[start:end]) if kind is not None else [unit.text]
        if kind is not None:
            names.append((kind, len(words), len(words) + len(new)))
        words += new
        tags += [OUTSIDE if example.tags is None else example.tags[start]] * len(new)
    if scheme:
        tags = write(names, len(words), scheme)
    return replace(example, words=tuple(words), tags=None if example.tags is None else tuple(tags))
