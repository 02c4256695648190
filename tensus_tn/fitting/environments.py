"""The environment of every core of a network, each made of parts that several of them share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from torch import Tensor

from tensus_tn.network.plan import Plan
from tensus_tn.network.planner import find_plan
from tensus_tn.network.typing import Indices


class Environments:
    """All factors of a network but one, contracted, for one factor after the other.

    The environments of one half of the factors have all of the other half in common. So the factors
    are halved again and again: each node of that tree contracts what its parent has with the factors
    of the other half. A sweep over `M` factors takes `2 log M` times the work of one environment at
    most, instead of `M` times, and where the first contraction is the most costly (a dense tensor) two
    times.

    Args:
        terms: The indices of each factor; its environment has the same.
        sizes: The size of each index.
        root: The indices of a tensor that is a part of every environment.
        batch: An index that all factors and the root have, stored last.
    """

    def __init__(
        self,
        terms: Sequence[Indices],
        sizes: Sequence[int],
        root: Indices = (),
        batch: int | None = None,
    ) -> None:
        self.terms, self.sizes, self.root, self.batch = terms, sizes, root, batch
        self.plan = cache(self._plan)

    def visit(
        self, factors: Sequence[Tensor], root: Tensor, edges: Sequence[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """The environments of some edges, in order.

        A factor may be replaced as soon as its environment is there: the later ones see the new one.

        Args:
            factors: One tensor for each term.
            root: The tensor that is a part of every environment.
            edges: The edges whose environments are wanted.
        """
        everything = tuple(range(len(self.terms)))
        yield from self._visit(factors, root, self.root, everything, frozenset(edges))

    def _visit(
        self,
        factors: Sequence[Tensor],
        value: Tensor,
        indices: Indices,
        inside: Indices,
        wanted: frozenset[int],
    ) -> Iterator[tuple[int, Tensor]]:
        if len(inside) == 1:
            yield inside[0], self.plan(indices, (), inside)(value)
            return
        middle = len(inside) // 2
        halves = inside[:middle], inside[middle:]
        for kept, contracted in (halves, halves[::-1]):
            if not wanted.isdisjoint(kept):
                plan = self.plan(indices, contracted, kept)
                part = plan(value, *(factors[e] for e in contracted))
                yield from self._visit(factors, part, plan.output, kept, wanted)

    def _plan(self, indices: Indices, contracted: Indices, kept: Indices) -> Plan:
        """Contract a tensor with some factors; what the kept ones do not need is summed."""
        terms = [indices, *(self.terms[e] for e in contracted)]
        needed = {i for e in kept for i in self.terms[e]}
        output: Indices = tuple(
            i for i in dict.fromkeys(sum(terms, ())) if i in needed and i != self.batch
        )
        output += () if self.batch is None else (self.batch,)
        if len(kept) == 1 and not contracted:
            output = self.terms[kept[0]]
        return find_plan(terms, output, self.sizes, batch=self.batch)
