"""Encoders that read texts without padding give the same as the padded model, on every family."""

import gc
import weakref

import pytest
import torch
from torch import nn

from regard.attention.native.encode import (
    Norm,
    Sums,
    Texts,
    attend_texts,
    attention_form,
    rows_pass,
    usable,
)
from regard.attention.recorder import record
from regard.models import create
from regard.models.extensions import extend
from regard.models.packed import CACHE, PackedEncoder, packed
from tests.refusals import refuses

pytestmark = pytest.mark.skipif(not usable(), reason="needs a compiler and oneDNN")
SHAPE = {"width": 48, "layers": 2, "heads": 4, "ffn_size": 100, "vocab_size": 90}
FAMILIES = {
    "bert-base-uncased": {},
    "roberta-base": {},
    "longformer-base-4096": {"window": (32, 8)},
}
# The largest difference from fp64, as a share of the largest number.
BOUNDS = {"fp32": 2e-6, "bf16": 2e-2}


def model_of(name, **changes):
    torch.manual_seed(0)
    model = create(name, **SHAPE | FAMILIES[name] | changes).initialize().eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.1) if p.dim() > 1 else p.data.add_(0.1 * torch.randn_like(p))
    return model


def batch_of(model, left=False):
    """Returns texts of mixed lengths, padded on one side; Longformer's first words are global."""
    torch.manual_seed(1)
    sizes = torch.tensor([70, 1, 13, 64, 65, 3])
    mask = torch.arange(70) < sizes[:, None]
    mask = mask.flip(1) if left else mask
    batch = {"input_ids": torch.randint(5, 90, mask.shape), "attention_mask": mask}
    if "segments" in model.accepts and model.config.segments > 1:
        batch["segments"] = torch.randint(0, 2, mask.shape)
    if "global_tokens" in model.accepts:
        batch["global_tokens"] = mask & (mask.long().cumsum(1) <= 2)
    return batch


def apart(a, b, mask):
    return float((a.double() - b.double())[mask].abs().max() / b.abs().max())


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_packed_is_padded(name, precision, left):
    model = model_of(name)
    batch = batch_of(model, left)
    mask = batch["attention_mask"]
    exact = model.double()(**batch)
    model.float()
    quick = packed(model, precision)
    assert isinstance(quick, PackedEncoder)
    hidden = quick(**batch)
    assert hidden.dtype == torch.float32
    assert apart(hidden, exact, mask) <= BOUNDS[precision]
    assert not hidden[~mask].any()
    if precision == "fp32":
        assert apart(hidden, model(**batch), mask) <= BOUNDS["fp32"]


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_int8_is_the_padded_int8_within_its_own_rounding(name):
    model = model_of(name)
    batch = batch_of(model)
    mask = batch["attention_mask"]
    exact = model(**batch)
    extend(model, "int8", {"kind": "dynamic"})
    quick = packed(model)
    assert isinstance(quick, PackedEncoder)
    assert apart(quick(**batch), model(**batch), mask) <= apart(model(**batch), exact, mask)


@pytest.mark.parametrize("form", ["half", "full"])
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_int8_keeps_the_direction_of_hidden_states(name, form):
    """The rule of exports for int8, in both forms of attention; bfloat16 hardly adds to the error
    of the bytes."""
    model = model_of(name)
    batch = batch_of(model)
    exact = model(**batch)
    extend(model, "int8", {"kind": "dynamic"})
    quick = packed(model)
    assert {block.form for block in quick.laid_out} == {attention_form()}
    for block in quick.laid_out:
        block.form = form
    pair = (y[batch["attention_mask"]] for y in (quick(**batch), exact))
    lost = 1 - torch.cosine_similarity(*pair, -1).mean()
    pair = (y[batch["attention_mask"]] for y in (model(**batch), exact))
    assert lost <= 0.01 and lost <= 1.1 * (1 - torch.cosine_similarity(*pair, -1).mean())


def visible(length, window, far):
    place = torch.arange(length)
    near = (place[:, None] - place).abs() <= (length if window < 0 else window)
    return near | torch.isin(place, torch.tensor(far, dtype=torch.long))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window, far", [(-1, []), (9, []), (30, [0, 17])])
