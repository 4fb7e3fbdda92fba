"""Two passes that are to agree: by the naive formula, with every kind of answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import regard.training.rdrop as agree_file
from regard.attention.dropout import Dropout
from regard.core.errors import ConfigError
from regard.data.examples import LabeledExample, MultipleChoice
from regard.models.bert import Bert
from regard.models.output import SoftTarget
from regard.models.state import State
from regard.objectives.base import Batch, Objective
from regard.objectives.reading import inner
from regard.tasks.choose import Choose
from regard.tasks.classify import Classify
from regard.tasks.link import EntityCandidate, Link, Mention
from regard.tasks.multilabel import Multilabel, MultiLabelExample
from regard.training.capture import Capture
from regard.training.rdrop import RDrop, agreeing, divergence
from tests.refusals import refuses
from tests.tasks import answers, judging, tagging
from tests.training.small import STILL, loop_of


def lively(model: Any, rate: float = 0.2) -> Any:
    """With dropout, to learn."""
    for part in model.modules():
        if isinstance(part, Dropout):
            part.rate = rate
    return model.train().requires_grad_(True)


def naive(p: Tensor, q: Tensor) -> Tensor:
    """½ (KL(p‖q) + KL(q‖p)) of log-probabilities, as torch has it; where both are 0, nothing is."""
    there = p > -torch.inf
    p, q = p[there], q[there]
    one = F.kl_div(q, p, reduction="sum", log_target=True)
    return (one + F.kl_div(p, q, reduction="sum", log_target=True)) / 2


def twice(ask: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return ask().detach(), ask().detach()


def found(objective: Any, model: Any, batch: Batch) -> dict[str, Tensor]:
    torch.manual_seed(5)
    loss = objective.loss(model, batch)
    assert set(loss.counts) == set(loss.sums)
    return {name: value.detach() for name, value in loss.sums.items()}


def test_a_divergence_is_that_of_torch() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 6, 9, dtype=torch.float64)
    each = divergence(a, b)
    for i in range(6):
        wanted = naive(a[i].log_softmax(0), b[i].log_softmax(0))
        assert float(each[i]) == pytest.approx(float(wanted), rel=1e-12)
    assert (each > 0).all() and not divergence(a, a).any()
    inside = torch.rand(6, 9) < 0.5
    inside[:, 0] = True
    for x in (a, b):
        x.requires_grad_(True)
    part = divergence(a, b, inside)
    part.sum().backward()
    for i in range(6):
        wanted = naive(
            a[i][inside[i]].detach().log_softmax(0), b[i][inside[i]].detach().log_softmax(0)
        )
        assert float(part[i].detach()) == pytest.approx(float(wanted), rel=1e-12)
    assert a.grad is not None and a.grad.isfinite().all() and not a.grad[~inside].any()


# -- heads


def texts() -> list[LabeledExample]:
    return [
        LabeledExample("a c d", label="x"),
        LabeledExample("b", label="y"),
        LabeledExample("d e f g", label=None),
    ]


def judged_twice(kind: Any, examples: Any, heads: dict[str, int]) -> Any:
    """The sums of an objective whose passes have to agree, its batch, and what both passes say."""
    objective = judging.build(kind, "bert", examples)
    model = lively(judging.model_of("bert", heads, torch.float64))
    batch = judging.batch_of(objective)
    sums = found(RDrop(objective, 1.0), model, batch)
    return sums, batch, *twice(lambda: objective.scores(model, batch))


def test_classes() -> None:
    """Nothing is learned from a text without a label, nor have passes to agree on it."""
    examples = judging.examples("classify", texts(), ["x", "y"])
    sums, batch, one, two = judged_twice(Classify, examples, {"classify": 2})
    wanted = sum(naive(one[i].log_softmax(0), two[i].log_softmax(0)) for i in (0, 1))
    assert float(sums["classify_apart"]) == pytest.approx(float(wanted), rel=1e-10)
    assert float(wanted) > 1e-3
    gold = batch["gold"]
    both = [F.cross_entropy(x[:2], gold[:2], reduction="sum") for x in (one, two)]
    assert float(sums["classify"]) == pytest.approx(float(sum(both)) / 2, rel=1e-10)


def test_scores_are_apart_by_their_square() -> None:
    examples = [LabeledExample("a c", "b", label="1.5"), LabeledExample("b", "c d", label="0.5")]
    similar = judging.examples("similar", examples)
    sums, _, one, two = judged_twice(Classify, similar, {"classify": 1})
    assert float(sums["classify_apart"]) == pytest.approx(float((one - two).square().sum()))


def test_the_language_model_beside_a_task() -> None:
    objective = judging.build(Classify, "gpt", judging.examples("classify", texts(), ["x", "y"]))
    model = lively(judging.model_of("gpt", {"classify": 2}, torch.float64))
    batch = judging.batch_of(objective)
    rdrop = RDrop(objective, 3.0)
    sums = found(rdrop, model, batch)

    def ask() -> Tensor:
        hidden = objective.hidden(model, batch)
        objective.judged(model, hidden, batch)  # whose dropout draws, too
        return model.logits(hidden).log_softmax(-1)

    one, two = twice(ask)
    wanted = 0.0
    for i, attention_mask in enumerate(batch["attention_mask"]):
        rows = int(attention_mask.sum()) - 1
        wanted += sum(float(naive(one[i, t], two[i, t])) for t in range(rows)) / rows
    assert float(sums["language_apart"]) == pytest.approx(wanted, rel=1e-9)
    assert rdrop.weights == {"language": 0.5, "language_apart": 1.5, "classify_apart": 3.0}
    assert rdrop.counts(batch)["language_apart"] == 3


def test_choices() -> None:
    examples = [
        MultipleChoice("a c", ("b", "d e"), None, 1),
        MultipleChoice("d", ("e", "f g", "h"), None, 0),
        MultipleChoice("d", ("e", "f g"), None, None),
    ]
    sums, _, *both = judged_twice(Choose, judging.examples("choose", examples), {"choose": 1})
    one, two = (x.log_softmax(1) for x in both)
    wanted = naive(one[0], two[0]) + naive(one[1], two[1])
    assert float(sums["choose_apart"]) == pytest.approx(float(wanted), rel=1e-10)


def test_classes_that_are_each_a_yes_or_no() -> None:
    examples = [
        MultiLabelExample("a c d", None, ("x",)),
        MultiLabelExample("b", None, ()),
        MultiLabelExample("d e f g"),
    ]
    several = judging.examples("multilabel", examples, ["x", "y"])
    sums, _, *both = judged_twice(Multilabel, several, {"classify": 2})
    chances = [torch.stack([F.logsigmoid(x), F.logsigmoid(-x)]) for x in (x[:2] for x in both)]
    assert float(sums["multilabel_apart"]) == pytest.approx(float(naive(*chances)) / 2, rel=1e-10)


def test_candidates_of_a_mention() -> None:
    examples = [
        Mention("a c", "a", (EntityCandidate("b"), EntityCandidate("d", "e")), "d"),
        Mention("d f", "f", tuple(map(EntityCandidate, "egh")), "h"),
    ]
    sums, _, *both = judged_twice(Link, judging.examples("link", examples), {"choose": 1})
    one, two = (x.log_softmax(1) for x in both)
    assert float(sums["link_apart"]) == pytest.approx(float(naive(one, two)), rel=1e-10)


@pytest.mark.parametrize("options", [{}, {"weights": "balanced"}, {"crf": True}], ids=str)
def test_tags(options: dict[str, Any]) -> None:
    objective = tagging.objective(tagging.sentences(4), tagging.pieces(), **options)
    model = lively(objective.adapt_model(tagging.model("bert")).double())
    batch = tagging.whole(objective)
    sums = found(RDrop(objective, 1.0), model, batch)
    one, two = twice(lambda: objective.scores(model, batch).log_softmax(-1))
    known = objective.known(batch)
    shares = batch.get("shares", known.double())
    wanted = sum(
        float(shares[place]) * float(naive(one[place], two[place]))
        for place in map(tuple, known.nonzero().tolist())
    )
    assert float(sums["tag_apart"]) == pytest.approx(wanted, rel=1e-9)


def test_ends_of_answers() -> None:
    objective = answers.objective("bert", answers.long_ones(4), 24)
    model = lively(answers.model_of("bert", torch.float64))
    batch = answers.batch_of(objective)
    sums = found(RDrop(objective, 1.0), model, batch)
    one, two = twice(lambda: model.read("answer", objective.hidden(model, batch)))
    wanted = 0.0
    for i, attention_mask in enumerate(batch["attention_mask"]):
        first, second = (x[i][attention_mask].log_softmax(0) for x in (one, two))
        wanted += float(sum(naive(first[:, k], second[:, k]) for k in (0, 1))) / 2
    assert float(sums["answer_apart"]) == pytest.approx(wanted, rel=1e-9)


def test_answers_of_xlnet_that_may_be_missing() -> None:
    objective = answers.objective("xlnet", answers.long_ones(4, impossible=True), 24)
    model = lively(answers.model_of("xlnet", torch.float64))
    batch = answers.batch_of(objective)
    rdrop = RDrop(objective, 2.0)
    sums = found(rdrop, model, batch)
    assert rdrop.weights == {"answerable": 0.5, "answerable_apart": 1.0, "answer_apart": 2.0}
    head = model.heads["span"]

    def ask() -> tuple[Tensor, Tensor, Tensor]:
        hidden, inside = objective.hidden(model, batch), batch["eligible"]
        starts = head(hidden).masked_fill(~inside, -torch.inf)
        ends = head.ends(hidden, batch["start"]).masked_fill(~inside, -torch.inf)
        return starts, ends, head.unanswerable(hidden, starts, inside)

    torch.manual_seed(5)
    with torch.no_grad():
        one, two = ask(), ask()
    spans = sum(naive(one[k].log_softmax(1), two[k].log_softmax(1)) for k in (0, 1))
    assert float(sums["answer_apart"]) == pytest.approx(float(spans) / 2, rel=1e-9)
    sure = [torch.stack([F.logsigmoid(x[2]), F.logsigmoid(-x[2])]) for x in (one, two)]
    assert float(sums["answerable_apart"]) == pytest.approx(float(naive(*sure)), rel=1e-9)


# -- words


@pytest.mark.parametrize("family", ["gpt", "bert", "t5", "xlnet", "transformer-xl"])
def test_without_dropout_passes_agree(family: str, where: Path) -> None:
    """Memories included: the second pass must not remember the first."""
    changes: dict[str, Any] = {"shape": STILL[family], "batch": {"size": 4, "grad_accum": 2}}
    plain = loop_of(family, where, **changes)
    both = loop_of(family, where, robust={"rdrop": 1.0}, **changes)
    for _ in range(2):
        one, two = plain.step(4), both.step(4)
        apart = {name: loss for name, loss in two.losses.items() if name.endswith("_apart")}
        assert apart and all(abs(loss) < 1e-7 for loss in apart.values())
        for name, loss in one.losses.items():
            assert two.losses[name] == pytest.approx(loss, rel=1e-5)
        assert two.norm == pytest.approx(one.norm, rel=1e-3)
        assert two.tokens == one.tokens


@pytest.mark.parametrize("chunk", [2**25, 200])
def test_words_by_the_naive_formula(
    chunk: int, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few rows are computed at a time, and their gradients with them."""
    monkeypatch.setattr(agree_file, "CHUNK", chunk)
    changes: dict[str, Any] = {"engine": {"precision": "fp64"}, "robust": {"rdrop": 0.7}}
    loop = loop_of("gpt", where, **changes)
    model, objective = loop.model, loop.objective
    batch = loop.batches.make(0)[0]
    torch.manual_seed(5)
    loss = objective.loss(model, batch)
    loop.total(loss.sums, loss.counts).backward()
    mine = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    torch.manual_seed(5)
    one, two = (model.logits(model(batch["tokens"]))[batch["scored"]] for _ in range(2))
    words, count = batch["targets"][batch["scored"]], int(batch["scored"].sum())
    nats = (F.cross_entropy(one, words) + F.cross_entropy(two, words)) / 2
    apart = naive(one.log_softmax(-1), two.log_softmax(-1))
    assert float(loss.sums["causal_apart"].detach()) == pytest.approx(float(apart.detach()))
    assert float(apart.detach()) > 1e-3
    (nats + 0.7 * apart / count).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and (p.grad - mine[name]).abs().max() < 1e-10, name


