"""What lies behind an answer on the page of `regard serve`: its attention, what it depends on, its
model's training, and the same request for a program. The numbers are those of Python."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from tests.browser.conftest import until
from tests.browser.serving import (
    TEXT,
    Site,
    finished,
    go,
    pick,
    put,
    shown_ablation,
    tokens,
    unfold,
)
from tests.browser.test_look import choose, listed, row, same
from tests.browser.test_look_deeper import near
from tests.serve.running import Running

SPECIAL = re.compile(r"#\d+|<extra_id_\d+>|\[[A-Z]+\]")  # names of tokens that are no text


@pytest.fixture
def shown(site: Site) -> Any:
    return site.open()


def test_the_attention_of_what_was_computed(shown: Any, server: Running) -> None:
    from regard.lab.look import look

    pick(shown, "gpt", "complete")
    put(shown, prompt=TEXT, max_tokens=4, temperature=0)
    go(shown)
    unfold(shown, "attention")
    loaded = server.loaded("gpt")
    generation = loaded.generate(TEXT, max_new_tokens=4, temperature=0.0)
    ids = [*loaded.tokenizer.encode(TEXT), *generation.ids]
    weights = look(loaded, ids).sides[0].stack("self").layers[0].weights(0)
    for number in (2, len(ids) - 1):
        row(shown, number)
        same(listed(shown), weights[number])
    put(shown, prompt="the plot was dull")  # what is computed next is shown at once
    go(shown)
    finished(shown)
    until(shown, "document.querySelector('#sides .given').textContent.startsWith('the plot')")


def written(server: Running, model: str, route: str) -> tuple[list[int], list[int]]:
    """The tokens that a model read and wrote."""
    (row,) = server.post(route, model=model, texts=[TEXT], max_tokens=6)["results"]
    return row["source_ids"], row["ids"]


def test_cross_attention_is_that_of_python(shown: Any, server: Running) -> None:
    from regard.lab.look import look

    pick(shown, "translator", "translate")
    put(shown, text=TEXT, max_tokens=6)
    go(shown)
    unfold(shown, "attention")
    source, ids = written(server, "translator", "/translate")
    stack = look(server.loaded("translator"), source, target=ids).sides[0].stack("cross")
    for head in (0, 1):
        choose(shown, 0, head)
        for number in (0, len(ids) - 1):
            row(shown, number)
            same(listed(shown), stack.layers[0].weights(head)[number])


def test_what_a_model_that_writes_has_read(shown: Any, server: Running) -> None:
    """Labels and blanks that an encoder-decoder writes: with the prefix, and the marks."""
    from regard.api import predictor
    from regard.data.examples import LabeledExample
    from regard.lab.look import look

    pick(shown, "writer", "classify")
    put(shown, text=TEXT)
    go(shown)
    unfold(shown, "attention")
    loaded = server.loaded("writer")
    answers: Any = predictor(loaded, ("classify",), {})
    (source,), _ = answers.scribe.sources([LabeledExample(TEXT)], answers.room)
    label = loaded.tokenizer.encode(loaded.classify(TEXT).value)[:-1]
    stack = look(loaded, source, target=label).sides[0].stack("cross")
    row(shown, 0)
    same(listed(shown), stack.layers[0].weights(0)[0])
    pick(shown, "t5", "fill")
    put(shown, text="the ___ was very great")
    go(shown)
    until(shown, "document.querySelector('#sides .given').textContent.startsWith('the ___')")
    loaded = server.loaded("t5")
    (blank,) = server.post("/fill", model="t5", texts="the ___ was very great")["results"][0][
        "blanks"
    ]
    mark = loaded.tokenizer.encode("<extra_id_0>")[0]
    source = loaded.tokenizer.encode("the <extra_id_0> was very great")[:5]
    source += [loaded.config.eos_id]
    target = [mark, *blank[0]["ids"]]
    stack = look(loaded, source, target=target).sides[0].stack("cross")
    row(shown, 1)
    same(listed(shown), stack.layers[0].weights(0)[1])


def test_the_choice_that_was_read(shown: Any, server: Running) -> None:
    from regard.lab.look import look

    choices = ["the film was great", "the plot was dull"]
    pick(shown, "chooser", "choose")
    put(shown, premise=TEXT, choices="\n".join(choices), asks="the film")
    go(shown)
    unfold(shown, "attention")
    loaded = server.loaded("chooser")
    best = choices[loaded.choose(TEXT, choices, "the film").value]
    assert shown.locator("#sides .given").inner_text() == f"{TEXT} → {best}"
    weights = look(loaded, TEXT, pair=f"the film {best}").sides[0].stack("self").layers[0]
    row(shown, 4)
    same(listed(shown), weights.weights(0)[4])


def agrees(shown: Any, result: Any) -> None:
    lines = shown_ablation(shown)
    assert [line[0] for line in lines] == [one.text for one in result.changes]
    for line, one in zip(lines, result.changes, strict=True):
        for text, value in zip(line[1:], (one.before, one.after, one.difference), strict=True):
            near(text, value)


def test_ablating_a_head_gives_the_number_that_python_gives(shown: Any, server: Running) -> None:
    loaded = server.loaded("reviewer")
    pick(shown, "reviewer", "classify")
    put(shown, text=TEXT)
    go(shown)
    unfold(shown, "looking")
    shown.locator("#deep-ablate").click()
    shown.locator('[data-place="1.2"]').click()
    agrees(shown, loaded.ablate(TEXT, heads=["1.2"]))
    with shown.expect_response("**/ablate"):
        shown.locator('[data-place="2"]').click()
    until(shown, "document.querySelector('.deep-out .what').textContent.includes(', 2')")
    agrees(shown, loaded.ablate(TEXT, heads=["1.2"], layers=["2"]))
    shown.locator("#each-head").click()
    shown.locator(".deep-out .heat").first.wait_for()
    shown.locator(".deep-out .heat button[data-row='1'][data-column='0']").click()
    agrees(shown, loaded.ablate(TEXT, heads=["2.1"]))


def test_looking_deeper_at_a_token_of_a_text(shown: Any, server: Running) -> None:
    """The question is why the chosen token was written: its ids are those that the model read."""
    loaded = server.loaded("gpt")
    pick(shown, "gpt", "complete")
    put(shown, prompt=TEXT, max_tokens=4, temperature=0)
    go(shown)
    shown.locator(".token").nth(2).click()
    unfold(shown, "looking")
    written = loaded.generate(TEXT, max_new_tokens=4, temperature=0.0).ids
    ids = [*loaded.tokenizer.encode(TEXT), *written[:2]]
    shown.locator(".deep-out .heat button").first.wait_for()
    lens = loaded.lens(ids)
    shown.locator(f".heat button[data-row='1'][data-column='{len(ids) - 1}']").click()
    for line, one in zip(shown_ablation(shown), lens.best[1][-1], strict=True):
        assert line[0] == one.text
        near(line[1], one.probability)
    shown.locator("#deep-attribute").click()
    shown.locator(".attributed").wait_for()
    result = loaded.attribute(ids, token=written[2])
    scores = shown.locator(".attributed small").all_inner_texts()
    for text, value in zip(scores, result.scores["text"], strict=True):
        near(text, value)
    shown.locator("#deep-patch").click()
    corrupted = f"the plot was very great {loaded.tokenizer.decode(written[:2])}"
    if len(loaded.tokenizer.encode(corrupted)) == len(ids):
        shown.locator("#deep-corrupted").fill(corrupted)
        shown.locator("#deep-panel button[type=submit]").click()
        shown.locator(".deep-out .heat button").first.wait_for()
        patch = loaded.patch(ids, corrupted, token=written[2])
        shown.locator(".heat button[data-row='1'][data-column='1']").click()
        label = shown.locator(".deep-out .what").inner_text()
        near(label.rpartition("probability ")[2].split(",")[0], patch.tables[0].cells[1][1][0])


def test_ablating_a_head_of_cross_attention(shown: Any, server: Running) -> None:
    pick(shown, "translator", "translate")
    put(shown, text=TEXT, max_tokens=6)
    go(shown)
    unfold(shown, "looking")
    shown.locator("#deep-ablate").click()
    shown.locator('[data-place="cross.1.2"]').click()
    source, ids = written(server, "translator", "/translate")
    loaded, chosen = server.loaded("translator"), {"heads": ["cross.1.2"], "position": 1}
    agrees(shown, loaded.ablate(source, target=ids, **chosen))
    with shown.expect_response("**/ablate"):
        shown.locator("#deep-method").select_option("mean")
    agrees(shown, loaded.ablate(source, target=ids, method="mean", **chosen))


def test_where_an_answer_begins(shown: Any, server: Running) -> None:
    pick(shown, "answerer", "answer")
    put(shown, question="the film", passage=TEXT)
    go(shown)
    unfold(shown, "looking")
    assert shown.locator("#deep-row option").all_inner_texts()[1:] == ["1 start", "2 end"]
    shown.locator("#deep-ablate").click()
    shown.locator('[data-place="1.1"]').click()
    loaded = server.loaded("answerer")
    agrees(shown, loaded.ablate("the film", pair=TEXT, heads=["1.1"]))
    with shown.expect_response("**/ablate"):
        shown.locator("#deep-row").select_option("2")
    agrees(shown, loaded.ablate("the film", pair=TEXT, heads=["1.1"], position=2))


def test_texts_of_unequal_length_are_patched(shown: Any, server: Running) -> None:
    """The page pairs what both texts begin and end with; a reader may write other pairs."""
    loaded, other = server.loaded("reviewer"), "the film was great"
    pick(shown, "reviewer", "classify")
    put(shown, text=TEXT)
    go(shown)
    unfold(shown, "looking")
    shown.locator("#deep-patch").click()
    shown.locator("#deep-corrupted").fill(other)
    shown.locator("#deep-panel button[type=submit]").click()
    shown.locator(".deep-out .heat button").first.wait_for()
    pairs = [(1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (7, 6)]
    shared = " ".join(f"{a}-{b}" for a, b in pairs)
    assert shown.locator("#deep-alignment").input_value() == shared
    for chosen in (pairs, pairs[2:5]):
        patch = loaded.patch(TEXT, other, alignment=chosen)
        with shown.expect_response("**/patch"):
            shown.locator("#deep-alignment").fill(", ".join(f"{a}-{b}" for a, b in chosen))
            shown.locator("#deep-panel button[type=submit]").click()
        until(shown, f"document.querySelectorAll('.heat [data-row=\\'0\\']').length"
                     f" === {len(chosen)}")  # fmt: skip
        shown.locator(".heat button[data-row='1'][data-column='2']").click()
        label = shown.locator(".deep-out .what").inner_text()
        near(label.rpartition("probability ")[2].split(",")[0], patch.tables[0].cells[1][2][0])


def test_another_baseline(shown: Any, server: Running) -> None:
    pick(shown, "reviewer", "classify")
    put(shown, text=TEXT)
    go(shown)
    unfold(shown, "looking")
    shown.locator("#deep-attribute").click()
    shown.locator(".attributed").wait_for()
    with shown.expect_response("**/attribute"):
        shown.locator("#deep-baseline").fill("[PAD]")
        shown.locator("#deep-baseline").press("Enter")
    result = server.loaded("reviewer").attribute(TEXT, baseline="[PAD]")
    until(shown, "document.querySelector('.deep-out').getAttribute('aria-busy') === 'false'")
    scores = shown.locator(".attributed small").all_inner_texts()
    for text, value in zip(scores, result.scores["text"], strict=True):
        near(text, value)


def test_how_a_model_was_trained(shown: Any) -> None:
    pick(shown, "reviewer")
    unfold(shown, "run")
    assert shown.locator("#story [data-chart=loss] path.line").count() >= 1
    assert "20,738" in shown.locator("#story .facts").inner_text()
    shown.locator(".card-of > summary").click()
    assert "How to open it" in shown.locator(".card-of").inner_text()
    pick(shown, "gpt")
    until(shown, "document.getElementById('story').textContent.includes('no record')")


def test_the_request_for_a_program_gives_the_same(shown: Any) -> None:
    pick(shown, "gpt", "complete")
    put(shown, prompt='the film\'s "plot"', max_tokens=6)  # sampled: the drawn seed stands in it
    go(shown)
    text = SPECIAL.sub("", tokens(shown))
    unfold(shown, "code")
    curl = shown.locator("[data-code=curl] pre").inner_text()
    answer = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=60)
    assert json.loads(answer.stdout)["choices"][0]["text"] == text
    table: dict[str, Any] = {}
    python = shown.locator("[data-code=Python] pre").inner_text()
    exec(compile(python.replace("print(", "shown = ("), "page", "exec"), table)
    assert table["shown"] == text
    pick(shown, "tagger", "tag")
    put(shown, text=TEXT)
    go(shown)
    curl = shown.locator("[data-code=curl] pre").inner_text()
    answer = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=60)
    assert json.loads(answer.stdout)["results"][0]["words"] == TEXT.split()
