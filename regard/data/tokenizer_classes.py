"""The classes of tokenizers that transformers reads from files other than `tokenizer.json`.

Each has its own files, normalization and special tokens; one function for each builds the same
tokenizer with the `tokenizers` library, so that every text gets the same ids. A directory whose
files do not say what they are is refused: a wrong tokenizer would give wrong ids without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Fast

from regard.core.errors import FormatError
from regard.core.files import read_json
from regard.data.vocab_files import (
    Roles,
    VocabFiles,
    add_tokens,
    around,
    declared,
    extra_tokens,
    id_of,
    str_of,
    template,
)

SPACE = "▁"  # what SentencePiece writes for a space


def word_pieces(vocab: dict[str, int], normalizer: Any, unknown: str = "[UNK]") -> Fast:
    """Builds BERT's WordPiece, before special tokens are added."""
    fast = Fast(models.WordPiece(vocab, unk_token=unknown))
    fast.normalizer = normalizer
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.decoder = decoders.WordPiece(prefix="##")
    return fast


def bert(source: VocabFiles) -> tuple[Fast, Roles]:
    roles = source.named(
        {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
         "mask_token": "[MASK]"}
    )  # fmt: skip
    strip = source.options.get("strip_accents")
    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=source.option("tokenize_chinese_chars", True),
        strip_accents=None if strip is None else source.option("strip_accents", True),
        lowercase=source.option("do_lower_case", True),
    )
    vocab = models.WordPiece.read_file(source.path("vocab.txt"))
    fast = word_pieces(vocab, normalizer, str_of(roles["unk_token"]))
    add_tokens(fast, source, roles, extra_tokens(source.options))
    cls, sep = str_of(roles["cls_token"]), str_of(roles["sep_token"])
    single = f"{cls}:0 $A:0 {sep}:0"
    fast.post_processor = template(fast, single, f"{single} $B:1 {sep}:1")
    return fast, roles


def bert_pieces(entries: list[str]) -> Fast:
    """Builds BERT's tokenizer from a list of pieces; it lowers texts if no piece has a capital."""
    vocab = {entry: i for i, entry in enumerate(entries)}
    lower = not any(entry.isalpha() and entry != entry.lower() for entry in entries)
    fast = word_pieces(vocab, normalizers.BertNormalizer(lowercase=lower))
    if "[CLS]" in vocab and "[SEP]" in vocab:
        fast.post_processor = processors.BertProcessing(
            ("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"])
        )
    return fast


