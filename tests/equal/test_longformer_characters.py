"""The character Longformer has no class elsewhere: it is compared with its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

import regard
from regard.api import load
from regard.attention.attention import Attention
from regard.core.errors import ConfigError
from regard.formats.directory import save
from regard.models.longformer_characters import CharacterLongformer, CharacterLongformerConfig
from tests.equal.reference import close, marks, scramble, words
from tests.refusals import refuses

VOCABULARY = 37


def model(**changes: Any) -> CharacterLongformer:
    small: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 24, "layers": 3, "heads": 4}
    small |= {"ffn_size": 40, "windows": (3, 6, 40), "dilations": (1, 2, 3)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return scramble(CharacterLongformer(CharacterLongformerConfig(**small | changes)))


def sines(distance: Tensor, width: int) -> Tensor:
    angle = distance[..., None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.cat([angle.sin(), angle.cos()], -1)


def heads_seen(
    part: Attention, x: Tensor, before: int, step: int, attention_mask: Tensor
) -> Tensor:
    """Relative attention of some heads, with every pair of rows written out."""
    rows, heads, size = x.size(1), part.project.heads, part.project.size
    q, k, v = (
        F.linear(x, weight).unflatten(-1, (heads, size)).transpose(1, 2)
        for weight in part.project.weight.chunk(3)
    )
    apart = torch.arange(rows)[:, None] - torch.arange(rows)
    r = F.linear(sines(apart.float(), x.size(2)), part.score.distance.weight)
    r = r.unflatten(-1, (heads, size))  # [query, key, head, size]
    content = torch.einsum("bhqd,bhkd->bhqk", q + part.score.u[:, None], k)
    place = torch.einsum("bhqd,qkhd->bhqk", q + part.score.v[:, None], r)
    seen = (apart >= 0) & (apart % step == 0) & (apart <= before * step)
    seen = seen & (attention_mask[:, None, None, :] | torch.eye(rows).bool())
    scores = ((content + place) / size**0.5).masked_fill(~seen, -torch.inf)
    return part.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def written_out(model: CharacterLongformer, tokens: Tensor, attention_mask: Tensor) -> Tensor:
    x = model.tokens(tokens)
    for i, block in enumerate(model.blocks):
        both, window = block.attention.layer, model.config.window(i)
        y = block.attention.norm(x)
        x = x + heads_seen(both.near, y, window, 1, attention_mask)
        x = x + heads_seen(both.apart, y, window, model.config.dilation(i), attention_mask)
        y = block.feed_forward.norm(x)
        x = x + block.feed_forward.layer.narrow(F.gelu(block.feed_forward.layer.wide(y)))
    return model.norm(x)


@pytest.mark.parametrize("rows", [1, 5, 32, 45, 97])
@pytest.mark.parametrize(
    "changes", [{}, {"dilations": ()}, {"windows": (1, 1, 2), "dilations": (7, 1, 30)}], ids=str
)
@torch.no_grad()
def test_the_definition(rows: int, changes: dict[str, Any]) -> None:
    long, tokens = model(**changes), words(VOCABULARY, 2, rows)
    close(long(tokens), written_out(long, tokens, torch.ones(2, rows, dtype=torch.bool)))


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_on_either_side(side: str) -> None:
    long, lengths = model(), [45, 13, 30]
    attention_mask, tokens = marks(lengths, side), words(VOCABULARY, 3, 45)
    rows = long(tokens, attention_mask)
    close(rows[attention_mask], written_out(long, tokens, attention_mask)[attention_mask])
    for i, length in enumerate(lengths):
        close(
            rows[i][attention_mask[i]],
            long(tokens[i][attention_mask[i]][None])[0].view(length, -1),
        )


@torch.no_grad()
def test_nothing_is_seen_ahead_or_beyond_the_windows() -> None:
    long, tokens = model(), words(VOCABULARY, 1, 200)
    before = long(tokens)
    for at in (0, 31, 90, 199):
        other = tokens.clone()
        other[0, at] = (other[0, at] + 1) % VOCABULARY
        changed = (long(other) != before).any(-1)[0]
        reach = at + 3 + 6 * 2 + 40 * 3  # each layer's furthest key
        assert not changed[:at].any() and changed[at]
        assert not changed[reach + 1 :].any()


def test_the_gradient_of_the_definition() -> None:
    long, tokens = model(), words(VOCABULARY, 2, 45)
    scale = words(100, 2, 45, 24).float() / 100
    wanted = torch.autograd.grad(
        (written_out(long, tokens, torch.ones(2, 45, dtype=torch.bool)) * scale).sum(),
        list(long.blocks.parameters()),
    )
    slopes = torch.autograd.grad((long(tokens) * scale).sum(), list(long.blocks.parameters()))
    for one, two in zip(slopes, wanted, strict=True):
        close(one / two.abs().max(), two / two.abs().max())


def test_windows_grow_and_only_upper_layers_are_dilated() -> None:
    for name, count in {"small": 41, "large": 102}.items():
        size = f"longformer-characters-{name}"
        config = regard.sizes()[size]
        windows = [config.window(i) for i in range(config.layers)]
        dilations = [config.dilation(i) for i in range(config.layers)]
        assert windows == sorted(windows) and (windows[0], windows[-1]) == (32, 512)
        assert dilations == sorted(dilations) and set(dilations[: config.layers // 2]) == {1}
        assert regard.count_parameters(size) // 10**6 == count


def test_it_has_a_type_of_its_own(tmp_path: Path) -> None:
    long, tokens = model(), words(VOCABULARY, 2, 45)
    save(long, tmp_path)
    again = load(tmp_path)
    assert again.config == long.config
    with torch.no_grad():
        assert torch.equal(again.model(tokens), long(tokens))
    with refuses(ValueError, "regard-longformer-characters"):
        transformers.AutoConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "wrong", [{"windows": (4, 4)}, {"windows": (4, 0, 4)}, {"dilations": (1,)}], ids=str
)
def test_windows_that_cannot_be(wrong: dict[str, Any]) -> None:
    with refuses(ConfigError, next(iter(wrong))):
        model(**wrong)
