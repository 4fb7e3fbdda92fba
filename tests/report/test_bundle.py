"""The modules of pages: put into one script, each in a scope of its own."""

import shutil
import subprocess

import pytest

from regard.report import pages
from tests.refusals import refuses

FILES = sorted(pages.STATIC.glob("*.js"))
ENTRIES = ("page", "look", "serve")


def static(tmp_path, monkeypatch, **modules):
    for name, text in modules.items():
        (tmp_path / f"{name}.js").write_text(text)
    monkeypatch.setattr(pages, "STATIC", tmp_path)
    pages.text_of.cache_clear()
    pages.script_of.cache_clear()


@pytest.fixture(autouse=True)
def forgotten():
    yield
    pages.text_of.cache_clear()
    pages.script_of.cache_clear()


def test_every_module_is_needed():
    needed = {name for entry in ENTRIES for name in pages.in_order(entry)}
    assert needed | {"boot"} == {file.stem for file in FILES}


def test_names_of_two_modules_never_meet(tmp_path, monkeypatch):
    static(tmp_path, monkeypatch,
           low='const secret = "low";\nexport const tell = () => secret;\n',
           middle='import { tell } from "./low.js";\n\nconst secret = "middle";\n'
                  "export function both() { return [tell(), secret]; }\n",
           top='import { tell as low } from "./low.js";\nimport { both } from "./middle.js";\n\n'
               'console.log([low(), ...both()].join(" "));\n')  # fmt: skip
    assert pages.in_order("top") == ["low", "middle", "top"]
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    result = subprocess.run([node, "-e", pages.script_of("top")], capture_output=True, text=True)
    assert result.stdout == "low low middle\n", result.stderr


def test_modules_that_need_each_other_are_refused(tmp_path, monkeypatch):
    static(
        tmp_path, monkeypatch, a='import { b } from "./b.js";\n', b='import { a } from "./a.js";\n'
    )
    with refuses(ValueError, "a -> b -> a"):
        pages.script_of("a")


def test_the_policy_names_each_script_and_the_style():
    policy = pages.policy(["a", "b"], "c")
    assert policy.count("sha256-") == 3 and "unsafe" not in policy
    assert pages.digest("") == "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
