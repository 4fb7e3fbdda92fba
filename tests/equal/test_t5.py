"""T5, versions 1.0 and 1.1, number by number beside transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.api import load
from regard.models import sizes
from tests.equal.reference import (
    all_close,
    cached_pair,
    close,
    compare_pair,
    layers,
    learned_pair,
    marks,
    ours,
    same_config,
    same_gradients,
    scramble,
    theirs,
    words,
)

KIND = hf.T5ForConditionalGeneration
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


def make(**changes: Any) -> Any:
    """Uneven on purpose: heads that do not make up the width, stacks of two depths."""
    fields = {
        "vocab_size": 97, "d_model": 32, "d_kv": 6, "num_heads": 4, "d_ff": 40, "num_layers": 3,
        "num_decoder_layers": 2, "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 20, "decoder_start_token_id": 0,
    }  # fmt: skip
    reference = scramble(KIND(hf.T5Config(**fields | changes)))
    if changes.get("tie_word_embeddings") is False:  # its constructor ties whatever it is told
        reference.lm_head.weight = torch.nn.Parameter(torch.randn(97, 32) * 0.2)
    return reference


KINDS = {
    "v1.0": {},
    "v1.1": V1_1,
    "gated relu": {"feed_forward_proj": "gated-relu"},
    "gated silu, untied": {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False},
    "plain gelu": {"feed_forward_proj": "gelu"},
    "published buckets": {
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
    },
}  # fmt: skip
KIND_OF = pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)


def compare(reference: Any, model: Any, source: Tensor, target: Tensor) -> Tensor:
    stacks = reference.encoder.block, reference.decoder.block
    return compare_pair(reference, stacks, model, source, target)


@KIND_OF
@torch.no_grad()
def test_there_and_back(changes: dict[str, Any], tmp_path: Path) -> None:
    """Long enough for the last bucket of distances."""
    reference = make(**changes)
    opened = ours(reference, tmp_path / "theirs")
    length = 140 if changes.get("relative_attention_num_buckets") == 32 else 30
    source, target = words(97, 2, length), words(97, 2, length - 5, seed=2)
    wanted = compare(reference, opened.model, source, target)
    back = theirs(opened, tmp_path / "ours", KIND)
    assert torch.equal(back(input_ids=source, decoder_input_ids=target).logits, wanted)
    same_config(reference.config, back.config)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("changes", [{}, V1_1], ids=["v1.0", "v1.1"])
@torch.no_grad()
def test_padding_on_either_side(changes: dict[str, Any], side: str, tmp_path: Path) -> None:
    """Positions are distances, so neither side shifts anything, in the source or in the target."""
    reference = make(**changes)
    model = ours(reference, tmp_path).model
    there, here = marks([13, 6, 9, 1], side), marks([4, 11, 1, 7], side)
    source, target = words(97, *there.shape), words(97, *here.shape, seed=2)
    with (
        layers(reference.encoder.block) as encoder,
        layers(reference.decoder.block) as decoder,
    ):
        wanted = reference(
            input_ids=source, attention_mask=there.long(), decoder_input_ids=target,
            decoder_attention_mask=here.long(),
        ).logits  # fmt: skip
    with layers(model.encoder.blocks) as read, layers(model.decoder.blocks) as written:
        logits = model.logits(model(source, target, there, here))
    all_close(read, encoder, there)
    all_close([*written, logits], [*decoder, wanted], here)
    for i in range(4):
        alone = reference(
            input_ids=source[i : i + 1, there[i]], decoder_input_ids=target[i : i + 1, here[i]]
        )
        close(logits[i, here[i]], alone.logits[0])


@torch.no_grad()
def test_the_cache(tmp_path: Path) -> None:
    reference = make()
    cached_pair(reference, reference.encoder, ours(reference, tmp_path).model)


@pytest.mark.parametrize("changes", [{}, V1_1], ids=["v1.0", "v1.1"])
def test_gradients_of_a_training_step(changes: dict[str, Any], tmp_path: Path) -> None:
    """The table of distances too: it is learned through the scores of every layer."""
    reference = make(**changes)
    model = ours(reference, tmp_path).model
    learned_pair(reference, model, 0, words(97, 3, 8, low=1, seed=2))
    stacks = [(model.encoder, reference.encoder), (model.decoder, reference.decoder)]
    pairs = [(model.tokens.weight.grad, reference.shared.weight.grad)]
    pairs += [(model.output.weight.grad, reference.lm_head.weight.grad)]
    for mine, their in stacks:
        first = their.block[0].layer[0].SelfAttention
        pairs += [
            (mine.distances.weight.grad, first.relative_attention_bias.weight.grad),
            (mine.norm.weight.grad, their.final_layer_norm.weight.grad),
            (
                mine.blocks[0].attention.layer.project.weight.grad,
                torch.cat([getattr(first, part).weight.grad for part in "qkv"]),
            ),
        ]
    same_gradients(pairs)


@pytest.mark.parametrize("style", ["as published", "as transformers 5 says it"])
@torch.no_grad()
def test_an_output_of_its_own_comes_from_the_file(style: str, tmp_path: Path) -> None:
    """Version 1.1 ties nothing; newer files claim the contrary, yet hold two tables."""
    reference = make(**V1_1)
    reference.save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs/config.json"
    config = json.loads(file.read_text())
    assert config["tie_word_embeddings"] is True and config["scale_decoder_outputs"] is False
    if style == "as published":
        del config["scale_decoder_outputs"]
        file.write_text(json.dumps(config | {"tie_word_embeddings": False}))
    opened = load(tmp_path / "theirs")
    assert not opened.config.tied and not opened.config.scaled
    assert torch.equal(opened.model.output.weight, reference.lm_head.weight)
    source, target = words(97, 2, 12), words(97, 2, 7, seed=2)
    wanted = compare(reference, opened.model, source, target)
    back = theirs(opened, tmp_path / "ours", KIND)
    assert torch.equal(back(input_ids=source, decoder_input_ids=target).logits, wanted)
    stored = load_file(tmp_path / "ours/model.safetensors")
    assert torch.equal(stored["lm_head.weight"], reference.lm_head.weight)
    assert torch.equal(stored["shared.weight"], reference.shared.weight)


@torch.no_grad()
def test_repetitions_and_old_files(tmp_path: Path) -> None:
    """Older files hold the tied tensors several times, and a bias table no layer reads."""
    reference = make()
    reference.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for key in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        tensors[key] = tensors["shared.weight"].clone()
    useless = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    tensors[useless] = torch.randn(8, 4)
    save_file(tensors, file)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("scale_decoder_outputs", "tie_word_embeddings", "is_gated_act", "dense_act_fn"):
        config.pop(key, None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    source, target = words(97, 2, 12), words(97, 2, 7, seed=2)
    compare(reference, load(tmp_path).model, source, target)


@pytest.mark.parametrize("name", ["t5-small", "t5-v1_1-small"])
def test_a_fresh_model_opens_in_transformers(name: str, tmp_path: Path) -> None:
    import regard
    from regard.formats.directory import save

    torch.manual_seed(0)
    model = regard.create(name, layers=2, width=32, heads=4, vocab_size=97, ffn_size=48).eval()
    save(model, tmp_path)
    back, report = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(back, KIND) and not any(report.values())
    with torch.no_grad():
        compare(back.eval(), model, words(97, 2, 12), words(97, 2, 7, seed=2))


@torch.no_grad()
def test_the_decoder_starts_with_the_padding_token(tmp_path: Path) -> None:
    """As transformers shifts the labels; no T5 has a token for the beginning."""
    reference = make()
    model = ours(reference, tmp_path).model
    source, labels = words(97, 2, 6, low=1), words(97, 2, 4, low=1, seed=2)
    first = torch.full((2, 1), reference.config.pad_token_id)
    read = torch.cat([first, labels[:, :-1]], 1)
    close(model.logits(model(source, read)), reference(source, labels=labels).logits)
    assert getattr(reference.config, "bos_token_id", None) is None
    ours_of = [config for name, config in sizes().items() if name.startswith("t5")]
    assert ours_of and all(config.start_id == config.pad_id for config in ours_of)
