"""/attention and what looks deeper read a text as the task does that answered."""

from __future__ import annotations

from typing import Any

import pytest

from regard.api import predictor
from regard.data.examples import LabeledExample, MultipleChoice
from tests.serve.running import Running, running
from tests.serve.test_looking import near
from tests.tasks.world import World

TEXT, OTHER = "the film was very great", "the plot was dull"


@pytest.fixture(scope="module")
def readers(world: World) -> Any:
    paths = [world.model("t5"), world.model("gpt")]
    names = ("writer", "chooser", "answerer", "reviewer")
    with running([*paths, *(world.run(name) for name in names)]) as server:
        yield server


def facts(server: Running, route: str, **body: Any) -> dict[str, Any]:
    (one,) = server.post(route, **body)["results"]
    return dict(one)


def test_a_model_that_writes_its_labels_reads_more_than_the_text(readers: Running) -> None:
    """The prefix and the name of the field; what it writes is the label that it answered."""
    loaded = readers.loaded("writer")
    answers = predictor(loaded, ("classify",), {})
    other = TEXT.replace("very", "of")
    examples = [LabeledExample(TEXT), LabeledExample(other)]
    (source, changed), _ = answers.scribe.sources(examples, answers.room)
    assert len(source) > len(loaded.tokenizer.encode(TEXT))
    body: dict[str, Any] = {"model": "writer", "text": TEXT, "verb": "classify"}
    side = facts(readers, "/attention", form="side", **body)
    assert len(side["tokens"]["source"]) == len(source)
    label = [token["t"] for token in side["tokens"]["target"][1:]]
    assert " ".join(label) == loaded.classify(TEXT).value and label
    ids = loaded.tokenizer.encode(" ".join(label))[: len(label)]
    near(facts(readers, "/ablate", heads=["cross.1.2"], position=1, **body),
         loaded.ablate(source, target=ids, position=1, heads=["cross.1.2"]).facts())  # fmt: skip
    near(facts(readers, "/patch", corrupted=other, target="good", **body),
         loaded.patch(source, changed, target="good").facts())  # fmt: skip


def test_blanks_that_are_written(readers: Running) -> None:
    text = "the ___ was very ___"
    filled = readers.post("/fill", model="t5", texts=text, top_k=2)["results"][0]
    fills = [blank[0]["ids"] for blank in filled["blanks"]]
    side = facts(readers, "/attention", model="t5", text=text, verb="fill", fills=fills,
                 form="side")  # fmt: skip
    tokens = [token["t"] for token in side["tokens"]["source"]]
    assert [token for token in tokens if "extra_id" in token] == ["<extra_id_0>", "<extra_id_1>"]
    loaded = readers.loaded("t5")
    marks = loaded.tokenizer.encode("<extra_id_0> <extra_id_1>")[:2]
    target = [marks[0], *fills[0], marks[1], *fills[1]]
    source = loaded.tokenizer.encode("the <extra_id_0> was very <extra_id_1>")
    source += [] if source[-1] == loaded.config.eos_id else [loaded.config.eos_id]
    near(facts(readers, "/lens", model="t5", text=text, verb="fill", fills=fills),
         loaded.lens(source, target=target).facts())  # fmt: skip


def test_a_choice_is_read_with_its_question(readers: Running) -> None:
    loaded, choices = readers.loaded("chooser"), ["the film was great", OTHER]
    answers = predictor(loaded, ("choose",), {})
    scores = answers([MultipleChoice(TEXT, tuple(choices), "cause")])[0].scores
    logits = []
    for number in (0, 1):
        one = facts(readers, "/ablate", model="chooser", text=TEXT, verb="choose", choices=choices,
                    choice=number, asks="cause", heads=["1.1"])  # fmt: skip
        logits.append(one["logits"][0])
    import torch

    assert torch.tensor(logits).softmax(0).tolist() == pytest.approx(scores, abs=1e-4)
    readers.refused(400, "/lens", "the choice is 2", "2 choices", model="chooser", text=TEXT,
                    verb="choose", choices=choices, choice=2)  # fmt: skip
    readers.refused(400, "/lens", "cannot choose", model="gpt", text=TEXT, verb="choose")


def test_where_an_answer_begins(readers: Running) -> None:
    loaded, read = readers.loaded("answerer"), {"pair": TEXT}
    near(facts(readers, "/lens", model="answerer", text="the film", **read),
         loaded.lens("the film", **read).facts())  # fmt: skip
    near(facts(readers, "/ablate", model="answerer", text="the film", heads="all", **read),
         loaded.ablate("the film", heads="all", **read).facts())  # fmt: skip


def test_texts_of_unequal_length(readers: Running) -> None:
    other = "the film was great"
    pairs = [[1, 1], [2, 2], [3, 3], [5, 4]]
    body: dict[str, Any] = {"model": "gpt", "text": TEXT, "corrupted": other}
    readers.refused(400, "/patch", "5 tokens", "an alignment", **body)
    near(facts(readers, "/patch", alignment=pairs, **body),
         readers.loaded("gpt").patch(TEXT, other, alignment=pairs).facts())  # fmt: skip
    readers.refused(400, "/patch", "(6, 1)", alignment=[[6, 1]], **body)
    readers.refused(400, "/patch", "alignment", alignment=[[0, 1]], **body)
    readers.refused(400, "/patch", "alignment", alignment=[], **body)
