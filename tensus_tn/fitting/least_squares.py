"""Ways down a sum of squares: one core at a time, all of them at once, or along the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from tensus_tn.fitting.problem import Cores, LeastSquares
from tensus_tn.fitting.settings import Settings

Steps = Iterator[tuple[Cores, float]]  # the cores after each sweep, and their error

# Alternating sweeps go on while one lowers the error by this share, or by less than half of what the
# one before it did: then they are about to converge. Otherwise they crawl through a narrow valley, and
# steps on all cores at once take over, unless their matrix would be too large.
_WORTHWHILE = 0.05
_SHRINKS = 0.5
_MOST_PARAMETERS = 2000
# Otherwise a run has converged when so many sweeps in a row lower the error by less than `tol`: a
# single short step may only mean that the damping has still to find its size.
_PATIENCE = 3


@dataclass(frozen=True)
class Run:
    """The best cores on the way down, the errors before the first sweep and after each, and the end."""

    cores: Cores
    errors: list[float]
    converged: bool


def descend(
    problem: LeastSquares,
    start: Cores,
    settings: Settings,
    rounding: float,
    watch: Callable[[Cores, float], bool],
) -> Run:
    """Go down from one start.

    Args:
        problem: What to minimise.
        start: The first cores.
        settings: How to descend, and when to stop.
        rounding: The error that counts as none.
        watch: Called with the cores and the error after every sweep; stops the run by True.
    """
    best = problem.equalize(start)
    errors = [problem.error(best)]
    if errors[0] <= rounding:
        return Run(best, errors, True)
    steps = _alternate if settings.method == "als" else _follow_gradient
    for cores, error in steps(problem, best, errors[0], settings.tol):
        if error < min(errors):
            best = cores
        errors.append(error)
        stopped = watch(cores, error)
        if error <= rounding or _stalls(errors, settings.tol):
            return Run(best, errors, True)
        if stopped or len(errors) > settings.max_sweeps:
            return Run(best, errors, False)
    return Run(best, errors, True)  # there was no step that lowers the error


def _stalls(errors: list[float], tol: float) -> bool:
    recent = errors[-1 - _PATIENCE :]
    return len(recent) > _PATIENCE and recent[0] - recent[-1] <= _PATIENCE * tol


def _alternate(problem: LeastSquares, cores: Cores, error: float, tol: float) -> Steps:
    """Solve for one core after the other; later, for all at once."""
    joins = (
        not problem.nonnegative and sum(cores[e].numel() for e in problem.edges) <= _MOST_PARAMETERS
    )
    crawls, gain = False, inf
    while not (joins and crawls):
        before, last_gain = error, gain
        cores, error = problem.sweep(problem.equalize(cores))
        gain = before - error
        converges = problem.solves_exactly and gain <= _SHRINKS * last_gain
        crawls = gain < _WORTHWHILE * before and not converges
        yield cores, error
        if problem.solves_exactly and gain <= tol:
            return
    yield from _join(problem, cores, error)


def _join(problem: LeastSquares, cores: Cores, error: float) -> Steps:
    """Gauss-Newton steps on all cores, damped as far as needed to go down (Levenberg-Marquardt)."""
    damping = 1e-3
    while True:
        cores = problem.equalize(cores)
        gradient, curvature = problem.gradient(cores), problem.curvature(cores)
        scale = float(curvature.diagonal().real.max())
        trial, trial_error = cores, inf
        while not trial_error < error:
            damping *= 4
            if damping > 1e4:
                return
            damped = curvature + damping * scale * torch.eye(len(gradient)).to(curvature)
            factor, failed = torch.linalg.cholesky_ex(damped)
            if not failed:
                step = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
                trial = _subtract(problem, cores, step)
                trial_error = problem.error(trial)
        cores, error, damping = trial, trial_error, max(damping / 32, 1e-16)
        yield cores, error


def _follow_gradient(problem: LeastSquares, cores: Cores, error: float, tol: float) -> Steps:
    """L-BFGS; ten steps count as a sweep."""
    # Copies, because the steps are taken in place; contiguous, because L-BFGS flattens gradients.
    leaves = [
        cores[e].clone(memory_format=torch.contiguous_format).requires_grad_()
        for e in problem.edges
    ]
    optimizer = torch.optim.LBFGS(
        leaves,
        max_iter=10,
        history_size=30,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = problem.loss(problem.with_cores(cores, leaves))
        value.backward()
        return value

    while True:
        with torch.enable_grad():
            optimizer.step(loss)
        found = problem.with_cores(cores, [core.detach().clone() for core in leaves])
        yield found, problem.error(found)


def _subtract(problem: LeastSquares, cores: Cores, step: Tensor) -> Cores:
    found = [cores[e] for e in problem.edges]
    parts = step.split([core.numel() for core in found])
    return problem.with_cores(
        cores, [core - part.view_as(core) for core, part in zip(found, parts, strict=True)]
    )
