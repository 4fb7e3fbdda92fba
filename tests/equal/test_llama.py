"""Llama, number by number beside transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from regard.core.errors import ConfigError
from regard.decoding.generation import generate
from regard.formats.directory import load, save
from regard.models import create
from regard.models.llama import Llama, LlamaConfig
from tests.equal.reference import (
    cached_decoder,
    close,
    marks,
    ours,
    padded_decoder,
    scramble,
    theirs,
    there_and_back,
    words,
)
from tests.refusals import refuses

SIZE = {
    "vocab_size": 97, "max_position_embeddings": 64, "hidden_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip


def llama(kind: Any = hf.LlamaForCausalLM, **changes: Any) -> Any:
    return scramble(kind(hf.LlamaConfig(**SIZE | changes)))


MAKERS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "every head its own keys": {"num_key_value_heads": None},
    "one head of keys": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "heads of another size": {"head_dim": 10},
    "biases": {"attention_bias": True},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}},
    "llama3": {"rope_parameters": LLAMA3},
    "relu": {"hidden_act": "relu"},
}


@pytest.mark.parametrize("changes", MAKERS.values(), ids=MAKERS)
@torch.no_grad()
def test_there_and_back(changes: dict[str, Any], tmp_path: Path) -> None:
    reference = llama(**changes)
    there_and_back(reference, reference.model.layers, words(97, 3, 50), tmp_path)


@torch.no_grad()
def test_fields_of_older_directories(tmp_path: Path) -> None:
    """Before transformers 5 the rotations stood in two fields."""
    reference, tokens = llama(rope_parameters=LLAMA3), words(97, 2, 40)
    opened = ours(reference, tmp_path)
    file = tmp_path / "config.json"
    fields = json.loads(file.read_text())
    table = fields.pop("rope_parameters")
    fields["rope_theta"] = table.pop("rope_theta")
    file.write_text(json.dumps(fields | {"rope_scaling": table, "pretraining_tp": 1}))
    older = load(tmp_path)
    assert older.config == opened.config and older.config.rope_theta == 500.0
    close(older.model.logits(older.model(tokens)), reference(tokens).logits)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}, "rope_type"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"num_key_value_heads": 3}, "kv_heads"),
        ({"head_dim": 7}, "7"),
    ],
)
def test_what_would_compute_something_else_is_refused(
    change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    llama().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with refuses(ConfigError, named):
        load(tmp_path)


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_on_either_side(side: str, tmp_path: Path) -> None:
    reference = llama()
    padded_decoder(reference, reference.model.layers, ours(reference, tmp_path).model, side)


@pytest.mark.parametrize("side", [None, "left"])
@torch.no_grad()
def test_the_cache(side: str | None, tmp_path: Path) -> None:
    reference = llama()
    state = cached_decoder(reference, ours(reference, tmp_path).model, side)
    assert all(layer.keys.shape == (4, 2, 20, 8) for layer in state.layers)


@torch.no_grad()
def test_greedy_generation(tmp_path: Path) -> None:
    reference = llama(eos_token_id=None, bos_token_id=None)
    opened = ours(reference, tmp_path)
    prompt = words(97, 1, 9)
    expected = reference.generate(prompt, max_new_tokens=30, do_sample=False)[0, 9:].tolist()
    ((best,),) = generate(
        opened,
        [prompt[0].tolist()],
        max_new_tokens=30,
        temperature=0,
        eos_ids=[],
        suppress_tokens=[],
    )
    assert best.ids == expected


@pytest.mark.parametrize("head", ["classify", "tag"])
@torch.no_grad()
def test_heads(head: str, tmp_path: Path) -> None:
    kinds = {
        "classify": hf.LlamaForSequenceClassification,
        "tag": hf.LlamaForTokenClassification,
    }
    reference, tokens = llama(kinds[head], num_labels=3, pad_token_id=0), words(97, 3, 12, low=1)
    attention_mask = marks([12, 7, 3], "right")
    tokens[~attention_mask] = 0
    opened = ours(reference, tmp_path / "theirs")
    wanted = reference(tokens, attention_mask=attention_mask.long()).logits
    scores = opened.model.read(head, opened.model(tokens, attention_mask), attention_mask)
    close(scores, wanted) if head == "classify" else close(
        scores[attention_mask], wanted[attention_mask]
    )
    back = theirs(opened, tmp_path / "ours", kinds[head])
    assert torch.equal(back(tokens, attention_mask=attention_mask.long()).logits, wanted)
    assert not hasattr(opened.model, "output")


@pytest.mark.parametrize("head", ["answer", "choose"])
@torch.no_grad()
def test_heads_without_a_class(head: str, tmp_path: Path) -> None:
    config = LlamaConfig(97, 64, 32, 2, 4, kv_heads=2, ffn_size=48)
    model = Llama(config, {head: 2 if head == "answer" else 1}).initialize().eval()
    save(model, tmp_path)
    again = load(tmp_path).model.state_dict()
    assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())
    base = hf.AutoModel.from_pretrained(tmp_path).eval()
    tokens = words(97, 2, 9)
    close(model(tokens), base(tokens).last_hidden_state)


@torch.no_grad()
def test_a_base_model(tmp_path: Path) -> None:
    reference, tokens = llama(hf.LlamaModel), words(97, 2, 9)
    opened = ours(reference, tmp_path / "theirs")
    close(opened.model(tokens), reference(tokens).last_hidden_state)
    theirs(opened, tmp_path / "ours", hf.LlamaModel)


def test_initialization() -> None:
    model: Any = create(
        "llama", vocab_size=400, width=64, layers=2, heads=4, ffn_size=96, context=32
    )
    assert model.output.weight is not model.tokens.weight
    for name, value in model.named_parameters():
        if value.dim() > 1:
            assert 0.018 < value.std().item() < 0.022, name
        else:
            assert bool((value == 1.0).all()), name
