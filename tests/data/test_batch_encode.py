"""Sentences encoded together have the ids that they have alone."""

from __future__ import annotations

import json
from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Fast
from tokenizers import models, pre_tokenizers

from regard.data.batch_encode import Joiner
from regard.data.sentences import sentences
from regard.data.vocabulary import byte_letters, byte_level, train

from .conftest import CHINESE, ENGLISH

TRAINED = train("bytes-bpe", ENGLISH + CHINESE, vocab_size=None, lower=None, marks=0).ready
JOINER = Joiner.of(TRAINED)
LETTERS = "aBs1 \n\t.!?…\"'”)。！他た\x1c\x85²é\u0301-"


@settings(max_examples=400)
@given(st.text(st.sampled_from(LETTERS), max_size=60), st.lists(st.sampled_from(ENGLISH + CHINESE)))
@example("He said 'no.' s is. 's", [])
@example("a.\x1cB. \x85 c", [])
def test_together_as_alone(text: str, more: list[str]) -> None:
    parts = [*sentences(text), *chain.from_iterable(map(sentences, more)), ""]
    alone = [TRAINED.encode(part, add_special_tokens=False).ids for part in parts]
    assert JOINER is not None
    joined = JOINER.join(parts)
    assert "".join(joined) == "".join(parts)
    together = [TRAINED.encode(part, add_special_tokens=False).ids for part in joined]
    ids = np.array(list(chain.from_iterable(together)), int)
    assert ids.tolist() == list(chain.from_iterable(alone))
    lengths = JOINER.lengths(ids, parts)
    assert lengths is not None
    assert lengths.tolist() == [len(part) for part in alone]


def test_it_joins() -> None:
    parts = sentences(" ".join(ENGLISH)) + sentences("".join(CHINESE))
    assert JOINER is not None
    assert len(JOINER.join(parts)) < len(parts) / 8


def test_an_end_inside_of_a_token_is_noticed() -> None:
    assert JOINER is not None
    ids = np.array(TRAINED.encode(" street", add_special_tokens=False).ids)
    assert JOINER.lengths(ids, [" st", "reet"]) is None
    assert JOINER.lengths(ids, [" street", "?"]) is None


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "words", "characters"])
def test_only_byte_level_ones(kind: str) -> None:
    assert Joiner.of(train(kind, ENGLISH, vocab_size=None, lower=None, marks=0).ready) is None


def test_other_rules_are_refused() -> None:
    model = models.BPE(vocab={letter: i for i, letter in enumerate(byte_letters())}, merges=[])
    plain = byte_level(model, lower=False)
    assert Joiner.of(plain) is not None
    assert Joiner.of(byte_level(model, lower=True)) is None
    state = json.loads(plain.to_str())
    for prefix, regex, fits in ((False, True, True), (True, True, False), (False, False, False)):
        rule = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
        state["pre_tokenizer"] = json.loads(rule.__getstate__())
        assert (Joiner.of(Fast.from_str(json.dumps(state))) is not None) == fits
    plain.add_tokens(["cat"])
    assert Joiner.of(plain) is None
