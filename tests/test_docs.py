"""What the documents quote, link to and ask to be run is there, in both languages alike."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import typer.main

from regard.claims import names as claims
from regard.cli import app

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ENGLISH = ("tutorial", "concepts", "misstatements")
PAGES = [DOCS / f"{name}{language}.md" for name in ENGLISH for language in ("", ".zh")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(r"\]\((\.\./regard/[\w./]+\.py)\)")
PYTEST = re.compile(r"tests/[\w/]+\.py(?:::\w+)?")
LEFT_OUT = "…"  # a line of a quotation that stands for others

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
by_name = pytest.mark.parametrize("name", ENGLISH)


class Block(NamedTuple):
    kind: str  # what stands behind the fence
    lines: list[str]
    before: str  # the text before it, up to the page's beginning


def blocks(page: Path) -> Iterator[Block]:
    text, end = page.read_text("utf-8"), 0
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(found[1], found[2].splitlines(), text[: found.start()])
        end = found.end()
    assert text.count("```") % 2 == 0 and "```" not in text[end:], f"{page.name}: an open fence"


def prose(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> Iterator[list[str]]:
    """Every `regard …`, of blocks and of the text; a heredoc is somebody else's program."""
    for block in blocks(page):
        if block.kind == "sh":
            text = re.sub(r"<<'END'\n.*?\nEND\n", "\n", "\n".join(block.lines) + "\n", flags=re.S)
            lines = text.splitlines()
            yield from (shlex.split(line) for line in lines if line.startswith("regard "))
    for found in re.findall(r"`(regard [^`]+)`", prose(page)):
        if "…" not in found and "=" not in found.split()[0]:
            yield shlex.split(found)


@cache
def program() -> Any:
    return typer.main.get_command(app)


def parsed(words: list[str]) -> Any:
    """The command that words name, its options understood, and nothing run. A bare name, as a
    sentence has it, need only exist.
    """
    command, rest = program(), words[1:]
    while hasattr(command, "commands") and rest:
        assert rest[0] in command.commands, f"there is no command {rest[0]!r}"
        command, rest = command.commands[rest[0]], rest[1:]
    return command.make_context(command.name, list(rest)) if rest else command


# -- what is quoted


def chunks(lines: list[str]) -> Iterator[list[str]]:
    """Pieces of a quotation that stand together in the file."""
    held: list[str] = []
    for line in [*lines, LEFT_OUT]:
        if line.strip() == LEFT_OUT:
            if held:
                yield held
            held = []
        else:
            held.append(line)


@by_page
def test_quoted_lines_stand_in_their_files(page: Path) -> None:
    for block in blocks(page):
        if block.kind != "python":
            continue
        named = SOURCE.findall(block.before)
        assert named, f"{page.name}: no file is named before {block.lines[0]!r}"
        file = (page.parent / named[-1]).resolve()
        held, place = file.read_text("utf-8").splitlines(), 0
        for chunk in chunks(block.lines):
            starts = range(place, len(held) - len(chunk) + 1)
            at = next((i for i in starts if held[i : i + len(chunk)] == chunk), None)
            assert at is not None, f"{page.name}: {file.name} has no such lines: {chunk}"
            place = at + len(chunk)


