"""Encodes many sentences as one text and splits the ids again, since each call has a fixed cost.

This works only for byte-level tokenizers with GPT-2's split rule (ours and its own). That rule
splits where white space begins, and where a punctuation mark meets a letter or a number; it never
looks back. So at such a place two sentences have the same ids together as one after the other, and
the number of bytes of each token says where a sentence ends.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Fast
from tokenizers import models

from regard.data.sample import size
from regard.data.sentences import FULL, STOP
from regard.data.vocabulary import byte_level

LONGEST = 4096  # characters of a joined text
MARKS = frozenset(STOP + FULL + '"”’»)]」』）】》〉')  # without ', which may begin a contraction
SPACES = frozenset(" \n\r\t")  # white space for every library
NEVER = 2**40  # the width in bytes of a token that no text contains


class Joiner:
    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.width = np.full(max(vocabulary.values()) + 1, NEVER)
        for token, i in vocabulary.items():
            self.width[i] = len(token)  # in a byte-level vocabulary a letter stands for a byte

    @classmethod
    def of(cls, fast: Fast) -> Joiner | None:
        """Returns a Joiner, or None if this tokenizer splits text by another rule."""
        known: dict[str, Any] = json.loads(fast.to_str())
        ours = json.loads(byte_level(models.BPE(), lower=False).to_str())["pre_tokenizer"]
        rule = known["pre_tokenizer"] or {}
        theirs = (
            rule.get("type") == "ByteLevel"
            and not rule.get("add_prefix_space", True)
            and rule.get("use_regex", True)
        )
        fits = (
            known["normalizer"] is None
            and known["model"]["type"] == "BPE"
            and (rule == ours or theirs)
            and all(token["special"] for token in known["added_tokens"])
        )
        return cls(fast.get_vocab(with_added_tokens=False)) if fits else None

    def join(self, sentences: list[str]) -> list[str]:
        """Returns fewer and longer texts that have the same ids."""
        joined: list[str] = []
        group: list[str] = []
        length, last = 0, ""
        for text in sentences:
            first = text[:1]
            if first in SPACES:
                apart = not last.isspace()
            else:
                apart = last in MARKS and first.isalnum()
            if group and (not apart or length > LONGEST):
                joined.append("".join(group))
                group, length = [], 0
            group.append(text)
            length += len(text)
            last = text[-1:]
        joined.append("".join(group))
        return joined

    def lengths(self, ids: np.ndarray, sentences: list[str]) -> np.ndarray | None:
        """Returns the number of tokens of each sentence, or None if one ends inside a token."""
        ends = np.cumsum(self.width[ids])
        wanted = np.cumsum([size(text) for text in sentences])
        counts = np.searchsorted(ends, wanted, "right")
        reached = np.concatenate([[0], ends])[counts]
        return np.diff(counts, prepend=0) if (reached == wanted).all() else None