@pytest.mark.parametrize("size", [64, 12, 13, 80])
def test_attention_is_that_of_torch(size, window, far, dtype):
    """In bfloat16, torch's formula rounds the weights and the result, as the native code does: they
    differ by no more than one step of the largest number."""
    torch.manual_seed(2)
    heads, lengths = 3, [70, 1, 33, 128, 65]
    far = [[key for key in far if key < length] for length in lengths]
    edges = nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    counts = nn.functional.pad(torch.tensor([len(keys) for keys in far]).cumsum(0), (1, 0))
    keys = torch.tensor([key for own in far for key in own], dtype=torch.long)
    texts = Texts(edges, keys, counts) if len(keys) else Texts(edges)
    qkv = (1.5 * torch.randn(sum(lengths) + 5, 3 * heads * size)).to(dtype)
    y = attend_texts(qkv, texts, heads, size, size**-0.5, window)
    assert y.dtype == dtype and not y[edges[-1] :].any()
    rounded = dtype == torch.bfloat16 and attention_form() == "half"
    bound = 2**-8 if dtype == torch.bfloat16 else 2e-6
    for start, length, own in zip(edges.tolist(), lengths, far, strict=False):
        rows = qkv[start : start + length].float()
        q, k, v = rows.view(length, 3, heads, size).permute(1, 2, 0, 3)
        scores = (q @ k.mT).masked_fill(~visible(length, window, own), -torch.inf)
        weights = ((scores - scores.amax(-1, keepdim=True)) * size**-0.5).exp()
        near = weights.bfloat16().float() if rounded else weights
        expected = (near @ v / weights.sum(-1, keepdim=True)).transpose(0, 1).flatten(1)
        gap = (y[start : start + length].float() - expected).abs().max()
        assert gap <= bound * expected.abs().max(), f"a text of {length}"


@torch.no_grad()
def test_a_text_does_not_depend_on_the_others():
    model = model_of("bert-base-uncased")
    batch = batch_of(model)
    quick = packed(model)
    together = quick(**batch)
    for i, size in enumerate(batch["attention_mask"].sum(1).tolist()):
        alone = quick(
            batch["input_ids"][i : i + 1, :size], None, batch["segments"][i : i + 1, :size]
        )
        assert apart(alone, together[i : i + 1, :size], ...) <= BOUNDS["fp32"]


@torch.no_grad()
def test_changed_weights_are_laid_out_again():
    model = model_of("roberta-base")
    batch = batch_of(model)
    before = packed(model)(**batch)
    assert packed(model).laid_out is packed(model).laid_out
    model.blocks[0].feed_forward.layer.wide.weight.mul_(1.5)
    after = packed(model)(**batch)
    assert not torch.equal(before, after)
    assert apart(after, model(**batch), batch["attention_mask"]) <= BOUNDS["fp32"]
    assert packed(model.train()).laid_out is not packed(model).laid_out  # nothing is kept
    gone = weakref.ref(model)
    assert model in CACHE
    del model
    gc.collect()
    assert gone() is None


@torch.no_grad()
def test_a_recording_and_a_hook_see_the_model():
    model = model_of("bert-base-uncased")
    batch = batch_of(model)
    with record(model) as seen:
        packed(model)(**batch)
    assert len(seen) == SHAPE["layers"]
    heard = []
    hook = model.blocks[1].register_forward_pre_hook(lambda _, inputs: heard.append(inputs))
    packed(model)(**batch)
    hook.remove()
    assert len(heard) == 1


def test_it_stands_for_the_model_in_every_other_respect():
    model = model_of("bert-base-uncased")
    quick = packed(model)
    assert quick.config is model.config and quick.family is model.family
    assert quick.read == model.read
    with refuses(AttributeError, "lyrics"):
        quick.lyrics  # noqa: B018


def test_what_is_not_a_plain_encoder_stays_as_it_is():
    for model in (
        create("gpt2", width=48, layers=1, heads=4, vocab_size=90),
        model_of("bert-base-uncased", activation="silu"),
        model_of("bert-base-uncased").double(),
        extend(model_of("bert-base-uncased"), "int8", {"kind": "weight"}),
    ):
        assert packed(model) is model
    model = model_of("bert-base-uncased")
    assert packed(model, "fp16") is model


@pytest.mark.parametrize("name", ["", "relu", "gelu", "gelu_tanh"])
def test_a_pass_over_rows_against_fp64(name):
    torch.manual_seed(0)
    x, more, norm = torch.randn(7, 200) * 3, torch.randn(7, 200), nn.LayerNorm(200, 1e-5)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    activation = {
        "": lambda y: y,
        "relu": torch.relu,
        "gelu": nn.functional.gelu,
        "gelu_tanh": lambda y: nn.functional.gelu(y, approximate="tanh"),
    }[name]
    exact = norm.double()(activation(x.double()) + more.double())
    norm.float()
    numbers = Norm(norm.weight.detach(), norm.bias.detach(), norm.eps)
    rows = rows_pass(
        Sums(full=x), "small", activation=name, residual=more, norm=numbers, also_full=True
    )
    assert (rows.full - exact).abs().max() <= 2e-6 * exact.abs().max()
    back = (rows.small.double() - rows.zero[:, None]) * rows.step[:, None]
    assert ((back - exact).abs() <= 0.51 * rows.step[:, None]).all()
