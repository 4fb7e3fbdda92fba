"""One hidden word at a time, beside the models' own logits."""

import pytest
import torch

from regard.api import LoadedModel
from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.lab.compare.blanks import BlankScorer, sees_both_sides
from regard.lab.compare.measures import MeasureSizes, judged
from regard.lab.compare.pairs import (
    MinimalPair,
    exact,
    minimal_pairs,
    preferred,
    pseudo,
    swapped_tokens,
)
from regard.models import create
from tests.objectives.small import SPECIAL, VOCABULARY
from tests.refusals import refuses
from tests.training import small

SHAPE = {"layers": 2, "width": 16, "heads": 2, "ffn_size": 32, "vocab_size": VOCABULARY}
ROWS = [[8, 9, 10, 11], [12, 13], [14, 15, 16, 17, 18, 19]]
PLACES = [1, 0, 5]


def model_of(name, **changes):
    torch.manual_seed(2)
    model = create(name, **SHAPE | changes).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return LoadedModel(model)


def log_p(model, hidden, gold):
    return float(model.logits(hidden).log_softmax(-1)[gold].detach())


def test_bert_is_shown_its_mask():
    loaded = model_of("bert", context=16)
    scores = BlankScorer(loaded, SPECIAL)(ROWS, PLACES)
    for row, place, guess in zip(ROWS, PLACES, scores, strict=True):
        shown = [SPECIAL.cls, *row, SPECIAL.sep]
        shown[place + 1] = SPECIAL.mask
        with torch.no_grad():
            hidden = loaded.model(torch.tensor([shown]))[0, place + 1]
        assert guess.logprob == pytest.approx(log_p(loaded.model, hidden, row[place]), abs=1e-5)
        first = int(loaded.model.logits(hidden).argmax())
        assert guess.right == (first == row[place])


def test_longformer_sees_its_first_row_from_everywhere_as_in_learning():
    loaded, row = model_of("longformer", context=16, window=2), [*range(8, 20)]
    (scores,) = BlankScorer(loaded, SPECIAL)([row], [11])
    shown = torch.tensor([[SPECIAL.cls, *row[:-1], SPECIAL.mask, SPECIAL.sep]])
    with torch.no_grad():
        hidden = loaded.model(shown, global_tokens=torch.zeros(1, 1, dtype=torch.long))
        near = loaded.model(shown)
    assert scores.logprob == pytest.approx(log_p(loaded.model, hidden[0, 12], 19), abs=1e-5)
    assert scores.logprob != pytest.approx(log_p(loaded.model, near[0, 12], 19), abs=1e-5)


def test_xlnet_never_sees_what_it_is_asked_for():
    loaded = model_of("xlnet", head_size=8)
    blanks = BlankScorer(loaded, SPECIAL)
    one, other = blanks([[8, 9, 10], [8, 20, 10]], [1, 1])
    with torch.no_grad():
        tokens = torch.tensor([[8, 9, 10, SPECIAL.sep, SPECIAL.cls]])
        order, targets = torch.tensor([[-1, 0, -1, -1, -1]]), torch.tensor([[1]])
        hidden = loaded.model(tokens, order=order, targets=targets)[0, 0]
    assert one.logprob == pytest.approx(log_p(loaded.model, hidden, 9), abs=1e-5)
    assert other.logprob == pytest.approx(log_p(loaded.model, hidden, 20), abs=1e-5)


def test_t5_writes_behind_its_mark():
    loaded = model_of("t5", head_size=8, start_id=0)
    (scores,) = BlankScorer(loaded, SPECIAL)([[8, 9, 10]], [1])
    mark = SPECIAL.sentinels[0]
    with torch.no_grad():
        hidden = loaded.model(torch.tensor([[8, mark, 10, 1]]), torch.tensor([[0, mark]]))[0, 1]
    assert scores.logprob == pytest.approx(log_p(loaded.model, hidden, 9), abs=1e-5)


def test_a_model_that_reads_on_cannot_be_asked():
    loaded = model_of("gpt", context=16)
    assert not sees_both_sides(loaded.model)
    with refuses(InputError, "GPT", "blank"):
        BlankScorer(loaded, SPECIAL)


