"""A reward model: rows to the token, Bradley and Terry by hand, padding, learning, answers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core.errors import ConfigError, InputError, RegardError
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
from tests.refusals import refuses
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
    objective = make(Reward, UNEVEN)
    assert rows_of(objective, 0) == [[*words("a b c d e"), END], [*words("a b c f"), END]]
    assert rows_of(objective, 2) == [[END, *words("a a"), END], [END, *words("b"), END]]
    before = [*words("a"), END, *words("b c"), END]
    assert rows_of(objective, 3) == [[*before, *words("d"), END], [*before, *words("e f g"), END]]


def test_what_has_learned_dialogues_reads_a_text_as_a_turn(tmp_path: Path) -> None:
    assert form_of("", str(tmp_path)) == "text"
    facts = {"task": "converse", "objective": {}, "labels": [], "length": 16}
    (tmp_path / "task.json").write_text(json.dumps(facts))
    assert form_of("", str(tmp_path)) == "dialogue"
    assert form_of("text", str(tmp_path)) == "text"
    objective = make(Reward, UNEVEN, tmp_path)
    assert rows_of(objective, 0)[1] == [*words("a b c"), END, *words("f"), END]
    assert rows_of(objective, 2)[1] == [END, *words("b"), END]
    assert objective.settled()["form"] == "dialogue"


def test_long_prompts_lose_their_beginning_and_long_replies_their_pair() -> None:
    examples = [
        Preference("a b c d e f", "g", "h i"),
        Preference("a", "b", "c d e f g h i j"),
        Preference(("a b", "c", "d"), "e", "f"),
    ]
    objective = make(Reward, examples, length=6)
    assert rows_of(objective, 0) == [[*words("d e f g"), END], [*words("d e f h i"), END]]
    assert rows_of(objective, 1) == [[*words("d"), END, *words(reply), END] for reply in "ef"]
    assert len(objective) == 2 and objective.left == 1 and objective.cut == 2
    assert "2 of 3 examples of the train data do not fit 6 tokens" in objective.note
    assert "1 of 3 examples of the train data were left out" in objective.note


def test_a_system_is_never_forgotten() -> None:
    roles = ("system", "user", "assistant", "user")
    objective = make(Reward, [Preference(("a", "b", "c", "d"), "e", "f", roles)], length=6)
    assert rows_of(objective, 0)[0] == [*words("a"), END, *words("d"), END, *words("e"), END]


# --- the loss ---------------------------------------------------------------------------------


def test_the_loss_by_hand() -> None:
    objective, model = make(Reward, UNEVEN), model_of("gpt", HEAD, torch.float64)
    margins = []
    for i in range(len(UNEVEN)):
        chosen, rejected = (score(model, row) for row in rows_of(objective, i))
        margins.append((chosen - rejected).item())
    wanted = sum(math.log1p(math.exp(-margin)) for margin in margins)
    loss = objective.loss(model, batch_of(objective))
    assert float(loss.sums["reward"]) == pytest.approx(wanted, abs=1e-10)
    assert loss.counts == {"reward": 4.0}
    figures = objective.measure(loss)
    assert figures["accuracy"] == sum(margin > 0 for margin in margins) / 4
    assert figures["margin"] == pytest.approx(sum(margins) / 4)
    assert objective.better(0.6, 0.5) and not objective.better(0.5, 0.6)


def test_who_knows_nothing_loses_log_2() -> None:
    objective, model = make(Reward, UNEVEN), model_of("gpt", HEAD, torch.float64)
    torch.nn.init.zeros_(model.heads["choose"].out.weight)
    figures = objective.measure(objective.loss(model, batch_of(objective)))
    assert figures == {"accuracy": 0.5, "loss": pytest.approx(math.log(2)), "margin": 0.0}
    assert right(torch.tensor([2.0, 0.0, -1.0])).tolist() == [1.0, 0.5, 0.0]


def test_the_gradient_raises_what_was_chosen() -> None:
    objective, model = make(Reward, UNEVEN), model_of("gpt", HEAD, torch.float64)
    batch = batch_of(objective)
    before = objective.loss(model, batch)
    before.sums["reward"].backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(1e-4 * parameter.grad)
    after = objective.loss(model, batch)
    assert float(after.seen["margin"][0]) > float(before.seen["margin"][0])


def test_micro_batches_add_up() -> None:
    model = model_of("gpt", HEAD, torch.float64)
    parts_equal_the_whole(make(Reward, UNEVEN), model, [[0], [1, 2, 3]])


def test_padding_changes_no_score() -> None:
    objective, model = make(Reward, UNEVEN), model_of("gpt", HEAD, torch.float64)
    together = objective.judged(model, objective.hidden(model, batch := batch_of(objective)), batch)
    for i, both in enumerate(together):
        rows = rows_of(objective, i)
        for row, value in zip(rows, both, strict=True):
            assert float(value) == pytest.approx(float(score(model, row)), abs=1e-12)
            left = torch.tensor([[7, 7, 7, *row]])
            attention_mask = torch.tensor([[False] * 3 + [True] * len(row)])
            padded = model.read("choose", model(left, attention_mask), attention_mask)
            assert float(padded) == pytest.approx(float(value), abs=1e-12)


# --- learning and answers ---------------------------------------------------------------------


def test_it_learns_a_planted_preference() -> None:
    model = model_of("gpt", HEAD, width=16, layers=1)
    learn(make(Reward, planted(64)), model, steps=40, rate=0.01)
    objective = make(Reward, planted(40, seed=1), split="test")
    predictions = said(objective, model)
    assert sum(one.value == 0 for one in predictions) >= 38
    assert all(one.score > 0.5 and len(one.scores) == 2 for one in predictions)


def test_one_reply_is_scored_as_in_a_pair() -> None:
    model = model_of("gpt", HEAD)
    both = said(make(Reward, UNEVEN, split="test"), model)
    single = [Preference(e.prompt, reply) for e in UNEVEN for reply in (e.chosen, e.rejected)]
    alone = said(make(Reward, single, split="test"), model)
    for i, one in enumerate(both):
        margin = alone[2 * i].value - alone[2 * i + 1].value
        assert math.log(one.scores[0] / one.scores[1]) == pytest.approx(margin, abs=1e-4)


def test_a_reply_that_is_asked_about_is_never_left_out() -> None:
    examples = [Preference("a b", "c d e f g h i"), Preference("a", "b")]
    objective = make(Reward, examples, length=5, split="test")
    assert rows_of(objective, 0) == [[*words("b c d e"), END]] and objective.cut == 1
    assert len(said(objective, model_of("gpt", HEAD))) == 2


def test_refusals() -> None:
    alone = [Preference("a", place=FileLine("pairs.jsonl", 3))]
    long = [Preference("a", "b", "c d e f g h i j")]
    cases: list[tuple[list[Preference], dict[str, Any], type[RegardError], list[str]]] = [
        (UNEVEN, {"family": "bert"}, ConfigError, ["bert", "gpt, llama"]),
        (UNEVEN, {"family": "t5"}, ConfigError, ["t5", "gpt, llama"]),
        (UNEVEN, {"family": "lstm"}, ConfigError, ["lstm", "gpt, llama"]),
        (UNEVEN, {"family": ""}, ConfigError, ["this model", "gpt, llama"]),
        (UNEVEN, {"marks": True}, ConfigError, ["objective.marks"]),
        (UNEVEN, {"form": "letters"}, ConfigError, ["objective.form is 'letters'", "dialogue"]),
        (alone, {}, InputError, ["pairs.jsonl:3", "chosen", "rejected"]),
        (long, {"length": 6}, InputError, ["1 pairs", "train", "6 tokens"]),
        ([], {"split": "valid"}, InputError, ["valid", "--valid"]),
    ]
    for examples, options, error, names in cases:
        with refuses(error, *names):
            make(Reward, examples, **options)
