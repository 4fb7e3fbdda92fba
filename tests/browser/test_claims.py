"""The pages of claims in a browser: they fit, speak both languages, and lead to each other."""

import pytest

from regard.lab.claims import claim
from regard.lab.claims.engine.page import write_gallery, write_page
from regard.lab.claims.engine.run import run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    out = tmp_path_factory.mktemp("claims")
    for name in ("scaling", "word-order"):  # with an axis, and without
        study = claim(name)
        write_page(study, run(study, out, seeds=2), out / name)
    write_gallery(out)
    return out


FILES = ("gallery.html", "scaling/claim.html", "word-order/claim.html")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
def test_a_page_fits(page, place, file, width, scheme):
    seen = page(place / file, width=width, scheme=scheme)
    wide = seen.evaluate("[document.documentElement.scrollWidth, document.body.clientWidth]")
    assert max(wide) <= width
    shown = seen.locator("svg").first.bounding_box()
    assert shown["width"] > 200 and shown["height"] > 50


@pytest.mark.parametrize("file", FILES)
def test_the_language_is_the_readers_and_can_be_changed(page, place, file):
    seen = page(place / file, language="zh-CN")
    assert seen.evaluate("document.documentElement.lang") == "zh"
    heading = seen.locator("h1")
    before = heading.inner_text()
    assert any("\u4e00" <= letter <= "\u9fff" for letter in before)
    seen.locator("#language").focus()
    seen.keyboard.press("Enter")
    assert seen.evaluate("document.documentElement.lang") == "en"
    assert heading.inner_text() != before and heading.inner_text().isprintable()
    assert not any("\u4e00" <= letter <= "\u9fff" for letter in heading.inner_text())


def test_the_gallery_leads_to_a_claim_and_back(page, place):
    seen = page(place / "gallery.html")
    seen.locator("#scaling a").click()
    assert seen.url.endswith("scaling/claim.html")
    assert seen.locator(".badge.yes").inner_text().strip() == "✓ reproduced"
    seen.locator("nav a").click()
    assert seen.url.endswith("gallery.html") and seen.locator(".cards > li").count() == 2
