"""What a recorder shows is what the model did, and looking leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard
from regard.attention.attention import Attention, unseen
from regard.attention.recorder import AttentionCall, record
from regard.models.base import EncoderDecoder
from regard.models.bert import Bert, BertConfig
from regard.models.state import State
from tests.equal.reference import close, marks, ours, scramble, words
from tests.laws.zoo import ATTENTIVE, Specimen, collate
from tests.refusals import refuses

VOCABULARY = 41
SMALL = {"vocab_size": VOCABULARY, "attn_implementation": "eager"}


def specimen(name: str) -> Specimen:
    return next(one for one in ATTENTIVE if one.name == name)


def attentions(model: nn.Module) -> list[Attention]:
    return [part for part in model.modules() if isinstance(part, Attention)]


def joined(value: Tensor) -> Tensor:
    return value.transpose(1, 2).flatten(2)


def texts(kind: Specimen, padded: bool = True) -> dict[str, Tensor]:
    if not padded:
        return collate([kind.text(6, 1)] * 2, marks=False).inputs
    return collate([kind.text(n, i) for i, n in enumerate((6, 3, 5))]).inputs


@pytest.mark.parametrize("kind", ATTENTIVE, ids=str)
@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_the_weights_make_the_output(kind: Specimen, padded: bool) -> None:
    """Every attention's output, as it enters the last matrix, is made of what was recorded."""
    model, outputs = kind.fresh(), []
    lasts = {id(part.out): part.out for part in attentions(model)}.values()
    hooks = [
        out.register_forward_pre_hook(lambda _, args: outputs.append(args[0])) for out in lasts
    ]
    with record(model) as seen:
        model(**texts(kind, padded))
    for hook in hooks:
        hook.remove()
    assert len(seen) == len(outputs) > 0
    for one, output in zip(seen, outputs, strict=True):
        close(joined(one.output), output)
        total = one.weights.sum(-1)
        assert one.weights.min() >= 0.0
        assert ((total - 1).abs().lt(1e-5) | total.eq(0.0)).all()


@pytest.mark.parametrize("kind", ATTENTIVE, ids=str)
def test_gradients_and_outputs_are_the_same_to_the_bit(kind: Specimen) -> None:
    """In training too, with dropout, under the same seed."""
    results = []
    for looking in (False, True):
        model = kind.fresh().train()
        torch.manual_seed(7)
        if looking:
            with record(model) as seen:
                hidden = model(**texts(kind))
        else:
            hidden = model(**texts(kind))
        hidden.square().sum().backward()
        results.append([hidden, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))
    assert not any(t.requires_grad for one in seen for t in (one.queries, one.keys, one.weights))


def test_the_weights_shown_are_those_before_dropout() -> None:
    config = BertConfig(VOCABULARY, 32, 24, 1, 3, 40, dropout=0.0, dropout_attention=0.5)
    model, tokens = scramble(Bert(config)), words(VOCABULARY, 2, 9)
    with record(model) as calm:
        model(tokens)
    with record(model.train()) as wild:
        model(tokens)
    assert torch.equal(calm[0].weights, wild[0].weights)


@torch.no_grad()
def test_names_and_shapes_of_an_encoder_and_decoder() -> None:
    kind = specimen("t5")
    model: EncoderDecoder = kind.fresh()
    tokens = words(29, 2, 7), words(29, 2, 4)
    with record(model) as seen:
        model(*tokens)
    assert [tuple(one.weights.shape) for one in seen.named("encoder")] == [(2, 2, 7, 7)] * 2
    assert [tuple(one.weights.shape) for one in seen.named("cross")] == [(2, 2, 4, 7)] * 3
    own = [one for one in seen.named("decoder") if "cross" not in one.name]
    assert [tuple(one.weights.shape) for one in own] == [(2, 2, 4, 4)] * 3
    assert len(seen.named("")) == len(seen) == 8
    first, *others = str(seen).splitlines()
    assert first == "8 recorded attentions" and len(others) == 8
    assert others[0] == f"{seen[0].name}: weights {[*seen[0].weights.shape]}"
    assert all((one.how.bias is None) == ("cross" in one.name) for one in seen)


@torch.no_grad()
def test_both_streams_of_xlnet_and_its_memory() -> None:
    """Content rows come first, then those that ask; the memory's columns come first."""
    model, state = specimen("xlnet-asking").fresh(), State()
    order, targets = torch.tensor([[3, -1, 0, 2, 1]]), torch.tensor([[0, 2]])
    model(words(29, 1, 4), state=state)
    with record(model) as seen:
        model(words(29, 1, 5), order=order, targets=targets, state=state)
    for one in seen:
        assert one.weights.shape == (1, 2, 5 + 2, 4 + 5)
        read = one.weights[0].sum(0) > 0
        assert read[:, :4].all()
        assert torch.equal(read[:5, 4:], order[0] <= order[0, :, None])
        assert torch.equal(read[5:, 4:], order[0] < order[0, targets[0], None])


