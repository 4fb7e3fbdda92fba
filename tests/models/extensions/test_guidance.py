"""Guidance as a bias: the formula, the start at the plain model, and every encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Full, Pattern
from regard.attention.position import Plain
from regard.attention.recorder import record
from regard.attention.window import Window
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.models.bert import Bert, BertConfig
from regard.models.extensions import extend
from regard.models.extensions.guidance import GAIN, GuidanceOptions, GuidedScore
from regard.models.extensions.guide import (
    GuidedView,
    GuideInputs,
    Rule,
    RuleGuide,
    prior,
    rule,
    rules,
)
from regard.models.extensions.tree_knowledge import Knowledge
from regard.models.gpt import GPT
from tests.laws.zoo import GPT_SMALL, VOCABULARY, Specimen, close, model_of
from tests.refusals import Refusal, refuses
from tests.tasks.knowledge_reading import ENCODERS, batch, read, tree

each = pytest.mark.parametrize("specimen", ENCODERS, ids=str)
RULES = ["same-token", "near:2"]
LENGTH = 9


def text(seed: int = 1) -> Tensor:
    return torch.randint(
        VOCABULARY // 3, (2, LENGTH), generator=torch.Generator().manual_seed(seed)
    )


def guided(specimen: Specimen, **options: Any) -> Any:
    """A model of one's own, which has learned to be guided unless it is new."""
    return extend(specimen.fresh(), "guidance", {"rules": RULES} | options)


def learned(model: Any, seed: int = 5) -> Any:
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, GuidedScore):
                for parameter in [*part.strength.parameters(), *part.weights.parameters()]:
                    parameter.normal_(1.0, 1.0, generator=dice).div_(GAIN)
                for parameter in part.gate.parameters():
                    parameter.normal_(0.0, 1.0, generator=dice)
    return model


def knowing(tokens: Tensor, *chosen: Rule) -> Knowledge:
    return Knowledge(guide=RuleGuide(GuideInputs(tokens), chosen or rules(RULES)))


# -- the start


@each
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strength": "learned", "gated": True},
        {"strength": "fixed", "value": 2.0},  # learned weights, which start at 0
        {"strength": "fixed", "value": 0.0, "weights": "fixed"},
    ],
    ids=["heads", "gated", "weights", "zero"],
)
def test_it_starts_at_the_plain_model_to_the_bit(
    specimen: Specimen, options: dict[str, Any]
) -> None:
    model, tokens = guided(specimen, **options), text()
    with torch.no_grad():
        plain = read(specimen, model_of(specimen), tokens)
        assert torch.equal(read(specimen, model, tokens, knowing(tokens)), plain)
        assert torch.equal(read(specimen, model, tokens), plain)


@each
def test_a_guide_that_says_nothing_changes_no_bit(specimen: Specimen) -> None:
    model, tokens = learned(guided(specimen)), text()
    silent: Rule = lambda t, batch, query, key: (query - key) * 0  # noqa: E731
    with torch.no_grad():
        plain = read(specimen, model_of(specimen), tokens)
        assert torch.equal(read(specimen, model, tokens, knowing(tokens, silent, silent)), plain)
        assert not torch.equal(read(specimen, model, tokens, knowing(tokens)), plain)


@each
def test_what_is_the_same_for_all_keys_changes_nothing(specimen: Specimen) -> None:
    model, tokens = learned(guided(specimen, gated=True)), text()
    row: Rule = lambda t, batch, query, key: (query % 3) - 0.5 + 0 * key  # noqa: E731
    with torch.no_grad():
        plain = read(specimen, model_of(specimen), tokens)
        close(read(specimen, model, tokens, knowing(tokens, row, row)), plain, 2e-5)


@pytest.mark.parametrize("options", [{}, {"strength": "learned"}, {"strength": "fixed"}], ids=str)
def test_gradients_reach_what_guides(options: dict[str, Any]) -> None:
    specimen = ENCODERS[NAMED["bert"]]
    model, tokens = guided(specimen, **options), text()
    read(specimen, model, tokens, knowing(tokens)).square().sum().backward()
    for part in model.modules():
        if isinstance(part, GuidedScore):
            first = part.weights if options.get("strength") == "fixed" else part.strength
            for parameter in first.parameters():
                assert parameter.grad is not None and parameter.grad.abs().min() > 0


NAMED = {specimen.name: i for i, specimen in enumerate(ENCODERS)}


