"""The tokenizer of a model directory: the fast `tokenizers` library, and the files it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.core.errors import FormatError, InputError

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

    @cached_property
    def pad_id(self) -> int:
        """What fills a batch: the padding token, or the end token where there is none, which the
        attention mask hides.
        """
        from regard.data.special_tokens import special_of

        special = special_of(self, "this model")
        return special.end if special.pad is None else special.pad

    def __len__(self) -> int:
        return 0 if self.fast is None else self.fast.get_vocab_size()

    def __call__(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        padding: bool = False,
        truncation: bool = False,
        max_length: int | None = None,
        return_tensors: Literal["pt"] | None = None,
        add_special_tokens: bool = True,
    ) -> dict[str, Any]:
        """What a model is called with: `input_ids`, `attention_mask` and, where a text has several
        parts, `segments`. As lists, or with return_tensors="pt" as tensors [texts, tokens], which
        are padded on the right.

        >>> model(**tokenizer(["a film", "a long book"], return_tensors="pt"))
        """
        if truncation and max_length is None:
            raise InputError("truncation needs max_length; give the number of tokens")
        if return_tensors not in (None, "pt"):
            raise InputError(f"return_tensors is {return_tensors!r}; it must be 'pt', or left out")
        one = isinstance(texts, str)
        first = [texts] if isinstance(texts, str) else list(texts)
        second = [pairs] if isinstance(pairs, str) else pairs
        if second is not None and len(second) != len(first):
            raise InputError(f"{len(first):,} texts but {len(second):,} pairs; give one for each")
        inputs = first if second is None else list(zip(first, second, strict=True))
        fast = self.ready
        if truncation and max_length is not None:
            fast.enable_truncation(max_length)
        try:
            encoded = fast.encode_batch(inputs, add_special_tokens=add_special_tokens)
        finally:
            fast.no_truncation()
        columns = {
            "input_ids": [each.ids for each in encoded],
            "attention_mask": [each.attention_mask for each in encoded],
        }
        if any(any(each.type_ids) for each in encoded):
            columns["segments"] = [each.type_ids for each in encoded]
        if padding or return_tensors:
            width = max((len(each) for each in encoded), default=0)
            for name, rows in columns.items():
                fill = self.pad_id if name == "input_ids" else 0
                columns[name] = [row + [fill] * (width - len(row)) for row in rows]
        if return_tensors is None:
            return {name: rows[0] if one else rows for name, rows in columns.items()}
        import torch

        return {name: torch.tensor(rows, dtype=torch.long) for name, rows in columns.items()}

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
