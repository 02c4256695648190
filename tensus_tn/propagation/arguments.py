"""The arguments of the operators, by name: torch passes them by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Arguments(NamedTuple):
    """What `tensus_tn::propagate` takes, in the order of its schema; see `csrc/library.cpp`.

    `propagate_backward` takes the gradients and the states, then these, then what is wanted.
    """

    h: Tensor
    w: Tensor
    edge_val: Tensor | None
    seg_val: Tensor | None
    back_edge_val: Tensor | None
    back_seg_val: Tensor | None
    loop: Tensor | None
    seg_loop: Tensor | None
    forward: Sequence[Tensor]
    backward: Sequence[Tensor]
    ranks: Sequence[int]
    tails: Sequence[int]
    heads: Sequence[int]
    chosen: Sequence[int] | None
    needed: Sequence[Tensor]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The ranks (d_j, d_k) at the ends of every edge of the DAG."""
        ends = zip(self.tails, self.heads, strict=True)
        return [(self.ranks[tail], self.ranks[head]) for tail, head in ends]

    def weights(self, w: Tensor) -> list[Tensor]:
        """The weights (C, d_j, d_k) of every edge, from a vector that holds them all."""
        relations = w.shape[0] // sum(p * q for p, q in self.shapes)
        parts = w.split([relations * p * q for p, q in self.shapes])
        return [part.reshape(relations, *s) for part, s in zip(parts, self.shapes, strict=True)]

    @property
    def num_edges(self) -> int:
        """The stored edges of the graph."""
        _, _, _, col = self.forward
        return col.shape[0]


class Wanted(NamedTuple):
    """Which gradients `tensus_tn::propagate_backward` is asked for; the others stay empty."""

    h: bool
    w: bool
    values: bool
