"""A real browser without a network, for the pages that we write.

Chromium and Playwright are not needed to use or to test anything else: where they are missing these
tests are skipped and say so. REGARD_BROWSER=1 makes that an error instead; REGARD_CHROMIUM names
another Chromium.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

OPTIONS = (
    "--no-sandbox", "--headless=new", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip
PATIENCE = 30_000  # milliseconds: a busy machine is slow, not wrong

Open = Callable[..., Any]  # (file, width=…, height=…, scheme=…, language=…) -> playwright's Page


def missing() -> str:
    """Why there is no browser; "": there is one."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed (pip install playwright)"
    return "" if chromium() else "there is no Chromium (apt-get install chromium)"


def chromium() -> str | None:
    names = (os.environ.get("REGARD_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    reason = missing()
    if reason and os.environ.get("REGARD_BROWSER") == "1":
        pytest.fail(f"REGARD_BROWSER=1 asks for browser tests, but {reason}")
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Open]:
    """Opens a file; at the end nothing may have been said on the console or asked of a network."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def heard(message: Any) -> None:
        if message.type in ("error", "warning"):
            troubles.append(f"{message.type} on the console: {message.text}")

    def requested(route: Any) -> None:
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            troubles.append(f"a request to {route.request.url}")
            route.abort()

    def opened(
        file: Path,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        language: str = "en-US",
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, locale=language
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.set_offline(True)
        context.route("**/*", requested)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: troubles.append(f"an error: {error}"))
        page.on("dialog", lambda dialog: troubles.append(f"a dialog: {dialog.message}"))
        page.goto(file.resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The page of a kind, made when it is first asked for."""
    from tests.browser.made import PAGES

    known: dict[tuple[str, bool], Path] = {}

    def file(kind: str, hostile: bool = False) -> Path:
        if (kind, hostile) not in known:
            known[kind, hostile] = PAGES[kind](tmp_path_factory.mktemp(kind), hostile)
        return known[kind, hostile]

    return file


@pytest.fixture
def shown(page: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Opens the display of an object in a page like that of a notebook."""

    def opened(thing: Any, lang: str = "en", dark: bool = False, **options: Any) -> Any:
        theme = "false" if dark else "true"
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.html"
        file.write_text(
            f'<!doctype html><html lang="{lang}"><meta charset="utf-8">'
            f'<body data-jp-theme-light="{theme}">{thing._repr_html_()}</body></html>', "utf-8",
        )  # fmt: skip
        return page(file, **options)

    return opened


def until(page: Any, expression: str) -> None:
    """Waits for an expression to hold. Playwright's own wait evaluates text inside of the page,
    which the page's content security policy forbids.
    """
    ends = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < ends, f"never true: {expression}"
        page.wait_for_timeout(20)


@pytest.fixture(scope="session")
def server(world: Any) -> Iterator[Any]:
    """One server for all tests of its page."""
    from tests.browser.serving import playgrounds

    with playgrounds(world) as running:
        yield running


@pytest.fixture
def site(browser: Any, server: Any) -> Iterator[Any]:
    from tests.browser.serving import Site

    opened = Site(browser, server)
    yield opened
    opened.close()
