"""Tags of words: entities in BIO and related schemes, and their alignment with sub-tokens.

    bio    B begins every entity, I continues it (IOB2)
    iob1   I throughout; B only where an entity follows another of its type
    bioes  E ends an entity, S is an entity of a single word
    bilou  the same with L and U

One rule (conlleval's) reads all of them, also broken ones: an entity begins at B or S, and at any
other tag that does not continue an entity of its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer as Fast

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.tokenizer import Tokenizer
from regard.data.windows import homes

OUTSIDE = "O"
IGNORED = -100  # the label of a position that is not scored
LETTERS = {"bio": "BI", "iob1": "BI", "bioes": "BIES", "bilou": "BILU"}

Entity = tuple[str, int, int]  # type, first word, the word after the last


class TagProblem(NamedTuple):
    place: int  # the index of the word; the number of words for a problem at the end
    message: str


def known(scheme: str) -> str:
    if scheme not in LETTERS:
        raise UnknownName("tag scheme", scheme, LETTERS)
    return scheme


@lru_cache(2**14)
def split(tag: str) -> tuple[str, str]:
    """Returns (letter, type). The type may be empty ("B") or hold hyphens ("B-creative-work")."""
    letter, hyphen, kind = tag.partition("-")
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if letter not in tuple("BIESLU") or (hyphen and not kind):
        raise InputError(f"{tag!r} is no tag; give O, or a letter and a type such as B-person")
    return letter, kind


def join(letter: str, kind: str) -> str:
    return f"{letter}-{kind}" if kind else letter


def goes_on(before: str | None, tag: str) -> bool:
    """Tells whether a tag belongs to the entity of the tag before it."""
    if before is None or OUTSIDE in (before, tag):
        return False
    letter, kind = split(tag)
    last, other = split(before)
    return letter in "IEL" and last in "BI" and kind == other


def entities(tags: Sequence[str]) -> list[Entity]:
    """Returns (type, start, end) of each entity, end excluded; for any scheme, broken or not."""
    spans: list[Entity] = []
    before = None
    for place, tag in enumerate(tags):
        letter, kind = split(tag)
        if goes_on(before, tag):
            spans[-1] = (kind, spans[-1][1], place + 1)
        elif letter != OUTSIDE:
            spans.append((kind, place, place + 1))
        before = tag
    return spans


def write(spans: Iterable[Entity], count: int, scheme: str = "bio") -> list[str]:
    """Returns entities as the tags of `count` words."""
    letters = known(scheme)
    tags = [OUTSIDE] * count
    before: Entity = ("", 0, 0)
    for kind, start, end in sorted(spans, key=lambda entity: entity[1]):
        if not before[2] <= start < end <= count:
            raise InputError(
                f"the entity {kind!r} of words {start} to {end} is empty, is beyond the {count} "
                f"words, or overlaps an entity that ends at {before[2]}"
            )
        touches = before[2] == start > 0 and before[0] == kind
        inner = ["I"] * (end - start)
        if letters != "iob1" or touches:
            inner[0] = "B"
        if letters in ("bioes", "bilou"):
            inner[-1] = "EL"[letters == "bilou"]
            if end - start == 1:
                inner[0] = "SU"[letters == "bilou"]
        tags[start:end] = [join(letter, kind) for letter in inner]
        before = (kind, start, end)
    return tags


def repair(tags: Sequence[str], scheme: str = "bio") -> list[str]:
    """Returns legal tags of a scheme for the entities that conlleval would find. Legal tags of the
    same scheme do not change. An I- without a B- begins an entity; in bioes an entity ends where
    the next tag begins something else."""
    return write(entities(tags), len(tags), scheme)


# -- what is legal


def legal(before: str | None, tag: str | None, scheme: str = "bio") -> bool:
    """Tells whether a tag may follow another; None is the start or the end of a sentence."""
    first, kind = split(before or OUTSIDE)
    second, other = split(tag or OUTSIDE)
    letters = LETTERS[known(scheme)]
    if not {first, second} <= {*letters, OUTSIDE}:
        return False
    same = kind == other
    if scheme == "bio":
        return second != "I" or (first in "BI" and same)
    if scheme == "iob1":
        return second != "B" or (first in "BI" and same)
    unfinished, within = first in "BI", second in "IEL"
    return (unfinished and within and same) if unfinished or within else True


def problems(tags: Sequence[str], scheme: str = "bio") -> list[TagProblem]:
    """Describes each illegal step of a sequence of tags."""
    steps: list[TagProblem] = []
    before: str | None = None
    letters = LETTERS[known(scheme)]
    for place, tag in enumerate(tags):
        try:
            letter, _ = split(tag)
            message = f"{tag} does not belong to the scheme {scheme!r}"
        except InputError as error:
            letter, message = "", str(error)
        if letter not in (*letters, OUTSIDE):
            steps.append(TagProblem(place, message))
            before = None
            continue
        if not legal(before, tag, scheme):
            there = f"follows {before}" if before else "has no tag before it"
            steps.append(TagProblem(place, f"{tag} {there}, which {scheme!r} forbids"))
        before = tag
    if not legal(before, None, scheme):
        steps.append(
            TagProblem(len(tags), f"the sentence ends after {before}, inside of an entity")
        )
    return steps


def detect(sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme of a file: by its letters, and for bio or iob1 by which one breaks less
    often.

    A word that is not a tag at all is left for `problems` to name.
    """
    rows = list(sentences)
    used = {tag.partition("-")[0] for row in rows for tag in row}
    if used & {*"ES"} and used & {*"LU"}:
        raise InputError(
            f"the tags mix two schemes: {', '.join(sorted(used & {*'ESLU'}))}; use either bioes "
            "(with E and S) or bilou (with L and U)"
        )
    if used & {*"LU"}:
        return "bilou"
    if used & {*"ES"}:
        return "bioes"
    broken = {scheme: sum(len(problems(row, scheme)) for row in rows) for scheme in ("bio", "iob1")}
    return "iob1" if broken["iob1"] < broken["bio"] else "bio"


