"""BERT and its heads, number by number beside transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from torch.nn import functional as F

from regard.api import load
from tests.equal.reference import (
    all_close,
    close,
    layers,
    marks,
    ours,
    position_ids,
    same_config,
    scramble,
    theirs,
    words,
)

LENGTHS = [13, 6, 9, 1]
HEADS = {
    hf.BertModel: "pool",
    hf.BertForPreTraining: "next",
    hf.BertForMaskedLM: None,
    hf.BertForNextSentencePrediction: "next",
    hf.BertForSequenceClassification: "classify",
    hf.BertForTokenClassification: "tag",
    hf.BertForQuestionAnswering: "answer",
}


def config(**changes: Any) -> hf.BertConfig:
    fields = {
        "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 56, "max_position_embeddings": 40, "type_vocab_size": 3,
    }  # fmt: skip
    return hf.BertConfig(**fields | changes)


def labeled(kind: Any) -> hf.BertConfig:
    return config(num_labels=2 if kind is hf.BertForQuestionAnswering else 5)


def inner(model: Any) -> Any:
    return getattr(model, "bert", model)


def answers(kind: Any, result: Any) -> list[Tensor]:
    """Every number a class computes on top of the hidden states, row by row or text by text."""
    if kind is hf.BertModel:
        return [result.last_hidden_state, result.pooler_output]
    if kind is hf.BertForPreTraining:
        return [result.prediction_logits, result.seq_relationship_logits]
    if kind is hf.BertForQuestionAnswering:
        return [torch.stack([result.start_logits, result.end_logits], -1)]
    return [result.logits]


def our_answers(
    kind: Any, model: Any, hidden: Tensor, attention_mask: Tensor | None
) -> list[Tensor]:
    head = HEADS[kind]
    answers = [] if head is None else [model.read(head, hidden, attention_mask)]
    if kind is hf.BertModel:
        return [hidden, *answers]
    guesses = kind in (hf.BertForMaskedLM, hf.BertForPreTraining)
    return [model.logits(hidden), *answers] if guesses else answers


@pytest.mark.parametrize("kind", HEADS, ids=lambda kind: kind.__name__)
@torch.no_grad()
def test_every_head_there_and_back(kind: Any, tmp_path: Path) -> None:
    reference = scramble(kind(labeled(kind)))
    opened = ours(reference, tmp_path / "theirs")
    tokens, segments = words(97, 3, 11), words(3, 3, 11, seed=2)
    with layers(inner(reference).encoder.layer) as expected:
        wanted = answers(kind, reference(tokens, token_type_ids=segments))
    with layers(opened.model.blocks) as rows:
        hidden = opened.model(tokens, segments=segments)
    all_close(rows, expected)
    all_close(our_answers(kind, opened.model, hidden, None), wanted)

    back = theirs(opened, tmp_path / "ours", kind)
    again = answers(kind, back(tokens, token_type_ids=segments))
    for a, b in zip(again, wanted, strict=True):
        assert torch.equal(a, b)
    same_config(reference.config, back.config)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", HEADS, ids=lambda kind: kind.__name__)
@torch.no_grad()
def test_padding_on_either_side(kind: Any, side: str, tmp_path: Path) -> None:
    """The reference pools row 0, padding or not: summaries are compared with the text alone."""
    reference = scramble(kind(labeled(kind)))
    model = ours(reference, tmp_path).model
    attention_mask = marks(LENGTHS, side)
    tokens, segments = words(97, *attention_mask.shape), words(3, *attention_mask.shape, seed=2)
    with layers(inner(reference).encoder.layer) as expected:
        result = reference(
            tokens, attention_mask=attention_mask.long(), token_type_ids=segments,
            position_ids=position_ids(attention_mask),
        )  # fmt: skip
    with layers(model.blocks) as rows:
        hidden = model(tokens, attention_mask, segments)
    all_close(rows, expected, attention_mask)
    found_answers = our_answers(kind, model, hidden, attention_mask)
    for mine, wanted in zip(found_answers, answers(kind, result), strict=True):
        if mine.dim() == 3:
            close(mine[attention_mask], wanted[attention_mask])
    for i, row in enumerate(attention_mask):
        alone = reference(tokens[i : i + 1, row], token_type_ids=segments[i : i + 1, row])
        for mine, wanted in zip(found_answers, answers(kind, alone), strict=True):
            close(mine[i][row] if mine.dim() == 3 else mine[i], wanted[0])


@torch.no_grad()
def test_multiple_choice(tmp_path: Path) -> None:
    reference = scramble(hf.BertForMultipleChoice(config()))
    opened = ours(reference, tmp_path / "theirs")
    tokens, segments = words(97, 2, 4, 10), words(3, 2, 4, 10, seed=2)
    attention_mask = marks([10, 4, 7, 9, 3, 10, 8, 5], "right")
    wanted = reference(
        tokens, attention_mask=attention_mask.long().view(2, 4, 10), token_type_ids=segments
    ).logits
    hidden = opened.model(tokens.flatten(0, 1), attention_mask, segments.flatten(0, 1))
    close(opened.model.read("choose", hidden, attention_mask).view(2, 4), wanted)
    back = theirs(opened, tmp_path / "ours", hf.BertForMultipleChoice)
    again = back(
        tokens, attention_mask=attention_mask.long().view(2, 4, 10), token_type_ids=segments
    )
    assert torch.equal(again.logits, wanted)
    same_config(reference.config, back.config)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu"])
@torch.no_grad()
def test_every_activation(activation: str, tmp_path: Path) -> None:
    """The authors' GELU and the published one differ by 5e-4: enough to be seen here."""
    reference = scramble(hf.BertForMaskedLM(config(hidden_act=activation)))
    opened = ours(reference, tmp_path / "theirs")
    tokens = words(97, 2, 9)
    wanted = reference(tokens).logits
    close(opened.model.logits(opened.model(tokens)), wanted)
    back = theirs(opened, tmp_path / "ours", hf.BertForMaskedLM)
    assert torch.equal(back(tokens).logits, wanted)
    assert back.config.hidden_act == activation


