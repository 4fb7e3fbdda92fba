"""New tokens: in the tokenizer and all its files, and as rows of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.api import load
from regard.core.errors import ConfigError
from regard.data.examples import LabeledExample, TaggedExample
from regard.data.special_tokens import special_of
from regard.data.tags import labels
from regard.data.tokenizer import Tokenizer
from regard.evaluation.predict import Predictor
from regard.formats.directory import save
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.tasks.classify import Classify
from regard.tasks.corpus import TaskCorpus, labeled_data
from regard.tasks.tag_objective import Tag
from regard.tasks.task_tokens import extended, grown, marked
from regard.training.build import model_for, outline, shaped
from regard.training.recipe import make
from tests.refusals import refuses

transformers.logging.set_verbosity_error()

TEXT = ["the cat sat on the mat, that is that"] * 3
END = "<|endoftext|>"

MARKS = ("start", "sep", "cls")  # of a GPT


def of_bytes() -> Fast:
    """As GPT-2's."""
    fast = Fast(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    fast.train_from_iterator(TEXT, trainer)
    return fast


def of_words() -> Fast:
    """As GPT-1's: with a mark at the end of a word, and without a token that ends a text."""
    fast = Fast(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=60, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    fast.train_from_iterator(TEXT, trainer)
    return fast


def older_files(fast: Fast, directory: Path) -> Path:
    """vocab.json and merges.txt alone."""
    directory.mkdir()
    model = json.loads(fast.to_str())["model"]
    (directory / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])])
    (directory / "merges.txt").write_text(merges, encoding="utf-8")
    return directory


def published(kind: str, directory: Path) -> Path:
    out = directory / kind
    if kind == "older files":
        return older_files(of_bytes(), out)
    if kind == "any":
        marks = {"bos_token": END, "eos_token": END, "unk_token": END}
        tokenizer: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=of_bytes(), **marks)
    elif kind == "gpt2":
        old = older_files(of_bytes(), directory / "old")
        tokenizer = transformers.GPT2Tokenizer.from_pretrained(old)
    else:
        old = older_files(of_words(), directory / "old")
        tokenizer = transformers.OpenAIGPTTokenizer.from_pretrained(old)
    tokenizer.save_pretrained(out)
    return out


def opened(directory: Path) -> Tokenizer:
    tokenizer = Tokenizer.open(directory)
    assert tokenizer is not None
    return tokenizer


