"""Adds the tokens that a task needs and a tokenizer lacks, and rows for them in a model. GPT-1
appends its start, delimiter and extract tokens after the vocabulary (Radford et al. 2018, 4.1)."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Fast

from regard.core.errors import ConfigError, FormatError, InputError
from regard.core.files import parse_json
from regard.data.corpus import Special
from regard.data.special_tokens import KEYS, SPELLINGS, completed, special_of
from regard.data.tokenizer import Tokenizer
from regard.models import FAMILIES
from regard.tasks import task as find


def marked(
    tokenizer: Tokenizer, family: str, task: str, marks: bool, name: str = "the model"
) -> Tokenizer:
    """Returns the tokenizer with the tokens that a family's model needs for a task. It returns the
    same tokenizer if that has them all.

    `marks` are the special tokens around the texts, which a task may do without. A token that ends
    a text is always needed: the published GPT-1 has none.
    """
    roles = FAMILIES[family].task_tokens if family else ()
    if not roles:
        return tokenizer
    if marks and find(task).between_marks:
        return extended(tokenizer, name, roles)
    return tokenizer if roles_of(tokenizer, name) else extended(tokenizer, name, ("end",))


def extended(tokenizer: Tokenizer, name: str, roles: tuple[str, ...]) -> Tokenizer:
    """Returns the tokenizer with a token for each of the roles. It returns the same tokenizer if
    that has them all. The tokenizer's files are updated, for this library and for transformers."""
    special, spelling = roles_of(tokenizer, name), spelled(tokenizer.ready)
    words = {role: spelling[role] for role in roles if getattr(special, role, None) is None}
    if not words:
        return tokenizer
    fast = Fast.from_str(tokenizer.ready.to_str())
    tokens = [AddedToken(word, special=True, normalized=False) for word in words.values()]
    fast.add_special_tokens(tokens)
    files = tokenizer.files | {"tokenizer.json": fast.to_str(pretty=True).encode()}
    declared = {f"{KEYS[role]}_token": word for role, word in words.items()}
    numbers = fast.get_vocab()
    numbered = {word: numbers[word] for word in words.values()}
    for file, more in (
        ("tokenizer_config.json", declared),
        ("special_tokens_map.json", declared),
        ("added_tokens.json", numbered),
    ):
        if file in files:
            files[file] = amended(files[file], file, more, numbered)
    longer = Tokenizer(fast, files)
    return completed(longer, special_of(longer, name))


def roles_of(tokenizer: Tokenizer, name: str) -> Special | None:
    """Returns the special tokens. Returns None for a tokenizer without a token that ends a text,
    like that of the published GPT-1."""
    try:
        return special_of(tokenizer, name)
    except InputError:
        return None


def spelled(fast: Fast) -> dict[str, str]:
    """Returns how a tokenizer of this kind spells each role."""
    kind = type(fast.model).__name__
    if kind == "BPE":
        return SPELLINGS["bpe" if fast.model.end_of_word_suffix else "bytes-bpe"]
    return SPELLINGS[{"WordPiece": "wordpiece", "Unigram": "unigram"}.get(kind, "words")]


def amended(file: bytes, name: str, more: dict[str, Any], numbered: dict[str, int]) -> bytes:
    """Returns a JSON file of a tokenizer with new entries."""
    kinds = {"added_tokens_decoder": dict[str, Any] | None}
    table = parse_json(file, name, error=FormatError, kinds=kinds, repeated=True) | more
    if table.get("added_tokens_decoder") is not None:
        entry = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                 "special": True}  # fmt: skip
        new = {str(i): {"content": word, **entry} for word, i in numbered.items()}
        table["added_tokens_decoder"] = table["added_tokens_decoder"] | new
    return json.dumps(table, indent=2, ensure_ascii=False).encode()


def grown(model: Any, vocab_size: int) -> Any:
    """Grows the vocabulary of the model. New embeddings are initialized as the first ones were."""
    if vocab_size <= model.config.vocab_size:
        return model
    for name in model.extensions:
        from regard.models.extensions import extension

        if not extension(name).grows:
            raise ConfigError(
                f"this task adds tokens to the vocabulary, whose embeddings would never learn with "
                f"{name}; set objective.marks=false, which reads texts without these tokens"
            )
    model.grow_vocabulary(vocab_size)
    return model
