"""The tokenizer of a model directory: the fast `tokenizers` library, and the files it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.core.errors import FormatError

# Everything that may belong to a tokenizer; kept byte for byte when a model is saved again.
FILES = tuple(
    """
    tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.txt
    vocab.json merges.txt spiece.model source.spm target.spm sentencepiece.bpe.model
    chat_template.jinja
    """.split()
)
FILE_LIMIT = 2**28  # bytes


@dataclass(eq=False)  # one is equal to itself alone, so that it can be a key
class Tokenizer:
    """Text to ids and back. `fast` is None when only files of another library are there."""

    fast: Fast | None
    files: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def open(cls, directory: Path) -> Tokenizer | None:
        """The directory's tokenizer; None if it has none."""
        files = {}
        for name in FILES:
            file = directory / name
            if file.is_file():
                if file.stat().st_size > FILE_LIMIT:
                    raise FormatError(
                        f"{file} has {file.stat().st_size:,} bytes; that is no tokenizer"
                    )
                files[name] = file.read_bytes()
        if not files:
            return None
        try:
            fast = build(directory, files)
            if fast is not None:  # what a file says of padding and cutting is for its own library
                fast.no_padding()
                fast.no_truncation()
            return cls(fast, files)
        except Exception as error:
            raise FormatError(f"the tokenizer of {directory} cannot be read: {error}") from None

    @property
    def ready(self) -> Fast:
        if self.fast is None:
            raise FormatError(
                f"this tokenizer ({', '.join(self.files)}) has no tokenizer.json; "
                "open it once with transformers' AutoTokenizer and save it to get one"
            )
        return self.fast

    @cached_property
    def literal(self) -> Fast:
        """The same, for texts in which a special token that is spelled out is text."""
        copy = Fast.from_str(self.ready.to_str())
        copy.encode_special_tokens = True
        return copy

    def __len__(self) -> int:
        return 0 if self.fast is None else self.fast.get_vocab_size()

    def encode(self, text: str, pair: str | None = None, *, special: bool = True) -> list[int]:
        """Ids of a text, or of two; `special` adds what the model expects around them."""
        ids: list[int] = self.ready.encode(text, pair, add_special_tokens=special).ids
        return ids

    def decode(self, ids: list[int], *, special: bool = False) -> str:
        text: str = self.ready.decode(ids, skip_special_tokens=not special)
        return text

    def tokens(self, ids: list[int]) -> list[str]:
        return [self.ready.id_to_token(i) or "" for i in ids]

    def save(self, directory: Path) -> None:
        for name, content in self.files.items():
            (directory / name).write_bytes(content)

    def describe(self) -> dict[str, Any]:
        kind = None if self.fast is None else type(self.fast.model).__name__
        return {"kind": kind, "vocab_size": len(self), "files": list(self.files)}


def build(directory: Path, files: dict[str, bytes]) -> Fast | None:
    """tokenizer.json, or the older files of BERT and GPT-2."""
    if "tokenizer.json" in files:
        return Fast.from_str(files["tokenizer.json"].decode())
    if "vocab.txt" in files:
        return word_pieces(files["vocab.txt"].decode().splitlines())
    if "vocab.json" in files and "merges.txt" in files and "source.spm" not in files:
        model = models.BPE.from_file(str(directory / "vocab.json"), str(directory / "merges.txt"))
        fast = Fast(model)
        fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        fast.decoder = decoders.ByteLevel()
        return fast
    return None


def word_pieces(entries: list[str]) -> Fast:
    """BERT's tokenizer from its list of pieces; lower-case if the list is."""
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    lower = not any(entry.isalpha() and entry != entry.lower() for entry in entries)
    fast = Fast(models.WordPiece(vocabulary, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer(lowercase=lower)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.decoder = decoders.WordPiece()
    if "[CLS]" in vocabulary and "[SEP]" in vocabulary:
        fast.post_processor = processors.BertProcessing(
            ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
        )
    return fast
