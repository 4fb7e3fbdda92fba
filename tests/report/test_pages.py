"""What all pages share: words in both languages, and templates that make text of everything."""

import json
import re
from pathlib import Path

import pytest

import regard
from regard.core.text import Bilingual
from regard.report import pages, plot
from regard.report.charts import Line, LineChart
from regard.report.pages import Figure, embedded, environment, filled, lines, named, page, words
from regard.report.palette import palette
from tests.html import HOSTILE, Page
from tests.refusals import refuses

HAN = re.compile(r"[\u4e00-\u9fff]")
COLOR = re.compile(r"(?<![&\w])#(?:[0-9a-fA-F]{3}){1,2}\b")
MARKUP = re.compile(r"<(?:html|body|div|p|section|table|tr|td|svg|style|script|button)[ >]")
HERE = Path(pages.__file__).parent
LOCALES = sorted(file.stem for file in (HERE / "locales").glob("*.toml"))
# Not words of a language, or the words of the other one.
SIGNS = {"language", "language_hint", "cell", "rolled"}
NAMES = {"f1", "bleu", "chrf", "rouge1", "rouge2", "rougeL"}


@pytest.mark.parametrize("name", LOCALES)
def test_every_sentence_is_there_in_both_languages_with_the_same_blanks(name):
    for key, (english, chinese) in words(name).items():
        assert english and chinese, key
        if key not in SIGNS | NAMES and english != "μ":
            assert HAN.search(chinese) and not HAN.search(english), key
        blanks = [set(re.findall(r"\{(\w+)", text)) for text in (english, chinese)]
        assert blanks[0] == blanks[1], key


def test_every_template_asks_only_for_words_that_there_are():
    known = {key for name in LOCALES for key in words(name)}
    for file in (HERE / "templates").glob("*.html"):
        names = re.findall(r'\bwords(?:\.(\w+)|\["(\w+)"\])', file.read_text(encoding="utf-8"))
        assert {a or b for a, b in names} <= known, file.name


def test_data_cannot_end_their_script():
    assert "<" not in embedded({"a": "</script><!--"})
    assert json.loads(embedded({"a": "</script>\u2028"})) == {"a": "</script>\u2028"}
    with refuses(ValueError, "JSON"):
        embedded({"a": float("nan")})  # which no browser reads


def test_a_template_makes_text_of_what_it_is_given():
    template = environment().from_string("{{ ours }}|{{ text }}|{{ lines(text) }}|{{ n }}|{{ no }}")
    values = {
        "ours": Bilingual("<b>", "“早上”"),
        "text": "<i>\n\x07\u202e",
        "n": Figure(0.5, "50%"),
    }
    ours, text, broken, figure, none = template.render(**values, no=None).split("|")
    assert ours == (
        '<span class="en" lang="en">&lt;b&gt;</span><span class="zh" lang="zh-Hans">“早上”</span>'
    )
    assert text == "&lt;i&gt;↵␇\ufffd" and broken == "&lt;i&gt;\n␇\ufffd"
    assert figure == '<data value="0.5">50%</data>' and none == "–"
    assert str(lines("a\tb")) == "a    b"


def test_a_page_is_whole_and_safe():
    chart = LineChart(HOSTILE, [Line(HOSTILE, [(1, 2.0), (2, 3.0)])])
    html = page("run", HOSTILE, locales=["run"], charts={"loss": chart}, verdict=HOSTILE,
                paper=HOSTILE, figures=[(HOSTILE, HOSTILE)], measures=[HOSTILE],
                validations=[[HOSTILE, HOSTILE]], about=[(HOSTILE, HOSTILE)], columns=[],
                splits=[], recipe=HOSTILE, config=[], machine=[])  # fmt: skip
    seen = Page(html)
    assert seen.fetched == [] and seen.tags.count("script") == 3 and "img" not in seen.tags
    assert seen.chart("loss")["lines"][0]["points"] == [[1, 2.0], [2, 3.0]]
    assert seen.tags.count("figure") == 1 and "\u202e" not in html


def test_sentences_are_filled_in_both_languages():
    sentence = Bilingual("{name} of {count}", "{count} 的 {name}")
    both = filled(sentence, name=Bilingual("loss", "损失"), count="3")
    assert both == ("loss of 3", "3 的 损失")
    assert named("macro_f1") == ("macro F1", "宏平均 F1") and named("my_own") == "my own"


# -- one toolkit


def test_colors_are_named_once() -> None:
    """In base.css; pictures and notebooks read them there."""
    package = Path(regard.__file__).parent
    files = [each for kind in ("py", "html", "js", "css") for each in package.rglob(f"*.{kind}")]
    colored = {each.name for each in files if COLOR.search(each.read_text(encoding="utf-8"))}
    assert colored == {"base.css"}
    assert palette()["ink"].light == plot.INK and len(plot.INKS) == 10


def test_python_holds_no_markup() -> None:
    package = Path(regard.__file__).parent
    holding = {str(each.relative_to(package)) for each in package.rglob("*.py")
               if MARKUP.search(each.read_text(encoding="utf-8"))}  # fmt: skip
    assert not holding
