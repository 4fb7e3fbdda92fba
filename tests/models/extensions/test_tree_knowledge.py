"""Branches in every encoder: who sees whom, where tokens stand, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Full, Pattern
from regard.attention.tree_pattern import Branches, limited
from regard.attention.window import Window
from regard.core.errors import InputError
from regard.data.knowledge.tree import FlatTree, KnowledgeTree
from regard.models.bert import Bert, BertConfig
from regard.models.extensions.tree_knowledge import Knowledge
from tests.laws.zoo import VOCABULARY, ZOO, Specimen, close, model_of
from tests.refusals import refuses
from tests.tasks.knowledge_reading import ENCODERS, batch, reach, read, tree

each = pytest.mark.parametrize("specimen", ENCODERS, ids=str)


@each
def test_knowing_nothing_is_the_plain_model_to_the_bit(specimen: Specimen) -> None:
    model, (tokens, attention_mask) = (
        model_of(specimen),
        batch([tree(1).flatten(), tree(2).flatten()]),
    )
    for marks in (None, attention_mask):
        plain = read(specimen, model, tokens, attention_mask=marks)
        assert torch.equal(read(specimen, model, tokens, Knowledge(), marks), plain)


@each
def test_a_tree_without_branches_is_the_plain_text(specimen: Specimen) -> None:
    flat = tree(3, branches=0).flatten()
    model, (tokens, _) = model_of(specimen), batch([flat])
    rows = read(specimen, model, tokens, Knowledge.of_trees([flat]))
    close(rows, read(specimen, model, tokens), 2e-5, str(specimen))


@each
def test_only_what_is_seen_reaches_a_row(specimen: Specimen) -> None:
    """A changed token changes the rows it can reach through the matrix, and no other."""
    flat = tree(4).flatten()
    count, model = len(flat.tokens), model_of(specimen)
    tokens = torch.tensor(flat.tokens).expand(count, -1).clone()
    known = Knowledge.of_trees([flat] * count)
    changed = tokens.clone()
    changed.diagonal().add_(7).remainder_(VOCABULARY)
    before = read(specimen, model, tokens, known)
    moved = (read(specimen, model, changed, known, like=tokens) != before).any(-1).T
    seen = reach(specimen, flat)  # [row, token]
    assert not moved[~seen].any(), (moved & ~seen).nonzero().tolist()
    assert (moved.any(0) == seen.any(0)).all()


@pytest.mark.parametrize("layers", [1, 2])
def test_knowledge_reaches_other_words_in_the_second_layer(layers: int) -> None:
    specimen = next(s for s in ENCODERS if s.name == "bert")
    config = specimen.config.replace(layers=layers)
    deep = replace(specimen, config=config)
    flat = tree(4).flatten()
    tokens, known = one(flat)
    branch = flat.tags.index(1)
    changed = tokens.clone()
    changed[0, branch] = (changed[0, branch] + 7) % VOCABULARY
    before, after = (read(deep, model_of(deep), x, known, like=tokens) for x in (tokens, changed))
    moved = (before != after).any(-1)[0].tolist()
    others = [
        moved[i]
        for i, line in enumerate(flat.line)
        if line == 0 and flat.word[i] != flat.owner[branch]
    ]
    assert all(moved[i] for i, word in enumerate(flat.word) if word == flat.owner[branch])
    assert all(others) if layers > 1 else not any(others)


@each
def test_padding_never_matters(specimen: Specimen) -> None:
    flats = [tree(5).flatten(), tree(6, words=3).flatten()]
    model = model_of(specimen)
    alone = [read(specimen, model, *one(flat)) for flat in flats]
    for left in (False, True):
        tokens, attention_mask = batch(flats, left)
        rows = read(specimen, model, tokens, Knowledge.of_trees(flats, left=left), attention_mask)
        for i, expected in enumerate(alone):
            close(rows[i][attention_mask[i]], expected[0], 2e-5, f"{specimen}, left {left}")


def one(flat: FlatTree) -> tuple[Tensor, Knowledge]:
    return batch([flat])[0], Knowledge.of_trees([flat])


@each
def test_permuted_branches_permute_the_rows(specimen: Specimen) -> None:
    if hasattr(specimen.config, "windows"):  # what stands in a window depends on the order
        pytest.skip("a window counts tokens as they are written")
    first, second = tree(7), tree(7)
    second.trunk[0].branches.reverse()
    model, flats = model_of(specimen), [first.flatten(), second.flatten()]
    order = [sorted(range(len(f.tokens)), key=partial(key, f)) for f in flats]
    a, b = (read(specimen, model, *one(flat))[0] for flat in flats)
    assert flats[0].tokens != flats[1].tokens
    close(b[order[1]], a[order[0]], 2e-5, str(specimen))


def key(flat: FlatTree, place: int) -> tuple[int, tuple[int, ...], int]:
    """The same for the same token of two trees that differ in the order of branches."""
    line = flat.line[place]
    own = tuple(t for t, own_line in zip(flat.tokens, flat.line, strict=True) if own_line == line)
    return flat.owner[place] if line else -1, own if line else (), flat.soft[place]


def test_xlnet_reads_whole_texts() -> None:
    specimen = next(s for s in ZOO if s.name == "xlnet")
    flat = tree(1).flatten()
    tokens, known = one(flat)
    with refuses(InputError, "state", "targets"):
        model_of(specimen)(tokens, targets=tokens[:, :1] * 0, known=known)


# -- patterns


@pytest.mark.parametrize("side", [0, 1, 2, 40])
@pytest.mark.parametrize("far", [False, True])
def test_kernels_show_what_the_predicate_says(side: int, far: bool) -> None:
    flats = [tree(8, words=16).flatten(), tree(9).flatten()]
    branches = Knowledge.of_trees(flats).branches
    assert branches is not None
    length = branches.line.size(1)
    inner: Pattern = Full()
    if side:
        globals_ = torch.tensor([[0, 5], [3, -1]]) if far else None
        inner = Window(
            side,
            side,
            length,
            torch.float64,
            torch.device("cpu"),
            branches.attention_mask,
            globals_,
        )
    pattern = limited(inner, branches, torch.float64)
    dice = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, length, 4, generator=dice).double() for _ in range(3))
    seen = pattern.dense(2, length, length, q.device)
    for i, flat in enumerate(flats):
        size = len(flat.tokens)
        assert not seen[i, size:].any() and not seen[i, :, size:].any()
        if not side:
            assert torch.equal(seen[i, :size, :size], torch.from_numpy(flat.visible()))
    scores = (q @ k.mT).masked_fill(~seen[:, None], -torch.inf)
    expected = scores.softmax(-1).nan_to_num(0.0) @ v
    close(pattern.attend(q, k, v, AttentionArgs()), expected, 1e-12)


def test_rows_that_ask_for_others() -> None:
    flat = tree(8).flatten()
    branches = Knowledge.of_trees([flat]).branches
    assert branches is not None
    asking = torch.tensor([[4, 0, -1]])
    seen = limited(Full(), branches, torch.float32, asking).dense(
        1, 3, len(flat.tokens), asking.device
    )
    assert torch.equal(seen[0, :2], torch.from_numpy(flat.visible())[[4, 0]])


def test_a_branch_is_its_tables() -> None:
    line, word, owner = (torch.tensor([x]) for x in ([0, 1, 0], [0, 1, 2], [-1, 0, -1]))
    pattern = limited(Full(), Branches(line, word, owner), torch.float32)
    assert pattern.dense(1, 3, 3, line.device)[0].int().tolist() == [
        [1, 1, 1],
        [1, 1, 0],
        [1, 0, 1],
    ]


# -- published weights


def test_plain_weights_load_and_equal_the_reference(tmp_path: Path) -> None:
    """transformers' BERT with the matrix as its mask and the soft positions as its positions."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = BertConfig(vocab_size=VOCABULARY, width=16, layers=2, heads=2, ffn_size=24, context=64)
    regard.save(Bert(config).initialize(), tmp_path / "bert")
    flats = [tree(10).flatten(), tree(11).flatten()]
    tokens, attention_mask = batch(flats)
    known = Knowledge.of_trees(flats)
    ours = regard.load(tmp_path / "bert").model(tokens, attention_mask, known=known)
    reference = transformers.BertModel.from_pretrained(
        tmp_path / "bert", attn_implementation="eager", add_pooling_layer=False
    ).eval()
    low = torch.finfo(torch.float32).min
    mask = torch.full((2, 1, tokens.size(1), tokens.size(1)), low)
    for i, flat in enumerate(flats):
        size = len(flat.tokens)
        mask[i, 0, :size, :size].masked_fill_(torch.from_numpy(flat.visible()), 0.0)
    assert known.soft is not None
    with torch.no_grad():
        theirs = reference(tokens, attention_mask=mask, position_ids=known.soft).last_hidden_state
    close(ours[attention_mask].detach(), theirs[attention_mask], 1e-5)


def test_the_trunk_stands_where_it_would_without_branches() -> None:
    grown = tree(12)
    flat = grown.flatten()
    bare = KnowledgeTree([type(node)(node.tokens) for node in grown.trunk]).flatten()
    trunk = [soft for soft, tag in zip(flat.soft, flat.tags, strict=True) if not tag]
    assert trunk == bare.soft
