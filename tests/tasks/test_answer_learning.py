"""Losses of questions and answers by hand and against others, and a task that is learned, answered
and opened again.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

import regard
from regard.core.seeding import keyed
from regard.data.examples import AnswerSpan as Gold
from regard.data.examples import Question
from regard.evaluation.predict import Predictor
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.tasks.answer_objective import AnswerObjective
from regard.tasks.base import Prediction
from tests.tasks import tuning
from tests.tasks.answers import (
    FAMILIES,
    SIX,
    TOKENIZER,
    batch_of,
    long_ones,
    model_of,
    predicted,
    published,
    question_of,
)
from tests.tasks.answers import (
    objective as objective_of,
)

# -- losses


def loss_of(
    objective: AnswerObjective, model: Any, batch: dict[str, Tensor] | None = None
) -> dict[str, float]:
    with torch.no_grad():
        loss = objective.loss(model, batch_of(objective) if batch is None else batch)
    return {name: float(total) / loss.counts[name] for name, total in loss.sums.items()}


def test_loss_by_hand() -> None:
    """Padding is outside of what is normalized over, and a batch is the mean of its rows."""
    objective = objective_of("bert", long_ones(5), 24)
    model = model_of("bert", torch.float64)
    total = 0.0
    for i in range(len(objective)):
        ids = torch.from_numpy(objective.rows[i].astype(np.int64))[None]
        segments = torch.from_numpy(objective.segments[i].astype(np.int64))[None]
        scores = model.read("answer", model(ids, None, segments))[0].log_softmax(0)
        *_, start, end, _ = objective.marks[i].tolist()
        total -= float(scores[start, 0] + scores[end, 1]) / 2
    assert len({len(objective.rows[i]) for i in range(len(objective))}) > 2
    assert loss_of(objective, model)["answer"] == pytest.approx(total / len(objective), rel=1e-10)


def test_bert_loss_is_that_of_transformers(tmp_path: Path) -> None:
    objective = objective_of("bert", [SIX, question_of("f e d c b a", ("d c", 4)), SIX])
    model = model_of("bert", torch.float64)
    batch = batch_of(objective)
    batch = {k: v[:, :9] if v.dim() == 2 and k != "wide" else v for k, v in batch.items()}
    assert batch["attention_mask"].all()
    theirs = published(model, tmp_path, "BertForQuestionAnswering")(
        batch["tokens"],
        token_type_ids=batch["segments"],
        start_positions=batch["start"],
        end_positions=batch["end"],
    )
    assert loss_of(objective, model, batch)["answer"] == pytest.approx(
        float(theirs.loss), rel=1e-10
    )


def test_longformer_is_that_of_transformers(tmp_path: Path) -> None:
    """Which makes everything before the first separator global by itself (its softmax is fp32)."""
    examples = [
        question_of("a b c d e f g a b c d", ("c d e", 4)),
        question_of("e d c", ("d", 2), question="q"),
    ]
    objective = objective_of("longformer", examples, 24)
    model, batch = model_of("longformer", torch.float64), batch_of(objective)
    assert batch["wide"].tolist() == [[0, 1, 2], [0, 1, -1]]
    other = published(model, tmp_path, "LongformerForQuestionAnswering")
    other.config.update(objective.hf_config())
    theirs = other(batch["tokens"], attention_mask=batch["attention_mask"].long())
    scores = model.read("answer", objective.hidden(model, batch))
    for ours, expected_scores in zip(
        scores.unbind(-1), (theirs.start_logits, theirs.end_logits), strict=True
    ):
        torch.testing.assert_close(
            ours[batch["attention_mask"]],
            expected_scores[batch["attention_mask"]],
            rtol=1e-5,
            atol=1e-5,
        )


def test_xlnet_loss_is_that_of_transformers(tmp_path: Path) -> None:
    """Where every question has an answer; p_mask is 1 where none can be."""
    objective = objective_of("xlnet", long_ones(5), 24)
    model, batch = model_of("xlnet"), batch_of(objective)
    assert not batch["attention_mask"].all()
    theirs = published(model, tmp_path, "XLNetForQuestionAnswering")(
        batch["tokens"],
        attention_mask=batch["attention_mask"].float(),
        token_type_ids=batch["segments"],
        start_positions=batch["start"],
        end_positions=batch["end"],
        p_mask=(~batch["eligible"]).float(),
    )
    loss = loss_of(objective, model)
    assert list(loss) == ["answer"]
    assert loss["answer"] == pytest.approx(float(theirs.loss), rel=1e-5)


def test_xlnet_loss_by_hand() -> None:
    """run_squad.py: the end is given the gold start, the answerability the expected one."""
    objective = objective_of("xlnet", long_ones(6, impossible=True), 24)
    assert objective.weights == {"answerable": 0.5}
    model = model_of("xlnet", torch.float64)
    head, places, none = model.heads["span"], 0.0, 0.0
    for i in range(len(objective)):
        ids = torch.from_numpy(objective.rows[i].astype(np.int64))[None]
        segments = torch.from_numpy(objective.segments[i].astype(np.int64))[None]
        h = model(ids, None, segments)[0]
        cls, _, _, first, beyond, *_, start, end, known = objective.marks[i].tolist()
        assert (cls, known) == (len(h) - 1, 1)
        inside = [*range(first, beyond), cls]
        starts = head.start(h)[inside, 0].log_softmax(0)
        begun = h[start].expand_as(h)
        ends = head.end(head.end_norm(torch.tanh(head.end_dense(torch.cat([h, begun], 1)))))
        ends = ends[inside, 0].log_softmax(0)
        places -= float(starts[inside.index(start)] + ends[inside.index(end)]) / 2
        both = torch.cat([starts.exp() @ h[inside], h[cls]])
        logit = head.none(torch.tanh(head.none_dense(both)))
        none += float(F.softplus(-logit if start == cls else logit))
    loss = loss_of(objective, model)
    assert loss["answer"] == pytest.approx(places / len(objective), rel=1e-10)
    assert loss["answerable"] == pytest.approx(none / len(objective), rel=1e-10)
    totals = objective.loss(model, batch_of(objective))
    assert objective.measure(totals)["loss"] == pytest.approx(
        (places + none / 2) / len(objective), rel=1e-10
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_that_do_not_count(family: str) -> None:
    """In validation the answerless windows are there, but neither in the loss nor in the share."""
    examples = long_ones(4)
    learned, tested = (
        objective_of(family, examples, 16, split=split) for split in ("train", "valid")
    )
    assert len(tested) > len(learned)
    model = model_of(family, torch.float64)
    assert loss_of(tested, model) == pytest.approx(loss_of(learned, model), rel=1e-9)
    one, other = (
        objective.measure(objective.loss(model, batch_of(objective)))
        for objective in (learned, tested)
    )
    assert one["exact_windows"] == other["exact_windows"]
    assert list(one) == ["exact_windows", "loss"]


# -- learning


def records(count: int) -> dict[str, Any]:
    """SQuAD's layout, 2.0. The answer is the word after "here"; without it there is none."""
    questions = []
    for number in range(count):
        dice = keyed("learn", number)
        letters = list(dice.choice(list("abcdefghij"), size=int(dice.integers(4, 9))))
        place = int(dice.integers(len(letters) - 1))
        empty = number % 3 == 0
        letters[place] = letters[place] if empty else "here"
        text = " ".join(letters)
        begin = len(" ".join(letters[: place + 1])) + 1
        answers = [] if empty else [{"text": letters[place + 1], "answer_start": begin}]
        record = {"id": str(number), "question": "where", "answers": answers}
        questions.append({"context": text, "qas": [record | {"is_impossible": empty}]})
    return {"version": "2.0", "data": [{"title": "", "paragraphs": questions}]}


