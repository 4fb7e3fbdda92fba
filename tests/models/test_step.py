"""The native step of whole decoders: what the models compute themselves, and only where it may."""

from __future__ import annotations

import copy
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.api import LoadedModel
from regard.attention.attention import Attention
from regard.attention.memory import CrossKV
from regard.attention.native.decode import peaks, step_kernel
from regard.core.errors import InputError
from regard.decoding import generate
from regard.models import step as module
from regard.models.extensions import extend
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.state import compact_caches
from regard.models.step import Stepper, stepper_for
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from tests.refusals import refuses, warns

pytestmark = pytest.mark.skipif(step_kernel() is None, reason="there is no native code here")
LIMITS = {None: 2e-5, "bf16": 0.05, "weight": 2e-3, "dynamic": 0.05, "int4": 0.05}  # of deviation

tiny = partial(GPTConfig, vocab_size=203, context=32, width=72, layers=3, heads=3, init_std=0.2)
llama = partial(
    LlamaConfig, vocab_size=203, context=32, width=72, layers=3, heads=6, kv_heads=2, ffn_size=120,
    init_std=0.2,
)  # fmt: skip
SHAPES = {
    "gpt1": (GPT, tiny(norm="post")),
    "gpt2": (GPT, tiny()),
    "gpt3": (GPT, tiny(band=4, activation="relu")),
    "gelu": (GPT, tiny(width=66, activation="gelu")),
    "llama": (Llama, llama()),
    "llama, tied": (Llama, llama(tied=True, bias=True, head_size=10, rope_theta=100.0)),
}


SOURCES = {
    "t5": (T5, T5Config(vocab_size=203, width=72, layers=2, heads=3, head_size=24, ffn_size=96,
                        buckets=8, farthest=6)),
    "t5, v1.1": (T5, T5Config(vocab_size=203, width=64, layers=2, heads=4, head_size=10,
                              ffn_size=96, gated=True, tied=False, scaled=False,
                              activation="gelu_tanh")),
    "transformer": (Transformer, TransformerConfig(vocab_size=203, width=64, layers=2, heads=4,
                                                   ffn_size=96)),
    "transformer, pre": (Transformer, TransformerConfig(vocab_size=203, width=64, layers=2,
                                                        heads=4, ffn_size=96, norm="pre",
                                                        bias=True, positions="interleaved")),
}  # fmt: skip


def model_of(shape: str, kind: str | None = None) -> Any:
    torch.manual_seed(1)
    model_class, config = (SHAPES | SOURCES)[shape]
    model = model_class(config).initialize().eval()
    for value in model.parameters():
        if value.dim() == 1:
            nn.init.normal_(value, 1.0, 0.1)
    return model if kind is None else extend(model, "int8", {"kind": kind})


@torch.inference_mode()
def stepped(model: Any, rows: int, native: bool, padding: bool = False) -> Tensor:
    """Logits of five tokens after a prompt of nine, in the order of tokens."""
    dice = torch.Generator().manual_seed(rows)
    tokens = torch.randint(203, (rows, 14), generator=dice)
    mask = torch.ones(rows, 9, dtype=torch.bool)
    if padding:
        mask[torch.arange(9) < torch.arange(rows)[:, None] % 6] = False
    state, stepper = model.start(rows, 14), stepper_for(model)
    model(tokens[:, :9], attention_mask=mask if padding else None, state=state)
    steps = []
    for i in range(9, 14):
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
def decoded(model: Any, native: bool) -> Tensor:
    """Logits of five tokens that follow sources of different lengths."""
    dice = torch.Generator().manual_seed(1)
    sources = torch.randint(203, (3, 7), generator=dice)
    lengths, tokens = torch.tensor([7, 3, 5]), torch.randint(203, (3, 9), generator=dice)
    mask, state = torch.arange(7) < lengths[:, None], model.start(3, 9)
    pairs = [x.pairs for x in model.project_source(model.encode(sources, mask))]
    state.source = [CrossKV(tuple(x.contiguous() for x in pair)) for pair in pairs]  # type: ignore[arg-type]
    state.source_attention_mask, stepper = mask, stepper_for(model)
    steps = []
    for i in range(9):
        if native:
            assert stepper is not None and stepper.serves(state)
            steps.append(stepper.read(tokens[:, i], state))
        else:
            hidden = model.decode(tokens[:, i : i + 1], state.source, mask, None, state)
            steps.append(model.logits(hidden[:, -1]))
    return torch.stack(steps)


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("shape", SOURCES)
def test_a_step_beside_a_source_is_what_the_model_computes(shape: str, kind: str | None) -> None:
    model = model_of(shape, kind)
    expected = decoded(copy.deepcopy(model).double() if kind is None else model, False)
    error = (decoded(model, True) - expected).abs().max() / expected.std()
    assert error <= LIMITS[kind]


@pytest.mark.parametrize("form, far", [("bf16", 0.06), ("int8", 0.15)])
@pytest.mark.parametrize("shape", SHAPES | SOURCES)
def test_a_step_reads_a_compact_cache(shape: str, form: str, far: float) -> None:
    """What the model computes with such a cache, and near to what it computes without; in another
    order of sums a number may be rounded to the other side."""
    run = partial(stepped, rows=3, padding=True) if shape in SHAPES else decoded
    model, exact = model_of(shape), run(model_of(shape), native=False)
    compact_caches(model, form)
    expected, native = run(model, native=False), run(model, native=True)
    assert (native - expected).abs().max() <= 0.01 * exact.std()
    assert 1e-4 < (native - exact).abs().max() / exact.std() <= far