BYTES = {"sep": "<|sep|>", "cls": "<|cls|>"}
KINDS: dict[str, dict[str, str]] = {
    "any": BYTES,
    "gpt2": BYTES,
    "older files": BYTES,
    "gpt1": {"start": "_start_", "sep": "_delimiter_", "cls": "_classify_"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_marks_are_there_for_us_and_for_others(kind: str, tmp_path: Path) -> None:
    before = opened(published(kind, tmp_path))
    size, files = len(before), dict(before.files)
    tokenizer = extended(before, "the model", MARKS)
    assert len(before) == size and before.files == files  # nothing is done to the old one
    special = special_of(tokenizer, kind)
    new = {role: size + i for i, role in enumerate(KINDS[kind])}
    assert {role: getattr(special, role) for role in new} == new
    assert tokenizer.tokens(list(new.values())) == list(KINDS[kind].values())
    assert len(tokenizer) == size + len(new)
    assert extended(tokenizer, "the model", MARKS) is tokenizer

    out = tmp_path / "out"
    out.mkdir()
    tokenizer.save(out)
    assert special_of(opened(out), kind) == special and len(opened(out)) == len(tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    assert len(theirs) == len(tokenizer)
    assert theirs.bos_token_id == special.start
    assert (theirs.sep_token_id, theirs.cls_token_id) == (special.sep, special.cls)
    text = "the cat sat"
    plain = before.encode(text, special=False)
    assert tokenizer.encode(text, special=False) == plain
    assert theirs(text, add_special_tokens=False).input_ids == plain
    row = [special.need("start"), *plain, special.need("sep"), special.need("cls")]
    assert theirs.decode(row, skip_special_tokens=True).strip() == text


def test_every_file_that_lists_tokens_says_so(tmp_path: Path) -> None:
    directory = published("any", tmp_path)
    config = json.loads((directory / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {"0": {"content": END, "special": True}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "special_tokens_map.json").write_text(json.dumps({"eos_token": END}))
    (directory / "added_tokens.json").write_text("{}")
    tokenizer = extended(opened(directory), "the model", MARKS)
    size = len(tokenizer)
    contents = {
        name: json.loads(tokenizer.files[name])
        for name in tokenizer.files
        if name.endswith(".json")
    }
    assert contents["special_tokens_map.json"] == {
        "eos_token": END, "sep_token": "<|sep|>", "cls_token": "<|cls|>",
    }  # fmt: skip
    assert contents["added_tokens.json"] == {"<|sep|>": size - 2, "<|cls|>": size - 1}
    listed = contents["tokenizer_config.json"]["added_tokens_decoder"]
    assert {number: entry["content"] for number, entry in listed.items()} == {
        "0": END, str(size - 2): "<|sep|>", str(size - 1): "<|cls|>",
    }  # fmt: skip


def gpt(vocab_size: int, **changes: Any) -> GPT:
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=vocab_size, context=24, width=32, layers=1, heads=2, **changes)
    return GPT(config).initialize().eval()


@torch.no_grad()
def test_new_rows_leave_the_old_ones_alone() -> None:
    model = gpt(50)
    tokens = torch.arange(20)[None]
    hidden, logits = model(tokens), model.logits(model(tokens))
    torch.manual_seed(1)
    assert grown(model, 3050) is model
    assert model.config.vocab_size == model.tokens.num_embeddings == 3050
    assert model.output.weight is model.tokens.weight and model.tokens.weight.requires_grad
    assert torch.equal(model(tokens), hidden)
    assert torch.allclose(model.logits(hidden)[..., :50], logits, atol=1e-6)
    assert model.logits(model(torch.tensor([[3049]]))).shape == (1, 1, 3050)
    new = model.tokens.weight[50:]
    assert abs(float(new.std()) - 0.02) < 0.0005 and abs(float(new.mean())) < 0.0005


def test_nothing_to_grow_and_nothing_that_can() -> None:
    model = gpt(50)
    table = model.tokens.weight
    assert grown(model, 50).tokens.weight is table and grown(model, 7).config.vocab_size == 50
    bert = Bert(BertConfig(vocab_size=9, width=16, layers=1, heads=2, ffn_size=16))
    with refuses(ConfigError, "Bert", "tokens"):
        grown(bert, 10)


def test_without_memory_for_weights() -> None:
    with torch.device("meta"):
        model = grown(GPT(GPTConfig()), 50300)
    assert model.tokens.weight.is_meta and model.tokens.weight.shape == (50300, 768)
    assert model.output.weight is model.tokens.weight
    assert model.parameter_count() == 124439808 + 43 * 768


@pytest.mark.parametrize("kind", ["gpt2", "gpt1"])
def test_a_run_is_planned_and_built_with_them(kind: str, tmp_path: Path) -> None:
    """The tokenizer of the examples, the outline and the model know the same tokens."""
    tokenizer = opened(published(kind, tmp_path))
    norm = "pre" if kind == "gpt2" else "post"
    save(gpt(len(tokenizer), norm=norm), tmp_path / "model", tokenizer)
    data = tmp_path / "data.jsonl"
    rows = [{"text": f"the cat {i}", "label": "xy"[i % 2]} for i in range(20)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = {"name": "classify", "family": "gpt"}
    recipe = make({"model": str(tmp_path / "model"), "data": str(data), "objective": settings,
                   "examples": {"task": "classify"}})  # fmt: skip
    corpus = labeled_data(recipe, "train")
    assert corpus.vocab_size == len(corpus.tokenizer) == len(tokenizer) + len(KINDS[kind])
    options = Classify.Options(family="gpt")
    objective: Any = Classify(corpus, options, seq_len=16, batch_size=4, seed=1)  # type: ignore[arg-type]
    recipe = shaped(recipe, objective)
    ghost, model = outline(recipe, objective), model_for(recipe, objective)
    assert ghost.config == model.config and model.config.vocab_size == corpus.vocab_size
    assert objective.sample(0, 0)["tokens"].max() < corpus.vocab_size
    assert torch.equal(
        model.tokens.weight, model_for(recipe, objective).tokens.weight
    )  # by the seed
    assert torch.equal(
        model.tokens.weight[: len(tokenizer)], load(tmp_path / "model").model.tokens.weight
    )
    recipe.objective["marks"] = False  # GPT-1's has no token at all that could end a text
    assert labeled_data(recipe, "train").vocab_size == len(tokenizer) + (kind == "gpt1")


@pytest.mark.parametrize("kind", ["gpt2", "gpt1"])
def test_what_a_task_needs(kind: str, tmp_path: Path) -> None:
    """A GPT's texts stand between marks; without them a token that ends a text is enough."""
    tokenizer = opened(published(kind, tmp_path))
    size, new = len(tokenizer), len(KINDS[kind])
    assert marked(tokenizer, "bert", "classify", True) is tokenizer
    assert len(marked(tokenizer, "gpt", "classify", True)) == size + new
    for task, marks in (("tag", True), ("classify", False)):
        changed = marked(tokenizer, "gpt", task, marks)
        if kind == "gpt2":
            assert changed is tokenizer
        else:
            assert len(changed) == size + 1
            assert special_of(changed, kind).end == size and changed.tokens([size]) == ["<eos>"]
            assert marked(changed, "gpt", task, marks) is changed


def test_published_gpt1_tags(tmp_path: Path) -> None:
    tokenizer = opened(published("gpt1", tmp_path))
    ready = marked(tokenizer, "gpt", "tag", True)
    corpus = TaskCorpus(
        "tag", [TaggedExample(("the", "cat"), ("O", "B-x"))], ready, labels(["x"]), "train"
    )
    options = Tag.Options(family="gpt")
    objective: Any = Tag(corpus, options, seq_len=16, batch_size=4, seed=1)  # type: ignore[arg-type]
    model = GPT(gpt(len(tokenizer), norm="post").config, {"tag": 3}).initialize()
    model = objective.adapt_model(model)
    objective.check(model)
    loss = objective.loss(model, objective.collate([objective.sample(0, 0)]))
    assert torch.isfinite(loss.sums["tag"]) and loss.counts == {"tag": 2.0}
    save(model, tmp_path / "run", ready)
    objective.save_extras(model, tmp_path / "run")
    (prediction,) = Predictor(load(tmp_path / "run"))([TaggedExample(("the", "cat"))])
    assert len(prediction.value) == 2


def test_a_tokenizer_that_has_them_stays(tmp_path: Path) -> None:
    """What 'regard prepare' makes has all roles."""
    tokenizer = extended(opened(published("gpt2", tmp_path)), "the model", MARKS)
    corpus = TaskCorpus(
        "classify",
        [LabeledExample("the cat", label="x")],
        extended(tokenizer, "the model", MARKS),
        ["x", "y"],
    )
    assert corpus.tokenizer is tokenizer