def test_adaptive_words(where: Path) -> None:
    """Whose output gives log-probabilities."""
    shape = {"cutoffs": [10, 25], "ratio": 2}
    loop = loop_of("transformer-xl", where, shape=shape, robust={"rdrop": 1.0},
                   engine={"precision": "fp64"})  # fmt: skip
    batch = loop.batches.make(0)[0]
    torch.manual_seed(5)
    loss = loop.objective.loss(loop.model, batch, State())
    torch.manual_seed(5)
    one, two = (loop.model.logits(loop.model(batch["tokens"]))[batch["scored"]] for _ in range(2))
    wanted = float(naive(one, two).detach())
    assert float(loss.sums["recurrent_apart"].detach()) == pytest.approx(wanted, rel=1e-9)


def test_hidden_words_and_sentences(where: Path) -> None:
    losses = loop_of("bert", where, robust={"rdrop": 1.0}).step(4).losses
    assert list(losses) == ["masked", "next", "masked_apart", "next_apart"]
    assert losses["masked_apart"] > 0 and losses["next_apart"] > 0


def test_a_mixture_agrees_part_by_part(where: Path) -> None:
    parts = [
        {"objective": "causal", "share": 3},
        {"name": "whole", "objective": "prefix", "share": 1, "seq_len": 12},
    ]
    loop = loop_of("gpt", where, objective={"name": "mixture", "parts": parts},
                   robust={"rdrop": 2.0, "adversary": "fgm"})  # fmt: skip
    step = loop.step(4)
    names = ["causal.causal", "causal.causal_apart", "whole.prefix", "whole.prefix_apart"]
    assert sorted(step.losses) == names and all(step.losses.values())
    weights = loop.objective.weights
    assert weights["causal.causal_apart"] == 2 * weights["causal.causal"] == 1.5
    wanted = sum(weights[name] * loss for name, loss in step.losses.items())
    assert step.loss == pytest.approx(wanted)


