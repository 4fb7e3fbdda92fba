"""Optimizers: equal to their references, storable bit for bit, and set as the papers say."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from transformers.optimization import Adafactor as HuggingFaceAdafactor

from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.models import FAMILIES, family_of, sizes
from regard.training.optimizer import (
    NAMES,
    allocate,
    clip,
    groups_of,
    load_state,
    optimizer,
    set_rate,
    state_tensors,
)
from regard.training.schedule import schedule
from tests.models.small import SMALL, small
from tests.refusals import Refusal, refuses


class Toy(nn.Module):
    """A matrix, a vector, a cube, an embedding with rows that never occur, an unused weight, and a
    layer.
    """

    def __init__(self, dtype=torch.float64):
        super().__init__()
        draw = torch.Generator().manual_seed(3)

        def weight(*shape):
            return nn.Parameter(torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype))

        self.matrix, self.bias, self.cube = weight(7, 5), weight(5), weight(2, 3, 5)
        self.words, self.unused = weight(11, 7), weight(4, 4)
        self.layers = nn.ModuleList([nn.Linear(5, 5, bias=False)])
        self.layers[0].weight = weight(5, 5)

    def forward(self, step):
        draw = torch.Generator().manual_seed(100 + step)
        rows = self.words[torch.randint(0, 5, (6,), generator=draw)]
        hidden = self.layers[0]((rows @ self.matrix + self.bias).tanh())
        return (hidden[:, None] * self.cube[0]).pow(2).sum() + (self.cube[1] * hidden[0]).sum()


def learn(model, algorithm, steps, rate=None):
    for step in steps:
        if rate is not None:
            set_rate(algorithm, rate(step))
        algorithm.zero_grad()
        model(step).backward()
        algorithm.step()
    return model


def settings(name):
    return {"eps": 1e-30 if name == "adafactor" else 1e-6} | (
        {} if name == "adam" else {"weight_decay": 0.1}
    )


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# -- groups


@pytest.mark.parametrize("name", SMALL)
def test_norms_and_biases_do_not_decay(name):
    model = small(name)
    norms = {
        id(p)
        for part in model.modules()
        if isinstance(part, nn.LayerNorm | nn.RMSNorm)
        for p in part.parameters()
    }
    plain = {id(p) for g in groups_of(model, 0.1) if g["name"] == "plain" for p in g["params"]}
    seen = 0
    for key, p in model.named_parameters():
        bias = "bias" in key.split(".", 1)[-1]
        assert (id(p) in plain) == (id(p) in norms or bias), key
        seen += 1
    assert seen == sum(len(g["params"]) for g in groups_of(model, 0.1))


def test_xlnets_own_biases_and_its_query_decay():
    model = small("xlnet-base")
    groups = {g["name"]: {id(p) for p in g["params"]} for g in groups_of(model, 0.1)}
    named = dict(model.named_parameters())
    for key in ("query", "blocks.0.attention.layer.score.u", "blocks.1.attention.layer.score.s"):
        assert id(named[key]) in groups["decay"]
    assert id(named["output.bias"]) in groups["plain"]


def test_only_what_learns_is_in_a_group():
    model = Toy()
    model.matrix.requires_grad_(False)
    assert all(p is not model.matrix for g in groups_of(model, 0.1) for p in g["params"])
    for p in model.parameters():
        p.requires_grad_(False)
    with refuses(ConfigError, "weight"):
        optimizer("adamw", model, lr=1e-3)


def test_the_rate_is_that_of_the_schedule_times_the_scale_of_the_group():
    adamw = optimizer("adamw", Toy(), lr=1e-3, weight_decay=0.1)
    assert [g["name"] for g in adamw.param_groups] == ["decay", "plain"]
    assert [g["weight_decay"] for g in adamw.param_groups] == [0.1, 0.0]
    adamw.param_groups[1]["scale"] = 0.5
    set_rate(adamw, 0.02)
    assert [g["lr"] for g in adamw.param_groups] == [0.02, 0.01]


def test_rates_fall_from_layer_to_layer():
    model = small("bert-base-uncased")
    named = dict(model.named_parameters())
    scales = {
        id(p): g["scale"] for g in groups_of(model, 0.1, layer_decay=0.5) for p in g["params"]
    }
    layers = model.config.layers
    for key, p in named.items():
        if key.startswith("blocks."):
            assert scales[id(p)] == 0.5 ** (layers - 1 - int(key.split(".")[1])), key
        elif key.startswith("embeddings."):
            assert scales[id(p)] == 0.5**layers, key
        else:
            assert scales[id(p)] == 1.0, key
    with refuses(ConfigError, "optimizer.layer_decay", 1.5):
        optimizer("adamw", model, lr=1e-3, layer_decay=1.5)


# -- equal to the references


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_adamw_equals_the_plain_one(dtype):
    one, other = Toy(dtype), Toy(dtype)
    ours = optimizer("adamw", one, lr=1e-2, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    assert ours.defaults["fused"]
    groups = [{**g, "lr": 1e-2} for g in groups_of(other, 0.1)]
    theirs = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, foreach=False, fused=False)
    learn(one, ours, range(20)), learn(other, theirs, range(20))
    close = 1e-12 if dtype == torch.float64 else 1e-5
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=close, atol=close)
    assert torch.equal(one.unused, Toy(dtype).unused)


def test_bert_adam_follows_its_formula():
    model, rate, beta, gamma, epsilon, decay = Toy(), 1e-2, 0.9, 0.999, 1e-6, 0.01
    bert_adam = optimizer(
        "bert-adam", model, lr=rate, betas=(beta, gamma), eps=epsilon, weight_decay=decay
    )
    check = Toy()
    m = {k: torch.zeros_like(p) for k, p in check.named_parameters()}
    v = {k: torch.zeros_like(p) for k, p in check.named_parameters()}
    for step in range(15):
        learn(model, bert_adam, [step])
        check.zero_grad()
        check(step).backward()
        with torch.no_grad():
            for key, p in check.named_parameters():
                if p.grad is None:
                    continue
                m[key] = beta * m[key] + (1 - beta) * p.grad
                v[key] = gamma * v[key] + (1 - gamma) * p.grad**2
                update = m[key] / (v[key].sqrt() + epsilon)
                p -= rate * (update + (0.0 if key == "bias" else decay) * p)
    for a, b in zip(model.parameters(), check.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_without_the_correction_the_first_step_is_three_times_as_long():
    lengths = []
    for name in ("bert-adam", "adamw"):
        model = Toy()
        learn(model, optimizer(name, model, lr=1e-3, eps=1e-12), [0])
        lengths.append(float((model.matrix - Toy().matrix).detach().abs().mean()))
    assert lengths[0] / lengths[1] == pytest.approx(0.1 / 0.001**0.5, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_adafactor_equals_transformers(dtype, decay):
    """With a rate above 1 / √t, where torch's own would cut it, and rows without any gradient."""
    one, other = Toy(dtype), Toy(dtype)
    ours = optimizer("adafactor", one, lr=0.5, eps=1e-30, weight_decay=decay)
    groups = [
        {"params": g["params"], "weight_decay": g["weight_decay"]} for g in groups_of(other, decay)
    ]
    theirs = HuggingFaceAdafactor(groups, lr=0.5, relative_step=False, scale_parameter=True)
    for step in range(25):
        draw = torch.Generator().manual_seed(step)
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            a.grad = torch.randn(a.shape, generator=draw, dtype=torch.float64).to(dtype)
            if a is one.words:
                a.grad[5:] = 0.0
            b.grad = a.grad.clone()
        ours.step()
        theirs.step()
    close = 1e-11 if dtype == torch.float64 else 1e-4
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=close, atol=close)
    assert all(torch.isfinite(p).all() for p in one.parameters())


