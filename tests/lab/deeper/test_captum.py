"""The attributions are those of captum, which nobody here wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention.block import ACTIVATIONS, FeedForward
from regard.lab.deeper.hooks import changed, on_output, stored
from regard.models.state import State
from regard.training.adversary import word_embedding
from tests.lab.deeper.test_laws import CASES, FAMILIES, PLAIN, question_of, text_of
from tests.lab.look.small import speaking

captum = pytest.importorskip("captum.attr", reason="pip install 'regard[captum]'")
BASELINE = 7  # a token
STEPS = 100


def exact(family: str) -> Any:
    """A model whose gradient changes smoothly on the way: with kinks (ReLU), two sums over points
    agree slowly."""
    loaded = speaking(family)
    loaded.model.double()
    for part in loaded.model.modules():
        if isinstance(part, FeedForward):
            part.activation = ACTIVATIONS["gelu"]
    for value in loaded.model.parameters():
        value.data.mul_(0.5)
    return loaded


@FAMILIES
def test_every_family(family: str) -> None:
    """captum moves all texts and the memory together, as the method does."""
    loaded = exact(family)
    question, embedding = question_of(loaded, family), word_embedding(loaded.model)
    own = loaded.attribute(text_of(family), baseline=BASELINE, steps=STEPS, **CASES[family])
    texts: list[Tensor] = []
    with torch.no_grad(), changed(outputs=[(embedding, on_output(stored(texts)))]):
        question.hidden()
    memory = question.reading.memory
    states = [] if memory is None else list(memory.hidden)

    def answer(*inputs: Tensor) -> Tensor:
        vectors = iter(inputs)
        if memory is not None:
            question.reading.memory = State(hidden=[*inputs[len(texts) :]], length=memory.length)
        with changed(outputs=[(embedding, lambda _, y: next(vectors))]):
            return question.answer()[None] + 0 * sum(each.sum() for each in inputs)

    with torch.no_grad():
        row = embedding(torch.tensor([[BASELINE]]))
    starts = [row.expand_as(text).clone() for text in texts]
    starts += [torch.zeros_like(state) for state in states]
    method = captum.IntegratedGradients(answer)
    parts = method.attribute(
        (*texts, *states), baselines=tuple(starts), target=own.id, n_steps=STEPS,
        internal_batch_size=1,
    )  # fmt: skip
    scores = [part.sum(-1)[0].numpy() for part in parts]
    if states:
        scores = [sum(scores[len(texts) :]), *scores[: len(texts)]]
    largest = max(np.abs(part).max() for part in scores)
    for expected, values in zip(scores, own.scores.values(), strict=True):
        assert np.abs(expected).max() > 1e-3 * largest > 0
        assert np.abs(values - expected).max() < 1e-7 * largest


def test_with_hooks_of_its_own() -> None:
    """captum finds the embeddings by itself, from ids to the logit of the next token."""
    loaded = exact("gpt")
    own = loaded.attribute(PLAIN, baseline=BASELINE, steps=STEPS)
    ids = torch.tensor([loaded.tokenizer.encode(PLAIN, special=False)])
    model = loaded.model
    method = captum.LayerIntegratedGradients(
        lambda tokens: model.logits(model(tokens))[:, -1], word_embedding(model)
    )
    baselines = torch.full_like(ids, BASELINE)
    expected = method.attribute(ids, baselines=baselines, target=own.id, n_steps=STEPS)
    assert own.scores["text"] == pytest.approx(expected.sum(-1)[0].tolist(), rel=1e-6, abs=1e-9)
    assert len(own.scores["text"]) == ids.size(1)
