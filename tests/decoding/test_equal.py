"""Greedy and beam search against transformers' generate, on models opened by both, in fp64."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from regard.api import LoadedModel
from regard.decoding import generate
from tests.decoding.small import draw
from tests.equal.reference import ours, scramble

END, PAD = 1, 0
GPT2 = partial(
    transformers.GPT2Config, vocab_size=53, n_positions=64, n_embd=16, n_layer=2, n_head=2,
    bos_token_id=END, eos_token_id=END, pad_token_id=PAD,
)  # fmt: skip
T5 = partial(
    transformers.T5Config, vocab_size=53, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
    relative_attention_num_buckets=8, relative_attention_max_distance=16, decoder_start_token_id=0,
)  # fmt: skip
MARIAN = partial(
    transformers.MarianConfig, vocab_size=53, d_model=16, encoder_layers=2, decoder_layers=2,
    encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
    eos_token_id=END, pad_token_id=PAD, decoder_start_token_id=PAD, forced_eos_token_id=None,
    max_position_embeddings=64,
)  # fmt: skip
KINDS = {
    "gpt2": (transformers.GPT2LMHeadModel, GPT2),
    "t5": (transformers.T5ForConditionalGeneration, T5),
    "marian": (transformers.MarianMTModel, MARIAN),
}
SOURCES = [draw(7, 1, 53), draw(3, 2, 53), draw(12, 3, 53)]
STOPPING: dict[str, Any] = {"certain": "never", "estimate": False, "full": True}


@pytest.fixture(scope="module", params=list(KINDS))
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    kind, config = KINDS[request.param]
    reference = scramble(kind(config()), 0.2, seed=4).double()
    loaded = ours(reference, tmp_path_factory.mktemp("model"), dtype=torch.float64)
    return loaded, reference


def cut(row: list[int], ends: list[int]) -> list[int]:
    """Without what the reference fills its table with (the first end id, if pad_id is 0)."""
    last = next((i for i, token in enumerate(row) if token in ends), len(row))
    return row[: last + 1]


def theirs(
    reference: Any, source: list[int], **options: Any
) -> tuple[list[list[int]], list[float]]:
    """New tokens without padding, and the scores of beams."""
    ends = options.pop("ends", [END])
    results = reference.generate(
        torch.tensor([source]), attention_mask=torch.ones(1, len(source)).long(), do_sample=False,
        return_dict_in_generate=True, output_scores=True, suppress_tokens=[PAD],
        eos_token_id=ends, pad_token_id=PAD, **options,
    )  # fmt: skip
    begun = 1 if reference.config.is_encoder_decoder else len(source)
    rows = [cut(row[begun:].tolist(), ends) for row in results.sequences]
    scores = getattr(results, "sequences_scores", None)
    return rows, [] if scores is None else scores.tolist()


def test_greedy(both: tuple[LoadedModel, Any]) -> None:
    loaded, reference = both
    results = generate(loaded, SOURCES, max_new_tokens=20, suppress_tokens=[PAD], eos_ids=[END])
    for source, each in zip(SOURCES, results, strict=True):
        rows, _ = theirs(reference, source, max_new_tokens=20)
        assert [x.ids for x in each] == rows


def test_greedy_with_processors(both: tuple[LoadedModel, Any]) -> None:
    loaded, reference = both
    results = generate(
        loaded,
        SOURCES,
        max_new_tokens=20,
        suppress_tokens=[PAD],
        eos_ids=[END],
        repetition_penalty=1.4,
        no_repeat_ngram_size=2,
        min_new_tokens=9,
    )
    for source, each in zip(SOURCES, results, strict=True):
        rows, _ = theirs(
            reference, source, max_new_tokens=20, repetition_penalty=1.4, no_repeat_ngram_size=2,
            min_new_tokens=9,
        )  # fmt: skip
        assert [x.ids for x in each] == rows


@pytest.mark.parametrize("stopping", list(STOPPING))
@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.7, 1.6])
def test_beams(both: tuple[LoadedModel, Any], stopping: str, alpha: float) -> None:
    """Several end ids, so that texts of many lengths compete. The reference rounds the logits of
    its beams to fp32, hence the tolerance of the scores.
    """
    loaded, reference = both
    ends = [END, 5, 9, 17, 23, 31]
    results = generate(
        loaded, SOURCES, max_new_tokens=12, suppress_tokens=[PAD], eos_ids=ends, num_beams=4,
         num_return_sequences=3, length_penalty_form="common",
        length_penalty=alpha, beam_stopping=stopping,
    )  # fmt: skip
    for source, each in zip(SOURCES, results, strict=True):
        rows, scores = theirs(
            reference, source, max_new_tokens=12, num_beams=4, num_return_sequences=3, ends=ends,
            length_penalty=alpha, early_stopping=STOPPING[stopping],
        )  # fmt: skip
        assert [x.ids for x in each] == rows
        assert [x.score for x in each] == pytest.approx(scores, rel=1e-6, abs=1e-6)


def test_padded_sources_in_both(both: tuple[LoadedModel, Any], tmp_path: Path) -> None:
    """A batch of ours against a padded batch of theirs, with positions that count real tokens."""
    loaded, reference = both
    pair = reference.config.is_encoder_decoder
    width = max(map(len, SOURCES))
    rows, marks = [], []
    for source in SOURCES:
        pads, ones = [PAD] * (width - len(source)), [1] * len(source)
        zeros = [0] * len(pads)
        rows.append(source + pads if pair else pads + source)
        marks.append(ones + zeros if pair else zeros + ones)
    results = reference.generate(
        torch.tensor(rows), attention_mask=torch.tensor(marks), do_sample=False, num_beams=3,
        max_new_tokens=10, suppress_tokens=[PAD], eos_token_id=[END], pad_token_id=PAD,
        length_penalty=1.0, early_stopping=True,
    )  # fmt: skip
    mine = generate(
        loaded, SOURCES, max_new_tokens=10, suppress_tokens=[PAD], eos_ids=[END], num_beams=3,
         length_penalty_form="common", length_penalty=1.0,
        beam_stopping="full",
    )  # fmt: skip
    begun = 1 if pair else width
    assert [x[0].ids for x in mine] == [cut(row[begun:].tolist(), [END]) for row in results]
