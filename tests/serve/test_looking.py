"""/attention, /lens, /ablate, /patch, /attribute give what the Python methods give, in bounds."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from regard.serve import looking
from regard.serve.playground import LONGEST, card_of
from tests.serve.running import Running, running
from tests.tasks.world import World

TEXT, OTHER = "the film was very great", "the plot was very great"
BLANK = "the [MASK] was very great"


def near(a: Any, b: Any) -> None:
    """Numbers that differ by rounding only; all else is equal."""
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            near(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            near(one, other)
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-6)
    else:
        assert a == b


def asked(served: Running, route: str, **body: Any) -> dict[str, Any]:
    (facts,) = served.post(route, **body)["results"]
    return dict(facts)


CASES = [("gpt", {"text": TEXT}), ("xlnet", {"text": BLANK}), ("bert", {"text": BLANK}),
         ("reviewer", {"text": TEXT}), ("tagger", {"text": TEXT, "position": 2}),
         ("t5", {"text": TEXT, "target": "the film"})]  # fmt: skip


@pytest.mark.parametrize(("model", "body"), CASES, ids=[model for model, _ in CASES])
def test_what_python_gives(served: Running, model: str, body: dict[str, Any]) -> None:
    loaded, options = served.loaded(model), dict(body)
    text, row = options.pop("text"), {k: v for k, v in options.items() if k != "position"}
    near(asked(served, "/lens", model=model, text=text, **row), loaded.lens(text, **row).facts())
    near(asked(served, "/ablate", model=model, heads="all", **body),
         loaded.ablate(text, heads="all", **options).facts())  # fmt: skip
    near(asked(served, "/attribute", model=model, steps=8, **body),
         loaded.attribute(text, steps=8, **options).facts())  # fmt: skip
    other = text.replace("great", "dull")
    near(asked(served, "/patch", model=model, corrupted=other, **body),
         loaded.patch(text, other, **options).facts())  # fmt: skip


def test_ids_and_chosen_parts(served: Running) -> None:
    loaded = served.loaded("gpt")
    ids = loaded.tokenizer.encode(TEXT)
    near(asked(served, "/ablate", model="gpt", text=ids, heads=["1.2"], method="mean", token=7),
         loaded.ablate(ids, heads=["1.2"], method="mean", token=7).facts())  # fmt: skip
    near(asked(served, "/ablate", model="gpt", text=TEXT, layers=["1"]),
         loaded.ablate(TEXT, layers=["1"]).facts())  # fmt: skip
    served.refused(400, "/ablate", "the layer is 7", model="gpt", text=TEXT, heads=["7.1"])
    served.refused(400, "/ablate", model="gpt", text=[99999], heads=["1.1"])


def test_a_pair_of_texts_is_read_as_a_pair(served: Running) -> None:
    """The judge reads two texts: what is looked into is what it compares."""
    judged = served.loaded("judge").similar(TEXT, OTHER)
    facts = asked(served, "/ablate", model="judge", text=TEXT, pair=OTHER, heads=["1.1"])
    assert facts["token"]["before"] == pytest.approx(judged.score or judged.value, rel=1e-3)
    side = asked(served, "/attention", model="judge", text=TEXT, pair=OTHER, form="side")
    assert len(side["tokens"]["text"]) == 2 * len(TEXT.split()) + 3 and side["model"] == "judge"
    served.refused(400, "/lens", "pairs", model="t5", text=TEXT, pair=OTHER)


def test_bounds(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    served.refused(400, "/lens", "40", "32", model="gpt", text="film " * 40)
    served.refused(400, "/lens", "a residual stream", "lstm", model="lstm", text=TEXT)
    served.refused(400, "/lens", model="gpt", text=[])
    served.refused(400, "/lens", "blank", model="gpt", text=" ")
    monkeypatch.setattr(looking, "WORK", 10**6)
    refused = ("patch would run gpt", "times", "shorten")
    served.refused(400, "/patch", *refused, model="gpt", text=TEXT, corrupted=OTHER)
    served.post("/ablate", model="gpt", text="film", heads=["1.1"])


def test_the_story_of_a_run(served: Running, tmp_path: Path) -> None:
    story = served.client.get("/run?model=reviewer").json()
    assert story["charts"]["loss"]["lines"] and "best" not in story
    assert {name[0]: value for name, value in story["figures"]}["parameters"] == "20,738"
    assert "How to open it" in story["card"] and not story["card"].startswith("---")
    none = served.client.get("/run?model=gpt").json()
    assert none == {"model": "gpt", "verdict": None, "paper": None, "figures": [], "charts": {},
                    "card": None}  # fmt: skip
    assert served.client.get("/run?model=nobody").status_code == 404
    card = tmp_path / "README.md"
    card.write_bytes(b"---\na: b\n---\n# \xff\x07" + b"x" * 2 * LONGEST)
    text = card_of(card)
    assert text is not None and text.startswith("# \ufffd␇x") and len(text) <= LONGEST


def test_ids_of_tokens(served: Running) -> None:
    body = {"model": "gpt", "max_tokens": 4, "temperature": 0, "return_token_ids": True}
    (choice,) = served.post("/v1/completions", prompt=TEXT, logprobs=2, **body)["choices"]
    loaded = served.loaded("gpt")
    assert choice["prompt_token_ids"] == loaded.tokenizer.encode(TEXT)
    generation = loaded.generate(TEXT, max_new_tokens=4, temperature=0.0)
    assert choice["logprobs"]["token_ids"] == list(generation.ids)
    for top, chosen in zip(choice["logprobs"]["top_tokens"], generation.ids, strict=True):
        assert len(top) == 2 and top[0]["id"] == chosen and all(one["token"] for one in top)
    (bare,) = served.post("/v1/completions", prompt=TEXT, **body)["choices"]
    assert bare["logprobs"] is None and bare["prompt_token_ids"] == choice["prompt_token_ids"]
    with served.client.stream(
        "POST", "/v1/completions", json={**body, "prompt": TEXT, "logprobs": 1, "stream": True}
    ) as answer:
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
    pieces = [json.loads(line)["choices"][0] for line in lines]
    assert pieces[0]["prompt_token_ids"] == choice["prompt_token_ids"]
    ids = [id for piece in pieces if piece["logprobs"] for id in piece["logprobs"]["token_ids"]]
    assert ids == list(generation.ids)


def test_the_page_needs_no_key(world: World) -> None:
    with running([world.model("gpt")], api_key="secret") as server:
        page = server.client.get("/", headers={"authorization": ""})
        assert page.status_code == 200 and "connect-src 'self'" in unescape(page.text)
        assert page.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert "secret" not in page.text and "gpt ·" not in page.text
        for route in ("/v1/models", "/run", "/docs"):
            assert server.client.get(route, headers={"authorization": ""}).status_code == 401
