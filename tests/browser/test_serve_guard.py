"""The page of `regard serve` where something is wrong: keys, refusals, hostile names and texts."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.conftest import until
from tests.browser.serving import Site, finished, go, pick, put, unfold
from tests.serve.running import Running, running
from tests.tasks.world import World

HOSTILE = "<script>alert(1)<img src=x onerror=alert(2)>\u202e\x07 {count} ${7*7} 猫"
NAME = "<script>alert(1)<img src=x onerror=alert(2)>"
KEY = "s3cret-key"
KEPT = """[JSON.stringify({...localStorage, ...sessionStorage}), document.cookie, location.href,
  document.body.innerHTML]"""


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens the page of a server; at the end nothing may have gone wrong but what is expected."""
    sites: list[Site] = []

    def open(server: Running, *expected: str, **options: Any) -> tuple[Site, Any]:
        site = Site(browser, server)
        site.expected = expected
        sites.append(site)
        return site, site.open(**options)

    yield open
    for site in sites:
        site.close()


def test_a_key_is_asked_for_sent_and_kept_nowhere(opened: Any, world: World) -> None:
    with running([world.model("gpt")], api_key=KEY) as server:
        site, page = opened(server, "401", app=False)
        page.locator("#key-form").wait_for()
        assert page.locator("#app").is_hidden()
        page.locator("#key").fill("wrong")
        page.keyboard.press("Enter")
        page.locator(".trouble").wait_for()
        assert "key is missing or wrong" in page.locator(".trouble").inner_text()
        assert page.evaluate("document.activeElement.id") == "key"
        page.locator("#key").fill(KEY)
        page.keyboard.press("Enter")
        page.locator("#app").wait_for()
        assert page.locator(".trouble").count() == 0 and page.locator("#key-form").is_hidden()
        put(page, prompt="the film", max_tokens=3, temperature=0)
        go(page)
        assert page.locator(".token").count() == 3
        unfold(page, "code")
        assert "$REGARD_API_KEY" in page.locator("#code").inner_text()
        storage = page.evaluate(KEPT)
        assert not any(KEY in text or "wrong" in text for text in storage[:3])
        assert KEY not in storage[3] and page.locator("#key").input_value() == ""
        assert not any("wrong" in each.url or KEY in each.url for each in site.requests)
        sent = site.requests[-1].headers["authorization"].encode("latin-1").decode()
        assert sent == f"Bearer {KEY}"


def test_a_full_queue_says_when_to_try_again(opened: Any, world: World) -> None:
    with running([world.model("gpt")], rows=1, queue=1) as server:
        _, page = opened(server, "429")
        put(page, prompt="the film", max_tokens=3, temperature=0)
        done = threading.Event()

        def busy() -> None:
            while not done.is_set():
                server.client.post("/v1/completions", json={
                    "model": "gpt", "prompt": "the film", "max_tokens": 1000})  # fmt: skip

        crowd = [threading.Thread(target=busy) for _ in range(4)]
        for each in crowd:
            each.start()
        try:
            for _ in range(20):
                page.locator("#go").click()
                finished(page)
                if page.locator(".trouble").count():
                    break
        finally:
            done.set()
        text = page.locator(".trouble").inner_text()
        assert "Too many requests are waiting" in text and "try again in" in text
        again = page.locator(".trouble button")
        assert again.is_disabled()
        for each in crowd:
            each.join(60)
        until(page, "!document.querySelector('.trouble button').disabled")
        again.click()
        finished(page)
        assert page.locator(".trouble").count() == 0 and page.locator(".token").count() == 3


STOP_AT_THE_FIRST_TOKEN = """() => new MutationObserver((changes, observer) => {
  if (!document.querySelector(".token")) return;
  observer.disconnect();
  document.getElementById("stop").click();
}).observe(document.body, { childList: true, subtree: true })"""