def test_a_strength_stays_above_minus_log_two() -> None:
    score = GuidedScore(Plain(), 2, 4, GuidanceOptions(RULES))
    score.reset()
    like = torch.zeros(1)
    assert torch.equal(score.strength(like), torch.zeros(2))
    with torch.no_grad():
        score.get_parameter("strength.raw").copy_(torch.tensor([-1e4, 1e4]))
    low, high = score.strength(like).tolist()
    assert low == pytest.approx(-0.6931, abs=1e-4) and high == pytest.approx(1e6, rel=1e-3)


# -- the formula


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("side", [0, 2, 40])
def test_the_formula(side: int, gated: bool) -> None:
    """softmax(q kᵀ / √d + λ_i Σ b_r rule_r + mask), in all pairs and in a window's layout."""
    heads, size, tokens = 3, 4, torch.arange(2 * 70).remainder(5).view(2, 70)
    options = GuidanceOptions(RULES, strength="heads", gated=gated)
    score = GuidedScore(Plain(), heads, size, options).double()
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.normal_(generator=dice).div_(GAIN)
    q, k, v = (torch.randn(2, heads, 70, size, generator=dice).double() for _ in range(3))
    pattern: Pattern = Full()
    if side:
        far = torch.tensor([[0, 60], [7, -1]])
        pattern = Window(side, side, 70, q.dtype, q.device, None, far)
    guide = RuleGuide(GuideInputs(tokens), rules(RULES))
    view = GuidedView(pattern, features=guide.features(pattern, q.dtype))
    queries, keys, bias = score(q, k, view, size**-0.5)
    output = pattern.attend(queries, keys, v, AttentionArgs(bias, size**-0.5))

    at = torch.arange(70)
    same = (tokens[:, :, None] == tokens[:, None, :]) & (at[:, None] != at)
    near = ((at[:, None] - at).abs() <= 2).expand_as(same)
    b = torch.stack([same, near], 1).double()
    facts = dict(score.named_parameters())
    strength = nn.functional.softplus(GAIN * facts["strength.raw"]) - torch.tensor(2.0).log()
    added = torch.einsum("rh,h,brqk->bhqk", GAIN * facts["weights.each"], strength, b)
    if gated:
        added = added * (q * facts["gate.weight"][:, None]).sum(-1, keepdim=True).sigmoid()
    seen = pattern.dense(2, 70, 70, q.device)[:, None]
    scores = (q @ k.mT * size**-0.5 + added).masked_fill(~seen, -torch.inf)
    close(output.detach(), (scores.softmax(-1) @ v).detach(), 1e-6)


@each
def test_padding_never_matters(specimen: Specimen) -> None:
    model = learned(guided(specimen, gated=True)).requires_grad_(False)
    flats = [tree(5, branches=0).flatten(), tree(6, words=3, branches=0).flatten()]
    texts = [batch([flat])[0] for flat in flats]
    alone = [read(specimen, model, tokens, knowing(tokens)) for tokens in texts]
    for left in (False, True):
        tokens, attention_mask = batch(flats, left)
        rows = read(specimen, model, tokens, knowing(tokens), attention_mask)
        for i, expected in enumerate(alone):
            close(rows[i][attention_mask[i]], expected[0], 5e-5, f"{specimen}, left {left}")


@each
def test_looking_shows_the_guided_weights(specimen: Specimen) -> None:
    model, tokens = learned(guided(specimen)).requires_grad_(False), text()
    plain = read(specimen, model, tokens, knowing(tokens))
    with record(model) as seen:
        assert torch.equal(read(specimen, model, tokens, knowing(tokens)), plain)
    assert len(seen) > 0 and all(one.weights.isfinite().all() for one in seen)


# -- rules


def values(name: str, tokens: GuideInputs) -> list[list[int]]:
    at = torch.arange(tokens.ids.size(1))
    table = rule(name)(tokens, torch.zeros(1, 1).long(), at[:, None], at[None])
    return table.int().expand(len(at), len(at)).tolist()


