"""Pictures show what the parts say, in every form."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from regard.attention.position import sinusoids
from regard.core.errors import InputError, RegardError, UnknownName
from regard.core.text import LANGUAGES, spoken
from regard.formats.directory import save
from regard.lab.draw import pictures
from regard.lab.draw.masks import MASKS
from regard.models import count_parameters
from regard.models.bert import Bert, BertConfig
from regard.models.extensions import extend
from regard.models.gpt import GPT, GPTConfig
from regard.models.longformer import Longformer, LongformerConfig
from regard.report import plot
from regard.report.drawings import HeatDrawing
from regard.report.heatmap import PLAIN_SHADES
from regard.training.hardware import step_flops
from regard.training.schedule import schedule
from tests.command import run as called
from tests.refusals import refuses

KINDS = ("png", "pdf", "svg")
MODELS = ("bert-tiny", "gpt2", "t5-small", "transformer-base", "xlnet-base", "longformer-base-4096")


def pixels(file: bytes) -> Any:
    """The colors of a PNG: [rows, columns, 3]."""
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def every() -> list[Any]:
    return [
        pictures.positions(length=6, width=8),
        pictures.schedules(["noam", "cosine"], steps=50),
        pictures.masks("longformer", 9),
        pictures.masks("bigbird", 12, random=2),
        pictures.order(["你", "<b>", "c"]),
        pictures.parameters("bert-tiny"),
    ]


@pytest.mark.parametrize("number", range(6))
def test_every_picture_has_every_form(number: int) -> None:
    picture = every()[number]
    for lang in LANGUAGES:
        title = spoken(picture.title, lang)
        files = {kind: picture.content(kind, lang) for kind in KINDS}
        written = " ".join(ElementTree.fromstring(files["svg"]).itertext())
        assert "".join(title.split()) in "".join(written.split())  # it may be broken
        assert picture.text(lang=lang).startswith(title)
        rows = pixels(files["png"])
        assert min(rows.shape[:2]) >= 200 and len(np.unique(rows.reshape(-1, 3), axis=0)) > 2
        assert files["pdf"].startswith(b"%PDF-")
    assert files == {kind: picture.content(kind, lang) for kind in KINDS}  # to the byte
    assert max(picture.title.zh) >= "一"  # it has Chinese words
    assert json.loads(json.dumps(picture.data()))["title"] == picture.title.en


def test_a_cell_is_as_dark_as_its_value() -> None:
    picture = HeatDrawing("", [[0.0, 0.25], [0.5, 1.0]], ["a", "b"], ["c", "d"])
    mesh = picture.plot().axes[0].collections[0]
    assert mesh.get_array().tolist() == picture.values
    mesh.update_scalarmappable()
    levels = [color[0] for color in mesh.get_facecolors()]
    assert levels[0] == 1.0 and levels == sorted(levels, reverse=True) and len({*levels}) == 4


def test_numbers_are_those_of_the_picture() -> None:
    rates = pictures.schedules(["noam", "cosine"], steps=50)
    lines = rates.plot().axes[0].lines
    assert [[*map(tuple, line.get_xydata().tolist())] for line in lines] == [*rates.lines.values()]
    counts = pictures.parameters("bert-tiny")
    bars = counts.plot().axes[0].containers[0]
    assert [bar.get_width() for bar in bars] == [*counts.counts.values()]


def test_chinese_letters_are_drawn() -> None:
    """Two letters that no font had would be the same box."""
    assert "Noto Sans CJK SC" in plot.fonts(frozenset("猫"))[0]
    first, second = (pixels(HeatDrawing(title, [[1.0]], ["a"], ["b"]).content("png"))
                     for title in ("猫", "狗"))  # fmt: skip
    assert first.shape == second.shape and not np.array_equal(first, second)


def test_letters_without_a_font_are_refused(tmp_path: Path) -> None:
    picture = HeatDrawing("\U0001343f", [[1.0]], ["a"], ["b"])  # an Egyptian sign
    with refuses(InputError, "\U0001343f", "Noto Sans CJK SC", "fonts-noto-cjk", ".svg"):
        picture.save(tmp_path / "picture.png")
    assert "\U0001343f" in picture.save(tmp_path / "picture.svg").read_text("utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["picture.svg"]


def test_a_title_is_no_formula() -> None:
    words = ElementTree.fromstring(HeatDrawing("a $x_1$ <b>", [[1.0]], ["$"], ["_"]).svg())
    assert "a $x_1$ <b>" in "".join(words.itertext())


def test_without_matplotlib_nothing_is_computed(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("attention", "--model", "no-such-model", "--out", str(tmp_path / "picture.png"))
    assert isinstance(result.exception, InputError) and "regard[plot]" in str(result.exception)
    shown = run("masks", "causal")  # a terminal needs none
    assert shown.exit_code == 0 and "█" in shown.output


def test_positions_are_the_sinusoids() -> None:
    picture = pictures.positions(length=5, width=6, layout="halves")
    assert picture.values == sinusoids(torch.arange(5), 6, "halves").tolist()
    assert (picture.low, picture.high) == (-1.0, 1.0)  # nothing lies in the middle


def test_a_learned_table_is_that_of_the_model(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = BertConfig(vocab_size=20, width=16, layers=1, heads=2, ffn_size=32, context=12)
    model = Bert(config).initialize()
    save(model, tmp_path / "bert")
    picture = pictures.positions(str(tmp_path / "bert"), length=5, width=4)
    assert picture.values == model.embeddings.positions.weight[:5, :4].tolist()
    counts = pictures.parameters(str(tmp_path / "bert")).counts
    assert sum(counts.values()) == model.parameter_count() and len(counts) == 3
    for width in (0, -3):
        with refuses(InputError, f"width is {width}", "2 to 128"):
            pictures.positions(str(tmp_path / "bert"), width=width)
    with refuses(InputError, "layout halves", tmp_path / "bert"):
        pictures.positions(str(tmp_path / "bert"), layout="halves")


def test_a_longformer_counts_from_its_first_position(tmp_path: Path) -> None:
    """The rows of its table before that are read by no token."""
    config = LongformerConfig(
        vocab_size=20, width=16, layers=1, heads=2, ffn_size=32, context=12, window=4
    )
    model = Longformer(config).initialize()
    save(model, tmp_path / "long")
    first = config.first_position
    assert first > 0
    picture = pictures.positions(str(tmp_path / "long"), length=5, width=4)
    assert picture.values == model.embeddings.positions.weight[first : first + 5, :4].tolist()


def test_rates_are_those_of_the_schedule() -> None:
    picture = pictures.schedules(["linear", "noam"], steps=100, warmup=20, rate=0.5)
    at = schedule("linear", lr=0.5, warmup=20, steps=100)
    assert picture.lines["linear"] == [(t, at(int(t))) for t, _ in picture.lines["linear"]]
    assert max(y for _, y in picture.lines["noam"]) == pytest.approx(0.5)
    assert {y for _, y in pictures.schedules(["noam"], rate=0.0).lines["noam"]} == {0.0}


def test_a_short_warm_up_is_shown() -> None:
    """Of a long run not every step is drawn, but the highest is: Noam's curve is a share of it."""
    lines = pictures.schedules(["noam", "cosine"], steps=100_000, warmup=5).lines
    assert dict(lines["noam"])[5] == 1.0 and dict(lines["cosine"])[5] == 1.0
    assert dict(lines["noam"])[100_000] == pytest.approx((5 / 100_000) ** 0.5)


