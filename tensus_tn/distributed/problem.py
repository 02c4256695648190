"""What a propagation over several processes is asked for, besides the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """The states and their links, as `csrc/library.cpp` describes them."""

    ranks: tuple[int, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    chosen: tuple[int, ...] | None

    @property
    def last(self) -> int:
        """The sink."""
        return len(self.ranks) - 1

    def split(self, w: Tensor) -> list[Tensor]:
        """The weights (C, d_j, d_k) of every link, or their gradients, from one vector."""
        ends = zip(self.tails, self.heads, strict=True)
        shapes = [(self.ranks[j], self.ranks[k]) for j, k in ends]
        relations = w.numel() // sum(p * q for p, q in shapes)
        parts = w.split([relations * p * q for p, q in shapes])
        return [part.view(relations, *s) for part, s in zip(parts, shapes, strict=True)]

    def links_into(self, state: int) -> list[int]:
        """The links that end in a state."""
        return [e for e, head in enumerate(self.heads) if head == state]

    def links_from(self, state: int) -> list[int]:
        """The links that begin in a state."""
        return [e for e, tail in enumerate(self.tails) if tail == state]

    def relations(self, count: int) -> Tensor:
        """Which of so many relations each link uses, (links, C)."""
        if self.chosen is None:
            return torch.ones(len(self.tails), count, dtype=torch.bool)
        return torch.tensor(self.chosen, dtype=torch.bool).reshape(len(self.tails), count)

    def clear_unused(self, w: Tensor) -> None:
        """Set to zero what belongs to relations that a link does not use."""
        if self.chosen is None:
            return
        weights = self.split(w)
        for weight, used in zip(weights, self.relations(len(weights[0])), strict=True):
            weight[~used] = 0

    def mixed_first(self, edges: Tensor, nodes: int, backward: bool) -> Sequence[int]:
        """Which links are mixed first, on a graph with as many nodes and edges (C,) in all parts."""
        flags: Sequence[int] = torch.ops.tensus_tn.plan_passes(
            edges, nodes, self.ranks, self.tails, self.heads, self.chosen, backward
        )
        return flags
