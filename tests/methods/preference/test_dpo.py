"""DPO and its kin: which tokens count, losses by hand, the start, micro-batches, padding."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from regard.api import load
from regard.core.errors import ConfigError, InputError
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
from tests.tasks.judging import END, PAD, learn, model_of, tokenizer


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt(tmp_path_factory.mktemp("models") / "gpt")


def ratios(path: Path, model: Any, made: Prefer) -> list[tuple[float, float]]:
    """log π/π₀ of every chosen and every rejected reply, each from a row of its own."""
    start, found = opened(path), []
    for i in range(len(made)):
        batch = batch_of(made, [i])
        pair = []
        for row, attention_mask in zip(batch["tokens"], batch["attention_mask"], strict=True):
            ids, asked = row[attention_mask].tolist(), int(made.prompts[i])
            one, two = (spoken(m, ids[:asked], ids[asked:]).sum() for m in (model, start))
            pair.append(float(one - two))
        found.append((pair[0], pair[1]))
    return found


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
    made, model = make(Prefer, UNEVEN[:1], path), moved_from(path)
    batch = batch_of(made)
    found = log_probabilities(model, batch["tokens"], batch["scored"])
    assert found[:, :2].abs().max() == 0
    wanted = spoken(model, words("a b c"), [*words("d e"), END])
    assert found[0, 2:5].tolist() == pytest.approx(wanted.tolist(), abs=1e-12)


# --- losses -----------------------------------------------------------------------------------


def test_losses_of_a_gap_by_hand(path: Path) -> None:
    def lost(gap: float, **options: Any) -> float:
        made = make(Prefer, UNEVEN, path, **options)
        return float(made.each(torch.tensor([gap], dtype=torch.float64)))

    assert lost(0.0) == pytest.approx(math.log(2))
    assert lost(2.0, beta=0.5) == pytest.approx(0.3132616875)
    assert lost(-2.0, beta=0.5) == pytest.approx(1.3132616875)
    assert lost(2.0, beta=0.5, smoothing=0.1) == pytest.approx(0.9 * 0.3132616875 + 0.13132616875)
    assert lost(2.0, beta=0.5, smoothing=0.1, split="valid") == pytest.approx(0.3132616875)
    assert lost(2.0, beta=0.1, loss="ipo") == pytest.approx(9.0)
    assert lost(5.0, beta=0.1, loss="ipo") == pytest.approx(0.0)


@pytest.mark.parametrize("kind", ["sigmoid", "ipo"])
def test_the_loss_of_a_batch_by_hand(path: Path, kind: str) -> None:
    made, model = make(Prefer, UNEVEN, path, loss=kind, beta=0.3), moved_from(path)
    pairs = ratios(path, model, made)
    gaps = [chosen - rejected for chosen, rejected in pairs]
    assert max(map(abs, gaps)) > 0.1
    if kind == "ipo":
        wanted = sum((gap - 1 / 0.6) ** 2 for gap in gaps)
    else:
        wanted = sum(math.log1p(math.exp(-0.3 * gap)) for gap in gaps)
    found = made.loss(model, batch_of(made))
    assert float(found.sums["prefer"]) == pytest.approx(wanted, abs=1e-9)
    figures = made.measure(found)
    assert figures["accuracy"] == sum(gap > 0 for gap in gaps) / 4
    assert figures["margin"] == pytest.approx(0.3 * sum(gaps) / 4)
    assert figures["chosen"] == pytest.approx(0.3 * sum(pair[0] for pair in pairs) / 4)
    assert figures["rejected"] == pytest.approx(0.3 * sum(pair[1] for pair in pairs) / 4)
    assert figures["drift"] > 0


def test_at_the_start_nothing_is_preferred(path: Path) -> None:
    made, model = make(Prefer, UNEVEN, path), opened(path)
    found = made.measure(made.loss(model, batch_of(made)))
    wanted = {"accuracy": 0.5, "margin": 0.0, "chosen": 0.0, "rejected": 0.0, "drift": 0.0}
    assert found == {"loss": pytest.approx(math.log(2))} | wanted


def test_dropout_is_off_unless_asked_for(tmp_path: Path) -> None:
    """Else a model would differ from itself."""
    place = gpt(tmp_path / "gpt", width=16, layers=1)
    model = load(place).model
    for part in model.modules():
        if hasattr(part, "rate"):
            part.rate = 0.5
    model.train()
    made = make(Prefer, UNEVEN, place)
    assert float(made.loss(model, batch_of(made)).seen["drift"][0]) == 0 and model.training
    made = make(Prefer, UNEVEN, place, dropout=True)
    assert float(made.loss(model, batch_of(made)).seen["drift"][0]) > 0


def test_forgotten_activations_are_computed_again_at_rest(tmp_path: Path) -> None:
    """On the way back the model learns, with dropout; what it was asked without has none."""
    place = gpt(tmp_path / "gpt", width=16, layers=2)
    found = []
    for forget in (False, True):
        model = moved_from(place).train()
        for part in model.modules():
            if hasattr(part, "rate"):
                part.rate = 0.5
        if forget:
            checkpoint_blocks(model)
        made = make(Prefer, UNEVEN, place)
        learned(made.loss(model, batch_of(made)), made).backward()
        assert all(part.training for part in model.modules())
        found.append(gradients(model))
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)


def test_a_step_down_prefers_the_chosen(path: Path) -> None:
    made, model = make(Prefer, UNEVEN, path), opened(path)
    batch = batch_of(made)
    learned(made.loss(model, batch), made).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(1e-3 * parameter.grad)
    found = made.measure(made.loss(model, batch))
    assert found["loss"] < math.log(2) and found["margin"] > 0 and found["accuracy"] == 1.0
    assert found["chosen"] > found["rejected"] and found["drift"] > 0


def test_chosen_replies_may_be_learned_as_text_beside(path: Path) -> None:
    made, model = make(Prefer, UNEVEN, path, language=0.5), moved_from(path)
    found = made.loss(model, batch := batch_of(made))
    wanted = 0.0
    for i, tokens in enumerate(batch["tokens"][::2]):
        row = tokens[batch["attention_mask"][2 * i]].tolist()
        asked = int(made.prompts[i])
        wanted -= float(spoken(model, row[:asked], row[asked:]).sum())
    assert float(found.sums["language"]) == pytest.approx(wanted, abs=1e-9)
    assert found.counts == {"prefer": 4.0, "language": 3.0 + 2 + 3 + 2}
    assert made.weights == {"language": 0.5}
    parts_equal_the_whole(made, model, [[0, 1, 2], [3]])
    assert "language" not in make(Prefer, UNEVEN, path, language=0.5, split="valid").counts(batch)


def test_micro_batches_add_up(path: Path) -> None:
    parts_equal_the_whole(make(Prefer, UNEVEN, path), moved_from(path), [[2], [0, 3, 1]])


# --- padding and memory -----------------------------------------------------------------------


def test_padding_on_either_side_changes_nothing(path: Path) -> None:
    made, model = make(Prefer, UNEVEN, path), moved_from(path)
    batch = batch_of(made)
    found = log_probabilities(model, batch["tokens"], batch["scored"]).sum(1)
    for i, (tokens, attention_mask) in enumerate(
        zip(batch["tokens"], batch["attention_mask"], strict=True)
    ):
        row, asked = tokens[attention_mask].tolist(), int(made.prompts[i // 2])
        left, marks = torch.tensor([[9, 9, *row]]), torch.ones(1, len(row) + 2, dtype=torch.bool)
        marks[:, :2] = False
        log_p = F.log_softmax(model.logits(model(left, marks)), -1)[0]
        wanted = sum(float(log_p[at + 1, row[at]]) for at in range(asked, len(row)))
        assert float(found[i]) == pytest.approx(wanted, abs=1e-10)


def test_logits_in_chunks_are_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, model = make(Prefer, UNEVEN, path), moved_from(path)
    whole = made.loss(model, batch := batch_of(made))
    learned(whole, made).backward()
    together = gradients(model)
    monkeypatch.setattr(replies, "CHUNK", 3 * model.config.vocab_size)
    parts = made.loss(model, batch)
    learned(parts, made).backward()
    assert float(parts.sums["prefer"]) == pytest.approx(float(whole.sums["prefer"]), abs=1e-12)
    for one, many in zip(together, gradients(model), strict=True):
        assert (one - many).abs().max() < 1e-12


# --- the start --------------------------------------------------------------------------------


def test_the_start_stays_as_it_is_and_is_no_part_of_the_model(tmp_path: Path) -> None:
    place = gpt(tmp_path / "gpt", width=16, layers=1)
    made, model = make(Prefer, planted(16), place), load(place).model
    names = set(model.state_dict())
    learn(made, model, steps=12, rate=0.01)
    assert set(model.state_dict()) == names
    start = made.start(model)
    kept = load(place).model.state_dict()
    for name, value in start.state_dict().items():
        assert torch.equal(value, kept[name])
    assert not any(p.requires_grad for p in start.parameters()) and not start.training
    valid = make(Prefer, planted(16, seed=1), place, split="valid")
    assert valid.start(model) is start  # those who validate share it
    found = valid.measure(valid.loss(model, batch_of(valid)))
    assert found["accuracy"] == 1.0 and found["margin"] > 0.1


def test_another_reference(tmp_path: Path, path: Path) -> None:
    far = save(moved_from(path).float(), tmp_path / "far", tokenizer())
    made = make(Prefer, UNEVEN, path, reference=str(far))
    assert made.measure(made.loss(opened(path), batch_of(made)))["drift"] > 0
    assert made.measure(made.loss(opened(far), batch_of(made)))["drift"] == 0


@pytest.mark.parametrize("family", ABLE)
def test_every_model_that_goes_on_with_a_text(family: str, tmp_path: Path) -> None:
    place = other(tmp_path / family, family)
    made, model = make(Prefer, UNEVEN, place, family=family), opened(place)
    made.check(model)
    found = made.loss(model, batch_of(made))
    assert made.measure(found)["loss"] == pytest.approx(math.log(2))
    learned(found, made).backward()
    assert sum(float(g.abs().sum()) for g in gradients(model)) > 0


# --- refusals ---------------------------------------------------------------------------------


def test_refusals(path: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"family": "bert"}, "bert cannot learn from preferences.*these can: gpt, transformer-xl"),
        ({"family": "t5"}, "t5 cannot learn"),
        ({"beta": 0.0}, "beta must be above 0"),
        ({"smoothing": 0.5}, "smoothing from 0 to below 0.5"),
        ({"loss": "ipo", "smoothing": 0.1}, "ipo has none"),
        ({"loss": "hinge"}, "sigmoid, ipo"),
        ({"reference": str(tmp_path / "none")}, "is no model directory"),
    ]
    for options, message in cases:
        with pytest.raises(ConfigError, match=message):
            make(Prefer, UNEVEN, path, **options)
    alone = [Preference("a", place=FileLine("pairs.jsonl", 3))]
    with pytest.raises(InputError, match=r"pairs.jsonl:3: a prompt without replies"):
        make(Prefer, alone, path)
    with pytest.raises(InputError, match="all 4 pairs of the train data have a reply of 2"):
        make(Prefer, UNEVEN, path, length=2)
    made = make(Prefer, UNEVEN, path)
    with pytest.raises(ConfigError, match="the model is a bert"):
        made.check(model_of("bert", {"masked": 0}))
    with pytest.raises(ConfigError, match="9 rows, but this model has 8 positions"):
        make(Prefer, [Preference("a b c d e", "f g h", "i")], path).check(
            model_of("gpt", {}, context=8)
        )


def test_a_reference_must_read_the_same_tokens(path: Path, tmp_path: Path) -> None:
    few = tokenizer(("pad", "unk", "eos"))
    place = save(model_of("gpt", {}, vocab_size=len(few)), tmp_path / "few", few)
    with pytest.raises(ConfigError, match=r"another tokenizer.*must read the same tokens"):
        make(Prefer, UNEVEN, path, reference=str(place))
    wide = gpt(tmp_path / "wide", vocab_size=64)  # the same tokenizer, more rows
    made = make(Prefer, UNEVEN, path, reference=str(wide))
    with pytest.raises(ConfigError, match=r"knows 64 tokens.*the same vocabulary"):
        made.loss(opened(path), batch_of(made))
