"""The client of OpenAI, which nobody here wrote, gets the answers of the Python call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import openai
import pytest

from tests.serve.running import Running
from tests.tasks import tuning

PROMPT = "the film was"
SAMPLED: dict[str, Any] = {"max_tokens": 12, "temperature": 1.5, "seed": 7}


@pytest.fixture(scope="module")
def client(served: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)


def alone(served: Running, prompt: Any, **options: Any) -> Any:
    return served.loaded("gpt").generate(prompt, **options)


def test_completions(served: Running, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="gpt", prompt=PROMPT, **SAMPLED)
    text = alone(served, PROMPT, max_new_tokens=12, temperature=1.5, seed=7)
    assert answer.choices[0].text == text.text and answer.object == "text_completion"
    reason = {"end": "stop", "length": "length"}[text.reason]
    assert answer.choices[0].finish_reason == reason
    prompt = served.loaded("gpt").tokenizer.encode(PROMPT, special=False)
    assert answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.completion_tokens == len(text.ids)
    assert answer.usage.total_tokens == len(prompt) + len(text.ids)


def test_several_prompts_and_samples(served: Running, client: openai.OpenAI) -> None:
    prompts = [PROMPT, "a dull plot"]
    answer = client.completions.create(model="gpt", prompt=prompts, n=3, **SAMPLED)
    texts = alone(served, prompts, max_new_tokens=12, temperature=1.5, seed=7, num_samples=3)
    assert [choice.index for choice in answer.choices] == list(range(6))
    expected = [sample.text for samples in texts for sample in samples]
    assert [choice.text for choice in answer.choices] == expected


def test_tokens_as_a_prompt(served: Running, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="gpt", prompt=[5, 6, 7], max_tokens=5, temperature=0)
    assert answer.choices[0].text == alone(served, [5, 6, 7], max_new_tokens=5).text


def test_stop(served: Running, client: openai.OpenAI) -> None:
    whole = alone(served, PROMPT, max_new_tokens=12, temperature=1.5, seed=7).text
    word = whole.split()[2]
    answer = client.completions.create(model="gpt", prompt=PROMPT, stop=[word], **SAMPLED)
    assert answer.choices[0].text == whole[: whole.index(word)]
    assert answer.choices[0].finish_reason == "stop"


def test_logprobs(served: Running, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="gpt", prompt=PROMPT, logprobs=3, **SAMPLED)
    text = alone(served, PROMPT, max_new_tokens=12, temperature=1.5, seed=7)
    got = answer.choices[0].logprobs
    assert got.token_logprobs == pytest.approx(text.logprobs, abs=1e-4)
    assert got.tokens == text.pieces()
    assert got.text_offset == [len("".join(got.tokens[:i])) for i in range(len(got.tokens))]
    for token, table in zip(got.token_logprobs, got.top_logprobs, strict=True):
        assert len(table) <= 3 and max(table.values()) >= token - 1e-4
        assert sum(map(math.exp, table.values())) <= 1 + 1e-4


def test_a_seed_that_is_drawn_is_told(client: openai.OpenAI) -> None:
    options = {"model": "gpt", "prompt": PROMPT, "max_tokens": 12, "temperature": 2.0}
    first, second = (client.completions.create(**options) for _ in range(2))
    assert first.seed != second.seed
    again = client.completions.create(**options, seed=first.seed)
    assert again.choices[0].text == first.choices[0].text


@pytest.mark.parametrize("options", [{}, {"n": 2}, {"stop": [" the", "film"]}, {"logprobs": 2}])
def test_a_stream_makes_the_text(client: openai.OpenAI, options: dict[str, Any]) -> None:
    body = {"model": "gpt", "prompt": PROMPT, **SAMPLED, **options}
    whole = client.completions.create(**body)
    texts, reasons, usage = [""] * len(whole.choices), {}, None
    tokens: list[str] = []
    for chunk in client.completions.create(
        **body, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
            tokens += choice.logprobs.tokens if choice.logprobs else []
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage
    if "logprobs" in options:
        assert tokens == whole.choices[0].logprobs.tokens


def test_beams(served: Running, client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="gpt", prompt=PROMPT, max_tokens=8, extra_body={"num_beams": 3}
    )
    text = alone(served, PROMPT, max_new_tokens=8, num_beams=3).text
    assert answer.choices[0].text == text


def test_chat(served: Running, client: openai.OpenAI) -> None:
    options = {"max_tokens": 9, "seed": 3}
    answer = client.chat.completions.create(
        model="gpt", messages=[{"role": "user", "content": PROMPT}], **options
    )
    talk = served.loaded("gpt").chat(max_new_tokens=9, seed=3)
    text = "".join(talk.say(PROMPT))
    assert answer.choices[0].message.content == text
    assert answer.choices[0].message.role == "assistant"
    turns = [*talk.turns, {"role": "user", "content": "a dull plot"}]
    more = client.chat.completions.create(model="gpt", messages=turns, **options)
    assert more.choices[0].message.content == "".join(talk.say("a dull plot"))
    pieces = [
        chunk.choices[0].delta.content or ""
        for chunk in client.chat.completions.create(
            model="gpt", messages=turns, stream=True, **options
        )
    ]
    assert "".join(pieces) == more.choices[0].message.content


def test_logprobs_of_a_chat(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": PROMPT}]
    answer = client.chat.completions.create(
        model="gpt", messages=[{"role": "user", "content": parts}], max_tokens=6, logprobs=True,
        top_logprobs=2, temperature=0,
    )  # fmt: skip
    content = answer.choices[0].logprobs.content
    assert "".join(one.token for one in content).startswith(answer.choices[0].message.content)
    for one in content:  # greedy: the likeliest is the chosen one
        assert one.logprob == pytest.approx(one.top_logprobs[0].logprob)
        assert bytes(one.bytes).decode() == one.token


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings(served: Running, client: openai.OpenAI, form: Any) -> None:
    texts = [record["text"] for record in tuning.reviews(5, 3)]
    answer = client.embeddings.create(model="bert", input=texts, encoding_format=form)
    vectors = [one.embedding for one in answer.data]
    if form == "base64":
        import base64

        vectors = [np.frombuffer(base64.b64decode(v), "<f4").tolist() for v in vectors]
    expected = served.loaded("bert").embed(texts)
    assert np.allclose(vectors, expected, atol=1e-5)
    assert answer.usage.prompt_tokens > 5


def test_embeddings_of_ids(served: Running, client: openai.OpenAI) -> None:
    """As langchain-openai sends them: the ids of a text, without special tokens."""
    texts = [record["text"] for record in tuning.reviews(4, 3)]
    loaded = served.loaded("bert")
    ids = [loaded.tokenizer.encode(text, special=False) for text in texts]
    answer = client.embeddings.create(model="bert", input=ids)
    vectors = [one.embedding for one in answer.data]
    assert np.allclose(vectors, loaded.embed(texts), atol=1e-5)
    words = client.embeddings.create(model="bert", input=texts)
    assert answer.usage == words.usage
    (one,) = client.embeddings.create(model="bert", input=ids[0]).data
    assert np.allclose(one.embedding, vectors[0], atol=1e-5)
    for wrong, part in (([10**6], "1000000"), ([-1], "-1"), ([5] * 99, "99"), ([[]], "input"),
                        ([], "input")):  # fmt: skip
        served.refused(400, "/v1/embeddings", part, model="bert", input=wrong)


def test_a_negative_seed(served: Running, client: openai.OpenAI) -> None:
    """OpenAI takes every number of 64 bits."""
    options = {"model": "gpt", "prompt": PROMPT, "max_tokens": 12, "temperature": 1.5}
    for seed in (-1, -(2**63), 2**63 - 1):
        answer = client.completions.create(**options, seed=seed)
        expected = alone(served, PROMPT, max_new_tokens=12, temperature=1.5, seed=seed % 2**64)
        assert answer.choices[0].text == expected.text and answer.seed == seed


def test_models(served: Running, client: openai.OpenAI) -> None:
    cards = {model.id: model for model in client.models.list()}
    looking = ["attention", "lens", "ablate", "patch", "attribute"]
    assert cards["gpt"].verbs == ["complete", "chat", "embed", *looking]
    assert cards["gpt"].heads == {"self": [2]} and cards["gpt"].kind == "decoder"
    assert cards["reviewer"].task == "classify" and sorted(cards["reviewer"].labels) == [
        "bad", "good",
    ]  # fmt: skip
    assert "fill" in cards["bert"].verbs and "translate" in cards["translator"].verbs
    assert client.models.retrieve("gpt").context == 32
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


REFUSED: list[tuple[type[openai.APIStatusError], dict[str, Any], list[str]]] = [
    (openai.NotFoundError, {"model": "gtp"}, ["gtp", "'gpt'"]),
    (openai.BadRequestError, {"model": "tagger"}, ["tagger", "complete", "tag"]),
    (openai.BadRequestError, {"max_tokens": 10**6}, ["1,000,000", "1,024"]),
    (openai.BadRequestError, {"prompt": "film " * 40}, ["40", "32"]),
    (openai.BadRequestError, {"prompt": [10**6]}, ["1000000"]),
    (openai.BadRequestError, {"n": 7}, ["7", "6"]),
    (openai.BadRequestError, {"temperature": -1}, ["temperature"]),
    (openai.BadRequestError, {"presence_penalty": 0.5}, ["presence_penalty"]),
    (openai.BadRequestError, {"extra_body": {"temperatur": 1}}, ["temperatur", "field"]),
    (openai.BadRequestError, {"extra_body": {"num_beams": 2}, "top_p": 0.5}, ["num_beams"]),
    (openai.BadRequestError, {"stop": ""}, ["stop"]),
    (openai.BadRequestError, {"best_of": 5}, ["best_of"]),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(client: openai.OpenAI, case: int) -> None:
    error, body, parts = REFUSED[case]
    with pytest.raises(error) as caught:
        client.completions.create(**({"model": "gpt", "prompt": PROMPT} | body))
    message = caught.value.body["message"]
    assert [part for part in parts if part not in message] == [], message
