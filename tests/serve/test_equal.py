"""Under random concurrent loads every answer is that of the Python call."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.serve.running import Running, running
from tests.tasks import tuning
from tests.tasks.world import World

TEXTS = [record["text"] for record in tuning.reviews(12, 4)]
WRITERS = ["gpt", "gpt", "llama", "transformer-xl", "xlnet", "lstm"]
DECODING: list[tuple[dict[str, Any], dict[str, Any]]] = [  # of a request, of Python
    ({"temperature": 0}, {"temperature": 0.0}),
    ({"temperature": 1.3, "seed": 5}, {"temperature": 1.3, "seed": 5}),
    ({"top_p": 0.8, "seed": 2, "n": 2}, {"top_p": 0.8, "seed": 2, "num_samples": 2}),
    ({"num_beams": 3}, {"num_beams": 3}),
    ({"top_k": 5, "seed": 9, "repetition_penalty": 1.4},
     {"top_k": 5, "seed": 9, "repetition_penalty": 1.4}),
]  # fmt: skip


def load_of(seed: int, count: int) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Requests to continue texts, some of them far beyond the context of the GPT."""
    dice = random.Random(seed)
    work = []
    for _ in range(count):
        body, options = dice.choice(DECODING)
        prompt = " ".join(dice.choice(TEXTS).split()[: dice.randint(1, 6)])
        most = dice.choice([1, 4, 10, 50])
        model = dice.choice(WRITERS)
        work.append(
            (
                model,
                {"prompt": prompt, "max_tokens": most, **body},
                {"max_new_tokens": most, **options},
            )
        )
    return work


@pytest.mark.parametrize("seed", [1, 2])
def test_texts(served: Running, seed: int) -> None:
    work = load_of(seed, 40)

    def ask(each: tuple[str, dict[str, Any], dict[str, Any]]) -> list[str]:
        answer = served.post("/v1/completions", model=each[0], **each[1])
        return [choice["text"] for choice in answer["choices"]]

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, work))
    for (model, body, options), texts in zip(work, answers, strict=True):
        alone = served.loaded(model).generate([body["prompt"]], **options)[0]
        samples = alone if isinstance(alone, list) else [alone]
        assert texts == [one.text for one in samples]


NEAR = 0.02  # int8-dynamic may prefer a token to one that is less than 2 % likelier
PRECISE = ["gpt", "llama", "transformer-xl", "xlnet"]


@pytest.mark.parametrize("precision", ["int8", "int8-dynamic"])
def test_int8_by_its_rule(world: World, precision: str) -> None:
    """Quantized weights alone change no token; with inputs that are rounded, too, texts may part
    at a token that is nearly as likely as the other."""
    dice = random.Random(5)
    work = []
    for _ in range(24):
        prompt = " ".join(dice.choice(TEXTS).split()[: dice.randint(1, 6)])
        work.append((dice.choice(PRECISE), prompt, dice.choice([5, 15, 25])))
    paths = [f"{world.model(name)}:{precision}" for name in PRECISE]
    with running([*paths, world.model("lstm")], rows=6, queue=200) as served:
        cards = {card["id"]: card for card in served.client.get("/v1/models").json()["data"]}
        assert {cards[name]["precision"] for name in PRECISE} == {precision}
        assert cards["lstm"]["precision"] == "fp32"

        def ask(each: tuple[str, str, int]) -> list[int]:
            model, prompt, most = each
            body = {"prompt": prompt, "max_tokens": most, "temperature": 0, "logprobs": 1}
            answer = served.post("/v1/completions", model=model, return_token_ids=True, **body)
            ids: list[int] = answer["choices"][0]["logprobs"]["token_ids"]
            return ids

        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(ask, work))
        for (model, prompt, most), ids in zip(work, answers, strict=True):
            loaded = served.loaded(model)
            assert "int8" in loaded.model.extensions
            text = loaded.generate(prompt, max_new_tokens=most, top_logprobs=5)
            if precision == "int8":
                assert ids == text.ids
            pairs = zip(ids, text.ids, strict=False)
            parted = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
            if parted is None:
                assert len(ids) == len(text.ids)
                continue
            likely = dict(text.top_logprobs[parted])
            assert likely[text.ids[parted]] - likely[ids[parted]] < NEAR


def test_translations(served: Running) -> None:
    dice = random.Random(3)
    work = [(dice.sample(TEXTS, dice.randint(1, 3)), dice.choice([1, 1, 3])) for _ in range(16)]

    def ask(each: tuple[list[str], int]) -> list[str]:
        texts, beams = each
        body = {"texts": texts, "max_tokens": 7, "num_beams": beams}
        return [row["value"] for row in served.post("/translate", model="translator", **body)[
            "results"]]  # fmt: skip

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, work))
    translator = served.loaded("translator")
    for (texts, beams), values in zip(work, answers, strict=True):
        expected = translator.translate(texts, max_new_tokens=7, num_beams=beams)
        assert values == [one.value for one in expected]


def test_questions(served: Running) -> None:
    """Labels are equal, and numbers differ by rounding only (regard/serve/encoding.py)."""
    dice = random.Random(4)
    work = [
        (dice.choice(["classify", "tag", "embed", "fill"]), dice.sample(TEXTS, dice.randint(1, 4)))
        for _ in range(60)
    ]
    blanks = {text: f"{text} [MASK]" for text in TEXTS}

    def ask(each: tuple[str, list[str]]) -> Any:
        verb, texts = each
        if verb == "embed":
            return served.post("/embed?model=bert", inputs=texts)
        model = {"classify": "reviewer", "tag": "tagger", "fill": "bert"}[verb]
        inputs = [blanks[text] for text in texts] if verb == "fill" else texts
        return served.post(f"/{verb}", model=model, texts=inputs)["results"]

    before = served.figure("regard_batch_count"), served.figure("regard_batch_sum")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, work))
    batches = served.figure("regard_batch_count") - before[0]
    assert batches < served.figure("regard_batch_sum") - before[1] == len(work)  # some were joined
    for (verb, texts), got in zip(work, answers, strict=True):
        for text, answer in zip(texts, got, strict=True):
            if verb == "embed":
                assert np.allclose(answer, served.loaded("bert").embed(text), atol=1e-5)
            elif verb == "classify":
                one = served.loaded("reviewer").classify(text)
                assert answer["value"] == one.value
                assert answer["score"] == pytest.approx(one.score, rel=1e-4)
            elif verb == "tag":
                assert answer["tags"] == served.loaded("tagger").tag(text).tags
            else:
                assert answer["text"] == served.loaded("bert").fill(blanks[text]).text


def test_a_wrong_question_does_not_disturb_the_others(served: Running) -> None:
    with ThreadPoolExecutor(8) as pool:
        bodies = ["the [MASK] was great", "no blank here"] * 6
        answers = list(
            pool.map(
                lambda text: served.client.post("/fill", json={"model": "bert", "texts": text}),
                bodies,
            )
        )
    assert [answer.status_code for answer in answers] == [200, 400] * 6
