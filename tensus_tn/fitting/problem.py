"""What a fit by least squares minimises: the norm of a residual that is linear in each core.

`DenseFit` and `ObservedFit` are the two problems; `least_squares.py` descends on either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tensus_tn.fitting.core_solvers import solve_core, solve_nonnegative_core
from tensus_tn.network.structure import Structure

Cores = list[Tensor]  # with the indices of `structure.terms`
Equations = tuple[Tensor, Tensor]  # a Gram matrix (B, R, R), and the projected data (C, R)


class LeastSquares(ABC):
    """A residual that is linear in each core, for data of norm one.

    Attributes:
        data: The numbers to fit, of norm one.
        edges: The edges, by number, whose cores are to be found; the other cores are given.
        nonnegative: Whether no element of a core may be negative.
        solves_exactly: Whether `sweep` minimises the residual and nothing else, so that alternating
            sweeps end at a minimum.
    """

    solves_exactly = True

    def __init__(
        self,
        structure: Structure,
        data: Tensor,
        fixed: frozenset[int] = frozenset(),
        nonnegative: bool = False,
    ) -> None:
        self.data, self.nonnegative = data, nonnegative
        self.edges = [e for e in range(len(structure.terms)) if e not in fixed]

    @abstractmethod
    def residual(self, cores: Cores) -> Tensor:
        """The model less the data; differentiable."""

    @abstractmethod
    def normal_equations(self, cores: Cores) -> Iterator[tuple[int, Equations]]:
        """For one edge after the other, the equations `W G = P` of its best core `W`, `(C, R)`.

        With `E` the environment of the core, `(R, N)`, and `T` the data, `(C, N)`, they are
        `G = E E^H` and `P = T E^H`; or `G` is one such matrix for each choice. What `cores` holds is
        read when it is needed, so the core of an edge may be replaced before the next is asked for.
        """

    @abstractmethod
    def curvature(self, cores: Cores) -> Tensor:
        """`J^H J`, `(P, P)`, with `J` the derivative of the residual by the cores of `edges`."""

    def sweep(self, cores: Cores) -> tuple[Cores, float]:
        """Solve for one core after the other, and return them with their error."""
        cores = list(cores)
        for edge, equations in self.normal_equations(cores):
            cores[edge] = self.solve(cores[edge], equations)
        return cores, self.error(cores)

    def solve(self, core: Tensor, equations: Equations) -> Tensor:
        """The best core, from its equations and the core as it was."""
        gram, projection = equations
        if self.nonnegative:
            return solve_nonnegative_core(gram, projection, core.reshape(projection.shape)).view(
                core.shape
            )
        return solve_core(gram, projection).view(core.shape)

    def error(self, cores: Cores) -> float:
        """The norm of the residual: the relative error, as the data have norm one."""
        return float(self.residual(cores).norm())

    def gradient(self, cores: Cores) -> Tensor:
        """The derivative `J^H r` of half the squared error by the cores of `edges`, `(P,)`."""
        leaves = [cores[e].detach().requires_grad_() for e in self.edges]
        with torch.enable_grad():
            loss = self.loss(self.with_cores(cores, leaves))
        return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, leaves)])

    def loss(self, cores: Cores) -> Tensor:
        """Half the squared error; differentiable."""
        residual = self.residual(cores)
        if residual.is_complex():
            residual = torch.view_as_real(residual)
        return residual.square().sum() / 2

    def with_cores(self, cores: Cores, found: Sequence[Tensor]) -> Cores:
        """All cores, those of `edges` replaced."""
        cores = list(cores)
        for e, core in zip(self.edges, found, strict=True):
            cores[e] = core
        return cores

    def equalize(self, cores: Cores) -> Cores:
        """The same tensor, with equal norms of the cores of `edges`, so that one damping suits all."""
        found = [cores[e] for e in self.edges]
        norms = torch.stack([core.norm() for core in found])
        # A zero core makes all of them zero.
        scales = torch.nan_to_num(norms.log().mean().exp() / norms)
        return self.with_cores(
            cores, [core * scale for core, scale in zip(found, scales, strict=True)]
        )
