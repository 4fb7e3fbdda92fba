"""A reward model: rows to the token, Bradley and Terry by hand, padding, learning, answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core.errors import ConfigError, InputError
from regard.data.examples import Preference
from regard.data.problems import FileLine
from regard.tasks.replies import form_of
from regard.tasks.reward import Reward, right
from tests.methods.preference.preferring import (
    UNEVEN,
    batch_of,
    make,
    parts_equal_the_whole,
    planted,
    words,
)
from tests.tasks.judging import END, learn, model_of, said

HEAD = {"choose": 1}


def rows_of(objective: Any, index: int) -> list[list[int]]:
    batch = batch_of(objective, [index])
    return [
        row[attention_mask].tolist()
        for row, attention_mask in zip(batch["tokens"], batch["attention_mask"], strict=True)
    ]


def score(model: Any, row: list[int]) -> Tensor:
    """From the last token of a row of its own."""
    hidden = model(torch.tensor([row]))
    return model.heads["choose"].out(hidden[0, -1])[0]


# --- rows -------------------------------------------------------------------------------------


def test_a_reply_follows_its_prompt_and_is_closed() -> None:
    made = make(Reward, UNEVEN)
    assert rows_of(made, 0) == [[*words("a b c d e"), END], [*words("a b c f"), END]]
    assert rows_of(made, 2) == [[END, *words("a a"), END], [END, *words("b"), END]]
    before = [*words("a"), END, *words("b c"), END]
    assert rows_of(made, 3) == [[*before, *words("d"), END], [*before, *words("e f g"), END]]


def test_what_has_learned_dialogues_reads_a_text_as_a_turn(tmp_path: Path) -> None:
    assert form_of("", str(tmp_path)) == "text"
    (tmp_path / "task.json").write_text('{"task": "converse"}')
    assert form_of("", str(tmp_path)) == "dialogue"
    assert form_of("text", str(tmp_path)) == "text"
    made = make(Reward, UNEVEN, tmp_path)
    assert rows_of(made, 0)[1] == [*words("a b c"), END, *words("f"), END]
    assert rows_of(made, 2)[1] == [END, *words("b"), END]
    assert made.settled() == {"form": "dialogue"}
    with pytest.raises(ConfigError, match="text, dialogue"):
        make(Reward, UNEVEN, form="letters")


def test_long_prompts_lose_their_beginning_and_long_replies_their_pair() -> None:
    given = [
        Preference("a b c d e f", "g", "h i"),
        Preference("a", "b", "c d e f g h i j"),
        Preference(("a b", "c", "d"), "e", "f"),
    ]
    made = make(Reward, given, length=6)
    assert rows_of(made, 0) == [[*words("d e f g"), END], [*words("d e f h i"), END]]
    assert rows_of(made, 1) == [[*words("d"), END, *words(reply), END] for reply in "ef"]
    assert len(made) == 2 and made.left == 1 and made.cut == 2
    assert "2 of 3 examples of the train data do not fit 6 tokens" in made.note
    assert "1 of 3 examples of the train data were left out" in made.note
    with pytest.raises(InputError, match="all 1 pairs of the train data have a reply of 6 tokens"):
        make(Reward, given[1:2], length=6)
    with pytest.raises(InputError, match="the valid data holds no examples"):
        make(Reward, [], split="valid")


def test_a_system_is_never_forgotten() -> None:
    roles = ("system", "user", "assistant", "user")
    made = make(Reward, [Preference(("a", "b", "c", "d"), "e", "f", roles)], length=6)
    assert rows_of(made, 0)[0] == [*words("a"), END, *words("d"), END, *words("e"), END]


# --- the loss ---------------------------------------------------------------------------------


def test_the_loss_by_hand() -> None:
    made, model = make(Reward, UNEVEN), model_of("gpt", HEAD, torch.float64)
    margins = []
    for i in range(len(UNEVEN)):
        chosen, rejected = (score(model, row) for row in rows_of(made, i))
        margins.append((chosen - rejected).item())
    wanted = sum(math.log1p(math.exp(-margin)) for margin in margins)
    found = made.loss(model, batch_of(made))
    assert float(found.sums["reward"]) == pytest.approx(wanted, abs=1e-10)
    assert found.counts == {"reward": 4.0}
    figures = made.measure(found)
    assert figures["accuracy"] == sum(margin > 0 for margin in margins) / 4
    assert figures["margin"] == pytest.approx(sum(margins) / 4)
    assert made.better(0.6, 0.5) and not made.better(0.5, 0.6)


def test_who_knows_nothing_loses_log_2() -> None:
    made, model = make(Reward, UNEVEN), model_of("gpt", HEAD, torch.float64)
    torch.nn.init.zeros_(model.heads["choose"].out.weight)
    found = made.measure(made.loss(model, batch_of(made)))
    assert found == {"accuracy": 0.5, "loss": pytest.approx(math.log(2)), "margin": 0.0}
    assert right(torch.tensor([2.0, 0.0, -1.0])).tolist() == [1.0, 0.5, 0.0]


def test_the_gradient_raises_what_was_chosen() -> None:
    made, model = make(Reward, UNEVEN), model_of("gpt", HEAD, torch.float64)
    batch = batch_of(made)
    before = made.loss(model, batch)
    before.sums["reward"].backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(1e-4 * parameter.grad)
    after = made.loss(model, batch)
    assert float(after.seen["margin"][0]) > float(before.seen["margin"][0])


def test_micro_batches_add_up() -> None:
    model = model_of("gpt", HEAD, torch.float64)
    parts_equal_the_whole(make(Reward, UNEVEN), model, [[0], [1, 2, 3]])


def test_padding_changes_no_score() -> None:
    made, model = make(Reward, UNEVEN), model_of("gpt", HEAD, torch.float64)
    together = made.judged(model, made.hidden(model, batch := batch_of(made)), batch)
    for i, both in enumerate(together):
        rows = rows_of(made, i)
        for row, found in zip(rows, both, strict=True):
            assert float(found) == pytest.approx(float(score(model, row)), abs=1e-12)
            left = torch.tensor([[7, 7, 7, *row]])
            attention_mask = torch.tensor([[False] * 3 + [True] * len(row)])
            padded = model.read("choose", model(left, attention_mask), attention_mask)
            assert float(padded) == pytest.approx(float(found), abs=1e-12)


# --- learning and answers ---------------------------------------------------------------------


def test_it_learns_a_planted_preference() -> None:
    model = model_of("gpt", HEAD, width=16, layers=1)
    learn(make(Reward, planted(64)), model, steps=40, rate=0.01)
    asked = make(Reward, planted(40, seed=1), split="test")
    found = said(asked, model)
    assert sum(one.value == 0 for one in found) >= 38
    assert all(one.score > 0.5 and len(one.scores) == 2 for one in found)


def test_one_reply_is_scored_as_in_a_pair() -> None:
    model = model_of("gpt", HEAD)
    both = said(make(Reward, UNEVEN, split="test"), model)
    single = [Preference(e.prompt, reply) for e in UNEVEN for reply in (e.chosen, e.rejected)]
    alone = said(make(Reward, single, split="test"), model)
    for i, one in enumerate(both):
        margin = alone[2 * i].value - alone[2 * i + 1].value
        assert math.log(one.scores[0] / one.scores[1]) == pytest.approx(margin, abs=1e-4)


def test_a_reply_that_is_asked_about_is_never_left_out() -> None:
    given = [Preference("a b", "c d e f g h i"), Preference("a", "b")]
    made = make(Reward, given, length=5, split="test")
    assert rows_of(made, 0) == [[*words("b c d e"), END]] and made.cut == 1
    assert len(said(made, model_of("gpt", HEAD))) == 2


def test_refusals() -> None:
    for family in ("bert", "t5", "lstm", ""):
        with pytest.raises(ConfigError, match=r"cannot score replies.*these can: gpt"):
            make(Reward, UNEVEN, family=family)
    alone = [Preference("a", place=FileLine("pairs.jsonl", 3))]
    with pytest.raises(InputError, match=r"pairs.jsonl:3: a prompt without replies"):
        make(Reward, alone)
    with pytest.raises(ConfigError, match="marks"):
        make(Reward, UNEVEN, marks=True)
