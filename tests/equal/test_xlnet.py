"""XLNet beside transformers: two streams, memories, segments, directions, every head, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

from regard.api import LoadedModel
from regard.formats.format import unstacked
from regard.formats.xlnet import XLNET
from regard.models.state import State
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

VOCABULARY, ROWS, BATCH = 61, 11, 4
GOLDEN_ORDER = [-1, 2, -1, 3, 1, 5]  # a b c d SEP CLS; b and d are masked, SEP and CLS functional
GOLDEN_BLOCKED = ["010111", "010101", "010111", "000101", "010101", "000000"]  # for the query rows


def config(**changes: Any) -> transformers.XLNetConfig:
    small = {"vocab_size": VOCABULARY, "d_model": 24, "n_layer": 3, "n_head": 3, "d_inner": 40}
    return transformers.XLNetConfig(**small | {"dropout": 0.0, "mem_len": None} | changes)


def pair(
    path: Path, kind: Any = transformers.XLNetLMHeadModel, **changes: Any
) -> tuple[Any, LoadedModel]:
    reference = scramble(kind(config(**changes)))
    return reference, ours(reference, path / "theirs")


def tokens(*shape: int, seed: int = 1) -> Tensor:
    return words(VOCABULARY, *(shape or (BATCH, ROWS)), seed=seed)


def segments(*shape: int, seed: int = 2) -> Tensor:
    return words(3, *(shape or (BATCH, ROWS)), seed=seed)


def sampled(rows: int, count: int, seed: int = 3) -> tuple[Tensor, Tensor]:
    """For each text the ranks of its words, -1 where they are given, and the places to guess."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.stack([torch.randperm(rows, generator=generator)[:count] for _ in range(BATCH)])
    order = torch.full((BATCH, rows), -1)
    return order.scatter(1, places, torch.arange(count).expand(BATCH, count)), places


def blocked(order: Tensor, targets: Tensor) -> Tensor:
    """perm_mask by the authors' rule: one's own index counts one more where nothing is guessed."""
    guessed = torch.zeros_like(order).scatter(1, targets, 1).bool()
    own = torch.where(guessed, order, order + 1)
    return ((own[:, :, None] <= order[:, None, :]) & (order >= 0)[:, None, :]).float()


def mapping(targets: Tensor, rows: int) -> Tensor:
    return F.one_hot(targets, rows).float()


def compare(
    reference: Any, model: Any, attention_mask: Tensor | None, ids: Tensor, seg: Tensor
) -> None:
    """Content stream: logits and all layers."""
    mask = None if attention_mask is None else attention_mask.float()
    with torch.no_grad(), layers(model.blocks) as rows:
        logits = model.logits(model(ids, attention_mask, seg))
        expected = reference(
            ids, attention_mask=mask, token_type_ids=seg, output_hidden_states=True
        )
    all_close([logits, *rows], [expected.logits, *expected.hidden_states], attention_mask)


def close_streams(streams: list[Tensor], expected: tuple[Tensor, ...], rows: int) -> None:
    """Our rows are [content ; query], theirs alternate."""
    assert len(expected) == 2 * len(streams)
    for i, layer in enumerate(streams):
        close(layer[:, :rows].detach(), expected[2 * i].detach())
        close(layer[:, rows:].detach(), expected[2 * i + 1].detach())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ff_activation": "relu", "layer_norm_eps": 1e-5},
        {"ff_activation": "gelu_new"},
        {"clamp_len": 4},
        {"attn_type": "uni"},
        {"bi_data": True},
        {"bi_data": True, "clamp_len": 3},
    ],
    ids=str,
)
def test_the_content_stream_and_the_way_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference, loaded = pair(tmp_path, **changes)
    compare(reference, loaded.model, None, tokens(), segments())
    back = theirs(loaded, tmp_path / "ours", type(reference))
    same_config(reference.config, back.config)
    with torch.no_grad():
        assert torch.equal(back(tokens()).logits, reference(tokens()).logits)
        close(loaded.model.logits(loaded.model(tokens())), reference(tokens()).logits)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("changes", [{}, {"bi_data": True}], ids=str)
