"""Longformer beside transformers: windows a layer, global tokens anywhere, padding, every head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from regard.api import LoadedModel, load
from regard.attention.position import Relative
from regard.core.errors import ConfigError
from regard.formats.directory import save
from regard.formats.format import unstacked
from regard.formats.longformer import LONGFORMER
from regard.models import sizes
from regard.models.bert import Bert, BertConfig
from regard.models.longformer import LongformerConfig, lengthen, places
from tests.equal.reference import (
    all_close,
    close,
    layers,
    marks,
    ours,
    same_config,
    scramble,
    theirs,
    words,
)
from tests.refusals import refuses

VOCABULARY, ROWS, BATCH, PAD = 61, 43, 3, 1
LENGTHS = [43, 17, 30]
KINDS = [
    (transformers.LongformerForSequenceClassification, "classify"),
    (transformers.LongformerForTokenClassification, "tag"),
    (transformers.LongformerForQuestionAnswering, "answer"),
    (transformers.LongformerForMultipleChoice, "choose"),
    (transformers.LongformerModel, "pool"),
]
GOLDEN = ["111111", "111000", "111100", "101110", "100111", "100011"]


def config(**changes: Any) -> transformers.LongformerConfig:
    small = {"vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 3}
    small |= {"num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 80}
    small |= {"attention_window": [4, 16, 8], "pad_token_id": PAD, "type_vocab_size": 2}
    small |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.LongformerConfig(**small | {"sep_token_id": 2} | changes)


def pair(
    path: Path, kind: Any = transformers.LongformerForMaskedLM, **changes: Any
) -> tuple[Any, LoadedModel]:
    reference = scramble(kind(config(**changes)))
    return reference, ours(reference, path / "theirs")


def text(rows: int = ROWS, attention_mask: Tensor | None = None, seed: int = 1) -> Tensor:
    """Tokens, with its id where there is padding: the reference looks there for positions."""
    ids = words(VOCABULARY, BATCH, rows, low=PAD + 1, seed=seed)
    return ids if attention_mask is None else torch.where(attention_mask, ids, PAD)


def ragged(rows: int = ROWS) -> Tensor:
    """Global tokens that begin, end, touch, stand alone; three, one and none of them."""
    chosen = torch.zeros(BATCH, rows, dtype=torch.bool)
    chosen[0, [0, rows // 40, rows - 1]] = True
    chosen[1, rows // 3] = True
    return chosen


def inputs(attention_mask: Tensor | None, far: Tensor | None) -> dict[str, Tensor]:
    masks = {} if attention_mask is None else {"attention_mask": attention_mask.long()}
    return masks if far is None else masks | {"global_attention_mask": far.long()}


def compare(
    reference: Any, model: Any, ids: Tensor, attention_mask: Any, far: Any, seg: Any = None
) -> None:
    with torch.no_grad(), layers(model.blocks) as rows:
        logits = model.logits(model(ids, attention_mask, seg, far))
        expected = reference(
            ids, token_type_ids=seg, output_hidden_states=True, **inputs(attention_mask, far)
        )
    all_close([logits, *rows], [expected.logits, *expected.hidden_states], attention_mask)


@pytest.mark.parametrize("rows", [1, 7, 16, 43, 48, 64])
@pytest.mark.parametrize("far", [False, True])
def test_lengths_that_fit_the_window_or_do_not(tmp_path: Path, rows: int, far: bool) -> None:
    reference, loaded = pair(tmp_path)
    seg = words(2, BATCH, rows, seed=4)
    compare(reference, loaded.model, text(rows), None, ragged(rows) if far else None, seg)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_window": 8},
        {"attention_window": [4, 4, 4]},
        {"attention_window": [64, 4, 32], "num_attention_heads": 4},
        {"hidden_act": "relu", "layer_norm_eps": 1e-4, "type_vocab_size": 1},
        {"hidden_act": "gelu_new", "pad_token_id": 0, "max_position_embeddings": 50},
        {"pad_token_id": 5},
    ],
    ids=str,
)
def test_configurations_and_the_way_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference, loaded = pair(tmp_path, **changes)
    ids = words(VOCABULARY, BATCH, ROWS, low=6)
    compare(reference, loaded.model, ids, None, ragged())
    back = theirs(loaded, tmp_path / "ours", type(reference))
    same_config(reference.config, back.config)
    with torch.no_grad():
        one, two = (m(ids, **inputs(None, ragged())).logits for m in (back, reference))
    assert torch.equal(one, two)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("far", [False, True])
def test_padding_on_either_side(tmp_path: Path, side: str, far: bool) -> None:
    """Its positions count the tokens that are not padding: nothing more has to be given."""
    reference, loaded = pair(tmp_path)
    attention_mask = marks(LENGTHS, side)
    compare(
        reference,
        loaded.model,
        text(attention_mask=attention_mask),
        attention_mask,
        ragged() if far else None,
    )


def test_padding_may_be_marked_global(tmp_path: Path) -> None:
    """It stays padding."""
    reference, loaded = pair(tmp_path)
    attention_mask, everything = marks(LENGTHS, "right"), torch.ones(BATCH, ROWS, dtype=torch.bool)
    compare(
        reference, loaded.model, text(attention_mask=attention_mask), attention_mask, everything
    )


@pytest.mark.parametrize(("kind", "head"), KINDS)
@pytest.mark.parametrize("padded", [False, True])
def test_heads(tmp_path: Path, kind: Any, head: str, padded: bool) -> None:
    labels = {} if head in ("answer", "choose") else {"num_labels": 5}
    reference, loaded = pair(tmp_path, kind, **labels)
    attention_mask = marks(LENGTHS, "right") if padded else None
    ids = text(attention_mask=attention_mask)
    with torch.no_grad():
        logits = loaded.model.read(
            head, loaded.model(ids, attention_mask, None, ragged()), attention_mask
        )
        expected = answered(reference, head, ids, inputs(attention_mask, ragged()))
        all_close([logits], [expected], attention_mask if head in ("tag", "answer") else None)
        back = theirs(loaded, tmp_path / "ours", kind)
        same_config(reference.config, back.config)
        close(answered(back, head, ids, inputs(attention_mask, ragged())), expected, 1e-6)


def answered(reference: Any, head: str, ids: Tensor, masks: dict[str, Tensor]) -> Tensor:
    """What the reference's head says, in the shape of ours."""
    if head == "choose":  # every text a choice of its own question
        result = reference(ids[:, None], **{name: value[:, None] for name, value in masks.items()})
    else:
        result = reference(ids, **masks)
    if head == "answer":
        return torch.stack([result.start_logits, result.end_logits], -1)
    answer: Tensor = result.pooler_output if head == "pool" else result.logits
    return answer


