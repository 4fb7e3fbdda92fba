"""The page's words, and that its data stay data."""

from __future__ import annotations

import re
from pathlib import Path

from regard.lab.look import look
from regard.report import pages
from regard.report.pages import words
from tests.html import Page
from tests.lab.look.small import speaking


def test_every_word_of_the_page_is_there_and_used() -> None:
    """The program asks for words by name."""
    template = Path(pages.__file__).parent / "templates" / "look.html"
    program = pages.script_of("look") + template.read_text(encoding="utf-8")
    known = words("look")
    names = set(re.findall(r'\b(?:word|button|choice)\("(\w+)"', program))
    assert len(names) > 30 and names <= {*known, *words("page")}
    kinds = ("self", "encoder", "decoder", "cross", "content", "query")
    kind_names = {f"about_{kind}" for kind in kinds} | set(kinds)
    assert kind_names <= set(known)
    for key in known:
        stem = key.rpartition("_")[0]
        named = rf'["`]{key}["`]|["`]{stem}_\$\{{|words.{key}\b'
        used = re.search(named, program) or key in kinds
        assert used, key


def test_nothing_in_a_text_ends_the_data() -> None:
    text = "</script><script>alert(1)</script> <!-- \u2028 & “x”"
    page = Page(look(speaking("gpt"), text).html())
    assert page.tags.count("script") == 3 and page.data["sides"][0]["text"] == text
