"""What becomes of answers and tags when the words around them change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regard.data.augment.words import WordSequence
from regard.data.examples import AnswerSpan, Example, Question, TaggedExample
from regard.data.tags import OUTSIDE, entities, write

Group = tuple[str | None, int, int]  # kind of an entity (None: a word outside), its words

# -- answers


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """In their order, and those that overlap as one."""
    united: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if united and start < united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def answered(example: Question, before: WordSequence, after: WordSequence) -> Example:
    """The question with its answers where they stand now."""
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
    """Entities as one each, and every other word for itself."""
    names = entities(example.tags) if scheme and example.tags is not None else []
    inside = {place for _, start, end in names for place in range(start, end)}
    alone = [(None, i, i + 1) for i in range(len(example.words)) if i not in inside]
    return sorted([*alone, *names], key=lambda group: group[1])


def tagged(
    example: TaggedExample, groups: Sequence[Group], sentence: WordSequence, scheme: str
) -> TaggedExample:
    """The words of a variant with their tags: of entities those that the scheme writes for where
    they stand now, else those that the words had; an inserted word has that of its model.
    """
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
