"""What a budget decides about a new model of a laptop's size: how long its samples are, and with
`--size auto`, the default for a family, how large it is.

A larger model is worth its operations once it reads `WORTH` tokens for each weight of its layers;
this number is a choice, not yet fitted to runs. Samples are short while a budget is small: that was
measured on one text (scripts/learning.py, docs/results.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import ConfigError
from regard.data.corpus import read_marker
from regard.models.family import SHAPES, Family, Shape
from regard.training.build import is_whole
from regard.training.recipe import Recipe, replaced
from regard.training.resolve import DEFAULT_MINUTES, LENGTH

AUTO = "auto"
DECIDED = ("layers", "width", "heads", "ffn_size", "head_size")  # what a size says of a shape
LADDER = (
    SHAPES["tiny"], Shape(3, 192, 3), SHAPES["small"], Shape(5, 320, 5), Shape(6, 384, 6),
    SHAPES["medium"],
)  # fmt: skip
WORTH = 2.0  # tokens for each weight of the layers, from which a larger model learns more
OPERATIONS = 6  # for each weight and token, forward and backward
SHARE = 0.4  # of the machine's peak in matrix products that a small model reaches


class Amount(NamedTuple):
    """What a budget lets a model read: tokens, or operations that a larger model spends on fewer
    tokens."""

    value: float
    of_tokens: bool

    def tokens(self, shape: Shape, vocab_size: int) -> float:
        if self.of_tokens:
            return self.value
        return self.value / (OPERATIONS * (layer_weights(shape) + vocab_size * shape.width))


@dataclass(frozen=True)
class Sizing:
    """A shape, and the tokens that a model of it reads in the budget."""

    shape: Shape
    tokens: float

    def reason(self, seq_len: int) -> str:
        shape = self.shape
        return (
            f"size auto: {shape.layers} layers of {shape.width}, samples of {seq_len} tokens, "
            f"because this budget lets it read about {rounded(self.tokens)} tokens, "
            f"{self.tokens / layer_weights(shape):.1f} for each weight of its layers (at least "
            f"{WORTH:g}, or the smallest size); --size, --seq-len and shape.layers=N change it"
        )


def rounded(tokens: float) -> str:
    return f"{tokens / 1e6:.1f} M" if tokens >= 1e5 else f"{tokens:,.0f}"


def layer_weights(shape: Shape) -> int:
    return 12 * shape.layers * shape.width**2


def best_size(
    amount: Amount, vocab_size: int, shapes: Iterable[Shape] = LADDER, worth: float = WORTH
) -> Sizing:
    """Returns the largest shape that reads `worth` tokens for each weight of its layers, or the
    smallest."""
    chosen, *larger = shapes
    for shape in larger:
        if amount.tokens(shape, vocab_size) >= worth * layer_weights(shape):
            chosen = shape
    return Sizing(chosen, amount.tokens(chosen, vocab_size))


def sample_length(card: Family, tokens: float) -> int:
    """Returns the tokens of a sample for a model that reads so many tokens in all."""
    return next((length for most, length in card.budget_lengths if tokens <= most), LENGTH)


def wants_size(recipe: Recipe, card: Family) -> bool:
    """Whether the size of a new model is left to its budget: the recipe names a family and says
    nothing of the shape."""
    if recipe.size is not None:
        return recipe.size == AUTO
    names_family = recipe.model == card.name
    return names_family and recipe.recipe != "paper" and not own_shape(recipe)


def own_shape(recipe: Recipe) -> list[str]:
    """Returns the keys of the recipe's shape that a size would decide."""
    return [name for name in DECIDED if name in recipe.shape]


def sized(
    recipe: Recipe, card: Family, speed: Callable[[], float], note: Callable[[str], None]
) -> Recipe:
    """Returns the recipe with the shape and the length of samples that suit its budget, where it
    leaves them open. `speed` measures the operations that the machine makes in a second."""
    auto, length = wants_size(recipe, card), recipe.batch.seq_len
    if is_whole(card, recipe.shape) or not (auto or (recipe.by_budget and length is None)):
        return recipe
    if not auto:
        card.shape(recipe.size or "", LENGTH)  # refuses an unknown name
    shapes = LADDER if auto else (SHAPES[recipe.size or ""],)
    facts = read_marker(Path(recipe.data))
    if auto and (keys := own_shape(recipe)):
        raise ConfigError(
            f"--size auto chooses the shape, and shape.{keys[0]}={recipe.shape[keys[0]]} sets it; "
            "leave one of them out"
        )
    sizing = best_size(amount_of(recipe, card, facts, speed), facts["vocab_size"], shapes)
    if length is None and facts.get("kind") != "pairs":
        length = sample_length(card, sizing.tokens)
    recipe = replaced(recipe, batch={"seq_len": length})
    if not auto:
        return recipe
    note(sizing.reason(length or LENGTH))
    shape = card.laptop(sizing.shape, length or LENGTH) | recipe.shape
    return replaced(recipe, size=AUTO, shape=shape)


def amount_of(
    recipe: Recipe, card: Family, facts: dict[str, Any], speed: Callable[[], float]
) -> Amount:
    budget, paper = recipe.budget, card.budget_training
    if budget.tokens is not None:
        return Amount(budget.tokens, True)
    if budget.steps is not None:
        whole = (recipe.batch.size or 0) * (recipe.batch.seq_len or 0)
        return Amount(budget.steps * (whole or paper.batch_tokens or 0), True)
    if budget.epochs is not None:
        return Amount(budget.epochs * facts["splits"]["train"]["tokens"], True)
    if budget.flops is not None:
        return Amount(budget.flops, False)
    return Amount(60 * (budget.minutes or DEFAULT_MINUTES) * SHARE * speed(), False)
