"""The pictures of the READMEs: what they show, in which language, and of which command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from regard.lab.compare.report import write_report
from tests.browser.conftest import Open
from tests.files import script
from tests.lab.compare.made import comparison

ROOT = Path(__file__).resolve().parent.parent.parent
PICTURE = re.compile(r"docs/figures/[\w.]+\.png")


@pytest.fixture(scope="module")
def readme() -> Any:
    return script("readme")


def test_a_picture_shows_the_verdict_and_the_first_chart(
    readme: Any, browser: Any, page: Open, tmp_path: Path
) -> None:
    write_report(comparison(), tmp_path)
    _, command, sections = readme.PICTURES["report"]
    images = []
    for locale in readme.LANGUAGES.values():
        file = tmp_path / f"{locale}.png"
        readme.picture(browser, tmp_path / "report.html", file, locale, sections)
        readme.sign(file, command)
        assert readme.command_of(file) == command
        with Image.open(file) as image:
            assert image.width == readme.WIDTH
            images.append(image.convert("RGB"))
    assert images[0].tobytes() != images[1].tobytes()
    shown = page(tmp_path / "report.html", width=readme.WIDTH)
    end = shown.evaluate(readme.FRAME, list(sections))
    assert images[0].height == pytest.approx(end + 24, abs=1)
    seen = shown.locator("main > section").evaluate_all("all => all.map((s) => s.id && !s.hidden)")
    assert seen.count(True) == 2
    for place in ("#verdict .lead", "#curves .first .line >> nth=0"):
        box = shown.locator(place).bounding_box()
        assert box["height"] > 0 and box["y"] + box["height"] < end


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_pictures_are_of_the_commands_that_the_page_shows(readme: Any, name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    pictures = PICTURE.findall(text)
    assert len(pictures) == 2
    for picture in pictures:
        command = readme.command_of(ROOT / picture)
        assert command and command in text, f"{picture} shows {command or 'an unknown command'}"
        assert picture.endswith(".zh.png") == name.endswith(".zh.md")
