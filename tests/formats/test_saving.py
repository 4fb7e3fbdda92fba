"""Saving: whole or not at all; what no published class can hold has a type of its own."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors import safe_open
from safetensors.torch import load_file

import regard
from regard.api import load
from regard.core import atomic_dir
from regard.core.errors import FormatError, RegardError, StorageError
from regard.formats import directory as exchange
from regard.formats.directory import describe, save
from regard.models.base import EncoderDecoder
from tests.formats.conftest import COMMON, SIZES, Directory
from tests.refusals import refuses, warns

Copy = Callable[[str], Directory]
WRITTEN = {"config.json", "generation_config.json", "model.safetensors"}

# name, its changes, its type, why no class of transformers holds it
OWN: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "GPT-3": ("gpt3-small", {"heads": 4, "context": 12, "band": 3}, "regard-gpt", "banded"),
    "a wide GPT-1": ("gpt1", {"heads": 4, "context": 12, "ffn_size": 24}, "regard-gpt",
     "four times"),
    "an exact GPT-1": (
        "gpt1", {"heads": 4, "context": 12, "activation": "gelu"}, "regard-gpt", "no gelu",
    ),
    "LSTM": ("lstm-medium", {}, "regard-lstm", "no class"),
    "characters": (
        "longformer-characters-small",
        {"heads": 4, "ffn_size": 24, "windows": (4, 8), "dilations": (1, 2)},
        "regard-longformer-characters", "no class",
    ),
    "pre-norm": (
        "transformer-base", {"heads": 4, "ffn_size": 24, "norm": "pre"}, "regard-transformer",
        "post-norm",
    ),
    "interleaved": (
        "transformer-base", {"heads": 4, "ffn_size": 24, "positions": "interleaved"},
        "regard-transformer", "halves",
    ),
    "one u and v": (
        "xlnet-base", {"heads": 4, "head_size": 4, "ffn_size": 24, "untied": False}, "regard-xlnet",
        "every layer",
    ),
    "narrow heads": (
        "xlnet-base", {"heads": 4, "head_size": 3, "ffn_size": 24}, "regard-xlnet", "width",
    ),
}  # fmt: skip


def model_of(case: str) -> Any:
    name, changes, _, _ = OWN[case]
    torch.manual_seed(0)
    model = regard.create(name, **COMMON | changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model.eval()


@torch.no_grad()
def outputs(model: Any) -> torch.Tensor:
    tokens = torch.arange(20).view(2, 10)
    hidden = model(tokens, tokens) if isinstance(model, EncoderDecoder) else model(tokens)
    logits: torch.Tensor = model.logits(hidden)
    return logits


@pytest.mark.parametrize("case", OWN)
def test_a_type_of_our_own(case: str, tmp_path: Path) -> None:
    """Bitwise the same when read again, refused by transformers, and `describe` says why."""
    model = model_of(case)
    save(model, tmp_path)
    _, _, kind, why = OWN[case]
    assert Directory(tmp_path).config["model_type"] == kind
    again = load(tmp_path)
    assert again.config == model.config
    assert list(again.model.state_dict()) == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value), name
    assert torch.equal(outputs(again.model), outputs(model))
    for opener in (hf.AutoConfig, hf.AutoModel, hf.AutoModelForCausalLM):
        with refuses(ValueError, kind):
            opener.from_pretrained(tmp_path)
    description = describe(tmp_path)
    assert description["opens_in_transformers"] is False and why in description["because"]
    assert description["parameters"] == model.parameter_count()
    again.save(tmp_path / "again")
    assert Directory(tmp_path / "again").config == Directory(tmp_path).config


@pytest.mark.parametrize("case", OWN)
def test_ties_of_our_own_types_are_kept(case: str, tmp_path: Path) -> None:
    """Each shared tensor is stored once and shared again when read."""
    model = model_of(case)
    save(model, tmp_path)
    again = load(tmp_path).model
    assert len(list(again.parameters())) == len(list(model.parameters()))
    assert again.output.weight is again.tokens.weight
    stored = load_file(tmp_path / "model.safetensors")
    buffers = sum(value.numel() for value in model.buffers())
    assert sum(v.numel() for v in stored.values()) == model.parameter_count() + buffers


def test_heads_of_our_own_types_are_kept(tmp_path: Path) -> None:
    kind, config = type(model_of("one u and v")), model_of("one u and v").config
    model = kind(config, {"classify": 3}).initialize()
    save(model, tmp_path)
    again = load(tmp_path).model
    assert again.heads["classify"].out.out_features == 3 and not hasattr(again, "output")
    Directory(tmp_path).change(regard_heads={"clasify": 3})
    with refuses(RegardError, "clasify"):
        load(tmp_path)


def test_heads_together_that_no_class_holds(tmp_path: Path) -> None:
    bert = regard.create("bert-tiny", **COMMON | SIZES["bert-tiny"])
    with refuses(FormatError, "classify"):
        save(type(bert)(bert.config, {"classify": 2, "tag": 3}), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", SIZES)
def test_described(name: str, originals: Path) -> None:
    description = describe(originals / name)
    opened = load(originals / name)
    opens = name != "transformer-xl-wt103-base"  # which the newest transformers has no class for
    assert description["opens_in_transformers"] is opens
    assert (description["because"] is None) is opens
    assert description["parameters"] == opened.model.parameter_count()
    assert description["config"]["vocab_size"] == 31 and description["config"]["width"] == 16
    written = WRITTEN if opened.model.decoding else WRITTEN - {"generation_config.json"}
    assert set(description["files"]) == written
    assert description["weights"] == "model.safetensors"
    assert description["tokenizer"] is None
    json.dumps(description)


# --- whole or not at all --------------------------------------------------------------------


class Interruption(BaseException):
    """Like Ctrl-C: not even an Exception."""


def interrupt(*args: Any, **named: Any) -> None:
    raise Interruption


def half_written(tensors: Any, file: Path) -> None:
    file.write_bytes(b"half")
    raise OSError(28, "No space left on device")


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "while the weights are written": lambda m: m.setattr(exchange, "write_weights", half_written),
    "before the weights": lambda m: m.setattr(exchange, "write_weights", interrupt),
    "at the configuration": lambda m: m.setattr(exchange.json, "dumps", interrupt),
    "at the first move": lambda m: m.setattr(Path, "replace", interrupt),
    "at the exchange": lambda m: m.setattr(atomic_dir, "put", interrupt),
}


@pytest.mark.parametrize("moment", BREAKS)
def test_an_interruption_leaves_what_was_there(
    moment: str, directory: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = directory("gpt2")
    before = {file.name: file.read_bytes() for file in checkpoint.path.iterdir()}
    model = load(checkpoint.path).model
    with torch.no_grad():
        model.tokens.weight.add_(1.0)
    with monkeypatch.context() as patch:
        BREAKS[moment](patch)
        with pytest.raises((Interruption, StorageError)):
            save(model, checkpoint.path)
        with pytest.raises((Interruption, StorageError)):
            save(model, checkpoint.path / "new" / "place")
    assert not (checkpoint.path / "new" / "place").exists()
    (checkpoint.path / "new").rmdir()
    assert {file.name: file.read_bytes() for file in checkpoint.path.iterdir()} == before
    load(checkpoint.path)


def test_the_configuration_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new directory without config.json is no model: nobody opens the half of one. A run holds
    the lock of its directory, which therefore cannot be exchanged."""
    (tmp_path / ".lock").touch()
    moved: list[str] = []
    replace = Path.replace

    def watch(self: Path, target: Path) -> Path:
        moved.append(target.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watch)
    save(regard.create("gpt2", **COMMON | SIZES["gpt2"]), tmp_path)
    assert moved[-1] == "config.json" and set(moved) == WRITTEN


