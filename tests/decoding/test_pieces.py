"""Text as it grows: whole characters, the same text as at once, stop words across tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError
from regard.decoding import generate, stream
from regard.decoding.generation import Generation
from regard.decoding.pieces import WINDOW, StopWords, TextStreamer, TokenStream
from tests.decoding.small import SHORT, TEXT, model_of, talking, tokenizer
from tests.laws.zoo import few

KINDS = ("bytes-bpe", "bytes", "bpe", "wordpiece", "unigram", "words", "characters")
HARD = "👩‍👩‍👧‍👦 naïve 猫坐在垫子上，🇨🇳! The cat's mat 🤖 🦜鳥"


def grown(kind: str, before: list[int], ids: list[int]) -> list[str]:
    pieces = TokenStream(tokenizer(kind), before)
    return [*(pieces.add(i) for i in ids), pieces.finish()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [HARD, *TEXT[:3], HARD * 6])
def test_pieces_make_the_text(kind: str, text: str) -> None:
    """Wherever the text is cut into what was there before and what is new."""
    words = tokenizer(kind)
    ids = words.encode(text, special=False)
    whole = words.decode(ids)
    for cut in {0, 1, len(ids) // 2, len(ids) - 1}:
        first = words.decode(ids[:cut]) if cut else ""
        if not whole.startswith(first):
            continue  # the cut is inside a character
        assert first + "".join(grown(kind, ids[:cut], ids[cut:])) == whole


@pytest.mark.parametrize("kind", ["bytes-bpe", "bytes"])
def test_never_half_a_character(kind: str) -> None:
    ids = tokenizer(kind).encode(HARD, special=False)
    pieces = grown(kind, [], ids)
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == HARD
    assert "" in pieces  # something had to wait


@few(60)
@given(st.lists(st.integers(0, 255), max_size=3 * WINDOW))
def test_any_bytes_are_said_as_at_once(ids: list[int]) -> None:
    """Also those that are no text: what is broken is shown when nothing can mend it."""
    assert "".join(grown("bytes", [], ids)) == tokenizer("bytes").decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_stay_short(kind: str) -> None:
    words = tokenizer(kind)
    ids = words.encode(TEXT[0] * 20, special=False)
    pieces = TokenStream(words)
    for token in ids:
        pieces.add(token)
        assert len(pieces.window) <= 2 * WINDOW


def test_a_continuation_keeps_its_space() -> None:
    for kind, new in (("unigram", " cat"), ("wordpiece", " cat"), ("bytes-bpe", " cat")):
        words = tokenizer(kind)
        before, whole = (words.encode(t, special=False) for t in ("The", "The cat"))
        assert whole[: len(before)] == before
        assert "".join(grown(kind, before, whole[len(before) :])) == new


@few(100)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
       st.lists(st.integers(1, 3), min_size=12, max_size=12))  # fmt: skip
def test_stop_words_wherever_the_text_is_cut(text: str, words: list[str], cuts: list[int]) -> None:
    stops, said, at = StopWords(words), "", 0
    for size in cuts:
        if stops.over or at >= len(text):
            break
        said += stops.add(text[at : at + size])
        at += size
    said += "" if stops.over else stops.finish()
    seen = text[:at]
    ends = [seen.find(word) for word in words if word in seen]
    assert stops.over == bool(ends)
    assert said == (seen[: min(ends)] if ends else text)


def test_streaming_is_not_streaming() -> None:
    for kind in ("bytes-bpe", "unigram", "wordpiece", "characters"):
        loaded = talking(kind)
        for options in ({}, {"temperature": 1.3, "seed": 2}, {"top_k": 20, "stop": ["a", "猫"]}):
            expected = generate(loaded, "The cat", max_new_tokens=60, first=4, **options)[0][0]
            pieces = []
            steps = stream(loaded, "The cat", max_new_tokens=60, first=4, **options)
            while True:
                try:
                    pieces.append(next(steps))
                except StopIteration as end:
                    found: Generation = end.value
                    break
            assert found == expected
            assert "".join(pieces) == expected.text
            assert all(pieces)


def test_between_two_pieces_others_may_learn() -> None:
    """A stream leaves no mode behind while its consumer works."""
    steps = stream(talking(), "The", max_new_tokens=20, temperature=1.0, precision="bf16")
    next(steps)
    assert not torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu")


def test_stop_words_end_a_text() -> None:
    """Of several tokens, in samples and in beams; the text ends before, the ids behind them."""
    loaded = talking("characters", seed=1)
    free = generate(loaded, "The", max_new_tokens=40, temperature=1.5, num_samples=4, eos_ids=[])[0]
    for options in (
        {"temperature": 1.5, "num_samples": 4},
        {"num_beams": 3, "num_return_sequences": 3},
    ):
        plain = generate(loaded, "The", max_new_tokens=40, eos_ids=[], **options)[0]
        text = plain[0].text
        assert text is not None and len(free) == 4
        word = text[5:8]
        found = generate(loaded, "The", max_new_tokens=40, eos_ids=[], stop=[word], **options)[0]
        for each in found:
            assert each.text is not None and word not in each.text
            if each.reason == "stop":
                whole = loaded.tokenizer.decode(each.ids)  # type: ignore[union-attr]
                assert whole.endswith(word) and whole == each.text + word
        assert any(each.reason == "stop" for each in found)


def test_stop_words_must_be_words() -> None:
    with pytest.raises(ConfigError, match="stop word is empty"):
        generate(talking(), "The", stop=[""])
    with pytest.raises(InputError, match="no tokenizer"):
        generate(LoadedModel(model_of(SHORT)), [1], stop=["a"])
    assert generate(talking(), "The", max_new_tokens=5, stop="zzz")[0][0].reason in (
        "length",
        "end",
    )


def test_a_voice_stops_in_its_last_breath() -> None:
    words = tokenizer("bytes")
    voice = TextStreamer(words, [], ["\ufffd"])
    voice.add(0x41, 0xE4)
    assert voice.finish() == "" and voice.over and voice.text == "A"
