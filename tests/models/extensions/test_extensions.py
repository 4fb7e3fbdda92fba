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
from tests.refusals import refuses


def gpt():
    torch.manual_seed(1)
    return create("gpt", layers=2, width=16, heads=2, vocab_size=30, context=16).eval()


def test_every_extension_says_what_it_is():
    for name in EXTENSIONS:
        kind = extension(name)
        assert kind.name == name
        assert json.loads(json.dumps(kind.of({}).table())) is not None


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


ATTENTION, NETWORK = "blocks.0.attention.layer", "blocks.0.feed_forward.layer"
REFUSED = [  # extension, options, what the refusal names
    ("wings", {}, ["'wings'"]),
    ("gates", {"color": "red"}, ["color"]),
    ("gates", {"place": "roof"}, ["gates.place"]),
    ("gates", {"kind": "wooden"}, ["gates.kind"]),
    ("gates", {"open": "wide"}, ["gates.open"]),
    ("gates", {"open": float("nan")}, ["gates.open"]),
    ("characters", {"network": "tree"}, ["characters.network"]),
    ("characters", {"most": 0}, ["characters.most"]),
    ("characters", {"alphabet": 2}, ["characters.alphabet"]),
    ("characters", {"size": 0}, ["characters.size"]),
    ("characters", {"window": 0}, ["characters.window"]),
    ("pointer", {"window": 0}, ["pointer.window"]),
    ("pointer", {"open": 0.0}, ["pointer.open"]),
    ("pointer", {"open": 1.0}, ["pointer.open"]),
    ("guidance", {"strength": "strong"}, ["fixed, heads, learned", "guidance.strength"]),
    ("guidance", {"weights": "none"}, ["fixed, learned", "guidance.weights"]),
    ("guidance", {"rules": []}, ["guidance.rules"]),
    ("guidance", {"rules": ["entity", "entity"]}, ["guidance.rules", "each once"]),
    ("guidance", {"gated": "yes"}, ["guidance.gated", "bool"]),
    ("guidance", {"lambda": 1.0}, ["lambda"]),
    ("int8", {"kind": "int3"}, ["int8.kind"]),
    ("int8", {"output": "bytes"}, ["int8.output"]),
    ("int8", {"exclude": ["blocks.7.*"]}, ["blocks.7"]),
    ("int8", {"exclude": "tokens"}, ["int8.exclude", "list"]),
    ("int8", {"exclude": ["*"]}, ["['*']"]),
    ("int8", {"bits": 8}, ["bits"]),
    ("pruned", {"heads": [0]}, ["pruned.heads", "table"]),
    ("pruned", {"heads": {"blocks.7.attention.layer": [0]}}, ["'blocks.7.attention.layer'"]),
    ("pruned", {"heads": {ATTENTION: []}}, ["every head", ATTENTION]),
    *(("pruned", {"heads": {ATTENTION: bad}}, [ATTENTION]) for bad in ([0, 4], [1, 0], [0, 0])),
    *(("pruned", {"heads": {ATTENTION: bad}}, [ATTENTION]) for bad in ("01", [0.5])),
    ("pruned", {"ffn_units": {ATTENTION: 3}}, ["network", ATTENTION]),
    *(("pruned", {"ffn_units": {NETWORK: bad}}, [NETWORK, "64 units"]) for bad in (0, 65)),
    ("pruned", {"ffn_units": {NETWORK: "3"}}, [NETWORK, "ffn_units", "int"]),
]


@pytest.mark.parametrize(("name", "options", "parts"), REFUSED)
def test_options_that_cannot_be(name, options, parts):
    """Nothing of the model has changed when a part of it is refused."""
    family = "bert" if name == "guidance" else "gpt"
    model = create(family, layers=2, width=16, heads=2, ffn_size=64, vocab_size=30, context=16)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with refuses((ConfigError, UnknownName), *parts):
        extend(model, name, options, tokenizer("wordpiece"))
    after = model.state_dict()
    assert model.extensions == {} and list(before) == list(after)
    assert all(torch.equal(after[key], value) for key, value in before.items())


def test_refusals(tmp_path):
    with refuses(ConfigError, "'gates' already"):
        extend(extend(gpt(), "gates"), "gates")
    with refuses(ConfigError, "'gates'", "'int8'"):
        extend(extend(gpt(), "int8"), "gates")
    path = save(extend(gpt(), "gates"), tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    for bad in ("x", {"gates": 1}, {"wings": {}}):
        (path / "config.json").write_text(json.dumps(config | {"regard_extensions": bad}))
        with refuses((ConfigError, UnknownName), "config.json"):
            regard.load(path)


def test_whole_numbers_are_kept_and_not_taken_for_others(tmp_path):
    path = save(extend(gpt(), "int8"), tmp_path / "m")
    again = regard.load(path).model
    assert any(t.dtype == torch.int8 for t in again.state_dict().values())
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"regard_extensions": {}}))
    with refuses(FormatError, "config.json", "tokens.weight"):
        regard.load(path)