def test_a_batch_is_its_parts():
    loaded = model_of("bert", context=16)
    blanks = BlankScorer(loaded, SPECIAL)
    together = blanks(ROWS, PLACES)
    for i, guess in enumerate(together):
        (alone,) = blanks([ROWS[i]], [PLACES[i]])
        assert alone.logprob == pytest.approx(guess.logprob, abs=1e-5)


def test_pairs_are_a_function_of_text_and_seed(tmp_path):
    corpus = Corpus.open(small.data(tmp_path / "data"), "test")
    pairs = minimal_pairs(corpus, 12, seed=3)
    assert 0 < len(pairs) <= 12 and pairs == minimal_pairs(corpus, 12, seed=3)
    assert pairs != minimal_pairs(corpus, 12, seed=4)
    for pair in pairs:
        assert pair.real != pair.changed and sorted(pair.real) == sorted(pair.changed)


def test_both_sides_of_a_pair_have_room(tmp_path):
    corpus = Corpus.open(small.data(tmp_path / "data"), "test")
    pairs = minimal_pairs(corpus, 200, 3, room=7)
    assert pairs and max(len(ids) for pair in pairs for ids in pair) <= 7
    assert max(len(pair.real) for pair in minimal_pairs(corpus, 200, 3)) > 7


def test_an_xlnet_that_has_learned_from_left_to_right_is_asked_so(tmp_path):
    corpus = Corpus.open(small.data(tmp_path / "data"), "test")
    loaded = model_of("xlnet", head_size=8)
    loaded.tokenizer, loaded.path = corpus.tokenizer, corpus.directory
    pairs = minimal_pairs(corpus, 12, 3)
    totals = exact(loaded, corpus, [ids for pair in pairs for ids in pair])
    for ids, total in zip(pairs[-1], totals[-2:], strict=True):  # by no row that asks: each goes on
        with torch.no_grad():
            order = torch.arange(len(ids))[None]
            hidden = loaded.model(torch.tensor([[SPECIAL.end, *ids[:-1]]]), order=order)[0]
        each = [log_p(loaded.model, row, gold) for row, gold in zip(hidden, ids, strict=True)]
        assert total == pytest.approx(sum(each), abs=1e-4)
    wanted = [a > b for a, b in zip(totals[::2], totals[1::2], strict=True)]
    figures = judged(loaded, corpus, MeasureSizes(pairs=12, seed=3), 40, both_sides=False)
    assert figures["minimal_pairs"] == pytest.approx(sum(wanted) / len(wanted))
    assert figures["minimal_pairs_each"]["sums"] == [float(each) for each in wanted]


def test_tokens_are_swapped_where_no_spaces_are():
    changed = swapped_tokens([7, 7, 8], keyed(1, "x"))
    assert changed == [7, 8, 7]
    assert swapped_tokens([7, 7], keyed(1, "x")) is None


def test_both_kinds_of_models_prefer_by_their_sums(tmp_path):
    corpus = Corpus.open(small.data(tmp_path / "data"), "test")
    pairs = [MinimalPair([8, 9, 10], [9, 8, 10]), MinimalPair([11, 12, 13], [13, 12, 11])]
    bert, gpt = model_of("bert", context=16), model_of("gpt", context=16)
    rows = [ids for pair in pairs for ids in pair]
    totals = pseudo(BlankScorer(bert, SPECIAL), rows)
    blanks = BlankScorer(bert, SPECIAL)
    for row, total in zip(rows, totals, strict=True):
        each = blanks([row] * 3, [0, 1, 2])
        assert total == pytest.approx(sum(guess.logprob for guess in each), abs=1e-4)
    figures = preferred(bert, corpus, pairs, both_sides=True)
    assert figures == [totals[0] > totals[1], totals[2] > totals[3]]
    with torch.no_grad():
        tokens = torch.tensor([[SPECIAL.end, 8, 9]])
        log_p = gpt.model.logits(gpt.model(tokens))[0].log_softmax(-1)
    wanted = float(log_p[0, 8] + log_p[1, 9] + log_p[2, 10])
    gpt.tokenizer, gpt.path = corpus.tokenizer, corpus.directory
    assert exact(gpt, corpus, [[8, 9, 10]])[0] == pytest.approx(wanted, abs=1e-4)
