"""A page of a real server in a real browser: only this server may be asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.browser.conftest import PATIENCE, until
from tests.serve.running import Running, running
from tests.tasks.world import World

TEXT = "the film was very great"
MODELS = ["gpt", "bert", "t5"]
RUNS = [
    "reviewer", "tagger", "entailer", "answerer", "chooser", "translator", "talker", "writer",
    "linker", "ranker",
]  # fmt: skip
ENTITIES = "warm film | great moving\ncold film | dull poor"
PASSAGES = "the plot was dull\nthe film was great\nthe music"
WAYS = {
    "gpt": ("complete", {"prompt": TEXT, "max_tokens": 6}),
    "talker": ("chat", {"message": TEXT, "max_tokens": 5}),
    "bert": ("fill", {"text": "the ___ was very great"}),
    "reviewer": ("classify", {"text": TEXT}),
    "tagger": ("tag", {"text": TEXT}),
    "answerer": ("answer", {"question": "the film", "passage": TEXT}),
    "chooser": ("choose", {"premise": TEXT, "choices": "the film was great\nthe plot was dull"}),
    "linker": ("link", {"text": TEXT, "mention": "film", "candidates": ENTITIES}),
    "ranker": ("rerank", {"query": "a great film", "passages": PASSAGES}),
    "translator": ("translate", {"text": TEXT, "max_tokens": 5}),
    "entailer": ("embed", {"texts": "the film was great\na great film\nthe plot was dull"}),
    "t5": ("summarize", {"text": TEXT, "max_tokens": 5}),
    "writer": ("classify", {"text": TEXT}),
}


class Site:
    """Opens the page of a server, and hears what goes wrong. `expected` are parts of messages on
    the console that a test provokes: a browser reports every answer of 400 and more."""

    def __init__(self, browser: Any, server: Running) -> None:
        self.browser, self.server, self.troubles = browser, server, []
        self.contexts: list[Any] = []
        self.expected: tuple[str, ...] = ()
        self.requests: list[Any] = []

    def heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.trouble(f"{message.type} on the console: {message.text}")

    def trouble(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.troubles.append(text)

    def requested(self, route: Any) -> None:
        self.requests.append(route.request)
        if route.request.url.startswith(self.server.url):
            route.continue_()
        else:
            self.troubles.append(f"a request to {route.request.url}")
            route.abort()

    def open(
        self, *, width: int = 1280, scheme: str = "light", language: str = "en-US", app: bool = True
    ) -> Any:
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, locale=language
        )
        self.contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.route("**/*", self.requested)
        page = context.new_page()
        page.on("console", self.heard)
        page.on("pageerror", lambda error: self.trouble(f"an error: {error}"))
        page.on("dialog", lambda dialog: self.trouble(f"a dialog: {dialog.message}"))
        page.goto(self.server.url)
        if app:
            page.locator("#app").wait_for()
        return page

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        assert not self.troubles, self.troubles


def pick(page: Any, model: str, way: str = "") -> None:
    """Chooses a model, and one of the ways that it offers."""
    page.locator(f'input[name=model][value="{model}"]').check(force=True)
    if way and page.locator("#ways").is_visible():
        page.locator(f"#way-{way}").click()


def put(page: Any, **fields: object) -> None:
    for name, value in fields.items():
        control = page.locator(f"#field-{name}")
        if not control.is_visible():
            page.locator("#settings > summary").click()
        control.fill(str(value))


def go(page: Any) -> None:
    """Presses the button, and waits until the answer is there."""
    page.locator("#go").click()
    finished(page)


def finished(page: Any) -> None:
    until(page, "document.getElementById('answers').getAttribute('aria-busy') === 'false'")


def unfold(page: Any, name: str) -> None:
    fold = page.locator(f"#fold-{name}")
    if fold.get_attribute("open") is None:
        fold.locator("> summary").click()
    until(page, f"document.getElementById('fold-{name}').getAttribute('aria-busy') === 'false'")


def tokens(page: Any, place: int = 0) -> str:
    """The text that stands there, token by token, as the model wrote it."""
    column = page.locator(".column").nth(place)
    return "".join(column.locator(".token").all_inner_texts())


@contextmanager
def playgrounds(world: World) -> Iterator[Running]:
    """A server with a model for every way."""
    with running([*map(world.model, MODELS), *map(world.run, RUNS)]) as server:
        yield server


def shown_ablation(shown: Any) -> list[list[str]]:
    """The rows of the table of what changes without the parts that are off."""
    until(shown, "document.querySelector('.deep-out').getAttribute('aria-busy') === 'false'")
    shown.locator(".deep-out .numbers tbody tr").first.wait_for()
    rows = shown.locator(".deep-out .numbers tbody tr")
    return [line.locator("td").all_inner_texts() for line in rows.all()]
