"""The linter of pages finds what it is for, and finds nothing in the pages that we have."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.files import script

SOUND = {
    "static/base.css": """/* A sheet. */
:root { --ink: light-dark(#000000, #ffffff); --wide: 2rem }
.card { color: var(--ink); width: var(--wide) } #main, .i1 { color: inherit }
""",
    "static/dom.js": """// Parts.
export const all = (selector) => [...document.querySelectorAll(selector)];
export const tell = (node, text) => { node.textContent = text; };
""",
    "static/page.js": """import { all, tell as say } from "./dom.js";

const part = (id) => document.getElementById(id);
const ink = (number) => ({ class: `i${number % 2}` });
for (const card of all(".card")) say(card, `// ${ink(1)} ${/[/"]/.test(card.title)}`);
part("main").hidden = part("fold-one").hidden;
""",
    "static/boot.js": "document.title = 'a';\n",
    "templates/base.html": """{# class="none" #}
{% macro fold(name) %}<p id="fold-{{ name }}"></p>{% endmacro %}
<main id="main" class="card{% if wide %} i{{ number }}{% endif %}">{{ fold("one") }}</main>
""",
}
# (what is written, behind which file, what is said of it)
BAD = [
    ("static/page.js", "import { some } from './dom.js';", "an import that the bundler"),
    ("static/page.js", "export default 3;", "an export that the bundler"),
    ("static/page.js", 'import { lost } from "./dom.js";\nlost();', "dom.js does not export lost"),
    ("static/page.js", 'import { all as more } from "./dom.js";', "more is imported and not used"),
    ("static/page.js", "tell(1);", "tell is used and not imported"),
    ("static/dom.js", "export const spare = 1;", "nothing imports spare"),
    ("static/page.js", 'part("mian");', "no template has the id mian"),
    ("static/page.js", "part(`fodl-${name}`);", "no template has the id fodl-"),
    ("static/page.js", 'all(".crad");', "nothing has the class crad"),
    ("static/page.js", 'make({ class: on ? "card" : "crad" });', "knows the class crad"),
    ("templates/base.html", '<p class="card crad"></p>', "knows the class crad"),
    ("static/base.css", ".crad { width: 1px }", "nothing has the class crad"),
    ("static/base.css", "#mian { width: 1px }", "nothing has the id mian"),
    ("static/base.css", ".card { color: var(--inc) }", "--inc is not defined"),
    ("static/base.css", ".card { --tone: 3px }", "--tone is not used"),
    ("static/base.css", ".card { color: #ff0000 }", "#ff0000 is not of the palette"),
    ("static/base.css", ".card { color: rgb(1 2 3) }", "rgb( is not of the palette"),
    ("static/base.css", ".card { border: 1px solid red }", "red is not of the palette"),
    ("static/page.js", 'paint("#ff0000");', "#ff0000 is not of the palette"),
    ("templates/base.html", '<path fill="red"/>', "red is not of the palette"),
    ("static/page.js", 'eval("1");', "text must not become code"),
    ("static/page.js", "part('main').innerHTML = name;", "text must not become markup"),
    ("static/page.js", "part('main').onclick = say;", "use addEventListener"),
    ("templates/base.html", '<a onclick="go()"></a>', "use addEventListener"),
    ("templates/base.html", '<a href="javascript:go()"></a>', "text must not become code"),
    ("templates/base.html", '<p style="color: inherit"></p>', "lets no style of an element"),
    ("static/page.js", 'fetch("https://example.org/a");', "a page asks no network"),
    ("templates/base.html", '<img src="//example.org/a.png">', "a page asks no network"),
    ("static/base.css", ".card { background: url(a.png) }", "a page is one file"),
    ("static/page.js", 'say("</script>");', "ends what holds it"),
    ("static/page.js", "say(1);" + 120 * " ", "127 columns"),
]


@pytest.fixture(scope="module")
def linter() -> Any:
    return script("lint_pages")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    for name, text in SOUND.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_our_pages_are_sound(linter: Any) -> None:
    assert [str(problem) for problem in linter.problems()] == []


def test_a_sound_page_has_no_problem(linter: Any, report: Path) -> None:
    assert linter.problems(report) == []


@pytest.mark.parametrize(("name", "line", "what"), BAD, ids=[f"{n}: {line}" for n, line, _ in BAD])
def test_each_problem_is_found_where_it_is(
    linter: Any, report: Path, name: str, line: str, what: str
) -> None:
    """One problem, in its line; its twin in a comment is none."""
    file = report / name
    comment = {".css": "/* {} */", ".js": "/* {} */", ".html": "{{# {} #}}"}[file.suffix]
    everywhere = "ends" in what or "columns" in what  # in a comment as well
    before = SOUND[name] + ("" if everywhere else comment.format(line) + "\n")
    file.write_text(before + line + "\n")
    problems = [p for check in linter.CHECKS[1:] for p in check(linter.Pages(report))]
    (problem,) = set(problems)
    assert what in problem.what
    assert (problem.file, problem.line) == (file, before.count("\n") + 1)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
@pytest.mark.parametrize("name", ["page", "boot"])
def test_a_broken_script_is_found(linter: Any, report: Path, name: str) -> None:
    file = report / "static" / f"{name}.js"
    line = file.read_text().count("\n") + 2
    with file.open("a") as stream:
        stream.write("const fine = 1;\nconst = 2;\n")
    (problem,) = linter.syntax(linter.Pages(report))
    assert (problem.file, problem.line, "SyntaxError" in problem.what) == (file, line, True)


def test_what_python_gives_to_a_template_is_looked_up(linter: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(linter, "FROM_PYTHON", {"pages.py": ("en", "nowhere")})
    assert [p.what for p in linter.from_python(linter.Pages())] == [
        "does not give the class nowhere"
    ]
