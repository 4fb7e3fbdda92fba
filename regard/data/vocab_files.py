"""The tokenizer files of directories that have no `tokenizer.json`, and their special tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Fast

from regard.core.errors import FormatError
from regard.core.files import parse_json

# The order in which transformers adds special tokens that the vocabulary lacks.
NAMED = tuple(f"{name}_token" for name in "bos eos unk sep pad cls mask".split())
Roles = dict[str, str | AddedToken]  # special tokens by name


@dataclass(frozen=True)
class VocabFiles:
    """The tokenizer files of a directory, and what its JSON files say about them."""

    directory: Path
    files: dict[str, bytes]
    options: dict[str, Any]  # tokenizer_config.json, and special_tokens_map.json beside it
    added: dict[int, AddedToken]  # tokens that were added to the vocabulary, by id

    @classmethod
    def read(cls, directory: Path, files: dict[str, bytes]) -> VocabFiles:
        """Reads the JSON files. `added_tokens_decoder` of newer directories says everything that
        special_tokens_map.json and added_tokens.json say in older ones."""
        options = json_of(files, "tokenizer_config.json")
        if "added_tokens_decoder" in options:
            table = options["added_tokens_decoder"]
            return cls(
                directory, files, options, {int(i): added_token(t) for i, t in table.items()}
            )
        options |= json_of(files, "special_tokens_map.json")
        special = {spelling(options[name]) for name in NAMED if options.get(name)}
        special |= {spelling(token) for token in extra_tokens(options)}
        added = {
            int(i): AddedToken(text, normalized=text not in special, special=text in special)
            for text, i in json_of(files, "added_tokens.json").items()
        }
        return cls(directory, files, options, added)

    def option(self, name: str, usual: bool) -> bool:
        value = self.options.get(name)
        if value is not None and not isinstance(value, bool):
            raise FormatError(
                f"tokenizer_config.json: {name} is {value!r}; it must be true or false"
            )
        return usual if value is None else value

    def path(self, name: str) -> str:
        if name not in self.files:
            raise FormatError(f"{name} is missing; this class of tokenizer is read from it")
        return str(self.directory / name)

    def named(self, usual: Roles) -> Roles:
        """Returns the special tokens by their names: those of the class, or what the files say."""
        roles = dict(usual)
        for name in NAMED:
            token = self.options.get(name)
            if token is not None:
                roles[name] = added_token(token) if isinstance(token, dict) else str(token)
        by_text = {token.content: token for token in self.added.values()}
        return {
            name: by_text.get(str_of(roles[name]), roles[name]) for name in NAMED if name in roles
        }


def json_of(files: dict[str, bytes], name: str) -> dict[str, Any]:
    return parse_json(files[name], name, error=FormatError) if name in files else {}


def spelling(token: object) -> str:
    return str(token.get("content") if isinstance(token, dict) else token)


def str_of(token: str | AddedToken) -> str:
    return token.content if isinstance(token, AddedToken) else token


def added_token(token: object) -> AddedToken:
    """Builds a token from the dictionary that a JSON file holds for it."""
    if not isinstance(token, dict) or not isinstance(token.get("content"), str):
        raise FormatError(f"an added token is {token!r}; it must be an object with its content")
    flags = {k: bool(token[k]) for k in ("single_word", "lstrip", "rstrip") if k in token}
    special = bool(token.get("special", True))
    return AddedToken(
        token["content"],
        normalized=bool(token.get("normalized", not special)),
        special=special,
        **flags,
    )


def extra_tokens(options: dict[str, Any]) -> list[Any]:
    extra = options.get("extra_special_tokens") or options.get("additional_special_tokens") or []
    return list(extra.values()) if isinstance(extra, dict) else list(extra)


def add_tokens(fast: Fast, source: VocabFiles, roles: Roles, extra: list[Any]) -> None:
    """Adds the tokens that the files declare and the special ones. Tokens of the vocabulary keep
    their ids; new ones get the next ids, which must be the declared ones."""
    added = [token for _, token in sorted(source.added.items())]
    declared = {token.content for token in added}
    others = [added_token(token) if isinstance(token, dict) else token for token in extra]
    for token in [*roles.values(), *others]:
        if str_of(token) not in declared:
            added.append(AddedToken(token, special=True) if isinstance(token, str) else token)
    named = {str_of(token) for token in roles.values()}
    for token in added:
        token.special = token.special or token.content in named
    words = {i: word for word, i in fast.get_vocab().items()}
    fast.add_tokens(added)
    for token in added:
        number = id_of(fast, token.content)
        if words.get(number, token.content) != token.content:
            raise FormatError(
                f"{token.content!r} would get the id {number}, which {words[number]!r} has: "
                "the vocabulary holds a line twice; add a tokenizer.json"
            )
    for number, token in source.added.items():
        if fast.token_to_id(token.content) != number:
            raise FormatError(
                f"{token.content!r} has the id {number} in the added tokens, but its place in the "
                f"vocabulary is {fast.token_to_id(token.content)}"
            )


def id_of(fast: Fast, token: str) -> int:
    """Returns the id of a token that the vocabulary must have."""
    number = fast.token_to_id(token)
    if number is None:
        raise FormatError(f"the vocabulary has no {token!r}, which this class puts around a text")
    return number


def template(fast: Fast, single: str, pair: str) -> processors.TemplateProcessing:
    """Builds the rule for special tokens around a text, from words such as "[CLS]:0 $A:0"."""
    words = {word.rsplit(":", 1)[0] for word in f"{single} {pair}".split()} - {"$A", "$B"}
    ids = [(word, id_of(fast, word)) for word in sorted(words)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)


def around(fast: Fast, source: VocabFiles, roles: Roles) -> None:
    """Puts bos before and eos behind a text where tokenizer_config.json asks for it."""
    parts = []
    for i, letter in enumerate("AB"):
        words = [f"${letter}"]
        if source.option("add_bos_token", False):
            words.insert(0, str_of(roles["bos_token"]))
        if source.option("add_eos_token", False):
            words.append(str_of(roles["eos_token"]))
        parts.append(" ".join(f"{word}:{i}" for word in words))
    fast.post_processor = template(fast, parts[0], " ".join(parts))


def declared(source: VocabFiles, name: str, roles: Roles) -> bytes:
    """Returns tokenizer_config.json with the class and the special tokens, which the older files
    leave to whoever reads them."""
    config = json_of(source.files, "tokenizer_config.json")
    usual = {role: str_of(token) for role, token in roles.items() if role not in source.options}
    complete = {"tokenizer_class": name} | usual | config
    if complete == config:
        return source.files["tokenizer_config.json"]
    return (json.dumps(complete, indent=2, ensure_ascii=False) + "\n").encode()
