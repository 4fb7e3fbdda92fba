"""Checks the scripts, style sheets and templates of pages, as ruff checks Python.

    python scripts/lint_pages.py               # a line for each problem, and 1 where there are some

- scripts: their syntax (where node is installed), names that are imported, exported and used
- ids and classes: what a page uses is known, what a style sheet knows is used
- colors: variables are defined and used, and nothing has a color of its own outside of the palette
- nothing makes code or markup out of text, and nothing asks a network
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from page_sources import HOLE, Problem, Script, Sheet, blank, blanked, line_of, words_of

from regard.report.pages import EXPORT, IMPORT
from regard.report.palette import NAMED

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "regard" / "report"
COLUMNS = 100
ALONE = {"boot"}  # runs before all others, as a plain script
# Classes that Python gives to a template, and what gives them.
FROM_PYTHON = {
    "pages.py": ("en", "zh"),
    "../lab/claims/engine/page.py": ("yes", "no", "open"),
}
OF_OTHERS = {"vscode-light", "vscode-dark"}  # what stands around a notebook
UNSHIELDED = {"notebook.html"}  # no page: it has no policy and no script, and may have styles in it
FORBIDDEN = {  # in scripts, templates and style sheets, but for their comments
    r"\beval\s*\(": "text must not become code",
    r"\bnew Function\b": "text must not become code",
    r"\b(?:inner|outer)HTML\b|\binsertAdjacentHTML\b|\bdocument\.write": "text must not become "
    "markup",
    r"\bon(?:click|load|error|change|input|submit|key\w+|mouse\w+|focus|blur)\s*=(?!=)": "use "
    "addEventListener, or on: of element()",
    r"javascript:": "text must not become code",
    r"\b(?:https?|wss?):(?!//www\.w3\.org/)|[\"'(]//\w": "a page asks no network",
    r"\sstyle=\"|\"style\"": "the policy of a page lets no style of an element through",
    r"@import\b|\burl\(\s*(?![\"']?(?:data:|#))": "a page is one file",
}
WORDS = (
    "aqua black blue brown cyan fuchsia gold gray green grey lime magenta maroon navy olive orange "
    "pink purple red silver teal white yellow"
)
VARIABLE = r"--([a-z][\w-]*)\s*:"
COLOR = re.compile(
    r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl|hwb|lab|lch|oklab|oklch|color)a?\("
    rf"|(?<![\w-])(?:{WORDS.replace(' ', '|')})(?![\w-])"
)


def fits(name: str, patterns: set[str]) -> bool:
    """Whether a name is one of these. A hole holds any word, but is not all of a pattern."""
    forms = (re.escape(each).replace(re.escape(HOLE), r"[\w-]+") for each in patterns
             if HOLE in each and each.strip(HOLE))  # fmt: skip
    return name in patterns or any(re.fullmatch(form, name) for form in forms)


class Pages:
    """All that pages are made of."""

    def __init__(self, report: Path = REPORT) -> None:
        static = report / "static"
        self.report = report
        self.scripts = {file.stem: Script(file) for file in sorted(static.glob("*.js"))}
        self.sheets = [Sheet.of(f, f.read_text("utf-8")) for f in sorted(static.glob("*.css"))]
        self.templates = {}
        for file in sorted((report / "templates").glob("*.html")):
            text = re.sub(r"\{#.*?#\}", blanked, file.read_text("utf-8"), flags=re.DOTALL)
            self.templates[file] = text
            if "<style>" in text:
                style = re.sub(r"^.*?<style>|</style>.*$", blanked, text, flags=re.DOTALL)
                style = re.sub(r"\{%.*?%\}", blanked, style, flags=re.DOTALL)
                style = re.sub(r"\{\{.*?\}\}", lambda m: "0" + blank(m[0])[1:], style, flags=re.S)
                self.sheets.append(Sheet.of(file, style))

    def attributes(self, name: str) -> Iterator[tuple[Path, int, str]]:
        """Values of an attribute in the templates, with their holes."""
        for file, text in self.templates.items():
            flat = re.sub(r"\{\{.*?\}\}", hole, text, flags=re.DOTALL)
            flat = re.sub(r"\{%.*?%\}", blanked, flat, flags=re.DOTALL)
            for match in re.finditer(rf'(?<![\w-]){name}="([^"]*)"', flat):
                yield file, line_of(flat, match.start()), match[1]

    @cached_property
    def jinja_words(self) -> set[str]:
        """Words that expressions of the templates hold, which may fill a hole."""
        parts = re.findall(r"\{\{.*?\}\}|\{%.*?%\}", "".join(self.templates.values()), re.DOTALL)
        kinds = re.findall(r"\{% block kind %\}(.*?)\{%", "".join(self.templates.values()))
        return words_of(
            [*kinds, *(w for part in parts for w in re.findall(r"[\"']([^\"']*)[\"']", part))]
        )

    @cached_property
    def tested(self) -> set[str]:
        """Classes by which the tests in a browser find their places."""
        texts = [file.read_text("utf-8") for file in (ROOT / "tests" / "browser").glob("*.py")]
        return set(re.findall(r"[\"'` ]\.([a-z][\w-]*)(?=[\"'` :.\[])", "".join(texts)))


def hole(match: re.Match[str]) -> str:
    """An expression without its quotes, as long as it was, so that places stay what they were."""
    return HOLE + re.sub(r"[^\n]", HOLE, match[0][1:])


def unwound(value: str) -> list[str]:
    """The classes of an attribute; a run of holes is one."""
    return re.sub(f"{HOLE}+", HOLE, value).split()


# -- the checks


def syntax(pages: Pages) -> Iterator[Problem]:
    node = shutil.which("node")
    if node is None:
        print("there is no node: the syntax of scripts is not checked", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as scratch:
        for name, script in pages.scripts.items():
            copy = Path(scratch, name + (".cjs" if name in ALONE else ".mjs"))
            copy.write_text(script.text, "utf-8")
            ran = subprocess.run([node, "--check", copy], capture_output=True, text=True)
            if ran.returncode:
                line = re.search(rf"{re.escape(copy.name)}:(\d+)", ran.stderr)
                error = re.search(r"^\w*Error: .*$", ran.stderr, re.MULTILINE)
                yield Problem(script.file, int(line[1]) if line else 1, error[0] if error else "?")


def declared(script: Script) -> set[str]:
    """Names that a module gives itself: variables, functions, and what functions take."""
    lists = re.findall(r"(?:const|let)\s+[{\[](.*?)[}\]]\s*=", script.code, re.DOTALL)
    lists += re.findall(r"\(([^()]*)\)\s*(?:=>|\{)", script.code)
    plain = re.findall(r"\b(?:const|let|function|class)\s+(\w+)", script.code)
    return {*plain, *(word for part in lists for word in re.findall(r"\w+", part))}


def names(pages: Pages) -> Iterator[Problem]:
    """Imports, exports, and functions that are used without an import."""
    exported = {name: set(EXPORT.findall(s.text)) for name, s in pages.scripts.items()}
    wanted: Counter[tuple[str, str]] = Counter()
    for script in pages.scripts.values():
        for kind, form in (("import", IMPORT), ("export", EXPORT)):
            understood = {match.start() for match in form.finditer(script.text)}
            for match in re.finditer(rf"^[ \t]*{kind}\b", script.code, re.MULTILINE):
                if match.start() not in understood:
                    what = f"an {kind} that the bundler does not understand"
                    yield script.problem(match.start(), what)
        local = declared(script)
        for match in IMPORT.finditer(script.text):
            for each in match[1].split(", "):
                source, _, own = each.partition(" as ")
                wanted[match[2], source] += 1
                local.add(own or source)
                if source not in exported.get(match[2], ()):
                    yield script.problem(match.start(), f"{match[2]}.js does not export {source}")
                if len(re.findall(rf"\b{own or source}\b", script.code)) < 2:
                    yield script.problem(match.start(), f"{own or source} is imported and not used")
        others = {word for exports in exported.values() for word in exports} - local
        for word in sorted(others):
            for match in re.finditer(rf"(?<![.\w]){word}\((?![^()]*\)\s*\{{)", script.code):
                yield script.problem(match.start(), f"{word} is used and not imported")
    for name, script in pages.scripts.items():
        for match in EXPORT.finditer(script.text):
            if not wanted[name, match[1]]:
                yield script.problem(match.start(), f"nothing imports {match[1]}")


def marks(pages: Pages) -> Iterator[Problem]:
    """Ids and classes: what is used is known."""
    scripts = pages.scripts.values()
    written = [(script, each) for script in scripts for each in script.classes_made]
    ids = {each for *_, value in pages.attributes("id") for each in unwound(value)}
    ids |= {each for script in scripts for each in script.ids_made} | pages.jinja_words
    classes = {each for *_, value in pages.attributes("class") for each in unwound(value)}
    classes |= {word for _, each in written for word in each.text.split()}
    classes |= pages.jinja_words | OF_OTHERS.union(*FROM_PYTHON.values())
    for script in scripts:
        for each in script.ids_used:
            if each.text and not re.search(r"[^\w\0-]", each.text) and not fits(each.text, ids):
                yield script.problem(each.at, f"no template has the id {each.text}")
        for each in script.selected("."):
            if not fits(each.text, classes):
                yield script.problem(each.at, f"nothing has the class {each.text}")
    styled = {name for sheet in pages.sheets for name in sheet.names(".")} | pages.tested
    styled |= {each.text for script in scripts for each in script.selected(".")}
    places = [(f, line, unwound(value)) for f, line, value in pages.attributes("class")]
    places += [(s.file, line_of(s.text, e.at), e.text.split()) for s, e in written]
    for file, line, words in places:
        for word in words:
            if HOLE not in word and word not in styled:
                yield Problem(file, line, f"no style sheet and no script knows the class {word}")
    classes |= {w for s in scripts for w in words_of(each.text for each in s.strings)}
    for sheet in pages.sheets:
        for sign, kind, known in ((".", "class", classes), ("#", "id", ids)):
            for name in sorted(sheet.names(sign)):
                if not fits(name, known):
                    at = sheet.selectors.index(f"{sign}{name}")
                    yield sheet.problem(at, f"nothing has the {kind} {name}")


def from_python(pages: Pages) -> Iterator[Problem]:
    """What Python is said to give to templates, it gives."""
    for name, classes in FROM_PYTHON.items():
        text = (REPORT / name).read_text("utf-8")
        for each in classes:
            if not re.search(rf'"{each}"', text):
                yield Problem(REPORT / name, 1, f"does not give the class {each}")


def colors(pages: Pages) -> Iterator[Problem]:
    """Variables, and colors outside of the palette."""
    scripts = "".join(script.spoken for script in pages.scripts.values())
    templates = "".join(pages.templates.values())
    spoken = {w for s in pages.scripts.values() for w in words_of(each.text for each in s.strings)}
    palette = {name for sheet in pages.sheets for name, *_ in NAMED.findall(sheet.text)}
    defined = set(re.findall(r'setProperty\("--([\w-]+)"', scripts))
    defined |= set(re.findall(r'style="--([\w-]+):', templates))
    defined |= {name for s in pages.sheets for name in re.findall(VARIABLE, s.values)}
    used = {name for s in pages.sheets for name in re.findall(r"var\(--([\w-]+)", s.values)}
    for sheet in pages.sheets:
        for match in re.finditer(r"var\(--([\w-]+)", sheet.values):
            if match[1] not in defined:
                yield sheet.problem(match.start(), f"--{match[1]} is not defined")
        for match in re.finditer(VARIABLE, sheet.values):
            if match[1] not in used and not (match[1] in palette and match[1] in spoken):
                yield sheet.problem(match.start(), f"--{match[1]} is not used")
        for match in COLOR.finditer(NAMED.sub(blanked, sheet.values)):
            yield sheet.problem(match.start(), f"{match[0]} is not of the palette")
    for script in pages.scripts.values():
        for each in script.strings:
            if re.match(r"#[0-9a-fA-F]{3,8}$|(?:rgb|hsl)a?\(", each.text):
                yield script.problem(each.at, f"{each.text} is not of the palette")
    for name in ("fill", "stroke", "color"):
        for file, line, value in pages.attributes(name):
            if COLOR.search(value):
                yield Problem(file, line, f"{value} is not of the palette")


def forbidden(pages: Pages) -> Iterator[Problem]:
    texts = {script.file: script.spoken for script in pages.scripts.values()}
    texts |= {sheet.file: sheet.text for sheet in pages.sheets} | pages.templates
    for file, text in texts.items():
        for pattern, why in FORBIDDEN.items():
            for match in re.finditer(pattern, text):
                if not (file.name in UNSHIELDED and "style" in match[0]):
                    yield Problem(file, line_of(text, match.start()), f"{match[0].strip()}: {why}")
        if file.suffix == ".html":
            continue
        source = file.read_text("utf-8")
        if match := re.search(r"</s(?:cript|tyle)|<!--", source, re.IGNORECASE):
            yield Problem(file, line_of(source, match.start()), f"{match[0]} ends what holds it")
        for number, line in enumerate(source.splitlines(), 1):
            if len(line) > COLUMNS:
                yield Problem(file, number, f"{len(line)} columns; {COLUMNS} are enough")


CHECKS = (syntax, names, marks, from_python, colors, forbidden)


def problems(report: Path = REPORT) -> list[Problem]:
    pages = Pages(report)
    return sorted({problem for check in CHECKS for problem in check(pages)})


def main() -> None:
    every = problems()
    print(*every, sep="\n") if every else print(
        "The scripts, styles and templates of pages are sound."
    )
    raise SystemExit(bool(every))


if __name__ == "__main__":
    main()
