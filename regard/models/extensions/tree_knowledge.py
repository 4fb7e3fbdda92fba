"""Knowledge about a batch, which every encoder accepts: `model(ids, mask, known=knowledge)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.pattern import Pattern
from regard.attention.position import Distances, View
from regard.attention.tree_pattern import Branches, limited
from regard.core.errors import InputError
from regard.data.knowledge.tree import TRUNK, FlatTree
from regard.models.extensions.guide import GuidedView, RuleGuide
from regard.models.state import KnowledgeView


@dataclass(frozen=True)
class Knowledge(KnowledgeView):
    """Branches with the positions of their tokens, or a guide, or both."""

    soft: Tensor | None = None  # [B, T]: the positions of tokens; None: they are counted
    branches: Branches | None = None
    guide: RuleGuide | None = None

    @classmethod
    def of_trees(
        cls,
        trees: Sequence[FlatTree],
        *,
        width: int = 0,
        left: bool = False,
        guide: RuleGuide | None = None,
    ) -> Knowledge:
        """Builds knowledge from flattened trees, padded on the right (or `left`) to the longest
        tree, or to `width`."""
        width = max([width, *(len(tree.tokens) for tree in trees)])

        def table(name: str, fill: int) -> Tensor:
            rows = torch.full((len(trees), width), fill)
            for target, tree in zip(rows, trees, strict=True):
                values = torch.tensor(getattr(tree, name), dtype=torch.long)
                target[slice(width - len(values), width) if left else slice(len(values))] = values
            return rows

        line = table("line", -1)
        branches = Branches(line.clamp_min(0), table("word", -2), table("owner", TRUNK), line >= 0)
        return cls(table("soft", 0), branches, guide)

    def positions(self, attention_mask: Tensor | None, rows: int, device: torch.device) -> Tensor:
        return super().positions(attention_mask, rows, device) if self.soft is None else self.soft

    def distances(self, counted: Tensor) -> Tensor:
        return counted if self.soft is None else behind(self.soft)

    def view(
        self,
        pattern: Pattern,
        dtype: torch.dtype,
        *,
        bias: Tensor | None = None,
        distances: Distances | None = None,
        asking: Tensor | None = None,
    ) -> View:
        if self.branches is not None:
            pattern = limited(pattern, self.branches, dtype, asking)
        if distances is not None and self.soft is not None:
            column = distances.keys - 1 + behind(self.soft)  # every row has its own index
            distances = replace(distances, rows=0, index=column[:, None])
        if self.guide is None:
            return View(pattern, bias, distances)
        features = self.guide.of(asking).features(pattern, dtype)
        if not torch.compiler.is_compiling() and not bool(features.any()):
            return View(pattern, bias, distances)  # no rule holds: exactly the plain model
        return GuidedView(pattern, bias, distances, features=features)

    def only_text(self, past: int, targets: Tensor | None) -> None:
        if past or targets is not None:
            raise InputError(
                "knowledge needs a text that is read in one call; pass no state and no targets"
            )


def behind(soft: Tensor) -> Tensor:
    """Returns the distances key - query, [B, Q, K]."""
    return soft[:, None, :] - soft[:, :, None]
