"""Whatever is wrong with a directory or a batch: one kind of error, one or two lines, a name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard
from regard.api import load
from regard.core.errors import ConfigError, FormatError, InputError, RegardError, UnknownName
from regard.formats.directory import describe
from tests.formats.conftest import COMMON, SIZES, Directory

Copy = Callable[[str], Directory]


def fuzz(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def refused(kind: type[RegardError], action: Callable[[], Any], *parts: str) -> str:
    """The action fails in this way, and says these things in one or two lines."""
    with pytest.raises(kind) as caught:
        action()
    message = str(caught.value)
    assert len(message.splitlines()) <= 2, message
    assert len(message) < 500, message
    for part in parts:
        assert part in message, message
    return message


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [("gpt-2", "gpt2"), ("bert-base-uncase", "bert-base-uncased"), ("t5_small", "t5-small"),
     ("xlnet-lage", "xlnet-large"), ("longformr", "longformer")],
)  # fmt: skip
def test_an_unknown_model_suggests_the_nearest(name: str, meant: str) -> None:
    refused(UnknownName, lambda: regard.create(name), name, f"'{meant}'")
    refused(UnknownName, lambda: regard.count_parameters(name), meant)


def test_a_name_like_no_other() -> None:
    """A few are listed; of many it is said where the list is."""
    refused(UnknownName, lambda: regard.create("quite another thing"), "regard models")
    refused(UnknownName, lambda: regard.create("gpt2", norm="zzz"), "known: post, pre")


def test_an_unknown_field_of_ours_suggests_the_nearest() -> None:
    refused(UnknownName, lambda: regard.create("gpt2", layer=2), "'layer'", "'layers'")
    refused(UnknownName, lambda: regard.create("bert-tiny", windth=2), "'windth'", "'width'")


def test_an_unknown_model_type(directory: Copy) -> None:
    path = directory("gpt2").change(model_type="gpt-2")
    refused(UnknownName, lambda: load(path), "'gpt-2'", "'gpt2'")


# --- configurations -------------------------------------------------------------------------

WRONG = {
    "width": ({"width": 30}, "width 30 is not divisible by heads 4"),
    "nothing": ({"layers": 0}, "layers is 0"),
    "negative": ({"vocab_size": -5}, "vocab_size is -5"),
    "rate": ({"dropout": 1.0}, "dropout is 1.0"),
    "rate below": ({"dropout_attention": -0.1}, "dropout_attention is -0.1"),
    "text": ({"width": "wide"}, "width is 'wide'; it must be int"),
    "fraction": ({"layers": 2.5}, "layers is 2.5"),
    "truth": ({"heads": True}, "heads is True"),
    "absent": ({"context": None}, "context is None"),
    "endless": ({"layers": 10**9}, "layers is 1,000,000,000"),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_contradict(case: str) -> None:
    changes, message = WRONG[case]
    sizes = COMMON | SIZES["gpt2"] | changes
    refused(ConfigError, lambda: regard.create("gpt2", **sizes), message)


def test_more_contradictions() -> None:
    for name, changes, message in [
        ("gpt2", {"activation": "gleu"}, "'gelu'"),
        ("gpt2", {"norm": "first"}, "unknown norm 'first'"),
        ("transformer-base", {"positions": "learned"}, "unknown positions 'learned'"),
        ("transformer-base", {"decoder_heads": 5}, "decoder_heads 5"),
        ("transformer-base", {"width": 15, "heads": 5}, "width is 15"),
        ("t5-small", {"buckets": 2}, "buckets is 2"),
        ("longformer-base-4096", {"window": 5}, "window 5"),
        ("longformer-base-4096", {"window": (4, 4, 4)}, "window names 3 layers; layers is 2"),
        ("transformer-xl-wt103-base", {"cutoffs": (40, 20)}, "cutoffs"),
        ("transformer-xl-wt103-base", {"cutoffs": (40, 20000000)}, "cutoffs"),
    ]:
        fields: dict[str, Any] = {"layers": 2} | SIZES.get(name, {}) | changes
        refused(RegardError, lambda n=name, f=fields: regard.create(n, **f), message)


def test_a_contradiction_in_a_file_is_told_in_its_own_words(directory: Copy) -> None:
    bert = directory("bert-tiny").change(hidden_size=30)
    refused(ConfigError, lambda: load(bert), "width 30", "hidden_size", "num_attention_heads")
    gpt = directory("gpt2").change(n_head="four")
    refused(ConfigError, lambda: load(gpt), "'four'", "n_head")
    t5 = directory("t5-small").change(dropout_rate=7)
    refused(ConfigError, lambda: load(t5), "7", "dropout_rate")
    refused(ConfigError, lambda: describe(t5), "7", "dropout_rate")


def test_an_unknown_field_of_a_file(directory: Copy) -> None:
    checkpoint = directory("bert-tiny")
    path = checkpoint.change(hidden_sise=16)
    refused(UnknownName, lambda: load(path), "'hidden_sise'", "'hidden_size'", "ignore_unknown")
    load(path, ignore_unknown=True)
    path = checkpoint.change(rotary=True, hidden_sise=False)
    refused(UnknownName, lambda: load(path), "'rotary'")


def test_unknown_fields_that_are_off_pass(directory: Copy) -> None:
    """A switch that is null or false changes nothing, whatever it would do."""
    load(directory("gpt2").change(new_trick=None, other_trick=False))


FIXED = [
    ("bert-tiny", "position_embedding_type", "relative_key"),
    ("bert-tiny", "is_decoder", True),
    ("bert-tiny", "tie_word_embeddings", False),
    ("gpt2", "scale_attn_by_inverse_layer_idx", True),
    ("gpt2", "scale_attn_weights", False),
    ("gpt2", "add_cross_attention", True),
    ("transformer-base", "normalize_before", True),
    ("transformer-base", "share_encoder_decoder_embeddings", False),
    ("transformer-base", "decoder_vocab_size", 77),
    ("t5-small", "feed_forward_proj", "gated-swish"),
    ("bert-tiny", "hidden_act", "mish"),
]


@pytest.mark.parametrize(("name", "field", "value"), FIXED)
def test_what_would_compute_something_else(
    name: str, field: str, value: Any, directory: Copy
) -> None:
    path = directory(name).change(**{field: value})
    refused(ConfigError, lambda: load(path), field)
    refused(ConfigError, lambda: load(path, ignore_unknown=True), field)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bert-tiny", "BertLMHeadModel"), ("gpt2", "TFGPT2LMHeadModel"),
     ("t5-small", "T5EncoderModel"), ("transformer-base", "MarianForCausalLM")],
)  # fmt: skip
def test_a_class_we_do_not_have(name: str, kind: str, directory: Copy) -> None:
    path = directory(name).change(architectures=[kind])
    refused(FormatError, lambda: load(path), f"'{kind}'", "supported are")


def test_heads_nobody_knows(directory: Copy) -> None:
    path = directory("bert-tiny").path
    refused(UnknownName, lambda: load(path, heads={"clasify": 3}), "'clasify'", "'classify'")
    path = directory("gpt2").path
    refused(UnknownName, lambda: load(path, heads={"span": 3}), "'span'", "gpt")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=2),
    max_leaves=4,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*tensors were not used")
@pytest.mark.parametrize("name", SIZES)
@fuzz(40)
@given(data=st.data())
def test_any_value_in_any_field(name: str, data: st.DataObject, directory: Copy) -> None:
    """Whatever stands in config.json, a directory opens or is refused by an error of ours."""
    checkpoint = Directory(directory_once(name, directory))
    original = checkpoint.config
    field = data.draw(st.sampled_from(sorted(original)))
    try:
        load(checkpoint.change(**{field: data.draw(JSON)}), ignore_unknown=data.draw(st.booleans()))
    except RegardError as error:
        assert len(str(error)) < 2000
    finally:
        (checkpoint.path / "config.json").write_text(json.dumps(original))


def directory_once(name: str, directory: Copy) -> Path:
    try:
        return directory(name).path
    except FileExistsError as error:
        return Path(error.filename)


# --- files ----------------------------------------------------------------------------------


def test_no_directory(tmp_path: Path) -> None:
    refused(FormatError, lambda: load(tmp_path / "absent"), "absent", "does not exist")
    refused(FormatError, lambda: load("no-such/model-at-all"), "no-such/model-at-all", "download")
    file = tmp_path / "file"
    file.write_text("")
    refused(FormatError, lambda: load(file), "is a file")


def test_no_configuration(directory: Copy) -> None:
    path = directory("gpt2").path
    (path / "config.json").unlink()
    refused(FormatError, lambda: load(path), "no config.json")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", "{}", '{"model_type": 3}', "[" * 100_000, "\udcff"]
)
def test_no_json(text: str, directory: Copy) -> None:
    path = directory("gpt2").path
    (path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(FormatError, lambda: load(path), "config.json")
    refused(FormatError, lambda: describe(path), "config.json")


def test_a_huge_configuration_is_not_read(directory: Copy) -> None:
    path = directory("gpt2").path
    with (path / "config.json").open("wb") as file:
        file.truncate(2**33)  # a hole on disk: reading it would take eight gigabytes
    refused(FormatError, lambda: load(path), "8,589,934,592 bytes")


def test_no_weights(directory: Copy) -> None:
    checkpoint = directory("gpt2")
    checkpoint.weights.unlink()
    refused(FormatError, lambda: load(checkpoint.path), "no model.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_a_pickle_names_the_command_that_converts_it(name: str, directory: Copy) -> None:
    checkpoint = directory("gpt2")
    checkpoint.weights.rename(checkpoint.path / name)
    refused(FormatError, lambda: load(checkpoint.path), name, f"regard convert {checkpoint.path}")


@pytest.mark.parametrize("length", [0, 4, 8, 100, -1, -1000])
def test_weights_cut_short(length: int, directory: Copy) -> None:
    checkpoint = directory("bert-tiny")
    checkpoint.weights.write_bytes(checkpoint.weights.read_bytes()[:length])
    refused(FormatError, lambda: load(checkpoint.path), "model.safetensors", "damaged")


@fuzz(80)
@given(at=st.integers(0, 2000), value=st.integers(0, 255))
def test_weights_with_a_wrong_byte(at: int, value: int, directory: Copy) -> None:
    """In the header; numbers themselves carry no checksum. No byte leads to another error."""
    checkpoint = Directory(directory_once("gpt2", directory))
    good = checkpoint.weights.read_bytes()
    checkpoint.weights.write_bytes(good[:at] + bytes([value]) + good[at + 1 :])
    try:
        load(checkpoint.path)
    except RegardError as error:
        assert str(error)
    finally:
        checkpoint.weights.write_bytes(good)


def test_a_damaged_index(directory: Copy) -> None:
    checkpoint = directory("gpt2")
    checkpoint.weights.rename(checkpoint.path / "part.safetensors")
    index = checkpoint.path / "model.safetensors.index.json"
    for text in ("", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'):
        index.write_text(text)
        refused(FormatError, lambda: load(checkpoint.path), index.name)
    for place in ("../part.safetensors", "/etc/passwd", "..", "absent.safetensors"):
        index.write_text(json.dumps({"weight_map": {"a": place}}))
        refused(FormatError, lambda: load(checkpoint.path), index.name, place)
    index.write_text(json.dumps({"weight_map": {"a": "part.safetensors"}}))
    load(checkpoint.path)


# --- tensors --------------------------------------------------------------------------------

QUERY = "bert.encoder.layer.1.attention.self.query.weight"


def test_wrong_shapes_name_the_tensor_and_both(directory: Copy) -> None:
    checkpoint = directory("bert-tiny")
    path = checkpoint.tensors(lambda t: t.update({QUERY: torch.zeros(12, 16)}))
    refused(FormatError, lambda: load(path), QUERY, "[12, 16]", "[16, 16]")
    path = directory("gpt2").tensors(
        lambda t: t.update({"transformer.h.0.mlp.c_fc.weight": torch.zeros(64, 16)})
    )
    refused(FormatError, lambda: load(path), "h.0.mlp.c_fc.weight", "[64, 16]", "[16, 64]")
    path = directory("xlnet-base").tensors(
        lambda t: t.update({"transformer.layer.0.rel_attn.q": torch.zeros(16)})
    )
    refused(FormatError, lambda: load(path), "layer.0.rel_attn.q", "[16]", "[16, 4, 4]")
    path = directory("transformer-base").change(d_model=20)
    refused(FormatError, lambda: load(path), "model.shared.weight", "[31, 16]", "[31, 20]")


def test_wrong_shapes_that_would_make_up_for_each_other(directory: Copy) -> None:
    """Query, key and value are one matrix here; stacked, 20 + 12 + 16 rows fit by accident."""
    key = QUERY.replace("query", "key")
    path = directory("bert-tiny").tensors(
        lambda t: t.update({QUERY: torch.zeros(20, 16), key: torch.zeros(12, 16)})
    )
    refused(FormatError, lambda: load(path), QUERY, "[20, 16]", "[16, 16]")


def test_missing_tensors(directory: Copy) -> None:
    path = directory("bert-tiny").tensors(lambda t: t.pop(QUERY))
    refused(FormatError, lambda: load(path), "1 tensor", QUERY)
    path = directory("gpt2").change(n_layer=4)
    refused(FormatError, lambda: load(path), "transformer.h.2.")


def test_tensors_that_are_no_numbers(directory: Copy) -> None:
    path = directory("bert-tiny").tensors(
        lambda t: t.update({QUERY: torch.zeros(16, 16, dtype=torch.int64)})
    )
    refused(FormatError, lambda: load(path), QUERY, "int64")


@pytest.mark.parametrize(
    ("name", "key", "tied"),
    [("gpt2", "lm_head.weight", "transformer.wte.weight"),
     ("bert-tiny", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
     ("transformer-base", "lm_head.weight", "model.shared.weight"),
     ("t5-small", "encoder.embed_tokens.weight", "shared.weight"),
     ("longformer-base-4096", "lm_head.decoder.weight",
      "longformer.embeddings.word_embeddings.weight"),
     ("roberta-base", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
     ("xlnet-base", "lm_loss.weight", "transformer.word_embedding.weight")],
)  # fmt: skip
def test_a_tie_that_the_file_does_not_keep(name: str, key: str, tied: str, directory: Copy) -> None:
    """Repeated it may stand in the file; with other numbers it would be left out in silence."""
    checkpoint = directory(name)
    checkpoint.tensors(lambda t: t.update({key: t[tied].clone()}))
    load(checkpoint.path)
    checkpoint.tensors(lambda t: t.update({key: t[tied] + 1}))
    refused(FormatError, lambda: load(checkpoint.path), key, tied)
    checkpoint.tensors(lambda t: t.update({key: t.pop(tied) - 0}))  # which of the two stays varies
    load(checkpoint.path)


# --- batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_tokens_outside_the_vocabulary(name: str, originals: Path) -> None:
    model = load(originals / name).model
    more = (torch.zeros(1, 3, dtype=torch.long),) if hasattr(model, "decode") else ()
    for bad, value in (([[1, 31]], "31"), ([[1, -1]], "-1"), ([[99, 0]], "99")):
        refused(InputError, lambda b=bad: model(torch.tensor(b), *more), value, "vocabulary of 31")
    if more:
        refused(InputError, lambda: model(*more, torch.tensor([[31]])), "31")
    refused(InputError, lambda: model(torch.zeros(1, 3), *more), "float32")
    refused(InputError, lambda: model(torch.zeros(3, dtype=torch.long), *more), "[3]")


@pytest.mark.parametrize("name", [name for name in SIZES if "context" in SIZES[name]])
def test_longer_than_the_learned_positions(name: str, originals: Path) -> None:
    model = load(originals / name).model
    model(torch.zeros(1, 12, dtype=torch.long))
    tokens = torch.zeros(1, 13, dtype=torch.long)
    refused(InputError, lambda: model(tokens), "13 tokens", "12 positions")


def test_longer_than_the_learned_positions_word_by_word(originals: Path) -> None:
    model = load(originals / "gpt2").model
    refused(InputError, lambda: model.start(1, 13), "13", "12 positions")
    state = model.start(1, 12)
    model(torch.zeros(1, 12, dtype=torch.long), state=state)
    refused(InputError, lambda: model(torch.zeros(1, 1, dtype=torch.long), state=state), "13")
