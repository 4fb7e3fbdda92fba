"""The site: every page is on it in both languages, the reference is what the code says today."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.main import GROUPS
from regard.training.keys import matching
from tests.files import script
from tests.refusals import refuses

ROOT = Path(__file__).parent.parent
# What a browser would fetch by itself: scripts, styles, fonts, pictures and frames.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?:https?:)?//"
    r"|<link[^>]*rel=[\"']?(?:stylesheet|preload|icon|preconnect)[^>]*href=[\"']?(?:https?:)?//"
    r"|@import\s+[\"']?https?:|url\([\"']?https?:"
)


@pytest.fixture(scope="module")
def builder() -> Any:
    return script("build_site")


def test_links_lead_to_pages_of_the_site(builder: Any) -> None:
    page = ROOT / "docs" / "guide.md"
    for written, shown in {
        "see [the models](models.md#a) now": "see [the models](models.md#a) now",
        "see [模型](models.zh.md)": "see [模型](models.md)",
        "[rules](../CONTRIBUTING.md)": "[rules](contributing.md)",
        "[home](../README.zh.md)": "[home](index.md)",
        "[`core`](../regard/attention/attention.py)": "`core`",
        "![x](figures/look.png)": "![x](figures/look.png)",
        "[a](https://example.org/a.md)": "[a](https://example.org/a.md)",
        "```\n[a](../LICENSE)\n```\n": "```\n[a](../LICENSE)\n```\n",
        "# T\n\n*English · [中文](guide.zh.md)*\n\nx": "# T\n\n\nx",
    }.items():
        assert builder.relinked(written, page) == shown


def test_the_reference_is_whole(builder: Any) -> None:
    pages = dict(builder.reference())
    commands = pages["reference/commands.md"]
    for _, inner in GROUPS.values():
        for name in inner:
            assert f"\n## regard {name}\n" in commands
    assert "\n### regard claims run\n" in commands
    keys = pages["reference/recipe.md"]
    assert all(f"| `{row['key']}` |" in keys for row in matching())
    names = pages["reference/python.md"]
    assert all(f"\n## regard.{name}\n" in names for name in [*regard.VERBS, "load", "record"])
    assert "\n### LoadedModel.generate\n" in names
    assert {name.replace(".zh", "") for name in pages} == {n for n in pages if ".zh" not in n}


def test_every_page_of_docs_is_reached(builder: Any) -> None:
    pages = {file.name.removesuffix(".md") for file in (ROOT / "docs").glob("*.md")}
    pages = {page.removesuffix(".zh") for page in pages} | {"new-page"}
    shown = builder.navigation(pages)
    assert all(f"- {page}.md" in shown for page in pages)


@pytest.mark.slow
def test_the_site_is_built_strictly(builder: Any, tmp_path: Path) -> None:
    if not (find_spec("material") and find_spec("mkdocs_static_i18n")):
        pytest.skip("the extra site is not installed")
    out, gallery = tmp_path / "site", tmp_path / "gallery"
    gallery.mkdir()
    (gallery / "index.html").write_text("<title>measured</title>")
    builder.build(out, gallery, tmp_path / "work")
    names = {name.removesuffix(".md").removesuffix(".zh") for name, _ in builder.sources()}
    for page in names | {"reference/commands", "reference/recipe", "reference/python", "gallery"}:
        for place in (out, out / "zh"):
            text = (place / f"{page}.html").read_text("utf-8")
            assert not FETCHED.search(text), f"{page}: it fetches from elsewhere"
    indexed = json.loads((out / "search" / "search_index.json").read_text("utf-8"))["docs"]
    text = " ".join(row["text"] + row["title"] for row in indexed)
    assert "Nadaraya" in text and "注意力" in text
    assert (out / "gallery" / "index.html").read_text() == "<title>measured</title>"
    # a link that leads nowhere stops it
    page = tmp_path / "work" / "pages" / "guide.md"
    page.write_text(page.read_text("utf-8") + "\n[lost](nowhere.md)\n", "utf-8")
    with refuses(SystemExit, "nowhere.md"):
        builder.mkdocs(tmp_path / "work" / "mkdocs.yml")
