"""CoNLL: a word a line with its tag, blank lines between sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from regard.core.errors import InputError
from regard.data.examples import Tagged
from regard.data.files import TextFile
from regard.data.problems import Place

PEEK = 2000  # lines that decide how many columns there are
LONGEST = 100_000  # words of a sentence
DOCUMENT = "-DOCSTART-"
BLANKS = re.compile("[ \t]+")
UNIVERSAL = 10  # columns of CoNLL-U
ID = re.compile(r"\d+([-.]\d+)?")
NAME = re.compile(r"# (?:sent_id|id)\s*[=:]?\s*(\S+)")


@dataclass
class Sentence:
    lines: list[tuple[int, str]] = field(default_factory=list)
    id: str = ""


@dataclass(frozen=True)
class Columns:
    """Where things stand, counted from 0; `width` is what most lines have."""

    tabs: bool
    width: int
    word: int
    tag: int | None
    universal: bool = False  # CoNLL-U: ten columns, the first of them numbers

    def split(self, line: str) -> list[str]:
        """Empty columns at the end say nothing."""
        if self.tabs:
            cells = [cell.strip(" ") for cell in line.split("\t")]
        else:
            cells = BLANKS.split(line.strip(" \t"))
        while len(cells) > self.width and not cells[-1]:
            cells.pop()
        return cells


def conll(file: TextFile, chosen: Mapping[str, str]) -> Iterator[Tagged]:
    """`chosen` may name the columns of words and tags, counted from 1."""
    ahead: list[Sentence] = []
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
            place = Place(file.name, sentence.lines[0][0])
            yield Tagged(tuple(words), tags, place, sentence.id or str(place))


def sentences(file: TextFile) -> Iterator[Sentence]:
    """Lines between blank ones; lines that begin a document or comment on it are not words."""
    sentence = Sentence()
    for number, text in file.lines():
        line = text.strip(" ")
        if not line.strip():
            if sentence.lines:
                yield sentence
                sentence = Sentence()
        elif line.startswith(DOCUMENT):
            continue
        elif not sentence.lines and comment(line):
            match = NAME.match(line)
            sentence.id = match[1] if match else sentence.id
        else:
            sentence.lines.append((number, line))
            if len(sentence.lines) > LONGEST:
                raise InputError(
                    f"{file.name}:{number}: a sentence of more than {LONGEST:,} lines; a blank "
                    "line ends a sentence"
                )
    if sentence.lines:
        yield sentence


def comment(line: str) -> bool:
    """`# text = …` or `# id 3`; a line such as `# O` is a word with its tag."""
    named = NAME.match(line) is not None
    return named or (line.startswith("# ") and "=" in line and "\t" not in line)


def settle(ahead: list[Sentence], name: str, chosen: Mapping[str, str]) -> Columns:
    lines = [line for sentence in ahead for _, line in sentence.lines]
    tabs = 2 * sum("\t" in line for line in lines) > len(lines)
    split = Columns(tabs, 0, 0, None).split
    widths = Counter(len(split(line)) for line in lines)
    width = max(widths, key=lambda count: (widths[count], count))
    universal = width == UNIVERSAL and all(ID.fullmatch(split(line)[0]) for line in lines)
    usual = {"words": "2", "tags": "4"} if universal else {"words": "1"}  # of CoNLL-U: FORM, UPOS
    given = usual | dict(chosen)
    word = column("words", given["words"], width, name)
    last = width - 1 if width - 1 != word else None
    tag = column("tags", given["tags"], width, name) if "tags" in given else last
    return Columns(tabs, width, word, tag, universal)


def column(role: str, given: str, width: int, name: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= width:
        raise InputError(
            f"--field {role}={given}: most lines of {name} have {width} columns; give a number "
            f"from 1 to {width}"
        )
    return int(given) - 1


def read_sentence(
    sentence: Sentence, columns: Columns, file: TextFile
) -> tuple[list[str], tuple[str, ...] | None]:
    """Words and tags; no words if a line is wrong, and every wrong line is said."""
    words: list[str] = []
    tags: list[str] = []
    good = True
    for number, line in sentence.lines:
        cells = columns.split(line)
        if columns.universal and not cells[0].isdecimal():
            continue  # two words written as one (3-4), or one that is not written (3.1)
        kind, trouble = wrong(cells, columns)
        if trouble:
            file.wrong(number, kind, f"{trouble}; the sentence is left out")
            good = False
            continue
        if len(cells) > columns.width:
            file.wrong(
                number,
                "ragged-line",
                f"{len(cells)} columns where most lines have {columns.width}; the rest "
                f"({' '.join(cells[columns.width :])!r}) is not used",
                "warning",
            )
        words.append(cells[columns.word])
        if columns.tag is not None:
            tags.append(cells[columns.tag])
    if not good:
        return [], None
    return words, tuple(tags) if columns.tag is not None else None


def wrong(cells: list[str], columns: Columns) -> tuple[str, str]:
    """Kind and message of what is wrong with a line; both empty if nothing."""
    needed = max(columns.word, columns.tag or 0) + 1
    if len(cells) < needed:
        has = f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
        return "ragged-line", f"{has} where most lines have {columns.width}"
    if not cells[columns.word].strip():
        return "empty-text", "the word is empty"
    if columns.tag is not None and not cells[columns.tag]:
        return "missing-label", "the tag is empty"
    return "", ""
