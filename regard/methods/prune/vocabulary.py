"""A model with fewer words: of a small model the vocabulary is often half, and a task uses little
of it.

What stays is what the task's text uses, every single character (so that any word can still be
spelled), and the first entries of the old vocabulary, which are the most frequent. A word that goes
is read as the smaller pieces it is made of.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Fast

from regard.core.errors import ConfigError
from regard.data.tokenizer import Tokenizer
from regard.formats import BESIDE, Checkpoint
from regard.formats.directory import heads_in, save

UNUSED = re.compile(r"\[unused\d+\]")
WORDS = ("embeddings.tokens.weight", "output.weight", "output.bias")  # with a row for each word
BATCH = 1000  # texts


def trim(loaded: Checkpoint, texts: Iterable[str], size: int, out: Path) -> dict[str, Any]:
    """Writes the model with `size` words; gives how large it was and is."""
    model, tokenizer = loaded.model, loaded.tokenizer
    if WORDS[0] not in model.state_dict() or model.extensions or tokenizer is None:
        raise ConfigError(
            f"{loaded.path} is a {model.family.name}; the vocabulary of a plain bert with its "
            "tokenizer can be made smaller"
        )
    fast = tokenizer.ready
    table = json.loads(fast.to_str())
    if table["model"].get("type") not in ("WordPiece", "WordLevel"):
        raise ConfigError(
            f"the tokenizer of {loaded.path} is a {table['model'].get('type')}; only one of word "
            "pieces can be made smaller"
        )
    ids = chosen(table, counted(fast, texts), min(size, model.config.vocab_size))
    config = model.config
    shape = config.replace(vocab_size=len(ids), pad_id=ids.index(config.pad_id))
    smaller = type(model)(shape, heads_in(model))
    rows = torch.tensor(ids)
    state = {k: v[rows] if k in WORDS else v for k, v in model.state_dict().items()}
    smaller.load_state_dict(state)
    source = {k: v for k, v in loaded.source.items() if not k.endswith("_token_id")}
    out.mkdir(parents=True, exist_ok=True)
    for name in BESIDE:
        if loaded.path is not None and (loaded.path / name).is_file():
            shutil.copyfile(loaded.path / name, out / name)
    save(smaller.eval(), out, renumbered(tokenizer, table, ids), source)  # config.json comes last
    before, after = model.parameter_count(), smaller.parameter_count()
    return {"words": [config.vocab_size, len(ids)], "parameters": [before, after]}


def counted(fast: Fast, texts: Iterable[str]) -> Counter[int]:
    """How often each id occurs."""
    counts: Counter[int] = Counter()
    source = iter(texts)
    while batch := list(islice(source, BATCH)):
        for one in fast.encode_batch_fast(batch, add_special_tokens=False):
            counts.update(one.ids)
    return counts


def chosen(table: dict[str, Any], used: Counter[int], size: int) -> list[int]:
    """The ids that stay, in their order: marks and characters, then what is used, then the first
    others.
    """
    words: dict[str, int] = table["model"]["vocab"]
    staying = {entry["id"] for entry in table["added_tokens"]}
    staying |= {words[name] for name in (table["model"].get("unk_token"),) if name in words}
    staying |= {i for word, i in words.items() if len(word.removeprefix("##")) == 1}
    if len(staying) > size:
        raise ConfigError(
            f"{size:,} words are asked for, and the marks and characters alone are "
            f"{len(staying):,}; choose more"
        )
    ranked = [i for i, _ in sorted(used.items(), key=lambda pair: (-pair[1], pair[0]))]
    ranked += [i for word, i in sorted(words.items(), key=lambda p: p[1]) if not UNUSED.match(word)]
    for i in ranked:
        if len(staying) >= size:
            break
        staying.add(i)
    return sorted(staying)


def renumbered(tokenizer: Tokenizer, table: dict[str, Any], ids: list[int]) -> Tokenizer:
    """The tokenizer with the ids that stay, counted anew from 0."""
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
        config = json.loads(tokenizer.files["tokenizer_config.json"])
        marks = config.get("added_tokens_decoder") or {}
        config["added_tokens_decoder"] = {
            str(place[int(i)]): entry for i, entry in marks.items() if int(i) in place
        }
        files["tokenizer_config.json"] = json.dumps(config, ensure_ascii=False).encode()
    if "special_tokens_map.json" in tokenizer.files:
        files["special_tokens_map.json"] = tokenizer.files["special_tokens_map.json"]
    return Tokenizer(Fast.from_str(files["tokenizer.json"].decode()), files)
