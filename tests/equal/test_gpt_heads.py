"""GPT-1 and GPT-2 with heads, number by number beside transformers, in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

import regard
from regard.api import LoadedModel, load
from regard.core.errors import ConfigError, UnknownName
from regard.formats.directory import heads_in, save
from regard.models.gpt import GPT, GPTConfig
from regard.models.output import LastRowHead
from tests.equal.reference import marks, ours, position_ids, same_config, scramble, theirs, words
from tests.refusals import refuses

EXACT = 1e-12
LENGTHS = [14, 5, 9, 1]
PAD = 96
SIZE = {"vocab_size": 97, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4,
        "pad_token_id": PAD}  # fmt: skip


def made(kind: Any, labels: int) -> Any:
    config = hf.GPT2Config if kind.__name__.startswith("GPT2") else hf.OpenAIGPTConfig
    if config is hf.GPT2Config:
        return scramble(kind(config(**SIZE, bos_token_id=3, eos_token_id=3, num_labels=labels)))
    return scramble(kind(config(**SIZE, num_labels=labels)))


def opened(reference: Any, directory: Path) -> LoadedModel:
    return ours(reference.double(), directory, dtype=torch.float64)


def exact(actual: Tensor, expected: Tensor) -> None:
    assert actual.shape == expected.shape and actual.dtype == expected.dtype == torch.float64
    assert float((actual - expected).abs().max()) <= EXACT * max(1.0, float(expected.abs().max()))


def padded(side: str) -> tuple[Tensor, Tensor]:
    attention_mask = marks(LENGTHS, side)
    return words(PAD, *attention_mask.shape).masked_fill(~attention_mask, PAD), attention_mask


CLASSIFIERS = [(hf.GPT2ForSequenceClassification, 3), (hf.GPT2ForSequenceClassification, 1),
               (hf.OpenAIGPTForSequenceClassification, 4)]  # fmt: skip


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("kind", "labels"), CLASSIFIERS)
@torch.no_grad()
def test_classes(kind: Any, labels: int, side: str, tmp_path: Path) -> None:
    reference = made(kind, labels)
    loaded = opened(reference, tmp_path / "theirs")
    model = loaded.model
    tokens, attention_mask = padded(side)
    wanted = reference(
        tokens, attention_mask=attention_mask.long(), position_ids=position_ids(attention_mask)
    ).logits
    exact(model.read("classify", model(tokens, attention_mask), attention_mask), wanted)
    assert wanted.shape == (4, labels) and model.heads["classify"].out.bias is None

    back = theirs(loaded, tmp_path / "ours", kind).double()
    again = back(
        tokens, attention_mask=attention_mask.long(), position_ids=position_ids(attention_mask)
    ).logits
    assert torch.equal(again, wanted)
    same_config(reference.config, back.config)


@pytest.mark.parametrize(
    ("kind", "head", "labels"),
    [(hf.GPT2ForTokenClassification, "tag", 5), (hf.GPT2ForQuestionAnswering, "answer", 2)],
)
@torch.no_grad()
def test_rows(kind: Any, head: str, labels: int, tmp_path: Path) -> None:
    reference = made(kind, labels)
    loaded = opened(reference, tmp_path / "theirs")
    tokens = words(97, 3, 17)

    def said(model: Any) -> Tensor:
        output = model(tokens)
        return output.logits if head == "tag" else torch.stack([output[0], output[1]], -1)

    exact(loaded.model.read(head, loaded.model(tokens)), said(reference))
    back = theirs(loaded, tmp_path / "ours", kind).double()
    assert torch.equal(said(back), said(reference))
    same_config(reference.config, back.config)


@pytest.mark.parametrize("kind", [hf.GPT2DoubleHeadsModel, hf.OpenAIGPTDoubleHeadsModel])
@torch.no_grad()
def test_choices(kind: Any, tmp_path: Path) -> None:
    """Both of its heads: the choice, and the language model."""
    reference = made(kind, 1)
    loaded = opened(reference, tmp_path / "theirs")
    model = loaded.model
    tokens, attention_mask = padded("right")
    last = torch.tensor(LENGTHS) - 1
    wanted = reference(tokens[None], mc_token_ids=last[None])
    exact(model.read("choose", model(tokens), attention_mask)[None, :, 0], wanted.mc_logits)
    exact(model.logits(model(tokens))[None], wanted.logits)
    back = theirs(loaded, tmp_path / "ours", kind).double()
    assert torch.equal(back(tokens[None], mc_token_ids=last[None]).mc_logits, wanted.mc_logits)


def test_choices_that_are_read_otherwise_are_refused(tmp_path: Path) -> None:
    reference = made(hf.GPT2DoubleHeadsModel, 1)
    reference.config.summary_type = "mean"
    reference.save_pretrained(tmp_path)
    with refuses(ConfigError, "summary_type", "'mean'", "'cls_index'"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["gpt1", "gpt2"])
@torch.no_grad()
def test_a_published_model_gets_a_head(name: str, tmp_path: Path) -> None:
    """A file without one: the body stays, the head is new, and what is saved has a class."""
    shape = {"layers": 2, "width": 32, "heads": 4, "vocab_size": 97, "context": 24}
    torch.manual_seed(0)
    save(regard.create(name, **shape), tmp_path / "plain")
    plain = load(tmp_path / "plain")
    headed = load(tmp_path / "plain", heads={"classify": 3})
    tokens = words(97, 2, 9)
    assert torch.equal(headed.model(tokens), plain.model(tokens))
    assert heads_in(plain.model) == {"masked": 0} and not plain.model.heads
    headed.save(tmp_path / "made")
    kind = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "made").eval()
    assert type(kind).__name__ in ("GPT2ForSequenceClassification",
                                   "OpenAIGPTForSequenceClassification")  # fmt: skip
    for i in range(2):  # it has no padding, so one by one
        expected = kind(tokens[i : i + 1]).logits
        logits = headed.model.read("classify", headed.model(tokens[i : i + 1]))
        assert torch.allclose(logits, expected, atol=1e-5)
    again = load(tmp_path / "made")
    assert torch.equal(again.model.heads["classify"].out.weight,
                       headed.model.heads["classify"].out.weight)  # fmt: skip


@pytest.mark.parametrize("head", ["classify", "choose", "tag", "answer"])
@pytest.mark.parametrize("name", ["gpt1", "gpt2", "gpt3-small"])
@torch.no_grad()
def test_every_head_of_every_gpt_comes_back(name: str, head: str, tmp_path: Path) -> None:
    """GPT-3's bands, and GPT-1's tags and answers, in a class of ours; the others in theirs."""
    config = regard.create(name, initialize=False, layers=2, width=32, heads=4, vocab_size=97,
                           context=24, ffn_size=128).config  # fmt: skip
    torch.manual_seed(0)
    model = GPT(config, {head: 1 if head == "choose" else 2}).initialize().eval()
    save(model, tmp_path)
    back = load(tmp_path).model
    tokens = words(97, 2, 9)
    logits, wanted = back.read(head, back(tokens)), model.read(head, model(tokens))
    assert logits.shape == wanted.shape and torch.allclose(logits, wanted, atol=1e-6)
    assert torch.equal(back.logits(back(tokens)), model.logits(model(tokens)))
    ours_ = name == "gpt3-small" or (name == "gpt1" and head in ("tag", "answer"))
    named = load(tmp_path).source["architectures"][0]
    assert named.startswith("Regard") == ours_
    if name == "gpt1" and ours_:
        body = hf.OpenAIGPTModel.from_pretrained(tmp_path).eval()
        assert torch.allclose(body(tokens).last_hidden_state, model(tokens), atol=1e-5)


def test_dropout_stands_before_the_classes_in_training_only() -> None:
    config = GPTConfig(vocab_size=20, context=8, width=16, layers=1, heads=2, dropout_head=0.5)
    head = GPT(config, {"classify": 3}).heads["classify"]
    assert isinstance(head, LastRowHead)
    hidden = torch.ones(2, 4, 16)
    with torch.no_grad():
        head.out.weight.fill_(1.0)
        assert torch.equal(head.eval()(hidden), torch.full((2, 3), 16.0))
        logits = torch.cat([head.train()(hidden) for _ in range(200)])
    assert abs(float(logits.mean()) - 16) < 1 and float(logits.std()) > 2


def test_a_head_that_is_not_there() -> None:
    model = regard.create("gpt2", layers=1, width=16, heads=2, vocab_size=20, context=8)
    with refuses(UnknownName, "'classify'"):
        model.read("classify", torch.zeros(1, 2, 16))


def test_classes_that_do_not_fit_the_file(tmp_path: Path) -> None:
    """Asked for, a head of another number of classes starts anew; the body is that of the file."""
    model = GPT(GPTConfig(20, 8, 16, 1, 2), {"classify": 3}).initialize()
    save(model, tmp_path)
    opened = load(tmp_path, heads={"classify": 4}).model
    assert opened.heads["classify"].out.weight.shape == (4, 16)
    assert torch.equal(opened.tokens.weight, model.tokens.weight)
