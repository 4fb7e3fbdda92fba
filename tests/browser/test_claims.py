"""The pages of claims in a browser: they show what was measured, and lead to each other."""

import pytest

from regard.lab.claims.engine.page import write_gallery, write_page
from tests.files import of_all_workers
from tests.lab.claims.measured import CLAIMS, measured


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    shared = of_all_workers(tmp_path_factory.getbasetemp())
    for name in ("scaling", "word-order"):  # with an axis, and without
        write_page(*measured(name, shared), shared / CLAIMS / name)
    return write_gallery(shared / CLAIMS).parent


def test_the_gallery_leads_to_a_claim_and_back(page, place):
    seen = page(place / "gallery.html")
    seen.locator("#scaling a").click()
    assert seen.url.endswith("scaling/claim.html")
    assert seen.locator(".badge.yes").first.inner_text().strip() == "✓ reproduced"
    seen.locator("nav a").click()
    assert seen.url.endswith("gallery.html") and seen.locator(".cards > li").count() == 2


def test_bars_and_lines_show_what_was_measured(page, place):
    seen = page(place / "word-order" / "claim.html")
    values = seen.locator(".bar").evaluate_all("all => all.map(bar => Number(bar.dataset.value))")
    data = seen.evaluate("JSON.parse(document.getElementById('data').textContent)")
    bars = next(chart for chart in data["charts"].values() if chart["kind"] == "bars")["bars"]
    assert values == [bar["value"] for bar in bars] and len(values) == 2
    for bar in bars:
        own = [
            cell["figures"]["text"] for cell in data["facts"]["cells"] if cell["arm"] == bar["name"]
        ]
        assert min(own) == bar["low"] and max(own) == bar["high"]
    seen.locator(".plot svg").first.focus()
    seen.keyboard.press("ArrowDown")
    assert seen.locator("#tip").inner_text().startswith(bars[0]["name"])
    seen.keyboard.press("ArrowDown")
    assert seen.locator("#tip").inner_text().startswith(bars[1]["name"])
    seen = page(place / "scaling" / "claim.html")
    assert seen.locator(".band").count() == 2 * seen.locator("[data-chart]").count()
