"""Reads scripts and style sheets as far as the linter of pages has to understand them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

HOLE = "\0"  # where a text is filled in
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'" + r"|`|[{}]"
    r"|/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*",
    re.DOTALL,
)


class Problem(NamedTuple):
    file: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}: {self.what}"


class Written(NamedTuple):
    """A string of a script, without its quotes; what a template literal fills in is a hole."""

    at: int
    text: str


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def blank(text: str) -> str:
    """As long as the text, with its lines."""
    return re.sub(r"[^\n]", " ", text)


def words_of(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(rf"[\w{HOLE}-]+", text)}


def blanked(match: re.Match[str]) -> str:
    return blank(match[0])


class Script:
    """A module: its code, and apart from it its strings."""

    def __init__(self, file: Path) -> None:
        self.file, self.text = file, file.read_text("utf-8")
        self.strings: list[Written] = []
        self.bare = list(self.text)  # without comments
        self.pure = list(self.text)  # without comments and strings
        self.read(0, 0)
        self.code = "".join(self.pure)
        self.spoken = "".join(self.bare)

    def cut(self, start: int, end: int, comment: bool = False) -> None:
        self.pure[start:end] = blank(self.text[start:end])
        if comment:
            self.bare[start:end] = blank(self.text[start:end])

    def read(self, at: int, depth: int) -> int:
        """Reads code up to its end, or to the brace that ends a hole of a template literal."""
        inside = 0
        while match := TOKEN.search(self.text, at):
            token, at = match[0], match.end()
            if token in "{}":
                inside += 1 if token == "{" else -1
                if depth and inside < 0:
                    return at
            elif token == "`":
                at = self.literal(match.start(), depth)
            elif token[:2] in ("//", "/*"):
                self.cut(match.start(), at, comment=True)
            elif token[0] == "/":
                before = "".join(self.pure[: match.start()]).rstrip()
                if before and before[-1] not in "(,=:[!&|?{};>" and not before.endswith("return"):
                    at = match.start() + 1  # a division
                else:
                    self.cut(match.start(), at)
            else:
                self.strings.append(Written(match.start(), token[1:-1]))
                self.cut(match.start(), at)
        return len(self.text)

    def literal(self, start: int, depth: int) -> int:
        pieces, at = [], start + 1
        while True:
            match = re.compile(r"(?:\\.|(?!\$\{)[^`\\])*", re.DOTALL).match(self.text, at)
            assert match is not None
            pieces.append(match[0])
            end = match.end()
            self.cut(at - 1, end + 1)
            if self.text[end : end + 2] != "${":
                self.strings.append(Written(start, HOLE.join(pieces)))
                return end + 1
            self.pure[end + 1] = " "
            at = self.read(end + 2, depth + 1)

    def after(self, pattern: str) -> Iterator[Written]:
        """The strings of the expressions that follow: `class: a ? "b" : "c"` has two."""
        for match in re.finditer(pattern, self.code):
            end, depth = match.end(), 0
            while end < len(self.code) and (depth or self.code[end] not in ",;)]}\n"):
                depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(self.code[end], 0)
                end += 1
            for each in self.strings:
                compared = re.search(r"[=!]==\s*$", self.code[: each.at])
                if match.end() <= each.at < end and not compared:
                    yield each

    @cached_property
    def ids_used(self) -> list[Written]:
        return [*self.after(r"\b(?:part|getElementById|click)\("), *self.selected("#")]

    @cached_property
    def ids_made(self) -> set[str]:
        return {each.text for each in self.after(r"\bid:|\.id = ")}

    @cached_property
    def classes_made(self) -> list[Written]:
        places = r"\bclass:|\bclassName = |\bclassList\.(?:add|toggle|remove)\("
        return list(self.after(places))

    def selected(self, sign: str) -> Iterator[Written]:
        """What the script looks for in the page by its class (.), or by its id (#)."""
        for each in self.after(
            r"\b(?:all|querySelector|querySelectorAll|closest|matches|walked)\("
        ):
            for match in re.finditer(rf"\{sign}([\w{HOLE}-]+)", each.text):
                yield Written(each.at, match[1])

    def problem(self, at: int, what: str) -> Problem:
        return Problem(self.file, line_of(self.text, at), what)


@dataclass(frozen=True)
class Sheet:
    """A style sheet without its comments: selectors stand outside of braces, values inside."""

    file: Path
    text: str
    selectors: str
    values: str

    @classmethod
    def of(cls, file: Path, source: str) -> Sheet:
        text = re.sub(r"/\*.*?\*/", lambda match: blank(match[0]), source, flags=re.DOTALL)
        values = re.sub(r"[^{}]*\{|\}", lambda match: blank(match[0]), text)
        selectors = "".join(
            " " if v != " " and c != "\n" else c for c, v in zip(text, values, strict=True)
        )
        return cls(file, text, selectors, values)

    def names(self, sign: str) -> set[str]:
        return set(re.findall(rf"\{sign}([a-zA-Z][\w-]*)", self.selectors))

    def problem(self, at: int, what: str) -> Problem:
        return Problem(self.file, line_of(self.text, at), what)
