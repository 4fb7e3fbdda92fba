"""What all pages share: words in both languages, and templates that make text of everything."""

import json
import re
from pathlib import Path

import pytest

from regard.report import pages
from regard.report.pages import embedded, lines, rendered, words
from tests.refusals import refuses

HAN = re.compile(r"[\u4e00-\u9fff]")
SIGNS = {"mean", "rolled", "cell", "language", "language_hint"}  # not words of it
LOCALES = sorted(file.stem for file in (Path(pages.__file__).parent / "locales").glob("*.toml"))


@pytest.mark.parametrize("name", LOCALES)
def test_every_sentence_is_there_in_both_languages_with_the_same_blanks(name):
    for key, (english, chinese) in words(name).items():
        if key not in SIGNS:
            assert english and HAN.search(chinese) and not HAN.search(english), key
        blanks = [set(re.findall(r"\{(\w+)", text)) for text in (english, chinese)]
        assert blanks[0] == blanks[1], key


def test_data_cannot_end_their_script():
    assert "<" not in embedded({"a": "</script><!--"})
    assert json.loads(embedded({"a": "</script>\u2028"})) == {"a": "</script>\u2028"}
    with refuses(ValueError, "JSON"):
        embedded({"a": float("nan")})  # which no browser reads


def test_a_template_makes_text_of_what_it_is_given(tmp_path):
    (tmp_path / "page.css").write_text("a > b { color: red }")
    (tmp_path / "page.html").write_text(
        '{% from "base.html" import both %}<style>{{ part("page.css") }}</style>'
        "{{ both(said) }}{{ text }}|{{ lines(text) }}"
    )
    words = {"en": "<b>", "zh": "“早上”"}
    page = rendered(tmp_path, "page.html", said=words, text="<i>\n\x07\u202e")
    assert "<style>a > b { color: red }</style>" in page
    assert '<span class="en" lang="en">&lt;b&gt;</span>' in page
    assert '<span class="zh" lang="zh-Hans">“早上”</span>' in page
    assert page.endswith("&lt;i&gt;␊␇\ufffd|&lt;i&gt;\n␇\ufffd")
    assert str(lines("a\tb")) == "a    b"
