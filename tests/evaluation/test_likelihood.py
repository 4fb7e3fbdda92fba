"""Likelihoods against a direct forward, of transformers and of every family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import regard
from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError
from regard.evaluation import likelihood
from regard.evaluation.likelihood import LikelihoodRequest, Scorer, score
from regard.models.gpt import GPT
from tests.decoding.small import ALL, talking, tokenizer
from tests.evaluation.likelihoods import directly, speaking
from tests.laws.zoo import ZOO, Specimen
from tests.objectives.rules import tiny
from tests.refusals import refuses

CONTEXTS = ["The cat sat", "The ca", "The cat sat on the mat. It's not the dog that did it, ", "猫"]
ENDS = [" on the mat", "t sat", "42 times!", "坐在垫子上。"]


def gpt2(path: Path) -> tuple[Any, LoadedModel]:
    torch.manual_seed(0)
    config = hf.GPT2Config(
        vocab_size=len(tokenizer("bytes-bpe")), n_positions=64, n_embd=16, n_layer=2, n_head=2
    )
    theirs = hf.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for value in theirs.parameters():
            value.normal_(0, 0.2)
    theirs.save_pretrained(path)
    tokenizer("bytes-bpe").save(path)
    return theirs, regard.load(path, dtype=torch.float64)


def test_likelihoods_are_those_of_transformers(tmp_path: Path) -> None:
    theirs, loaded = gpt2(tmp_path)
    words = tokenizer("bytes-bpe")
    scores = score(loaded, CONTEXTS, ENDS)
    for context, end, one in zip(CONTEXTS, ENDS, scores, strict=True):
        ids = words.encode(context + end, special=False)
        alone = words.encode(context, special=False)
        first = 0
        while first < len(alone) and alone[first] == ids[first]:
            first += 1
        if not first:  # the whole of 猫 is part of a longer token
            ids, first = [*words.encode("<|endoftext|>"), *ids], 1
        with torch.inference_mode():
            logits = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
        expected = [float(logits[i - 1, ids[i]]) for i in range(first, len(ids))]
        assert one.logprobs == pytest.approx(expected, abs=1e-9)
        assert one.total == pytest.approx(sum(expected))
        assert (one.tokens, one.bytes) == (len(ids) - first, len(end.strip().encode()))
        assert one.per_token == pytest.approx(one.total / one.tokens)
        assert one.per_byte == pytest.approx(one.total / one.bytes)


def test_a_token_across_the_boundary_belongs_to_the_completion() -> None:
    loaded = talking("bytes-bpe")
    words, scorer = tokenizer("bytes-bpe"), Scorer(loaded)
    ask = scorer.ask("The ca", "t sat")
    assert words.decode(list(ask.before)) == "The"
    assert words.decode(list(ask.after)) == " cat sat"
    assert words.encode("The ca", special=False)[1:] != [ask.after[0]]
    # the blank may stand on either side
    assert scorer.ask("The ", "cat") == scorer.ask("The", " cat")
    assert words.decode(list(scorer.ask("The cat", " sat").after)) == " sat"


def test_without_context_a_text_begins_after_the_end_of_another() -> None:
    loaded = talking("bytes-bpe")
    ask = Scorer(loaded).ask("", "The cat")
    end = tokenizer("bytes-bpe").encode("<|endoftext|>")
    assert ask == LikelihoodRequest(
        tuple(end), tuple(tokenizer("bytes-bpe").encode("The cat", special=False))
    )
    assert score(loaded, [""], ["The cat"])[0].logprobs == pytest.approx(directly(loaded, ask))


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_every_family_gives_what_a_direct_pass_gives(
    specimen: Specimen, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"context": 96} if specimen.kind is GPT else {}
    loaded = speaking(specimen, **changes)
    contexts = [c for c in CONTEXTS for _ in range(3)] + CONTEXTS
    ends = [end for _ in CONTEXTS for end in (" it's", " the dog did not", " sat")] + ENDS
    scorer = Scorer(loaded)
    asks = [scorer.ask(*pair) for pair in zip(contexts, ends, strict=True)]
    expected = [pytest.approx(directly(loaded, ask), abs=1e-8) for ask in asks]
    assert [list(scores) for scores in scorer.run(asks)] == expected
    monkeypatch.setattr(likelihood, "SHARED", 1)  # now contexts are read once
    assert [list(scores) for scores in scorer.run(asks)] == expected
    monkeypatch.setattr(likelihood, "TOKENS", 40)  # and a few completions at a time
    assert [list(scores) for scores in scorer.run(asks)] == expected


def test_a_context_is_read_once_for_all_its_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = talking("bytes-bpe")
    rows: list[torch.Size] = []
    hook = loaded.model.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0].shape))
    context = "The cat sat on the mat. It's not the dog that"
    length = len(tokenizer("bytes-bpe").encode(context, special=False))
    score(loaded, [context] * 3, [" cat", " dog", " mat"])  # a token each
    assert rows == [(1, length)]
    rows.clear()
    monkeypatch.setattr(likelihood, "SHARED", 8)
    score(loaded, [context] * 3, [" cat sat", " dog did", " mat"])
    hook.remove()
    assert rows == [(1, length), (3, 1)]


def test_a_transformer_xl_begins_without_memory_and_reads_in_pieces() -> None:
    specimen = next(s for s in ZOO if s.name == "transformer-xl")
    loaded = speaking(specimen, mem_len=6)
    ask = Scorer(loaded).ask(CONTEXTS[2], "the cat sat")
    assert len(ask.before) > 12
    other = Scorer(loaded).ask("The dog", " did it, the dog did not")
    with torch.inference_mode():
        state = loaded.model.start(1, 0)
        for piece in torch.tensor([ask.before]).split(6, 1):
            hidden = loaded.model(piece, state=state)
        rest = loaded.model(torch.tensor([ask.after[:-1]]), state=state)
        rows = loaded.model.logits(torch.cat([hidden[:, -1:], rest], 1))[0].log_softmax(-1)
    expected = rows[range(len(ask.after)), list(ask.after)].tolist()
    for asks in ([ask], [other, ask, other]):  # whatever was read before
        values = Scorer(loaded).run(asks)[asks.index(ask)]
        assert list(values) == pytest.approx(expected, abs=1e-9)


def test_lists_of_different_length_and_empty_completions_are_refused() -> None:
    loaded = talking("bytes-bpe")
    with refuses(InputError, "2 contexts", "1 completions"):
        score(loaded, ["a", "b"], ["c"])
    with refuses(InputError, "completion", "'  '"):
        score(loaded, ["a"], ["  "])
    with refuses(InputError, "Unicode", "character 2"):
        score(loaded, ["a\ud800"], ["c"])
    with refuses(ConfigError, "length is 1"):
        score(loaded, ["a"], ["c"], length=1)


@torch.no_grad()
def test_products_of_a_masked_model_are_no_probabilities_of_texts() -> None:
    """Over all texts of two tokens those of GPT sum to one, and those of BERT do not."""
    size = 6
    texts = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    shape: dict[str, Any] = {"dtype": torch.float64, "vocab_size": size, "scale": 60.0}
    gpt, bert = (tiny(name, **shape).eval() for name in ("gpt", "bert"))
    before = torch.cat([torch.zeros_like(texts[:, :1]), texts[:, :1]], 1)  # 0: a text begins
    logprobs = gpt.logits(gpt(before)).log_softmax(-1).gather(2, texts[:, :, None])
    assert float(logprobs.sum((1, 2)).exp().sum()) == pytest.approx(1.0)
    product = torch.ones(len(texts), dtype=torch.float64)
    for place in (0, 1):
        masked = texts.index_fill(1, torch.tensor([place]), 0)
        shares = bert.logits(bert(masked)).softmax(-1)[:, place]
        product *= shares.gather(1, texts[:, place : place + 1])[:, 0]
    assert abs(float(product.sum()) - 1) > 0.01


def test_a_masked_model_is_refused_with_those_that_can() -> None:
    bert = next(s for s in ZOO if s.name == "bert")
    with refuses(InputError, "gpt", "transformer-xl"):
        score(speaking(bert), ["a"], ["b"])


def test_a_context_that_is_too_long_is_refused_or_cut() -> None:
    loaded = talking("bytes-bpe", context=8)
    long, end = "the cat sat on the mat " * 4, "the dog did"
    with refuses(InputError, "27 tokens", "8"):
        score(loaded, [long], [end])
    ids = tokenizer("bytes-bpe").encode(long + end, special=False)[-9:]
    values = score(loaded, [long], [end], truncate=True)[0]
    expected = directly(
        loaded, LikelihoodRequest(tuple(ids[: -values.tokens]), tuple(ids[-values.tokens :]))
    )
    assert list(values.logprobs) == pytest.approx(expected, abs=1e-9)
    with refuses(InputError, "25 tokens", "8"):
        score(loaded, [long], [" " + long], truncate=True)


def test_what_is_cut_is_the_same_for_all_completions() -> None:
    scorer = Scorer(talking("bytes-bpe", context=8))
    long = "the cat sat on the mat " * 4
    asks = [scorer.ask(long, end) for end in ("the", "dog did not")]
    short, other = scorer.cut(asks)
    assert short.before == other.before and len(other.rows) == 8