@pytest.mark.parametrize("form", ["bf16", "int8"])
@pytest.mark.parametrize("shape", ["gpt2", "llama", "t5"])
def test_a_compact_cache_writes_like_its_own_forward(
    shape: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With beams and samples, whose rows are copied, and beyond a GPT's positions."""
    loaded = LoadedModel(model_of(shape))
    compact_caches(loaded.model, form)
    write = partial(generate, loaded, [[5, 9, 2], [7]], max_new_tokens=20, eos_ids=[])
    options: list[dict[str, Any]] = [{}, {"num_beams": 3}, {"num_samples": 2, "seed": 3}]
    texts = [[[x.ids for x in each] for each in write(**some)] for some in options]
    monkeypatch.setattr(Stepper, "serves", lambda *args: False)
    assert texts == [[[x.ids for x in each] for each in write(**some)] for some in options]


def test_the_number_of_threads_changes_nothing() -> None:
    model, threads = model_of("llama", "weight"), torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(stepped(model, 4, True))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("shape", ["gpt1", "gpt2", "gpt3", "llama", "t5", "transformer"])
def test_greedy_texts_are_the_same_tokens(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the learned positions are full and a text continues from its second half."""
    loaded, prompts = LoadedModel(model_of(shape)), [[5, 9, 2], [7], [1, 2, 3, 4, 5, 6, 7]]
    write = partial(generate, loaded, prompts, max_new_tokens=40, eos_ids=[])
    texts = [[each.ids for each in samples] for samples in write()]
    monkeypatch.setattr(Stepper, "serves", lambda *args: False)
    assert texts == [[each.ids for each in samples] for samples in write()]


def test_a_step_is_taken_only_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    read = Stepper.read
    monkeypatch.setattr(Stepper, "read", lambda *args: steps.append(1) or read(*args))
    loaded = LoadedModel(model_of("gpt2"))
    write = partial(generate, loaded, [3, 4], max_new_tokens=6, eos_ids=[])
    write()
    assert len(steps) == 5
    for part in loaded.model.modules():
        if isinstance(part, Attention):
            part.kernel = lambda pattern, *args: pattern.attend(*args)
    write()
    assert len(steps) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.double(),
        lambda model: model.blocks[1].register_forward_hook(lambda *args: None) and model,
        lambda model: setattr(model.blocks[0], "run", lambda b, *x: b.compute(*x)) or model,
        lambda model: setattr(model.blocks[0].feed_forward.layer, "wide", nn.Identity()) or model,
        lambda model: extend(model, "pointer"),
    ],
)
def test_other_parts_are_left_to_the_model(change: Any) -> None:
    assert stepper_for(change(model_of("gpt2"))) is None


def test_a_processor_without_bf16_leaves_it_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "kernel", lambda name: None)
    assert stepper_for(model_of("gpt2", "bf16")) is None
    assert stepper_for(model_of("gpt2", "weight")) is not None


def test_gradients_and_lower_precision_are_left_to_the_model() -> None:
    model = model_of("gpt2")
    state, stepper = model.start(1, 8), stepper_for(model)
    assert stepper is not None and not stepper.serves(state)  # gradients are on
    with torch.inference_mode():
        assert stepper.serves(state)
        with torch.autocast("cpu", torch.bfloat16):
            assert not stepper.serves(state)
        state.layers[1].keys = state.layers[1].keys.bfloat16()
        assert not stepper.serves(state)


def test_an_unknown_token_is_refused() -> None:
    model = model_of("gpt2", "weight")
    stepper, state = stepper_for(model), model.start(2, 8)
    assert stepper is not None
    with refuses(InputError, "203"):
        stepper.read(torch.tensor([3, 203]), state)


def test_changed_weights_are_read_by_the_next_text() -> None:
    loaded = LoadedModel(model_of("gpt2"))
    write = partial(generate, loaded, [3, 4], max_new_tokens=8, eos_ids=[])
    before = write()[0][0].ids
    with torch.no_grad():
        for block in loaded.model.blocks:
            block.feed_forward.layer.wide.weight.neg_()
    assert write()[0][0].ids != before


def test_peaks_are_those_of_torch() -> None:
    logits = torch.randn(3, 20_000, generator=torch.Generator().manual_seed(1)) * 4
    logits[1, [700, 19_000]] = 50.0  # the first of equal ones
    logits[2, 5:] = -torch.inf
    best, total = peaks(logits)
    assert best.tolist() == [int(logits[0].argmax()), 700, int(logits[2].argmax())]
    assert torch.allclose(total.double(), logits.double().logsumexp(-1), rtol=0, atol=1e-5)
    assert torch.equal(peaks(logits.mT.contiguous().mT)[0], best)


def test_without_such_a_processor_plain_torch_serves_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = LoadedModel(model_of("gpt2"))
    write = partial(generate, loaded, [3, 4], max_new_tokens=6, eos_ids=[])
    texts = write()[0][0].ids
    monkeypatch.setattr(module, "step_kernel", lambda: None)
    module.say_once.cache_clear()
    with warns(UserWarning, "AVX512", "plain torch"):
        assert write()[0][0].ids == texts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert write()[0][0].ids == texts
