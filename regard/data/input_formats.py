"""The input formats of the models: special tokens, segments, and the side of the padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from regard.core.errors import ConfigError

if TYPE_CHECKING:
    from regard.data.corpus import Special


@dataclass(frozen=True)
class InputFormat:
    """The layout of an input: the texts "a" and "b" and the roles of special tokens, in order."""

    single: tuple[tuple[str, int], ...]  # (part, its segment)
    double: tuple[tuple[str, int], ...]
    left: bool = False  # whether padding comes before the text
    beyond: int = 0  # the segment of padding
    segments: bool = True  # whether the model has segments


def parts(text: str) -> tuple[tuple[str, int], ...]:
    """Parses a layout such as "cls a:0 sep"; a part without a number has segment 0."""
    return tuple((word.split(":")[0], int(word.partition(":")[2] or 0)) for word in text.split())


@dataclass(frozen=True)
class PassageFormat:
    """The layout of a question and a passage: the two texts and the roles of special tokens, in
    order."""

    parts: tuple[str, ...]
    segments: tuple[int, ...]  # the segment of each part
    beyond: int = 0  # the segment of padding, which is on the right
    length: int = 384
    stride: int = 128  # tokens by which a window moves (not the overlap); at most half its room
    question: int = 64  # the most tokens of the question; the rest is cut off
    answer: int = 30  # the most tokens of a predicted answer


class FormattedInput(NamedTuple):
    ids: list[int]
    segments: list[int]
    cut: bool  # whether tokens were left out


def bare(frame: InputFormat) -> InputFormat:
    """Returns the format without special tokens, as other libraries feed texts to GPT-2."""
    single, double = (
        tuple((part, segment) for part, segment in layout if part in ("a", "b"))
        for layout in (frame.single, frame.double)
    )
    return replace(frame, single=single, double=double)


def framed(
    frame: InputFormat, special: Special, a: list[int], b: list[int] | None, length: int
) -> FormattedInput:
    """Returns the ids of one or two texts with special tokens, at most `length` of them: the longer
    text loses its end first (google-research/bert, `_truncate_seq_pair`). If no id is left, the
    input is the end token alone."""
    layout = frame.single if b is None else frame.double
    room = length - sum(part not in ("a", "b") for part, _ in layout)
    if room < (1 if b is None else 2):
        raise ConfigError(
            f"a length of {length} has no room for text beside the special tokens; give more"
        )
    first, second = len(a), len(b or ())
    if first + second > room:
        half = min(second, max(room // 2, room - first))
        first, second = min(first, room - half), half
    texts = {"a": a[:first], "b": (b or [])[:second]}
    ids: list[int] = []
    segments: list[int] = []
    for part, segment in layout:
        new = texts[part] if part in texts else [special.need(part)]
        ids += new
        segments += [segment] * len(new)
    cut = first + second < len(a) + len(b or ())
    return FormattedInput(ids, segments, cut) if ids else FormattedInput([special.end], [0], cut)


class SurroundingMarks(NamedTuple):
    """The special tokens before and after the words, and their segments."""

    ids: tuple[list[int], list[int]]
    segments: tuple[list[int], list[int]]

    def segments_of(self, ids: Sequence[int]) -> list[int]:
        """Returns the segments of a whole row of ids."""
        before, after = self.segments
        return [*before, *[0] * (len(ids) - len(before) - len(after)), *after]


def surrounding(layout: Sequence[tuple[str, int]], special: Special) -> SurroundingMarks:
    """Returns the special tokens around a single text "a" of segment 0."""
    words = list(layout).index(("a", 0))
    sides = layout[:words], layout[words + 1 :]
    before, after = ([special.need(part) for part, _ in side] for side in sides)
    first, last = ([segment for _, segment in side] for side in sides)
    return SurroundingMarks((before, after), (first, last))