# -- masks


def test_masks_say_who_sees_whom() -> None:
    def table(kind: str, length: int, **options: int) -> list[list[bool]]:
        return [[bool(x) for x in row] for row in pictures.masks(kind, length, **options).values]

    size = range(6)
    assert table("causal", 6) == [[j <= i for j in size] for i in size]
    assert table("causal", 2, past=1) == [[True, True, False], [True, True, True]]
    assert table("prefix", 6, prefix=3) == [[j <= max(i, 2) for j in size] for i in size]
    assert table("window", 6, window=2) == [[abs(i - j) <= 1 for j in size] for i in size]
    assert table("longformer", 6, window=2, globals=2) == [
        [abs(i - j) <= 1 or min(i, j) < 2 for j in size] for i in size
    ]


def test_an_order_has_two_streams() -> None:
    words = ["a", "b", "c", "d", "e"]
    picture = pictures.order(words, seed=3, memory=1)
    content, query = picture.values[:5], picture.values[5:]
    assert all(row[0] for row in picture.values)  # a memory is seen by all
    for i, (own, asking) in enumerate(zip(content, query, strict=True)):
        assert own[1 + i] and not asking[1 + i]
        assert [x for j, x in enumerate(own) if j != 1 + i] == [
            x for j, x in enumerate(asking) if j != 1 + i
        ]
    assert sorted(sum(row) for row in content) == [2, 3, 4, 5, 6]  # one rank each
    assert pictures.order(words, seed=4).values != pictures.order(words, seed=3).values


def test_chinese_has_a_word_a_character(run: Any) -> None:
    result = run("order", "小猫坐下。", "--json")
    assert json.loads(result.stdout)["rows"][:5] == [f"h {word}" for word in "小猫坐下。"]


