"""What was saved is what is loaded, to the bit, in the published formats and in our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import regard
from regard.formats.directory import save
from tests.laws.zoo import ZOO, Specimen, collate

each = pytest.mark.parametrize("specimen", ZOO, ids=str)
OWN = {"transformer-pre", "gpt3", "xlnet-left", "characters", "lstm"}


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_saved_and_loaded_is_the_same(
    specimen: Specimen, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = specimen.fresh(dtype)
    save(model, tmp_path / "a")
    loaded = regard.load(tmp_path / "a", dtype=dtype)
    assert type(loaded.model) is type(model) and loaded.config == model.config
    before, after = model.state_dict(), loaded.model.state_dict()
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert value.dtype == after[name].dtype and torch.equal(value, after[name]), name
    inputs = collate([specimen.text(5, 0), specimen.text(3, 1)]).inputs
    hidden = model(**inputs)
    assert torch.equal(loaded.model(**inputs), hidden)
    assert torch.equal(loaded.model.logits(hidden), model.logits(hidden))
    loaded.save(tmp_path / "b")
    files = [tmp_path / folder / "model.safetensors" for folder in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes(), "and saving again writes the same file"


@each
def test_what_is_shared_stays_shared(specimen: Specimen, tmp_path: Path) -> None:
    """Tied weights are one tensor after loading too: training must not tear them apart."""
    model = specimen.fresh()
    save(model, tmp_path)
    loaded = regard.load(tmp_path).model
    assert loaded.parameter_count() == model.parameter_count()

    def groups(one: torch.nn.Module) -> set[frozenset[str]]:
        names: dict[int, set[str]] = {}
        for name, parameter in one.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), set()).add(name)
        return {frozenset(group) for group in names.values()}

    assert groups(loaded) == groups(model)


@each
def test_only_what_transformers_computes_bears_its_name(specimen: Specimen, tmp_path: Path) -> None:
    save(specimen.fresh(), tmp_path)
    kind = json.loads((tmp_path / "config.json").read_text())["model_type"]
    assert kind.startswith("regard-") == (specimen.name in OWN), kind