def byte_level(source: VocabFiles) -> Fast:
    """Builds byte-level BPE as GPT-2 and RoBERTa have it, before special tokens are added."""
    vocab, merges = models.BPE.read_file(source.path("vocab.json"), source.path("merges.txt"))
    fast = Fast(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    space = source.option("add_prefix_space", False)
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    fast.decoder = decoders.ByteLevel()
    return fast


def gpt2(source: VocabFiles) -> tuple[Fast, Roles]:
    roles = source.named(dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>"))
    fast = byte_level(source)
    add_tokens(fast, source, roles, extra_tokens(source.options))
    around(fast, source, roles)
    return fast, roles


def roberta(source: VocabFiles) -> tuple[Fast, Roles]:
    roles = source.named(
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>",
         "pad_token": "<pad>", "cls_token": "<s>", "mask_token": "<mask>"}
    )  # fmt: skip
    fast = byte_level(source)
    add_tokens(fast, source, roles, extra_tokens(source.options))
    cls, sep = str_of(roles["cls_token"]), str_of(roles["sep_token"])
    fast.post_processor = processors.RobertaProcessing(
        (sep, id_of(fast, sep)),
        (cls, id_of(fast, cls)),
        source.option("trim_offsets", True),
        source.option("add_prefix_space", False),
    )
    return fast, roles


def gpt1(source: VocabFiles) -> tuple[Fast, Roles]:
    roles = source.named({"unk_token": "<unk>"})
    vocab, merges = models.BPE.read_file(source.path("vocab.json"), source.path("merges.txt"))
    unknown = str_of(roles["unk_token"])
    fast = Fast(models.BPE(vocab, merges, end_of_word_suffix="</w>", unk_token=unknown))
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.decoder = decoders.BPEDecoder(suffix="</w>")
    add_tokens(fast, source, roles, extra_tokens(source.options))
    around(fast, source, roles)
    return fast, roles


@dataclass(frozen=True)
class SentencePieceFile:
    """What a SentencePiece model file holds."""

    pieces: list[tuple[str, float]]
    added: list[AddedToken]  # control tokens and those the trainer's user defined
    unk_id: int
    charsmap: bytes  # its normalization, compiled


def sentence_pieces(source: VocabFiles, name: str) -> SentencePieceFile:
    content = source.files.get(name)
    if content is None:
        raise FormatError(f"{name} is missing; this class of tokenizer is read from it")
    try:
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]
    except ImportError:
        raise FormatError(
            f"{name} is a SentencePiece file; pip install sentencepiece protobuf to read it"
        ) from None
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # of the protobuf library, which is there if sentencepiece is
        raise FormatError(f"{name} is not a SentencePiece file, or damaged: {error}") from None
    if not model.pieces:
        raise FormatError(f"{name} is not a SentencePiece file, or damaged: it holds no pieces")
    control, user = 3, 4  # types of pieces
    return SentencePieceFile(
        [(piece.piece, piece.score) for piece in model.pieces],
        [
            AddedToken(piece.piece, normalized=False, special=piece.type == control)
            for piece in model.pieces
            if piece.type in (control, user)
        ],
        model.trainer_spec.unk_id,
        model.normalizer_spec.precompiled_charsmap,
    )


def metaspace(fast: Fast) -> None:
    """Cuts at white space, and writes SentencePiece's mark in front of every word."""
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always"),
        ]
    )
    fast.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")


