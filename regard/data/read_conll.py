"""Reads CoNLL files: one word with its tag per line, and a blank line between sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from regard.core.errors import InputError
from regard.data.examples import TaggedExample
from regard.data.files import TextFile
from regard.data.problems import FileLine

PEEK = 2000  # lines that decide the number of columns
LONGEST = 100_000  # words in the longest sentence
DOCUMENT = "-DOCSTART-"
BLANKS = re.compile("[ \t]+")
UNIVERSAL = 10  # the number of columns of CoNLL-U
ID = re.compile(r"\d+([-.]\d+)?")
# `# id 3` or `# text = …`; a line such as `# O` is a word with its tag.
COMMENT = re.compile(r"# (?:sent_id|id)\s*[=:]?\s*(\S+)|# (?=[^\t]*=[^\t]*$)")


@dataclass
class ConllSentence:
    lines: list[tuple[int, str]] = field(default_factory=list)
    id: str = ""


@dataclass(frozen=True)
class ConllColumns:
    """The columns of words and tags, counted from 0; `width` is the columns of most lines."""

    tabs: bool
    width: int
    word: int
    tag: int | None
    universal: bool = False  # CoNLL-U: ten columns, the first of which holds numbers

    def split(self, line: str) -> list[str]:
        """Splits a line into cells; empty cells at its end are dropped."""
        if self.tabs:
            cells = [cell.strip(" ") for cell in line.split("\t")]
        else:
            cells = BLANKS.split(line.strip(" \t"))
        while len(cells) > self.width and not cells[-1]:
            cells.pop()
        return cells


def conll(file: TextFile, chosen: Mapping[str, str]) -> Iterator[TaggedExample]:
    """Yields tagged sentences. `chosen` may name the columns of words and tags, counted from 1."""
    ahead: list[ConllSentence] = []
    count = 0
    stream = sentences(file)
    for sentence in stream:
        ahead.append(sentence)
        count += len(sentence.lines)
        if count >= PEEK:
            break
    if not ahead:
        return
    columns = settle(ahead, file.name, chosen)
    for sentence in chain(ahead, stream):
        words, tags = read_sentence(sentence, columns, file)
        if words:
            place = FileLine(file.name, sentence.lines[0][0])
            yield TaggedExample(tuple(words), tags, place, sentence.id or str(place))


def sentences(file: TextFile) -> Iterator[ConllSentence]:
    """Yields the lines between blank lines; comments and the starts of documents are skipped."""
    sentence = ConllSentence()
    for number, text in file.lines():
        line = text.strip(" ")
        if not line.strip():
            if sentence.lines:
                yield sentence
                sentence = ConllSentence()
        elif line.startswith(DOCUMENT):
            continue
        elif not sentence.lines and (match := COMMENT.match(line)):
            sentence.id = match[1] or sentence.id
        else:
            sentence.lines.append((number, line))
            if len(sentence.lines) > LONGEST:
                raise InputError(
                    f"{file.name}:{number}: the sentence has more than {LONGEST:,} lines; put a "
                    "blank line after each sentence"
                )
    if sentence.lines:
        yield sentence


def settle(ahead: list[ConllSentence], name: str, chosen: Mapping[str, str]) -> ConllColumns:
    """Finds the columns of words and tags from most of the first lines and from `chosen`."""
    lines = [line for sentence in ahead for _, line in sentence.lines]
    tabs = 2 * sum("\t" in line for line in lines) > len(lines)
    split = ConllColumns(tabs, 0, 0, None).split
    widths = Counter(len(split(line)) for line in lines)
    width = max(widths, key=lambda count: (widths[count], count))
    universal = width == UNIVERSAL and all(ID.fullmatch(split(line)[0]) for line in lines)
    usual = {"words": "2", "tags": "4"} if universal else {"words": "1"}  # of CoNLL-U: FORM, UPOS
    places = {}
    for role, number in (usual | dict(chosen)).items():
        if role not in ("words", "tags"):
            continue
        if not number.isdecimal() or not 1 <= int(number) <= width:
            raise InputError(
                f"--field {role}={number}: most lines of {name} have {width} columns; give a "
                f"number from 1 to {width}"
            )
        places[role] = int(number) - 1
    last = width - 1 if width - 1 != places["words"] else None
    return ConllColumns(tabs, width, places["words"], places.get("tags", last), universal)


def read_sentence(
    sentence: ConllSentence, columns: ConllColumns, file: TextFile
) -> tuple[list[str], tuple[str, ...] | None]:
    """Returns words and tags, or no words if a line is wrong; every wrong line is reported."""
    words: list[str] = []
    tags: list[str] = []
    good = True
    needed = max(columns.word, columns.tag or 0) + 1
    for number, line in sentence.lines:
        cells = columns.split(line)
        width = f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
        if columns.universal and not cells[0].isdecimal():
            continue  # a contraction of two words (3-4), or a word that is not written (3.1)
        if len(cells) < needed:
            kind, trouble = "ragged-line", f"there are {width}; most lines have {columns.width}"
        elif not cells[columns.word].strip():
            kind, trouble = "empty-text", "the word is empty"
        elif columns.tag is not None and not cells[columns.tag]:
            kind, trouble = "missing-label", "the tag is empty"
        else:
            kind = trouble = ""
        if trouble:
            file.wrong(number, kind, f"{trouble}; the sentence is left out")
            good = False
            continue
        if len(cells) > columns.width:
            file.wrong(
                number,
                "ragged-line",
                f"there are {width}; most lines have {columns.width}; the rest "
                f"({' '.join(cells[columns.width :])!r}) is not used",
                "warning",
            )
        words.append(cells[columns.word])
        if columns.tag is not None:
            tags.append(cells[columns.tag])
    if not good:
        return [], None
    return words, tuple(tags) if columns.tag is not None else None