def test_what_is_written(originals: Path) -> None:
    """As readable as any file one makes; the format's own note is there; no scratch is left."""
    checkpoint = originals / "gpt2"
    assert {file.name for file in checkpoint.iterdir()} == WRITTEN
    modes = {stat.S_IMODE(file.stat().st_mode) for file in checkpoint.iterdir()}
    assert len(modes) == 1
    with safe_open(checkpoint / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_saved_over_a_directory_in_parts(tmp_path: Path) -> None:
    """The new weights are found, although an index and its files still lie there."""
    reference = hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=31, n_positions=12, n_embd=16, n_layer=2, n_head=4,
                      bos_token_id=0, eos_token_id=0)
    )  # fmt: skip
    reference.save_pretrained(tmp_path, max_shard_size="4KB")
    opened = load(tmp_path)
    with torch.no_grad():
        opened.model.tokens.weight.fill_(7.0)
    opened.save(tmp_path)
    assert (load(tmp_path).model.tokens.weight == 7.0).all()
    assert (hf.GPT2LMHeadModel.from_pretrained(tmp_path).transformer.wte.weight == 7.0).all()


def test_fields_that_say_nothing_are_read(directory: Copy, tmp_path: Path) -> None:
    """Null where older files have it: no class, no labels, no padding; several ends of text."""
    path = directory("bert-tiny").change(architectures=None, id2label=None, pad_token_id=None)
    with warns(UserWarning, "cls."):
        opened = load(path)
    assert list(opened.model.heads) == ["pool"]
    opened.save(tmp_path / "again")
    assert Directory(tmp_path / "again").config["pad_token_id"] is None
    path = directory("t5-small").change(eos_token_id=[1, 7])
    opened = load(path)
    assert opened.config.eos_id == 1
    opened.save(tmp_path / "t5")
    assert Directory(tmp_path / "t5").config["eos_token_id"] == [1, 7]


