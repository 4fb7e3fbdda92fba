"""DPO and its kin: which tokens count, losses by hand, the start, micro-batches, padding."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from regard.api import load
from regard.core.errors import ConfigError, InputError, RegardError
from regard.data.examples import Preference
from regard.data.problems import FileLine
from regard.formats.directory import save
from regard.methods.preference import replies
from regard.methods.preference.dpo import Prefer
from regard.methods.preference.replies import log_probabilities
from regard.training.train_module import checkpoint_blocks
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
    planted,
    spoken,
    words,
)
from tests.refusals import refuses
from tests.tasks.judging import END, PAD, learn, model_of, tokenizer


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt(tmp_path_factory.mktemp("models") / "gpt")


def ratios(path: Path, model: Any, objective: Prefer) -> list[tuple[float, float]]:
    """log π/π₀ of every chosen and every rejected reply, each from a row of its own."""
    start, pairs = opened(path), []
    for i in range(len(objective)):
        batch = batch_of(objective, [i])
        pair = []
        for row, attention_mask in zip(batch["tokens"], batch["attention_mask"], strict=True):
            ids, prompt_size = row[attention_mask].tolist(), int(objective.prompts[i])
            one, two = (
                spoken(m, ids[:prompt_size], ids[prompt_size:]).sum() for m in (model, start)
            )
            pair.append(float(one - two))
        pairs.append((pair[0], pair[1]))
    return pairs


# --- rows -------------------------------------------------------------------------------------


def test_only_the_tokens_of_a_reply_count(path: Path) -> None:
    batch = batch_of(make(Prefer, UNEVEN, path))
    rows = []
    for tokens, scored in zip(batch["tokens"], batch["scored"], strict=True):
        rows.append(tokens[1:][scored].tolist())
    texts = ["d e", "f", "h", "i j k l", "a a", "b", "d", "e f g"]
    assert rows == [[*words(text), END] for text in texts]
    assert batch["tokens"][~batch["attention_mask"]].unique().tolist() == [PAD]


def test_what_stands_in_a_prompt_is_not_learned(path: Path) -> None:
    """Both models find the prompt's own tokens as likely as they like."""
    objective, model = make(Prefer, UNEVEN[:1], path), moved_from(path)
    batch = batch_of(objective)
    log_p = log_probabilities(model, batch["tokens"], batch["scored"])
    assert log_p[:, :2].abs().max() == 0
    wanted = spoken(model, words("a b c"), [*words("d e"), END])
    assert log_p[0, 2:5].tolist() == pytest.approx(wanted.tolist(), abs=1e-12)


# --- losses -----------------------------------------------------------------------------------


def test_losses_of_a_gap_by_hand(path: Path) -> None:
    def lost(gap: float, **options: Any) -> float:
        objective = make(Prefer, UNEVEN, path, **options)
        return float(objective.each(torch.tensor([gap], dtype=torch.float64)))

    assert lost(0.0) == pytest.approx(math.log(2))
    assert lost(2.0, beta=0.5) == pytest.approx(0.3132616875)
    assert lost(-2.0, beta=0.5) == pytest.approx(1.3132616875)
    assert lost(2.0, beta=0.5, smoothing=0.1) == pytest.approx(0.9 * 0.3132616875 + 0.13132616875)
    assert lost(2.0, beta=0.5, smoothing=0.1, split="valid") == pytest.approx(0.3132616875)
    assert lost(2.0, beta=0.1, loss="ipo") == pytest.approx(9.0)
    assert lost(5.0, beta=0.1, loss="ipo") == pytest.approx(0.0)


@pytest.mark.parametrize("kind", ["sigmoid", "ipo"])
def test_the_loss_of_a_batch_by_hand(path: Path, kind: str) -> None:
    objective, model = make(Prefer, UNEVEN, path, loss=kind, beta=0.3), moved_from(path)
    pairs = ratios(path, model, objective)
    gaps = [chosen - rejected for chosen, rejected in pairs]
    assert max(map(abs, gaps)) > 0.1
    if kind == "ipo":
        wanted = sum((gap - 1 / 0.6) ** 2 for gap in gaps)
    else:
        wanted = sum(math.log1p(math.exp(-0.3 * gap)) for gap in gaps)
    loss = objective.loss(model, batch_of(objective))
    assert float(loss.sums["prefer"]) == pytest.approx(wanted, abs=1e-9)
    figures = objective.measure(loss)
    assert figures["accuracy"] == sum(gap > 0 for gap in gaps) / 4
    assert figures["margin"] == pytest.approx(0.3 * sum(gaps) / 4)
    assert figures["chosen"] == pytest.approx(0.3 * sum(pair[0] for pair in pairs) / 4)
    assert figures["rejected"] == pytest.approx(0.3 * sum(pair[1] for pair in pairs) / 4)
    assert figures["drift"] > 0