@torch.no_grad()
def test_the_memory_of_transformer_xl() -> None:
    model, state = specimen("transformer-xl").fresh(), State()
    for i, rows in enumerate((3, 5, 2)):
        with record(model) as seen:
            model(words(29, 2, rows, seed=i), state=state)
        past = (0, 3, 8)[i]
        for one in seen:
            assert one.weights.shape == (2, 2, rows, past + rows)
            read = one.weights[0, 0] > 0
            assert torch.equal(read, torch.ones(rows, past + rows).tril(past).bool())


@torch.no_grad()
def test_windows_and_global_rows_of_longformer() -> None:
    model = specimen("longformer").fresh()
    wide = torch.zeros(2, 50, dtype=torch.bool)
    wide[0, [0, 30]] = wide[1, 7] = True
    with record(model) as seen:
        model(words(29, 2, 50), global_tokens=wide)
    assert [tuple(one.weights.shape) for one in seen.named("wide")] == [(2, 2, 2, 50)] * 2
    at = torch.arange(50)
    for one, side in zip(seen.named("local"), (1, 2), strict=True):
        near = (at[:, None] - at).abs() <= side
        assert torch.equal(one.weights[:, 0] > 0, near | wide[:, None])
    with record(model) as seen:
        model(words(29, 2, 50))
    assert not seen.named("wide") and len(seen.named("local")) == 2


@torch.no_grad()
def test_every_step_with_a_cache_is_kept_as_it_was() -> None:
    model, tokens = specimen("gpt2").fresh(), words(29, 2, 6)
    state = model.start(2, 6)
    with record(model) as seen:
        for i in range(6):
            model(tokens[:, i : i + 1], state=state)
    with record(model) as whole:
        model(tokens)
    for i in range(6):
        for layer in range(2):
            step = seen[2 * i + layer].weights
            close(step, whole[layer].weights[:, :, i : i + 1, : i + 1])


def test_kernels_come_back_whatever_happens() -> None:
    model = specimen("bert").fresh()
    with refuses(RuntimeError, "lost"), record(model):
        raise RuntimeError("lost")
    with pytest.raises(regard.core.errors.InputError), record(model) as seen:
        model(torch.tensor([[99]]))
    assert len(seen) == 0
    assert all(part.kernel is unseen for part in attentions(model))


@torch.no_grad()
def test_one_may_look_over_anothers_shoulder() -> None:
    model, tokens = specimen("bert").fresh(), words(29, 1, 4)
    with record(model) as outer:
        model(tokens)
        with record(model.blocks[1]) as inner:
            model(tokens)
        model(tokens)
    assert (len(outer), len(inner)) == (6, 1)
    assert torch.equal(inner[0].weights, outer[3].weights)
    assert inner[0].name == "attention.layer" and outer[3].name == "blocks.1.attention.layer"
    assert all(part.kernel is unseen for part in attentions(model))


@torch.no_grad()
def test_half_precision() -> None:
    model, tokens = specimen("gpt2").fresh(), words(29, 2, 9)
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(tokens)
        with record(model) as seen:
            assert torch.equal(model(tokens), expected)
    for one in seen:
        assert one.queries.dtype == torch.bfloat16
        close(one.weights.float().sum(-1), torch.ones(2, 2, 9), 2e-2)


# Beside transformers.


def agree(
    seen: list[AttentionCall], expected: tuple[Tensor, ...], attention_mask: Tensor | None = None
) -> None:
    """At the real rows; what others weigh is nobody's concern."""
    assert len(seen) == len(expected)
    for one, other in zip(seen, expected, strict=True):
        rows = slice(None) if attention_mask is None else attention_mask
        close(one.weights.transpose(1, 2)[rows], other.transpose(1, 2)[rows])


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_bert_and_gpt2(tmp_path: Path, side: str) -> None:
    attention_mask, tokens = marks([9, 4, 6], side), words(VOCABULARY, 3, 9)
    places = (attention_mask.long().cumsum(1) - 1).clamp_min(0)
    bert = transformers.BertConfig(**SMALL, hidden_size=24, num_hidden_layers=2,
                                   num_attention_heads=3, intermediate_size=40)  # fmt: skip
    gpt = transformers.GPT2Config(**SMALL, n_embd=24, n_layer=2, n_head=3, n_positions=30)
    for reference in (transformers.BertForMaskedLM(bert), transformers.GPT2LMHeadModel(gpt)):
        model = ours(scramble(reference), tmp_path / type(reference).__name__).model
        with record(model) as seen:
            model(tokens, attention_mask)
        inputs: dict[str, Any] = {"attention_mask": attention_mask.long(), "position_ids": places}
        agree(
            list(seen),
            reference(tokens, **inputs, output_attentions=True).attentions,
            attention_mask,
        )


@torch.no_grad()
def test_t5(tmp_path: Path) -> None:
    config = transformers.T5Config(**SMALL, d_model=24, d_kv=7, num_heads=3, d_ff=40, num_layers=2,
                                   num_decoder_layers=3)  # fmt: skip
    reference = scramble(transformers.T5ForConditionalGeneration(config))
    model = ours(reference, tmp_path).model
    attention_mask, source, target = (
        marks([9, 4], "right"),
        words(VOCABULARY, 2, 9),
        words(VOCABULARY, 2, 5),
    )
    with record(model) as seen:
        model(source, target, attention_mask)
    expected = reference(
        source, attention_mask.long(), decoder_input_ids=target, output_attentions=True
    )
    agree(seen.named("encoder"), expected.encoder_attentions, attention_mask)
    agree(seen.named("cross"), expected.cross_attentions)
    own = [one for one in seen.named("decoder") if "cross" not in one.name]
    agree(own, expected.decoder_attentions)


