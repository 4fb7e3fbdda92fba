"""Configurations that transformers opens, open; what is assumed is said; what is written, whole."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import regard
from regard.api import LoadedModel, load
from regard.core.errors import FormatError, UnknownName
from regard.formats.directory import describe, save
from regard.formats.format import ended_by
from tests.decoding.small import tokenizer
from tests.formats.conftest import COMMON, SIZES, Directory
from tests.refusals import refuses, warns

Copy = Callable[[str], Directory]
SMALL = {"vocab_size": 31, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 4}
BERT = {"vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 24, "max_position_embeddings": 12}  # fmt: skip


@pytest.mark.parametrize("number", [5, 2])
def test_num_labels_beside_another_id2label(number: int, tmp_path: Path) -> None:
    """The number counts, and the names are forgotten, as in transformers."""
    reference = hf.BertForSequenceClassification(hf.BertConfig(**BERT, num_labels=number)).eval()
    reference.save_pretrained(tmp_path)
    names = {str(i): name for i, name in enumerate("abc")}
    Directory(tmp_path).change(num_labels=number, id2label=names)
    assert hf.BertConfig.from_pretrained(tmp_path).num_labels == number
    opened = load(tmp_path)
    tokens = torch.arange(10)[None]
    torch.testing.assert_close(opened.logits(tokens), reference(tokens).logits)
    opened.tokenizer = tokenizer("wordpiece")
    from regard.evaluation.predict import facts_of

    assert facts_of(opened)["labels"] == [f"LABEL_{i}" for i in range(number)]


def test_answers_of_gpt2_have_two_outputs(tmp_path: Path) -> None:
    """Whatever num_labels is: their class does not read it."""
    reference = hf.GPT2ForQuestionAnswering(hf.GPT2Config(**SMALL, num_labels=5)).eval()
    reference.save_pretrained(tmp_path)
    model = load(tmp_path).model
    tokens = torch.arange(10)[None]
    scores, expected = model.read("answer", model(tokens), None), reference(tokens)
    torch.testing.assert_close(scores[..., 0], expected.start_logits)
    torch.testing.assert_close(scores[..., 1], expected.end_logits)


def test_without_a_model_type_the_class_says_it(directory: Copy) -> None:
    checkpoint = directory("gpt2")
    before = load(checkpoint.path).model.state_dict()
    config = checkpoint.config
    del config["model_type"]
    (checkpoint.path / "config.json").write_text(json.dumps(config))
    with warns(UserWarning, "model_type", "gpt2", "GPT2LMHeadModel") as caught:
        opened = load(checkpoint.path)
    assert len(caught) == 1
    assert all(torch.equal(opened.model.state_dict()[k], v) for k, v in before.items())
    opened.save(checkpoint.path / "again")
    assert Directory(checkpoint.path / "again").config["model_type"] == "gpt2"
    for named in (None, [], ["MyModel"], [3], "GPT2LMHeadModel"):
        (checkpoint.path / "config.json").write_text(json.dumps(config | {"architectures": named}))
        with refuses(FormatError, "model_type", "architectures"):
            load(checkpoint.path)


@pytest.mark.parametrize(
    ("kind", "name", "opened_as", "heads"),
    [
        (hf.BertForMaskedLM, "MolBertForMaskedLM", "BertForMaskedLM", []),
        (hf.BertForSequenceClassification, "ToxicForSequenceClassification",
         "BertForSequenceClassification", ["classify"]),
        (hf.BertModel, "OurEncoder", "BertModel", ["pool"]),
        (hf.BertForTokenClassification, "OurEncoder", "BertModel", []),
    ],
)  # fmt: skip
def test_a_class_of_somebody_else(
    kind: Any, name: str, opened_as: str, heads: list[str], tmp_path: Path
) -> None:
    """It is opened as the class with its ending, with the heads whose tensors are there."""
    reference = kind(hf.BertConfig(**BERT)).eval()
    reference.save_pretrained(tmp_path)
    Directory(tmp_path).change(architectures=[name])
    with warns(UserWarning, name, opened_as):
        model = load(tmp_path).model
    assert list(model.heads) == heads
    tokens = torch.arange(10)[None]
    body = reference if kind is hf.BertModel else reference.bert
    torch.testing.assert_close(model(tokens), body(tokens).last_hidden_state)
    assert describe(tmp_path)["class"] == opened_as


@pytest.mark.parametrize("model_type", ["albert", "mt5", "distilbert", "llama4", "xlm", "gpt_neo"])
def test_another_model_is_not_taken_for_a_misspelled_one(model_type: str, directory: Copy) -> None:
    path = directory("bert-tiny").change(model_type=model_type)
    with refuses(UnknownName, model_type, "openai-gpt") as caught:
        load(path)
    assert "did you mean" not in str(caught.value)


def test_info_says_what_does_not_load(directory: Copy) -> None:
    checkpoint = directory("gpt2")
    tensors = {"a": torch.zeros(2)}
    checkpoint.weights.unlink()
    assert "none" in describe(checkpoint.path)["weights"]
    pickled = checkpoint.path / "pytorch_model.bin"
    torch.save(tensors, pickled)
    assert "regard convert" in describe(checkpoint.path)["weights"]
    torch.save(tensors | {"b": Path("x")}, pickled)
    weights = describe(checkpoint.path)["weights"]
    assert "cannot be converted" in weights and "regard convert" not in weights
    torch.save({"weights": tensors}, pickled)
    assert "cannot be converted" in describe(checkpoint.path)["weights"]


# --- what is written ------------------------------------------------------------------------

DECODERS = {name: SIZES[name] for name in SIZES if name not in
            ("bert-tiny", "longformer-base-4096", "roberta-base")}  # fmt: skip


@pytest.mark.parametrize("name", list(SIZES))
def test_special_tokens_are_written(name: str, tmp_path: Path) -> None:
    """Of a model made here, in both files, equal to those of its tokenizer."""
    words = tokenizer("unigram" if name == "t5-small" else "bytes-bpe")
    spelled = {"end": "<|endoftext|>", "pad": "<|pad|>", "start": "<|startoftext|>"}
    ids = {role: words.ready.token_to_id(word) for role, word in spelled.items()}
    changes: dict[str, Any] = COMMON | SIZES[name] | {"vocab_size": len(words)}
    if name == "transformer-xl-wt103-base":
        changes["cutoffs"] = (30, 60)
    if name in ("t5-small", "transformer-base"):
        ids = {"end": 3, "pad": 4, "start": None}
        changes |= {"eos_id": 3, "pad_id": 4, "start_id": 4}
    model = regard.create(name, **changes)
    decoder, pair = name in DECODERS, model.kind == "encoder-decoder"
    save(model, tmp_path, words)
    config = Directory(tmp_path).config
    assert config["eos_token_id"] == ids["end"]
    assert config.get("bos_token_id") == (None if pair else ids["end" if decoder else "start"])
    file = tmp_path / "generation_config.json"
    assert file.is_file() is decoder
    if decoder:
        assert config["pad_token_id"] == (ids["pad"] if not hasattr(model.config, "pad_id")
                                          else model.config.pad_id)  # fmt: skip
        stored = hf.GenerationConfig.from_pretrained(tmp_path)
        assert stored.eos_token_id == ids["end"] and stored.pad_token_id == config["pad_token_id"]
        assert stored.bos_token_id == config["bos_token_id"]
        assert stored.decoder_start_token_id == (4 if pair else None)
        assert load(tmp_path).tokenizer is not None


def test_transformers_ends_where_we_end(tmp_path: Path) -> None:
    """A GPT whose config.json says nothing of its tokens was taken to end at 50256."""
    words = tokenizer("bytes-bpe")
    torch.manual_seed(0)
    shape = SIZES["gpt2"] | {"context": 64, "layers": 1, "width": 16, "vocab_size": len(words)}
    model = regard.create("gpt2", **shape).eval()
    end = words.ready.token_to_id("<|endoftext|>")
    with torch.no_grad():
        for block in model.blocks:  # the output depends on the position alone
            for parameter in block.parameters():
                parameter.zero_()
        model.positions.weight[10] += 30 * model.tokens.weight[end]
    mine = LoadedModel(model, words).generate("The", max_new_tokens=40)
    assert mine.ids[-1] == end and len(mine.ids) < 40
    save(model, tmp_path, words)
    reference = hf.AutoModelForCausalLM.from_pretrained(tmp_path)
    prompt = words("The", return_tensors="pt")["input_ids"]
    row = reference.generate(prompt, max_new_tokens=40, do_sample=False)[0, prompt.size(1) :]
    assert row.tolist() == mine.ids


def test_nothing_is_assumed_of_a_model_without_words(directory: Copy, tmp_path: Path) -> None:
    for name in ("gpt2", "llama3.2-1b", "xlnet-base"):
        path = directory(name).path
        config = hf.AutoConfig.from_pretrained(path)
        assert config.eos_token_id is None and config.bos_token_id is None
        assert hf.GenerationConfig.from_pretrained(path).eos_token_id is None


def test_a_source_s_tokens_stay(tmp_path: Path) -> None:
    words = tokenizer("bytes-bpe")
    model = regard.create("gpt2", **COMMON | SIZES["gpt2"] | {"vocab_size": len(words)})
    source = {"model_type": "gpt2", "eos_token_id": [5, 6], "bos_token_id": 7}
    with warnings.catch_warnings(action="error"):
        LoadedModel(model, words, source, None, {"eos_token_id": [5], "top_k": 9}).save(tmp_path)
    config = Directory(tmp_path).config
    assert (config["eos_token_id"], config["bos_token_id"]) == ([5, 6], 7)
    stored = json.loads((tmp_path / "generation_config.json").read_text())
    assert (stored["eos_token_id"], stored["top_k"]) == ([5], 9)
    assert ended_by(source, 6) == source
    assert ended_by(source, 9)["eos_token_id"] == [9, 5, 6]
    assert ended_by({}, 9) == {}
