"""Lens, ablation, patching and attribution beside hooks on transformers' models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from regard.api import LoadedModel
from tests.equal.reference import close, ours, scramble, words
from tests.equal.test_bert import config
from tests.equal.test_gpt import gpt2

LAYERS, SIZE = 3, 8


def bert() -> Any:
    return scramble(hf.BertForMaskedLM(config()))


def parts(reference: Any) -> tuple[list[nn.Module], list[nn.Module], Any]:
    """The layers of transformers' model, what projects their heads, and the end of the model."""
    if hasattr(reference, "transformer"):
        layers = list(reference.transformer.h)
        return (
            layers,
            [x.attn.c_proj for x in layers],
            lambda x: reference.lm_head(reference.transformer.ln_f(x)),
        )
    layers = list(reference.bert.encoder.layer)
    return layers, [x.attention.output.dense for x in layers], reference.cls


@pytest.fixture(params=["gpt2", "bert"])
def pair(request: Any, tmp_path: Path) -> tuple[Any, LoadedModel]:
    reference = gpt2() if request.param == "gpt2" else bert()
    return reference, ours(reference, tmp_path / "theirs")


IDS = words(97, 1, 11)
ROW = 5  # of the answer; a decoder answers at every row, too


@torch.no_grad()
def test_lens(pair: Any) -> None:
    reference, loaded = pair
    _, _, end = parts(reference)
    hidden = reference(IDS, output_hidden_states=True).hidden_states
    lens = loaded.lens(IDS[0].tolist())
    assert len(hidden) == len(lens.best) == LAYERS + 1
    for layer in range(LAYERS):  # transformers' last state is already behind its final norm
        close(lens.logits(layer), end(hidden[layer])[0])
    close(lens.logits(), reference(IDS).logits[0])


@torch.no_grad()
@pytest.mark.parametrize("method", ["zero", "mean"])
def test_a_head_switched_off(pair: Any, method: str) -> None:
    reference, loaded = pair
    _, outs, _ = parts(reference)
    for layer, head in ((0, 0), (2, 3)):
        chosen = slice(head * SIZE, (head + 1) * SIZE)

        def silence(_: nn.Module, inputs: Any, chosen: slice = chosen) -> Any:
            x = inputs[0].clone()
            x[..., chosen] = x[..., chosen].mean(1, keepdim=True) if method == "mean" else 0.0
            return (x,)

        before = reference(IDS).logits[0, ROW].softmax(-1)
        hook = outs[layer].register_forward_pre_hook(silence)
        after = reference(IDS).logits[0, ROW].softmax(-1)
        hook.remove()
        result: Any = loaded.ablate(
            IDS[0].tolist(), heads=[(layer + 1, head + 1)], method=method, position=ROW + 1
        )
        close(torch.from_numpy(result.before), before)
        close(torch.from_numpy(result.after), after)
        assert np.abs(result.after - result.before).max() > 1e-4


@torch.no_grad()
def test_a_state_patched(pair: Any) -> None:
    reference, loaded = pair
    layers, _, _ = parts(reference)
    other = words(97, 1, 11, seed=2)
    result = loaded.patch(IDS[0].tolist(), other[0].tolist(), position=ROW + 1)
    hidden = reference(IDS, output_hidden_states=True).hidden_states
    for layer, column in ((1, 2), (2, ROW)):  # behind the last layer transformers adds a norm

        def moved(_: nn.Module, inputs: Any, y: Any, layer: int = layer, at: int = column) -> Any:
            x = (y[0] if isinstance(y, tuple) else y).clone()
            x[:, at] = hidden[layer][:, at]
            return (x, *y[1:]) if isinstance(y, tuple) else x

        hook = layers[layer - 1].register_forward_hook(moved)
        logits = reference(other).logits[0, ROW]
        hook.remove()
        effect = result.tables[0].cells[layer][column]
        close(torch.tensor(effect.logit), logits[result.id])
        close(torch.tensor(effect.probability), logits.softmax(-1)[result.id])


def way(place: float) -> tuple[float, float]:
    """The share of the path at a point of [-1, 1], ((place + 1) / 2)⁶, and its slope."""
    return ((place + 1) / 2) ** 6, 6 * ((place + 1) / 2) ** 5


def test_gradients_integrated(pair: Any) -> None:
    """The same points of the same rule, with the gradients of transformers' model."""
    reference, loaded = pair
    steps = 6
    result = loaded.attribute(IDS[0].tolist(), steps=steps, position=ROW + 1)
    embedded = reference.get_input_embeddings()(IDS).detach()
    total = torch.zeros_like(embedded)
    places, weights = np.polynomial.legendre.leggauss(steps)
    for place, weight in zip(places, weights, strict=True):
        share, slope_of_share = way(place)
        point = (embedded * share).float().requires_grad_()
        logit = reference(inputs_embeds=point).logits[0, ROW, result.id]
        (slope,) = torch.autograd.grad(logit, point)
        total += slope * weight / 2 * slope_of_share
    expected: Tensor = (embedded * total).sum(-1)[0]
    close(torch.tensor(result.scores["text"]), expected)
