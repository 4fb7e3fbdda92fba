"""The chain against the enumeration of all tag sequences, in fp64."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.data.tags import entities, labels, legal, problems, write
from regard.tasks.crf import CRF, AllowedTransitions, allowed
from tests.refusals import refuses

TAGS = 3


def random(*key: int | str, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
    return torch.from_numpy(keyed("crf", *key).normal(size=shape) * scale)


def chain(
    seed: int, tags: int = TAGS, rules: AllowedTransitions | None = None, strict: bool = False
) -> CRF:
    crf = CRF(tags, rules, strict=strict).double()
    with torch.no_grad():
        for name, weight in crf.named_parameters():
            weight.copy_(random(seed, name, shape=tuple(weight.shape)))
    return crf


def score_of(crf: CRF, rows: Tensor, tags: tuple[int, ...]) -> float:
    """The definition, one term after the other; rows [n, K] are the real ones."""
    total = crf.start[tags[0]].item() + crf.end[tags[-1]].item()
    total += sum(rows[t, tag].item() for t, tag in enumerate(tags))
    return total + sum(crf.steps[a, b].item() for a, b in itertools.pairwise(tags))


def may(rules: AllowedTransitions | None, tags: tuple[int, ...]) -> bool:
    if rules is None:
        return True
    steps = (rules.steps[a, b] for a, b in itertools.pairwise(tags))
    return bool(rules.start[tags[0]] and rules.end[tags[-1]] and all(steps))


def enumerate_all(
    crf: CRF, rows: Tensor, rules: AllowedTransitions | None = None
) -> dict[tuple[int, ...], float]:
    every = itertools.product(range(len(crf.start)), repeat=len(rows))
    return {tags: score_of(crf, rows, tags) for tags in every if may(rules, tags)}


def log_sum(scores: dict[tuple[int, ...], float]) -> float:
    top = max(scores.values())
    return top + math.log(sum(math.exp(score - top) for score in scores.values()))


def masks() -> dict[str, Tensor]:
    """Sentences of mixed lengths, 1 among them, and one without a word."""
    right = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    holes = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 1]])
    return {"right": right.bool(), "left": right.flip(1).bool(), "rows": holes.bool()}


MASKS = masks()
SOME = AllowedTransitions(
    torch.tensor([True, False, True]),
    torch.tensor([True, True, False]),
    torch.tensor([[True, True, False], [True, True, True], [False, True, True]]),
)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("strict", [False, True])
def test_likelihood_and_partition(name: str, strict: bool) -> None:
    real = MASKS[name]
    rules = SOME if strict else None
    crf = chain(1, rules=SOME, strict=strict)
    emissions = random(name, shape=(4, 5, TAGS), scale=2.0)
    tags = torch.full((4, 5), -100)
    expected, zs = 0.0, []
    for b in range(4):
        rows = emissions[b, real[b]]
        if not len(rows):
            zs.append(0.0)
            continue
        scores = enumerate_all(crf, rows, rules)
        gold = sorted(scores)[len(scores) // 2]
        tags[b, real[b]] = torch.tensor(gold)
        zs.append(log_sum(scores))
        expected += zs[-1] - scores[gold]
    assert crf.partition(emissions, real).tolist() == pytest.approx(zs, abs=1e-10)
    assert crf.surprisal(emissions, tags, real).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("rules", [None, SOME], ids=["free", "ruled"])
def test_viterbi_and_marginals(name: str, rules: AllowedTransitions | None) -> None:
    attention_mask = MASKS[name]
    crf = chain(2, rules=rules)
    emissions = random(name, "v", shape=(4, 5, TAGS), scale=2.0)
    expected = torch.zeros(4, 5, TAGS, dtype=torch.float64)
    paths = []
    for b in range(4):
        rows = emissions[b, attention_mask[b]]
        scores = enumerate_all(crf, rows, rules) if len(rows) else {(): 0.0}
        paths.append(list(max(scores, key=scores.__getitem__)))
        z = log_sum(scores)
        places = attention_mask[b].nonzero().flatten().tolist()
        for tags, score in scores.items():
            for place, tag in zip(places, tags, strict=True):
                expected[b, place, tag] += math.exp(score - z)
    assert crf.best(emissions, attention_mask) == paths
    torch.testing.assert_close(
        crf.marginals(emissions, attention_mask), expected, atol=1e-10, rtol=0
    )


def test_by_hand() -> None:
    """Two words, two tags: scores 1+1, 1+0+2, 0+1, 0+0 with one step from 0 to 1 of 2."""
    crf = CRF(2).double()
    with torch.no_grad():
        crf.steps[0, 1] = 2.0
    emissions = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]], dtype=torch.float64)
    attention_mask = torch.ones(1, 2, dtype=torch.bool)
    z = math.log(math.exp(2) + math.exp(3) + math.exp(1) + math.exp(0))
    assert crf.partition(emissions, attention_mask).item() == pytest.approx(z)
    assert crf.best(emissions, attention_mask) == [[0, 1]]
    chance = (math.exp(2) + math.exp(3)) / math.exp(z)
    assert crf.marginals(emissions, attention_mask)[0, 0, 0].item() == pytest.approx(chance)
    assert crf.surprisal(emissions, torch.tensor([[0, 1]]), attention_mask).item() == pytest.approx(
        z - 3
    )


def test_fresh_chain_is_softmax() -> None:
    emissions = random("fresh", shape=(2, 4, TAGS))
    tags = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 0]])
    attention_mask = torch.ones(2, 4, dtype=torch.bool)
    crf = CRF(TAGS).double()
    plain = torch.nn.functional.cross_entropy(
        emissions.flatten(0, 1), tags.flatten(), reduction="sum"
    )
    torch.testing.assert_close(crf.surprisal(emissions, tags, attention_mask), plain)
    assert crf.best(emissions, attention_mask) == emissions.argmax(2).tolist()


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("strict", [False, True])
def test_gradients(name: str, strict: bool) -> None:
    attention_mask = MASKS[name]
    crf = chain(3, rules=SOME, strict=strict)
    tags = torch.zeros(4, 5, dtype=torch.long)  # 0 may begin, go on and end
    emissions = random(name, "g", shape=(4, 5, TAGS)).requires_grad_()

    def loss(emissions: Tensor, start: Tensor, end: Tensor, steps: Tensor) -> Tensor:
        weights = {"start": start, "end": end, "steps": steps}
        return torch.func.functional_call(
            Wrapped(crf), inner(weights), (emissions, tags, attention_mask)
        )

    assert torch.autograd.gradcheck(loss, (emissions, *crf.parameters()))
    crf.surprisal(emissions, tags, attention_mask).backward()
    assert emissions.grad is not None
    assert emissions.grad[~attention_mask].abs().max() == 0
    assert emissions.grad[attention_mask].abs().max() > 0
    assert crf.steps.grad is not None
    assert (crf.steps.grad[~SOME.steps] == 0).all() == strict


class Wrapped(torch.nn.Module):
    def __init__(self, crf: CRF) -> None:
        super().__init__()
        self.crf = crf

    def forward(self, emissions: Tensor, tags: Tensor, attention_mask: Tensor) -> Tensor:
        return self.crf.surprisal(emissions, tags, attention_mask)


def inner(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"crf.{name}": weight for name, weight in weights.items()}


def test_gradient_of_partition_is_marginals() -> None:
    attention_mask = MASKS["rows"]
    crf = chain(4)
    emissions = random("dz", shape=(4, 5, TAGS)).requires_grad_()
    (grad,) = torch.autograd.grad(crf.partition(emissions, attention_mask).sum(), emissions)
    torch.testing.assert_close(grad, crf.marginals(emissions, attention_mask), atol=1e-12, rtol=0)


@pytest.mark.parametrize("strict", [False, True])
def test_all_forbidden_is_finite(strict: bool) -> None:
    none = torch.zeros(TAGS, TAGS, dtype=torch.bool)
    crf = chain(5, rules=AllowedTransitions(none[0], none[0], none), strict=strict)
    emissions = random("none", shape=(4, 5, TAGS)).float().requires_grad_()
    attention_mask = MASKS["right"]
    loss = crf.surprisal(emissions, torch.zeros(4, 5, dtype=torch.long), attention_mask)
    loss.backward()
    assert loss.isfinite()
    grads = [emissions.grad, *(weight.grad for weight in crf.parameters())]
    assert all(grad is not None and grad.isfinite().all() for grad in grads)
    marginals = crf.marginals(emissions, attention_mask)
    assert marginals.isfinite().all()
    assert [len(path) for path in crf.best(emissions, attention_mask)] == [5, 1, 3, 0]


def test_padding_does_not_matter() -> None:
    """Neither its side, nor what stands in it, NaN included; the third sentence is all padding."""
    crf = chain(6)
    rows, tags = random("pad", shape=(1, 3, TAGS)), torch.tensor([[2, 0, 1]])
    full, others = random("full", shape=(1, 6, TAGS)), torch.tensor([[0, 1, 2, 2, 1, 0]])
    alone = crf.surprisal(rows, tags, torch.ones(1, 3, dtype=torch.bool))
    alone = alone + crf.surprisal(full, others, torch.ones(1, 6, dtype=torch.bool))
    for places in ([0, 1, 2], [3, 4, 5], [0, 2, 5]):
        emissions = torch.full((3, 6, TAGS), math.nan, dtype=torch.float64)
        wide, attention_mask = torch.full((3, 6), -100), torch.zeros(3, 6, dtype=torch.bool)
        emissions[0, places], wide[0, places], attention_mask[0, places] = rows[0], tags[0], True
        emissions[1], wide[1], attention_mask[1] = full[0], others[0], True
        emissions.requires_grad_()
        loss = crf.surprisal(emissions, wide, attention_mask)
        torch.testing.assert_close(loss, alone)
        (grad,) = torch.autograd.grad(loss, emissions)
        assert grad.isfinite().all()
        assert crf.marginals(emissions, attention_mask).isfinite().all()


def test_the_forbidden_cannot_be_bought() -> None:
    """Every word shouts tag 1, which nothing leads to: no sum of shouts pays for the way."""
    rules = AllowedTransitions(
        torch.tensor([True, False]),
        torch.tensor([True, True]),
        torch.tensor([[True, False], [True, True]]),
    )
    emissions = torch.tensor([0.0, 1e5]).expand(1, 60, 2)
    assert CRF(2, rules).best(emissions, torch.ones(1, 60, dtype=torch.bool)) == [[0] * 60]


@pytest.mark.parametrize("whole", [False, True])
def test_bfloat16_is_computed_in_float32(whole: bool) -> None:
    crf = chain(7).float()
    crf = crf.bfloat16() if whole else crf
    emissions = random("bf16", shape=(2, 40, TAGS)).bfloat16()
    tags = torch.from_numpy(keyed("bf16 tags").integers(TAGS, size=(2, 40)))
    attention_mask = torch.ones(2, 40, dtype=torch.bool)
    loss = crf.surprisal(emissions, tags, attention_mask)
    assert loss.dtype == torch.float32
    exact = chain(7).double()
    exact.load_state_dict({k: v.double() for k, v in crf.state_dict().items()})
    torch.testing.assert_close(
        loss.double(),
        exact.surprisal(emissions.double(), tags, attention_mask),
        atol=1e-3,
        rtol=1e-5,
    )
    assert crf.marginals(emissions, attention_mask).dtype == torch.float32


def test_sums_add_up_over_the_batch() -> None:
    crf = chain(8)
    attention_mask = MASKS["right"]
    emissions = random("sum", shape=(4, 5, TAGS))
    tags = torch.from_numpy(keyed("sum tags").integers(TAGS, size=(4, 5)))
    alone = sum(
        crf.surprisal(emissions[b : b + 1], tags[b : b + 1], attention_mask[b : b + 1])
        for b in range(4)
    )
    torch.testing.assert_close(crf.surprisal(emissions, tags, attention_mask), alone)


@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes", "bilou"])
def test_rules_of_a_scheme(scheme: str) -> None:
    names = labels(["PER", "LOC"], scheme)
    rules = allowed(names, scheme)
    crf = chain(9, len(names), rules)
    # Emissions so strong that a finite penalty could be bought over a long sentence.
    emissions = random(scheme, shape=(8, 60, len(names)), scale=1e5)
    attention_mask = torch.ones(8, 60, dtype=torch.bool)
    for path in crf.best(emissions, attention_mask):
        tags = [names[i] for i in path]
        assert problems(tags, scheme) == []
        assert write(entities(tags), 60, scheme) == tags
    for (a, before), (b, after) in itertools.product(enumerate(names), repeat=2):
        assert bool(rules.steps[a, b]) == legal(before, after, scheme)


def test_rules_count_bio() -> None:
    """Of 5 × 5 steps, I-LOC is closed after O, B-PER, I-PER, and I-PER likewise."""
    rules = allowed(labels(["PER", "LOC"], "bio"), "bio")
    assert int((~rules.steps).sum()) == 6
    assert rules.start.tolist() == [True, True, False, True, False]
    assert rules.end.all()


def test_buffers_are_not_saved() -> None:
    assert set(CRF(3, SOME).state_dict()) == {"start", "end", "steps"}


def test_bad_input() -> None:
    crf = CRF(3)
    attention_mask = torch.ones(2, 4, dtype=torch.bool)
    with refuses(InputError, "[2, 4, 5]"):
        crf.best(torch.zeros(2, 4, 5), attention_mask)
    with refuses(InputError, "[2, 0, 3]"):
        crf.best(torch.zeros(2, 0, 3), attention_mask[:, :0])
    with refuses(InputError, "0 to 2"):
        crf.surprisal(torch.zeros(2, 4, 3), torch.full((2, 4), -100), attention_mask)
    with refuses(InputError, "3 tags"):
        CRF(4, SOME)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.data())
def test_any_mask(seed: int, tags: int, width: int, data: st.DataObject) -> None:
    row = st.lists(st.booleans(), min_size=width, max_size=width)
    attention_mask = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=3)))
    crf = chain(seed, tags)
    emissions = random(seed, shape=(*attention_mask.shape, tags))
    for b, path in enumerate(crf.best(emissions, attention_mask)):
        rows = emissions[b, attention_mask[b]]
        assert len(path) == len(rows)
        if len(rows):
            scores = enumerate_all(crf, rows)
            assert scores[tuple(path)] == pytest.approx(max(scores.values()))
            assert crf.partition(emissions, attention_mask)[b].item() == pytest.approx(
                log_sum(scores)
            )
    chances = crf.marginals(emissions, attention_mask).sum(2)
    torch.testing.assert_close(chances, attention_mask.double())