def test_both_passes_read_the_same_disturbed_words(where: Path) -> None:
    """Without dropout two passes over words that are moved alike agree."""
    robust = {"rdrop": 1.0, "token_noise": 0.3, "neftune": 5.0, "adversary": "freelb"}
    loop = loop_of("t5", where, shape=STILL["t5"], robust=robust)
    step = loop.step(4)
    assert abs(step.losses["span_apart"]) < 1e-7
    plain = loop_of("t5", where, shape=STILL["t5"]).step(4)
    assert abs(step.losses["span"] - plain.losses["span"]) > 1e-4


# -- what stands behind it


class Strange(Objective):
    name = "strange"

    def __init__(self) -> None:
        pass


def test_an_objective_that_says_nothing_known() -> None:
    with refuses(ConfigError, "robust.rdrop", "'strange'"):
        agreeing(Strange(), 1.0)


def test_a_watched_model_answers_as_the_model_does() -> None:
    model = judging.model_of("bert", {"masked": 0, "classify": 2})
    seen = Capture(model)
    assert not isinstance(seen, Bert) and inner(seen) is model
    assert [seen.training, model.train() and seen.training, model.eval() and seen.training] == [
        False, True, False,
    ]  # fmt: skip
    tokens = torch.randint(6, 20, (2, 5))
    hidden = seen(tokens)
    assert torch.equal(hidden, model(tokens)) and seen.hidden == [hidden]
    rows, wanted = hidden.flatten(0, 1), tokens.flatten()
    nats = seen.output.surprisal(rows, wanted)
    assert torch.equal(nats, model.output.surprisal(rows, wanted))
    (call,) = seen.words
    assert call.hidden is rows and call.targets is wanted and call.shares is None
    assert call.nats is nats
    soft = SoftTarget(0.9, 0.01)
    assert torch.equal(
        seen.output.softened(rows, wanted, soft), model.output.softened(rows, wanted, soft)
    )
    logits, alone = seen.read("classify", hidden), seen.heads["classify"](hidden)
    assert torch.equal(logits, alone) and torch.equal(logits, model.read("classify", hidden))
    noted = [(one.head, one.scores) for one in seen.scores]
    assert noted == [("classify", logits), ("classify", alone)] and len(seen.words) == 2