def test_padding_on_either_side(tmp_path: Path, side: str, changes: dict[str, Any]) -> None:
    reference, loaded = pair(tmp_path, **changes)
    compare(reference, loaded.model, marks([ROWS, 7, 4, 9], side), tokens(), segments())


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_from_left_to_right(tmp_path: Path, side: str) -> None:
    """Here the reference adds its masks in place, which works for one text at a time."""
    reference, loaded = pair(tmp_path, attn_type="uni")
    attention_mask = marks([ROWS, 7, 4], side)
    for i in range(3):
        one = slice(i, i + 1)
        compare(reference, loaded.model, attention_mask[one], tokens()[one], segments()[one])


@pytest.mark.parametrize("changes", [{}, {"bi_data": True}, {"clamp_len": 3}], ids=str)
@pytest.mark.parametrize("count", [2, 6, ROWS - 1])
def test_two_streams_in_any_order(tmp_path: Path, changes: dict[str, Any], count: int) -> None:
    reference, loaded = pair(tmp_path, **changes)
    order, targets = sampled(ROWS, count)
    with torch.no_grad(), layers(loaded.model.blocks) as rows:
        hidden = loaded.model(tokens(), segments=segments(), order=order, targets=targets)
        logits = loaded.model.logits(hidden)
        expected = reference(
            tokens(),
            token_type_ids=segments(),
            perm_mask=blocked(order, targets),
            target_mapping=mapping(targets, ROWS),
            output_hidden_states=True,
        )
    close(logits, expected.logits)
    close_streams(rows, expected.hidden_states, ROWS)


@pytest.mark.parametrize("side", ["left", "right"])
def test_two_streams_with_padding(tmp_path: Path, side: str) -> None:
    reference, loaded = pair(tmp_path)
    order, targets = sampled(ROWS, 4)
    attention_mask = marks([ROWS, ROWS - 1, ROWS, ROWS - 2], side)
    attention_mask.scatter_(1, targets, True)  # nobody guesses padding
    with torch.no_grad():
        logits = loaded.model.logits(
            loaded.model(tokens(), attention_mask, segments(), order, targets)
        )
        expected = reference(
            tokens(),
            attention_mask=attention_mask.float(),
            token_type_ids=segments(),
            perm_mask=blocked(order, targets),
            target_mapping=mapping(targets, ROWS),
        )
    close(logits, expected.logits)


def test_left_to_right_guesses_are_the_order_of_the_text(tmp_path: Path) -> None:
    """Their class would let a query of `uni` see its own word; with the strict mask it cannot."""
    reference, loaded = pair(tmp_path, attn_type="uni")
    targets, strict = torch.tensor([[3, 8]]), torch.ones(1, ROWS, ROWS).triu()
    ids, places = tokens(1, ROWS), mapping(targets, ROWS)
    with torch.no_grad():
        logits = loaded.model.logits(loaded.model(ids, targets=targets))
        close(logits, reference(ids, perm_mask=strict, target_mapping=places).logits)


def test_the_worked_example(tmp_path: Path) -> None:
    reference, loaded = pair(tmp_path)
    order, targets = torch.tensor([GOLDEN_ORDER]), torch.tensor([[1, 3]])
    table = torch.tensor([[int(c) for c in row] for row in GOLDEN_BLOCKED]).bool()
    assert torch.equal(blocked(order, targets)[0].bool(), table)
    view = loaded.model.view(torch.zeros(1, 8, 24), 0, 6, None, None, order, targets)
    seen = view.pattern.dense(1, 8, 6, table.device)[0]
    assert torch.equal(seen[:6], ~table | torch.eye(6).bool())
    assert torch.equal(seen[6:], ~table[[1, 3]])
    with torch.no_grad():
        logits = loaded.model.logits(loaded.model(tokens(1, 6), order=order, targets=targets))
        mask, places = table[None].float(), mapping(targets, 6)
        close(logits, reference(tokens(1, 6), perm_mask=mask, target_mapping=places).logits)


