"""GRPO: advantages, ratios and the leash by hand, drawing, micro-batches, and a known optimum."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import load
from regard.core.errors import ConfigError, InputError, RegardError, UnknownName
from regard.core.seeding import seed_torch
from regard.data.examples import Preference
from regard.data.special_tokens import special_of
from regard.decoding.decode_state import Recomputing, RecurrentState
from regard.formats.directory import save
from regard.methods.preference import rewards
from regard.methods.preference.grpo import Reinforce, advantages, clipped
from regard.methods.preference.replies import k3, log_probabilities
from regard.methods.preference.rewards import ModelReward, RuleReward, judge_of
from regard.training.plan import extent, rows_of
from tests.methods.preference.preferring import (
    ABLE,
    UNEVEN,
    batch_of,
    gpt,
    gradients,
    learned,
    make,
    moved_from,
    opened,
    other,
    parts_equal_the_whole,
    words,
)
from tests.objectives.rules import SHAPES, tiny
from tests.refusals import refuses
from tests.tasks.judging import END, TOKENIZER

SPECIAL = special_of(TOKENIZER, "this")
SHORT: dict[str, Any] = {"reward": "share:a", "group": 3, "max_new_tokens": 4}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt(tmp_path_factory.mktemp("models") / "gpt")


# --- arithmetic -------------------------------------------------------------------------------


def test_advantages_by_hand() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]], dtype=torch.float64)
    scaled = advantages(scores)
    assert scaled[0].tolist() == pytest.approx([-1 / 1.0001, 0.0, 1 / 1.0001])
    assert scaled[1].tolist() == [0.0, 0.0, 0.0]  # where all are equal nothing is learned
    two = advantages(torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    assert two[0].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-3)


def test_clipping_by_hand() -> None:
    change = torch.log(torch.tensor([0.5, 1.0, 1.1, 2.0], dtype=torch.float64))
    assert clipped(change, torch.tensor(1.0), 0.2).tolist() == pytest.approx([0.5, 1.0, 1.1, 1.2])
    down = clipped(change, torch.tensor(-1.0), 0.2)
    assert down.tolist() == pytest.approx([-0.8, -1.0, -1.1, -2.0])
    there = change.clone().requires_grad_()
    clipped(there, torch.tensor(1.0), 0.2).sum().backward()
    assert there.grad is not None and there.grad.tolist() == pytest.approx([0.5, 1.0, 1.1, 0.0])


def test_k3_is_the_divergence_in_the_mean_and_never_below_0() -> None:
    assert float(k3(torch.tensor(0.5).log(), torch.tensor(0.25).log())) == pytest.approx(
        math.log(2) - 0.5, abs=1e-6
    )
    dice = torch.Generator().manual_seed(0)
    ours, theirs = torch.randn(2, 50, generator=dice, dtype=torch.float64).log_softmax(-1)
    each = k3(ours, theirs)
    assert bool((each >= 0).all()) and bool((k3(ours, ours) == 0).all())
    wanted = (ours.exp() * (ours - theirs)).sum()
    assert float((ours.exp() * each).sum()) == pytest.approx(float(wanted), abs=1e-12)
    near = torch.randn(10000, generator=dice)
    assert bool((k3(near, near + 1e-6 * torch.randn(10000, generator=dice)) >= 0).all())


# --- writing ----------------------------------------------------------------------------------


def test_every_prompt_is_asked_once(path: Path) -> None:
    examples = [*UNEVEN, Preference("a b c", "l", "k"), Preference("i"), Preference(("g", "h"))]
    objective = make(Reinforce, examples, path, **SHORT)
    rows = [objective.rows[i].tolist() for i in range(len(objective))]
    assert rows == [
        words("a b c"), words("g"), [END], [*words("a"), END, *words("b c"), END], words("i"),
        [*words("g"), END, *words("h"), END],
    ]  # fmt: skip
    batch = batch_of(objective)
    assert objective.counts(batch) == {"reinforce": 18.0, "reward": 18.0, "kl": 18.0}
    assert objective.max_len == 3 * (5 + 4) and objective.longest == 9
    assert (
        rows_of(objective) == 3
    )  # a step needs memory for three rows, not for one of their length
    assert extent(opened(path), objective)["targets"] == 4


def test_prompts_leave_room_for_a_reply(path: Path) -> None:
    objective = make(Reinforce, [Preference("a b c d e f g h")], path, length=8, **SHORT)
    assert objective.rows[0].tolist() == words("e f g h") and objective.cut == 1
    assert "1 of 1 examples of the train data do not fit 8 tokens" in objective.note


def test_draws_depend_on_seed_epoch_and_prompt_alone(path: Path) -> None:
    objective, model = make(Reinforce, UNEVEN, path, **SHORT), opened(path)
    whole = objective.write(model, batch_of(objective)).replies
    parts = [r for i in range(4) for r in objective.write(model, batch_of(objective, [i])).replies]
    assert parts == whole
    torch.manual_seed(7)
    assert objective.write(model, batch_of(objective)).replies == whole
    assert objective.write(model, batch_of(objective, epoch=1)).replies != whole
    again = make(Reinforce, UNEVEN, path, seed=2, **SHORT)
    assert again.write(model, batch_of(again)).replies != whole
    assert len({tuple(reply) for reply in whole}) > 6


@pytest.mark.parametrize("family", ABLE)
def test_what_was_thought_when_drawn(family: str, tmp_path: Path) -> None:
    """Step by step with a cache it is the same as at once, and padding is not looked at; also where
    a row is longer than what Transformer-XL remembers.
    """
    place = other(tmp_path / family, family)
    objective = make(Reinforce, UNEVEN, place, family=family, **SHORT | {"max_new_tokens": 12})
    model = moved_from(place)
    written = objective.write(model, batch_of(objective))
    again = log_probabilities(model, written.tokens, written.scored)
    assert (written.drawn - again).abs().max() < 1e-10
    for i, (prompt, reply) in enumerate(zip(written.prompts, written.replies, strict=True)):
        row = written.tokens[i, : len(prompt) + len(reply)].tolist()
        assert row == [*prompt, *reply] and END not in reply[:-1] and 1 <= len(reply) <= 12
        assert written.tokens[i, 1:][written.scored[i]].tolist() == reply
    assert written.tokens.size(1) > SHAPES["transformer-xl"]["mem_len"] + 2


@pytest.mark.parametrize(
    ("changes", "kind"),
    [({}, Recomputing), ({"mem_len": 17}, RecurrentState), ({"same_length": True}, RecurrentState)],
)
def test_a_memory_is_used_where_it_sees_all_that_a_row_sees(
    changes: dict[str, Any], kind: type, tmp_path: Path
) -> None:
    xl = tiny("transformer-xl", vocab_size=len(TOKENIZER), **changes)
    place = save(xl, tmp_path / "xl", TOKENIZER)
    options = SHORT | {"max_new_tokens": 12, "family": "transformer-xl"}
    objective, model = make(Reinforce, UNEVEN, place, **options), moved_from(place)
    assert type(objective.reader(model)) is kind and objective.longest == 17
    written = objective.write(model, batch_of(objective))
    again = log_probabilities(model, written.tokens, written.scored)
    assert (written.drawn - again).abs().max() < 1e-10


def test_replies_are_drawn_from_the_model_itself(path: Path) -> None:
    objective = make(
        Reinforce, [Preference("a b")], path, reward="length", group=4000, max_new_tokens=1
    )
    model = opened(path)
    written = objective.write(model, batch_of(objective))
    p = model.logits(model(torch.tensor([words("a b")])))[0, -1].softmax(-1)
    drawn = (
        torch.bincount(torch.tensor([r[0] for r in written.replies]), minlength=p.numel()) / 4000
    )
    assert (drawn - p).abs().max() < 4 * (0.25 / 4000) ** 0.5


# --- the loss ---------------------------------------------------------------------------------


def test_at_the_start_the_leash_is_slack_and_the_gradient_is_that_of_the_reward(
    path: Path,
) -> None:
    objective, model = make(Reinforce, UNEVEN, path, **SHORT), opened(path)
    batch = batch_of(objective)
    loss = objective.loss(model, batch)
    assert float(loss.sums["kl"]) == 0.0
    assert float(loss.sums["reinforce"]) == pytest.approx(0.0, abs=1e-9)  # advantages cancel out
    learned(loss, objective).backward()
    ours = gradients(model)
    written = objective.write(model, batch)
    texts = [TOKENIZER.decode(reply).split() for reply in written.replies]
    worth = torch.tensor([text.count("a") / max(len(text), 1) for text in texts]).double()
    sizes, gain = written.scored.sum(1), advantages(worth.view(-1, 3)).flatten()
    log_p = log_probabilities(model, written.tokens, written.scored).sum(1)
    assert float(gain.abs().max()) > 0
    (-(gain * log_p / sizes).sum() / len(gain)).backward()
    for one, wanted in zip(ours, gradients(model), strict=True):
        assert (one - wanted).abs().max() < 1e-9


def test_the_loss_by_hand(path: Path) -> None:
    options = SHORT | {"beta": 0.7, "limit": 0.01}
    objective, model = make(Reinforce, UNEVEN, path, **options), moved_from(path)
    loss = objective.loss(model, batch := batch_of(objective))
    written = objective.write(model, batch)
    ours = log_probabilities(model, written.tokens, written.scored)
    theirs = log_probabilities(opened(path), written.tokens, written.scored)
    far = [
        float(k3(a[s], b[s]).mean()) for a, b, s in zip(ours, theirs, written.scored, strict=True)
    ]
    assert max(far) > 0.01 and min(far) >= 0
    assert float(loss.sums["kl"]) == pytest.approx(sum(far), abs=1e-10)
    wanted = 0.7 * sum(kl * max(1.0, kl / 0.01) for kl in far)  # the policy's part is 0
    assert float(loss.sums["reinforce"]) == pytest.approx(wanted, abs=1e-8)
    figures = objective.measure(loss)
    assert figures["kl"] == pytest.approx(sum(far) / 12)
    assert figures["length"] == sum(map(len, written.replies)) / 12
    assert figures["ended"] == sum(r[-1] == END for r in written.replies) / 12


def test_micro_batches_add_up(path: Path) -> None:
    objective = make(Reinforce, UNEVEN, path, **SHORT, beta=0.5)
    parts_equal_the_whole(objective, moved_from(path), [[3], [0, 2, 1]])


def test_what_was_written_in_half_precision_is_learned_from(path: Path) -> None:
    """Weights that were cast for the drawing have no gradient and must not be used again."""
    objective, model = make(Reinforce, UNEVEN, path, **SHORT), load(path).model
    with torch.autocast("cpu", torch.bfloat16):
        loss = objective.loss(model, batch_of(objective))
    learned(loss, objective).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert sum(float(p.grad.abs().sum()) > 0 for p in model.parameters()) > 10
    assert float(loss.sums["kl"]) < 0.1


@pytest.mark.parametrize("family", ABLE)
def test_every_model_that_goes_on_with_a_text(family: str, tmp_path: Path) -> None:
    place = other(tmp_path / family, family)
    options: dict[str, Any] = {"reward": "distinct", "group": 8, "max_new_tokens": 8}
    objective, model = make(Reinforce, UNEVEN, place, family=family, **options), opened(place)
    loss = objective.loss(model, batch_of(objective))
    learned(loss, objective).backward()
    assert float(loss.sums["kl"]) == pytest.approx(0.0, abs=1e-12)
    assert sum(float(g.abs().sum()) for g in gradients(model)) > 0


# --- learning ---------------------------------------------------------------------------------


def reinforced(place: Path, steps: int, **options: Any) -> list[dict[str, float]]:
    """What each step found: as the training loop takes them."""
    examples = [Preference(letter) for letter in "cdef"]
    objective = make(Reinforce, examples, place, reward="share:a", max_new_tokens=5, **options)
    model = load(place).model.train()
    optimizer, figures = torch.optim.Adam(model.parameters(), 0.01), []
    for step in range(steps):
        seed_torch(1, "dropout", step)
        loss = objective.loss(model, batch_of(objective, epoch=step))
        figures.append(objective.measure(loss))
        optimizer.zero_grad()
        learned(loss, objective).backward()
        optimizer.step()
    return figures


def test_the_reward_rises_to_its_optimum_and_the_leash_holds(tmp_path: Path) -> None:
    """The best reply says nothing but "a", and is worth 1; at the start about one word in 24 is."""
    place = gpt(tmp_path / "gpt", width=16, layers=1, context=16)

    def ends(steps: int, **options: Any) -> tuple[float, float]:
        """Reward and KL a token of the last steps."""
        figures = reinforced(place, steps, group=12, **options)
        assert figures[0]["reward"] < 0.1 and figures[0]["kl"] == 0.0
        last = figures[-5:]
        return sum(s["reward"] for s in last) / 5, sum(s["kl"] for s in last) / 5

    reward, kl = ends(40, beta=0.0)
    assert reward > 0.95 and kl > 1.0
    leashed, near = ends(40, beta=1.0, limit=0.1)
    assert 0.01 < near < 0.1 and 0.08 < leashed < reward  # better than it was, and not far away
    assert ends(20, beta=4.0)[1] < 0.05


# --- rewards ----------------------------------------------------------------------------------


def worth(name: str, *replies: str) -> list[float]:
    judge = judge_of(name, TOKENIZER, SPECIAL, "text")
    return judge(None, [[] for _ in replies], [[*words(reply), END] for reply in replies])


def test_rules_by_hand() -> None:
    replies = ("a b a", "c", "b b b b")
    assert worth("share:a", *replies) == pytest.approx([2 / 3, 0, 0])
    assert worth("contains:C", *replies) == [0, 1, 0]
    assert worth("length", *replies) == [3, 1, 4]
    assert worth("length:2", *replies) == [-0.5, -0.5, -1]
    assert worth("distinct", *replies) == pytest.approx([2 / 3, 1, 0.25])
    assert worth("distinct", "") == worth("share:a", "") == [0.0]
    assert isinstance(judge_of("distinct", TOKENIZER, SPECIAL, "text"), RuleReward)


def test_a_function_may_be_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards, "RULES", dict(rewards.RULES))
    rewards.register("mine", lambda prompts, replies: [float(len(reply)) for reply in replies])
    assert worth("mine", "a b", "c") == [3.0, 1.0]
    with refuses(ConfigError, "'length'"):
        rewards.register("length", lambda prompts, replies: [])
    for strange in ([1.0], [1.0, math.nan]):
        rewards.register("mine", lambda prompts, replies, scores=strange: scores)  # type: ignore[misc]
        with refuses(InputError, f"{len(strange)} numbers", "2 replies"):
            worth("mine", "a b", "c")


def test_a_reward_model_must_read_the_same(path: Path, tmp_path: Path) -> None:
    from tests.tasks.judging import model_of, tokenizer

    def judge(name: str, form: str = "text", words: Any = TOKENIZER) -> Path:
        judge_model = model_of("gpt", {"choose": 1}, vocabulary=len(words))
        place = save(judge_model, tmp_path / name, words)
        objective = {"name": "reward", "form": form}
        facts = {"task": "prefer", "objective": objective, "labels": [], "length": 16}
        (place / "task.json").write_text(json.dumps(facts))
        return place

    few = judge("few", words=tokenizer(("pad", "unk", "eos")))
    with refuses(ConfigError, few, "24 tokens", "27 tokens"):
        make(Reinforce, UNEVEN, path, reward=str(few))
    with refuses(ConfigError, "talks", "dialogue", "text", "objective.form"):
        make(Reinforce, UNEVEN, path, reward=str(judge("talks", "dialogue")))
    good = make(Reinforce, UNEVEN, path, reward=str(judge("good")))
    assert isinstance(good.judge, ModelReward)
    model = opened(tmp_path / "good")
    scores = good.judge(opened(path), [words("a b"), [END]], [words("c"), [*words("d e"), END]])
    for row, score in zip([[*words("a b c"), END], [END, *words("d e"), END]], scores, strict=True):
        wanted = model.read("choose", model(torch.tensor([row])))
        assert score == pytest.approx(float(wanted), abs=1e-10)


def test_a_short_row_leaves_half_to_the_prompt(path: Path) -> None:
    objective = make(Reinforce, UNEVEN, path, reward="distinct", length=24)
    assert objective.options.max_new_tokens == objective.settled()["max_new_tokens"] == 12
    assert make(Reinforce, UNEVEN, path, reward="distinct", length=64).options.max_new_tokens == 32


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"group": 1}, ConfigError, ["objective.group is 1"]),
        ({"max_new_tokens": -1}, ConfigError, ["max_new_tokens -1"]),
        ({"beta": -1.0}, ConfigError, ["objective.beta is -1"]),
        ({"beta": 0.0, "limit": 0.1}, ConfigError, ["objective.limit", "beta"]),
        ({"max_new_tokens": 24}, ConfigError, ["objective.max_new_tokens is 24", "batch.seq_len"]),
        ({"family": "longformer"}, ConfigError, ["longformer", "gpt, transformer-xl"]),
        ({"reward": ""}, ConfigError, ["--reward"]),
        ({"reward": "contain:a"}, UnknownName, ["'contain:a'", "'contains'"]),
        ({"reward": "contains"}, ConfigError, ["'contains'"]),
        ({"reward": "length:many"}, ConfigError, ["'length:many'"]),
    ],
)
def test_refusals(
    path: Path, options: dict[str, Any], error: type[RegardError], names: list[str]
) -> None:
    with refuses(error, *names):
        make(Reinforce, UNEVEN, path, **(SHORT | options))


def test_refused_models_and_data(path: Path) -> None:
    with refuses(ConfigError, path, "reward"):
        make(Reinforce, UNEVEN, path, reward=str(path))
    with refuses(InputError, "train"):
        make(Reinforce, [], path, **SHORT)
