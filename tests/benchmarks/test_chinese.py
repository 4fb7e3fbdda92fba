"""docs/results.md and docs/results.zh.md say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import chinese
import pytest
from page import put_both, twin

from tests.benchmarks.bilingual import check_chinese, numbers

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results.md"
SECTION = re.compile(r"<!-- begin (\S+) -->\n(.*?)\n<!-- end \1 -->", re.DOTALL)
TABLES = tomllib.loads(chinese.FILE.read_text("utf-8"))


def sections(page: Path) -> dict[str, str]:
    return dict(SECTION.findall(page.read_text("utf-8")))


def test_both_pages_have_the_same_sections() -> None:
    english, translated = sections(PAGE), sections(twin(PAGE))
    assert list(english) == list(translated) and len(english) >= 11
    assert [name for name in english if name not in TABLES] == []


@pytest.mark.parametrize("name", sections(PAGE))
def test_a_section_says_the_same_in_both_languages(name: str) -> None:
    """If it does not: mend benchmarks/chinese.toml, and write the section again."""
    english, translated = sections(PAGE)[name], sections(twin(PAGE))[name]
    assert check_chinese(name, english) == translated
    assert numbers(english) == numbers(translated)
    for mark in (r"^(#+) ", r"^(\|)", r"^ *(\*) "):
        both = [re.findall(mark, text, re.MULTILINE) for text in (english, translated)]
        assert both[0] == both[1], mark
    quoted = [set(re.findall(r"`[^`]*`", text)) for text in (english, translated)]
    assert quoted[0] <= quoted[1]


@pytest.mark.parametrize("name", [name for name in TABLES if name != "names"])
def test_a_pair_has_the_same_numbers_and_fields(name: str) -> None:
    for english, translated in TABLES[name].items():
        assert len(chinese.FIELD.findall(english)) == translated.count("{}"), english
        assert numbers(english) == numbers(translated), english


def test_a_sentence_without_a_translation_stays_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "results.md"
    put_both("testing", "## Testing\n\nNobody has translated this. Goal: 3.", page)
    put_both(
        "knowledge", "## Knowledge\n\n| way | seeds |\n| --- | --- |\n| guidance, gated | 3 |", page
    )
    assert page.read_text("utf-8").startswith("# Results\n\n<!-- begin testing -->\n## Testing\n")
    translated = twin(page).read_text("utf-8")
    assert translated.startswith("# 结果\n\n<!-- begin testing -->\n## 测试\n\nNobody has")
    assert "| 方式 | 随机种子 |\n| --- | --- |\n| 引导，带门控 | 3 |" in translated
    printed = capsys.readouterr().err
    assert "chinese.toml lacks words of the section testing: Nobody, has, translated" in printed
    assert "knowledge" not in printed


def test_a_field_is_translated_in_turn_and_code_is_left_alone() -> None:
    assert chinese.phrase("movie reviews, bf16", "fine-tuning") == "电影评论，bf16"
    assert chinese.phrase("0.690 ± 0.023 (missed)", "testing") == "0.690 ± 0.023（未达到）"
    assert chinese.phrase("0.690 ± 0.023 (+0.1)", "robustness") == "0.690 ± 0.023 (+0.1)"
    assert chinese.phrase("`regard train, or test`", "testing") == "`regard train, or test`"
    assert chinese.untranslated("用 `regard train gpt` 训练\n* what it wrote → a cat") == []
    assert chinese.untranslated("用 n-gram 和 the BERT") == ["the: 用 n-gram 和 the BERT"]


def test_a_note_is_translated_as_on_the_page_of_the_command() -> None:
    note = "* 2 seeds say little about random variation; use 3 or more"
    assert check_chinese("probing", note).startswith("* 2 个随机种子")


def test_a_paragraph_may_be_broken_into_lines() -> None:
    text = "All have one split, and a side's own\nmeasuring is not part of its minutes."
    assert chinese.in_chinese("board", text) == "各方使用同一划分，一方自己的测量不计入它的分钟数。"
