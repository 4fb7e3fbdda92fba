"""The page of a model's attention, as a browser shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import regard
from regard.lab.look import look, packing
from regard.lab.look.recorded import Recorded
from tests.decoding.small import draw
from tests.lab.look.small import informed, speaking

SENTENCE = "The cat sat on the mat. 猫坐在垫子上 🤖"
ROUNDED = 0.0005 + 1e-6  # off by rounding to three digits
WIDER = """() => [...document.querySelectorAll('body *')].filter((part) =>
  !part.closest('.view, .grid, script') && part.getBoundingClientRect().right > innerWidth + 1)
  .map((part) => part.outerHTML.slice(0, 80))"""
LISTED = """(name) => [...document.querySelectorAll(`.side:nth-child(1) .${name} li[data-key]`)]
  .map((item) => [Number(item.dataset.key), Number(item.querySelector('.number').textContent)])"""
PRESS = """(view, [times, key]) => {
  const press = (key) => view.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  press('Escape');
  for (let i = 0; i < times; i++) press(key); }"""
MADE = {
    "gpt": lambda: look(speaking("gpt", layers=3, heads=4), SENTENCE),
    "two": lambda: look(speaking("gpt", seed=1), SENTENCE, against=speaking("bert", seed=2)),
    "xl": lambda: look(
        speaking("transformer-xl"), "The cat sat.", memory="Emoji are long: the dog did not."
    ),
    "xlnet": lambda: look(speaking("xlnet"), "The cat sat on the mat.", order=[3, 1, 4]),
    "pair": lambda: look(speaking("transformer"), "The cat sat.", target="猫坐在垫子上。"),
    "bytes": lambda: look(speaking("gpt", kind="bytes"), "猫 🤖"),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What was recorded and its page, each made when it is first asked for."""
    place, saved = tmp_path_factory.mktemp("look"), {}

    def page_of(name: str) -> tuple[Path, Recorded]:
        if name not in saved:
            recorded = MADE[name]()
            saved[name] = recorded.save(place / f"{name}.html"), recorded
        return saved[name]

    return page_of


def choose(shown: Any, layer: int, head: int) -> None:
    shown.locator(f".side >> nth=0 >> button[data-layer='{layer}'][data-head='{head}']").click()


def row(shown: Any, number: int, axis: str = "Down") -> None:
    """Moves to a row of the picture by keys, without waiting between them."""
    shown.locator(".view").first.evaluate(PRESS, [number + 1, f"Arrow{axis}"])


def listed(shown: Any, name: str = "looks_at") -> dict[int, float]:
    """All weights of the token that is looked at."""
    if shown.locator(f".side >> nth=0 >> [data-all={name}]").count():
        shown.locator(f".side >> nth=0 >> [data-all={name}]").click()
    return dict(shown.evaluate(LISTED, name))


def same(listed_weights: dict[int, float], weights: np.ndarray) -> None:
    """Every weight, and none that is not there."""
    assert set(listed_weights) == set(np.flatnonzero(weights).tolist())
    for key, shown in listed_weights.items():
        assert abs(shown - weights[key]) <= ROUNDED, (key, shown, weights[key])


def test_numbers_are_those_recorded(page: Any, pages: Any) -> None:
    file, recorded = pages("gpt")
    shown, layers = page(file), recorded.sides[0].stack("self").layers
    for layer, head in ((0, 0), (2, 3)):
        choose(shown, layer, head)
        for number in (0, 5, 9):
            row(shown, number)
            same(listed(shown), layers[layer].weights(head)[number])
    row(shown, 2, "Right")
    same(listed(shown, "seen_by"), layers[2].weights(3)[:, 2])
    row(shown, 4)
    choose(shown, 1, 4)
    assert shown.locator(".side h3 >> nth=0").inner_text() == "Layer 2, mean of 4 heads"
    same(listed(shown), layers[1].average[4])
    choose(shown, 1, 5)
    same(listed(shown), layers[1].rollout[4])
    row(shown, 4)
    shown.locator(".view").press("ArrowRight")
    value = shown.locator(".cell").inner_text().rpartition(": ")[2]
    assert abs(float(value) - layers[1].rollout[4, 0]) <= ROUNDED


