"""Every encoder of the zoo, asked in one way; and texts with branches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core.seeding import keyed
from regard.data.knowledge.tree import FlatTree, KnowledgeTree, Node
from regard.models.state import NOTHING, KnowledgeView
from tests.laws.zoo import VOCABULARY, ZOO, Specimen, through

NAMES = (
    "transformer", "transformer-pre", "bert", "xlnet", "t5", "t5-v1_1", "longformer",
    "longformer-global", "longformer-one-layer",
)  # fmt: skip
ENCODERS = tuple(specimen for specimen in ZOO if specimen.name in NAMES)


def tree(seed: int, words: int = 6, branches: int = 2) -> KnowledgeTree:
    """A text of one or two tokens a word, of which about half have branches."""
    dice = keyed(seed, "tree")

    def tokens(most: int) -> list[int]:
        return [int(x) for x in dice.integers(VOCABULARY, size=dice.integers(1, most + 1))]

    nodes = []
    for number in range(words):
        count = int(dice.integers(branches + 1)) if number else branches
        nodes.append(Node(tokens(2), [[Node(tokens(3))] for _ in range(count)]))
    return KnowledgeTree(nodes)


def extras(specimen: Specimen, tokens: Tensor) -> dict[str, Tensor]:
    """What else the model may be told, the same for the same token."""
    inputs = {}
    if "segments" in specimen.fields:
        inputs["segments"] = (tokens % 3 == 0).long()
    if "global_tokens" in specimen.fields:
        inputs["global_tokens"] = tokens % 7 == 0
    return inputs


def read(
    specimen: Specimen,
    model: Any,
    tokens: Tensor,
    known: KnowledgeView = NOTHING,
    attention_mask: Tensor | None = None,
    like: Tensor | None = None,  # tokens that decide what else the model is told
) -> Tensor:
    """The hidden states of an encoder, also where a decoder would follow."""
    if specimen.pair:
        y: Tensor = model.encode(tokens, attention_mask, known=known)
    else:
        inputs = extras(specimen, tokens if like is None else like)
        y = model(tokens, attention_mask, **inputs, known=known)
    return y


def batch(flats: list[FlatTree], left: bool = False) -> tuple[Tensor, Tensor]:
    """Tokens and marks; what padding holds must not matter."""
    width = max(len(flat.tokens) for flat in flats)
    tokens, attention_mask = (
        torch.full((len(flats), width), 3),
        torch.zeros(len(flats), width).bool(),
    )
    for i, flat in enumerate(flats):
        size = len(flat.tokens)
        place = slice(width - size, width) if left else slice(size)
        tokens[i, place], attention_mask[i, place] = torch.tensor(flat.tokens), True
    return tokens, attention_mask


def reach(specimen: Specimen, flat: FlatTree) -> Tensor:
    """[row, token]: what can reach a row through all layers."""
    tokens = torch.tensor(flat.tokens)
    seen, config = torch.from_numpy(flat.visible()), specimen.config
    at = torch.arange(len(tokens))
    steps = []
    for layer in range(config.layers):  # type: ignore[attr-defined]
        step = seen
        if hasattr(config, "windows"):
            far = extras(specimen, tokens).get("global_tokens", torch.zeros_like(at).bool())
            near = (at[:, None] - at).abs() <= config.windows[layer] // 2
            step = seen & (near | far[None] | far[:, None])
        steps.append(step)
    return through(steps)