def test_fields_and_labels_survive(tmp_path: Path) -> None:
    """What we do not compute with is kept too: names of labels, rates, the problem's type."""
    names = {0: "sad", 1: "so so", 2: "glad"}
    original = config(
        id2label=names, label2id={v: k for k, v in names.items()}, classifier_dropout=0.3,
        hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.05, initializer_range=0.01,
        problem_type="single_label_classification", layer_norm_eps=1e-7,
    )  # fmt: skip
    opened = ours(scramble(hf.BertForSequenceClassification(original)), tmp_path / "theirs")
    back = theirs(opened, tmp_path / "ours", hf.BertForSequenceClassification)
    same_config(original, back.config)
    assert back.config.id2label == names
    assert opened.config.dropout_head == 0.3 and opened.config.norm_eps == 1e-7
    assert opened.model.heads["classify"].after.rate == 0.3


def test_gradients_of_a_training_step(tmp_path: Path) -> None:
    """The loss of masked words and of the next sentence, through logits made only where wanted."""
    reference = scramble(hf.BertForPreTraining(config()))
    model = ours(reference, tmp_path).model
    attention_mask = marks(LENGTHS, "right")
    tokens = words(97, *attention_mask.shape)
    chosen = attention_mask & (words(3, *attention_mask.shape, seed=5) == 0)
    targets, following = words(97, *attention_mask.shape, seed=6), torch.tensor([0, 1, 1, 0])
    labels = targets.masked_fill(~chosen, -100)
    loss = reference(
        tokens, attention_mask=attention_mask.long(), labels=labels, next_sentence_label=following
    ).loss
    loss.backward()
    hidden = model(tokens, attention_mask)
    masked_loss = model.output.surprisal(hidden[chosen], targets[chosen]) / chosen.sum()
    our_loss = masked_loss + F.cross_entropy(model.read("next", hidden, attention_mask), following)
    our_loss.backward()
    close(our_loss.detach(), loss.detach())
    table = reference.bert.embeddings
    pairs = [
        (model.embeddings.tokens, table.word_embeddings),
        (model.embeddings.positions, table.position_embeddings),
        (model.embeddings.segments, table.token_type_embeddings),
        (model.embeddings.norm, table.LayerNorm),
        (model.output.transform.dense, reference.cls.predictions.transform.dense),
        (model.heads["next"].dense, reference.bert.pooler.dense),
    ]
    for mine, their in pairs:
        expected = their.weight.grad
        assert (mine.weight.grad - expected).norm() <= 1e-5 * expected.norm()
    query = reference.bert.encoder.layer[0].attention.self
    fused = torch.cat([query.query.weight.grad, query.key.weight.grad, query.value.weight.grad])
    mine = model.blocks[0].attention.layer.project.weight.grad
    assert (mine - fused).norm() <= 1e-5 * fused.norm()


