"""Several starts, of which the best is kept."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import inf
from time import perf_counter

import torch

from tensus_tn.fitting.least_squares import Run, descend
from tensus_tn.fitting.problem import Cores, LeastSquares
from tensus_tn.fitting.report import Report, progress_bar
from tensus_tn.fitting.settings import Settings
from tensus_tn.fitting.values import Scaled
from tensus_tn.network.tensor import DagTensor

# A run that ends within so many times the rounding is at the bottom: another could only polish it.
_NO_BETTER = 1e3


@torch.no_grad()
def fit_best(
    tensor: DagTensor,
    problem: LeastSquares,
    starts: Iterable[Cores],
    data: Scaled,
    settings: Settings,
) -> Report:
    """Descend from each start until one is exact, and give `tensor` the best cores."""
    lowest, total = inf, settings.restarts * settings.max_sweeps
    with progress_bar(settings.method, total, settings.progress) as bar:

        def watch(cores: Cores, error: float) -> bool:
            bar.set_postfix_str(f"error {error:.2e}", refresh=False)
            bar.update()
            if settings.callback is None:
                return False
            _fill(tensor, problem, cores, data.norm)
            return bool(settings.callback(tensor, error))

        for tried, start in enumerate(islice(starts, settings.restarts), 1):  # noqa: B007
            run = descend(problem, start, settings, data.rounding, watch)
            if min(run.errors) < lowest:
                lowest, best = min(run.errors), run
            if lowest <= _NO_BETTER * data.rounding:
                break
    _fill(tensor, problem, best.cores, data.norm)
    for parameter in tensor.parameters():
        parameter.data = parameter.data.to(data.dtype)  # `tensor.to` warns of complex numbers
    return _report(best, tried, settings)


def _fill(tensor: DagTensor, problem: LeastSquares, cores: Cores, norm: float) -> None:
    """Give `tensor` the cores that fit data of norm one, for data of this norm."""
    scale = norm ** (1 / len(problem.edges))
    scaled = problem.with_cores(cores, [cores[e] * scale for e in problem.edges])
    for parameter, core in zip(tensor.parameters(), scaled, strict=True):
        parameter.copy_(core.reshape(parameter.shape))


def _report(run: Run, tried: int, settings: Settings) -> Report:
    seconds = perf_counter() - settings.began
    return Report(tuple(run.errors), run.converged, seconds, settings.seed, tried)
