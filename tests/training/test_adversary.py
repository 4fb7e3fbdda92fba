"""Adversaries and noise by hand, on a model small enough for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import ConfigError, UnknownName
from regard.data.corpus import Special
from regard.training.adversary import AdversarialReader, word_embedding
from regard.training.recipe_parts import Robust
from tests.refusals import Refusal, refuses
from tests.training.small import resolved, same

PAD = 0
TOKENS = torch.tensor([[3, 4, 5, PAD], [6, 3, PAD, PAD], [4, 4, 4, 4]])
WANTED = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


class Toy(nn.Module):
    """score = w · Σ (e_t + position_t) over real words; loss = Σ (score - wanted)².

    So the gradient at each real word of a text is 2 (score - wanted) w: it has one direction.
    """

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(vocab_size=8)
        self.tokens = nn.Embedding(8, 3)
        self.w = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.double()
        torch.manual_seed(0)
        nn.init.normal_(self.tokens.weight)
        self.moved: list[Tensor] = []  # by how much, in each pass
        self.passes: list[dict[str, Any]] = []

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = self.tokens(tokens)
        self.moved.append((vectors - self.tokens.weight[tokens]).detach())
        place = 0.1 * torch.arange(tokens.size(1), dtype=vectors.dtype)[:, None]
        return ((vectors + place) * (tokens != PAD)[..., None]).sum(1) @ self.w

    def go(self, state: Any, **more: Any) -> dict[str, Tensor]:
        self.passes.append({"last": more.get("last", True), "inputs": more.get("inputs")})
        loss = (self(TOKENS) - WANTED).square().sum()
        (loss * more.get("share", 1.0)).backward(inputs=more.get("inputs"))
        return {"loss": loss}


def chosen(**options: Any) -> Robust:
    return resolved({"robust": options}).robust


def disturbed(
    model: Any, seed: int = 1, special: Special | None = None, **options: Any
) -> AdversarialReader:
    return AdversarialReader(model, chosen(**options), special or Special(end=1, pad=PAD), 8, seed)


def taken(
    model: Toy, reads: AdversarialReader, batch: dict[str, Any] | None = None
) -> dict[str, Tensor]:
    """The gradients of a step."""
    model.zero_grad()
    reads(model.go, (0, 0), batch or {}, None)
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def gradient_at(delta: Tensor) -> dict[str, Tensor]:
    """Of the weights, where the words are moved by this."""
    model = Toy()
    attention_mask = (TOKENS != PAD)[..., None]
    place = 0.1 * torch.arange(4, dtype=torch.float64)[:, None]
    moved = (model.tokens.weight[TOKENS] + delta + place) * attention_mask
    (moved.sum(1) @ model.w - WANTED).square().sum().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def added(*parts: dict[str, Tensor], share: float = 1.0) -> dict[str, Tensor]:
    return {n: share * sum(p[n] for p in parts) for n in parts[0]}  # type: ignore[misc]


def direction() -> Tensor:
    """g / ‖g‖ of each text: ± w over its real words, of length 1."""
    model = Toy()
    attention_mask = (TOKENS != PAD).double()
    error = (model(TOKENS) - WANTED).detach()
    one = error.sign()[:, None, None] * attention_mask[..., None] * model.w.detach()
    return one / (model.w.detach().norm() * attention_mask.sum(1).sqrt())[:, None, None]


# -- by hand


def test_fgm() -> None:
    model = Toy()
    slopes = taken(model, disturbed(model, adversary="fgm", adv_radius=0.7))
    delta = 0.7 * direction()
    assert not model.moved[0].any()
    assert torch.allclose(model.moved[1], delta, atol=1e-12)
    assert torch.allclose(model.moved[1].flatten(1).norm(dim=1), torch.full((3,), 0.7).double())
    same(slopes, added(gradient_at(torch.zeros(())), gradient_at(delta)))
    assert [one["last"] for one in model.passes] == [False, True]


@pytest.mark.parametrize(
    ("radius", "reached"), [(0.5, [0.0, 0.3, 0.5, 0.5]), (9.0, [0, 0.3, 0.6, 0.9])]
)
def test_pgd(radius: float, reached: list[float]) -> None:
    """Of the passes at a distance only the last teaches the weights."""
    model = Toy()
    slopes = taken(
        model, disturbed(model, adversary="pgd", adv_radius=radius, adv_lr=0.3, adv_steps=3)
    )
    for moved, far in zip(model.moved, reached, strict=True):
        assert torch.allclose(moved, far * direction(), atol=1e-12)
    same(slopes, added(gradient_at(torch.zeros(())), gradient_at(reached[-1] * direction())))
    assert [one["last"] for one in model.passes] == [False, False, False, True]
    assert [one["inputs"] is None for one in model.passes] == [True, False, False, True]


@pytest.mark.parametrize("radius", [0.0, 0.25])
def test_freelb_without_a_start(radius: float) -> None:
    model = Toy()
    options = {
        "adversary": "freelb",
        "adv_radius": radius,
        "adv_lr": 0.2,
        "adv_steps": 3,
        "adv_init": 0.0,
    }
    slopes = taken(model, disturbed(model, **options))
    reached = [0.0, 0.2, 0.25 if radius else 0.4]  # 0: there is no ball
    for moved, far in zip(model.moved, reached, strict=True):
        assert torch.allclose(moved, far * direction(), atol=1e-12)
    parts = [gradient_at(far * direction()) for far in reached]
    same(slopes, added(*parts, share=1 / 3))
    assert [one["last"] for one in model.passes] == [False, False, True]


def test_freelb_starts_at_random_inside_of_its_box() -> None:
    model = Toy()
    options = {
        "adversary": "freelb",
        "adv_radius": 0.3,
        "adv_lr": 0.1,
        "adv_steps": 2,
        "adv_init": 0.6,
    }
    slopes = taken(model, disturbed(model, **options))
    start, next_ = model.moved
    attention_mask = TOKENS != PAD
    for text, count in zip(start, attention_mask.sum(1), strict=True):
        limit = 0.6 / (3 * int(count)) ** 0.5
        assert 0.5 * limit < text.abs().max() <= limit
    assert (start[attention_mask] != 0).all() and not start[~attention_mask].any()
    raised = start + 0.1 * direction()  # the gradient's sign has not turned
    size = raised.flatten(1).norm(dim=1)[:, None, None]
    assert torch.allclose(next_, raised * (0.3 / size).clamp_max(1.0), atol=1e-12)
    assert (size > 0.3).any()
    same(slopes, added(gradient_at(start), gradient_at(next_), share=0.5))


def test_a_text_without_a_gradient_stays_where_it_is() -> None:
    model = Toy()
    nn.init.zeros_(model.w)
    taken(model, disturbed(model, adversary="pgd"))
    assert not torch.stack(model.moved).any()


# -- what may be moved


@pytest.mark.parametrize("adversary", ["fgm", "pgd", "freelb"])
def test_padding_is_not_moved(adversary: str) -> None:
    """Neither by the token for padding nor, where there is none, by the marks of the batch."""

    class Leaky(Toy):
        def forward(self, tokens: Tensor) -> Tensor:  # a gradient flows into padding, too
            vectors = self.tokens(tokens)
            self.moved.append((vectors - self.tokens.weight[tokens]).detach())
            return vectors.sum(1) @ self.w

    attention_mask = TOKENS != PAD
    for special, batch in (
        (Special(end=1, pad=PAD), {}),
        (Special(end=1), {"tokens": TOKENS, "attention_mask": attention_mask}),
        (Special(end=1), {"part": {"source": TOKENS, "source_attention_mask": attention_mask}}),
    ):
        model = Leaky()
        taken(model, disturbed(model, adversary=adversary, neftune=0.5, special=special), batch)
        moved = torch.stack(model.moved)
        assert moved[:, attention_mask].any() and not moved[:, ~attention_mask].any()


def test_frozen_embeddings_are_moved_as_well() -> None:
    free, frozen = Toy(), Toy()
    frozen.tokens.weight.requires_grad_(False)
    one, two = (taken(m, disturbed(m, adversary="pgd")) for m in (free, frozen))
    assert "tokens.weight" not in two and torch.equal(one["w"], two["w"])
    assert all(torch.equal(a, b) for a, b in zip(free.moved, frozen.moved, strict=True))


def test_every_sequence_has_a_ball_of_its_own() -> None:
    class Two(Toy):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens) - 0.25 * super().forward(tokens.flip(1))

    model = Two()
    taken(model, disturbed(model, adversary="fgm", adv_radius=0.4))
    for moved in model.moved[2:]:
        assert torch.allclose(moved.flatten(1).norm(dim=1), torch.full((3,), 0.4).double())
    assert torch.allclose(model.moved[3], -model.moved[2].flip(1))


def test_nothing_stays_behind() -> None:
    model = Toy()
    weights = [p.clone() for p in model.parameters()]
    reads = disturbed(model, adversary="fgm", neftune=1.0, token_noise=0.9)
    taken(model, reads)
    assert not model.tokens._forward_hooks and not model.tokens._forward_pre_hooks
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    with pytest.raises(ZeroDivisionError):
        reads(lambda state, **more: {"loss": torch.ones(()) / (1 // 0)}, (0, 0), {}, None)
    assert torch.equal(model(TOKENS), Toy()(TOKENS))


# -- noise


def test_noise_is_keyed_and_small() -> None:
    moved = []
    for seed, place in ((1, (0, 0)), (1, (0, 0)), (1, (1, 0)), (1, (0, 1)), (2, (0, 0))):
        model = Toy()
        disturbed(model, seed, neftune=3.0)(model.go, place, {}, None)
        moved.append(model.moved[0])
    assert torch.equal(moved[0], moved[1])
    assert all(not torch.equal(moved[0], other) for other in moved[2:])
    limit = 3.0 / (3 * (TOKENS != PAD).sum(1)).sqrt()
    assert (moved[0].abs().amax((1, 2)) <= limit).all()
    assert (moved[0].abs().amax((1, 2)) > limit / 2).all()


def test_tokens_are_replaced_by_others_that_mean_nothing_special() -> None:
    """What the model is asked for stays true: only the embedding sees other words."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 8, (40, 60))
    seen: list[Tensor] = []
    model = Toy()
    special = Special(end=1, pad=PAD, unknown=2)

    def look(module: nn.Module, args: tuple[Tensor, ...], y: Tensor) -> None:
        seen.append(args[0])

    def go(state: Any, **more: Any) -> dict[str, Tensor]:
        before = tokens.clone()
        model(tokens)
        assert torch.equal(tokens, before)
        return {}

    for seed, place in ((1, (0, 0)), (1, (0, 0)), (1, (1, 0)), (2, (0, 0))):
        reads = disturbed(model, seed, special, token_noise=0.3)
        with model.tokens.register_forward_hook(look):
            reads(go, place, {}, None)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[3])
    words = tokens > 2
    changed = seen[0] != tokens
    assert not changed[~words].any() and (seen[0][changed] > 2).all()
    assert 0.25 < float(changed[words].float().mean()) < 0.35
    assert {int(new) for new in seen[0][changed]} == {3, 4, 5, 6, 7}