def test_refusals_and_a_server_that_is_gone(opened: Any, world: World) -> None:
    with running([world.model("gpt"), world.model("bert")]) as server:
        _, page = opened(server, "400", "ERR_")
        pick(page, "bert", "fill")
        put(page, text="no blank here")
        go(page)
        alert = page.locator("[role=alert]")
        assert "The server refuses this" in alert.inner_text() and "blank" in alert.inner_text()
        put(page, text="the ___ was great")
        go(page)
        assert alert.count() == 0 and page.locator(".blanks .option").count() == 5
        pick(page, "gpt", "complete")
        put(page, prompt="the film", max_tokens=1024)
        page.evaluate(STOP_AT_THE_FIRST_TOKEN)  # from outside it may come when all is written
        page.locator("#go").click()
        page.locator(".token").first.wait_for()
        finished(page)
        assert page.locator("#stop").is_hidden() and alert.count() == 0
    page.locator("#go").click()
    finished(page)
    assert "does not answer" in alert.inner_text()
    page.locator("#language").click()
    assert "服务器没有响应" in alert.inner_text()


@pytest.fixture(scope="module")
def hostile(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A model whose directory, run and card others wrote."""
    place = tmp_path_factory.mktemp("hostile")
    paths = []
    for source, name in ((world.model("gpt"), NAME), (world.run("tagger"), f"{NAME}2")):
        shutil.copytree(source, place / name)
        paths.append(str(place / name))
    facts = {"model": {"name": HOSTILE, "paper": HOSTILE}, "outcome": HOSTILE, "precision": HOSTILE}
    run = place / NAME
    (run / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": n, "loss": 1 / n}) + "\n" for n in (1, 2))
        + json.dumps({"step": 2, "valid": {HOSTILE: 3.0}}) + "\n", encoding="utf-8",
    )  # fmt: skip
    card = f"# {HOSTILE}\n\n{HOSTILE} `{HOSTILE}`\n\n| {HOSTILE} |\n| - |\n| {HOSTILE} |\n"
    (run / "README.md").write_text(card, encoding="utf-8")
    with running(paths) as server:
        yield server


@pytest.mark.parametrize("width", [360, 1600])
def test_texts_of_others_stay_texts(opened: Any, hostile: Running, width: int) -> None:
    _, page = opened(hostile, width=width)
    put(page, prompt=HOSTILE, max_tokens=4)
    go(page)
    for name in ("attention", "looking", "code", "run"):
        unfold(page, name)
    until(page, "document.querySelectorAll('.deep-out .heat').length > 0")
    page.locator(".card-of > summary").click()
    assert NAME in page.locator(".card-of h4").inner_text()
    assert NAME in page.locator("#story .facts").inner_text()
    pick(page, f"{NAME}2", "tag")
    put(page, text="\u202e <img src=x onerror=alert(3)>")
    go(page)
    shown = page.locator("body")
    assert NAME in shown.inner_text() and "\u202e" not in shown.inner_text()
    assert (
        page.locator("img, iframe, object, body script:not(#data):not([type=module])").count() == 0
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_only_its_own_script_and_its_own_server(opened: Any, hostile: Running) -> None:
    _, page = opened(hostile, "Content Security Policy", "ERR_", "Refused", "violates")
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert "unsafe" not in policy and policy.count("'sha256-") == 3
    ran = page.evaluate("""() => {
      const script = document.createElement('script');
      script.textContent = 'window.ran = true';
      document.body.append(script);
      return fetch('http://127.0.0.1:9/').then(() => 'fetched', () => String(window.ran)); }""")
    assert ran == "undefined"
    before = page.url
    page.locator("#theme").click()
    assert page.url == before


def test_the_address_and_the_pages_directory_hold_no_file(hostile: Running) -> None:
    for path in ("/static/serve.js", "/serve.js", "/..%2f", "/?key=x"):
        status = hostile.client.get(path).status_code
        assert status == (200 if path.startswith("/?") else 404)