@pytest.mark.parametrize(
    ("streams", "changes"),
    [
        (1, {"mem_len": None}),
        (2, {"mem_len": 0}),
        (2, {"mem_len": 6}),
        (1, {"mem_len": 16}),
        (2, {"mem_len": 14, "reuse_len": 5}),
        (1, {"mem_len": 3, "reuse_len": 9, "bi_data": True}),
        (2, {"mem_len": 3, "reuse_len": 9, "bi_data": True}),
        (2, {"mem_len": None, "reuse_len": 6, "clamp_len": 8}),
        (1, {"mem_len": 9, "reuse_len": 0, "attn_type": "uni"}),
    ],
    ids=str,
)
def test_memories_over_four_segments(tmp_path: Path, changes: dict[str, Any], streams: int) -> None:
    reference, loaded = pair(tmp_path, **changes)
    state, memories = State(), None
    for i, rows in enumerate([9, 11, 7, 9]):
        ids, seg = tokens(BATCH, rows, seed=i), segments(BATCH, rows, seed=i + 9)
        our_inputs, their_inputs = {}, {}
        if streams == 2:
            order, targets = sampled(rows, rows if i else 4, seed=i)
            our_inputs = {"order": order, "targets": targets}
            their_inputs = {
                "perm_mask": blocked(order, targets),
                "target_mapping": mapping(targets, rows),
            }
        with torch.no_grad(), layers(loaded.model.blocks) as blocks:
            logits = loaded.model.logits(loaded.model(ids, segments=seg, state=state, **our_inputs))
            expected = reference(
                ids, token_type_ids=seg, mems=memories, output_hidden_states=True, **their_inputs
            )
        close(logits, expected.logits)
        if streams == 2:
            close_streams(blocks, expected.hidden_states, rows)
        else:
            all_close(blocks, list(expected.hidden_states))
        memories = expected.mems
        all_close(state.hidden, [memory.transpose(0, 1) for memory in memories])


def test_a_guess_that_sees_nothing_knows_only_its_place(tmp_path: Path) -> None:
    """The first of a whole permutation. The reference averages what it must not see."""
    reference, loaded = pair(tmp_path)
    order, targets = sampled(ROWS, ROWS)
    with torch.no_grad():
        one, two = (
            loaded.model(tokens(seed=seed), order=order, targets=targets[:, :2]) for seed in (1, 2)
        )
        theirs_one, theirs_two = (
            reference.transformer(
                tokens(seed=seed), perm_mask=blocked(order, targets),
                target_mapping=mapping(targets, ROWS),
            ).last_hidden_state[:, 0]
            for seed in (1, 2)
        )  # fmt: skip
    assert torch.equal(one[:, 0], two[:, 0])
    assert not torch.equal(one[:, 1], two[:, 1])
    assert not torch.equal(theirs_one, theirs_two)


# Of gradients in fp32, beside their largest: 1.2e-5 on a processor with AVX-512 and without bf16.
# (The reference has no fp64: it makes its positions in fp32.)
ROUNDING = 2e-5


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_the_gradient_of_a_training_step(tmp_path: Path, layers: int, learning: bool) -> None:
    """While learning, the last layer leaves out the content rows, which nobody would read."""
    reference, loaded = pair(tmp_path, mem_len=8, n_layer=layers)
    loaded.model.train(learning)
    order, targets = sampled(ROWS, 5)
    answers = tokens(BATCH, 5, seed=8)
    state, memories = State(), None
    for i in range(3):
        hidden = loaded.model(tokens(seed=i), None, segments(), order, targets, state)
        loss = loaded.model.output.surprisal(hidden.flatten(0, 1), answers.flatten())
        expected = reference(
            tokens(seed=i),
            token_type_ids=segments(),
            perm_mask=blocked(order, targets),
            target_mapping=mapping(targets, ROWS),
            mems=memories,
            labels=answers,
        )
        memories = expected.mems
        loss = loss / answers.numel()
        close(loss.detach(), expected.loss.detach())
        loss.backward()
        expected.loss.backward()
    gradients = {name: p.grad for name, p in loaded.model.named_parameters()}
    compared = set()
    for entry in XLNET.table(loaded.config, {"masked": 0}):
        for key, value in unstacked(gradients[entry.ours], entry).items():
            expected_ = reference.get_parameter(key).grad
            most = expected_.abs().max()
            close(value / most, expected_ / most, ROUNDING)
            compared.add(key)
    assert compared == {name for name, _ in reference.named_parameters()}


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        (transformers.XLNetForSequenceClassification, "classify"),
        (transformers.XLNetForTokenClassification, "tag"),
        (transformers.XLNetForMultipleChoice, "choose"),
    ],
)
@pytest.mark.parametrize("padded", [False, True])
def test_heads(tmp_path: Path, kind: Any, head: str, padded: bool) -> None:
    """Padding stands on the left, where the reference expects it: it reads the last row."""
    reference, loaded = pair(tmp_path, kind, num_labels=5)
    attention_mask = marks([ROWS, 6, 3, 8], "left") if padded else None
    mask = None if attention_mask is None else attention_mask.float()
    shape = (2, 2, ROWS) if head == "choose" else (BATCH, ROWS)
    inputs = {"token_type_ids": segments().view(shape)}
    inputs |= {} if mask is None else {"attention_mask": mask.view(shape)}
    with torch.no_grad():
        hidden = loaded.model(tokens(), attention_mask, segments())
        logits = loaded.model.read(head, hidden, attention_mask)
        expected = reference(tokens().view(shape), **inputs).logits
        if head == "tag":
            all_close([logits], [expected], attention_mask)
        else:
            close(logits.view(expected.shape), expected)
        back = theirs(loaded, tmp_path / "ours", kind)
        same_config(reference.config, back.config)
        assert torch.equal(back(tokens().view(shape), **inputs).logits, expected)


