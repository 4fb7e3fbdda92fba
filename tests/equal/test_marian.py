"""The Transformer as Marian's translation models store it, number by number beside transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from torch import Tensor

import regard
from regard.api import load
from regard.formats.directory import save
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
from tests.refusals import refuses

KIND = hf.MarianMTModel


def make(**changes: Any) -> Any:
    """Uneven stacks, and a bias of the logits that is not zero."""
    fields = {
        "vocab_size": 97, "d_model": 32, "encoder_layers": 3, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 8, "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 48, "activation_function": "swish", "scale_embedding": True,
        "pad_token_id": 96, "decoder_start_token_id": 96, "eos_token_id": 0,
        "forced_eos_token_id": 0, "max_position_embeddings": 50,
    }  # fmt: skip
    reference = scramble(KIND(hf.MarianConfig(**fields | changes)))
    reference.final_logits_bias.normal_(generator=torch.Generator().manual_seed(3))
    return reference


def compare(reference: Any, model: Any, source: Tensor, target: Tensor) -> Tensor:
    stacks = reference.model.encoder.layers, reference.model.decoder.layers
    return compare_pair(reference, stacks, model, source, target)


KINDS = {
    "swish": {},
    "relu, not scaled": {"activation_function": "relu", "scale_embedding": False},
    "gelu, other rates": {
        "activation_function": "gelu", "dropout": 0.2, "attention_dropout": 0.05,
        "activation_dropout": 0.1, "max_position_embeddings": 512,
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_there_and_back(changes: dict[str, Any], tmp_path: Path) -> None:
    reference = make(**changes)
    opened = ours(reference, tmp_path / "theirs")
    assert opened.model.output.bias.abs().sum() > 0
    source, target = words(97, 2, 20), words(97, 2, 9, seed=2)
    wanted = compare(reference, opened.model, source, target)
    back = theirs(opened, tmp_path / "ours", KIND)
    assert torch.equal(back(input_ids=source, decoder_input_ids=target).logits, wanted)
    assert torch.equal(back.final_logits_bias, reference.final_logits_bias)
    same_config(reference.config, back.config)


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_on_either_side(side: str, tmp_path: Path) -> None:
    """The reference counts padding as positions: on the left it is compared text by text."""
    reference = make()
    model = ours(reference, tmp_path).model
    there, here = marks([13, 6, 9, 1], side), marks([4, 11, 1, 7], side)
    source, target = words(97, *there.shape), words(97, *here.shape, seed=2)
    inner = reference.model
    with layers(model.encoder_blocks) as read, layers(model.decoder_blocks) as written:
        logits = model.logits(model(source, target, there, here))
    for i in range(4):
        with layers(inner.encoder.layers) as encoder, layers(inner.decoder.layers) as decoder:
            alone = reference(
                input_ids=source[i : i + 1, there[i]], decoder_input_ids=target[i : i + 1, here[i]]
            )
        all_close([x[i : i + 1, there[i]] for x in read], encoder)
        all_close([x[i : i + 1, here[i]] for x in written], decoder)
        close(logits[i, here[i]], alone.logits[0])
    if side == "right":
        together = reference(
            input_ids=source, attention_mask=there.long(), decoder_input_ids=target,
            decoder_attention_mask=here.long(),
        )  # fmt: skip
        close(logits[here], together.logits[here])


@torch.no_grad()
def test_the_cache(tmp_path: Path) -> None:
    reference = make()
    cached_pair(reference, reference.model.encoder, ours(reference, tmp_path).model)


def marian_pairs(model: Any, reference: Any) -> list[tuple[Any, Any]]:
    cross = reference.model.decoder.layers[0].encoder_attn
    mine = model.decoder_blocks[0].cross.layer
    return [
        (model.tokens.weight.grad, reference.model.shared.weight.grad),
        (mine.out.weight.grad, cross.out_proj.weight.grad),
        (
            mine.project.weight.grad,
            torch.cat([getattr(cross, f"{p}_proj").weight.grad for p in "qkv"]),
        ),
    ]


def test_gradients_of_a_training_step(tmp_path: Path) -> None:
    """Padding doubles as the start token: in neither library it is learned as an input."""
    reference = make()
    model = ours(reference, tmp_path).model
    learned_pair(reference, model, 96, words(96, 3, 8, seed=2))
    same_gradients(marian_pairs(model, reference))


def test_a_training_step_with_padded_targets(tmp_path: Path) -> None:
    """Labels are -100 at padding; decoders begin with padding. After a step of SGD all weights are
    equal, in the rows of padding, too.
    """
    reference = make()
    model = ours(reference, tmp_path / "theirs").model
    there, here = marks([13, 6, 9], "right"), marks([4, 8, 1], "right")
    source, labels = words(96, *there.shape), words(96, *here.shape, seed=2)
    source[~there] = 96
    labels[~here] = -100
    loss = reference(input_ids=source, attention_mask=there.long(), labels=labels).loss
    loss.backward()
    target = torch.cat([torch.full((3, 1), 96), labels[:, :-1]], 1)
    target[target == -100] = 96
    hidden = model(source, target, there)
    our_loss = model.output.surprisal(hidden[here], labels[here]) / here.sum()
    our_loss.backward()
    close(our_loss.detach(), loss.detach())
    same_gradients(marian_pairs(model, reference))
    learned = {}
    for name, each in (("ours", model), ("theirs", reference)):
        torch.optim.SGD(each.parameters(), lr=0.1).step()
        learned[name] = tmp_path / f"{name} after the step"
    save(model, learned["ours"])
    reference.save_pretrained(learned["theirs"])
    files = [load_file(path / "model.safetensors") for path in learned.values()]
    for name, tensor in files[0].items():
        close(tensor, files[1][name])


def test_padding_as_the_start_token_of_our_own(tmp_path: Path) -> None:
    """A Transformer made here learns its start token; a file says so, and what transformers learns
    from it differs in that row alone.
    """
    torch.manual_seed(0)
    model = regard.create(
        "transformer-base", layers=2, width=32, heads=4, ffn_size=48, vocab_size=97, bias=True,
        pad_id=96, start_id=96, eos_id=0, dropout=0.0,
    )  # fmt: skip
    save(scramble(model), tmp_path)
    model = load(tmp_path).model
    assert model.config.learns_padding
    reference = KIND.from_pretrained(tmp_path).eval()
    learned_pair(reference, model, 96, words(96, 3, 8, seed=2))
    (mine, expected), *others = marian_pairs(model, reference)
    same_gradients([(mine[:96], expected[:96]), *others])
    assert (mine[96] - expected[96]).norm() > 0.1 * expected[96].norm()


@torch.no_grad()
def test_the_paper_s_transformer_opens_as_marian(tmp_path: Path) -> None:
    """Where the paper has no bias Marian holds zeros; read back, the model has none again."""
    torch.manual_seed(0)
    model = regard.create(
        "transformer-base", layers=2, width=32, heads=4, ffn_size=48, vocab_size=97
    )
    save(model.eval(), tmp_path)
    back, report = KIND.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert back.config.decoder_start_token_id == 0 and back.config.eos_token_id == 1
    compare(back.eval(), model, words(97, 2, 20), words(97, 2, 9, seed=2))
    again = load(tmp_path).model
    assert again.config == model.config.replace(
        decoder_layers=2, decoder_heads=4, decoder_ffn_size=48
    )
    for (name, a), b in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name


@torch.no_grad()
def test_biases_trained_elsewhere_are_not_dropped(tmp_path: Path) -> None:
    """transformers trains the zeros we wrote; once they have moved they are not left out."""
    model = regard.create(
        "transformer-base", layers=1, width=32, heads=4, ffn_size=48, vocab_size=97
    )
    save(model, tmp_path / "ours")
    trained = scramble(KIND.from_pretrained(tmp_path / "ours"))
    trained.save_pretrained(tmp_path / "trained")
    with refuses(regard.core.errors.FormatError, "attention_bias"):
        load(tmp_path / "trained")
    file = tmp_path / "trained/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"attention_bias": True}))
    compare(trained, load(tmp_path / "trained").model, words(97, 2, 9), words(97, 2, 5, seed=2))


def test_half_files_and_languages(tmp_path: Path) -> None:
    """Published Marian models are stored in fp16, with two sentencepiece files as tokenizer."""
    make().half().save_pretrained(tmp_path / "theirs")
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        (tmp_path / "theirs" / name).write_text("{}")
    opened = load(tmp_path / "theirs")
    assert opened.model.tokens.weight.dtype == torch.float32
    opened.save(tmp_path / "ours")
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        assert (tmp_path / "ours" / name).read_text() == "{}"
    assert load_file(tmp_path / "ours/model.safetensors")["final_logits_bias"].shape == (1, 97)
