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
    group_sizes: Sequence[int] | None

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The ranks (d_j, d_k) at the ends of every edge of the DAG."""
        ends = zip(self.tails, self.heads, strict=True)
        return [(self.ranks[tail], self.ranks[head]) for tail, head in ends]

    @property
    def needed_rows(self) -> Sequence[Tensor]:
        """The needed rows of every state, if not all are: on a GPU, row maps follow in `needed`."""
        return self.needed[: len(self.ranks)]

    @property
    def num_groups(self) -> int:
        """The groups of feature columns."""
        return 1 if self.group_sizes is None else len(self.group_sizes)

    def weights(self, w: Tensor) -> list[Tensor]:
        """The weights (G, C, d_j, d_k) of every edge, from a vector that holds them all."""
        groups, shapes = self.num_groups, self.shapes
        relations = w.shape[0] // (groups * sum(p * q for p, q in shapes))
        parts = w.reshape(groups, -1).split([relations * p * q for p, q in shapes], 1)
        return [part.reshape(groups, relations, *s) for part, s in zip(parts, shapes, strict=True)]

    def by_group(self) -> list[Arguments]:
        """The same problem for the columns of each group alone."""
        if self.group_sizes is None:
            return [self]
        columns = self.h.split(list(self.group_sizes), 2)
        weights = self.w.chunk(self.num_groups)
        pairs = zip(columns, weights, strict=True)
        return [self._replace(h=h, w=w, group_sizes=None) for h, w in pairs]

    @property
    def num_edges(self) -> int:
        """The stored edges of the graph."""
        return self.forward[3].shape[0]


class Wanted(NamedTuple):
    """Which gradients `tensus_tn::propagate_backward` is asked for; the others stay empty."""

    h: bool
    w: bool
    values: bool