def test_the_option_that_an_error_names_is_there(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = run("positions", "no-such-model", "--download")
    assert isinstance(result.exception, RegardError) and "no-such-model" in str(result.exception)
    assert "--download" not in str(result.exception)  # which was given, and got as far as the hub


def test_branches_are_seen_by_their_word() -> None:
    picture = pictures.masks("knowledge", 4, branches=2)
    at = {name: i for i, name in enumerate(picture.rows)}
    assert picture.values[at["w2"]][at["w2.1a"]] and picture.values[at["w2.2b"]][at["w2"]]
    assert not picture.values[at["w1"]][at["w2.1a"]]
    assert not picture.values[at["w2.1a"]][at["w2.2a"]]


@pytest.mark.parametrize(
    ("draw", "error", "names"),
    [
        (lambda: pictures.positions(width=7), InputError, ["width is 7"]),
        (lambda: pictures.positions(layout="halfs"), UnknownName, ["'halfs'", "'halves'"]),
        (lambda: pictures.schedules(["cosin"]), UnknownName, ["'cosin'", "'cosine'"]),
        (lambda: pictures.schedules([]), InputError, ["noam, t2t"]),
        (lambda: pictures.schedules(["polynomial"], power=-1.0), InputError, ["power of -1"]),
        (lambda: pictures.schedules(["cosine"], power=3.0), InputError, ["power of 3"]),
        (lambda: pictures.masks("casual", 16), UnknownName, ["'casual'", "'causal'"]),
        (lambda: pictures.masks("causal", 16, window=3), InputError, ["causal", "window", "past"]),
        (lambda: pictures.masks("full", 16, window=3), InputError, ["full", "window"]),
        (lambda: pictures.masks("window", 16, window=1000), InputError, ["window is 1,000", "128"]),
        (lambda: pictures.masks("longformer", 16, globals=40), InputError, ["40 global", "16"]),
        (lambda: pictures.masks("window", 16, window=5), InputError, ["window of 5"]),
        (lambda: pictures.masks("longformer", 16, window=0), InputError, ["window of 0"]),
        (lambda: pictures.masks("knowledge", 16, branches=128), InputError, ["tokens is 528"]),
        (lambda: pictures.masks("causal", 1000), InputError, ["length is 1,000", "1 to 128"]),
    ],
)
def test_what_cannot_be_drawn(draw: Any, error: type[RegardError], names: list[str]) -> None:
    with refuses(error, *names):
        draw()


@pytest.mark.parametrize("kind", MASKS)
def test_plain_terminals(kind: str) -> None:
    body = pictures.masks(kind, 6).text(PLAIN_SHADES).splitlines()[1:]
    assert "".join(body).isascii()


# -- counts


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_those_of_the_model(name: str) -> None:
    assert sum(pictures.parameters(name).counts.values()) == count_parameters(name)
    counted = sum(pictures.operations(name, 96).counts.values())
    assert 3 * counted == pytest.approx(step_flops(pictures.outline(name), 96, 1), rel=1e-9)


def test_a_decoder_has_layers_of_its_own() -> None:
    """Both counts call them alike."""
    counts = pictures.parameters("t5-small").counts
    layers = [name for name in english(counts) if name not in ("embeddings", "heads and the rest")]
    assert layers == [*(f"layer {i}" for i in range(1, 7)), *(f"decoder {i}" for i in range(1, 7))]
    assert [*layers, "output"] == english(pictures.operations("t5-small").counts)


def english(counts: Any) -> list[str]:
    return [spoken(name, "en") for name in counts]


@pytest.mark.parametrize("output", ["int8", "float"])
def test_small_numbers_count(output: str, tmp_path: Path) -> None:
    """A model of bytes has as many of them as it had parameters, and computes as much."""
    config = GPTConfig(vocab_size=40, width=16, layers=2, heads=2, ffn_size=32, context=8)
    model = GPT(config).initialize()
    save(model, tmp_path / "plain")
    save(extend(model, "int8", {"output": output}), tmp_path / "small")
    for count in (pictures.parameters, pictures.operations):
        plain, small = (count(str(tmp_path / name)).counts for name in ("plain", "small"))
        assert small == plain and sum(plain.values()) > 0


# -- the command


@pytest.fixture
def run() -> Any:
    return lambda *words: called("draw", *words)


@pytest.mark.parametrize(
    "words",
    [
        ["positions", "--seq-len", "8", "--width", "8"],
        ["schedules", "noam,linear", "--steps", "50"],
        ["masks", "xlnet", "--seq-len", "6", "--seed", "2"],
        ["order", "to be or not"],
        ["parameters", "bert-tiny"],
        ["operations", "bert-tiny", "--seq-len", "32"],
    ],
    ids=lambda words: words[0],
)
def test_the_command(run: Any, words: list[str], tmp_path: Path) -> None:
    shown = run(*words)
    assert shown.exit_code == 0 and len(shown.output.splitlines()) > 2
    facts = json.loads(run(*words, "--json").output)
    assert facts["title"] == shown.output.splitlines()[0]
    for ending in KINDS:
        file = tmp_path / f"picture.{ending}"
        assert str(file) in run(*words, "--out", str(file)).output.replace("\n", "")
        assert file.stat().st_size > 100
    assert len(list(tmp_path.iterdir())) == 3
    refused = run(*words, "--out", str(tmp_path / "picture.gif"))
    assert isinstance(refused.exception, InputError) and ".png, .pdf or .svg" in str(
        refused.exception
    )
