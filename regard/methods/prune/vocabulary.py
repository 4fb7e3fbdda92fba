"""Makes the vocabulary of a model smaller. The embeddings are often half of a small model, and a
task uses few of them.

These tokens stay: the ones that the task's text uses, every single character (so that any word can
still be spelled), and the first entries of the old vocabulary, which are the most frequent. A word
whose token is removed is read as the smaller pieces that it consists of.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Fast

from regard.core.errors import ConfigError, FormatError
from regard.core.files import parse_json
from regard.data.tokenizer import Tokenizer
from regard.formats import BESIDE, Checkpoint
from regard.formats.directory import heads_in, save

UNUSED = re.compile(r"\[unused\d+\]")
WORDS = ("embeddings.tokens.weight", "output.weight", "output.bias")  # with a row for each token
BATCH = 1000  # texts


def trim(loaded: Checkpoint, texts: Iterable[str], size: int, out: Path) -> dict[str, Any]:
    """Writes the model with a vocabulary of `size` tokens; returns the sizes before and after."""
    model, tokenizer = loaded.model, loaded.tokenizer
    if WORDS[0] not in model.state_dict() or model.extensions or tokenizer is None:
        raise ConfigError(
            f"{loaded.path} is a {model.family.name}; only a plain bert with its tokenizer can get "
            "a smaller vocabulary"
        )
    fast = tokenizer.ready
    table = json.loads(fast.to_str())
    if table["model"].get("type") not in ("WordPiece", "WordLevel"):
        raise ConfigError(
            f"the tokenizer of {loaded.path} is a {table['model'].get('type')}; only a WordPiece "
            "or WordLevel tokenizer can be made smaller"
        )
    ids = ids_to_keep(table, token_counts(fast, texts), min(size, model.config.vocab_size))
    config = model.config
    shape = config.replace(vocab_size=len(ids), pad_id=ids.index(config.pad_id))
    smaller = type(model)(shape, heads_in(model))
    rows = torch.tensor(ids)
    state = {k: v[rows] if k in WORDS else v for k, v in model.state_dict().items()}
    smaller.load_state_dict(state)
    source = {k: v for k, v in loaded.source.items() if not k.endswith("_token_id")}
    beside = [loaded.path / name for name in BESIDE] if loaded.path is not None else []
    copied = [file for file in beside if file.is_file()]
    save(smaller.eval(), out, renumbered(tokenizer, table, ids), source, copied=copied)
    before, after = model.parameter_count(), smaller.parameter_count()
    return {"words": [config.vocab_size, len(ids)], "parameters": [before, after]}


def token_counts(fast: Fast, texts: Iterable[str]) -> Counter[int]:
    """Counts how often each id occurs in the texts."""
    counts: Counter[int] = Counter()
    source = iter(texts)
    while batch := list(islice(source, BATCH)):
        for one in fast.encode_batch_fast(batch, add_special_tokens=False):
            counts.update(one.ids)
    return counts


def ids_to_keep(table: dict[str, Any], used: Counter[int], size: int) -> list[int]:
    """Returns the ids that stay, in ascending order. Special tokens and single characters come
    first, then the tokens that the texts use most, then the first of the other tokens."""
    words: dict[str, int] = table["model"]["vocab"]
    staying = {entry["id"] for entry in table["added_tokens"]}
    staying |= {words[name] for name in (table["model"].get("unk_token"),) if name in words}
    staying |= {i for word, i in words.items() if len(word.removeprefix("##")) == 1}
    if len(staying) > size:
        raise ConfigError(
            f"--vocab-size is {size:,}, and the special tokens and single characters alone are "
            f"{len(staying):,}; give a larger number"
        )
    ranked = [i for i, _ in sorted(used.items(), key=lambda pair: (-pair[1], pair[0]))]
    ranked += [i for word, i in sorted(words.items(), key=lambda p: p[1]) if not UNUSED.match(word)]
    for i in ranked:
        if len(staying) >= size:
            break
        staying.add(i)
    return sorted(staying)


def renumbered(tokenizer: Tokenizer, table: dict[str, Any], ids: list[int]) -> Tokenizer:
    """Returns the tokenizer with only the ids that stay, renumbered from 0."""
    place = {old: new for new, old in enumerate(ids)}
    table = json.loads(json.dumps(table))
    words = table["model"]["vocab"]
    table["model"]["vocab"] = {word: place[i] for word, i in words.items() if i in place}
    for entry in table["added_tokens"]:
        entry["id"] = place[entry["id"]]
    around = table.get("post_processor") or {}
    for entry in (around.get("special_tokens") or {}).values():
        entry["ids"] = [place[i] for i in entry["ids"]]
    for side in ("sep", "cls"):
        if side in around:
            around[side][1] = place[around[side][1]]
    files = {"tokenizer.json": json.dumps(table, ensure_ascii=False).encode()}
    if "tokenizer_config.json" in tokenizer.files:
        name, kinds = "tokenizer_config.json", {"added_tokens_decoder": dict[str, Any] | None}
        config = parse_json(
            tokenizer.files[name], name, error=FormatError, kinds=kinds, repeated=True
        )
        marks = config.get("added_tokens_decoder") or {}
        config["added_tokens_decoder"] = {
            str(place[int(i)]): entry for i, entry in marks.items() if int(i) in place
        }
        files["tokenizer_config.json"] = json.dumps(config, ensure_ascii=False).encode()
    if "special_tokens_map.json" in tokenizer.files:
        files["special_tokens_map.json"] = tokenizer.files["special_tokens_map.json"]
    return Tokenizer(Fast.from_str(files["tokenizer.json"].decode()), files)