def rewrite(directory: Path, change: Any) -> None:
    file = directory / "model.safetensors"
    tensors = load_file(file)
    save_file({change(key): value for key, value in tensors.items()}, file)


@torch.no_grad()
def test_old_names_of_the_norms(tmp_path: Path) -> None:
    reference = scramble(hf.BertForMaskedLM(config()))
    reference.save_pretrained(tmp_path)
    rewrite(
        tmp_path,
        lambda key: key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ),
    )
    assert any(key.endswith("gamma") for key in load_file(tmp_path / "model.safetensors"))
    model, tokens = load(tmp_path).model, words(97, 2, 9)
    close(model.logits(model(tokens)), reference(tokens).logits)


@torch.no_grad()
def test_a_base_file_opened_with_other_heads(tmp_path: Path) -> None:
    """A file without the prefix `bert.`; a head it lacks starts at random, nothing else does."""
    reference = scramble(hf.BertModel(config()))
    opened = ours(reference, tmp_path / "theirs", heads={"classify": 7})
    model, tokens = opened.model, words(97, 2, 9)
    close(model(tokens), reference(tokens).last_hidden_state)
    head = model.heads["classify"]
    assert torch.equal(head.dense.weight, reference.pooler.dense.weight)
    assert head.out.weight.shape == (7, 32)
    assert 0.005 < head.out.weight.std() < 0.05
    back = theirs(opened, tmp_path / "ours", hf.BertForSequenceClassification)
    close(back(tokens).logits, model.read("classify", model(tokens)))
    assert back.config.num_labels == 7


@torch.no_grad()
def test_weights_in_many_files(tmp_path: Path) -> None:
    reference = scramble(hf.BertForPreTraining(config()))
    reference.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    model, tokens = load(tmp_path).model, words(97, 2, 9)
    close(model.logits(model(tokens)), reference(tokens).prediction_logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_weights_stored_in_half(dtype: torch.dtype, tmp_path: Path) -> None:
    """Opened in fp32 whatever they were stored in, and on request as they are."""
    reference = scramble(hf.BertForMaskedLM(config())).to(dtype)
    reference.save_pretrained(tmp_path)
    tokens = words(97, 2, 9)
    model = load(tmp_path).model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    close(model.logits(model(tokens)), reference.float()(tokens).logits)
    half = load(tmp_path, dtype=dtype)
    assert {p.dtype for p in half.model.parameters()} == {dtype}
    half.save(tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["dtype"] == str(dtype)[6:]
    stored = load_file(tmp_path / "again/model.safetensors")
    before = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(before[key], value) for key, value in stored.items())


def word_pieces(directory: Path) -> None:
    """A tiny WordPiece tokenizer as transformers writes it."""
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat"]
    vocabulary = {entry: i for i, entry in enumerate([*entries, ",", ".", "##s", "##ting"])}
    fast = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    hf.PreTrainedTokenizerFast(
        tokenizer_object=fast, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]",
    ).save_pretrained(directory)  # fmt: skip


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    word_pieces(tmp_path / "theirs")
    opened = ours(scramble(hf.BertForMaskedLM(config())), tmp_path / "theirs")
    text = ("The cats sat on a mat.", "Sitting, the cat?")
    expected = hf.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert opened.tokenizer is not None
    assert opened.tokenizer.encode(*text) == expected(*text).input_ids
    opened.save(tmp_path / "ours")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()
    back = hf.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert back(*text).input_ids == expected(*text).input_ids
    assert back.mask_token_id == expected.mask_token_id == 4