def test_at_the_start_nothing_is_preferred(path: Path) -> None:
    objective, model = make(Prefer, UNEVEN, path), opened(path)
    figures = objective.measure(objective.loss(model, batch_of(objective)))
    wanted = {"accuracy": 0.5, "margin": 0.0, "chosen": 0.0, "rejected": 0.0, "drift": 0.0}
    assert figures == {"loss": pytest.approx(math.log(2))} | wanted


def test_dropout_is_off_unless_asked_for(tmp_path: Path) -> None:
    """Else a model would differ from itself."""
    place = gpt(tmp_path / "gpt", width=16, layers=1)
    model = load(place).model
    for part in model.modules():
        if hasattr(part, "rate"):
            part.rate = 0.5
    model.train()
    objective = make(Prefer, UNEVEN, place)
    assert (
        float(objective.loss(model, batch_of(objective)).seen["drift"][0]) == 0 and model.training
    )
    objective = make(Prefer, UNEVEN, place, dropout=True)
    assert float(objective.loss(model, batch_of(objective)).seen["drift"][0]) > 0


def test_forgotten_activations_are_computed_again_at_rest(tmp_path: Path) -> None:
    """On the way back the model learns, with dropout; what it was asked without has none."""
    place = gpt(tmp_path / "gpt", width=16, layers=2)
    grads = []
    for forget in (False, True):
        model = moved_from(place).train()
        for part in model.modules():
            if hasattr(part, "rate"):
                part.rate = 0.5
        if forget:
            checkpoint_blocks(model)
        objective = make(Prefer, UNEVEN, place)
        learned(objective.loss(model, batch_of(objective)), objective).backward()
        assert all(part.training for part in model.modules())
        grads.append(gradients(model))
    for one, two in zip(*grads, strict=True):
        assert torch.equal(one, two)


def test_a_step_down_prefers_the_chosen(path: Path) -> None:
    objective, model = make(Prefer, UNEVEN, path), opened(path)
    batch = batch_of(objective)
    learned(objective.loss(model, batch), objective).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(1e-3 * parameter.grad)
    figures = objective.measure(objective.loss(model, batch))
    assert figures["loss"] < math.log(2) and figures["margin"] > 0 and figures["accuracy"] == 1.0
    assert figures["chosen"] > figures["rejected"] and figures["drift"] > 0


def test_chosen_replies_may_be_learned_as_text_beside(path: Path) -> None:
    objective, model = make(Prefer, UNEVEN, path, language=0.5), moved_from(path)
    loss = objective.loss(model, batch := batch_of(objective))
    wanted = 0.0
    for i, tokens in enumerate(batch["tokens"][::2]):
        row = tokens[batch["attention_mask"][2 * i]].tolist()
        prompt_size = int(objective.prompts[i])
        wanted -= float(spoken(model, row[:prompt_size], row[prompt_size:]).sum())
    assert float(loss.sums["language"]) == pytest.approx(wanted, abs=1e-9)
    assert loss.counts == {"prefer": 4.0, "language": 3.0 + 2 + 3 + 2}
    assert objective.weights == {"language": 0.5}
    parts_equal_the_whole(objective, model, [[0, 1, 2], [3]])
    assert "language" not in make(Prefer, UNEVEN, path, language=0.5, split="valid").counts(batch)


def test_micro_batches_add_up(path: Path) -> None:
    parts_equal_the_whole(make(Prefer, UNEVEN, path), moved_from(path), [[2], [0, 3, 1]])


# --- padding and memory -----------------------------------------------------------------------