# -- clipping


@pytest.mark.parametrize("limit", [0.25, 1e6])
def test_clipping_equals_torch(limit):
    one, other = Toy(), Toy()
    for model in (one, other):
        model(0).backward()
    norm = clip(one.parameters(), limit)
    expected = nn.utils.clip_grad_norm_(other.parameters(), limit)
    assert norm == pytest.approx(float(expected), rel=1e-12)
    grads = [[p.grad for p in m.parameters() if p.grad is not None] for m in (one, other)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


def test_no_limit_only_measures():
    model = Toy()
    model(0).backward()
    before = model.matrix.grad.clone()
    assert clip(model.parameters(), 0.0) > 0
    assert torch.equal(before, model.matrix.grad)


# -- storing


def through_bytes(tensors):
    from safetensors.torch import load, save

    return load(save({k: v.contiguous() for k, v in tensors.items()}))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_going_on_from_stored_state_is_bitwise_the_same(name, dtype):
    rate = schedule("linear", lr=0.01, warmup=3, steps=20)

    def made_for(model):
        more = {"momentum": 0.9} if name == "sgd" else {}
        return optimizer(name, model, lr=1.0, **settings(name), **more)

    def go(model, algorithm, steps):
        return learn(model, algorithm, steps, lambda step: rate(step + 1))

    whole = Toy(dtype)
    go(whole, made_for(whole), range(12))

    part = Toy(dtype)
    first = made_for(part)
    go(part, first, range(7))
    stored = through_bytes(state_tensors(first, part))
    assert stored and not any(key.startswith("unused/") for key in stored)

    again = Toy(dtype)
    again.load_state_dict(copy.deepcopy(part.state_dict()))
    second = made_for(again)
    load_state(second, again, stored)
    state = state_tensors(second, again)
    assert state.keys() == stored.keys()
    for key, value in state.items():
        assert torch.equal(value, stored[key]) and value.dtype == stored[key].dtype, key
        assert value.device.type == "cpu"
    go(again, second, range(7, 12))
    assert same(whole, again)


def test_adamw_counts_its_steps_in_one_number_a_weight():
    model = Toy()
    adamw = learn_with(model, 3)
    assert state_tensors(adamw, model)["matrix/step"].shape == ()
    assert float(state_tensors(adamw, model)["matrix/step"]) == 3.0


def learn_with(model, steps):
    adamw = optimizer("adamw", model, lr=1e-2)
    learn(model, adamw, range(steps))
    return adamw


@pytest.mark.parametrize("name", NAMES)
def test_allocating_changes_nothing_else(name):
    model = Toy()
    with torch.no_grad():
        model.bias[0] = -0.0
    algorithm = optimizer(name, model, lr=0.3, **settings(name))
    model(0).backward()
    before = {k: p.clone() for k, p in model.named_parameters()}
    grad = model.matrix.grad
    allocate(algorithm)
    assert all(torch.equal(p, before[k]) for k, p in model.named_parameters())
    assert torch.signbit(model.bias[0])
    assert model.matrix.grad is grad and model.unused.grad is None
    assert {g["lr"] for g in algorithm.param_groups} == {0.3}
    assert not any(t.count_nonzero() for t in state_tensors(algorithm, model).values())


def test_an_allocated_state_is_that_before_the_first_step():
    one, other = Toy(), Toy()
    first, second = (optimizer("adamw", m, lr=1e-2, weight_decay=0.1) for m in (one, other))
    allocate(second)
    learn(one, first, range(4)), learn(other, second, range(4))
    assert same(one, other)


def test_a_state_of_another_kind_is_refused():
    model = Toy()
    stored = state_tensors(learn_with(model, 1), model)
    with refuses(FormatError, "matrix", "exp_avg"):
        load_state(optimizer("bert-adam", model, lr=1e-2), model, stored)
    adamw = optimizer("adamw", model, lr=1e-2)
    with refuses(FormatError, "'elsewhere'"):
        load_state(adamw, model, stored | {"elsewhere/step": torch.tensor(1.0)})
    with refuses(FormatError, "matrix/exp_avg", [2]):
        load_state(adamw, model, stored | {"matrix/exp_avg": torch.zeros(2)})


@pytest.mark.parametrize(
    ("name", "options", "refusal"),
    [
        ("adafaktor", {}, (UnknownName, "adafaktor", "'adafactor'")),
        ("adam", {"weight_decay": 0.1}, (ConfigError, "adam", "0.1", "adamw")),
        ("adamw", {"betas": (0.9, 1.0)}, (ConfigError, "betas", "1.0")),
        ("adamw", {"lr": -1.0}, (ConfigError, "lr is -1")),
    ],
)
def test_refusals(name: str, options: dict[str, Any], refusal: Refusal) -> None:
    with refuses(*refusal):
        optimizer(name, Toy(), **{"lr": 1.0} | options)


# -- what the papers say

# optimizer, rate, betas, epsilon, decay, clip, schedule, warmup, steps, batch, length
PUBLISHED = {
    "transformer-base": ("adam", 1.0, (0.9, 0.98), 1e-9, 0, 0, "noam", 4000, 100_000, None, None),
    "transformer-big": ("adam", 1.0, (0.9, 0.98), 1e-9, 0, 0, "noam", 4000, 300_000, None, None),
    "bert-base-uncased": (
        "adamw", 1e-4, (0.9, 0.999), 1e-6, 0.01, 1.0, "linear", 10_000, 1_000_000, 256, 512,
    ),
    "gpt1": ("adamw", 2.5e-4, (0.9, 0.999), 1e-8, 0.01, 1.0, "cosine", 2000, None, 64, 512),
    "gpt3-small": (
        "adamw", 6e-4, (0.9, 0.95), 1e-8, 0.1, 1.0, "cosine", 375e6 / 300e9, 600_000, 256, 2048,
    ),
    "transformer-xl-wt103-base": (
        "adam", 2.5e-4, (0.9, 0.999), 1e-8, 0, 0.25, "cosine", 0, 200_000, 60, 150,
    ),
    "transformer-xl-wt103-large": (
        "adam", 2.5e-4, (0.9, 0.999), 1e-8, 0, 0.25, "cosine", 16_000, 4_000_000, 128, 384,
    ),
    "xlnet-large": (
        "adamw", 4e-4, (0.9, 0.999), 1e-6, 0.01, 1.0, "polynomial", 40_000, 500_000, 8192, 512,
    ),
    "longformer-base-4096": (
        "adamw", 3e-5, (0.9, 0.999), 1e-6, 0.01, 5.0, "polynomial", 500, 65_000, 64, 4096,
    ),
    "t5-base": (
        "adafactor", 0.01, (0.9, 0.999), 1e-30, 0, 0, "inverse-square-root", 10_000, 524_288, 128,
        512,
    ),
}  # fmt: skip
FIELDS = (
    "optimizer lr betas eps weight_decay grad_clip schedule warmup steps batch_size seq_len"
).split()  # fmt: skip


def paper(name):
    return family_of(name).trained(name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_figures(name):
    defaults = paper(name)
    for field, value in zip(FIELDS, PUBLISHED[name], strict=True):
        assert getattr(defaults, field) == value, field


def test_more_of_the_papers_figures():
    assert [paper(f"gpt3-{s}").lr for s in ("medium", "large", "xl", "2.7b", "6.7b")] == [
        3e-4, 2.5e-4, 2e-4, 1.6e-4, 1.2e-4,
    ]  # fmt: skip
    assert (paper("gpt3-13b").lr, paper("gpt3-175b").lr) == (1e-4, 6e-5)
    assert (paper("gpt3-small").min_lr_ratio, paper("gpt3-small").until) == (0.1, 260 / 300)
    assert paper("longformer-large-4096").power == 3.0
    characters = paper("longformer-characters-small")
    assert characters.lr * characters.min_lr_ratio == pytest.approx(1.5625e-5)
    assert paper("transformer-xl-lm1b-base").seq_len == 32


@pytest.mark.parametrize("name", [*FAMILIES, *sizes()])
def test_every_size_can_be_built_from_its_paper(name):
    defaults = paper(name)
    built = optimizer(
        defaults.optimizer,
        Toy(),
        lr=defaults.lr,
        betas=defaults.betas,
        eps=defaults.eps,
        weight_decay=defaults.weight_decay,
    )
    rate = schedule(
        defaults.schedule,
        steps=defaults.steps or 1000,
        width=512,
        lr=defaults.lr,
        warmup=defaults.warmup,
        min_lr_ratio=defaults.min_lr_ratio,
        power=defaults.power,
        until=defaults.until,
    )
    assert built.param_groups and rate(1) > 0
