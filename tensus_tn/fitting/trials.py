"""Many starts tried cheaply side by side, of which the most promising go on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from tensus_tn.fitting.observed_fit import ObservedFit
from tensus_tn.fitting.problem import Cores

# So many starts are tried together at first, and twice as many every time, up to a bound. After the
# first steps the best quarter goes on, and in the end the best one is left.
_TOGETHER = 16
_MOST_TOGETHER = 256
_FIRST_STEPS = 15
_MORE_STEPS = 35
# Entries that the Jacobians of all of them may have.
_LARGEST = 2**25


def with_trials(problem: ObservedFit, starts: Iterator[Cores]) -> Iterator[Cores]:
    """Every other start as it is, and between them the best of many that were tried.

    Most random starts of a completion end in poor minima, and some dozens of steps on all cores at once
    tell which. Where the Jacobians of so many starts are too large, all starts are as they are.

    Args:
        problem: What to minimise.
        starts: As many as are asked for; there must be no end to them.
    """
    first = next(starts)
    num_parameters = sum(core.numel() for core in first)
    yield first
    together, most = _TOGETHER, _LARGEST // (len(problem.rows) * num_parameters)
    if most < together:
        yield from starts
    while True:
        yield best_of(problem, list(islice(starts, together)))
        yield next(starts)
        together = min(2 * together, most, _MOST_TOGETHER)


def best_of(problem: ObservedFit, starts: list[Cores]) -> Cores:
    """The cores with the lowest error, after some steps from each start."""
    trials = _Trials(problem, [torch.stack(cores) for cores in zip(*starts, strict=True)])
    trials.step(_FIRST_STEPS)
    trials.keep(-(-len(starts) // 4))
    trials.step(_MORE_STEPS)
    trials.keep(1)
    return [core[0] for core in trials.cores]


class _Trials:
    """Several starts on their way down by Levenberg-Marquardt, each with a damping of its own.

    Attributes:
        cores: The cores of all of them, `(S, ...)` each.
        errors: Their errors, `(S,)`.
    """

    def __init__(self, problem: ObservedFit, cores: Cores) -> None:
        self.problem, self.cores = problem, _equalize(cores)
        self.residual, self.jacobian = self._linearize(self.cores)
        self.errors = self.residual.norm(dim=1)
        self.damping = torch.ones_like(self.errors)

    def _linearize(self, cores: Cores) -> tuple[Tensor, Tensor]:
        """The residuals `(S, N)` and their derivatives `(S, N, P)`."""
        residual, jacobian = torch.func.vmap(self.problem.linearize)(cores)
        return residual, jacobian

    def step(self, times: int) -> None:
        """Take so many steps; one that would raise the error is not taken, but damped the next time."""
        for _ in range(times):
            trial, failed = self._move()
            residual, jacobian = self._linearize(trial)
            errors = residual.norm(dim=1)
            better = (errors < self.errors) & ~failed
            self.damping = torch.where(better, self.damping / 4, self.damping * 4)
            self.damping.clamp_(1e-15, 1e6)
            pairs = zip((*trial, residual, jacobian, errors), self._state(), strict=True)
            *self.cores, self.residual, self.jacobian, self.errors = (
                torch.where(better.view(-1, *[1] * (old.ndim - 1)), new, old) for new, old in pairs
            )

    def _move(self) -> tuple[Cores, Tensor]:
        """The cores after the next step, and for which the step could not be found."""
        adjoint = self.jacobian.mH
        curvature = adjoint @ self.jacobian
        diagonal = curvature.diagonal(dim1=1, dim2=2)
        diagonal += (self.damping * diagonal.real.amax(1))[:, None]
        factor, info = torch.linalg.cholesky_ex(curvature)
        step = torch.cholesky_solve(adjoint @ self.residual[..., None], factor)[..., 0]
        parts = step.split([core[0].numel() for core in self.cores], dim=1)
        moved = [core - part.view_as(core) for core, part in zip(self.cores, parts, strict=True)]
        return _equalize(moved), info != 0

    def keep(self, number: int) -> None:
        """Go on with the best ones."""
        best = self.errors.argsort()[:number]
        self.damping = self.damping[best]
        *self.cores, self.residual, self.jacobian, self.errors = (x[best] for x in self._state())

    def _state(self) -> list[Tensor]:
        return [*self.cores, self.residual, self.jacobian, self.errors]


def _equalize(cores: Cores) -> Cores:
    """As `LeastSquares.equalize`, for several starts `(S, ...)`."""
    norms = torch.stack([core.flatten(1).norm(dim=1) for core in cores])
    scales = torch.nan_to_num(norms.log().mean(0).exp() / norms)
    pairs = zip(cores, scales, strict=True)
    return [core * scale.view(-1, *[1] * (core.ndim - 1)) for core, scale in pairs]
