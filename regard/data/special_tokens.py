"""The special tokens: how each kind of tokenizer spells them, and how they are found in one."""

from __future__ import annotations

import json
import re
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Fast

from regard.core.errors import FormatError, InputError
from regard.core.files import parse_json
from regard.data.corpus import ROLES, Special
from regard.data.tokenizer import Tokenizer

SENTINEL = re.compile(r"<extra_id_(\d+)>")

# In the order of ROLES: end, pad, unknown, start, cls, sep, mask.
BYTES = "<|endoftext|> <|pad|> <|unknown|> <|startoftext|> <|cls|> <|sep|> <|mask|>"
PLAIN = "<eos> <pad> <unk> <bos> <cls> <sep> <mask>"
SPELLINGS = {
    kind: dict(zip(ROLES, words.split(), strict=True))
    for kind, words in {
        "bytes-bpe": BYTES,
        "gpt2-bpe": BYTES,
        "bpe": "<eos> <pad> <unk> _start_ _classify_ _delimiter_ <mask>",
        "wordpiece": "[EOS] [PAD] [UNK] [BOS] [CLS] [SEP] [MASK]",
        "unigram": "</s> <pad> <unk> <s> <cls> <sep> <mask>",
        "words": PLAIN,
        "characters": PLAIN,
        "bytes": PLAIN,
    }.items()
}
KEYS = {"end": "eos", "pad": "pad", "unknown": "unk", "start": "bos", "cls": "cls", "sep": "sep",
        "mask": "mask"}  # fmt: skip


def sentinels(count: int) -> list[str]:
    """Returns T5's sentinel tokens, which stand for masked spans."""
    return [f"<extra_id_{i}>" for i in range(count)]


def add_roles(fast: Fast, kind: str, count: int) -> None:
    """Adds the special tokens; those that the vocabulary already holds keep their ids."""
    spelled = [*SPELLINGS[kind].values(), *sentinels(count)]
    fast.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in spelled])


def configuration(kind: str, count: int) -> dict[str, Any]:
    """Returns tokenizer_config.json, by which transformers' AutoTokenizer opens tokenizer.json."""
    spelled = SPELLINGS[kind]
    # Without the names transformers leaves the segments of two texts out.
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({"model_input_names": names} if kind == "wordpiece" else {}),
        "clean_up_tokenization_spaces": False,
        **{f"{KEYS[role]}_token": spelled[role] for role in ROLES},
        "additional_special_tokens": sentinels(count),
    }


def completed(tokenizer: Tokenizer, special: Special) -> Tokenizer:
    """Returns the tokenizer with the two files AutoTokenizer needs, if it has only older ones, and
    with its special tokens declared."""
    fast = tokenizer.ready
    if tokenizer.target_side is not None:  # no tokenizer.json can express two languages
        return tokenizer
    spelled = {KEYS[role]: getattr(special, role) for role in ROLES}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{name}_token": fast.id_to_token(i) for name, i in spelled.items() if i is not None},
    }
    files = {"tokenizer.json": fast.to_str(pretty=True).encode()} | tokenizer.files
    name = "tokenizer_config.json"
    before = parse_json(files[name], name) if name in files else {}
    if "eos_token" not in before:
        files[name] = json.dumps(config | before, indent=2).encode()
    return Tokenizer(fast, files)


TOKEN_KINDS: dict[str, Any] = {
    f"{name}_token": str | dict[str, Any] | None for name in KEYS.values()
}


def special_of(tokenizer: Tokenizer, name: str) -> Special:
    """Returns the special tokens of a tokenizer: those its files declare, else common spellings."""
    fast = tokenizer.ready
    declared: dict[str, Any] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        if file in tokenizer.files:
            declared.update(
                parse_json(
                    tokenizer.files[file], f"{file} of {name}", error=FormatError,
                    advice="restore it", kinds=TOKEN_KINDS, repeated=True,
                )
            )  # fmt: skip
    ids: dict[str, int | None] = {}
    for role in ROLES:
        word = declared.get(f"{KEYS[role]}_token")
        usual = [SPELLINGS[kind][role] for kind in SPELLINGS]
        words = [word.get("content") if isinstance(word, dict) else word, *usual]
        known = (fast.token_to_id(w) for w in words if isinstance(w, str))
        ids[role] = next((i for i in known if i is not None), None)
    end = next((ids[role] for role in ("end", "sep", "start") if ids[role] is not None), None)
    if end is None:
        raise InputError(
            f"the tokenizer of {name} has no token that can end a document (eos or sep); declare "
            "one as eos_token in its tokenizer_config.json"
        )
    others = {role: ids[role] for role in ROLES if role != "end"}
    marks: list[int] = []  # asked for one by one: the words of a vocabulary are many
    while (mark := fast.token_to_id(f"<extra_id_{len(marks)}>")) is not None:
        marks.append(mark)
    return Special(end, **others, sentinels=marks)
