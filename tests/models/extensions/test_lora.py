"""LoRA: where adapters stand, that they start at the plain model, learn alone, come back, merge."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.core.errors import ConfigError
from regard.methods.finetune.run import finetune
from regard.models import create
from regard.models.extensions import extend
from regard.models.extensions.lora import Adapter, Lora, merge
from regard.training.build import extended, resolved
from regard.training.data import TextData
from regard.training.recipe import make, replaced
from regard.training.recipe_parts import Optimizer
from regard.training.resolve import MachineFacts
from regard.training.run import train
from tests.laws.zoo import ATTENTIVE, STEPWISE, Specimen, close, collate
from tests.models.extensions.shared import cached_is_uncached, comes_back
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.tuning import stop as stop
from tests.training import small

each = pytest.mark.parametrize("specimen", ATTENTIVE, ids=str)
EVERYWHERE = ["query", "key", "value", "out", "wide", "narrow"]


def adapted(specimen: Specimen, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """With adapters that do something."""
    return moved(extend(specimen.fresh(dtype), "lora", {"rank": 2} | options))


def moved(model: Any) -> Any:
    dice = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, Adapter):
                part.A.normal_(0.0, 0.3, generator=dice)
                part.B.normal_(0.0, 0.3, generator=dice)
    return model


@each
def test_it_starts_at_the_plain_model(specimen: Specimen) -> None:
    model = specimen.fresh(torch.float64)
    batch = collate([specimen.text(5, 0), specimen.text(3, 1)])
    plain = model(**batch.inputs)
    with_adapters = extend(deepcopy(model), "lora", {"targets": EVERYWHERE})
    for one, other in zip(batch.of(with_adapters(**batch.inputs)), batch.of(plain), strict=True):
        assert torch.equal(one, other)
    assert with_adapters.parameter_count() > model.parameter_count()


@each
def test_merged_is_adapted(specimen: Specimen) -> None:
    whole = specimen.name.startswith("gpt")
    model = adapted(specimen, targets=["project"] if whole else EVERYWHERE)
    batch = collate([specimen.text(5, 0), specimen.text(3, 1)])
    before = model(**batch.inputs)
    plain = merge(deepcopy(model))
    assert plain.extensions == {}
    assert list(plain.state_dict()) == list(specimen.fresh(torch.float64).state_dict())
    for one, other in zip(batch.of(plain(**batch.inputs)), batch.of(before), strict=True):
        close(one, other, 1e-10)
    with refuses(ConfigError, "no LoRA adapters"):
        merge(plain)


@pytest.mark.parametrize("specimen", [s for s in STEPWISE if s in ATTENTIVE], ids=str)
def test_cached_is_uncached(specimen: Specimen) -> None:
    cached_is_uncached(specimen, adapted(specimen, targets=["query", "key", "value"]), [0.5])


@each
def test_saved_and_loaded_is_the_same(specimen: Specimen, tmp_path: Path) -> None:
    model = adapted(specimen, torch.float32, dropout=0.1)
    comes_back(model, collate([specimen.text(5, 0)]).inputs, tmp_path)


def bert(**options: Any) -> Any:
    shape: dict[str, Any] = {"vocab_size": 30, "width": 16, "layers": 2, "heads": 2, "context": 16}
    return extend(create("bert", ffn_size=32, **shape), "lora", options)


def test_the_formula() -> None:
    model = moved(bert(rank=3, alpha=6, targets=["key"]))
    project = model.blocks[0].attention.layer.project
    x, adapter = torch.randn(2, 5, 16), project.lora["key"]
    assert adapter.A.shape == (3, 16) and adapter.B.shape == (16, 3)
    whole = project.weight.clone()
    whole[16:32] += 2.0 * adapter.B @ adapter.A  # alpha / rank
    wanted = torch.nn.functional.linear(x, whole, project.bias)
    close(project.rows(x, 0, 48), wanted, 1e-5)
    close(project.rows(x, 16, 48), wanted[..., 16:], 1e-5)


def test_targets() -> None:
    def chosen(*targets: str) -> list[str]:
        model = create("t5", vocab_size=20, width=16, layers=1, heads=2, head_size=8, ffn_size=16)
        return [site.name for site in Lora.of({"targets": list(targets)}).chosen(model)]

    assert chosen() == chosen("query", "value") and len(chosen()) == 6
    assert chosen("decoder.*.cross.layer.key") == ["decoder.blocks.0.cross.layer.key"]
    assert chosen("encoder.blocks.0.attention.layer.out") == [
        "encoder.blocks.0.attention.layer.out"
    ]
    gpt = create("gpt", vocab_size=20, width=16, layers=1, heads=2, context=8)
    assert [s.name for s in Lora.of({}).chosen(gpt)] == ["blocks.0.attention.layer.project"]


def test_only_adapters_and_heads_learn() -> None:
    model = create("bert", vocab_size=30, width=16, layers=1, heads=2, context=16, ffn_size=32)
    model.add_heads({"classify": 2})
    recipe = make({"model": "bert", "extensions": {"lora": True}})
    learning = {n for n, p in extended(model, recipe).named_parameters() if p.requires_grad}
    assert {name.split(".")[0] for name in learning} == {"blocks", "heads"}
    assert all(".lora." in name for name in learning if name.startswith("blocks"))
    thawing = make({"model": "bert", "optimizer": {"unfreeze_every": 3}}, recipe.table())
    with refuses(ConfigError, "unfreeze_every", "lora"):
        extended(deepcopy(model), thawing)


def test_a_run_learns_and_keeps_the_rest(tmp_path: Path) -> None:
    base = tuning.bert(tmp_path / "bert")
    file = tuning.write(tmp_path / "train.jsonl", tuning.reviews(40))
    recipe = tuning.recipe(base, file, extensions={"lora": {"rank": 4}}, budget={"steps": 6})
    facts = finetune(recipe, tmp_path / "run", display="silent")
    assert "of them learn" in facts["learning"]
    before, after = (regard.load(place).model for place in (base, tmp_path / "run"))
    weights = after.state_dict()
    for name, value in before.state_dict().items():
        if not name.startswith(("heads.", "output.")):
            assert torch.equal(value, weights[name]), name
    assert any(bool(p.B.any()) for p in after.modules() if isinstance(p, Adapter))
    text = "the film was fine"
    wanted = regard.load(tmp_path / "run").classify(text)
    merged = regard.load(tmp_path / "run")
    merge(merged.model)
    merged.save(tmp_path / "merged")
    opened = regard.load(tmp_path / "merged")
    assert opened.source["model_type"] == "bert" and opened.model.extensions == {}
    assert opened.classify(text).score == pytest.approx(wanted.score, abs=1e-5)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, stop: list[int]) -> None:
    base = tuning.bert(tmp_path / "bert")
    file = tuning.write(tmp_path / "train.jsonl", tuning.reviews(60))
    recipe = tuning.recipe(
        base, file, extensions={"lora": {"rank": 4, "dropout": 0.1}}, budget={"steps": 8}
    )
    finetune(recipe, tmp_path / "whole", display="silent")
    stop.append(8 + 4)  # steps are counted over both runs
    finetune(recipe, tmp_path / "part", display="silent")
    finetune(make({}), tmp_path / "part", resume=True, display="silent")
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "part")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_run_on_text(tmp_path: Path) -> None:
    """The rate of a recipe that names none is ten times that of the whole model."""
    data = small.data(tmp_path / "data")
    recipe = small.recipe("gpt", data, budget={"steps": 2})
    train(recipe, tmp_path / "base", display="silent")
    plain = replaced(recipe, model=str(tmp_path / "base"), shape={})
    adapted = replaced(plain, extensions={"lora": {}})
    train(adapted, tmp_path / "run", display="silent")
    loaded = regard.load(tmp_path / "run")
    assert loaded.model.extensions["lora"]["base"] == str(tmp_path / "base")
    rates = [
        resolved(replaced(each, optimizer=Optimizer()), TextData(), MachineFacts()).optimizer.lr
        for each in (plain, adapted)
    ]
    assert rates[1] == pytest.approx(10 * rates[0])


def test_refusals() -> None:
    with refuses(ConfigError, "targets", "'qurey'", "query"):
        bert(targets=["qurey"])
    with refuses(ConfigError, "'project'", "part of"):
        bert(targets=["project", "query"])
    with refuses(ConfigError, "rank is 0"):
        bert(rank=0)
    with refuses(ConfigError, "alpha is 0"):
        bert(alpha=0)
    with refuses(ConfigError, "dropout is 1"):
        bert(dropout=1.0)
    with refuses(ConfigError, "'int8'", "merge"):
        extend(bert(), "int8")
    with refuses(ConfigError, "'int8'", "cannot be trained"):
        extend(extend(create("gpt", vocab_size=20, width=16, layers=1, heads=2), "int8"), "lora")
    with refuses(ConfigError, "lstm", "no linear map"):
        extend(create("lstm", vocab_size=20, width=16, layers=1), "lora")
