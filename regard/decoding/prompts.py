"""Prompts as ids, and the ids that begin a text, end it, or must never be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.core.errors import InputError
from regard.data.corpus import Special
from regard.data.special_tokens import special_of
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import Checkpoint
from regard.formats.format import generation_fields, known

Prompt = str | Sequence[int]  # a text, or its ids


class Prompts:
    """Encodes texts for one model."""

    def __init__(self, loaded: Checkpoint) -> None:
        self.model, self.config = loaded.model, loaded.model.config
        self.tokenizer = loaded.tokenizer
        self.stored = generation_fields(loaded.generation_config, loaded.source)
        self.pair = self.model.kind == "encoder-decoder"
        self.special: Special | None = None
        if self.tokenizer is not None and self.tokenizer.fast is not None:
            self.special = special_of(self.tokenizer, str(loaded.path or "this model"))

    def words(self) -> Tokenizer:
        """Returns the tokenizer, or refuses a model without one."""
        if self.tokenizer is None:
            raise InputError(
                "this model has no tokenizer; put tokenizer.json into its directory, or give ids "
                "instead of a text"
            )
        if self.tokenizer.fast is None:
            self.tokenizer.encode("")  # raises an error that names the missing file
        return self.tokenizer

    def ends(self) -> list[int]:
        """Returns the ids that end a text: those that the directory names, else the end of texts
        in training."""
        named: Any = self.stored.get("eos_token_id")
        ends = [i for i in (named if isinstance(named, list) else [named]) if self.known(i)]
        return ends or ([self.end()] if self.pair or self.special is not None else [])

    def end(self) -> int:
        """Returns the id that ends a text in training; the model has a tokenizer."""
        if self.pair:
            return int(self.config.eos_id)
        assert self.special is not None
        return self.special.end

    def suppressed(self) -> list[int]:
        """Returns the ids of padding and mask, which no text contains."""
        ids: list[Any] = [self.config.pad_id] if hasattr(self.config, "pad_id") else []
        if self.special is not None:
            ids += [self.special.pad, self.special.mask]
        return sorted({i for i in ids if self.known(i)} - set(self.ends()))

    def known(self, token: object) -> bool:
        return known(token, self.config.vocab_size)

    def check_known(self, name: str, ids: Sequence[int]) -> None:
        for token in ids:
            if not self.known(token):
                raise InputError(
                    f"{name} holds {token!r}, which is not an id of this model; ids go from 0 to "
                    f"{self.config.vocab_size - 1}"
                )

    def start(self) -> int | None:
        """Returns the token before a text's first word: as in a corpus, the end of another text."""
        first: Any = self.stored.get("bos_token_id") if self.special is None else self.end()
        return first if self.known(first) else next(iter(self.ends()), None)

    def encode(self, prompt: Prompt, truncate: bool = False) -> list[int]:
        """Returns the ids of a prompt that the model can read; a source ends with the end token."""
        ids = self.ids_of(prompt)
        limit = getattr(self.config, "context", None)
        if limit is not None and len(ids) > limit:
            if not truncate:
                raise InputError(
                    f"the prompt has {len(ids):,} tokens, and this model reads {limit:,} at once; "
                    "shorten it, or let its beginning be cut off (truncate)"
                )
            ids = ids[-limit:]
        return ids

    def ids_of(self, prompt: Prompt) -> list[int]:
        """Returns the ids of a prompt, however long it is."""
        if isinstance(prompt, str):
            ids = self.words().encode(readable(prompt), special=self.pair)
            if self.pair and ids[-1:] != [self.config.eos_id]:
                ids.append(self.config.eos_id)
        else:
            ids = list(prompt)
            if not all(isinstance(i, int) for i in ids):
                raise InputError(f"the prompt is {prompt!r}; it must be a text or a list of ids")
        if not ids:
            start = self.start()
            if start is None:
                raise InputError(
                    "the prompt is empty, and this model has no token that begins a text; give it "
                    "at least one word"
                )
            ids = [start]
        return ids


def readable(text: str) -> str:
    """Returns the text if it is valid Unicode; a command line may hold invalid bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the text is not valid Unicode at character {error.start + 1}") from None
    return text