# -- refusals


@pytest.mark.parametrize(
    ("robust", "refusal"),
    [
        ({"adversary": "fgsm"}, (UnknownName, "robust.adversary", "'fgsm'")),
        ({"adversary": "fgm", "adv_lr": 0.1}, (ConfigError, "adv_lr", "pgd, freelb")),
        ({"adv_radius": 1.0}, (ConfigError, "adv_radius", 1, "robust.adversary")),
        ({"adversary": "pgd", "adv_init": 0.1}, (ConfigError, "adv_init", "freelb")),
        ({"adversary": "pgd", "adv_lr": float("nan")}, (ConfigError, "adv_lr", "nan")),
        ({"token_noise": 1.0}, (ConfigError, "token_noise", "is 1", 0)),
        ({"drop_path": -0.1}, (ConfigError, "drop_path", -0.1)),
        ({"rdrop": -1.0}, (ConfigError, "rdrop", -1)),
    ],
)
def test_what_cannot_be(robust: dict[str, Any], refusal: Refusal) -> None:
    with refuses(*refusal):
        chosen(**robust)


def test_engines_that_cannot() -> None:
    with refuses(ConfigError, "engine.compile=no"):
        resolved({"robust": {"adversary": "fgm"}, "engine": {"compile": "yes"}})
    agreeing = {"robust": {"rdrop": 1.0}, "engine": {"parallel": "fsdp"}}
    assert resolved(agreeing).engine.compile == "no"
    with refuses(ConfigError, "engine.parallel=ddp"):
        resolved(agreeing, processes=2)


def test_what_is_left_open_is_the_methods_own() -> None:
    def numbers(robust: Robust) -> tuple[float | None, ...]:
        return robust.adv_radius, robust.adv_lr, robust.adv_steps, robust.adv_init

    assert numbers(chosen(adversary="fgm")) == (0.1, None, None, None)
    assert numbers(chosen(adversary="pgd")) == (0.1, 0.03, 3, None)
    assert numbers(chosen(adversary="freelb")) == (0.3, 0.1, 2, 0.1)
    assert numbers(chosen(adversary="freelb", adv_radius=0.0, adv_steps=5)) == (0.0, 0.1, 5, 0.1)


def test_a_model_without_words() -> None:
    with refuses(ConfigError, "Linear"):
        word_embedding(nn.Linear(2, 2))
