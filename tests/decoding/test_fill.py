"""Blanks: the probabilities of transformers, every way of writing and of filling them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_classes import bert_pieces
from regard.decoding import fill
from regard.decoding.filling import FilledText, MaskedFiller, SpanFiller, coder, filler_for
from regard.decoding.generation import Generation
from regard.models.bert import Bert
from regard.models.longformer import Longformer
from regard.models.t5 import T5
from regard.models.xlnet import XLNet
from tests.decoding.small import talking, tokenizer
from tests.equal.reference import ours, scramble
from tests.laws.zoo import BERT, LONG, T5_SMALL, XLNET, Specimen, everything
from tests.refusals import Refusal, refuses

TEXTS = ["The [MASK] sat on the ___.", "the dog ___"]
CONFIGS: dict[str, tuple[Any, Any, str]] = {
    "bert": (Bert, BERT, "wordpiece"),
    "longformer": (Longformer, LONG, "bytes-bpe"),
    "xlnet": (XLNet, XLNET.replace(mem_len=3, reuse_len=1, two_directions=True), "unigram"),
}


def filler(name: str, **changes: Any) -> LoadedModel:
    kind, config, words = CONFIGS[name]
    config = config.replace(vocab_size=len(tokenizer(words)), **changes)
    specimen = Specimen(name, kind, config, everything)
    return LoadedModel(specimen.fresh(torch.float64), tokenizer(words))


def best(filled: FilledText) -> list[str]:
    return [candidates[0].text for candidates in filled.blanks]


@pytest.mark.parametrize("name", list(CONFIGS))
def test_blanks_are_found_and_filled(name: str) -> None:
    loaded = filler(name)
    for order in ("confident", "left", "each"):
        filled = fill(loaded, TEXTS, top_k=4, order=order)
        assert [len(each.blanks) for each in filled] == [2, 1]
        for text, each in zip(TEXTS, filled, strict=True):
            assert close(fill(loaded, text, top_k=4, order=order)[0], each)
            for candidates in each.blanks:
                p = [c.probability for c in candidates]
                assert len(p) == 4 and p == sorted(p, reverse=True) and 0 < sum(p) <= 1
            assert "[MASK]" not in each.text and "___" not in each.text


def close(one: FilledText, other: FilledText) -> bool:
    """The same but for the rounding of a padded batch."""
    pairs = zip(one.blanks, other.blanks, strict=True)
    return one.text == other.text and all(
        a.ids == b.ids and math.isclose(a.probability, b.probability, rel_tol=1e-5)
        for x, y in pairs
        for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize("name", list(CONFIGS))
def test_one_after_the_other(name: str) -> None:
    """From the left: the second guess is made with the first one filled in."""
    loaded = filler(name)
    left, alone = (fill(loaded, "the ___ sat ___ the", order=o)[0] for o in ("left", "each"))
    assert left.blanks[0] == alone.blanks[0]
    assert left.blanks[1] != alone.blanks[1]
    guesser = filler_for(loaded, 5, "each", 10)
    assert isinstance(guesser, MaskedFiller)
    ids = guesser.encode("the ___ sat ___ the")
    first, second = (i for i, token in enumerate(ids) if token == guesser.mask)
    ids[first] = left.blanks[0][0].ids[0]
    again = guesser.guess(torch.tensor([ids]), None, [[second]])[0][second]
    assert [c.ids for c in again] == [c.ids for c in left.blanks[1]]
    assert [c.probability for c in again] == pytest.approx([c.probability for c in left.blanks[1]])


def test_the_most_confident_is_first() -> None:
    """The blank whose best guess is likeliest keeps the candidates it had alone."""
    loaded = filler("bert")
    each = fill(loaded, "the ___ sat ___ the ___ .", order="each")[0].blanks
    filled = fill(loaded, "the ___ sat ___ the ___ .", order="confident")[0].blanks
    first = max(range(3), key=lambda i: each[i][0].probability)
    assert filled[first] == each[first]
    assert filled != each


def test_equal_to_transformers_bert(tmp_path: Any) -> None:
    words = tokenizer("wordpiece")
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=40,
    )  # fmt: skip
    reference = scramble(transformers.BertForMaskedLM(config))
    loaded = ours(reference, tmp_path / "bert")
    loaded.tokenizer = words
    filled = fill(loaded, TEXTS[0], top_k=7, order="each")[0]
    ids = words.encode("The [MASK] sat on the [MASK].")
    p = reference(torch.tensor([ids])).logits.softmax(-1)[0]
    places = [i for i, t in enumerate(ids) if t == words.ready.token_to_id("[MASK]")]
    for place, candidates in zip(places, filled.blanks, strict=True):
        top = p[place].topk(7)
        assert [c.ids[0] for c in candidates] == top.indices.tolist()
        assert [c.probability for c in candidates] == pytest.approx(top.values.tolist(), rel=1e-4)


def test_equal_to_transformers_xlnet(tmp_path: Any) -> None:
    words = tokenizer("unigram")
    config = transformers.XLNetConfig(
        vocab_size=len(words), d_model=16, n_layer=2, n_head=2, d_inner=24
    )
    reference = scramble(transformers.XLNetLMHeadModel(config))
    loaded = ours(reference, tmp_path / "xlnet")
    loaded.tokenizer = words
    filled = fill(loaded, TEXTS[0], top_k=7, order="each")[0]
    mask = words.ready.token_to_id("<mask>")
    ids = words.encode("The<mask> sat on the<mask>.", special=False)
    ids += [words.ready.token_to_id(w) for w in ("<sep>", "<cls>")]
    places = [i for i, t in enumerate(ids) if t == mask]
    hidden = torch.zeros(1, len(ids), len(ids))
    hidden[:, :, places] = 1.0  # no row sees the content of a blank
    target = torch.zeros(1, 2, len(ids))
    for row, place in enumerate(places):
        target[0, row, place] = 1.0
    logits = reference(
        torch.tensor([ids]), perm_mask=hidden, target_mapping=target, use_mems=False
    ).logits[0]
    for row, candidates in zip(logits.softmax(-1), filled.blanks, strict=True):
        top = row.topk(7)
        assert [c.ids[0] for c in candidates] == top.indices.tolist()
        assert [c.probability for c in candidates] == pytest.approx(top.values.tolist(), rel=1e-4)


Sure = Callable[[str, str, str], FilledText]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Sure:
    """A text filled by a model that is sure of one token."""

    def filled(name: str, text: str, token: str) -> FilledText:
        loaded = filler(name)
        words: Any = loaded.tokenizer
        sure = torch.full((len(words),), -10.0, dtype=torch.float64)
        sure[int(words.ready.token_to_id(token))] = 10.0
        by_rote = lambda _, hidden: sure.expand(len(hidden), -1)  # noqa: E731
        monkeypatch.setattr(type(loaded.model), "logits", by_rote)
        return fill(loaded, text, top_k=3)[0]

    return filled


@pytest.mark.parametrize(
    ("name", "text", "token", "expected"),
    [
        ("bert", "The ___ sat, ok?", "cat", "The cat sat, ok?"),
        ("bert", "猫[MASK]在垫子上。", "坐", "猫坐在垫子上。"),
        ("bert", "The c[MASK] sat", "##at", "The cat sat"),
        ("bert", "The c ___ sat", "##at", "The cat sat"),
        ("longformer", "The ___ sat,  ok?", "Ġcat", "The cat sat,  ok?"),
        ("longformer", "___ cat", "ĠThe", "The cat"),
        ("longformer", "The c___ sat", "at", "The cat sat"),
        ("xlnet", "The ___ sat", "▁cat", "The cat sat"),
        ("xlnet", "猫___在垫子上。", "坐", "猫坐在垫子上。"),
    ],
)
def test_the_text_stays_as_it_is(
    chosen: Sure, name: str, text: str, token: str, expected: str
) -> None:
    """But for its blanks: no letter gets smaller, and no space comes between Chinese characters."""
    assert chosen(name, text, token).text == expected


def test_white_space_fills_no_blank(chosen: Sure) -> None:
    for name, token in (("longformer", "Ċ"), ("longformer", "Ġ"), ("xlnet", "▁")):
        filled = chosen(name, "The ___ sat", token)
        assert len(filled.blanks[0]) == 3
        assert all(c.text.strip() and c.text != token for c in filled.blanks[0])
        assert "Ċ" not in filled.text and "Ġ" not in filled.text


def test_ways_of_writing_a_blank() -> None:
    for name, own in (("bert", "[MASK]"), ("longformer", "<|mask|>"), ("xlnet", "<mask>")):
        loaded = filler(name)
        texts = [fill(loaded, f"The {blank} sat") for blank in ("[MASK]", "___", "______", own)]
        assert all(text == texts[0] for text in texts)


def test_the_space_before_a_blank_is_part_of_it() -> None:
    """Where words carry their space; a list of characters has it as one of its own."""
    for kind, name, before in (("bytes-bpe", "<|mask|>", "The"), ("characters", "<mask>", "The ")):
        words = tokenizer(kind)
        mask = words.ready.token_to_id(name)
        fast, blank = coder(words, mask)
        ids = fast.encode(blank.sub(name, "The ___ sat")).ids
        at = ids.index(mask)
        assert words.decode(ids[:at]) == before and words.decode(ids[at + 1 :]) == " sat"


def test_a_list_of_pieces_knows_its_mask() -> None:
    """vocab.txt alone: the mask is a piece like others, and still one token."""
    fast = bert_pieces(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"])
    model = Specimen("bert", Bert, BERT.replace(vocab_size=9), everything).fresh()
    loaded = LoadedModel(model, Tokenizer(fast, {}))
    filled = fill(loaded, "the ___ sat", top_k=9)[0]
    assert {c.text for c in filled.blanks[0]} >= {"the", "cat", "##s", "[MASK]"}
    assert fast.encode("[MASK]", add_special_tokens=False).tokens != ["[MASK]"]  # left as it was


def writer() -> LoadedModel:
    words = tokenizer("unigram")
    end = words.ready.token_to_id("</s>")
    config = T5_SMALL.replace(
        vocab_size=len(words), eos_id=end, pad_id=words.ready.token_to_id("<pad>")
    )
    return LoadedModel(Specimen("t5", T5, config, everything).fresh(torch.float64, 5), words)


def test_t5_writes_blanks() -> None:
    loaded = writer()
    filled = fill(loaded, "The <extra_id_0> sat on ___.", top_k=3, max_new_tokens=4)[0]
    assert len(filled.blanks) == 2
    assert filled == fill(loaded, "The [MASK] sat on ______.", top_k=3, max_new_tokens=4)[0]
    assert fill(loaded, "The ___", top_k=1)[0].blanks[0]


def test_what_t5_wrote_is_read() -> None:
    """Spans between marks, with the probability of their own tokens."""
    loaded = writer()
    words = loaded.tokenizer
    assert words is not None
    one, two = (words.ready.token_to_id(f"<extra_id_{i}>") for i in range(2))
    cat, mat = (words.encode(w, special=False) for w in ("cat", "the mat"))
    ids = [one, *cat, two, *mat, loaded.config.eos_id]
    whole = Generation("", ids, [math.log(0.5)] * len(ids), 0.0, "end")
    short = Generation("", [two, *mat], [math.log(0.25)] * (1 + len(mat)), 0.0, "length")
    filled = SpanFiller(loaded, 2, 5).filled(
        "The <extra_id_0> sat on <extra_id_1>.", 2, [whole, short]
    )
    assert filled.text == "The cat sat on the mat."
    assert best(filled) == ["cat", "the mat"]
    assert filled.blanks[0][0].probability == pytest.approx(0.5 ** len(cat))
    assert [c.text for c in filled.blanks[1]] == ["the mat"]  # the same text once, at its best
    assert filled.blanks[1][0].probability == pytest.approx(0.5 ** len(mat))


def bare(**heads: int) -> LoadedModel:
    """Without a tokenizer."""
    return LoadedModel(Bert(BERT, heads) if heads else Bert(BERT))


@pytest.mark.parametrize(
    ("model", "text", "options", "refusal"),
    [
        (lambda: filler("bert"), "The cat", {}, (InputError, "'The cat'", "[MASK]")),
        (writer, "The cat", {}, (InputError, "'The cat'", "<extra_id_0>")),
        (writer, "___ ___ ___ ___", {}, (InputError, "4 blanks", "3 marks")),
        (lambda: filler("bert"), "the ___ " + "sat " * 100, {}, (InputError, "104", "96")),
        (lambda: filler("bert"), "___", {"order": "lefty"}, (UnknownName, "'lefty'", "'left'")),
        (lambda: filler("bert"), "___", {"top_k": 0}, (ConfigError, "top_k is 0")),
        (talking, "The ___", {}, (InputError, "GPT", "bert")),
        (lambda: bare(classify=2), "The ___", {}, (InputError, "Bert", "its heads: classify")),
        (bare, "The ___", {}, (InputError, "tokenizer.json")),
    ],
)
def test_what_is_refused(
    model: Callable[[], LoadedModel], text: str, options: dict[str, Any], refusal: Refusal
) -> None:
    with refuses(*refusal):
        fill(model(), text, **options)