@pytest.mark.parametrize("kind", ["u2", "u1", "top"])
@pytest.mark.parametrize("family", ["gpt", "longformer"])
def test_every_way_of_keeping_weights_is_read_back(
    page: Any, kind: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less room the same page is made with fewer bits; it shows what Python unpacks."""
    room = {"u2": ("EXACT",), "u1": ("EXACT", "FINE"), "top": ("EXACT", "FINE", "MOST")}[kind]
    for name in room:
        monkeypatch.setattr(packing, name, 4500 if name == "MOST" else 0)
    windows = {"window": 16} if family == "longformer" else {}
    options = {"global_tokens": [1, 30]} if windows else {}
    recorded = look(speaking(family, **windows), draw(40, 1), **options)
    side = recorded.sides[0]
    assert side.precision.kind == kind
    shown = page(recorded.save(tmp_path / "page.html"))
    assert {"u2": "16 bits", "u1": "8 bits", "top": "largest weights"}[kind] in shown.locator(
        "#precision"
    ).inner_text()
    choose(shown, 1, 1)
    weights = side.stack("self").layers[1].weights(1)
    for number in (0, 29, 33):
        row(shown, number)
        same(listed(shown), weights[number])
    row(shown, 29, "Right")
    same(listed(shown, "seen_by"), weights[:, 29])


def test_facts_of_a_graph_are_named_and_their_weights_shown(page: Any, tmp_path: Path) -> None:
    recorded = look(regard.load(informed(tmp_path)), "the film was dull", knowledge=True)
    shown = page(recorded.save(tmp_path / "page.html"))
    assert shown.locator(".known li").all_inner_texts() == ["film — of warm"]
    assert "fact from the knowledge graph" in shown.locator("body").inner_text()
    choose(shown, 1, 0)
    weights = recorded.sides[0].stack("self").layers[1].weights(0)
    for number in (1, 2, 4):  # a word without facts, the film, and what is told of it
        row(shown, number)
        same(listed(shown), weights[number])


def test_heads_by_keyboard(page: Any, pages: Any) -> None:
    shown = page(pages("gpt")[0])
    title = shown.locator(".side h3 >> nth=0")
    assert title.inner_text() == "Layer 1, head 1"
    first = shown.locator("button[data-layer='0'][data-head='0']")
    first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowRight"):
        shown.keyboard.press(key)
    assert title.inner_text() == "Layer 1, head 1"  # moving does not choose
    shown.keyboard.press("Enter")
    assert title.inner_text() == "Layer 3, head 2"
    chosen = shown.locator(".grid [aria-selected=true]")
    assert chosen.get_attribute("aria-label") == "Layer 3, head 2" and chosen.count() == 1
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.className") == "view"
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("ArrowDown")
    assert shown.locator(".looks_at h4").inner_text().startswith("cat (2)")
    shown.keyboard.press("Escape")
    assert shown.locator(".looks_at").count() == 0


def test_pointing_shows_and_clicking_holds(page: Any, pages: Any) -> None:
    file, recorded = pages("gpt")
    shown = page(file)
    box = shown.locator(".view canvas").bounding_box()
    place = box["x"] + 20, box["y"] + 26 + 24 * 3.5  # the fourth token of the left column
    shown.mouse.move(*place)
    heading = shown.locator(".looks_at h4")
    assert heading.inner_text().startswith("on (4)")
    shown.mouse.click(*place)
    shown.mouse.move(place[0], place[1] + 72)
    assert heading.inner_text().startswith("on (4)")
    shown.mouse.click(*place)
    shown.mouse.move(place[0], place[1] + 24)
    assert heading.inner_text().startswith("the (5)")
    weights = recorded.sides[0].stack("self").layers[0].weights(0)
    same(listed(shown), weights[4])


def test_it_speaks_two_languages(page: Any, pages: Any) -> None:
    file, _ = pages("xl")
    english, chinese = page(file), page(file, language="zh-CN")
    assert english.locator("h1").inner_text() == "Attention"
    assert chinese.locator("h1").inner_text() == "注意力"
    english.locator("#language").press("Enter")
    assert english.evaluate("document.documentElement.lang") == "zh-Hans"
    text = english.locator("body").inner_text()
    assert text == chinese.locator("body").inner_text()
    assert "第 1 层，第 1 个头" in text and "记忆" in text and "记得文本之前的 6 个词元" in text
    rest = text.replace("transformer-xl", "").replace("English", "").replace("The cat sat.", "")
    words = [word for word in rest.replace("SVG", "").replace("PNG", "").split() if word.isascii()]
    assert not [word for word in words if len(word) > 1 and word.isalpha()]
    english.locator("#language").click()
    assert english.locator("h1").inner_text() == "Attention"
    assert english.evaluate("document.documentElement.lang") == "en"


def test_memory_streams_and_pairs(page: Any, pages: Any) -> None:
    file, recorded = pages("xlnet")
    shown, side = page(file), recorded.sides[0]
    assert "3 → 1 → 4" in shown.locator(".notes").inner_text()
    shown.locator("[data-stack=query]").click()
    row(shown, 1)
    assert shown.locator(".looks_at h4").inner_text().startswith("sat #1 (3)")
    same(listed(shown), side.stack("query").layers[0].weights(0)[1])
    file, recorded = pages("pair")
    shown, side = page(file), recorded.sides[0]
    shown.locator("[data-stack=cross]").click()
    choose(shown, 2, 1)
    row(shown, 2)
    same(listed(shown), side.stack("cross").layers[2].weights(1)[2])
    choose(shown, 2, 3)
    same(listed(shown), side.stack("cross").layers[2].rollout[2])
    assert "shares of the source" in shown.locator(".about").inner_text()
    file, recorded = pages("xl")
    shown, side = page(file), recorded.sides[0]
    row(shown, 1)
    weights = listed(shown)
    same(weights, side.stack("self").layers[0].weights(0)[1])
    assert min(weights) < 6  # the memory is read
    assert "memory, before the text" in shown.locator(".marks").inner_text()


def saved(shown: Any, button: str) -> bytes:
    with shown.expect_download() as waiting:
        shown.locator(button).click()
    return Path(waiting.value.path()).read_bytes()


def test_exports(page: Any, pages: Any) -> None:
    file, recorded = pages("gpt")
    shown, weights = page(file), recorded.sides[0].stack("self").layers[0].weights(0)
    name = "{http://www.w3.org/2000/svg}"
    arcs = ElementTree.fromstring(saved(shown, "#svg"))
    labels = [text.text for text in arcs.iter(f"{name}text")]
    names = [token.text for token in recorded.sides[0].tokens["text"]]
    assert labels.count("🤖") == 2 and all(labels.count(n) >= 1 for n in names)
    assert len(list(arcs.iter(f"{name}path"))) > 20
    shown.locator("#numbers").check()
    matrix = ElementTree.fromstring(saved(shown, "#svg"))
    numbers = [t.text for t in matrix.iter(f"{name}text") if t.get("text-anchor") == "middle"]
    expected = weights[weights > 0]
    assert len(numbers) == len(expected)
    assert np.abs(np.array(numbers, float) - expected).max() <= ROUNDED
    picture = saved(shown, "#png")
    assert picture.startswith(b"\x89PNG\r\n") and len(picture) > 5000


def test_broken_characters_are_whole(page: Any, pages: Any) -> None:
    shown = page(pages("bytes")[0])
    svg = saved(shown, "#svg").decode()
    assert "猫₁" in svg and "🤖₄" in svg and "\ufffd" not in svg
    assert "bytes of one character" in shown.locator(".marks").inner_text()


@pytest.mark.parametrize("name", ["gpt", "two", "xlnet", "pair"])
def test_narrow_and_wide(page: Any, pages: Any, name: str) -> None:
    for width, scheme in ((360, "dark"), (1600, "light")):
        shown = page(pages(name)[0], width=width, scheme=scheme)
        for view in ("#arcs", "#matrix"):
            shown.locator(view).click()
            row(shown, 1)
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
            assert shown.evaluate(WIDER) == []
        style = "getComputedStyle(document.body)"
        ink, ground = shown.evaluate(f"[{style}.color, {style}.backgroundColor]")
        light = [sum(map(int, c[4:-1].split(","))) for c in (ink, ground)]
        assert (light[0] > light[1]) == (scheme == "dark")


def test_two_sides_move_together_until_told_not_to(page: Any, pages: Any) -> None:
    shown = page(pages("two")[0])
    titles = shown.locator(".side .one h3")
    choose(shown, 1, 0)
    assert titles.all_inner_texts() == ["Layer 2, head 1"] * 2
    shown.locator("#linked").uncheck()
    choose(shown, 0, 1)
    assert titles.all_inner_texts() == ["Layer 1, head 2", "Layer 2, head 1"]


def test_sides_with_other_heads_show_the_same_kind(page: Any, tmp_path: Path) -> None:
    """A mean beside a mean, a rollout beside a rollout, and never one instead of a head."""
    one, other = speaking("gpt", seed=1, heads=4), speaking("bert", seed=2)
    shown = page(look(one, SENTENCE, against=other).save(tmp_path / "heads.html"))
    titles = shown.locator(".side .one h3")
    for head, label in ((3, "head 2"), (4, "mean of 2 heads")):
        choose(shown, 1, head)
        assert titles.all_inner_texts()[1] == f"Layer 2, {label}"
    choose(shown, 1, 5)
    assert titles.all_inner_texts() == ["Rolled out up to layer 2"] * 2


def test_keys_stay_where_they_are(page: Any, pages: Any) -> None:
    """What is made anew when it is pressed does not lose the keyboard."""
    shown = page(pages("pair")[0])
    shown.locator("[data-stack=cross]").press("Enter")
    assert shown.evaluate("document.activeElement.dataset.stack") == "cross"
    shown = page(pages("gpt")[0])
    row(shown, 11)
    for _ in range(2):
        shown.locator("[data-all=looks_at]").press("Enter")
        assert shown.evaluate("document.activeElement.dataset.all") == "looks_at"


def test_a_long_text_is_drawn_in_part(page: Any, tmp_path: Path) -> None:
    """4,096 tokens: redrawing takes a fraction of a frame's time a person would notice, counted in
    the time of the processor, which other work does not stretch.
    """
    recorded = look(speaking("longformer", layers=1, heads=1, window=128), draw(4096, 5))
    shown = page(recorded.save(tmp_path / "long.html"))
    session = shown.context.new_cdp_session(shown)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))

    scroll = """async (steps) => {
      const view = document.querySelector('.view');
      for (let i = 0; i < steps; i++) {
        view.scrollTop += 331; view.scrollLeft += 331;
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
      }
      return view.scrollTop; }"""
    for view in ("#arcs", "#matrix"):
        shown.locator(view).click()
        for _ in range(14 if view == "#matrix" else 0):
            shown.locator("#larger").click()
        before = busy()
        assert shown.evaluate(scroll, 20) > 4000
        assert (busy() - before) / 20 < 0.1
    shown.locator("#fit").click()
    weights = recorded.sides[0].stack("self").layers[0].weights(0)
    row(shown, 3)
    same(listed(shown), weights[3])
    assert shown.evaluate("document.querySelector('.view canvas').height") < 2000
