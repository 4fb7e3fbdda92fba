"""The page /docs of a real server: every route, in both languages, at two widths, by keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from regard.report.pages import words
from regard.serve.docs import fields, kind_of
from regard.serve.playground import HEADERS
from tests.browser.serving import Site
from tests.browser.test_pages import HAN, REACHED, WIDER
from tests.serve.running import Running, running
from tests.tasks.world import World

ROWS = """() => [...document.querySelectorAll('table')].map((table) =>
  [...table.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) =>
  cell.innerText)))"""
CONTROLS = """() => [...document.querySelectorAll('a, button, [tabindex="0"]')].filter((part) =>
  part.tabIndex >= 0 && part.getBoundingClientRect().width).length"""


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Running]:
    with running([world.model("gpt")]) as server:
        yield server


@pytest.fixture
def site(browser: Any, server: Running) -> Iterator[Site]:
    site = Site(browser, server)
    yield site
    site.close()


def docs(site: Site, **options: Any) -> Any:
    page = site.open(**options)
    page.goto(f"{site.server.url}/docs")
    return page


def described(server: Running) -> list[tuple[str, dict[str, Any]]]:
    """The routes of the description for programs, each with the schema of its body."""
    description = server.client.get("/openapi.json").json()
    schemas = description["components"]["schemas"]
    routes = []
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
            routes.append((f"{method.upper()} {path}", schemas.get(name, {})))
    return routes


@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_lists_every_route_with_its_fields(
    site: Site, server: Running, language: str, width: int
) -> None:
    scheme = "dark" if width == 360 else "light"
    locale = {"en": "en-US", "zh": "zh-CN"}[language]
    page = docs(site, width=width, scheme=scheme, language=locale)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(WIDER) == []
    heights = page.locator("tbody tr").evaluate_all("all => all.map((row) => row.offsetHeight)")
    assert max(heights) < 150  # no cell is broken into letters
    assert page.title() == getattr(words("routes")["title"], language)
    routes = dict(described(server))
    assert sorted(page.locator("h3").all_inner_texts()) == sorted(routes)
    rows = [row for table in page.evaluate(ROWS) for row in table]
    expected = [
        [name, *(getattr(text, language, text) for text in (kind, required, meaning))]
        for schema in routes.values() for name, kind, required, meaning in fields(schema)
    ]  # fmt: skip
    assert sorted(rows) == sorted(expected)
    meanings = [row[3] for row in rows if row[3]]
    assert meanings and all(bool(HAN.search(text)) == (language == "zh") for text in meanings)


def test_kinds_of_values_are_said_in_both_languages() -> None:
    both = kind_of({"anyOf": [
        {"type": "string"}, {"type": "array", "items": {"type": "integer"}}, {"type": "null"},
    ]})  # fmt: skip
    assert both == ("string or list of integer", "字符串或整数列表")
    assert kind_of({"enum": ["zero", "mean"]}) == ("zero, mean", "zero, mean")
    assert kind_of({"$ref": "#/components/schemas/TextPart"}) == ("TextPart", "TextPart")


def test_it_is_walked_through_by_keys(site: Site) -> None:
    page = docs(site, width=800)
    reached = []
    for _ in range(page.evaluate(CONTROLS)):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(REACHED))
    assert all(ring for _, ring in reached), reached
    assert {"theme", "language", "PRE", "A"} <= {name for name, _ in reached}
    page.locator("#language").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    page.locator("nav a").focus()
    page.keyboard.press("Enter")
    page.locator("#app").wait_for()
    assert re.fullmatch(rf"{site.server.url}/?", page.url)


def test_it_is_guarded_as_the_page_of_the_models_is(server: Running) -> None:
    both = [server.client.get(path).headers for path in ("/", "/docs")]
    assert all(headers[name] == value for headers in both for name, value in HEADERS.items())
    text = server.client.get("/docs").text
    assert "Content-Security-Policy" in text and "connect-src" not in text  # it asks for nothing
