"""The page of `regard serve`: every playground shows what Python gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.browser.conftest import until
from tests.browser.serving import (
    ENTITIES,
    PASSAGES,
    TEXT,
    Site,
    finished,
    go,
    pick,
    put,
    tokens,
    unfold,
)
from tests.browser.test_look import listed, row, same
from tests.browser.test_look_deeper import near
from tests.serve.running import Running


@pytest.fixture
def shown(site: Site) -> Any:
    return site.open()


def bars(page: Any) -> list[tuple[str, float]]:
    """The names and values of the bars of the first chart of the answer."""
    chart = page.locator(".column .plot svg").first
    names = chart.locator("text.named").all_text_contents()[::2]
    values = chart.locator("rect.bar").evaluate_all("all => all.map((b) => +b.dataset.value)")
    return list(zip(names, values, strict=True))


def ids_of(page: Any) -> list[int]:
    ids: list[int] = page.locator(".token").evaluate_all("all => all.map((t) => +t.dataset.id)")
    return ids


def test_writing_on_token_by_token(shown: Any, server: Running) -> None:
    pick(shown, "gpt", "complete")
    put(shown, prompt=TEXT, max_tokens=8, temperature=0)
    go(shown)
    expected = server.loaded("gpt").generate(TEXT, max_new_tokens=8, temperature=0.0)
    assert ids_of(shown) == list(expected.ids) and tokens(shown) == expected.text
    answer = server.post(
        "/v1/completions", model="gpt", prompt=TEXT, max_tokens=8, temperature=0, logprobs=5
    )["choices"][0]["logprobs"]
    titles = shown.locator(".token").evaluate_all("all => all.map((t) => parseFloat(t.title))")
    shares = [100 * math.exp(value) for value in answer["token_logprobs"]]
    assert titles == pytest.approx(shares, abs=0.051)
    assert shown.locator("#aloud").inner_text().strip() != ""


def test_a_click_on_another_token_goes_on_from_there(shown: Any, server: Running) -> None:
    loaded = server.loaded("gpt")
    pick(shown, "gpt", "complete")
    put(shown, prompt=TEXT, max_tokens=6, temperature=0)
    go(shown)
    before = ids_of(shown)
    shown.locator(".token").nth(2).click()
    body = {"prompt": TEXT, "max_tokens": 6, "temperature": 0, "logprobs": 5}
    body |= {"return_token_ids": True, "model": "gpt"}
    (choice,) = server.post("/v1/completions", **body)["choices"]
    ids, others = choice["logprobs"]["token_ids"], choice["logprobs"]["top_tokens"][2]
    shown.locator(".option").nth(1).click()
    finished(shown)
    begun = [*choice["prompt_token_ids"], *ids[:2], others[1]["id"]]
    rest = loaded.generate(begun, max_new_tokens=3, temperature=0.0)
    assert shown.locator(".token").count() == 6
    assert ids_of(shown)[3:] == list(rest.ids)
    assert shown.locator(".token.forced").count() == 1
    shown.locator(".token").first.click()
    shown.locator(".choices .plain").click()
    assert ids_of(shown) == before


def test_filling_blanks(shown: Any, server: Running) -> None:
    pick(shown, "bert", "fill")
    put(shown, text="the ___ was ___")
    go(shown)
    (first, second) = server.loaded("bert").fill("the ___ was ___", top_k=5).blanks
    groups = shown.locator(".blanks .options")
    assert groups.count() == 2
    for group, blank in zip(groups.all(), (first, second), strict=True):
        lines = group.locator("button").all_inner_texts()
        assert [line.split("\n")[0] for line in lines] == [one.text.strip() or "␣" for one in blank]
    groups.nth(1).locator("button").nth(2).click()
    marks = shown.locator(".spans mark").all_inner_texts()
    assert marks == [first[0].text.strip(), second[2].text.strip()]


def test_classes(shown: Any, server: Running) -> None:
    pick(shown, "reviewer", "classify")
    put(shown, text=TEXT)
    go(shown)
    prediction = server.loaded("reviewer").classify(TEXT)
    assert shown.locator(".answer strong").inner_text() == prediction.value
    assert dict(bars(shown)) == pytest.approx(prediction.scores, abs=1e-5)
    pick(shown, "entailer", "classify")
    put(shown, text=TEXT, pair="the plot was dull")
    go(shown)
    prediction = server.loaded("entailer").classify(TEXT, "the plot was dull")
    assert dict(bars(shown)) == pytest.approx(prediction.scores, abs=1e-5)


def test_tags_as_spans(shown: Any, server: Running) -> None:
    pick(shown, "tagger", "tag")
    put(shown, text=TEXT)
    go(shown)
    entities = server.loaded("tagger").tag(TEXT).entities
    marks = shown.locator(".spans mark")
    assert marks.evaluate_all("all => all.map((m) => m.dataset.kind)") == [e.kind for e in entities]
    assert marks.locator("> span").all_inner_texts() == [e.text for e in entities]
    assert len(entities) > 0


def test_an_answer_marked_in_its_passage(shown: Any, server: Running) -> None:
    passage = f"🤖 {TEXT}"  # a character of two code units stands before
    pick(shown, "answerer", "answer")
    put(shown, question="the film", passage=passage)
    go(shown)
    answer = server.loaded("answerer").answer("the film", passage)
    assert shown.locator(".spans").inner_text() == passage
    if answer.value:
        assert shown.locator(".spans mark").inner_text() == answer.value
    shares = [candidate[3] for candidate in answer.candidates()[:5]]
    assert [value for _, value in bars(shown)] == pytest.approx(shares, abs=1e-5)


def ranked(page: Any) -> list[tuple[str, float]]:
    """The words and percents of the candidates, in their order."""
    lines = [line.split("\n") for line in page.locator(".ranked .option").all_inner_texts()]
    return [(words, float(share.rstrip("%")) / 100) for words, share in lines]


def looked_into(page: Any) -> str:
    """The tokens of the text whose attention is shown."""
    until(page, "document.getElementById('fold-attention').getAttribute('aria-busy') === 'false'")
    return str(page.locator("#sides .given").inner_text())


def test_the_choice_that_is_pressed_is_looked_into(shown: Any, server: Running) -> None:
    from regard.lab.look import look

    choices = ["the film was great", "the plot was dull", "the actor was very cold"]
    pick(shown, "chooser", "choose")
    put(shown, premise=TEXT, choices="\n".join(choices))
    go(shown)
    answer = server.loaded("chooser").choose(TEXT, choices)
    assert [words for words, _ in ranked(shown)] == choices
    assert [share for _, share in ranked(shown)] == pytest.approx(answer.scores, abs=6e-4)
    unfold(shown, "attention")
    assert looked_into(shown).endswith(choices[answer.value])
    for number in (2, 0):
        button = shown.locator(".ranked .option").nth(number)
        button.click()
        assert looked_into(shown).endswith(choices[number])
        assert button.get_attribute("aria-pressed") == "true"
        assert shown.locator(".ranked [aria-pressed=true]").count() == 1
        side = look(server.loaded("chooser"), TEXT, pair=choices[number]).sides[0]
        row(shown, 1)
        same(listed(shown), side.stack("self").layers[0].weights(0)[1])
    unfold(shown, "looking")
    assert choices[0] in shown.locator(".subject").inner_text()
    go(shown)  # another answer begins with its best choice
    assert looked_into(shown).endswith(choices[answer.value])


def test_entities(shown: Any, server: Running) -> None:
    pick(shown, "linker", "link")
    put(shown, text=TEXT, mention="film", candidates=ENTITIES)
    go(shown)
    named = [dict(zip(("name", "description"), line.split(" | "), strict=True))
             for line in ENTITIES.split("\n")]  # fmt: skip
    record = {"text": TEXT, "mention": "film", "candidates": named}
    (answer,) = server.loaded("linker").predict([record])
    assert shown.locator(".spans").inner_text() == TEXT
    assert shown.locator(".spans mark").inner_text() == "film"
    assert shown.locator(".answer strong").inner_text() == answer.value
    for (words, share), entity in zip(ranked(shown), named, strict=True):
        assert words == f"{entity['name']} – {entity['description']}"
        assert share == pytest.approx(answer.scores[entity["name"]], abs=6e-4)
    unfold(shown, "attention")
    shown.locator(".ranked .option").nth(1).click()
    assert looked_into(shown) == "film → cold film : dull poor"


def test_a_server_says_which_entities_are_missing(shown: Any, site: Site) -> None:
    site.expected = ("400",)
    pick(shown, "linker", "link")
    put(shown, text=TEXT, mention="film")
    go(shown)
    assert "no candidates" in shown.locator("#refused").inner_text()


def test_passages_in_order(shown: Any, server: Running) -> None:
    pick(shown, "ranker", "rerank")
    put(shown, query="a great film", passages=PASSAGES)
    go(shown)
    passages = PASSAGES.split("\n")
    records = [{"query": "a great film", "positive": passage} for passage in passages]
    scores = [one.value[0] for one in server.loaded("ranker").predict(records)]
    order = sorted(range(len(passages)), key=lambda i: -scores[i])
    assert [words for words, _ in ranked(shown)] == [passages[i] for i in order]
    assert [share for _, share in ranked(shown)] == pytest.approx(
        [scores[i] for i in order], abs=6e-4
    )
    unfold(shown, "attention")
    shown.locator(".ranked .option").nth(2).click()
    assert looked_into(shown).endswith(passages[order[2]])


def test_choices_and_translations(shown: Any, server: Running) -> None:
    choices = ["the film was great", "the plot was dull"]
    pick(shown, "chooser", "choose")
    put(shown, premise=TEXT, choices="\n".join(choices))
    go(shown)
    choice = server.loaded("chooser").choose(TEXT, choices)
    best = choice.value if isinstance(choice.value, str) else choices[choice.value]
    assert shown.locator(".answer strong").inner_text() == best
    pick(shown, "translator", "translate")
    put(shown, text=TEXT, max_tokens=6)
    go(shown)
    expected = server.loaded("translator").translate(TEXT, max_new_tokens=6)
    assert shown.locator(".answer").inner_text() == expected.value
    # The attention of the answer to the text is opened by itself.
    unfold(shown, "attention")
    tab = shown.locator("#sides [role=tab][aria-selected=true]")
    assert tab.get_attribute("data-stack") == "cross"


def test_similarities(shown: Any, server: Running) -> None:
    texts = ["the film was great", "a great film", "the plot was dull"]
    pick(shown, "bert", "embed")
    put(shown, texts="\n".join(texts))
    go(shown)
    vectors = server.loaded("bert").embed(texts)
    expected = vectors @ vectors.T
    cells = shown.locator("rect.cell").evaluate_all("all => all.map((c) => +c.dataset.value)")
    assert np.allclose(np.array(cells).reshape(3, 3), expected, atol=1e-4)
    line = shown.locator("[data-pair='1 2']").inner_text()
    near(line.split()[-1], float(expected[0, 1]))


def test_a_conversation(shown: Any, server: Running) -> None:
    pick(shown, "talker", "chat")
    turns = []
    for message in ("the film", "was very great"):
        put(shown, message=message, max_tokens=5, temperature=0)
        go(shown)
        turns.append({"role": "user", "content": message})
        answer = server.post(
            "/v1/chat/completions", model="talker", messages=turns, max_tokens=5, temperature=0
        )["choices"][0]["message"]
        turns.append(answer)
        reply = shown.locator(".talk li").last.locator("p").inner_text()
        assert reply.strip() == answer["content"].strip() or not answer["content"]
    assert shown.locator(".talk li").count() == 4
    shown.locator(".writing .plain").click()
    assert shown.locator(".talk li").count() == 0


def test_two_models_side_by_side(shown: Any, server: Running) -> None:
    pick(shown, "gpt", "complete")
    shown.locator("#beside").select_option("talker")
    put(shown, prompt=TEXT, max_tokens=5, temperature=0)
    go(shown)
    for place, name in enumerate(("gpt", "talker")):
        expected = server.loaded(name).generate(TEXT, max_new_tokens=5, temperature=0.0)
        assert tokens(shown, place) == expected.text
        assert shown.locator(".column h3").nth(place).inner_text().startswith(name)
    unfold(shown, "attention")
    assert shown.locator("#sides .side").count() == 2


def test_summaries(shown: Any, server: Running) -> None:
    pick(shown, "t5", "summarize")
    put(shown, text=TEXT, max_tokens=5)
    go(shown)
    expected = server.loaded("t5").summarize(TEXT, max_new_tokens=5)
    assert shown.locator(".answer").inner_text() == expected.value and expected.value
    assert shown.locator(".out .soft").inner_text().startswith("5 tokens")


def test_other_ways_side_by_side(shown: Any, server: Running) -> None:
    """An encoder beside a model that writes: classes, and blanks."""
    pick(shown, "reviewer", "classify")
    shown.locator("#beside").select_option("writer")
    put(shown, text=TEXT)
    go(shown)
    for place, name in enumerate(("reviewer", "writer")):
        column = shown.locator(".column").nth(place)
        assert column.locator("h3").inner_text().startswith(name)
        value = server.loaded(name).classify(TEXT).value
        assert column.locator(".answer").inner_text().startswith(value) and value
    unfold(shown, "attention")
    assert shown.locator("#sides .side").count() == 2
    pick(shown, "bert", "fill")
    shown.locator("#beside").select_option("t5")
    put(shown, text="the ___ was very great")
    go(shown)
    for place, name in enumerate(("bert", "t5")):
        (blank,) = server.loaded(name).fill("the ___ was very great", top_k=5).blanks
        first = shown.locator(".column").nth(place).locator(".option").first.inner_text()
        assert first.split("\n")[0] == (blank[0].text.strip() or "␣")


def test_an_empty_form_asks_its_first_example(shown: Any) -> None:
    pick(shown, "reviewer", "classify")
    hint = shown.locator("#field-text").get_attribute("placeholder")
    assert hint and hint.startswith(shown.locator(".example").first.inner_text()[:20])
    go(shown)
    assert shown.locator("#field-text").input_value() == hint
    assert shown.locator(".answer strong").inner_text()
