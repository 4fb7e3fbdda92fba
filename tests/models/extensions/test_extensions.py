"""Parts that are added to models: order, names, and what is written of them."""

import json

import pytest
import torch

import regard
from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.formats.directory import describe, save
from regard.models import create
from regard.models.extensions import EXTENSIONS, extend, extension
from tests.decoding.small import tokenizer
from tests.laws.zoo import ZOO


def gpt():
    torch.manual_seed(1)
    return create("gpt", layers=2, width=16, heads=2, vocabulary=30, context=16).eval()


def test_every_extension_says_what_it_is():
    for name in EXTENSIONS:
        found = extension(name)
        assert found.name == name
        assert json.loads(json.dumps(found.of({}).table())) is not None


def test_a_plain_model_has_none_and_is_written_as_ever(tmp_path):
    model = gpt()
    assert model.extensions == {}
    config = json.loads((save(model, tmp_path / "m") / "config.json").read_text())
    assert config["model_type"] == "gpt2" and "regard_extensions" not in config


def test_an_extended_model_is_read_back_bit_for_bit(tmp_path):
    model = extend(gpt(), "gates").eval()
    path = save(model, tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    assert config["model_type"] == "regard-gpt" and list(config["regard_extensions"]) == ["gates"]
    again = regard.load(path).model
    assert again.extensions == model.extensions
    tokens = torch.arange(12)[None]
    assert torch.equal(again(tokens), model(tokens))
    assert describe(path)["extensions"] == model.extensions


@pytest.mark.parametrize("name", ["characters", "pointer"])
@pytest.mark.parametrize(
    "specimen", [s for s in ZOO if s.name in ("gpt2", "transformer-xl", "transformer", "lstm")],
    ids=str,
)  # fmt: skip
def test_a_part_that_is_replaced_keeps_its_weights(specimen, name):
    """The same ones under the same names, tied as they were; the old part stays what it was."""
    model = specimen.fresh()
    before = dict(model.named_parameters(remove_duplicate=False))
    order, old = list(model.state_dict()), {"characters": model.tokens, "pointer": model.output}
    names, kind = list(old[name].state_dict()), type(old[name])
    extend(model, name, tokenizer=tokenizer("wordpiece"))
    after = dict(model.named_parameters(remove_duplicate=False))
    assert all(after[key] is value for key, value in before.items())
    assert [key for key in model.state_dict() if key in order] == order
    assert type(old[name]) is kind and list(old[name].state_dict()) == names
    assert not any("forward" in vars(part) for part in model.modules())


def test_refusals(tmp_path):
    with pytest.raises(UnknownName):
        extend(gpt(), "wings")
    with pytest.raises(UnknownName, match="gates"):
        extend(gpt(), "gates", {"colour": "red"})
    with pytest.raises(ConfigError, match="already"):
        extend(extend(gpt(), "gates"), "gates")
    with pytest.raises(ConfigError, match="first"):
        extend(extend(gpt(), "int8"), "gates")
    path = save(extend(gpt(), "gates"), tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    for bad in ("x", {"gates": 1}, {"wings": {}}):
        (path / "config.json").write_text(json.dumps(config | {"regard_extensions": bad}))
        with pytest.raises((ConfigError, UnknownName)):
            regard.load(path)


def test_whole_numbers_are_kept_and_not_taken_for_others(tmp_path):
    path = save(extend(gpt(), "int8"), tmp_path / "m")
    again = regard.load(path).model
    assert any(t.dtype == torch.int8 for t in again.state_dict().values())
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"regard_extensions": {}}))
    with pytest.raises(FormatError):
        regard.load(path)
