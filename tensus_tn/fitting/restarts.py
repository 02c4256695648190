"""Several starts, of which the best is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

import torch

from tensus_tn._arguments import check_size
from tensus_tn.fitting.least_squares import Cores, Descent, LeastSquares, Run, descend
from tensus_tn.fitting.report import progress_bar
from tensus_tn.network.tensor import DagTensor


@dataclass(frozen=True)
class Restarts:
    """How many starts to try, the seed that they are drawn with, and whether to show progress."""

    number: int
    seed: int
    progress: bool | None

    def __post_init__(self) -> None:
        check_size("restarts", self.number)


def random_starts(tensor: DagTensor, num_entries: int, restarts: Restarts) -> Iterator[Cores]:
    """Random cores, scaled so that a model of so many entries has a norm of about one.

    They have the indices of `structure.terms`; `tensor` is drawn anew for each.
    """
    generator = torch.Generator(next(tensor.parameters()).device).manual_seed(restarts.seed)
    scale, shapes = num_entries ** (-0.5 / tensor.ndim), tensor.structure.operand_shapes
    for _ in range(restarts.number):
        tensor.reset_parameters(generator)
        cores = zip(tensor.parameters(), shapes, strict=True)
        yield [core.detach().reshape(shape) * scale for core, shape in cores]


@torch.no_grad()
def best_run(
    problem: LeastSquares,
    starts: Iterable[Cores],
    descent: Descent,
    restarts: Restarts,
    rounding: float,
) -> tuple[Run, int]:
    """Descend from each start until one is exact: the best run, and how many there were."""
    lowest, total = inf, restarts.number * descent.max_sweeps
    with progress_bar(descent.method, total, restarts.progress) as bar:
        for tried, start in enumerate(starts, 1):  # noqa: B007
            run = descend(problem, start, descent, rounding, bar)
            if min(run.errors) < lowest:
                lowest, best = min(run.errors), run
            if lowest <= rounding:
                break
    return best, tried


@torch.no_grad()
def fill(tensor: DagTensor, run: Run, norm: float, dtype: torch.dtype) -> None:
    """Give `tensor` the cores of a run, for data of this norm and dtype."""
    scale = norm ** (1 / len(run.cores))
    for parameter, core in zip(tensor.parameters(), run.cores, strict=True):
        parameter.copy_(core.reshape(parameter.shape) * scale)
    tensor.to(dtype)
