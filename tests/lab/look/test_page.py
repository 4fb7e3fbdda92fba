"""The page's words, and that its data stay data."""

from __future__ import annotations

import json
import re
from pathlib import Path

from regard.lab.look import look
from regard.lab.look import page as page_file
from regard.report.pages import words
from tests.lab.look.small import speaking


def test_every_word_of_the_page_is_there_and_used() -> None:
    """The program asks for words by name."""
    place = Path(page_file.__file__).parent
    program = "".join(file.read_text(encoding="utf-8") for file in place.glob("*.js"))
    known = words("look")
    asked = set(re.findall(r'\b(?:w|words)\("(\w+)"', program))
    asked |= set(re.findall(r'button\("(\w+)"|labeled\([\w.]+, "(\w+)"', program)[0])
    assert asked - {""} <= set(known)
    kinds = ("self", "encoder", "decoder", "cross", "content", "query")
    made = {f"about_{kind}" for kind in kinds} | set(kinds)
    assert made <= set(known)
    for key in known:
        stem = key.rpartition("_")[0]
        named = rf'["`]{key}["`]|["`]{stem}_\$\{{' if stem else rf'["`]{key}["`]'
        used = re.search(named, program) or key in kinds or key == "no_script"
        assert used, key


def test_nothing_in_a_text_ends_the_data(tmp_path: Path) -> None:
    text = "</script><script>alert(1)</script> <!-- \u2028 & “x”"
    page = look(speaking("gpt"), text).html()
    assert page.count("</script>") == 2 and page.count("<script") == 2
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["sides"][0]["text"] == text