@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_heads_read_the_same_rows_when_padding_is_on_the_left(
    tmp_path: Path, kind: Any, head: str
) -> None:
    """The reference reads the first row, whatever stands there: its padding is on the right."""
    reference, loaded = pair(tmp_path, kind)
    left, right = marks(LENGTHS, "left"), marks(LENGTHS, "right")
    ids, far = text(attention_mask=right), right & (torch.arange(ROWS) % 7 == 0)

    def moved(values: Tensor, fill: int) -> Tensor:
        return torch.full_like(values, fill).masked_scatter(left, values[right])

    with torch.no_grad():
        hidden = loaded.model(moved(ids, PAD), left, None, moved(far, 0))
        logits = loaded.model.read(head, hidden, left)
        expected = answered(reference, head, ids, inputs(right, far))
    if head in ("tag", "answer"):
        logits, expected = logits[left], expected[right]
    close(logits, expected)


@pytest.mark.parametrize(("head", "before"), [("classify", False), ("answer", True)])
def test_what_the_reference_makes_global_by_itself(tmp_path: Path, head: str, before: bool) -> None:
    """A classifier's first token, a question: we are told, it finds them."""
    reference, loaded = pair(tmp_path, {h: k for k, h in KINDS}[head])
    ids = words(VOCABULARY, BATCH, ROWS, low=3)
    ids[:, [9, 20, 40]] = 2  # the separator
    far = (torch.arange(ROWS) < (9 if before else 1)).expand(BATCH, ROWS)
    with torch.no_grad():
        logits = loaded.model.read(head, loaded.model(ids, global_tokens=far))
        close(logits, answered(reference, head, ids, {}))


