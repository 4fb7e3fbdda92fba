"""The routes of encoders and of tasks answer what the Python methods answer."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any

import numpy as np
import pytest

from regard.serve.docs import in_both, page
from regard.serve.encoders import log_odds
from tests.serve.running import Running, refusal
from tests.tasks import tuning

TEXTS = [record["text"] for record in tuning.reviews(6, 3)]


def results(served: Running, route: str, **body: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = served.post(route, **body)["results"]
    return rows


def test_classify(served: Running) -> None:
    predictions = served.loaded("reviewer").classify(TEXTS)
    rows = results(served, "/classify", model="reviewer", texts=TEXTS)
    assert [row["value"] for row in rows] == [p.value for p in predictions]
    assert [row["score"] for row in rows] == pytest.approx([p.score for p in predictions])
    ranked = served.post("/predict?model=reviewer", inputs=TEXTS[0])
    assert ranked[0]["label"] == predictions[0].value and ranked[0]["score"] >= 0.5
    many = served.post("/predict?model=reviewer", inputs=[[text] for text in TEXTS])
    assert [one[0]["label"] for one in many] == [p.value for p in predictions]


def test_tag(served: Running) -> None:
    sentences = [TEXTS[0], TEXTS[1].split()]
    expected = served.loaded("tagger").tag(sentences)
    rows = results(served, "/tag", model="tagger", texts=sentences)
    assert [row["tags"] for row in rows] == [one.tags for one in expected]
    assert [row["words"] for row in rows] == [one.words for one in expected]
    entities = [[list(entity) for entity in one.entities] for one in expected]
    assert [[list(e.values()) for e in row["entities"]] for row in rows] == entities


def test_answer_and_choose(served: Running) -> None:
    answer = served.loaded("answerer").answer(["the film", "the plot"], TEXTS[0])
    rows = results(
        served, "/answer", model="answerer", question=["the film", "the plot"], passage=TEXTS[0]
    )
    assert [row["value"] for row in rows] == [one.value for one in answer]
    choices = ["the film was great", "the plot was dull"]
    choice = served.loaded("chooser").choose(TEXTS[0], choices)
    (row,) = results(served, "/choose", model="chooser", premise=TEXTS[0], choices=choices)
    assert row["value"] == choice.value


def test_several_labels(served: Running) -> None:
    """A text has any number of them, each with its own probability."""
    texts = [*TEXTS, "the music was great", "the the"]
    predictions = served.loaded("sorter").predict(texts)
    assert len({len(one.value) for one in predictions}) > 1
    rows = results(served, "/classify", model="sorter", texts=texts)
    assert [row["value"] for row in rows] == [one.value for one in predictions]
    for row, one in zip(rows, predictions, strict=True):
        assert row["scores"] == pytest.approx(one.scores, abs=1e-5)
    ranked = served.post("/predict?model=sorter", inputs=texts[0])
    assert {each["label"]: each["score"] for each in ranked} == pytest.approx(
        predictions[0].scores, abs=1e-5
    )


def test_link(served: Running) -> None:
    body = {"text": "the film was great", "mention": "film", "candidates": [
        {"name": "warm film", "description": "great moving"}, "cold film"]}  # fmt: skip
    one = served.loaded("linker").predict(body)
    (row,) = results(served, "/link", model="linker", **body)
    assert row["value"] == one.value and row["scores"] == pytest.approx(one.scores, abs=1e-5)


def test_summarize(served: Running) -> None:
    """A published T5 has learned it, with its prefix."""
    expected = served.loaded("t5").summarize(TEXTS[:3], max_new_tokens=8, num_beams=2)
    rows = results(served, "/summarize", model="t5", texts=TEXTS[:3], max_tokens=8, num_beams=2)
    assert [row["value"] for row in rows] == [one.value for one in expected]
    assert [row["tokens"] for row in rows] == [len(row["ids"]) for row in rows]


def test_a_cross_encoder(served: Running) -> None:
    """It reads each text with the query; raw scores are those before the sigmoid."""
    loaded, query = served.loaded("ranker"), "good"
    record = {"query": query, "positive": TEXTS[0], "negatives": TEXTS[1:]}
    shares = loaded.predict(record).value
    body = {"query": query, "texts": TEXTS, "return_text": True}
    rows = served.post("/rerank?model=ranker", **body)
    assert [row["score"] for row in rows] == pytest.approx(sorted(shares)[::-1], abs=1e-5)
    assert [row["text"] for row in rows] == [TEXTS[row["index"]] for row in rows]
    raw = served.post("/rerank?model=ranker", **body, raw_scores=True)
    assert [row["index"] for row in raw] == [row["index"] for row in rows]
    assert raw[0]["score"] != pytest.approx(rows[0]["score"])
    for one, share in zip(raw, sorted(shares)[::-1], strict=True):
        assert one["score"] == pytest.approx(math.log(share / (1 - share)), abs=1e-4)
    assert [log_odds(share) for share in (0.0, 1.0)] == pytest.approx([-708.4, 36.74], abs=0.1)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}])
def test_translate(served: Running, options: dict[str, Any]) -> None:
    expected = served.loaded("translator").translate(TEXTS[:3], max_new_tokens=8, **options)
    rows = results(
        served, "/translate", model="translator", texts=TEXTS[:3], max_tokens=8, **options
    )
    assert [row["value"] for row in rows] == [one.value for one in expected]


def test_fill(served: Running) -> None:
    text = "the [MASK] was great"
    expected = served.loaded("bert").fill(text, top_k=3)
    (row,) = results(served, "/fill", model="bert", texts=text, top_k=3)
    assert row["text"] == expected.text
    assert [c["text"] for c in row["blanks"][0]] == [c.text for c in expected.blanks[0]]


def test_attention(served: Running) -> None:
    (row,) = results(served, "/attention", model="gpt", text="the film was great")
    layer = np.array(row["stacks"][0]["average"][0])
    assert layer.shape == (4, 4) and np.allclose(layer.sum(1), 1, atol=1e-3)
    assert np.triu(layer, 1).sum() == 0  # nobody looks at later words
    (whole,) = results(served, "/attention", model="gpt", text="the film", form="page")
    assert whole["page"].startswith("<!")


def test_embed_rerank_similarity(served: Running) -> None:
    vectors = served.loaded("bert").embed(TEXTS)
    assert np.allclose(served.post("/embed?model=bert", inputs=TEXTS), vectors, atol=1e-5)
    scores = (vectors[1:] @ vectors[0]).tolist()
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    assert served.post("/similarity?model=bert", inputs=inputs) == pytest.approx(scores, abs=1e-4)
    order = served.post("/rerank?model=bert", query=TEXTS[0], texts=TEXTS[1:], return_text=True)
    assert [row["score"] for row in order] == pytest.approx(sorted(scores)[::-1], abs=1e-4)
    assert {row["text"] for row in order} == set(TEXTS[1:])
    judged = served.loaded("judge").similar([TEXTS[0]] * 2, TEXTS[1:3])
    inputs["sentences"] = TEXTS[1:3]
    values = [p.value for p in judged]
    assert served.post("/similarity?model=judge", inputs=inputs) == pytest.approx(values, abs=1e-4)


REFUSED: list[tuple[int, str, dict[str, Any], list[str]]] = [
    (404, "/classify", {"model": "revewer", "texts": "x"}, ["'reviewer'"]),
    (400, "/classify", {"texts": "x"}, ["names no model", "reviewer"]),
    (400, "/classify", {"model": "gpt", "texts": "x"}, ["gpt", "classify", "complete"]),
    (400, "/classify", {"model": "reviewer", "texts": "  "}, ["blank"]),
    (400, "/classify", {"model": "reviewer", "texts": "film " * 99}, ["tokens", "at most"]),
    (400, "/classify", {"model": "reviewer", "texts": ["a", "b"], "pairs": ["c"]}, ["2", "1"]),
    (400, "/classify", {"model": "reviewer", "texts": 3}, ["texts"]),
    (400, "/embed?model=bert", {"inputs": "film " * 999}, ["tokens", "at most"]),
    (400, "/fill", {"model": "bert", "texts": "no blank"}, ["blank"]),
    (400, "/tag", {"model": "tagger", "texts": [["a", ""]]}, ["word"]),
    (400, "/translate", {"model": "translator", "texts": "a", "max_tokens": 9999}, ["9,999"]),
    (400, "/attention", {"model": "gpt", "text": "film " * 40}, ["40", "32"]),
    (400, "/v1/completions", {"model": "gpt", "prompt": "film " * 99}, ["tokens", "at most 32"]),
    (400, "/link", {"model": "linker", "text": "a", "mention": "film"}, ["film", "nowhere"]),
    (400, "/link", {"model": "linker", "text": "the film", "mention": "film"}, ["candidates"]),
    (400, "/link", {"model": "bert", "text": "the film", "mention": "film"}, ["bert", "link"]),
    (
        400,
        "/link",
        {"model": "linker", "text": "film " * 99, "mention": "film", "candidates": ["a"]},
        ["tokens", "at most"],
    ),
    (
        400,
        "/link",
        {"model": "linker", "text": "the film", "mention": "film", "candidates": ["", "b"]},
        ["name"],
    ),
    (404, "/clasify", {}, ["/classify"]),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(served: Running, case: int) -> None:
    status, route, body, parts = REFUSED[case]
    served.refused(status, route, *parts, **body)


def test_no_path_is_told(served: Running) -> None:
    """A published T5 does not know the languages; Python names its directory."""
    error = served.refused(400, "/translate", "t5", "prefix", model="t5", texts="a film")
    assert served.models.models["t5"].path.rpartition("/")[0] not in error["message"]
    prefix = "translate English to German: "
    served.post("/translate", model="t5", texts="a film", prefix=prefix, max_tokens=3)


def test_a_long_text_is_cut_if_asked(served: Running) -> None:
    with pytest.warns(UserWarning):
        expected = served.loaded("reviewer").classify("film " * 99)
    (row,) = results(served, "/classify", model="reviewer", texts="film " * 99, truncate=True)
    assert row["value"] == expected.value


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b'{"model": ', ["JSON"]),
        (b"\xff\xfe", ["UTF-8"]),
        (b"[]", ["body"]),
        (b'{"model": "gpt", "prompt": "\\ud800"}', ["Unicode"]),
        (b'{"model": "gpt", "prompt": "\xff"}', ["UTF-8", "byte 29"]),
        (b'{"model": "gpt", "prompt": "a", "seed": NaN}', ["seed"]),
        (b"[" * 100_000, ["JSON", "deeply"]),
        (b'{"model": "gpt", "prompt": [' + b"9" * 9999 + b"]}", ["JSON", "number"]),
    ],
)
def test_bodies_that_are_no_json(served: Running, content: bytes, parts: list[str]) -> None:
    headers = {"content-type": "application/json"}
    answer = served.client.post("/v1/completions", content=content, headers=headers)
    refusal(answer, 400, *parts)


def test_a_body_that_is_not_said_to_be_json(served: Running) -> None:
    """Such as the one of `curl -d`; a page of another site cannot send any other unasked."""
    body = json.dumps({"model": "gpt", "prompt": "a"}).encode()
    for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
        answer = served.client.post(
            "/v1/completions", content=body, headers={"content-type": kind} if kind else {}
        )
        refusal(answer, 400, "content-type: application/json")


def test_curl(served: Running) -> None:
    body = json.dumps({"model": "gpt", "prompt": "the film", "max_tokens": 4, "temperature": 0})
    command = [
        "curl", "-s", f"{served.url}/v1/completions", "-H", "content-type: application/json", "-d",
        body,
    ]  # fmt: skip
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    text = served.loaded("gpt").generate("the film", max_new_tokens=4).text
    assert answer["choices"][0]["text"] == text


def test_the_page_of_routes_needs_no_network(served: Running) -> None:
    text = served.client.get("/docs").text
    description = served.client.get("/openapi.json").json()
    assert text == page(description)
    for path, methods in description["paths"].items():
        assert path in text
        for route in methods.values():
            assert route["summary"] in text
            for words in (route["summary"], *route["tags"]):
                assert in_both(words).zh in text
    assert "src=" not in text and "https://" not in text
    assert "Content-Security-Policy" in text


def test_health_and_figures(served: Running) -> None:
    assert served.client.get("/health").json() == {"status": "ok"}
    assert served.client.get("/ready").status_code == 200
    before = served.figure("regard_tokens_total")
    served.post("/v1/completions", model="gpt", prompt=[5, 6], max_tokens=3, temperature=0)
    assert served.figure("regard_tokens_total") >= before + 3
    refusal(served.client.get("/v1/completions"), 405, "GET")


def test_missing_kernels_are_told(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.serve.models.library", lambda: None)
    assert "kernels are missing" in next(iter(served.models.lines()))
