"""Distillation: both models asked alike, sums that add up, what belongs to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.recorder import record
from regard.core.errors import ConfigError, FormatError
from regard.methods.distill import losses as losses
from regard.methods.distill.layers import capture_layers
from regard.methods.distill.objective import STYLES, Distill
from regard.models.extensions import extend
from regard.models.state import State
from regard.objectives.masked import Masked
from regard.objectives.reading import read_on
from regard.training.train_module import checkpoint_blocks
from tests.methods.distill.teaching import ABLE, ALL, FAMILIES, first_batch, labeled, teach, values
from tests.methods.distill.teaching import corpora as corpora  # a fixture
from tests.objectives.rules import check_micro_batches, make, same, tiny
from tests.refusals import refuses
from tests.tasks.judging import batch_of, model_of

# --- both models are asked alike -----------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_student_that_is_its_teacher_loses_nothing(
    corpora: dict[str, Any], tmp_path: Path, family: str
) -> None:
    of, options = FAMILIES[family]
    parts = {**ALL, "cosine": 1.0} | ({"attention": 0.0} if family == "lstm" else {})
    model = tiny(family)
    objective = teach(corpora, model, tmp_path / "teacher", of, options, **parts)
    objective.check(model.double())
    batch = first_batch(objective)
    loss = objective.loss(model.train(), batch, objective.begin(model, 4))
    assert loss.counts == objective.counts(batch) and loss.sums.keys() == loss.counts.keys()
    for name, value in values(loss).items():
        assert (value > 1) if name == of else (abs(value) < 1e-9), name
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    moved = values(objective.loss(model, batch, objective.begin(model, 4)))
    assert all(value > 1e-3 for value in moved.values()), moved


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("only", ["targets", "all"])
def test_micro_batches_add_up(
    corpora: dict[str, Any], tmp_path: Path, family: str, only: str
) -> None:
    """A narrower student of one layer, every loss at once."""
    of, options = FAMILIES[family]
    parts = ALL | ({"attention": 0.0} if family == "lstm" else {})
    objective = teach(corpora, tiny(family), tmp_path / "teacher", of, options, only=only, **parts)
    student = objective.adapt_model(tiny(family, layers=1, width=8)).double()
    objective.check(student)
    check_micro_batches(objective, student, [0, 1, 2, 3, 4])


def test_padding_does_not_matter(corpora: dict[str, Any], tmp_path: Path) -> None:
    """A pair loses the same beside a longer one."""
    objective = teach(
        corpora, tiny("transformer"), tmp_path / "teacher", "pairs", {"multiple": 1}, **ALL
    )
    student = tiny("transformer", layers=1).double()
    samples = [objective.get(i) for i in range(6)]
    alone = [values(objective.loss(student, objective.collate([one]))) for one in samples]
    together = values(objective.loss(student, objective.collate(samples)))
    for name, value in together.items():
        assert value == pytest.approx(sum(one[name] for one in alone), rel=1e-9), name


def test_the_last_states_and_all_words_of_distilbert(
    corpora: dict[str, Any], tmp_path: Path
) -> None:
    """Recomputed from the two models, padding left out."""
    options = {"documents": "separate"}
    teacher, student = tiny("bert"), tiny("bert", layers=1)
    objective = teach(corpora, teacher, tmp_path / "teacher", "masked", options, style="distilbert")
    assert objective.weights == {"masked": 2.0, "soft_masked": 5.0, "cosine": 1.0}
    batch = first_batch(objective)
    loss = objective.loss(student.train(), batch)
    attention_mask = batch["attention_mask"]
    assert not attention_mask.all()
    assert loss.counts["cosine"] == loss.counts["soft_masked"] == attention_mask.sum()
    ours, theirs = (
        model.eval()(batch["tokens"], attention_mask)[attention_mask]
        for model in (student, teacher)
    )
    angle = nn.CosineEmbeddingLoss(reduction="sum")(ours, theirs, torch.ones(len(ours)))
    torch.testing.assert_close(loss.sums["cosine"], angle, rtol=1e-4, atol=1e-4)
    scores = F.log_softmax(student.output(ours) / 2, -1), F.softmax(teacher.output(theirs) / 2, -1)
    soft = F.kl_div(*scores, reduction="sum") * 4
    torch.testing.assert_close(loss.sums["soft_masked"], soft, rtol=1e-4, atol=1e-4)


def test_the_layers_of_tinybert(corpora: dict[str, Any], tmp_path: Path) -> None:
    """Recomputed: states through the shared matrix, scores of the heads before the softmax."""
    teacher, student = tiny("bert", layers=4), tiny("bert", width=8)
    objective = teach(corpora, teacher, tmp_path / "teacher", "masked", style="tinybert")
    student = objective.adapt_model(student)
    batch = first_batch(objective)
    loss = objective.loss(student, batch)
    assert set(loss.sums) == {"hidden", "attention", "embedding"}
    rows = float(batch["tokens"].numel())
    assert loss.counts == dict.fromkeys(loss.sums, rows)
    with capture_layers(student, attention=True) as mine, record(student) as seen:
        student(batch["tokens"])
    with capture_layers(teacher, attention=True) as its:
        teacher(batch["tokens"])
    ours, theirs = mine[""], its[""]
    apart = sum(
        F.mse_loss(student.fit(ours.hidden[i]), theirs.hidden[j]) for i, j in ((1, 2), (2, 4))
    )
    torch.testing.assert_close(loss.sums["hidden"] / rows, apart, rtol=1e-4, atol=1e-5)
    first = F.mse_loss(student.fit(ours.hidden[0]), theirs.hidden[0])
    torch.testing.assert_close(loss.sums["embedding"] / rows, first, rtol=1e-4, atol=1e-5)
    scores = sum(
        F.mse_loss(ours.scores[i - 1].scores, theirs.scores[j - 1].scores)
        for i, j in ((1, 2), (2, 4))
    )
    torch.testing.assert_close(loss.sums["attention"] / rows, scores, rtol=1e-4, atol=1e-5)
    weights = ours.scores[0].scores.softmax(-1)  # what was heard is what the model computes with
    torch.testing.assert_close(weights, seen[0].weights, rtol=1e-4, atol=1e-5)


def test_what_is_heard_has_a_gradient_and_changes_nothing() -> None:
    model = tiny("gpt")
    tokens = torch.randint(0, 30, (2, 6), generator=torch.Generator().manual_seed(1))
    plain = model(tokens)
    with capture_layers(model, attention=True) as heard:
        again = model(tokens)
    assert torch.equal(plain, again)
    query = model.blocks[0].attention.layer.project.weight
    (grad,) = torch.autograd.grad(heard[""].scores[0].scores.sum(), query)
    assert grad.abs().sum() > 0
    with_hooks = [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert not with_hooks and len(heard[""].hidden) == 3


def test_layers_that_compute_themselves_again(corpora: dict[str, Any], tmp_path: Path) -> None:
    """States are compared as ever; scores, which would be forgotten, are refused."""
    teacher, student = tiny("bert"), tiny("bert", layers=1)
    objective = teach(corpora, teacher, tmp_path / "teacher", "masked", hidden=1.0)
    batch = first_batch(objective)

    def grads() -> list[Tensor]:
        student.zero_grad()
        torch.stack([*objective.loss(student, batch).sums.values()]).sum().backward()
        return [p.grad.clone() for p in student.parameters() if p.grad is not None]

    before = grads()
    checkpoint_blocks(student)
    for mine, want in zip(grads(), before, strict=True):
        torch.testing.assert_close(mine, want)
    close = make(
        Distill, corpora["text"], of="masked", teacher=str(tmp_path / "teacher"), attention=1.0
    )
    with refuses(ConfigError, "checkpointing"):
        close.loss(student, batch)


@pytest.mark.parametrize("pointing", [(), (0,), (0, 1)], ids=["none", "teacher", "both"])
def test_a_memory_goes_along_for_both(
    corpora: dict[str, Any], tmp_path: Path, pointing: tuple[int, ...]
) -> None:
    """Two segments, the teacher remembering for itself; the state is as long as both. What a
    pointer may point to is remembered beside the layers.
    """
    models = tiny("transformer-xl", layers=3), tiny("transformer-xl", layers=1)
    for place in pointing:
        extend(models[place], "pointer", {"window": 4})
    teacher, student = models
    objective = teach(
        corpora, teacher, tmp_path / "teacher", "recurrent", {"shift": False}, hard=0.0, soft=1.0
    )
    assert objective.recurrent
    state, own, its = objective.begin(student, 4), State(), State()
    for segment in range(2):
        batch = objective.collate([objective.get(4 * segment + i) for i in range(4)])
        loss = objective.loss(student, batch, state)
        with torch.no_grad():
            ours = student.output(read_on(student, batch["tokens"], own))[batch["scored"]]
            theirs = teacher.output(read_on(teacher.eval(), batch["tokens"], its))[batch["scored"]]
        wanted = losses.divergence(ours, theirs, 2.0).sum()
        torch.testing.assert_close(loss.sums["soft_recurrent"].detach(), wanted)
        assert len(state.hidden) == 4 + len(pointing) and state.length == own.length
    for together, alone in zip(state.hidden, [*own.hidden, *its.hidden], strict=True):
        torch.testing.assert_close(together, alone.detach())


# --- tasks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "family"), ABLE)
def test_tasks_of_a_student_that_is_its_teacher(task: str, family: str, tmp_path: Path) -> None:
    objective, teacher = labeled(task, family, tmp_path / "teacher", cosine=1.0)
    objective.check(teacher)
    batch = batch_of(objective)
    student = teacher.double()
    loss = objective.loss(student, batch)
    soft = f"soft_{objective.inner.name}"
    assert loss.counts == objective.counts(batch) and loss.sums.keys() == loss.counts.keys()
    for name, value in values(loss).items():
        assert (abs(value) < 1e-9) == (name.startswith("soft") or name == "cosine"), name
    assert loss.counts[soft] == {"tag": 4.0}.get(task, len(objective))
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(1.5)
    assert values(objective.loss(student, batch))[soft] > 1e-6


def test_answers_of_a_task_by_hand(tmp_path: Path) -> None:
    """An example without a label is taught as well; at temperature 1 and for classes alone."""
    objective, teacher = labeled("classify", "bert", tmp_path / "teacher", style="tinybert-answers")
    assert objective.weights == {"soft_classify": 1.0}
    student = model_of("bert", {"classify": 2}, layers=1)
    batch = first_batch(objective, 3)
    loss = objective.loss(student, batch)
    assert loss.counts == {"soft_classify": 3.0} and (batch["share"] == 0).any()
    ours, theirs = (objective.inner.scores(m, batch).log_softmax(1) for m in (student, teacher))
    wanted = F.kl_div(ours, theirs, reduction="sum", log_target=True)
    torch.testing.assert_close(loss.sums["soft_classify"], wanted)


def test_every_class_of_several_is_taught_by_hand(tmp_path: Path) -> None:
    """Each class is a yes or no of its own, and an example loses their mean."""
    objective, teacher = labeled(
        "multilabel", "bert", tmp_path / "teacher", style="tinybert-answers"
    )
    student = model_of("bert", {"classify": 3}, layers=1)
    batch = first_batch(objective, 3)
    loss = objective.loss(student, batch)
    assert loss.counts == {"soft_multilabel": 3.0} and not batch["known"].all()
    ours, theirs = (objective.inner.scores(model, batch) for model in (student, teacher))
    wanted = sum(
        F.kl_div(F.logsigmoid(sign * ours), F.logsigmoid(sign * theirs), log_target=True,
                 reduction="none")
        for sign in (1, -1)
    )  # fmt: skip
    torch.testing.assert_close(loss.sums["soft_multilabel"], wanted.mean(1).sum())


def test_whether_there_is_an_answer_is_taught_too(tmp_path: Path) -> None:
    """XLNet says so by a head of its own, at half the weight of the answers."""
    objective, teacher = labeled(
        "answer", "xlnet", tmp_path / "teacher", impossible="yes", style="tinybert-answers"
    )
    assert objective.weights == {"soft_answer": 1.0, "soft_answerable": 0.5}
    batch, seen = batch_of(objective), []
    student = model_of("xlnet", objective.heads(), layers=1)
    loss = objective.loss(student, batch)
    assert loss.counts == dict.fromkeys(objective.weights, float(len(objective)))
    for model in (teacher, student):
        head, hidden = model.heads["span"], objective.inner.hidden(model, batch)
        starts = head(hidden).masked_fill(~batch["eligible"], -torch.inf)
        none = head.unanswerable(hidden, starts, batch["eligible"])
        seen.append(torch.stack([F.logsigmoid(none), F.logsigmoid(-none)], 1))
    wanted = F.kl_div(seen[1], seen[0], reduction="sum", log_target=True)
    torch.testing.assert_close(loss.sums["soft_answerable"], wanted)


# --- what belongs to whom ------------------------------------------------------------------------


def test_the_teacher_is_no_part_of_the_student(corpora: dict[str, Any], tmp_path: Path) -> None:
    teacher, student = tiny("bert"), tiny("bert", layers=1, width=8)
    objective = teach(corpora, teacher, tmp_path / "teacher", "masked", **ALL)
    assert objective.auxiliary_models() == [str(tmp_path / "teacher")]
    before = set(student.state_dict())
    student = objective.adapt_model(student).train()
    objective.loss(student, first_batch(objective))
    assert set(student.state_dict()) - before == {"fit.weight", "fit.bias"}
    teacher_model = objective.teacher.model
    assert not teacher_model.training and not any(
        p.requires_grad for p in teacher_model.parameters()
    )
    objective.loss(student.double(), first_batch(objective))
    assert (
        objective.teacher.model is teacher_model
        and next(teacher_model.parameters()).dtype == torch.float64
    )
    objective.on_train_end(student, None)
    assert set(student.state_dict()) == before


def test_what_validates_is_the_objective_inside(corpora: dict[str, Any]) -> None:
    """So no teacher is needed to test a student."""
    options = Distill.Options(of="masked", teacher="gone")
    objective = Distill.build(
        corpora["text"], options, learning=False, seq_len=8, batch_size=4, seed=0
    )
    assert type(objective) is Masked and not objective.learning
    with refuses(FormatError, "gone"):
        Distill.build(corpora["text"], options, learning=True, seq_len=8, batch_size=4, seed=0)


def test_samples_come_as_those_of_the_objective_inside(
    corpora: dict[str, Any], tmp_path: Path
) -> None:
    objective = teach(corpora, tiny("bert"), tmp_path / "teacher", "masked")
    alone = make(Masked, corpora["text"])
    for in_streams in (False, True):
        objective.in_streams = alone.in_streams = in_streams
        assert len(objective) == len(alone)
        for number in range(len(alone) + 3):  # into the second epoch
            assert same(objective.get(number), alone.get(number))


def test_styles_are_settled_in_numbers(corpora: dict[str, Any], tmp_path: Path) -> None:
    objective = teach(
        corpora, tiny("bert"), tmp_path / "teacher", "masked", style="distilbert", cosine=0.0
    )
    settled = objective.settled()
    assert settled["soft"] == 5.0 and settled["cosine"] == 0.0 and settled["only"] == "all"
    assert settled["temperature"] == STYLES["distilbert"].temperature == 2.0


def gap(student: Any, teacher: Any, tokens: Tensor) -> float:
    """How far a student's guesses are from its teacher's."""
    with torch.no_grad():
        ours, theirs = (model.eval().logits(model(tokens)) for model in (student, teacher))
    return losses.divergence(ours, theirs, 1.0).mean().item()


def test_a_student_follows_its_teacher_more_with_than_without(
    corpora: dict[str, Any], tmp_path: Path
) -> None:
    """The text is random, so that only the teacher can tell what the teacher would say."""
    teacher = tiny("gpt")
    tokens = torch.randint(7, 30, (8, 8), generator=torch.Generator().manual_seed(5))
    distances = {}
    for soft, hard in ((1.0, 0.0), (1e-9, 1.0)):
        objective = teach(
            corpora, teacher, tmp_path / f"teacher-{soft}", "causal", soft=soft, hard=hard,
            temperature=1.0,
        )  # fmt: skip
        student = tiny("gpt", layers=1)
        optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
        for step in range(60):
            batch = objective.collate([objective.get(step * 4 + i) for i in range(4)])
            loss = objective.loss(student.train(), batch)
            optimizer.zero_grad()
            torch.stack(
                [objective.weights[k] * v / loss.counts[k] for k, v in loss.sums.items()]
            ).sum().backward()
            optimizer.step()
        distances[soft] = gap(student, teacher, tokens)
    assert distances[1.0] < 0.7 * distances[1e-9], distances
