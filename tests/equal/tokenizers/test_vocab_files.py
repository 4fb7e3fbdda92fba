"""Tokenizers without a tokenizer.json give the ids, offsets and texts that transformers gives."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import FormatError, InputError
from regard.data.tokenizer import Tokenizer
from tests.equal.reference import ours, scramble
from tests.equal.tokenizers.vocabularies import TEXTS, make
from tests.refusals import refuses

KINDS = ("bert", "gpt2", "roberta", "longformer", "openai-gpt", "t5", "xlnet", "llama", "marian")
HARD = [
    "",
    "  ",
    "\n",
    "[MASK] [CLS]x[SEP]",
    "<mask> a <mask>",
    "<|endoftext|>hi",
    "</s> <pad> <unk>x</s>",
    "<extra_id_0> x<extra_id_12>",
    "word <sep> <cls> <eop> (.)",
    "newword [E1]  <ent>",
    ">>de<< the word",
    ">>xx<<the word >>de<<",
    "I don't know , it 's .",
    *TEXTS[:7],
]
LETTERS = "abcXYZ.,'` \t\né😀注意力Ж\u2028\u3000\x00\x07\u200d１ﬁ<>/[]#▁Ġ"
MASK = {"content": "[MASK]", "lstrip": True, "rstrip": False, "single_word": False}
LEFT = {"content": "<mask>", "lstrip": True, "rstrip": False, "single_word": False}
# A kind, and what its JSON files say.
OPTIONS: list[tuple[str, dict[str, dict[str, Any]]]] = [
    ("bert", {"tokenizer_config.json": {"do_lower_case": False}}),
    ("bert", {"tokenizer_config.json": {"strip_accents": False}}),
    ("bert", {"tokenizer_config.json": {"do_lower_case": False, "strip_accents": True}}),
    ("bert", {"tokenizer_config.json": {"tokenize_chinese_chars": False}}),
    ("bert", {"tokenizer_config.json": {"clean_up_tokenization_spaces": True}}),
    ("bert", {"tokenizer_config.json": {"additional_special_tokens": ["<ent>"]}}),
    ("bert", {"special_tokens_map.json": {"mask_token": {**MASK, "normalized": True}},
              "added_tokens.json": {"newword": 604, "[E1]": 605}}),
    ("bert", {"tokenizer_config.json": {"added_tokens_decoder": {
        "4": {**MASK, "normalized": False, "special": True},
        "604": {**MASK, "content": "<ent>", "normalized": True, "special": False}}}}),
    ("gpt2", {"tokenizer_config.json": {"add_prefix_space": True}}),
    ("gpt2", {"tokenizer_config.json": {"add_bos_token": True, "pad_token": "<|pad|>"}}),
    ("roberta", {"tokenizer_config.json": {"add_prefix_space": True},
                 "special_tokens_map.json": {"mask_token": {**LEFT, "normalized": False}}}),
    ("roberta", {"tokenizer_config.json": {"trim_offsets": False}}),
    ("openai-gpt", {"tokenizer_config.json": {"additional_special_tokens": ["<ent>"]}}),
    ("t5", {"tokenizer_config.json": {"extra_ids": 10}}),
    ("xlnet", {"tokenizer_config.json": {"do_lower_case": True}}),
    ("llama", {"tokenizer_config.json": {"add_bos_token": True, "legacy": True}}),
    ("llama", {"tokenizer_config.json": {"add_prefix_space": False}}),
    ("llama", {"tokenizer_config.json": {"add_eos_token": True, "pad_token": "<pad>"}}),
]  # fmt: skip


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("published")
    return {kind: make(kind, place / kind) for kind in KINDS}


def reference(directory: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Marian's recommends a library that it does not use
        return hf.AutoTokenizer.from_pretrained(directory)


def opened(directory: Path) -> Tokenizer:
    tokenizer = Tokenizer.open(directory)
    assert tokenizer is not None
    return tokenizer


def compare(tokenizer: Tokenizer, theirs: Any, text: str) -> None:
    """Checks ids, segments and offsets of a text alone and before another, and decoding."""
    fast = theirs.is_fast
    for pair in (None, "the second, text"):
        expected = theirs(text, pair, return_offsets_mapping=fast)
        encoding = tokenizer.ready.encode(text, pair)
        assert encoding.ids == expected["input_ids"] == tokenizer.encode(text, pair)
        if fast:
            assert encoding.offsets == [tuple(span) for span in expected["offset_mapping"]]
        if "token_type_ids" in expected:
            assert encoding.type_ids == expected["token_type_ids"]
        for special in (True, False):
            assert tokenizer.decode(encoding.ids, special=special) == theirs.decode(
                encoding.ids, skip_special_tokens=not special
            )
    bare = theirs(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode(text, special=False) == bare


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_gets_the_ids_of_transformers(kind: str, directories: dict[str, Path]) -> None:
    tokenizer, theirs = opened(directories[kind]), reference(directories[kind])
    assert tokenizer.ready.get_vocab() == theirs.get_vocab()
    for text in HARD:
        compare(tokenizer, theirs, text)

    words = st.sampled_from([*HARD, *"the fox , don't 注意力 😀 <unk> [UNK]".split()])

    @settings(max_examples=500, deadline=None, database=None)
    @given(st.lists(st.text(LETTERS, max_size=12) | words | st.text(max_size=6), max_size=6))
    def check(parts: list[str]) -> None:
        compare(tokenizer, theirs, " ".join(parts))

    check()


@pytest.mark.parametrize(("kind", "files"), OPTIONS, ids=lambda value: str(value)[:60])
def test_what_the_json_files_say_is_obeyed(
    kind: str, files: dict[str, Any], directories: dict[str, Path], tmp_path: Path
) -> None:
    directory = shutil.copytree(directories[kind], tmp_path / kind)
    for name, table in files.items():
        before = directory / name
        old = json.loads(before.read_text()) if before.is_file() else {}
        before.write_text(json.dumps(old | table))
    tokenizer, theirs = opened(directory), reference(directory)
    assert tokenizer.ready.get_vocab() == theirs.get_vocab()
    for text in HARD:
        compare(tokenizer, theirs, text)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_it_opens_in_transformers_and_here(
    kind: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    """tokenizer.json stands beside the original files wherever one can express the tokenizer."""
    tokenizer, before = opened(directories[kind]), reference(directories[kind])
    tokenizer.save(tmp_path)
    shutil.copyfile(directories[kind] / "config.json", tmp_path / "config.json")
    assert (tmp_path / "tokenizer.json").is_file() == (kind != "marian")
    for file in directories[kind].iterdir():
        if file.name != "tokenizer_config.json":
            assert (tmp_path / file.name).read_bytes() == file.read_bytes()
    after, again = reference(tmp_path), opened(tmp_path)
    for text in HARD:
        expected = before(text, "second")["input_ids"]
        assert after(text, "second")["input_ids"] == expected == again.encode(text, "second")
        assert after.decode(expected) == before.decode(expected)


def test_a_target_has_the_pieces_of_its_own_language(directories: dict[str, Path]) -> None:
    tokenizer, theirs = opened(directories["marian"]), reference(directories["marian"])
    assert tokenizer.target is not tokenizer
    for text in HARD:
        assert tokenizer.target.encode(text) == theirs(text_target=text)["input_ids"]
    assert opened(directories["t5"]).target.fast is not None


@pytest.mark.parametrize(
    ("kind", "name"),
    [("gpt2", "GPT2Tokenizer"), ("roberta", "RobertaTokenizer"), ("bert", "BertTokenizer"),
     ("openai-gpt", "OpenAIGPTTokenizer"), ("marian", "MarianTokenizer")],
)  # fmt: skip
def test_the_class_is_told_from_the_vocabulary_where_no_file_names_it(
    kind: str, name: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    directory = shutil.copytree(directories[kind], tmp_path / kind)
    (directory / "config.json").unlink()
    tokenizer = opened(directory)
    assert json.loads(tokenizer.files["tokenizer_config.json"])["tokenizer_class"] == name


def refused(directory: Path, *parts: str) -> None:
    """The model could still be opened and given ids; a text is refused with the reason."""
    tokenizer = opened(directory)
    with refuses(FormatError, str(directory), *parts):
        tokenizer.encode("text")


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"vocab.json": {"a": 0}, "merges.txt": "#version: 0.2\n"}, ("tokenizer_class",)),
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": {"tokenizer_class": "AlbertTokenizer"}},
         ("AlbertTokenizer", "tokenizer.json")),
        ({"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}, ("vocab.json",)),
        ({"vocab.txt": "[UNK]\na\n", "added_tokens.json": {"b": 9}}, ("'b'", "9")),
        ({"vocab.txt": "[UNK]\n\u2028\n\u3000\n[CLS]\n[SEP]\n[PAD]\n"}, ("[MASK]", "[PAD]", "5")),
        ({"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": {"do_lower_case": "no"}},
         ("do_lower_case", "'no'")),
        ({"spiece.model": "nothing", "config.json": {"model_type": "t5"}}, ("spiece.model",)),
        ({"vocab.json": {"a": 0}, "source.spm": "", "target.spm": ""}, ("</s>", "vocab.json")),
    ],
)  # fmt: skip
def test_what_cannot_be_read_exactly_is_refused(
    files: dict[str, Any], parts: tuple[str, ...], tmp_path: Path
) -> None:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
    refused(tmp_path, *parts)


def test_two_languages_cannot_be_prepared_with_one_tokenizer(
    directories: dict[str, Path], tmp_path: Path
) -> None:
    from regard.data.prepare import PreparePlan, prepare

    text = tmp_path / "text.txt"
    text.write_text("one line\n")
    place = str(directories["marian"])
    with refuses(InputError, place, "finetune", "translate"):
        prepare(PreparePlan((str(text),), tmp_path / "data", tokenizer=place))


def test_a_marian_directory_translates_as_in_transformers(
    directories: dict[str, Path], tmp_path: Path
) -> None:
    """From a text to a text, with the files as they were published."""
    theirs = reference(directories["marian"])
    config = hf.MarianConfig(
        vocab_size=len(theirs), d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=40,
        decoder_ffn_dim=40, max_position_embeddings=64, pad_token_id=theirs.pad_token_id,
        decoder_start_token_id=theirs.pad_token_id, eos_token_id=0, forced_eos_token_id=None,
    )  # fmt: skip
    model = scramble(hf.MarianMTModel(config))
    for file in directories["marian"].iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    loaded = ours(model, tmp_path)
    texts = ["The quick brown fox.", ">>de<< 注意力 the </s> end", "Привет"]
    inputs = theirs(texts, return_tensors="pt", padding=True)
    encoded = loaded.tokenizer(texts, return_tensors="pt") if loaded.tokenizer else {}
    assert torch.equal(encoded["input_ids"], inputs["input_ids"])
    expected = model.generate(**inputs, max_new_tokens=12, num_beams=1, do_sample=False)
    translations = loaded.translate(texts, max_new_tokens=12)
    assert [each.value for each in translations] == theirs.batch_decode(
        expected, skip_special_tokens=True
    )
