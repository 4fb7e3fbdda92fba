"""What the results of commands show of themselves in a notebook, and what they plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.core.errors import InputError, UnknownName
from regard.evaluation.result import EvaluationResult
from regard.lab.compare.report import report_of
from regard.lab.compare.result import ComparisonResult
from regard.lab.look import look
from regard.methods.probe.result import CHARTS, ProbeResult
from regard.report.notebook import ITEMS, ROWS, ShownTable
from tests.browser.made import probed
from tests.browser.test_notebook import levels, rounded
from tests.lab.compare.made import comparison
from tests.lab.look.small import speaking
from tests.refusals import refuses

TABLES = """() => [...document.querySelectorAll('table')].map((table) =>
  [...table.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) =>
  cell.innerText)))"""
DATA = "all => all.map((each) => Number(each.value))"


def words_of(opened: Any) -> str:
    return "\n".join(opened.locator(".regard").all_inner_texts())


# -- looking and drawing


def test_a_recording_of_the_look_page_shows_heads_means_and_answers(shown: Any) -> None:
    recorded = look(speaking("transformer"), "The cat sat.", target="It sat.", lens=True)
    opened = shown(recorded, width=1000)
    (side,) = recorded.sides
    number = 0
    for stack in side.stacks:
        for layer in stack.layers:
            for thumbnail, (down, across) in layer.pictures[: len(layer.heads)]:
                table = thumbnail.reshape(down, across) / np.float32(255)
                assert levels(opened, number) == rounded(table.tolist(), 1.0)
                number += 1
        mean = stack.layers[-1].average
        assert levels(opened, number) == rounded(mean.tolist(), float(mean.max()))
        number += 1
    names = [token.text for token in side.tokens["target"]]
    mean = side.stack("decoder").layers[-1].average
    tips = opened.locator(".tip title").all_text_contents()
    expected = [f"{a} → {b}: {mean[i, j]:.4f}" for i, a in enumerate(names)
                for j, b in enumerate(names)]  # fmt: skip
    assert set(expected) <= set(tips)
    assert "Decoder, layer 3" in words_of(opened) and "The cat sat." in words_of(opened)
    assert opened.locator(".regard").count() == 2  # the lens shows itself, too
    assert side.deeper.lens is not None and opened.content().count("What each layer") == 1
    assert "解码器，第 3 层" in words_of(shown(recorded, "zh"))


def test_two_sides_and_long_texts(shown: Any) -> None:
    """Of a long text the small pictures alone are shown."""
    text = "The cat sat on the mat. " * 12
    opened = shown(look(speaking("gpt", seed=1), text, against=speaking("bert", seed=2)))
    assert opened.locator(".regard h3").all_inner_texts() == ["gpt", "bert"]
    assert opened.locator("svg.small").count() == 8 == opened.locator(".matrices svg").count()


def test_the_command_gives_the_page_and_its_recording(shown: Any, tmp_path: Path) -> None:
    speaking("gpt").save(tmp_path / "model")
    result = regard.look(str(tmp_path / "model"), "The cat", out=tmp_path / "page.html")
    assert Path(result["page"]).is_file() and result["sides"][0]["text"] == "The cat"
    opened = shown(result)
    mean = result.recorded.sides[0].stacks[0].layers[-1].average
    assert levels(opened, 4) == rounded(mean.tolist(), float(mean.max()))


@pytest.mark.parametrize(("name", "words"), [
    ("attention", ("the cat sat",)), ("positions", ()), ("schedules", ("noam,linear",)),
    ("masks", ("window",)), ("order", ("the cat sat",)), ("parameters", ("bert-tiny",)),
    ("operations", ("bert-tiny",)),
])  # fmt: skip
def test_a_drawn_picture_shows_and_plots_itself(
    shown: Any, tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    options = {"attention": {"model": "bert-tiny"}, "positions": {"seq_len": 9}}.get(name, {})
    result = getattr(regard.draw, name)(*words, **options)
    opened = shown(result)
    assert result["title"] in words_of(opened)
    if "values" in result:
        numbers = [float(tip.rpartition(": ")[2]) for tip in
                   opened.locator(".tip title").all_text_contents()]  # fmt: skip
        assert numbers == pytest.approx([x for row in result["values"] for x in row], abs=6e-5)
    elif "lines" in result:
        assert opened.locator("path.line").count() == len(result["lines"])
    else:
        shares = opened.locator(".bars td:last-child").all_inner_texts()
        assert shares == [f"{count:,.0f}" for count in result["counts"].values()]
    pytest.importorskip("matplotlib")
    assert result.plot("zh").axes and result.save(tmp_path / "picture.png").stat().st_size > 1000


# -- measuring


def test_a_probing(shown: Any, tmp_path: Path) -> None:
    speaking("gpt").save(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text(
        "\n".join(f"The cat {n} sat on the Mat of Tom {n}." for n in range(60)), "utf-8"
    )
    result = regard.probe(str(tmp_path / "model"), task="auto:capital", data=str(text),
                          out=tmp_path / "out", quiet=True)  # fmt: skip
    assert isinstance(result, ProbeResult)
    opened = shown(result)
    cells = opened.locator("tbody tr >> nth=2").locator("data").evaluate_all(DATA)
    last = result["layers"][2]
    assert cells[0] == last["trained"]["task"]["accuracy"]["mean"]
    assert last["untrained"]["task"]["accuracy"]["mean"] in cells
    assert opened.locator("path.line").count() == sum(
        len(c.lines) for c in result.curves()[:CHARTS]
    )
    assert "准确率" in words_of(shown(result, "zh"))
    pytest.importorskip("matplotlib")
    line = result.plot().axes[0].lines[0].get_ydata()
    means = [row["trained"]["task"]["accuracy"]["mean"] for row in result["layers"]]
    assert list(line) == means


def test_a_probing_that_was_stopped_shows_what_there_is(shown: Any) -> None:
    stopped = ProbeResult({"outcome": "interrupted", "cells": 3, "out": "probed"})
    assert "interrupted" in words_of(shown(stopped))
    with refuses(InputError, "has not finished"):
        stopped.plot()


def test_a_wide_table_is_moved_to_the_side_not_broken_into_letters(shown: Any) -> None:
    opened = shown(ProbeResult(probed(hostile=False)), width=360)
    assert "auto:capital" in words_of(opened)
    heights = opened.locator("tbody tr").evaluate_all("all => all.map((row) => row.offsetHeight)")
    assert max(heights) < 60
    assert opened.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_claims(shown: Any, tmp_path: Path) -> None:
    result = regard.claims.run("word-order", out=tmp_path / "claims", seeds=1)
    for lang in ("en", "zh"):
        opened = shown(result, lang)
        ((row,),) = opened.evaluate(TABLES)
        statement = {"en": "Without positions", "zh": "没有位置信息"}[lang]
        verdict = {"en": "~ undecided", "zh": "~ 无定论"}[lang]
        assert row[0] == "word-order" and statement in row[1] and row[2] == verdict
    listed = shown(regard.claims.list(out=tmp_path / "claims")).evaluate(TABLES)[0]
    assert [row[2] for row in listed].count("~ undecided") == 1
    assert "word-order" in words_of(
        shown(regard.claims.show("word-order", out=tmp_path / "claims"))
    )


def test_an_evaluation_and_a_comparison_plot_their_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = EvaluationResult({
        "figures": {"accuracy": 0.5, "perplexity": 31.0, "f1": float("nan"), "macro_f1": 0.4},
        "intervals": {"accuracy": [0.4, 0.6], "perplexity": [30.0, 33.0]},
    })  # fmt: skip
    shares, own = result.plot("zh").axes
    assert [text.get_text() for text in shares.get_yticklabels()] == ["准确率", "宏平均 F1"]
    drawn = [list(map(float, line.get_xdata())) for line in shares.lines]
    assert [0.4, 0.6] in drawn and [0.5] in drawn and [0.4] in drawn
    assert [30.0, 33.0] in [list(map(float, line.get_xdata())) for line in own.lines]
    with refuses(InputError, "no figures"):
        EvaluationResult({"orders": []}).plot()
    report = ComparisonResult(report_of(comparison(), tmp_path))
    for key, rows in report["tables"].items():
        if not rows:
            continue
        (axes,) = report.plot(measure=key).axes
        assert [text.get_text() for text in axes.get_yticklabels()] == [r["model"] for r in rows]
        drawn = [list(map(float, line.get_xdata())) for line in axes.lines]
        for row in rows:
            assert [row["mean"]] in drawn and (row["interval"] is None or row["interval"] in drawn)
            assert len(row["values"]) < 2 or row["values"] in drawn
    with refuses(UnknownName, "measure"):
        report.plot(measure="speed")


# -- any other table


def test_what_is_inside_of_a_table_is_shown(shown: Any) -> None:
    many = [{"step": n, "valid": {"loss": n / 2}} for n in range(ROWS + 5)]
    opened = shown(ShownTable({
        "model": {"name": "gpt", "config": {"layers": 2, "tied": True}}, "sizes": [1, 2.5, "x"],
        "long": list(range(ITEMS + 1)), "matrix": [[1, 2], [3, 4]], "history": many, "empty": [],
    }))  # fmt: skip
    assert opened.locator("h4").all_inner_texts() == ["model", "model · config", "history"]
    pairs = opened.locator("dl div").all_inner_texts()
    assert [pair.split("\n") for pair in pairs] == [
        ["sizes", "1, 2.5, x"], ["name", "gpt"], ["layers", "2"], ["tied", "yes"],
    ]  # fmt: skip
    (rows,) = opened.evaluate(TABLES)
    assert rows == [[str(n), f"{n / 2:.4g}"] for n in range(ROWS)]
    assert "and 5 more" in words_of(opened)
