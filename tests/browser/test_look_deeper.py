"""Lens, ablation, patching and attribution on the look page: the numbers are those of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.api import LoadedModel
from regard.lab.look import look
from tests.browser.test_look import WIDER
from tests.lab.look.small import speaking

TEXT, OTHER = "The cat sat on the mat", "The dog sat on the mat"
TARGET = {"target": "The dog"}


def near(shown: str, value: float, digits: int = 4) -> None:
    """As many digits as are shown; what rounds to nothing has no sign."""
    expected, nothing = f"{value:.{digits}f}", f"{0:.{digits}f}"
    same = shown.replace("−", "-").lstrip("+")
    assert same in (expected, nothing if expected == f"-{nothing}" else expected)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LoadedModel]:
    loaded = speaking("gpt", layers=3, heads=4)
    recorded = look(loaded, TEXT, lens=True, ablate="all", patch=OTHER, attribute=True)
    return recorded.save(tmp_path_factory.mktemp("deeper") / "page.html"), loaded


def cells(shown: Any, part: str, row: int, column: int) -> list[list[str]]:
    """Clicks a cell and reads the table that it opens."""
    grid = shown.locator(f".deep.{part} .matrix").first
    grid.locator(f"button[data-row='{row}'][data-column='{column}']").click()
    lines = grid.locator(".numbers tbody tr")
    return [line.locator("td").all_inner_texts() for line in lines.all()]


def test_the_lens_is_that_of_python(page: Any, saved: Any) -> None:
    file, loaded = saved
    shown, lens = page(file), loaded.lens(TEXT)
    for layer, row in ((0, 0), (1, 3), (3, len(lens.tokens) - 1)):
        lines = cells(shown, "lens", layer, row)
        assert [line[0] for line in lines] == [one.text for one in lens.best[layer][row]]
        for line, one in zip(lines, lens.best[layer][row], strict=True):
            near(line[1], one.probability)


def test_ablating_a_head_in_the_page_gives_the_number_that_python_gives(
    page: Any, saved: Any
) -> None:
    file, loaded = saved
    shown = page(file)
    for layer, head in ((1, 1), (3, 2)):
        result = loaded.ablate(TEXT, heads=[(layer, head)])
        lines = cells(shown, "ablate", layer - 1, head - 1)
        assert [line[0] for line in lines] == [one.text for one in result.changes]
        for line, one in zip(lines, result.changes, strict=True):
            for text, value in zip(line[1:], (one.before, one.after, one.difference), strict=True):
                near(text, value)
        assert f"{layer}.{head}" in shown.locator(".deep.ablate .what").inner_text()


def test_patches_and_attributions(page: Any, saved: Any) -> None:
    file, loaded = saved
    shown = page(file)
    patch = loaded.patch(TEXT, OTHER)
    for layer, column in ((0, 1), (2, 4)):
        cells(shown, "patch", layer, column)
        label = shown.locator(".deep.patch .what").inner_text()
        effect = patch.tables[0].cells[layer][column]
        near(label.rpartition("probability ")[2].split(",")[0], effect.probability)
        near(label.rpartition("share ")[2], patch.recovered(effect), 3)
    result = loaded.attribute(TEXT)
    tokens = shown.locator(".attributed .given").all()
    assert len(tokens) == len(result.scores["text"])
    for node, value in zip(tokens, result.scores["text"], strict=True):
        near(node.locator("small").inner_text(), value)


def test_by_keyboard_and_in_both_languages(page: Any, saved: Any) -> None:
    shown = page(saved[0])
    assert "cannot say whether the answer needs" in shown.locator(".deeper").inner_text()
    shown.locator(".deep.ablate button[data-row='0'][data-column='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        shown.keyboard.press(key)
    assert shown.locator(".deep.ablate .what").inner_text() == "Without 2.2"
    shown.locator("#language").click()
    assert "注意力权重只显示" in shown.locator(".deeper").inner_text()
    assert shown.locator(".deep.ablate .what").count() == 0  # nothing is chosen after the change


def test_a_pair_and_narrow_screens(page: Any, tmp_path: Path) -> None:
    loaded = speaking("transformer")
    deeper = {"lens": True, "ablate": ["cross.1.2", "encoder.1"], "attribute": True}
    recorded = look(loaded, TEXT, **TARGET, **deeper)
    file = recorded.save(tmp_path / "pair.html")
    result: Any = loaded.ablate(TEXT, heads=["cross.1.2"], layers=["encoder.1"], **TARGET)
    for width, scheme in ((360, "dark"), (1600, "light")):
        shown = page(file, width=width, scheme=scheme)
        lines = shown.locator(".deep.ablate .numbers tbody tr").all()
        assert len(lines) == len(result.changes)
        near(lines[0].locator("td").nth(2).inner_text(), result.changes[0].after)
        names = shown.locator(".attributed").evaluate_all("all => all.map((p) => p.dataset.text)")
        assert names == ["source", "target"]
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        outside = WIDER.replace(
            "'.view, .grid, script'", "'.view, .grid, .scroll, .numbers, script'"
        )
        assert outside != WIDER and shown.evaluate(outside) == []
