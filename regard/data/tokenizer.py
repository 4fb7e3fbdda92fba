"""The tokenizer of a model directory: the fast `tokenizers` library, and the files it came from."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer as Fast

from regard.core.errors import FormatError, InputError, RegardError
from regard.core.files import parse_json, write_bytes

# All files of tokenizers; they are copied byte for byte when a model is saved again.
FILES = tuple(
    """
    tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.txt
    vocab.json merges.txt spiece.model tokenizer.model source.spm target.spm target_vocab.json
    sentencepiece.bpe.model chat_template.jinja
    """.split()
)
FILE_LIMIT = 2**28  # bytes in a file
# transformers decodes with these replacements, in this order, where a directory asks for it.
CLEAN_UP = {f" {mark}": mark for mark in ".?!,"} | {
    " ' ": "'", " n't": "n't", " 'm": "'m", " 's": "'s", " 've": "'ve", " 're": "'re"
}  # fmt: skip


@dataclass(eq=False)  # compared by identity, so that it can be a key
class Tokenizer:
    """Turns text into ids and back.

    `fast` is None where the files cannot be read exactly, and `reason` says why: the model still
    opens, and takes ids. `target_side` encodes the target language where it has its own pieces.
    """

    fast: Fast | None
    files: dict[str, bytes] = field(default_factory=dict)
    target_side: Fast | None = None
    reason: str = ""
    truncating: tuple[int, Fast] | None = field(default=None, init=False, repr=False)

    @classmethod
    def open(cls, directory: Path) -> Tokenizer | None:
        """Returns the directory's tokenizer, or None if it has none."""
        files = {}
        for name in FILES:
            file = directory / name
            if file.is_file():
                if file.stat().st_size > FILE_LIMIT:
                    raise FormatError(
                        f"{file} has {file.stat().st_size:,} bytes, too many for a tokenizer; "
                        f"remove it, or give a file of at most {FILE_LIMIT:,} bytes"
                    )
                files[name] = file.read_bytes()
        if not files:
            return None
        try:
            return cls.build(directory, files)
        except Exception as error:
            raise FormatError(f"the tokenizer of {directory} cannot be read: {error}") from None

    @classmethod
    def build(cls, directory: Path, files: dict[str, bytes]) -> Tokenizer:
        """Builds it from tokenizer.json, or from the older files of its class."""
        target = None
        if "tokenizer.json" in files:
            fast = Fast.from_str(files["tokenizer.json"].decode())
        else:
            from regard.data.marian_tokenizer import from_older_files

            try:
                fast, target, files = from_older_files(directory, files)
            except FormatError as error:
                return cls(None, files, reason=f"the tokenizer of {directory}: {error}")
        fast.no_padding()  # the padding and truncation of a file are for its own library
        fast.no_truncation()
        return cls(fast, files, target)

    @property
    def ready(self) -> Fast:
        if self.fast is None:
            raise FormatError(self.reason)
        return self.fast

    @cached_property
    def target(self) -> Tokenizer:
        """Returns the tokenizer of the target language; for most models it is this one."""
        return self if self.target_side is None else Tokenizer(self.target_side, self.files)

    @cached_property
    def literal(self) -> Fast:
        """Returns a copy for texts in which a special token that is spelled out is text."""
        other = copy(self.ready)
        other.encode_special_tokens = True
        return other

    @cached_property
    def cleans_up(self) -> bool:
        """Returns whether decoding removes spaces before punctuation, as older directories ask."""
        name = "tokenizer_config.json"
        options = parse_json(self.files[name], name) if name in self.files else {}
        wanted = options.get("clean_up_tokenization_spaces") is True
        return wanted and type(self.ready.model).__name__ != "BPE"

    def cutting(self, max_length: int) -> Fast:
        """Returns a copy that truncates, made once for a length: threads share the original."""
        known = self.truncating
        if known is None or known[0] != max_length:
            fast = copy(self.ready)
            fast.enable_truncation(max_length)
            known = self.truncating = max_length, fast
        return known[1]

    @cached_property
    def pad_id(self) -> int:
        """The id that fills a batch: the padding token or, if there is none, the end token, which
        the attention mask hides."""
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
        """Returns the inputs of a model: `input_ids`, `attention_mask` and, if a text has several
        parts, `segments`. They are lists or, with return_tensors="pt", tensors [texts, tokens]
        padded on the right.

        >>> model(**tokenizer(["a film", "a long book"], return_tensors="pt"))
        """
        if truncation and max_length is None:
            raise InputError("truncation needs max_length; give the largest number of tokens")
        if return_tensors not in (None, "pt"):
            raise InputError(f"return_tensors is {return_tensors!r}; it must be 'pt', or left out")
        one = isinstance(texts, str)
        first = [texts] if isinstance(texts, str) else list(texts)
        second = [pairs] if isinstance(pairs, str) else pairs
        if second is not None and len(second) != len(first):
            raise InputError(
                f"there are {len(first):,} texts but {len(second):,} pairs; give one for each text"
            )
        inputs = first if second is None else list(zip(first, second, strict=True))
        fast = self.ready if not truncation or max_length is None else self.cutting(max_length)
        encoded = fast.encode_batch(inputs, add_special_tokens=add_special_tokens)
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
        """Returns the ids of one or two texts; `special` adds the model's special tokens."""
        try:
            ids: list[int] = self.ready.encode(text, pair, add_special_tokens=special).ids
        except RegardError:
            raise
        except Exception as error:  # the library has no class of its own for its errors
            raise InputError(f"the tokenizer cannot encode this text: {error}") from None
        return ids

    def decode(self, ids: list[int], *, special: bool = False) -> str:
        text: str = self.ready.decode(ids, skip_special_tokens=not special)
        for before, after in CLEAN_UP.items() if self.cleans_up else ():
            text = text.replace(before, after)
        return text

    def tokens(self, ids: list[int]) -> list[str]:
        return [self.ready.id_to_token(i) or "" for i in ids]

    def save(self, directory: Path) -> None:
        for name, content in self.files.items():
            write_bytes(directory / name, content)

    def describe(self) -> dict[str, Any]:
        kind = None if self.fast is None else type(self.fast.model).__name__
        facts = {"kind": kind, "vocab_size": len(self), "files": list(self.files)}
        return facts if self.fast is not None else facts | {"reason": self.reason}
