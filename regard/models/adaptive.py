"""Adaptive input and softmax (Grave et al. 2017; Baevski & Auli 2019) as Transformer-XL uses them.

Words are sorted by frequency and divided into clusters. Rare clusters have narrower vectors
(`ratio`). The probability of a rare word is the probability of its cluster (one more row of the
first softmax) times the probability of the word within the cluster.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.output import CHUNK, Output, surprisal


class AdaptiveEmbedding(nn.Module):
    """One embedding table per cluster, each projected to the model's width and scaled by √width."""

    def __init__(
        self, vocab_size: int, cutoffs: tuple[int, ...], size: int, ratio: int, width: int
    ) -> None:
        super().__init__()
        self.edges = (0, *cutoffs, vocab_size)
        self.ratio, self.width = ratio, width
        edges = (0, vocab_size) if ratio == 1 else self.edges
        self.ranges = list(pairwise(edges))
        sizes = [size // ratio**i for i in range(len(self.ranges))]
        self.tables = nn.ModuleList(
            nn.Embedding(end - start, d) for (start, end), d in zip(self.ranges, sizes, strict=True)
        )
        projected = ratio != 1 or size != width
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(width, d)) for d in sizes if projected
        )

    def forward(self, input_ids: Tensor) -> Tensor:
        if len(self.tables) == 1:
            x = self.tables[0](input_ids)
            x = F.linear(x, self.projections[0]) if len(self.projections) else x
        else:
            x = torch.zeros((), device=input_ids.device)
            for (start, end), table, projection in zip(
                self.ranges, self.tables, self.projections, strict=True
            ):
                inside = (input_ids >= start) & (input_ids < end)
                row = table((input_ids - start).clamp(0, end - start - 1)) * inside[..., None]
                x = x + F.linear(row, projection)
        y: Tensor = x * self.width**0.5
        return y


class AdaptiveOutput(Output):
    """log P(word), tied to the embedding's tables; with `shared`, also to its rarer projections."""

    def __init__(self, embedding: AdaptiveEmbedding, size: int, shared: bool) -> None:
        nn.Module.__init__(self)
        self.edges, self.ratio = embedding.edges, embedding.ratio
        self.tables: Any = embedding.tables
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(end - start)) for start, end in embedding.ranges
        )
        clusters = len(self.edges) - 2
        self.cluster_weight = nn.Parameter(torch.zeros(clusters, size)) if clusters else None
        self.cluster_bias = nn.Parameter(torch.zeros(clusters)) if clusters else None
        self.projections = nn.ParameterList()
        if len(embedding.projections):
            for i in range(clusters + 1):
                like = embedding.projections[0 if self.ratio == 1 else i]
                self.projections.append(
                    like if shared and i > 0 else nn.Parameter(torch.empty_like(like))
                )

    def cluster(self, i: int) -> tuple[Tensor, Tensor]:
        """Returns weight and bias of cluster i; the first one ends with a row per other cluster."""
        if self.ratio == 1:
            inside = slice(self.edges[i], self.edges[i + 1])
            weight, bias = self.tables[0].weight[inside], self.biases[0][inside]
        else:
            weight, bias = self.tables[i].weight, self.biases[i]
        if i == 0 and self.cluster_weight is not None and self.cluster_bias is not None:
            weight = torch.cat([weight, self.cluster_weight])
            bias = torch.cat([bias, self.cluster_bias])
        return weight, bias

    def narrowed(self, hidden: Tensor, i: int) -> Tensor:
        """Projects the hidden states to the width of cluster i."""
        return F.linear(hidden, self.projections[i].mT) if len(self.projections) else hidden

    def clusters(self) -> range:
        return range(1, len(self.edges) - 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Returns log-probabilities of the whole vocabulary."""

        def log_p(i: int) -> Tensor:
            return torch.log_softmax(F.linear(self.narrowed(hidden, i), *self.cluster(i)), -1)

        first, common = log_p(0), self.edges[1]
        tails = [first[..., common + i - 1, None] + log_p(i) for i in self.clusters()]
        return torch.cat([first[..., :common], *tails], -1)

    def surprisal(self, hidden: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        """Returns the sum over the targets; a rare cluster's logits are computed only for its
        words."""
        edges = torch.tensor(self.edges[1:-1], device=targets.device)
        cluster = torch.bucketize(targets, edges, right=True)
        first = torch.where(cluster == 0, targets, self.edges[1] + cluster - 1)
        total = surprisal(self.narrowed(hidden, 0), *self.cluster(0), first, shares)
        for i in self.clusters():
            inside = (cluster == i).nonzero()[:, 0]
            if inside.numel():
                share = None if shares is None else shares[inside]
                rows = self.narrowed(hidden[inside], i)
                target = targets[inside] - self.edges[i]
                total = total + surprisal(rows, *self.cluster(i), target, share)
        return total

    def each(self, hidden: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            rows = max(1, CHUNK // self.edges[-1])
            parts = zip(hidden.split(rows), targets.split(rows), strict=True)
            return torch.cat([-self(h).gather(1, t[:, None])[:, 0] for h, t in parts])
