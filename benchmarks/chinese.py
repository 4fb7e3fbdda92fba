"""Says a section of a page of results in Chinese.

A writer makes its section once, in English; here it is translated sentence by sentence, heading by
heading and cell by cell. The pairs stand in chinese.toml, a table for each section and `common` for
all. `{}` stands for words that differ from run to run, and they are translated in turn; `{n}`
stands for a number. What is filled in keeps its order, so both pages hold the same numbers. Notes
that a command of ours wrote are translated as on its own page.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from regard.core.text import spoken
from regard.report.pages import translated

FILE = Path(__file__).with_name("chinese.toml")
NUMBER = r"([-+]?\d[\d,.]*(?:e[-+]?\d+)?%?(?: ± [\d,.]+)?)"
FIELD = re.compile(r"\{n?\}")
WORD = re.compile(r"(?<![\w-])[a-z](?:[\w'-]|\.(?=\w))+", re.ASCII | re.IGNORECASE)
AS_IT_IS = re.compile(r"`[^`]*`|\]\([^)]*\)")  # code, and where a link leads
SENTENCE = re.compile(r"(?<=[.?!]) (?=[“\"]?[A-Z“])")
SAMPLE = " → "  # between a text and what a model wrote behind it


@cache
def table_of(section: str) -> dict[str, str]:
    """Returns the pairs of a section: its own, then those for all."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return dict(tables["common"] | tables.get(section, {}))


@cache
def names() -> set[str]:
    """Returns the words that are the same in both languages."""
    return set(tomllib.loads(FILE.read_text(encoding="utf-8"))["names"]["words"].split())


@cache
def patterns(section: str) -> list[tuple[re.Pattern[str], str]]:
    """Returns what to look for and what it becomes; the most exact pattern stands first."""
    pairs = sorted(table_of(section).items(), key=lambda pair: -len(FIELD.sub("", pair[0])))
    return [(re.compile(pattern(english)), chinese) for english, chinese in pairs]


def pattern(english: str) -> str:
    fields = iter([NUMBER if field == "{n}" else "(.+?)" for field in FIELD.findall(english)])
    return "".join(re.escape(part) + next(fields, "") for part in FIELD.split(english))


def english_words(text: str) -> list[str]:
    """Returns the words of a text that are not the same in Chinese."""
    return [word for word in WORD.findall(AS_IT_IS.sub(" ", text)) if word not in names()]


def phrase(english: str, section: str) -> str:
    """Returns a piece of a text in Chinese; a piece that nobody has translated stays as it is."""
    if not WORD.search(AS_IT_IS.sub(" ", english)):
        return english
    note = spoken(translated(english), "zh")
    if note != english:
        return note
    for look_for, chinese in patterns(section):
        if match := look_for.fullmatch(english):
            return chinese.format(*(phrase(part, section) for part in match.groups()))
    return english


def prose(text: str, section: str) -> str:
    """Returns a paragraph in Chinese; no space stands between Chinese sentences."""
    sentences = [phrase(sentence, section) for sentence in SENTENCE.split(" ".join(text.split()))]
    return re.sub(r"(?<=[。？！]) ", "", " ".join(sentences))


def line_in_chinese(line: str, section: str) -> str:
    if line.startswith("| "):
        cells = [phrase(cell, section) for cell in line.removeprefix("| ")[:-2].split(" | ")]
        return f"| {' | '.join(cells)} |"
    mark = re.match(r" *(?:#+|\*) |", line)
    start = mark[0] if mark else ""
    text = line.removeprefix(start)
    return line if start and SAMPLE in text else start + prose(text, section)


def in_chinese(section: str, text: str) -> str:
    """Returns the section in Chinese."""
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        if not re.match(r"\| | *\* |#", block):
            lines = [" ".join(lines)]  # a paragraph that is broken into lines
        blocks.append("\n".join(line_in_chinese(line, section) for line in lines))
    return "\n\n".join(blocks)


def untranslated(chinese: str) -> list[str]:
    """Returns the English words that are left in a Chinese section, with the lines they stand in.
    What models wrote is left out."""
    lines = [line for line in chinese.splitlines() if SAMPLE not in line]
    return [f"{', '.join(words)}: {line}" for line in lines if (words := english_words(line))]
