"""The page of `regard serve` for everybody: languages, colors, narrow screens, keyboard alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import until
from tests.browser.serving import (
    TEXT,
    WAYS,
    Site,
    finished,
    go,
    pick,
    put,
    shown_ablation,
    unfold,
)

WIDER = """() => [...document.querySelectorAll('body *')].filter((part) =>
  !part.closest('.wide, .skip, .view, .grid, .scroll, .numbers, .switchboard, .aloud')
  && !part.closest('#tip, #models')
  && part.getBoundingClientRect().right > innerWidth + 1)
  .map((part) => part.outerHTML.slice(0, 90))"""

WORDLESS = """() => [...document.querySelectorAll('[data-told]')].map((part) => part.textContent)
  .filter((text) => /^[a-z]+(_[a-z0-9]+)+$/.test(text))"""


@pytest.fixture
def shown(site: Site) -> Any:
    return site.open()


@pytest.mark.slow
@pytest.mark.parametrize("model", WAYS)
def test_it_fits_in_both_languages_light_and_dark(site: Site, model: str) -> None:
    way, fields = WAYS[model]
    for width, scheme, language in ((360, "dark", "zh-CN"), (1600, "light", "en-US")):
        page = site.open(width=width, scheme=scheme, language=language)
        pick(page, model, way)
        put(page, **fields)
        go(page)
        for name in ("attention", "looking", "code", "run"):
            if page.locator(f"#fold-{name}").is_visible():
                unfold(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(WIDER) == []
        words = page.locator("#way").inner_text()
        assert ("试一试" in words) == (language == "zh-CN")
        assert page.evaluate(WORDLESS) == []
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, light[4:-1].split(","))) < 200) == (scheme == "dark")


def test_the_chosen_model_is_in_view_on_a_narrow_screen(site: Site) -> None:
    page = site.open(width=360)
    chip = """() => { const box = document.querySelector('#models :checked').closest('.pick')
      .getBoundingClientRect(); return box.left >= 0 && box.right <= innerWidth; }"""
    page.locator("input[name=model]").first.focus()
    for _ in range(len(WAYS) - 1):
        page.keyboard.press("ArrowDown")
        assert page.evaluate(chip)
    page.evaluate("document.getElementById('models').scrollLeft = 0")
    page.locator("#language").click()  # the models are written again
    assert page.evaluate(chip)
    field = page.locator("#fields textarea").bounding_box()
    assert field["y"] + field["height"] < 900  # seen at once, however many models there are


def test_the_language_changes_what_is_there_already(shown: Any) -> None:
    pick(shown, "reviewer", "classify")
    put(shown, text=TEXT)
    go(shown)
    unfold(shown, "looking")
    shown.locator("#language").click()
    text = shown.locator("main").inner_text()
    for word in ("各项的概率", "注意力权重只显示", "试一试", "设置", "透镜", "分类"):
        assert word in text
    assert shown.locator("#field-text").input_value() == TEXT
    shown.locator("#language").click()
    assert "各项" not in shown.locator("main").inner_text()


def test_by_keyboard_alone(shown: Any) -> None:
    def on() -> str:
        return str(shown.evaluate("document.activeElement.id || document.activeElement.className"))

    def press(*keys: str) -> None:
        for key in keys:
            shown.keyboard.press(key)

    def until_on(name: str) -> None:
        for _ in range(40):
            press("Tab")
            if name in on():
                return
        raise AssertionError(f"the focus never comes to {name}")

    shown.locator("#language").focus()
    press("Tab")  # into the models: arrow keys choose one
    press("ArrowDown", "ArrowUp")
    assert shown.locator("input[name=model]:checked").get_attribute("value") == "gpt"
    until_on("way-complete")
    press("ArrowRight")
    assert on() == "way-embed"
    press("ArrowLeft")
    until_on("example")
    until_on("field-prompt")
    shown.keyboard.type(TEXT)
    press("Control+Enter")
    finished(shown)
    until_on("token")
    press("ArrowRight", "ArrowRight", "Enter")
    assert shown.locator(".token[aria-expanded=true]").get_attribute("data-place") == "2"
    until_on("option")
    press("Escape")
    assert "token" in on() and shown.locator(".choices").is_hidden()
    for _ in range(12):
        press("Tab")
        if shown.evaluate("document.activeElement.matches('#fold-looking > summary')"):
            break
    press("Enter")
    until_on("deep-lens")
    press("ArrowRight")
    assert on() == "deep-ablate"
    until_on("switch")
    press("ArrowRight", "Enter")
    assert len(shown_ablation(shown)) > 3
    ring = shown.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring != "none"


@pytest.mark.parametrize("model", WAYS)
def test_each_way_by_keyboard_alone(shown: Any, model: str) -> None:
    """A model and its way are chosen, its fields are filled in, and what lies behind the answer is
    opened, without a mouse."""
    way, fields = WAYS[model]

    def press(key: str) -> None:
        shown.keyboard.press(key)

    def until_on(selector: str, key: str = "Tab", most: int = 60) -> None:
        for _ in range(most):
            if shown.evaluate("(s) => document.activeElement.matches(s)", selector):
                return
            press(key)
        raise AssertionError(f"the focus never comes to {selector}")

    shown.locator("#language").focus()
    press("Tab")
    until_on(f"input[value={model}]", "ArrowDown")
    assert shown.locator("input[name=model]:checked").get_attribute("value") == model
    if shown.locator("#ways").is_visible():
        until_on("#ways [role=tab]")
        press("Home")
        until_on(f"#way-{way}", "ArrowRight")
    for name, value in fields.items():
        if not shown.locator(f"#field-{name}").is_visible():
            until_on("#settings > summary")
            press("Enter")
        until_on(f"#field-{name}")
        press("Control+a")
        shown.keyboard.insert_text(str(value))
    until_on("#go")
    press("Enter")
    finished(shown)
    assert shown.locator(".out").inner_text().strip()
    for name in ("attention", "looking"):
        fold = shown.locator(f"#fold-{name}")
        if fold.is_hidden():
            continue
        until_on(f"#fold-{name} > summary")
        if fold.get_attribute("open") is None:
            press("Enter")
        until(shown, f"document.getElementById('fold-{name}').getAttribute('aria-busy')==='false'")
        until_on(".view" if name == "attention" else "#deep-lens")
        press("ArrowDown" if name == "attention" else "ArrowRight")
    if not shown.locator("#fold-looking").is_hidden():
        assert shown.evaluate("document.activeElement.id") == "deep-ablate"
        until_on(".switch")
        press("Enter")
        assert shown_ablation(shown)


def test_everything_has_a_name(shown: Any) -> None:
    pick(shown, "gpt", "complete")
    put(shown, prompt=TEXT, max_tokens=4)
    go(shown)
    for name in ("attention", "looking", "code", "run"):
        unfold(shown, name)
    nameless = """() => [...document.querySelectorAll('button, input, select, textarea, summary')]
      .filter((part) => part.offsetWidth && !part.textContent.trim() && !part.ariaLabel
        && !(part.labels && part.labels.length)).map((part) => part.outerHTML)"""
    assert shown.evaluate(nameless) == []
    assert shown.locator("#aloud").get_attribute("aria-live") == "polite"
    twice = """() => { const ids = [...document.querySelectorAll('[id]')].map((part) => part.id);
      return ids.filter((id, i) => ids.indexOf(id) !== i); }"""
    assert shown.evaluate(twice) == []