def learn(family: str, where: Path, steps: int) -> Path:
    model = model_of(family, masked=0).initialize()
    save(model, where / "model", TOKENIZER)
    data = where / "squad.json"
    data.write_text(json.dumps(records(300)), encoding="utf-8")
    recipe = tuning.recipe(
        where / "model", data, examples={"task": "answer"}, budget={"steps": steps},
        batch={"size": 16, "seq_len": 24},
        optimizer={"lr": {"bert": 0.002, "gpt": 0.003}.get(family, 0.005)},
    )  # fmt: skip
    facts = finetune(recipe, where / "run", display="silent")
    assert facts["valid"]["exact_windows"] > 0.9, facts["valid"]
    return where / "run"


def questions_of(content: dict[str, Any]) -> list[Question]:
    questions = []
    for paragraph in content["data"][0]["paragraphs"]:
        for one in paragraph["qas"]:
            answers = tuple(Gold(a["text"], a["answer_start"]) for a in one["answers"])
            questions.append(Question(one["question"], paragraph["context"], answers, not answers))
    return questions


def score(predictions: list[Prediction], examples: list[Question]) -> float:
    right = [
        one.value == (example.answers[0].text if example.answers else "")
        for one, example in zip(predictions, examples, strict=True)
    ]
    return sum(right) / len(right)


@pytest.mark.parametrize(("family", "steps"), [("bert", 320), ("gpt", 180), ("xlnet", 100)])
def test_learns_and_is_the_same_when_opened(family: str, steps: int, tmp_path: Path) -> None:
    run = learn(family, tmp_path, steps)
    facts = json.loads((run / "task.json").read_text())
    assert facts["objective"]["impossible"] == "yes"
    assert facts["task"] == "answer"
    tau = facts["objective"]["tau"]
    assert isinstance(tau, float)  # tuned on what validates
    examples = questions_of(records(360))[300:]
    loaded = regard.load(run)
    predictions = Predictor(loaded)(examples)
    assert score(predictions, examples) > 0.9
    objective = objective_of(
        family, examples, 24, split="test", stride=0, impossible="yes", tau=tau
    )
    same = predicted(objective, loaded.model)
    assert [one.value for one in same] == [one.value for one in predictions]
    assert [one.score for one in same] == pytest.approx(
        [one.score for one in predictions], abs=1e-4
    )
    other: Any = transformers.AutoModelForQuestionAnswering
    if family == "xlnet":  # whose own class is not the one that is chosen for it
        other = transformers.XLNetForQuestionAnswering
    opened = other.from_pretrained(run).eval()
    batch = batch_of(objective)
    inputs = {"attention_mask": batch["attention_mask"].float()}
    inputs |= {"token_type_ids": batch["segments"]} if objective.frame.segments else {}
    with torch.no_grad():
        hidden = objective.hidden(loaded.model, batch)
        if family != "xlnet":
            ours = loaded.model.read("answer", hidden)[..., 0][batch["attention_mask"]]
            theirs = opened(batch["tokens"], **inputs).start_logits[batch["attention_mask"]]
        else:
            inside = batch["eligible"]
            scores = loaded.model.read("span", hidden).masked_fill(~inside, -math.inf)
            ours = scores.softmax(1).max(1).values
            inputs["p_mask"] = (~inside).float()
            theirs = opened(batch["tokens"], **inputs).start_top_log_probs[:, 0]  # not logarithms
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