def test_the_gradient_of_a_training_step(tmp_path: Path) -> None:
    reference, loaded = pair(tmp_path)
    attention_mask = marks(LENGTHS, "right")
    ids, far = text(attention_mask=attention_mask), ragged()
    labels = torch.where(attention_mask & (torch.arange(ROWS) % 4 == 1), text(seed=7), -100)
    hidden = loaded.model(ids, attention_mask, None, far)
    chosen = labels != -100
    loss = loaded.model.output.surprisal(hidden[chosen], labels[chosen]) / chosen.sum()
    expected = reference(ids, labels=labels, **inputs(attention_mask, far)).loss
    close(loss.detach(), expected.detach())
    loss.backward()
    expected.backward()
    gradients = {n: p.grad for n, p in loaded.model.named_parameters(remove_duplicate=False)}
    for entry in LONGFORMER.table(loaded.config, {"masked": 0}):
        for key, value in unstacked(gradients[entry.ours], entry).items():
            other = reference.get_parameter(key).grad
            if "word_embeddings" in key or "position_embeddings" in key:  # theirs: none for padding
                value[PAD] = other[PAD]
            scale = other.abs().max().clamp_min(1e-6)
            if "key.bias" in key or "key_global.bias" in key:  # truly zero: noise on both sides
                scale = torch.ones(())
            close(value / scale, other / scale)


def test_the_worked_example_of_a_window() -> None:
    model = lengthen(Bert(tiny()), 16, 2)
    far = torch.tensor([[True] + [False] * 5])
    view = model.views(torch.zeros(1, 6, 24), None, far)[2]
    seen = view.local.pattern.dense(1, 6, 6, far.device)[0]
    assert view.rows is not None and view.rows.tolist() == [[0]]
    seen[0] = view.everywhere.pattern.dense(1, 1, 6, far.device)[0, 0]
    assert ["".join(str(int(x)) for x in row) for row in seen] == GOLDEN


@torch.no_grad()
def test_half_of_a_window_is_on_each_side(tmp_path: Path) -> None:
    """Of one layer with a window of 4, a row changes with the two tokens before and behind it."""
    reference, loaded = pair(tmp_path, num_hidden_layers=1, attention_window=[4])
    ids, row = words(VOCABULARY, 1, 16, low=PAD + 1), 8

    def rows(some: Tensor) -> list[Tensor]:
        theirs_ = reference.longformer(some, global_attention_mask=torch.zeros_like(some))
        return [loaded.model(some)[0, row], theirs_.last_hidden_state[0, row]]

    before, seen = rows(ids), [[], []]
    for place in range(16):
        other = ids.clone()
        other[0, place] = PAD + 1 + (other[0, place] - PAD) % (VOCABULARY - PAD - 1)
        for places_, a, b in zip(seen, before, rows(other), strict=True):
            if not torch.allclose(a, b, atol=1e-6):
                places_.append(place)
    assert seen == [[6, 7, 8, 9, 10]] * 2


def test_places_of_global_tokens() -> None:
    assert places(ragged()).tolist() == [[0, 1, 42], [14, -1, -1], [-1, -1, -1]]  # type: ignore[union-attr]
    assert places(torch.zeros(2, 5, dtype=torch.bool)) is None


# A short encoder made long.


def tiny(**changes: Any) -> BertConfig:
    small: dict[str, Any] = {"vocab_size": VOCABULARY, "context": 20, "width": 24, "layers": 3}
    return BertConfig(**small | {"heads": 3, "ffn_size": 40} | changes)


def short(heads: dict[str, int] | None = None, **changes: Any) -> Any:
    return scramble(Bert(tiny(**changes), heads))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_long_copy_says_the_same_of_short_texts(side: str) -> None:
    bert = short()
    long = lengthen(bert, context=70, window=40)  # every row sees all others
    attention_mask, segments = marks([20, 11, 5], side), words(2, BATCH, 20, seed=4)
    ids = words(VOCABULARY, BATCH, 20)
    with torch.no_grad():
        one, two = bert(ids, attention_mask, segments), long(ids, attention_mask, segments)
        wide = long(ids, attention_mask, segments, attention_mask & (torch.arange(20) % 3 == 0))
        close(long.logits(two)[attention_mask], bert.logits(one)[attention_mask])
    close(two[attention_mask], one[attention_mask])
    close(wide[attention_mask], one[attention_mask])  # the global projections are copies


def test_positions_are_absolute_and_those_of_a_long_copy_repeat() -> None:
    for padding in (3, 0):
        bert = short(pad_id=padding)
        long = lengthen(bert, context=50, window=(2, 4, 6))
        old, new = bert.embeddings.positions.weight, long.embeddings.positions.weight
        assert new.shape == (50 + padding + 1, 24)
        assert torch.equal(new[padding + 1 :], torch.cat([old, old, old[:10]]))
    assert not any(isinstance(part, Relative) for part in long.modules())
    assert sizes()["longformer-base-4096"].context == 4096