@torch.no_grad()
def test_xlnet(tmp_path: Path) -> None:
    config = transformers.XLNetConfig(vocab_size=VOCABULARY, d_model=24, n_layer=2, n_head=3,
                                      d_inner=40, mem_len=5)  # fmt: skip
    reference = scramble(transformers.XLNetLMHeadModel(config))
    model, state = ours(reference, tmp_path).model, State()
    before, tokens = words(VOCABULARY, 1, 6, seed=5), words(VOCABULARY, 1, 5)
    order, targets = torch.tensor([[3, -1, 0, 2, 1]]), torch.tensor([[3, 0]])
    model(before, state=state)
    with record(model) as seen:
        model(tokens, order=order, targets=targets, state=state)
    blocked = (order[:, None, :] >= order[:, :, None]) & (order >= 0)[:, None, :]
    mapping = nn.functional.one_hot(targets, 5).float()
    mems = reference(before).mems
    expected = reference(tokens, mems=mems, perm_mask=blocked.float(), target_mapping=mapping,
                         output_attentions=True).attentions  # fmt: skip
    for one, (content, asking) in zip(seen, expected, strict=True):
        close(one.weights[:, :, :5], content)
        close(one.weights[:, :, 5:], asking[:, :, targets[0]])


@torch.no_grad()
def test_longformer(tmp_path: Path) -> None:
    """Theirs are laid out as [global keys ; window]; ours over all keys."""
    config = transformers.LongformerConfig(vocab_size=VOCABULARY, hidden_size=24,
        num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, attention_window=[4, 8],
        max_position_embeddings=50, pad_token_id=1, type_vocab_size=1)  # fmt: skip
    reference = scramble(transformers.LongformerForMaskedLM(config))
    model, tokens = ours(reference, tmp_path).model, words(VOCABULARY, 1, 29, low=2)
    far = torch.tensor([3, 17])
    wide = torch.zeros(1, 29, dtype=torch.bool).index_fill(1, far, True)
    with record(model) as seen:
        model(tokens, global_tokens=wide)
    expected = reference(tokens, global_attention_mask=wide.long(), output_attentions=True)
    for i, side in enumerate((2, 4)):
        local, window = seen.named("local")[i].weights, expected.attentions[i][..., 2:]
        at = torch.arange(29)[:, None] + torch.arange(-side, side + 1)
        laid = torch.zeros(1, 3, 29, 29 + 2 * side)
        laid.scatter_add_(-1, (at + side).expand_as(window), window)
        laid = laid[..., side:-side]
        laid[..., far] += expected.attentions[i][..., :2]
        close(local[:, :, ~wide[0]], laid[:, :, ~wide[0]])
        everywhere = expected.global_attentions[i].transpose(2, 3)[..., :29]
        close(seen.named("wide")[i].weights, everywhere)


@torch.no_grad()
def test_an_encoder_gives_a_vector_for_each_token_and_a_decoder_reads_all() -> None:
    model: EncoderDecoder = specimen("transformer").fresh()
    source, target = words(29, 2, 7), words(29, 2, 4)
    assert model.encode(source).shape == (2, 7, model.config.width)
    with record(model) as seen:
        model(source, target)
    cross = seen.named("cross")
    assert len(cross) == len(model.decoder_blocks)
    for one in cross:
        assert one.weights.shape[2:] == (4, 7) and (one.weights > 0).all()


@torch.no_grad()
def test_one_table_of_distances_serves_all_layers_of_a_stack_of_t5() -> None:
    """A change of one number changes the bias of every layer there, and none of the other stack."""
    model: EncoderDecoder = specimen("t5").fresh()
    assert [n for n, _ in model.named_parameters() if "distances" in n] == [
        "encoder.distances.weight", "decoder.distances.weight"
    ]  # fmt: skip
    tokens = words(29, 2, 7), words(29, 2, 4)

    def biases() -> dict[str, list[Tensor | None]]:
        with record(model) as seen:
            model(*tokens)
        parts: dict[str, list[Tensor | None]] = {"encoder": [], "decoder": [], "cross": []}
        for one in seen:
            parts["cross" if "cross" in one.name else one.name.split(".")[0]].append(one.how.bias)
        return parts

    before = biases()
    model.encoder.distances.weight[0] += 1.0
    after = biases()
    assert [len(some) for some in before.values()] == [2, 3, 3]
    for stack in ("encoder", "decoder"):
        first, *others = before[stack]
        assert first is not None and all(torch.equal(first, other) for other in others)
        changed = [not torch.equal(a, b) for a, b in zip(before[stack], after[stack], strict=True)]
        assert changed == [stack == "encoder"] * len(changed)
    assert before["cross"] == [None] * 3
