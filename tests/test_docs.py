"""What the documents quote, link to and ask to be run is there, in both languages alike."""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import click
import pytest
import torch

from regard.attention.attention import Attention
from regard.attention.pattern import Causal, Full
from regard.attention.position import View
from regard.cli.main import program
from regard.lab.claims import names as claims
from regard.models import count_parameters
from regard.report.plot import fonts
from tests.attention.naive import numbers
from tests.files import script
from tests.objectives.rules import make, tiny
from tests.objectives.small import random_documents, text_corpus
from tests.refusals import refuses

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ENGLISH = ("tutorial", "concepts", "misstatements")
PAGES = [DOCS / f"{name}{language}.md" for name in ENGLISH for language in ("", ".zh")]
ALSO = (
    "guide",
    "models",
    "quality",
    "speed",
    "many-machines",
    "coming-from",
    "reliability",
    "sharing",
    "exports",
    "serving",
)
TWICE = [
    (ROOT / "README.md", ROOT / "README.zh.md"),
    *((DOCS / f"{name}.md", DOCS / f"{name}.zh.md") for name in ALSO),
]
RESULTS = [DOCS / "results.md", DOCS / "results.zh.md"]  # tests/benchmarks compares them
OTHERS = [*(page for pair in TWICE for page in pair), ROOT / "CONTRIBUTING.md"]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(r"\]\(((?:\.\./)?regard/[\w./]+\.(?:py|toml))\)")
PYTEST = re.compile(r"tests/[\w/]+\.py(?:::\w+)?")
NUMBER = re.compile(r"(?<![\w/])\d[\d,]*(?![\w.])")
PAGE_OF_SIZES = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
LEFT_OUT = "…"  # a line of a quotation that stands for others

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
by_any = pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.name)
by_link = pytest.mark.parametrize("page", [*PAGES, *OTHERS, *RESULTS], ids=lambda page: page.name)
by_models = pytest.mark.parametrize(
    "page", [DOCS / "models.md", DOCS / "models.zh.md"], ids=lambda page: page.name
)
by_name = pytest.mark.parametrize("name", ENGLISH)


class Block(NamedTuple):
    kind: str  # what stands behind the fence
    lines: list[str]
    before: str  # the text before it, up to the page's beginning


def blocks(page: Path) -> Iterator[Block]:
    text, end = page.read_text("utf-8"), 0
    for fence in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(fence[1], fence[2].splitlines(), text[: fence.start()])
        end = fence.end()
    assert text.count("```") % 2 == 0 and "```" not in text[end:], f"{page.name}: an open fence"