def test_padding_on_either_side_changes_nothing(path: Path) -> None:
    objective, model = make(Prefer, UNEVEN, path), moved_from(path)
    batch = batch_of(objective)
    sums = log_probabilities(model, batch["tokens"], batch["scored"]).sum(1)
    for i, (tokens, attention_mask) in enumerate(
        zip(batch["tokens"], batch["attention_mask"], strict=True)
    ):
        row, prompt_size = tokens[attention_mask].tolist(), int(objective.prompts[i // 2])
        left, marks = torch.tensor([[9, 9, *row]]), torch.ones(1, len(row) + 2, dtype=torch.bool)
        marks[:, :2] = False
        log_p = F.log_softmax(model.logits(model(left, marks)), -1)[0]
        wanted = sum(float(log_p[at + 1, row[at]]) for at in range(prompt_size, len(row)))
        assert float(sums[i]) == pytest.approx(wanted, abs=1e-10)


def test_logits_in_chunks_are_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objective, model = make(Prefer, UNEVEN, path), moved_from(path)
    whole = objective.loss(model, batch := batch_of(objective))
    learned(whole, objective).backward()
    together = gradients(model)
    monkeypatch.setattr(replies, "CHUNK", 3 * model.config.vocab_size)
    parts = objective.loss(model, batch)
    learned(parts, objective).backward()
    assert float(parts.sums["prefer"]) == pytest.approx(float(whole.sums["prefer"]), abs=1e-12)
    for one, many in zip(together, gradients(model), strict=True):
        assert (one - many).abs().max() < 1e-12


# --- the start --------------------------------------------------------------------------------


def test_the_start_stays_as_it_is_and_is_no_part_of_the_model(tmp_path: Path) -> None:
    place = gpt(tmp_path / "gpt", width=16, layers=1)
    objective, model = make(Prefer, planted(16), place), load(place).model
    names = set(model.state_dict())
    learn(objective, model, steps=12, rate=0.01)
    assert set(model.state_dict()) == names
    start = objective.start(model)
    saved = load(place).model.state_dict()
    for name, value in start.state_dict().items():
        assert torch.equal(value, saved[name])
    assert not any(p.requires_grad for p in start.parameters()) and not start.training
    valid = make(Prefer, planted(16, seed=1), place, split="valid")
    assert valid.start(model) is start  # those who validate share it
    figures = valid.measure(valid.loss(model, batch_of(valid)))
    assert figures["accuracy"] == 1.0 and figures["margin"] > 0.1


def test_another_reference(tmp_path: Path, path: Path) -> None:
    far = save(moved_from(path).float(), tmp_path / "far", tokenizer())
    objective = make(Prefer, UNEVEN, path, reference=str(far))
    assert objective.measure(objective.loss(opened(path), batch_of(objective)))["drift"] > 0
    assert objective.measure(objective.loss(opened(far), batch_of(objective)))["drift"] == 0


@pytest.mark.parametrize("family", ABLE)
def test_every_model_that_goes_on_with_a_text(family: str, tmp_path: Path) -> None:
    place = other(tmp_path / family, family)
    objective, model = make(Prefer, UNEVEN, place, family=family), opened(place)
    objective.check(model)
    loss = objective.loss(model, batch_of(objective))
    assert objective.measure(loss)["loss"] == pytest.approx(math.log(2))
    learned(loss, objective).backward()
    assert sum(float(g.abs().sum()) for g in gradients(model)) > 0


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"family": "bert"}, ConfigError, ["bert", "gpt, transformer-xl"]),
        ({"family": "t5"}, ConfigError, ["t5", "gpt, transformer-xl"]),
        ({"beta": 0.0}, ConfigError, ["objective.beta is 0,"]),
        ({"smoothing": 0.5}, ConfigError, ["smoothing 0.5"]),
        ({"loss": "ipo", "smoothing": 0.1}, ConfigError, ["objective.smoothing", "ipo"]),
        ({"loss": "hinge"}, ConfigError, ["objective.loss is 'hinge'", "sigmoid, ipo"]),
        ({"reference": "no/where"}, ConfigError, ["no/where", "reference"]),
        ({"length": 2}, InputError, ["train", "2 tokens", "batch.seq_len"]),
    ],
)
def test_refusals(
    path: Path, options: dict[str, Any], error: type[RegardError], names: list[str]
) -> None:
    with refuses(error, *names):
        make(Prefer, UNEVEN, path, **options)


def test_refused_models_and_data(path: Path) -> None:
    alone = [Preference("a", place=FileLine("pairs.jsonl", 3))]
    with refuses(InputError, "pairs.jsonl:3", "chosen", "rejected"):
        make(Prefer, alone, path)
    objective = make(Prefer, UNEVEN, path)
    with refuses(ConfigError, "bert", "gpt"):
        objective.check(model_of("bert", {"masked": 0}))
    with refuses(ConfigError, "9 rows", "8 positions"):
        make(Prefer, [Preference("a b c d e", "f g h", "i")], path).check(
            model_of("gpt", {}, context=8)
        )


def test_a_reference_must_read_the_same_tokens(path: Path, tmp_path: Path) -> None:
    few = tokenizer(("pad", "unk", "eos"))
    place = save(model_of("gpt", {}, vocab_size=len(few)), tmp_path / "few", few)
    with refuses(ConfigError, place, "24 tokens", "27 tokens"):
        make(Prefer, UNEVEN, path, reference=str(place))
    wide = gpt(tmp_path / "wide", vocab_size=64)  # the same tokenizer, more rows
    objective = make(Prefer, UNEVEN, path, reference=str(wide))
    with refuses(ConfigError, wide, "64 tokens", "27"):
        objective.loss(opened(path), batch_of(objective))
