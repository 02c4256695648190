"""From data to a fitted network: checks, scaling, starts, the best of them, and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor

from tensus_tn._arguments import check_size
from tensus_tn.fitting.least_squares import (
    Cores,
    LeastSquares,
    alternate,
    equalize,
    follow_gradient,
)
from tensus_tn.fitting.report import Report, progress_bar
from tensus_tn.network.structure import Structure
from tensus_tn.network.tensor import DagTensor

Method = Literal["als", "gradient"]

# A fit has converged when so many sweeps in a row lower the error by less than `tol` of itself:
# a single short step may only mean that the damping has still to find its size.
_PATIENCE = 3


@dataclass(frozen=True)
class Settings:
    """How to descend, and when to stop; see `e`."""

    method: Method
    restarts: int
    tol: float
    max_sweeps: int
    seed: int
    progress: bool | None

    def __post_init__(self) -> None:
        if self.method not in ("als", "gradient"):
            raise ValueError(f"method must be 'als' or 'gradient', got {self.method!r}")
        check_size("restarts", self.restarts)
        check_size("max_sweeps", self.max_sweeps)
        if not self.tol >= 0:
            raise ValueError(f"tol must be a non-negative number, got {self.tol}")


def check_data(name: str, data: Any) -> None:
    """Raise unless `data` is a dense tensor of finite floating-point numbers."""
    if not isinstance(data, Tensor) or not data.is_floating_point():
        given = f"a tensor of {data.dtype}" if isinstance(data, Tensor) else type(data).__name__
        raise TypeError(f"{name} must be a floating-point tensor, got {given}")
    if data.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {data.layout}: use to_dense()")
    if not bool(data.isfinite().all()):
        where = (~data.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"{name} must be finite, got {float(data[tuple(where)])} at {where}")


def fit(
    tensor: DagTensor,
    data: Tensor,
    make_problem: Callable[[Structure, Tensor], LeastSquares],
    settings: Settings,
    start: Callable[[Structure, Tensor], Cores] | None = None,
) -> Report:
    """Fill `tensor`, of free float64 cores, with those that fit best, and give it data's dtype.

    Args:
        tensor: The network to fill.
        data: What to fit, of any shape.
        make_problem: Makes the problem from the structure and the data, scaled to norm one.
        settings: How to descend, and when to stop.
        start: Makes the only start, instead of random ones.
    """
    began = perf_counter()
    scaled, norm = _normalize(data)
    problem = make_problem(tensor.structure, scaled)
    if start is None:
        starts = _random_starts(tensor, scaled.numel(), settings)
    else:
        starts = iter([start(tensor.structure, scaled)])
    # What counts as no error at all: the rounding of the data, or that of the fit.
    exact = max(4 * torch.finfo(data.dtype).eps, 1e-10)
    with torch.no_grad():
        cores, errors, converged, tried = _best(problem, starts, exact, settings)
        for parameter, core in zip(tensor.parameters(), cores, strict=True):
            parameter.copy_(core.view_as(parameter) * norm ** (1 / len(cores)))
    tensor.to(data.dtype)
    return Report(tuple(errors), converged, perf_counter() - began, settings.seed, tried)


def _normalize(data: Tensor) -> tuple[Tensor, float]:
    """The data in float64 with norm one, and the norm (one for zeros)."""
    data = data.detach().double()
    largest = float(data.abs().max()) or 1.0  # the squares of huge or tiny entries leave the range
    norm = largest * (float((data / largest).norm()) or 1.0)
    return data / norm, norm


def _random_starts(tensor: DagTensor, num_entries: int, settings: Settings) -> Iterator[Cores]:
    """Random cores, scaled so that a model of so many entries has a norm of about one."""
    generator = torch.Generator(next(tensor.parameters()).device).manual_seed(settings.seed)
    scale = num_entries ** (-0.5 / tensor.ndim)
    for _ in range(settings.restarts):
        tensor.reset_parameters(generator)
        yield [core.detach() * scale for core in tensor.operands()]


def _best(
    problem: LeastSquares, starts: Iterable[Cores], exact: float, settings: Settings
) -> tuple[Cores, list[float], bool, int]:
    """Descend from each start until one is exact: the best run, and how many there were."""
    lowest, total = inf, settings.restarts * settings.max_sweeps
    with progress_bar(settings.method, total, settings.progress) as bar:
        for tried, start in enumerate(starts, 1):  # noqa: B007
            run = _descend(problem, start, exact, settings, bar)
            if min(run[1]) < lowest:
                lowest, best = min(run[1]), run
            if lowest <= exact:
                break
    return (*best, tried)


def _descend(
    problem: LeastSquares, start: Cores, exact: float, settings: Settings, bar: Any
) -> tuple[Cores, list[float], bool]:
    """The best cores on the way down, the errors by sweep, and whether it converged."""
    best = equalize(start)
    errors = [problem.error(best)]
    if errors[0] <= exact:
        return best, errors, True
    steps = alternate if settings.method == "als" else follow_gradient
    for cores, error in steps(problem, best, errors[0]):
        if error < min(errors):
            best = cores
        errors.append(error)
        bar.set_postfix_str(f"error {error:.2e}", refresh=False)
        bar.update()
        if error <= exact or _stalls(errors, settings.tol):
            return best, errors, True
        if len(errors) > settings.max_sweeps:
            return best, errors, False
    return best, errors, True  # there was no step that lowers the error


def _stalls(errors: list[float], tol: float) -> bool:
    if len(errors) <= _PATIENCE:
        return False
    before = errors[-1 - _PATIENCE]
    return before - errors[-1] <= tol * before
