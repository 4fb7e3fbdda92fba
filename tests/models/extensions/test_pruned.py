"""A pruned model is the model whose other heads and units give nothing, only smaller."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.api import LoadedModel
from regard.attention.position import Relative
from regard.core.errors import ConfigError
from regard.core.seeding import keyed
from regard.decoding import generate
from regard.formats.directory import save
from regard.methods.prune.importance import gated
from regard.methods.prune.run import heads_to_go, remove
from regard.models import create
from regard.models.extensions import extend
from regard.models.extensions.pruned import networks_of, remaining, sites
from tests.decoding.small import naive, tokenizer
from tests.laws.zoo import ATTENTIVE, STEPWISE, Specimen, close, collate
from tests.models.extensions.shared import cached_is_uncached, comes_back
from tests.refusals import refuses

each = pytest.mark.parametrize("specimen", ATTENTIVE, ids=str)
FOUR = [  # families with something for every head, with more heads than the zoo's
    replace(specimen, config=specimen.config.replace(heads=4))
    for specimen in ATTENTIVE
    if specimen.name in ("gpt2", "transformer-xl-plain", "xlnet-left", "t5", "longformer-global")
]


def batch(specimen: Specimen) -> Any:
    return collate([specimen.text(5, 0), specimen.text(3, 1), specimen.text(4, 2)])


def drawn(model: Any, seed: int = 0) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Heads to remove, some of most attentions, and units to keep, a third of each network."""
    dice = keyed(seed, "pruned")
    heads = {}
    for number, (name, parts) in enumerate(sites(model).items()):
        remaining_heads, project = remaining(parts[0]), parts[0].project
        each = project.heads // project.kv_heads
        groups = [remaining_heads[i : i + each] for i in range(0, len(remaining_heads), each)]
        count = int(dice.integers(1, len(groups))) if len(groups) > 1 and number != 1 else 0
        if count:
            chosen = dice.choice(len(groups), count, replace=False)
            heads[name] = sorted(head for group in chosen for head in groups[group])
    units = {}
    for name, network in networks_of(model).items():
        size = network.wide.out_features
        units[name] = sorted(dice.choice(size, size // 3, replace=False).tolist())
    return heads, units


def without(
    numbers: dict[str, list[int]], of: dict[str, list[int]], name: str, y: Tensor
) -> Tensor:
    """Gates of 0 for these, of 1 for the others; `of` are the numbers there are."""
    gate = torch.ones(y.size(0), len(of[name]), dtype=y.dtype)
    gate[:, [of[name].index(number) for number in numbers.get(name, [])]] = 0.0
    return gate


def masked(model: Any, heads: dict[str, list[int]], units: dict[str, list[int]]) -> Any:
    every = {name: remaining(parts[0]) for name, parts in sites(model).items()}
    sizes = {n: list(range(part.wide.out_features)) for n, part in networks_of(model).items()}
    gone = {
        name: [u for u in sizes[name] if u not in remaining_units]
        for name, remaining_units in units.items()
    }
    return gated(model, partial(without, heads, every), partial(without, gone, sizes))


def same(one: Any, other: Any) -> None:
    """Bit for bit. (Products may differ in the last one, by where numbers lie in memory: a copy
    has its own place for each.)
    """
    before, after = one.state_dict(), other.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@each
def test_pruned_is_masked(specimen: Specimen) -> None:
    model = specimen.fresh(torch.float64)
    heads, units = drawn(model)
    texts = batch(specimen)
    with masked(model, heads, units):
        expected = [*texts.of(model(**texts.inputs)), specimen.loss(model, texts)]
    whole = specimen.loss(model, texts)
    before = model.parameter_count()
    remove(model, heads, units)
    outputs = [*texts.of(model(**texts.inputs)), specimen.loss(model, texts)]
    for one, other in zip(outputs, expected, strict=True):
        close(one, other, 1e-10)
    assert model.parameter_count() < 0.95 * before
    assert not torch.isclose(whole, expected[-1], rtol=1e-6), "what was pruned did something"


@each
def test_gradients_are_those_of_the_masked_model(specimen: Specimen) -> None:
    """Also of what layers share, of which a pruned layer picks its heads."""
    model = specimen.fresh(torch.float64)
    heads, _ = drawn(model)
    smaller, texts = deepcopy(model), batch(specimen)
    remove(smaller, heads, {})
    with masked(model, heads, {}):
        specimen.loss(model, texts).backward()
    specimen.loss(smaller, texts).backward()
    slopes = {name.replace("score.score.", "score."): p for name, p in smaller.named_parameters()}
    whole = [n for n, p in model.named_parameters() if slopes[n].shape == p.shape]
    assert len(whole) > 4
    for name in whole:
        grad, expected = slopes[name].grad, model.get_parameter(name).grad
        if expected is not None:
            assert grad is not None
            close(grad, expected, 1e-9, name)


@pytest.mark.parametrize("specimen", [s for s in STEPWISE if s in ATTENTIVE], ids=str)
def test_cached_is_uncached(specimen: Specimen) -> None:
    """Each layer has the cache of its own number of heads."""
    model = specimen.fresh(torch.float64)
    remove(model, *drawn(model))
    cached_is_uncached(specimen, model, [0.0, 0.5])


@pytest.mark.parametrize("specimen", [s for s in FOUR if s.stepwise], ids=str)
def test_generation_is_that_of_one_pass(specimen: Specimen) -> None:
    model = specimen.fresh(torch.float64).requires_grad_(False)
    remove(model, *drawn(model, 3))
    prompt = specimen.text(4, 5)["input_ids"].tolist()
    best = generate(LoadedModel(model), [prompt], max_new_tokens=6, eos_ids=[], suppress_tokens=[])[
        0
    ][0]
    assert best.ids == naive(model, prompt, 6)


@each
def test_saved_and_loaded_is_the_same(specimen: Specimen, tmp_path: Path) -> None:
    model = specimen.fresh(torch.float64)
    remove(model, *drawn(model))
    comes_back(model, batch(specimen).inputs, tmp_path)


@pytest.mark.parametrize("specimen", FOUR, ids=str)
def test_pruning_twice_is_pruning_once(specimen: Specimen, tmp_path: Path) -> None:
    model = specimen.fresh(torch.float64)
    heads, units = drawn(model, 1)
    rest = {n: [h for h in range(4) if h not in gone][:1] for n, gone in heads.items()}
    rest = {n: gone for n, gone in rest.items() if len(heads[n]) < 3}
    assert rest, "some layer is pruned again"
    once, texts = deepcopy(model), batch(specimen)
    remove(once, {n: [*heads[n], *rest.get(n, [])] for n in heads}, units)
    remove(model, heads, {})
    model = regard.load(save(model, tmp_path), dtype=torch.float64).model
    remove(model, rest, units)
    assert model.extensions == once.extensions
    same(model, once)
    assert torch.equal(deepcopy(model)(**texts.inputs), deepcopy(once)(**texts.inputs))


def test_what_layers_share_stays_shared_and_whole() -> None:
    xl = next(s for s in FOUR if s.name == "transformer-xl-plain").fresh()
    remove(xl, {"blocks.0.attention.layer": [0, 3]}, {})
    first, second = (block.attention.layer.score for block in xl.blocks)
    assert first.score.u is second.u and second.u.size(0) == 4
    assert first.score.distance.out_features == 2 * xl.config.head_size


@pytest.mark.parametrize(
    "names", [["pruned"], ["characters"], ["gates", "characters", "pointer", "pruned"]], ids=str
)
def test_parts_come_together_and_become_small(names: list[str], tmp_path: Path) -> None:
    """In bytes a model says nearly the same, whatever was added to it or cut from it."""
    torch.manual_seed(1)
    words = tokenizer("bytes-bpe")
    model = create("gpt", layers=2, width=64, heads=4, vocab_size=len(words), context=32).eval()
    heads = {"blocks.0.attention.layer": [0, 2], "blocks.1.attention.layer": [3]}
    options = {"pruned": {"heads": heads, "ffn_units": {"blocks.1.feed_forward.layer": 100}}}
    for name in names:
        extend(model, name, options.get(name), words)
    small = extend(deepcopy(model), "int8")
    again = regard.load(save(small, tmp_path)).model
    assert list(again.extensions) == [*names, "int8"]
    tokens = torch.randint(len(words), (2, 30))
    with torch.no_grad():
        log_probs = [one.logits(one(tokens)).log_softmax(-1) for one in (model, small, again)]
    assert torch.equal(log_probs[1], log_probs[2])
    assert 0 < float((log_probs[0] - log_probs[1]).abs().max()) < 0.1


def test_refusals() -> None:
    def gpt() -> Any:
        return next(s for s in FOUR if s.name == "gpt2").fresh()

    other = gpt()
    other.blocks[0].attention.layer.score = torch.nn.Identity()
    with refuses(ConfigError, "blocks.0.attention.layer", "Identity"):
        extend(other, "pruned", {"heads": {"blocks.0.attention.layer": [0]}})


def test_a_shared_score_stays_whole_while_a_part_of_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may read it at the same time."""
    specimen = next(s for s in FOUR if s.name == "transformer-xl-plain")
    xl = specimen.fresh()
    remove(xl, {"blocks.0.attention.layer": [0, 3]}, {})
    shared, forward, seen = xl.blocks[1].attention.layer.score, Relative.forward, []

    def spied(self: Relative, *args: Any) -> Any:
        seen.append((shared.u.size(0), xl.blocks[0].attention.layer.score.score.u.size(0)))
        return forward(self, *args)

    monkeypatch.setattr(Relative, "forward", spied)
    xl(**batch(specimen).inputs)
    assert len(seen) > 1 and set(seen) == {(4, 4)}


def test_heads_that_share_keys_are_not_parted() -> None:
    specimen = next(s for s in ATTENTIVE if s.name == "llama-grouped")
    model, name = specimen.fresh(), "blocks.0.attention.layer"
    with refuses(ConfigError, name, "[0, 1]", "[1, 2, 3]"):
        remove(model, {name: [0]}, {})
    with refuses(ConfigError, "groups", "--head-list"):
        heads_to_go(specimen.fresh(), 0.5)
    smaller = specimen.fresh()
    remove(smaller, {name: [0, 1]}, {})
    project = smaller.blocks[0].attention.layer.project
    assert (project.heads, project.kv_heads) == (2, 1)
