"""The routes of encoders and of tasks answer what the Python methods answer."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest

from regard.serve.docs import page
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
    ],
)
def test_bodies_that_are_no_json(served: Running, content: bytes, parts: list[str]) -> None:
    headers = {"content-type": "application/json"}
    answer = served.client.post("/v1/completions", content=content, headers=headers)
    refusal(answer, 400, *parts)


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
    assert "src=" not in text and "https://" not in text


def test_health_and_figures(served: Running) -> None:
    assert served.client.get("/health").json() == {"status": "ok"}
    assert served.client.get("/ready").status_code == 200
    before = served.figure("regard_tokens_total")
    served.post("/v1/completions", model="gpt", prompt=[5, 6], max_tokens=3, temperature=0)
    assert served.figure("regard_tokens_total") >= before + 3
    refusal(served.client.get("/v1/completions"), 405, "GET")
