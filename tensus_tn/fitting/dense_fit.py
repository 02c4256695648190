"""The least-squares problem of a dense tensor, by contractions that never form an environment."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from tensus_tn.fitting.problem import Cores, LeastSquares, others, pseudo_inverse
from tensus_tn.network.plan import Plan
from tensus_tn.network.planner import find_plan
from tensus_tn.network.structure import Structure

# Entries that the second derivatives of one batch of parameters may take.
_BATCH = 2**24


class DenseFit(LeastSquares):
    """The residual of all entries, by contractions that are planned once.

    With `E_e` the environment of edge `e`, the product of all other cores summed over the ranks
    that `e` does not have, the model is `W_e E_e`, and the best core for the data `T` is
    `(T E_e^T) (E_e E_e^T)^-1`. Neither factor needs `E_e` itself: the first contracts the data
    with the other cores, the second, the Gram matrix, two networks that share their choices.
    """

    def __init__(self, structure: Structure, data: Tensor) -> None:
        self.data, self.terms = data, structure.terms
        self.sizes = structure.sizes + structure.ranks
        # The same network again, with ranks of its own and the same choices.
        shift, ranks = len(structure.sizes), len(structure.ranks)
        self.copies = [tuple(i + shift if i < ranks else i for i in t) for t in structure.terms]
        self.choices = tuple(structure.choice(e) for e in range(len(structure.terms)))
        # Each plan is made when it is needed: a fit that starts at its end needs only the first.
        self.model = find_plan(self.terms, self.choices, self.sizes)
        self.projection, self.gram = cache(self._plan_projection), cache(self._plan_gram)
        self.inner_product = cache(self._plan_inner_product)

    def _plan_projection(self, edge: int) -> Plan:
        """The data contracted with all cores but one."""
        rest = others(self.terms, edge, ())
        return find_plan((self.choices, *rest), self.terms[edge], self.sizes)

    def _plan_gram(self, edge: int) -> Plan:
        """The environment of an edge times itself, summed over all choices."""
        rest, copies = others(self.terms, edge, ()), others(self.copies, edge, ())
        ranks = self.terms[edge][1:] + self.copies[edge][1:]
        return find_plan((*rest, *copies), ranks, self.sizes)

    def _plan_inner_product(self) -> Plan:
        """The sum over all entries of the product of two networks."""
        return find_plan((*self.terms, *self.copies), (), self.sizes)

    def residual(self, cores: Cores) -> Tensor:
        """The model less the data, with the shape of the data."""
        return self.model(*cores) - self.data

    def solve(self, cores: Cores, edge: int) -> Tensor:
        """The best core of an edge: the projection of the data times the inverse Gram matrix."""
        rest = others(cores, edge, torch.ones_like(self.data.flatten()[0]))
        states = cores[edge][0].numel()
        projection = self.projection(edge)(self.data, *rest).reshape(-1, states)
        gram = self.gram(edge)(*rest, *rest).reshape(states, states)
        return (projection @ pseudo_inverse(gram)).view_as(cores[edge])

    def curvature(self, cores: Cores) -> Tensor:
        """`J^T J`: the mixed second derivative of the inner product of two networks."""
        sizes, plan = [core.numel() for core in cores], self.inner_product()

        def inner_product(x: Tensor, y: Tensor) -> Any:
            parts = [part for z in (x, y) for part in z.split(sizes)]
            return plan(*(part.view_as(core) for part, core in zip(parts, cores * 2, strict=True)))

        point = torch.cat([core.flatten() for core in cores])
        chunk = max(_BATCH // plan.largest, 1)
        derivative = torch.func.jacrev(torch.func.grad(inner_product), 1, chunk_size=chunk)
        matrix: Tensor = derivative(point, point)
        return matrix