def t5(source: VocabFiles) -> tuple[Fast, Roles]:
    roles = source.named({"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})
    model = sentence_pieces(source, "spiece.model")
    count = source.options.get("extra_ids", 100)
    marks = [f"<extra_id_{i}>" for i in range(count)]
    vocab = [*model.pieces, *((mark, 0.0) for mark in reversed(marks))]
    fast = Fast(models.Unigram(vocab, unk_id=2, byte_fallback=False))
    if model.charsmap:
        fast.normalizer = normalizers.Precompiled(model.charsmap)
    metaspace(fast)
    add_tokens(fast, source, roles, [*model.added, *marks])
    fast.post_processor = template(fast, "$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0")
    return fast, roles


def xlnet(source: VocabFiles) -> tuple[Fast, Roles]:
    mask = AddedToken("<mask>", lstrip=True, special=True)
    roles = source.named(
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "<sep>",
         "pad_token": "<pad>", "cls_token": "<cls>", "mask_token": mask}
    )  # fmt: skip
    model = sentence_pieces(source, "spiece.model")
    fast = Fast(models.Unigram(model.pieces, unk_id=model.unk_id, byte_fallback=False))
    steps: list[Any] = [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
        normalizers.NFKD(),
        normalizers.StripAccents(),
    ]
    if source.option("do_lower_case", False):
        steps.append(normalizers.Lowercase())
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    fast.normalizer = normalizers.Sequence(steps)
    metaspace(fast)
    add_tokens(fast, source, roles, model.added)
    cls, sep = str_of(roles["cls_token"]), str_of(roles["sep_token"])
    fast.post_processor = template(
        fast, f"$A:0 {sep}:0 {cls}:2", f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2"
    )
    return fast, roles


def llama(source: VocabFiles) -> tuple[Fast, Roles]:
    roles = source.named({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    model = sentence_pieces(source, "tokenizer.model")
    vocab = {piece: i for i, (piece, _) in enumerate(model.pieces)}
    fast = Fast(models.BPE(vocab, merges_of(vocab), fuse_unk=True, byte_fallback=True))
    prefix = source.option("add_prefix_space", True)
    scheme = "first" if prefix else "never"
    if prefix and source.option("legacy", False):
        scheme = "always"
    fast.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=SPACE, prepend_scheme=scheme, split=False
    )
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        steps.append(decoders.Strip(content=" ", left=1))
    fast.decoder = decoders.Sequence(steps)
    add_tokens(fast, source, roles, model.added)
    around(fast, source, roles)
    return fast, roles


def merges_of(vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Returns the merges of a SentencePiece BPE model, whose file lists only their results: every
    way to cut a piece into two pieces, in the order of the results; earlier halves first."""
    merges = []
    for piece, rank in vocab.items():
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        halves = [(left, right) for left, right in cuts if left in vocab and right in vocab]
        halves.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        merges += [(rank, len(left), len(right), left, right) for left, right in halves]
    merges.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in merges]


@dataclass(frozen=True)
class TokenizerClass:
    """A class of tokenizer in transformers: how it is built, and whose models have it."""

    build: Callable[[VocabFiles], tuple[Fast, Roles]]
    models: tuple[str, ...]  # their `model_type` in config.json


CLASSES = {
    "BertTokenizer": TokenizerClass(bert, ("bert",)),
    "OpenAIGPTTokenizer": TokenizerClass(gpt1, ("openai-gpt",)),
    "GPT2Tokenizer": TokenizerClass(gpt2, ("gpt2",)),
    "RobertaTokenizer": TokenizerClass(roberta, ("roberta", "longformer")),
    "LongformerTokenizer": TokenizerClass(roberta, ()),
    "T5Tokenizer": TokenizerClass(t5, ("t5",)),
    "XLNetTokenizer": TokenizerClass(xlnet, ("xlnet",)),
    "LlamaTokenizer": TokenizerClass(llama, ("llama",)),
}
MARIAN = "MarianTokenizer"  # is built by marian_tokenizer.py
READABLE = (*CLASSES, MARIAN)


def class_of(source: VocabFiles) -> str:
    """Returns the class that reads the files: the one tokenizer_config.json names, else the one
    of the model beside them, else the one whose marks the vocabulary has."""
    config = read_json(source.directory / "config.json", error=FormatError) or {}
    declared = source.options.get("tokenizer_class") or config.get("tokenizer_class")
    if declared:
        return str(declared).removesuffix("Fast")
    files, kind = source.files, config.get("model_type")
    if kind == "marian" or {"source.spm", "target.spm"} <= set(files):
        return MARIAN
    usual = [name for name, each in CLASSES.items() if kind in each.models]
    if usual:
        return usual[0]
    if "vocab.txt" in files:
        return "BertTokenizer"
    if "vocab.json" in files and "merges.txt" in files:
        vocab, _ = models.BPE.read_file(source.path("vocab.json"), source.path("merges.txt"))
        if any(piece.endswith("</w>") for piece in vocab):
            return "OpenAIGPTTokenizer"
        if {"<s>", "</s>", "<mask>"} <= set(vocab):
            return "RobertaTokenizer"
        if "<|endoftext|>" in vocab:
            return "GPT2Tokenizer"
    raise FormatError(
        "nothing says which class its files belong to; name it as tokenizer_class in "
        f"tokenizer_config.json ({', '.join(READABLE)}), or add a tokenizer.json"
    )


def from_vocab_files(source: VocabFiles, name: str) -> tuple[Fast, dict[str, bytes]]:
    """Builds a tokenizer of a class without tokenizer.json. Returns it, and its files with those
    that make it open in transformers without them."""
    if name not in CLASSES:
        raise FormatError(
            f"its class is {name}, which is read from a tokenizer.json only; the classes that are "
            f"read from their own files are {', '.join(READABLE)}"
        )
    fast, roles = CLASSES[name].build(source)
    fast.encode_special_tokens = source.option("split_special_tokens", False)
    return fast, source.files | {
        "tokenizer.json": fast.to_str(pretty=True).encode(),
        "tokenizer_config.json": declared(source, name, roles),
    }
