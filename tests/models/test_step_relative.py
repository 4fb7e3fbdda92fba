"""The native step of Transformer-XL: what the model computes, with a memory that forgets."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.api import LoadedModel
from regard.attention.native.decode import step_kernel
from regard.core.errors import InputError
from regard.decoding import generate
from regard.models.extensions import extend
from regard.models.state import compact_caches
from regard.models.step import RelativeStepper, stepper_for
from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from tests.refusals import refuses

pytestmark = pytest.mark.skipif(step_kernel() is None, reason="there is no native code here")
LIMITS = {None: 2e-5, "bf16": 0.05, "weight": 2e-3, "dynamic": 0.05}  # of the logits' deviation

tiny = partial(
    TransformerXLConfig, vocab_size=203, cutoffs=(), ratio=1, width=72, layers=3, heads=3,
    head_size=24, ffn_size=96, mem_len=7, same_length=False, clamp_len=0, init_std=0.2,
)  # fmt: skip
SHAPES = {
    "characters": tiny(),
    "same length": tiny(same_length=True),
    "clamped": tiny(clamp_len=3, untied=False),
    "pre-norm": tiny(norm="pre", head_size=10, width=66),
    "words": tiny(cutoffs=(40, 120), ratio=2, width=64, embedding=48),
    "long memory": tiny(mem_len=500),
}


def model_of(shape: str, kind: str | None = None) -> Any:
    torch.manual_seed(1)
    model = TransformerXL(SHAPES[shape]).initialize().eval()
    for value in model.parameters():
        if value.dim() == 1:
            nn.init.normal_(value, 1.0, 0.1)
    for block in model.blocks:
        for value in (block.attention.layer.score.u, block.attention.layer.score.v):
            nn.init.normal_(value, std=0.5)
    return model if kind is None else extend(model, "int8", {"kind": kind})


@torch.inference_mode()
def stepped(
    model: Any, rows: int, native: bool, padding: bool = False, projected: bool = False
) -> Tensor:
    """Log-probabilities of 90 tokens after a prompt of nine: natively, or by hidden states or keys
    and values."""
    dice = torch.Generator().manual_seed(rows)
    tokens = torch.randint(203, (rows, 99), generator=dice)
    mask = torch.ones(rows, 9, dtype=torch.bool)
    if padding:
        mask[torch.arange(9) < torch.arange(rows)[:, None] % 6] = False
    state, stepper = model.start(rows, 99), stepper_for(model)
    for part in (slice(0, 4), slice(4, 9)):
        model(tokens[:, part], attention_mask=mask[:, part] if padding else None, state=state)
    state = model.projected(state) if native or projected else state
    steps = []
    for i in range(9, 99):
        if native:
            assert stepper is not None and stepper.serves(state)
            steps.append(stepper.read(tokens[:, i], state))
        else:
            steps.append(model.logits(model(tokens[:, i : i + 1], state=state)[:, -1]))
    return torch.stack(steps)


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_is_what_the_model_computes(shape: str, kind: str | None) -> None:
    model = model_of(shape, kind)
    exact = copy.deepcopy(model).double() if kind is None else model
    for rows, padding in ((1, False), (3, True), (9, False)):
        expected = stepped(exact, rows, False, padding)
        error = (stepped(model, rows, True, padding) - expected).abs().max() / expected.std()
        assert error <= LIMITS[kind], f"{rows} rows"


@torch.inference_mode()
@pytest.mark.parametrize("shape", SHAPES)
def test_keys_and_values_are_as_good_as_hidden_states(shape: str) -> None:
    """Also in plain torch, where several tokens follow at once, and after padding."""
    model = model_of(shape).double()
    tokens = torch.randint(203, (2, 40), generator=torch.Generator().manual_seed(3))
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, :3] = False
    states = [model.start(2, 40), model.start(2, 40)]
    for state in states:
        model(tokens[:, :5], attention_mask=mask, state=state)
    states[1] = model.projected(states[1])
    for part in tokens[:, 5:].split([1, 7, 2, 25], 1):
        first, second = (model(part, state=state) for state in states)
        assert torch.allclose(first, second, rtol=0, atol=1e-10)
    assert states[0].length == states[1].length == 40
    assert states[1].layers[0].rows == states[0].hidden[0].size(1)


@pytest.mark.parametrize("form, far", [("bf16", 0.06), ("int8", 0.15)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_reads_a_compact_memory(shape: str, form: str, far: float) -> None:
    """What the model computes with such a memory, and near to what it computes without; in another
    order of sums a number may be rounded to the other side."""
    model, exact = model_of(shape), stepped(model_of(shape), 3, False, True)
    compact_caches(model, form)
    expected = stepped(model, 3, False, True, projected=True)
    native = stepped(model, 3, True, True)
    assert (native - expected).abs().max() <= 0.01 * exact.std()
    assert 1e-4 < (native - exact).abs().max() / exact.std() <= far


@pytest.mark.parametrize("form", ["bf16", "int8"])
@pytest.mark.parametrize("shape", ["same length", "words", "long memory"])
def test_a_compact_memory_writes_like_its_own_forward(
    shape: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With beams and samples, whose rows are copied."""
    loaded, steps = LoadedModel(model_of(shape)), []
    compact_caches(loaded.model, form)
    write = partial(generate, loaded, [[5, 9, 2], [7]], max_new_tokens=30, eos_ids=[])
    options: list[dict[str, Any]] = [{}, {"num_beams": 3}, {"num_samples": 2, "seed": 3}]
    read = RelativeStepper.read
    monkeypatch.setattr(RelativeStepper, "read", lambda *x: steps.append(1) or read(*x))
    texts = [[[x.ids for x in each] for each in write(**some)] for some in options]
    assert len(steps) == 29 * len(options)
    monkeypatch.setattr(RelativeStepper, "serves", lambda *args: False)
    assert texts == [[[x.ids for x in each] for each in write(**some)] for some in options]


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_texts_are_the_same_tokens(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    loaded, prompts = LoadedModel(model_of(shape)), [[5, 9, 2], [7], list(range(20))]
    write = partial(generate, loaded, prompts, max_new_tokens=40, eos_ids=[])
    read = RelativeStepper.read
    monkeypatch.setattr(RelativeStepper, "read", lambda *x: steps.append(1) or read(*x))
    texts = [[(each.ids, each.logprob) for each in samples] for samples in write()]
    assert len(steps) == 39
    monkeypatch.setattr(RelativeStepper, "serves", lambda *args: False)
    for own, other in zip(texts, write(), strict=True):
        assert [ids for ids, _ in own] == [each.ids for each in other]
        assert [x for _, x in own] == pytest.approx([each.logprob for each in other], rel=1e-4)


@pytest.mark.parametrize("more", [{"num_beams": 3}, {"num_samples": 3, "repetition_penalty": 1.4}])
def test_beams_and_samples_are_the_same(more: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = LoadedModel(model_of("same length"))
    prompts = [[5, 9, 2], list(range(20))]
    write = partial(generate, loaded, prompts, max_new_tokens=30, eos_ids=[], seed=3, **more)
    texts = [[each.ids for each in samples] for samples in write()]
    monkeypatch.setattr(RelativeStepper, "serves", lambda *args: False)
    assert texts == [[each.ids for each in samples] for samples in write()]


def test_the_number_of_threads_changes_nothing() -> None:
    model, threads = model_of("clamped", "weight"), torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(stepped(model, 4, True))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_an_unknown_token_is_refused() -> None:
    model = model_of("words")
    with torch.inference_mode():
        state = model.start(2, 8)
        model(torch.tensor([[1, 2], [3, 4]]), state=state)
        state, stepper = model.projected(state), stepper_for(model)
        assert stepper is not None and stepper.serves(state)
        with refuses(InputError, "203"):
            stepper.read(torch.tensor([3, 203]), state)


def test_a_listener_is_left_to_the_model() -> None:
    model = model_of("characters")
    model.blocks[1].attention.layer.score.register_forward_hook(lambda *args: None)
    assert stepper_for(model) is None
