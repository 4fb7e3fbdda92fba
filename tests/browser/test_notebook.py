"""What objects show of themselves in a notebook, as a browser shows it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.cli.picture import drawn
from regard.core.text import Bilingual
from regard.data.examples import Question
from regard.decoding.filling import FillCandidate, FilledText
from regard.evaluation.result import EvaluationResult
from regard.lab.claims.engine.result import ClaimsResult
from regard.lab.compare.report import report_of
from regard.lab.compare.result import ComparisonResult
from regard.lab.draw import pictures
from regard.lab.look import look
from regard.methods.probe.result import ProbeResult
from regard.report.drawings import BarDrawing, Curves, HeatDrawing
from regard.report.notebook import LEVELS, ShownTable, Token, Tokens, rendered
from regard.tasks.answer import MarkedAnswer
from regard.tasks.base import Prediction
from regard.tasks.tag import Entity, TaggedSentence
from regard.training.result import RunResult
from regard.training.run import METRICS
from tests.browser.made import probed
from tests.decoding.small import talking
from tests.lab.compare.made import comparison
from tests.lab.look.small import speaking
from tests.tasks.world import texts

EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">&\'"`\u202e'
GROUND = "() => getComputedStyle(document.querySelector('.regard')).backgroundColor"


def text_of(opened: Any) -> str:
    return str(opened.locator(".regard").inner_text())


def levels(opened: Any, number: int = 0) -> dict[tuple[int, int], float]:
    """The strength of every square that is drawn of a heat map, by row and column."""
    drawn = opened.evaluate(
        """(number) => [...document.querySelectorAll('.matrices svg')[number]
             .querySelectorAll('path')].map((path) => [path.getAttribute('d'),
             (path.classList.contains('plus') ? 1 : -1) *
             Number(path.getAttribute('fill-opacity'))])""",
        number,
    )
    squares = {}
    for way, strength in drawn:
        for part in way.strip("Mz").split("zM"):
            place, wide, _ = part.split("h")
            column, row = map(int, place.split())
            for j in range(int(wide.removesuffix("v1"))):
                squares[row, column + j] = strength
    return squares


def rounded(values: Any, high: float) -> dict[tuple[int, int], float]:
    squares = {
        (i, j): round(value / high * LEVELS) / LEVELS
        for i, row in enumerate(values) for j, value in enumerate(row)
    }  # fmt: skip
    return {place: level for place, level in squares.items() if level}


# -- pictures and recordings


def test_a_heat_map_has_its_numbers(shown: Any) -> None:
    picture = pictures.positions(length=6, width=8)
    opened = shown(picture)
    assert levels(opened) == rounded(picture.values, picture.high)
    tips = opened.locator(".tip title").all_text_contents()
    table = [(i, j, value) for i, row in enumerate(picture.values) for j, value in enumerate(row)]
    assert tips == [f"{i} → {j}: {value:.4f}" for i, j, value in table]
    assert "sinusoids, interleaved" in text_of(opened) and "position" in text_of(opened)


def test_curves_and_bars(shown: Any) -> None:
    opened = shown(pictures.schedules(["noam", "cosine"], steps=50))
    assert opened.locator("svg path.line").count() == 2
    counts = pictures.parameters("bert-tiny")
    opened = shown(counts)
    numbers = opened.locator(".bars td:last-child").all_inner_texts()
    assert numbers == [f"{count:,.0f}" for count in counts.counts.values()]
    widths = opened.evaluate("() => [...document.querySelectorAll('.bar')].map((bar) => "
                             "bar.getBoundingClientRect().width)")  # fmt: skip
    shares = [count / max(counts.counts.values()) for count in counts.counts.values()]
    assert [width / max(widths) for width in widths] == pytest.approx(shares, abs=0.01)


def test_a_recording_shows_every_head(shown: Any) -> None:
    loaded = talking(layers=2, heads=4)
    ids = loaded.tokenizer.encode("The cat sat on the mat.")
    names = [loaded.tokenizer.decode([i]) for i in ids]
    with regard.record(loaded.model, tokens=names) as seen, torch.no_grad():
        loaded.model(torch.tensor([ids]))
    opened = shown(seen)
    assert opened.locator("svg.small").count() == 8
    for number in range(8):
        weights = seen[number // 4].weights[0, number % 4]
        assert levels(opened, number) == rounded(weights.tolist(), float(weights.max()))
    tips = opened.locator("svg.small title").all_text_contents()
    weights = seen[0].weights[0, 0]
    row, column = divmod(int(weights.argmax()), len(ids))
    first, second = names[row], names[column]
    assert tips[0] == f"{first} → {second}: {float(weights.max()):.4f}"
    picture = seen.picture(1, 2)
    assert picture.values == seen[1].weights[0, 2].float().tolist() and picture.rows == names
    assert levels(shown(picture)) == rounded(picture.values, max(map(max, picture.values)))


# -- texts


def test_a_generation_shades_its_tokens(shown: Any) -> None:
    generation = talking().generate("The cat sat", max_new_tokens=12, seed=3, top_p=0.9)
    opened = shown(generation)
    tokens = opened.locator(".text .token")
    chances = [float(x) for x in tokens.evaluate_all(
        "tokens => tokens.map((token) => token.dataset.probability)")]  # fmt: skip
    assert chances == [math.exp(logprob) for logprob in generation.logprobs]
    assert "".join(generation.pieces()) == generation.text
    assert opened.locator(".before").inner_text() == "The cat sat"
    tokens = [Token("a", 1.0), Token(" b", 0.5, [(" c", 0.3)]), Token("<i>", 0.0)]

    class Fixed:
        def _repr_html_(self) -> str:
            return rendered("", Tokens(tokens))

    opened = shown(Fixed())
    assert opened.locator(".text .token >> nth=1").get_attribute("title") == "b 0.5000 · c 0.3000"
    alphas = opened.locator(".text .token").evaluate_all(
        "tokens => tokens.map((token) => getComputedStyle(token).backgroundColor)"
    )
    assert len({*alphas}) == 3  # the surer, the stronger


def test_blanks_and_their_candidates(shown: Any) -> None:
    filled = FilledText("a cat", [[FillCandidate("cat", [1], 0.6), FillCandidate("dog", [2], 0.3)]])
    opened = shown(filled)
    assert opened.locator(".bars td:last-child").all_inner_texts() == ["0.6000", "0.3000"]
    assert opened.locator(".best th").all_inner_texts() == ["cat"]


# -- tasks


def test_predictions_of_models(shown: Any, world: Any) -> None:
    text = texts(1, 7)[0]
    prediction = regard.load(world.run("reviewer")).classify(text)
    opened = shown(prediction)
    rows = dict(zip(opened.locator(".bars th").all_inner_texts(),
                    opened.locator(".bars td:last-child").all_inner_texts(),
                    strict=True))  # fmt: skip
    assert rows == {name: f"{score:.4f}" for name, score in prediction.scores.items()}
    assert opened.locator(".best th").all_inner_texts() == [prediction.value]
    tagged = regard.load(world.run("tagger")).tag("the film was great, dull")
    opened = shown(tagged)
    marks = opened.locator("mark").evaluate_all("marks => marks.map((m) => m.innerText)")
    assert [mark.split() for mark in marks] == [[e.text, e.kind] for e in tagged.entities]
    answer = regard.load(world.run("answerer")).answer("the film", text)
    assert isinstance(answer, MarkedAnswer)
    opened = shown(answer)
    assert opened.locator("h3").inner_text() == "the film"
    if answer.value:
        assert opened.locator("mark").inner_text().startswith(answer.value)
    picked = regard.load(world.run("chooser")).choose("a film", ["it was great", "it was dull"])
    assert shown(picked).locator(".best th").all_inner_texts() == [str(picked.value)]


def test_an_answer_is_marked_where_it_stands(shown: Any) -> None:
    """Not where its words stand first."""
    scores = {"null": None, "candidates": [("cat", 11, 14, 0.7), ("cat", 2, 5, 0.2)]}
    answer = MarkedAnswer.of(Prediction("cat", 0.7, scores), Question("Who?", "a cat. The cat sat"))
    opened = shown(answer)
    before = opened.evaluate("() => document.querySelector('mark').previousSibling.textContent")
    assert before == "a cat. The " and "0.7000" in opened.locator("mark").inner_text()
    none = MarkedAnswer.of(Prediction("", 0.9, scores), Question("Who?", "a cat"))
    assert shown(none).locator("mark").count() == 0


def test_tags_that_are_no_entities(shown: Any) -> None:
    opened = shown(TaggedSentence(["the", "cat"], ["DET", "NOUN"], [], 0.9))
    assert opened.locator("mark small").all_inner_texts() == ["DET", "NOUN"]


# -- runs, evaluations, reports


def test_a_run_and_its_model(shown: Any, world: Any) -> None:
    run = RunResult.open(world.run("reviewer"))
    opened = shown(run)
    assert f"{run['progress']['step']:,}" in text_of(opened)
    assert f"{run['model']['parameters']:,}" in text_of(opened) and run["outcome"] in text_of(
        opened
    )
    assert opened.locator("svg path.line").count() >= 2
    lines = run.plot().axes[0].lines
    assert len(lines[0].get_xydata()) == len(run.curves()[0].lines[Bilingual("training", "训练")])
    loaded = regard.load(world.run("reviewer"))
    opened = shown(loaded)
    assert f"{loaded.model.parameter_count():,}" in text_of(opened)
    assert opened.locator("svg path.line").count() >= 2


def test_an_evaluation(shown: Any, world: Any, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    result = regard.evaluate(world.run("reviewer"), [world.data("classify")],
                             out=tmp_path / "test", quiet=True)  # fmt: skip
    assert isinstance(result, EvaluationResult) and isinstance(result, dict)
    opened = shown(result)
    cells = opened.locator("table >> nth=0").locator("td").all_inner_texts()
    name, value = next(iter(result["figures"].items()))
    low, high = result["intervals"][name]
    assert cells[:3] == [name.replace("_", " "), f"{value:.4f}", f"{low:.4f} – {high:.4f}"]
    matrix = result["confusion"]["matrix"]
    assert levels(opened) == rounded(matrix, max(map(max, matrix)))
    assert result["worst"][0]["text"] in text_of(opened)


def test_a_comparison(shown: Any, tmp_path: Path) -> None:
    report = ComparisonResult(report_of(comparison(), tmp_path))
    opened = shown(report)
    for lang, chinese in (("en", False), ("zh", True)):
        opened = shown(report, lang)
        assert report["verdict"][0][lang] in text_of(opened)
        assert ("模型" in text_of(opened)) == chinese
    rows = report["tables"]["bits_per_byte"]
    assert all(f"{row['mean']:.4g}" in text_of(opened) for row in rows)


# -- all of them


def every(name: str) -> dict[str, Any]:
    counts = {name: 2.0}
    return {
        "heat": HeatDrawing(name, [[0.5]], [name], [name], axes=(name, name)),
        "curves": Curves(name, {name: [(0.0, 1.0), (1.0, 2.0)]}, name),
        "bars": BarDrawing(name, counts, name),
        "prediction": Prediction(name, 0.5, {name: 0.5}),
        "tags": TaggedSentence([name], ["B-x"], [Entity(name, name, 0, 0)], 0.5),
        "answer": MarkedAnswer.of(Prediction(name, 0.5), Question(name, f"a {name} b")),
        "filled": FilledText(name, [[FillCandidate(name, [1], 0.5)]]),
        "table": ShownTable({"title": name, name: name}),
        "nested": ShownTable({"rows": [{name: name, "inner": {name: name}}], name: {name: [name]}}),
        "claims": ClaimsResult({"out": name, "claims": [], "failed": {name: name}}),
        "probe": ProbeResult(probed(hostile=True) | {"task": name, "run": name}),
        "look": look(speaking("gpt"), f"{name} sat", lens=True, attribute=True),
        "data": drawn(BarDrawing(name, counts, name), None, "en"),
        "run": RunResult({"model": {"name": name}, "best": {"value": name}}),
        "evaluation": EvaluationResult({
            "title": name, "task": name, "figures": {name: 0.5}, "notes": [name],
            "intervals": {name: [0.1, 0.9]}, "confusion": {"labels": [name, name],
            "matrix": [[1, 0], [0, 1]]}, "worst": [{"text": name, "gold": name, "predicted": name}],
        }),
        "comparison": ComparisonResult({
            "title": {"en": name, "zh": name}, "verdict": [{"en": name, "zh": name}],
            "tables": {name: [{"model": name, "mean": 1.0, "best": True}]},
        }),
    }  # fmt: skip


@pytest.mark.parametrize("kind", every("x"))
def test_texts_of_others_run_nothing(shown: Any, kind: str) -> None:
    opened = shown(every(EVIL)[kind])
    assert opened.locator("script, img").count() == 0
    source = opened.content()
    assert "\u202e" not in source and "<script" not in source
    assert "alert(1)" in opened.evaluate("() => document.body.textContent")


@pytest.mark.parametrize("kind", every("x"))
def test_it_follows_the_theme_of_the_notebook(shown: Any, kind: str) -> None:
    for dark, color in ((False, "rgb(255, 255, 255)"), (True, "rgb(24, 29, 37)")):
        opened = shown(every("x")[kind], dark=dark, width=360)
        for scheme in ("light", "dark"):
            opened.emulate_media(color_scheme=scheme)
            assert opened.evaluate(GROUND) == color
        assert opened.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_a_loss_is_read_from_the_files_of_the_run(tmp_path: Path) -> None:
    lines = [f'{{"step": {i}, "loss": {10 - i}}}\n' for i in range(1, 6)]
    (tmp_path / METRICS).write_text("".join(lines), "utf-8")
    run = RunResult({"out": str(tmp_path), "outcome": "finished"})
    assert run.curves()[0].lines == {
        Bilingual("training", "训练"): [(i, 10 - i) for i in range(1, 6)]
    }