def prose(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def block_commands(page: Path) -> Iterator[list[str]]:
    """Every `regard …` of the blocks, `torchrun` before it or not, and where nothing is left out; a
    heredoc is somebody else's program, and what stands behind < or > is the shell's.
    """
    for block in blocks(page):
        if block.kind in ("sh", ""):
            text = re.sub(r"<<'END'\n.*?\nEND\n", "\n", "\n".join(block.lines) + "\n", flags=re.S)
            for line in text.replace("\\\n", " ").splitlines():
                command = re.match(r"(?:.*torchrun .* -m )?(regard [^…]+)$", line)
                if command:
                    yield shlex.split(re.sub(r" [<>] \S+", "", command[1]), comments=True)


def commands(page: Path) -> Iterator[list[str]]:
    """Those of the blocks and of the text."""
    yield from block_commands(page)
    for quoted in re.findall(r"`(regard [^`]+)`", prose(page)):
        if "…" not in quoted and "=" not in quoted.split()[0] and quoted != "regard --help":
            yield shlex.split(quoted)


def parsed(words: list[str]) -> Any:
    """The command that words name, its options understood, and nothing run. A bare name, as a
    sentence has it, need only exist.
    """
    command, rest = program, words[1:]
    while isinstance(command, click.Group) and rest:
        inner = command.get_command(click.Context(command), rest[0])
        assert inner is not None, f"there is no command {rest[0]!r}"
        command, rest = inner, rest[1:]
    return command.make_context(command.name, list(rest)) if rest else command


# -- what is quoted


def chunks(lines: list[str]) -> Iterator[list[str]]:
    """Pieces of a quotation that stand together in the file."""
    chunk: list[str] = []
    for line in [*lines, LEFT_OUT]:
        if line.strip() == LEFT_OUT:
            if chunk:
                yield chunk
            chunk = []
        else:
            chunk.append(line)


@by_page
def test_quoted_lines_stand_in_their_files(page: Path) -> None:
    for block in blocks(page):
        if block.kind in ("python", "toml"):
            stands_in(block, page)


def stands_in(block: Any, page: Path) -> None:
    """What a page quotes stands in the file that it names last before it."""
    named = SOURCE.findall(block.before)
    assert named, f"{page.name}: no file is named before {block.lines[0]!r}"
    file = (page.parent / named[-1]).resolve()
    lines, place = file.read_text("utf-8").splitlines(), 0
    for chunk in chunks(block.lines):
        starts = range(place, len(lines) - len(chunk) + 1)
        at = next((i for i in starts if lines[i : i + len(chunk)] == chunk), None)
        assert at is not None, f"{page.name}: {file.name} has no such lines: {chunk}"
        place = at + len(chunk)


def test_the_tutorial_quotes_every_stop() -> None:
    text = (DOCS / "tutorial.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    for section in sections[1:]:
        title = section.splitlines()[0]
        assert "```python" in section or "```toml" in section, f"{title}: no source"
        assert "```sh" in section, f"{title}: nothing to run"
        pictures = (
            ("report.html",) if section is sections[-1] else (".svg", "report.html", "heads.html")
        )
        assert any(name in section for name in pictures), f"{title}: no picture"


@by_models
def test_the_page_of_models_quotes_the_core(page: Path) -> None:
    (core,) = (
        block.lines for block in blocks(page) if block.lines[0].startswith("    def forward")
    )
    source = (ROOT / "regard" / "attention" / "attention.py").read_text("utf-8")
    assert "\n".join(core) in source


@by_models
def test_the_tree_is_today_s(page: Path) -> None:
    """What it names is there, and of a directory whose files it names none is left out."""
    (tree,) = (block.lines for block in blocks(page) if block.lines[0] == "regard/")
    path: list[str] = []
    named: dict[Path, set[str]] = {}
    for line in tree:
        names = re.split(r"  +|(?<=…) ", line.strip())[0].split()
        path = path[: (len(line) - len(line.lstrip())) // 2]
        place = ROOT.joinpath(*path)
        if names[0].endswith("/"):
            path.append(names[0])
            assert (place / names[0]).is_dir(), line
            continue
        for name in names:
            files = {name} if name == "…" else {file.name for file in place.glob(name)}
            assert files, f"{page.name}: there is no {name} in {place.name}"
            named.setdefault(place, set()).update(files)
    for place, names_of in named.items():
        there = {file.name for file in place.glob("*.py") if not file.name.startswith("__")}
        assert "…" in names_of or there <= names_of, f"{page.name}: {place.name} has more"
    there = {file.name for file in (ROOT / "regard").iterdir() if (file / "__init__.py").is_file()}
    assert all(any(f"  {name}/" in line for line in tree) for name in there)


# -- what is to be run


@by_any
def test_commands_parse(page: Path) -> None:
    for words in commands(page):
        try:
            parsed(words)
        except Exception as error:
            pytest.fail(f"{page.name}: {' '.join(words)}: {error!r} {error}")
        if words[1:3] in (["claims", "run"], ["claims", "show"]):
            named = next(word for word in words[3:] if not word.startswith("-"))
            assert named in ("NAME", "all", *claims()), f"{page.name}: no claim {named!r}"


def test_there_are_commands_to_check() -> None:
    """The parser below is only worth something if it refuses."""
    assert len(list(commands(DOCS / "tutorial.md"))) > 40
    for wrong, word in (
        ("regard models --famly gpt", "famly"),
        ("regard nothing", "nothing"),
        ("regard train gpt --stepps 3", "stepps"),
    ):
        with refuses(Exception, word):
            parsed(shlex.split(wrong))


@by_page
def test_tests_that_are_named_exist(page: Path) -> None:
    for test in PYTEST.findall(page.read_text("utf-8")):
        file, _, name = test.partition("::")
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


@by_link
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target} leads nowhere"
        assert not anchor or anchor in anchors(file), f"{page.name}: no heading #{anchor}"


CHINESE = [page for page in [*PAGES, *OTHERS, *RESULTS] if page.name.endswith(".zh.md")]


def test_every_page_of_docs_has_a_twin() -> None:
    names = {file.name.removesuffix(".zh.md") for file in CHINESE}
    assert {
        file.name.removesuffix(".md").removesuffix(".zh") for file in DOCS.glob("*.md")
    } <= names
    assert all(page.is_file() for page in CHINESE)


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_a_chinese_page_links_to_chinese_pages(page: Path) -> None:
    """Only the switch of languages, at its top, leads to its own page in English."""
    english = page.name.replace(".zh.md", ".md")
    assert f"[English]({english})" in "".join(page.read_text("utf-8").splitlines()[:5])
    for target in LINK.findall(prose(page).replace(f"[English]({english})", "")):
        path = target.partition("#")[0]
        file = page.parent / path
        if path.endswith(".md") and not path.endswith(".zh.md"):
            assert not file.with_suffix(".zh.md").exists(), f"{page.name}: {target} is English"
        if path.endswith(".svg"):
            chinese = [file.parent / "zh" / file.name, file.with_name(f"{file.stem}-zh.svg")]
            assert not any(each.exists() for each in chinese), f"{page.name}: {target} is English"


def test_every_picture_is_shown() -> None:
    for suffix, place in (("", DOCS / "figures"), (".zh", DOCS / "figures" / "zh")):
        pages = [page for page in PAGES if page.name.endswith(".zh.md") == bool(suffix)]
        shown = {(DOCS / target) for page in pages for target in LINK.findall(prose(page))}
        assert set(place.glob("*.svg")) <= shown


@cache
def figures() -> Any:
    """The script that draws them."""
    return script("figures")


def test_pictures_are_what_the_code_draws_today() -> None:
    """If one is not: python scripts/figures.py."""
    place = DOCS / "figures"
    stored = {
        file.relative_to(place).as_posix(): file.read_text("utf-8") for file in place.rglob("*.svg")
    }
    drawn = dict(figures().drawn())
    assert set(stored) == set(drawn)
    for name, picture in drawn.items():
        assert letters(picture) == letters(stored[name]), name
        if not name.startswith("zh/") or FONT in fonts(frozenset("词"))[0]:
            assert picture == stored[name], name  # letters are measured in that font
        assert len(picture) < 60_000


FONT = "Noto Sans CJK SC"


def letters(picture: str) -> list[str]:
    """The words and numbers that a picture shows."""
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_only_chinese_pictures_hold_chinese() -> None:
    for name, picture in figures().drawn():
        chinese = re.findall(r"[\u4e00-\u9fff]", "".join(letters(picture)))
        assert bool(chinese) == name.startswith("zh/"), name


# -- both languages


@by_name
def test_both_languages_say_as_much(name: str) -> None:
    english, chinese = (DOCS / f"{name}.md", DOCS / f"{name}.zh.md")
    levels = [re.findall(r"^(#+) ", prose(page), re.MULTILINE) for page in (english, chinese)]
    assert levels[0] == levels[1]
    by_language = [[(b.kind, b.lines) for b in blocks(page) if b.kind != "mermaid"]
            for page in (english, chinese)]  # fmt: skip
    assert by_language[0] == by_language[1]
    rows = [len(re.findall(r"^\|", prose(page), re.MULTILINE)) for page in (english, chinese)]
    assert rows[0] == rows[1]
    pictures = [re.findall(r"figures/(?:zh/)?([\w-]+\.svg)", prose(page))
                for page in (english, chinese)]  # fmt: skip
    assert pictures[0] == pictures[1]
    quoted = [re.findall(r"`(regard [^`]+|pytest [^`]+)`", prose(p)) for p in (english, chinese)]
    assert quoted[0] == quoted[1]


@pytest.mark.parametrize("pair", TWICE, ids=lambda pair: pair[0].name)
def test_both_languages_of_the_others_say_as_much(pair: tuple[Path, Path]) -> None:
    """Comments in their blocks are translated, commands are not."""
    for pattern in (r"^(#+) ", r"^(\|)", r"^([-*]) "):
        counted = [re.findall(pattern, prose(page), re.MULTILINE) for page in pair]
        assert counted[0] == counted[1], pattern
    ran = [list(block_commands(page)) for page in pair]
    assert ran[0] == ran[1] and ran[0]
    spoken = [len(re.findall(r"`regard [^`]+`", prose(page))) for page in pair]
    assert spoken[0] == spoken[1]
    coded = [[[re.sub(r" *#.*", "", line) for line in block.lines] for block in blocks(page)
              if block.kind == "python"] for page in pair]  # fmt: skip
    assert coded[0] == coded[1]


def edges(page: Path) -> list[tuple[str, str]]:
    drawn = next(block for block in blocks(page) if block.kind == "mermaid")
    return [edge for line in drawn.lines for edge in re.findall(r"(\w+) --> (\w+)", line)]


def test_the_map_is_one_and_leads_nowhere_in_a_circle() -> None:
    both = [DOCS / "concepts.md", DOCS / "concepts.zh.md"]
    arrows = edges(both[0])
    assert arrows == edges(both[1])
    needs: dict[str, list[str]] = {}
    for below, above in arrows:
        needs.setdefault(above, []).append(below)
    assert set(TopologicalSorter(needs).static_order()) >= set(needs)
    for page in both:
        names = dict(re.findall(r"^    (\w+)\[([^\]]+)\]$", page.read_text("utf-8"), re.MULTILINE))
        rows = {row[0]: row[1] for row in table_rows(page) if row[0] in names.values()}
        assert set(rows) == set(names.values())
        for key, name in names.items():
            below_names = [] if rows[name] == "–" else re.split("[;；] ?", rows[name])
            assert below_names == [names[below] for below in needs.get(key, [])], name


def test_misstatements_are_many_and_each_is_shown() -> None:
    for language in ("", ".zh"):
        rows = table_rows(DOCS / f"misstatements{language}.md")
        assert len(rows) >= 40
        for row in rows:
            assert len(row) == 3, row
            assert re.search(r"`(regard|pytest) [^`]+`", row[2]), f"nothing shows: {row[0]}"


def test_no_two_misstatements_have_the_same_proof() -> None:
    """A proof shows just its row: a test or a command that two rows name shows neither alone."""
    rows = table_rows(DOCS / "misstatements.md")
    proofs = [proof for row in rows for proof in re.findall(r"`((?:regard|pytest) [^`]+)`", row[2])]
    assert [proof for proof, count in Counter(proofs).items() if count > 1] == []
    tests = [proof for proof in proofs if proof.startswith("pytest")]
    assert all("::test_" in proof for proof in tests), "a whole file is no proof of one row"


def table_rows(page: Path) -> list[list[str]]:
    lines = [line for line in prose(page).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    heads = {i - 1 for i, row in enumerate(cells) if set(row[0]) <= {"-"}}
    return [row for i, row in enumerate(cells) if i not in heads and not set(row[0]) <= {"-"}]


# -- what a contributor copies


def written(begins: str) -> str:
    """The block of CONTRIBUTING.md that has this line."""
    page = ROOT / "CONTRIBUTING.md"
    (lines,) = (block.lines for block in blocks(page) if begins in block.lines)
    return "\n".join(lines)


def made(begins: str, *modules: str) -> dict[str, Any]:
    """What it defines, with the names of these modules at hand."""
    names: dict[str, Any] = {}
    for module in modules:
        names |= vars(import_module(module))
    names["__name__"] = __name__  # where a dataclass looks up its annotations
    exec(compile(written(begins), begins, "exec", annotations.compiler_flag), names)
    return names


def test_a_written_pattern_memory_and_score() -> None:
    names = ("torch", "dataclasses", "regard.attention.attention", "regard.attention.position")
    strided = made("class Strided(Pattern):", *names, "regard.attention.pattern")["Strided"]
    x = numbers(2, 7, 8)
    rows, keys = torch.arange(7)[:, None], torch.arange(7)
    seen = (rows >= keys) & ((rows - keys < 3) | ((rows - keys) % 3 == 0))
    assert torch.equal(strided(step=3).dense(1, 7, 7, x.device)[0].bool(), seen)
    attention = Attention(8, 2)
    learned = made("class Persistent(Memory):", *names, "regard.attention.memory")["Persistent"]
    pairs = (numbers(1, 2, 3, 4, seed=1), numbers(1, 2, 3, 4, seed=2))
    y = attention(x, View(Causal(past=3)), learned(pairs))
    assert y.shape == x.shape and not torch.equal(y, attention(x, View(Causal())))
    sharp = made("class Sharpened(nn.Module):", *names)["Sharpened"](2)
    with torch.no_grad():
        sharp.sharpness.zero_()
    weighed = Attention(8, 2, score=sharp)
    *_, v = weighed.project(x)
    mean = weighed.out(v.mean(2, keepdim=True).expand_as(v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(weighed(x, View(Full())), mean)


@torch.no_grad()
def test_a_written_objective(tmp_path: Path) -> None:
    names = ("dataclasses", "regard.objectives.causal")
    halves = made("class Halves(Objective):", *names)["Halves"]
    objective = make(halves, text_corpus(tmp_path, random_documents(3)), seq_len=8, learning=False)
    model = tiny("gpt").eval()
    batch = objective.collate([objective.sample(0, 0)])
    loss = objective.loss(model, batch)
    assert loss.counts == {"halves": 4.0}
    at = torch.arange(3, 7)
    logits = model.logits(model(batch["tokens"]))[0, at].log_softmax(-1)
    wanted = -logits.gather(1, batch["targets"][0, at][:, None]).sum()
    torch.testing.assert_close(loss.sums["halves"], wanted)
    assert objective.measure(loss)["perplexity"] > 1


def test_a_written_model() -> None:
    """As many parameters as RobertaForMaskedLM has; and what is quoted of it is what runs."""
    page = ROOT / "CONTRIBUTING.md"
    assert f"{count_parameters('roberta-base'):,}" in page.read_text("utf-8")
    quoted = [
        block
        for block in blocks(page)
        if block.kind == "python" and SOURCE.search(block.before.rpartition("```")[2])
    ]
    assert len(quoted) >= 5
    for block in quoted:
        stands_in(block, page)
    (sizes,) = re.findall(r"took (\d+) \+ (\d+) lines", page.read_text("utf-8"))
    for where, size in zip(("models", "formats"), sizes, strict=True):
        file = ROOT / "regard" / where / "roberta.py"
        assert len(file.read_text("utf-8").splitlines()) == int(size)


def test_the_table_of_sizes_is_today_s() -> None:
    """It names every package, and no number is more than a tenth off: python scripts/sizes.py."""
    sizes = script("sizes")
    packages = {name for part in sizes.PARTS for name in part.packages.split()} - {"tests"}
    there = {file.name for file in (ROOT / "regard").iterdir() if (file / "__init__.py").is_file()}
    assert packages == there - {"recipes"} | {"api.py"}
    assert all(sizes.lines(name) for part in sizes.PARTS for name in part.later.split())
    (written_table,) = re.findall(r"<!-- sizes -->\n(.*?)<!-- end -->", PAGE_OF_SIZES, re.DOTALL)
    cells = [
        [row.split("|") for row in text.splitlines()] for text in (written_table, sizes.table())
    ]
    assert len(cells[0]) == len(cells[1])
    for old, new in zip(*cells, strict=True):
        numbers_of = [[int(n.replace(",", "")) for cell in row[2:] for n in NUMBER.findall(cell)]
                      for row in (old, new)]  # fmt: skip
        assert old[1] == new[1] and numbers_of[0] == pytest.approx(numbers_of[1], rel=0.1, abs=150)


def test_the_readme_shows_before_it_tells() -> None:
    """At most 200 lines, two pictures, and three runs with what they print."""
    for page in TWICE[0]:
        text = page.read_text("utf-8")
        assert len(text.splitlines()) <= 200
        assert len(re.findall(r"!\[[^\]]+\]\(docs/figures/[\w.]+\.png\)", text)) == 2
        runs = [block for block in blocks(page) if block.kind == "console"]
        assert len(runs) == 3
        for run in runs:
            assert run.lines[0].startswith("$ regard ") and len(run.lines) > 3
            for line in run.lines:
                if line.startswith("$ "):
                    parsed(shlex.split(line[2:]))