def test_global_tokens_have_projections_of_their_own() -> None:
    bert = short()
    long = lengthen(bert, context=50, window=(2, 4, 6))
    for before, after in zip(bert.blocks, long.blocks, strict=True):
        attention = after.attention.layer
        for part in (attention.local, attention.wide):  # they start as copies
            assert torch.equal(part.project.weight, before.attention.layer.project.weight)
            assert torch.equal(part.project.bias, before.attention.layer.project.bias)
        assert attention.local.out is attention.wide.out
    ids, wide = words(VOCABULARY, 1, 20), torch.arange(20)[None] == 4
    with torch.no_grad():
        same = long(ids, None, None, wide)
        long.blocks[-1].attention.layer.wide.project.weight.mul_(2.0)
        changed = (long(ids, None, None, wide) != same).any(-1)
    assert changed.tolist() == wide.tolist()  # in the last layer: that row alone


def test_a_long_copy_is_a_copy() -> None:
    bert = short()
    before = bert.blocks[0].attention.layer.project.weight.clone()
    long = lengthen(bert, 40, 8)
    assert not long.training
    with torch.no_grad():
        long.blocks[0].attention.layer.local.project.weight.zero_()
    assert torch.equal(bert.blocks[0].attention.layer.project.weight, before)
    assert lengthen(bert.train().bfloat16(), 40, 8).training
    assert lengthen(bert, 40, 8).blocks[0].attention.norm.weight.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("heads", "kind"),
    [
        (None, transformers.LongformerForMaskedLM),
        ({"masked": 0}, transformers.LongformerForMaskedLM),
        ({"pool": 0}, transformers.LongformerModel),
        ({"classify": 4}, transformers.LongformerForSequenceClassification),
        ({"tag": 4}, transformers.LongformerForTokenClassification),
        ({"answer": 2}, transformers.LongformerForQuestionAnswering),
        ({"choose": 1}, transformers.LongformerForMultipleChoice),
    ],
    ids=str,
)
def test_a_long_copy_is_saved_as_a_longformer(
    tmp_path: Path, heads: dict[str, int] | None, kind: Any
) -> None:
    long = lengthen(short(heads), context=50, window=8)
    save(long, tmp_path)
    reference, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert {name: list(logits) for name, logits in report.items() if logits} == {}
    attention_mask = marks([41, 12, 30], "right")
    ids = torch.where(attention_mask, words(VOCABULARY, BATCH, 41, low=1), 0)
    far = torch.zeros(BATCH, 41, dtype=torch.bool)
    far[:, 0] = True
    head = next(iter(long.heads), "masked")
    with torch.no_grad():
        hidden = long(ids, attention_mask, None, far)
        logits = (
            long.logits(hidden) if head == "masked" else long.read(head, hidden, attention_mask)
        )
        expected = answered(reference.eval(), head, ids, inputs(attention_mask, far))
    by_row = head in ("masked", "tag", "answer")
    all_close([logits], [expected], attention_mask if by_row else None)
    with torch.no_grad():
        assert torch.equal(load(tmp_path).model(ids, attention_mask, None, far), hidden)


def test_a_long_copy_cannot_guess_words_with_another_activation() -> None:
    """The published head uses the exact GELU, whatever the layers use."""
    with refuses(ConfigError, "gelu_tanh"):
        lengthen(short(activation="gelu_tanh"))
    assert lengthen(short({"classify": 3}, activation="gelu_tanh"), 40, 8)


@pytest.mark.parametrize(
    "wrong", [{"window": 3}, {"window": 0}, {"window": (4, 4)}, {"window": (4, 4, 5)}], ids=str
)
def test_windows_that_cannot_be(wrong: dict[str, Any]) -> None:
    with refuses(ConfigError, "window"):
        LongformerConfig(layers=3, width=24, heads=3, **wrong)


def test_a_padding_beyond_the_old_positions_is_no_obstacle():
    bert = Bert(BertConfig(60, context=8, width=16, layers=1, heads=2, ffn_size=32, pad_id=50))
    long = lengthen(bert, 20, 4)
    table, old = long.embeddings.positions.weight, bert.embeddings.positions.weight
    assert table.size(0) == 51 + 20 and torch.equal(table[51:59], old)
