"""The least-squares problem of a dense tensor, by contractions that never form an environment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import sqrt

import torch
from torch import Tensor

from tensus_tn.fitting.environments import Environments
from tensus_tn.fitting.problem import Cores, Equations, LeastSquares
from tensus_tn.network.plan import Plan
from tensus_tn.network.planner import find_plan
from tensus_tn.network.structure import Structure

# Entries that the second derivatives of one batch of parameters may take.
_BATCH = 2**24
# A squared error below this is lost in the rounding of the difference that it comes from.
_LOST = 1e-6


class DenseFit(LeastSquares):
    """The residual of all entries, by contractions that are planned once.

    With `E_e` the environment of edge `e`, the product of all other cores summed over the ranks
    that `e` does not have, the model is `W_e E_e`, and the best core for the data `T` is
    `(T E_e^H) (E_e E_e^H)^-1`. Neither factor needs `E_e` itself: the first contracts the data
    with the other cores, the second, the Gram matrix, two networks that share their choices.

    Args:
        structure: The network.
        data: The tensor, of norm one.
        fixed: The edges, by number, whose cores are given.
        nonnegative: Whether no element of a core may be negative.
    """

    def __init__(
        self,
        structure: Structure,
        data: Tensor,
        fixed: frozenset[int] = frozenset(),
        nonnegative: bool = False,
    ) -> None:
        super().__init__(structure, data, fixed, nonnegative)
        self.terms, self.sizes = structure.terms, structure.sizes + structure.ranks
        # The same network again, with ranks of its own and the same choices.
        shift, ranks = len(structure.sizes), len(structure.ranks)
        self.copies = [tuple(i + shift if i < ranks else i for i in t) for t in structure.terms]
        self.choices = tuple(structure.choice(e) for e in range(len(structure.terms)))
        self.model = find_plan(self.terms, self.choices, self.sizes)
        pairs = zip(self.terms, self.copies, strict=True)
        # Each plan is made when it is needed: a fit that starts at its end needs only the first.
        self.grams = Environments([a[1:] + b[1:] for a, b in pairs], self.sizes)
        self.projections = Environments(self.terms, self.sizes, root=self.choices)

    def residual(self, cores: Cores) -> Tensor:
        """The model less the data, with the shape of the data."""
        return self.model(*cores) - self.data

    def normal_equations(self, cores: Cores) -> Iterator[tuple[int, Equations]]:
        """The projection of the data and the Gram matrix, for one edge after the other."""
        conjugates, squares = [core.conj() for core in cores], [_square(core) for core in cores]
        one = torch.ones((), dtype=self.data.dtype, device=self.data.device)
        projections = self.projections.visit(conjugates, self.data, self.edges)
        grams = self.grams.visit(squares, one, self.edges)
        for (edge, projection), (_, gram) in zip(projections, grams, strict=True):
            states = cores[edge][0].numel()
            yield edge, (gram.reshape(1, states, states), projection.reshape(-1, states))
            conjugates[edge], squares[edge] = cores[edge].conj(), _square(cores[edge])

    def sweep(self, cores: Cores) -> tuple[Cores, float]:
        """Solve for one core after the other; their error comes from the last equations.

        With `W` the last core, `norm(W E - T)^2 = norm(T)^2 + <W, W G - 2 P>`: the model itself is
        formed only where that difference would be lost in rounding.
        """
        cores = list(cores)
        for edge, equations in self.normal_equations(cores):
            cores[edge] = self.solve(cores[edge], equations)
        gram, projection = equations
        core = cores[edge].reshape(projection.shape)
        change = (core.conj() * (core @ gram[0] - 2 * projection)).real.sum()
        squared = float(self.squared_norm + change)
        return cores, sqrt(squared) if squared > _LOST else self.error(cores)

    @cached_property
    def squared_norm(self) -> Tensor:
        """The squared norm of the data: one, up to rounding, unless they are zero."""
        return self.data.abs().square().sum()

    @cached_property
    def inner_product(self) -> Plan:
        """The sum over all entries of the product of two networks."""
        return find_plan((*self.terms, *self.copies), (), self.sizes)

    def curvature(self, cores: Cores) -> Tensor:
        """`J^H J`: the mixed second derivative of the inner product of two networks."""
        found, plan = [cores[e] for e in self.edges], self.inner_product
        sizes = [core.numel() for core in found]
        given = [core.conj() for core in cores]

        def network(point: Tensor, rest: Cores) -> Cores:
            parts = zip(point.split(sizes), found, strict=True)
            return self.with_cores(rest, [part.view(core.shape) for part, core in parts])

        def derivative(x: Tensor, y: Tensor) -> Tensor:
            """The derivative of the inner product by `x`; torch returns its conjugate."""
            value, pull_back = torch.func.vjp(  # type: ignore[misc]
                lambda z: plan(*network(z, given), *network(y, cores)), x
            )
            conjugate: Tensor = pull_back(torch.ones_like(value))[0]
            return conjugate.conj()

        point = torch.cat([core.flatten() for core in found])
        chunk = max(_BATCH // plan.largest, 1)
        # As `torch.func.jacrev` does it, which refuses complex numbers.
        _, pull_back = torch.func.vjp(  # type: ignore[misc]
            lambda y: derivative(point.conj(), y), point
        )
        units = torch.eye(len(point), dtype=point.dtype, device=point.device)
        matrix: Tensor = torch.func.vmap(pull_back, chunk_size=chunk)(units)[0]
        return matrix.conj()


def _square(core: Tensor) -> Tensor:
    """A core times its conjugate, summed over the choices: `(d_j, d_k, d_j, d_k)`."""
    square: Tensor = torch.tensordot(core, core.conj(), dims=([0], [0]))
    return square