def test_the_summary_is_the_last_real_row(tmp_path: Path) -> None:
    reference, loaded = pair(tmp_path, transformers.XLNetForSequenceClassification, num_labels=3)
    lengths = [ROWS, 6, 3, 8]
    attention_mask = marks(lengths, "right")
    with torch.no_grad():
        logits = loaded.model.read(
            "classify", loaded.model(tokens(), attention_mask), attention_mask
        )
        alone = [reference(tokens()[i : i + 1, :n]).logits[0] for i, n in enumerate(lengths)]
    close(logits, torch.stack(alone))


def test_simple_answers(tmp_path: Path) -> None:
    kind = transformers.XLNetForQuestionAnsweringSimple
    reference, loaded = pair(tmp_path, kind)
    with torch.no_grad():
        logits = loaded.model.read("answer", loaded.model(tokens(), segments=segments()))
        expected = reference(tokens(), token_type_ids=segments())
        close(logits, torch.stack([expected.start_logits, expected.end_logits], -1))
        back = theirs(loaded, tmp_path / "ours", kind)
        same_config(reference.config, back.config)
        assert torch.equal(back(tokens()).start_logits, reference(tokens()).start_logits)


def test_answers_whose_end_depends_on_the_start(tmp_path: Path) -> None:
    kind = transformers.XLNetForQuestionAnswering
    reference, loaded = pair(tmp_path, kind, start_n_top=3, end_n_top=2)
    span = loaded.model.heads["span"]
    with torch.no_grad():
        hidden = loaded.model(tokens(), segments=segments())
        starts = loaded.model.read("span", hidden)
        expected = reference(tokens(), token_type_ids=segments())
        best = starts.softmax(-1).topk(3)
        assert torch.equal(best.indices, expected.start_top_index)
        close(best.values, expected.start_top_log_probs)
        ends = torch.stack([span.ends(hidden, start) for start in best.indices.unbind(1)], -1)
        likely = ends.softmax(1).topk(2, 1)
        assert torch.equal(likely.indices.flatten(1), expected.end_top_index)
        close(likely.values.flatten(1), expected.end_top_log_probs)
        close(span.unanswerable(hidden, starts), expected.cls_logits)
        back = theirs(loaded, tmp_path / "ours", kind)
        same_config(reference.config, back.config)
        assert torch.equal(back(tokens()).cls_logits, reference(tokens()).cls_logits)


@pytest.mark.parametrize("side", ["left", "right"])
def test_answers_with_padding(tmp_path: Path, side: str) -> None:
    reference, loaded = pair(tmp_path, transformers.XLNetForQuestionAnswering)
    attention_mask = marks([ROWS, 6, 3, 8], side)
    last = torch.tensor([ROWS, 6, 3, 8]) - 1 if side == "right" else torch.full((4,), ROWS - 1)
    with torch.no_grad():
        hidden = loaded.model(tokens(), attention_mask)
        logits = loaded.model.heads["span"].unanswerable(
            hidden, loaded.model.read("span", hidden, attention_mask), attention_mask
        )
        expected = reference(
            tokens(),
            attention_mask=attention_mask.float(),
            p_mask=(~attention_mask).float(),
            cls_index=last,
        )
    close(logits, expected.cls_logits)


def test_the_base_class(tmp_path: Path) -> None:
    reference, loaded = pair(tmp_path, transformers.XLNetModel)
    with torch.no_grad():
        close(loaded.model(tokens()), reference(tokens()).last_hidden_state)
        back = theirs(loaded, tmp_path / "ours", transformers.XLNetModel)
        assert torch.equal(back(tokens()).last_hidden_state, reference(tokens()).last_hidden_state)