def test_rules_by_name() -> None:
    edges = torch.zeros(1, 2, 3, 3, dtype=torch.uint8)
    edges[0, :, 1, 2] = 1
    facts = GuideInputs(
        torch.tensor([[5, 6, 5]]),
        segments=torch.tensor([[0, 0, 1]]),
        kinds=torch.tensor([[0, 1, 0]]),
        entity=torch.tensor([[1, 0, 2]]),
        edges=edges,
        predicates=("*", "capital"),
    )
    assert values("same-token", facts) == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert values("same-sentence", facts) == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert values("near:1", facts) == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert values("entity", facts) == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert values("related", facts) == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert values("relation:capital", facts) == values("related", facts)
    assert values("kinds:number,word", facts) == [[0, 0, 0], [1, 0, 1], [0, 0, 0]]
    assert values("gaussian:1", facts)[0] == [0, 0, -2]
    assert values("gaussian:1,1", facts)[0] == [0, 0, 0] != values("gaussian:1,2", facts)[0]
    with refuses(UnknownName, "'capitol'", "'capital'"):
        values("relation:capitol", facts)
    with refuses(InputError, "same-sentence", "segments"):
        values("same-sentence", GuideInputs(facts.ids))


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        *((f"near:{steps}", (ConfigError, "near")) for steps in ("x", "-1")),
        *((f"gaussian:{numbers}", (ConfigError, "gaussian")) for numbers in ("0", "1,x", "1,--1")),
        *((f"kinds:{kinds}", (ConfigError, "kinds")) for kinds in ("word", "a,b")),
        ("relate", (UnknownName, "'relate'", "'related'")),
        ("entity:x", (UnknownName, "'entity:x'")),
    ],
)
def test_rules_that_cannot_be(name: str, refusal: Refusal) -> None:
    with refuses(*refusal):
        rule(name)


def test_a_prior_is_a_table_of_chances() -> None:
    """With no scores of its own, attention is the prior."""
    table = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0)).double()
    table[0, 0, 1] = 0.0
    table /= table.sum(-1, keepdim=True)
    guide = RuleGuide(GuideInputs(torch.zeros(2, 5).long()), (prior(table),))
    features = guide.features(Full(), table.dtype)
    close(features[:, 0].softmax(-1), table, 1e-8)
    with refuses(InputError, "sum is 1"):
        prior(2 * table)


# -- as an extension


def test_a_decoder_alone_cannot_be_guided() -> None:
    with refuses(ConfigError, "GPT", "encoder"):
        extend(GPT(GPT_SMALL), "guidance", {})


def test_another_number_of_rules_is_refused() -> None:
    specimen = ENCODERS[NAMED["bert"]]
    model, tokens = learned(guided(specimen)), text()
    with refuses(InputError, "1 rules", "2"):
        read(specimen, model, tokens, knowing(tokens, rule("near:2")))


@pytest.mark.parametrize("name", ["bert", "xlnet", "t5", "longformer", "transformer"])
def test_it_is_saved_and_opened_again(name: str, tmp_path: Path) -> None:
    specimen = ENCODERS[NAMED[name]]
    model, tokens = learned(guided(specimen, gated=True)).requires_grad_(False), text()
    regard.save(model, tmp_path / "model")
    again = regard.load(tmp_path / "model").model
    assert again.extensions == model.extensions
    again.requires_grad_(False)  # what learns a bias is another kernel, and rounds otherwise
    expected = read(specimen, model, tokens, knowing(tokens))
    assert torch.equal(read(specimen, again, tokens, knowing(tokens)), expected)


def test_plain_weights_load_first_and_are_then_extended(tmp_path: Path) -> None:
    config = BertConfig(vocab_size=VOCABULARY, width=16, layers=2, heads=2, ffn_size=24, context=64)
    plain = Bert(config).initialize().eval()
    regard.save(plain, tmp_path / "bert")
    model = extend(regard.load(tmp_path / "bert").model, "guidance", {"rules": RULES})
    new = set(model.state_dict()) - set(plain.state_dict())
    assert new and all(".score." in name for name in new)
    tokens = text()
    with torch.no_grad():
        assert torch.equal(model(tokens, known=knowing(tokens)), plain(tokens))


def test_branches_and_a_guide_go_together() -> None:
    specimen = ENCODERS[NAMED["bert"]]
    flat = tree(4).flatten()
    tokens, model = batch([flat])[0], learned(guided(specimen)).requires_grad_(False)
    guide = knowing(tokens).guide
    both = read(specimen, model, tokens, Knowledge.of_trees([flat], guide=guide))
    alone = read(specimen, model, tokens, Knowledge.of_trees([flat]))
    assert not torch.equal(both, alone)