def labels(kinds: Iterable[str], scheme: str = "bio") -> list[str]:
    """Returns all tags of a scheme over these types, O first."""
    letters = LETTERS[known(scheme)]
    return [OUTSIDE, *(join(letter, kind) for kind in sorted(set(kinds)) for letter in letters)]


def is_tag(tag: str) -> bool:
    try:
        split(tag)
    except InputError:
        return False
    return True


def of_entities(tags: Iterable[str]) -> bool:
    """Tells whether all tags are BIO-like, and not single words' tags, such as parts of speech."""
    return all(map(is_tag, tags))


def kinds_of(tags: Iterable[str]) -> set[str]:
    """Returns the types of entities, with "" for a word outside; empty if the tags are not
    BIO-like."""
    names = set(tags)
    return {split(tag)[1] for tag in names} if of_entities(names) else set()


def scheme_of(labels: Iterable[str]) -> str:
    """Returns the scheme to which legal tags of these labels belong."""
    letters = {split(label)[0] for label in labels}
    return "bilou" if letters & {*"LU"} else "bioes" if letters & {*"ES"} else "bio"


@dataclass(frozen=True)
class Entities:
    """Reads entities from arrays of label ids, by the same rule as `entities`."""

    kinds: np.ndarray  # the kind of each label; -1 is none
    steps: np.ndarray  # [K, K]: whether a label continues the entity of the label before

    @classmethod
    def of(cls, labels: list[str]) -> Entities:
        kinds = sorted({split(label)[1] for label in labels if label != OUTSIDE})
        places = [-1 if x == OUTSIDE else kinds.index(split(x)[1]) for x in labels]
        steps = [[goes_on(before, label) for label in labels] for before in labels]
        return cls(np.array(places), np.array(steps))

    def spans(self, labels: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads words in order, with the numbers of their rows. Returns for each word the kind of
        the entity that begins there (-1: none), and the index of the word after its end."""
        on = np.zeros(len(labels), bool)
        on[1:] = self.steps[labels[:-1], labels[1:]] & (rows[1:] == rows[:-1])
        stops = np.append(np.flatnonzero(~on), len(labels))
        ends = stops[np.searchsorted(stops, np.arange(len(labels)), side="right")]
        return np.where(on, -1, self.kinds[labels]), ends

    def count(
        self, claimed: np.ndarray, real: np.ndarray, rows: np.ndarray
    ) -> tuple[int, int, int]:
        """Returns the numbers of right, predicted and gold entities."""
        (ours, our_ends), (theirs, their_ends) = self.spans(claimed, rows), self.spans(real, rows)
        right = (ours >= 0) & (ours == theirs) & (our_ends == their_ends)
        return int(right.sum()), int((ours >= 0).sum()), int((theirs >= 0).sum())


# -- words and sub-tokens


class TagWindow(NamedTuple):
    """A part of a sentence, as input of the model. `words[i]` is scored at position `rows[i]`."""

    ids: list[int]
    labels: list[int]  # labels of the first sub-tokens that are scored here; else IGNORED
    rows: list[int]
    words: list[int]


def align_all(
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[int]] | None,
    tokenizer: Tokenizer,
    length: int,
    *,
    around: tuple[list[int], list[int]],  # the special tokens before and after
    shared: int | None = None,
    blank: int | None = None,  # the id of a word for which the tokenizer gives no token
) -> list[list[TagWindow]]:
    """Returns the windows of many sentences, of at most `length` tokens; each word is scored once.

    The first sub-token of a word carries its label (BERT, 5.3). A sentence that fits is one window;
    a longer one is cut between words, so that `shared` tokens (by default a quarter) stand in two
    windows, and a word is scored where its context is fullest. Without a `blank`, a word that gives
    no token (control characters) is in no window. A word longer than a window loses its end. Each
    distinct word is tokenized alone, and only once.
    """
    before, after = around
    room = length - len(before) - len(after)
    if room < 1:
        raise ConfigError(
            f"a length of {length} has no room for words beside {len(before) + len(after)} special "
            "tokens; give a larger one"
        )
    shared = room // 4 if shared is None else shared
    windows = []
    for number, rows in enumerate(pieces(sentences, tokenizer.ready, blank)):
        own = None if tags is None else tags[number]
        if own is not None and len(own) != len(rows):
            raise InputError(f"{len(rows)} words have {len(own)} tags; give one tag for each word")
        windows.append(divide(rows, own, around, room, shared))
    return windows


def pieces(
    sentences: Sequence[Sequence[str]], fast: Fast, blank: int | None
) -> Iterator[list[list[int]]]:
    """Yields the ids of each word of each sentence."""
    if spaced(fast):
        sentences = [
            [f" {word}" if place and word else word for place, word in enumerate(words)]
            for words in sentences
        ]
    every = list(dict.fromkeys(word for words in sentences for word in words))
    encodings = fast.encode_batch_fast(every, add_special_tokens=False)
    nothing = [] if blank is None else [blank]
    ids = {word: one.ids or nothing for word, one in zip(every, encodings, strict=True)}
    return ([ids[word] for word in words] for words in sentences)


def divide(
    pieces: Sequence[list[int]],  # the ids of each word
    tags: Sequence[int] | None,
    around: tuple[list[int], list[int]],
    room: int,
    shared: int,
) -> list[TagWindow]:
    """Returns the windows of one sentence."""
    before, after = around
    order = [word for word, ids in enumerate(pieces) if ids]
    rows = [pieces[word][:room] for word in order]
    ends = [0, *accumulate(map(len, rows))]
    parts = cut(ends, room, shared) if ends[-1] > room else [(0, len(rows))] * bool(rows)
    spans = [(ends[first], ends[last] - ends[first]) for first, last in parts]
    best = homes(spans, ends[-1]) if len(parts) > 1 else None
    windows = []
    for number, (first, last) in enumerate(parts):
        ids = [*before, *chain.from_iterable(rows[first:last]), *after]
        scored: Sequence[int] = range(first, last)
        if best is not None:
            scored = [i for i in scored if best[ends[i]] == number]
        shift = len(before) - ends[first]
        places = [ends[i] + shift for i in scored]
        words = [order[i] for i in scored]
        own = [IGNORED] * len(ids)
        if tags is not None:
            for word, place in zip(words, places, strict=True):
                own[place] = tags[word]
        windows.append(TagWindow(ids, own, places, words))
    return windows


def cut(ends: Sequence[int], room: int, shared: int) -> list[tuple[int, int]]:
    """Returns windows as (first, last) over words that end at these tokens; each has a new word."""
    count = len(ends) - 1
    parts: list[tuple[int, int]] = []
    first = last = 0
    while last < count:
        if parts:
            fresh = ends[last + 1]  # the next word must fit, too
            first = next(
                i
                for i in range(first + 1, last + 1)
                if i == last or (ends[last] - ends[i] <= shared and fresh - ends[i] <= room)
            )
        last = next((i for i in range(first, count) if ends[i + 1] - ends[first] > room), count)
        parts.append((first, last))
    return parts


def spaced(fast: Fast) -> bool:
    """Tells whether a word is tokenized differently after a space (GPT-2); a lone word would lose
    it."""

    def last(text: str) -> str:
        normal = fast.normalizer.normalize_str(text) if fast.normalizer else text
        pieces = fast.pre_tokenizer.pre_tokenize_str(normal) if fast.pre_tokenizer else []
        return str(pieces[-1][0]) if pieces else ""

    return last("x x") != last("x")
