"""What a fit by least squares minimises: the norm of a residual that is linear in each core.

`DenseFit` and `ObservedFit` are the two problems; `least_squares.py` descends on either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Cores = list[Tensor]  # with the indices of `structure.terms`


class LeastSquares(ABC):
    """A residual that is linear in each core, for data of norm one.

    Attributes:
        solves_exactly: Whether `solve` minimises the residual and nothing else, so that alternating
            sweeps end at a minimum.
    """

    solves_exactly = True

    @abstractmethod
    def residual(self, cores: Cores) -> Tensor:
        """The model less the data; differentiable."""

    @abstractmethod
    def solve(self, cores: Cores, edge: int) -> Tensor:
        """The core of one edge that minimises the residual, the others given."""

    @abstractmethod
    def curvature(self, cores: Cores) -> Tensor:
        """`J^T J` of shape `(P, P)`, with `J` the derivative of the residual by all cores."""

    def error(self, cores: Cores) -> float:
        """The norm of the residual: the relative error, as the data have norm one."""
        return float(self.residual(cores).norm())

    def gradient(self, cores: Cores) -> Tensor:
        """The derivative `J^T r` of half the squared error by all cores, `(P,)`."""
        leaves = [core.detach().requires_grad_() for core in cores]
        with torch.enable_grad():
            loss = self.residual(leaves).square().sum() / 2
        return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, leaves)])


def pseudo_inverse(gram: Tensor) -> Tensor:
    """The inverse of Gram matrices `(..., R, R)`; zero for what the data do not determine."""
    inverse: Tensor = torch.linalg.pinv(gram, hermitian=True, rtol=1e-14)
    return inverse


def others(items: Sequence[Any], edge: int, none: Any) -> list[Any]:
    """All but one of the items; with nothing left, the neutral element."""
    return [item for e, item in enumerate(items) if e != edge] or [none]