def test_the_tutorial_quotes_every_stop() -> None:
    text = (DOCS / "tutorial.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    for section in sections[1:-1]:
        title = section.splitlines()[0]
        assert "```python" in section, f"{title}: no source"
        assert "```sh" in section, f"{title}: nothing to run"
        assert ".svg" in section, f"{title}: no picture"


# -- what is to be run


@by_page
def test_commands_parse(page: Path) -> None:
    for words in commands(page):
        try:
            parsed(words)
        except Exception as error:
            pytest.fail(f"{page.name}: {' '.join(words)}: {error!r} {error}")
        if words[1:2] == ["claim"]:
            given = next(word for word in words[2:] if not word.startswith("-"))
            assert given in claims(), f"{page.name}: there is no claim {given!r}"


def test_there_are_commands_to_check() -> None:
    """The parser below is only worth something if it refuses."""
    assert len(list(commands(DOCS / "tutorial.md"))) > 40
    for wrong in ("regard models --famly gpt", "regard nothing", "regard train gpt --stepps 3"):
        with pytest.raises(Exception, match=r"famly|nothing|stepps"):
            parsed(shlex.split(wrong))


@by_page
def test_tests_that_are_named_exist(page: Path) -> None:
    for found in PYTEST.findall(page.read_text("utf-8")):
        file, _, name = found.partition("::")
        assert (ROOT / file).is_file(), f"{page.name}: there is no {file}"
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not name or name in names, f"{page.name}: {file} has no {name}"


# -- what is linked to


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to headings."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.strip().lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target} leads nowhere"
        assert not anchor or anchor in anchors(file), f"{page.name}: no heading #{anchor}"


def test_every_picture_is_shown() -> None:
    shown = {Path(target).name for page in PAGES for target in LINK.findall(prose(page))}
    assert {file.name for file in (DOCS / "figures").glob("*.svg")} <= shown


@cache
def figures() -> Any:
    """The script that draws them."""
    spec = spec_from_file_location("figures", ROOT / "scripts" / "figures.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_what_the_code_draws_today() -> None:
    """If one is not: python scripts/figures.py."""
    held = {file.stem: file.read_text("utf-8") for file in (DOCS / "figures").glob("*.svg")}
    made = {name: make() for name, make in figures().FIGURES.items()}
    assert set(held) == set(made)
    assert [name for name in made if made[name] != held[name]] == []
    for picture in made.values():
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert len(picture) < 60_000


# -- both languages


@by_name
def test_both_languages_say_as_much(name: str) -> None:
    english, chinese = (DOCS / f"{name}.md", DOCS / f"{name}.zh.md")
    levels = [re.findall(r"^(#+) ", prose(page), re.MULTILINE) for page in (english, chinese)]
    assert levels[0] == levels[1]
    held = [[(b.kind, b.lines) for b in blocks(page) if b.kind != "mermaid"]
            for page in (english, chinese)]  # fmt: skip
    assert held[0] == held[1]
    rows = [len(re.findall(r"^\|", prose(page), re.MULTILINE)) for page in (english, chinese)]
    assert rows[0] == rows[1]
    pictures = [re.findall(r"figures/[\w-]+\.svg", prose(page)) for page in (english, chinese)]
    assert pictures[0] == pictures[1]
    quoted = [re.findall(r"`(regard [^`]+|pytest [^`]+)`", prose(p)) for p in (english, chinese)]
    assert quoted[0] == quoted[1]


def edges(page: Path) -> list[tuple[str, str]]:
    drawn = next(block for block in blocks(page) if block.kind == "mermaid")
    return [found for line in drawn.lines for found in re.findall(r"(\w+) --> (\w+)", line)]


def test_the_map_is_one_and_leads_nowhere_in_a_circle() -> None:
    both = [DOCS / "concepts.md", DOCS / "concepts.zh.md"]
    found = edges(both[0])
    assert found == edges(both[1])
    needs: dict[str, list[str]] = {}
    for below, above in found:
        needs.setdefault(above, []).append(below)
    assert set(TopologicalSorter(needs).static_order()) >= set(needs)
    for page in both:
        names = dict(re.findall(r"^    (\w+)\[([^\]]+)\]$", page.read_text("utf-8"), re.MULTILINE))
        rows = {row[0]: row[1] for row in table_rows(page) if row[0] in names.values()}
        assert set(rows) == set(names.values())
        for key, name in names.items():
            told = [] if rows[name] == "–" else re.split("[;；] ?", rows[name])
            assert told == [names[below] for below in needs.get(key, [])], name


def test_misstatements_are_many_and_each_is_shown() -> None:
    for language in ("", ".zh"):
        rows = table_rows(DOCS / f"misstatements{language}.md")
        assert len(rows) >= 40
        for row in rows:
            assert len(row) == 3, row
            assert re.search(r"`(regard|pytest) [^`]+`", row[2]), f"nothing shows: {row[0]}"


def table_rows(page: Path) -> list[list[str]]:
    lines = [line for line in prose(page).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    heads = {i - 1 for i, row in enumerate(cells) if set(row[0]) <= {"-"}}
    return [row for i, row in enumerate(cells) if i not in heads and not set(row[0]) <= {"-"}]