@pytest.mark.parametrize("trusting", [False, True])
def test_nothing_in_a_directory_is_executed(trusting: bool, directory: Copy) -> None:
    checkpoint = directory("bert-tiny")
    proof = checkpoint.path / "proof"
    for name in ("modeling_evil", "configuration_evil", "tokenization_evil", "__init__"):
        (checkpoint.path / f"{name}.py").write_text(
            f"import pathlib\npathlib.Path({str(proof)!r}).touch()"
        )
    checkpoint.change(
        auto_map={"AutoModel": "modeling_evil.Evil", "AutoConfig": "configuration_evil.Evil"}
    )
    opened = load(checkpoint.path, ignore_unknown=trusting)
    describe(checkpoint.path)
    opened.save(checkpoint.path / "again")
    assert not proof.exists()
    assert not any("evil" in name for name in sys.modules)
    assert not list((checkpoint.path / "again").glob("*.py"))
    assert "auto_map" not in Directory(checkpoint.path / "again").config


def test_a_head_of_other_classes_starts_anew(tmp_path: Path) -> None:
    """A tagger of five tags, made of a classifier of two classes: the body stays."""
    small = {"layers": 1, "width": 16, "heads": 4, "ffn_size": 24, "vocab_size": 30, "context": 12}
    model = regard.create("bert-tiny", **small)
    save(model, tmp_path / "body")
    two = load(tmp_path / "body", heads={"classify": 2}).model
    save(two, tmp_path / "two")
    five = load(tmp_path / "two", heads={"tag": 5}).model
    assert five.heads["tag"].out.weight.shape == (5, 16)
    for key, value in five.state_dict().items():
        if not key.startswith("heads."):
            assert torch.equal(value, two.state_dict()[key]), key
    Directory(tmp_path / "two").change(id2label={str(i): str(i) for i in range(5)})
    with refuses(FormatError, "classifier.weight"):
        load(tmp_path / "two")


def test_what_stands_beside_a_model_goes_along(tmp_path: Path) -> None:
    small = {"layers": 1, "width": 16, "heads": 4, "ffn_size": 24, "vocab_size": 30, "context": 12}
    save(regard.create("bert-tiny", **small), tmp_path / "one")
    (tmp_path / "one" / "task.json").write_text("{}")
    load(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "two" / "task.json").read_text() == "{}"
