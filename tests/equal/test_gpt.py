"""GPT-1 and GPT-2, number by number beside transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from regard.api import load
from tests.equal.reference import (
    cached_decoder,
    close,
    ours,
    padded_decoder,
    scramble,
    theirs,
    there_and_back,
    words,
)
from tests.refusals import warns

SIZE = {"vocab_size": 97, "n_positions": 40, "n_embd": 32, "n_layer": 3, "n_head": 4}


def gpt2(kind: Any = hf.GPT2LMHeadModel, **changes: Any) -> Any:
    fields = SIZE | {"bos_token_id": 3, "eos_token_id": 3} | changes
    return scramble(kind(hf.GPT2Config(**fields)))


def gpt1(kind: Any = hf.OpenAIGPTLMHeadModel, **changes: Any) -> Any:
    return scramble(kind(hf.OpenAIGPTConfig(**SIZE | changes)))


MAKERS = {
    "gpt2": gpt2,
    "gpt2, narrow network": lambda: gpt2(n_inner=48),
    "gpt2, relu": lambda: gpt2(activation_function="relu"),
    "gpt2, exact gelu": lambda: gpt2(activation_function="gelu"),
    "gpt2, another spelling": lambda: gpt2(activation_function="gelu_pytorch_tanh"),
    "gpt1": gpt1,
    "gpt1, relu": lambda: gpt1(afn="relu"),
    "gpt1, silu": lambda: gpt1(afn="silu"),
}
BOTH = pytest.mark.parametrize("make", [gpt2, gpt1])


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@torch.no_grad()
def test_there_and_back(make: Any, tmp_path: Path) -> None:
    reference = make()
    there_and_back(reference, reference.transformer.h, words(97, 3, 17), tmp_path)


@pytest.mark.parametrize("side", ["left", "right"])
@BOTH
@torch.no_grad()
def test_padding_on_either_side(make: Any, side: str, tmp_path: Path) -> None:
    reference = make()
    padded_decoder(reference, reference.transformer.h, ours(reference, tmp_path).model, side)


@pytest.mark.parametrize("side", [None, "left"])
@torch.no_grad()
def test_the_cache(side: str | None, tmp_path: Path) -> None:
    reference = gpt2()
    cached_decoder(reference, ours(reference, tmp_path).model, side)


@BOTH
def test_gradients_of_a_training_step(make: Any, tmp_path: Path) -> None:
    reference = make()
    model = ours(reference, tmp_path).model
    tokens = words(97, 3, 16)
    loss = reference(tokens, labels=tokens).loss
    loss.backward()
    hidden = model(tokens)[:, :-1].flatten(0, 1)
    our_loss = model.output.surprisal(hidden, tokens[:, 1:].flatten()) / tokens[:, 1:].numel()
    our_loss.backward()
    close(our_loss.detach(), loss.detach())
    body = reference.transformer
    tables = (body.wte, body.wpe) if make is gpt2 else (body.tokens_embed, body.positions_embed)
    first, mine = body.h[0], model.blocks[0]
    pairs = [
        (model.tokens.weight, tables[0].weight),
        (model.positions.weight, tables[1].weight),
        (mine.attention.norm.weight, first.ln_1.weight),
        (mine.attention.layer.project.bias, first.attn.c_attn.bias),
    ]
    pairs = [(a.grad, b.grad) for a, b in pairs]
    pairs += [(mine.attention.layer.project.weight.grad, first.attn.c_attn.weight.grad.mT)]
    pairs += [(mine.feed_forward.layer.narrow.weight.grad, first.mlp.c_proj.weight.grad.mT)]
    for a, b in pairs:
        assert (a - b).norm() <= 1e-5 * b.norm()


@pytest.mark.parametrize(
    ("make", "kind"), [(gpt2, hf.GPT2Model), (gpt1, hf.OpenAIGPTModel)], ids=["gpt2", "gpt1"]
)
@torch.no_grad()
def test_a_base_file_has_no_prefix(make: Any, kind: Any, tmp_path: Path) -> None:
    reference, tokens = make(kind), words(97, 2, 11)
    opened = ours(reference, tmp_path / "theirs")
    stored = load_file(tmp_path / "theirs/model.safetensors")
    assert not any(key.startswith("transformer.") for key in stored)
    wanted = reference(tokens).last_hidden_state
    close(opened.model(tokens), wanted)
    table = stored["wte.weight" if make is gpt2 else "tokens_embed.weight"]
    close(opened.model.logits(opened.model(tokens)), wanted @ table.mT)
    back = theirs(opened, tmp_path / "ours", kind)
    assert torch.equal(back(tokens).last_hidden_state, wanted)


@torch.no_grad()
def test_buffers_of_older_files_are_passed_over(tmp_path: Path) -> None:
    reference, tokens = gpt2(), words(97, 2, 11)
    reference.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
    for i in range(3):
        tensors[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, 40, 40).tril().bool()
        tensors[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, file)
    model = load(tmp_path).model
    close(model.logits(model(tokens)), reference(tokens).logits)


def test_a_tensor_nobody_knows_is_reported(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {"transformer.extra": torch.ones(3)}, file)
    with warns(UserWarning, 1, "transformer.extra"):
        load(tmp_path)


@torch.no_grad()
def test_many_files_in_half(tmp_path: Path) -> None:
    reference, tokens = gpt2().half(), words(97, 2, 11)
    reference.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    opened = load(tmp_path / "theirs")
    wanted = reference.float()(tokens).logits
    close(opened.model.logits(opened.model(tokens)), wanted)
    back = theirs(opened, tmp_path / "ours", hf.GPT2LMHeadModel)
    assert torch.equal(back(tokens).logits, wanted)


def test_a_fresh_model_opens_in_transformers(tmp_path: Path) -> None:
    """No directory it came from: everything in config.json is ours."""
    import regard
    from regard.formats.directory import save

    for name, kind in (("gpt2", hf.GPT2LMHeadModel), ("gpt1", hf.OpenAIGPTLMHeadModel)):
        torch.manual_seed(0)
        model = regard.create(name, layers=2, width=32, heads=4, vocab_size=97, context=24).eval()
        save(model, tmp_path / name)
        back, report = hf.AutoModelForCausalLM.from_pretrained(
            tmp_path / name, output_loading_info=True
        )
        assert isinstance(back, kind) and not any(report.values())
        tokens = words(97, 2, 24)
        with torch.no_grad():
            close(model.logits(model(tokens)), back.eval()(tokens).logits)
        assert tied(back)


def tied(model: Any) -> bool:
    table: nn.Embedding = model.get_input_embeddings()
    return model.get_output_embeddings().weight.data_ptr() == table.weight.data_ptr()


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    fast.train_from_iterator(["the cat sat on the mat, that is that"] * 3, trainer)
    end = "<|endoftext|>"
    hf.PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token=end, eos_token=end, unk_token=end
    ).save_pretrained(tmp_path / "theirs")
    opened = ours(gpt2(vocab_size=290), tmp_path / "theirs")
    text = "The cat’s mat\n  — that's 完"
    expected = hf.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert opened.tokenizer is not None
    ids = opened.tokenizer.encode(text)
    assert ids == expected(text).input_ids
    assert opened.tokenizer.decode(ids) == text
    opened.save(tmp_path / "ours")
    back = hf.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert back(text).input_ids == ids and back.eos_token_id == expected.eos_token_id
