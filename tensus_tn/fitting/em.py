"""Maximum likelihood for softmax cores by expectation-maximisation."""

from __future__ import annotations

from copy import deepcopy
from math import inf
from time import perf_counter

import torch
from torch import Tensor

from tensus_tn._arguments import check_size
from tensus_tn.fitting.report import LikelihoodReport, progress_bar
from tensus_tn.fitting.values import as_tensor, check_real, check_values
from tensus_tn.network import query_plans
from tensus_tn.network.index import check_rows
from tensus_tn.network.queries import check_not_nan
from tensus_tn.network.semiring import LOG_SUM_EXP
from tensus_tn.network.tensor import DagTensor

# Rows of one backward pass; more are taken in pieces, so that the memory is bounded.
_PIECE = 2**16


# The fit differentiates, so it leaves inference mode, and what it returns can be trained.
@torch.inference_mode(False)
def fit_em(
    index: Tensor,
    start: DagTensor,
    *,
    weights: Tensor | None = None,
    tol: float = 1e-7,
    max_sweeps: int = 500,
    progress: bool | None = None,
) -> tuple[DagTensor, LikelihoodReport]:
    """Fit a distribution with softmax cores to samples: no sweep ever lowers the likelihood.

    The ranks are hidden variables. The expected number of times `N_e(i, a, b)` that edge `e`
    made choice `i` at states `a, b` of its ranks is `W_e dlogL/dW_e` (E step: one backward
    pass), and the cores that maximise the likelihood of such counts are their shares (M step):

        W_e(i, a, b) = N_e(i, a, b) / sum_i' N_e(i', a, b)

    A choice that no sample made gets no probability. The result is a local maximum: try several
    starts where that matters. The work is done in float64.

    Args:
        index: The samples, `(..., M)` integers in the order of the edges.
        start: The network to start from; it is not changed. A flat one is a stationary point.
        weights: How often each sample counts, `(...)`, not negative; None: once.
        tol: Stop when a sweep raises the mean log-likelihood of a sample by less than this.
        max_sweeps: Stop after so many sweeps.
        progress: Whether to show a progress bar; None: on a terminal. Short runs show none.

    Returns:
        The fitted network, like `start`, and the report.

    Raises:
        TypeError: If `start` is not a DagTensor, `index` has no integers or `weights` no
            floating-point numbers.
        ValueError: If `start` has free cores, an index is out of range, the shapes disagree, a
            weight is negative or not finite, or there is nothing to fit.

    Example:
        >>> from tensus_tn import Dag
        >>> g = torch.Generator().manual_seed(0)
        >>> truth = DagTensor(Dag.complete(3), choices=3, rank=2, init_scale=2.0, generator=g)
        >>> samples = truth.sample(1000, generator=g)
        >>> start = DagTensor(Dag.complete(3), choices=3, rank=2, generator=g)
        >>> tensor, report = fit_em(samples, start)
        >>> bool(tensor.log_prob(samples).mean() > truth.log_prob(samples).mean() - 0.01)
        True
    """
    if not isinstance(start, DagTensor):
        raise TypeError(f"start must be a DagTensor, got {type(start).__name__}")
    if start.parametrization != "softmax":
        raise ValueError("expectation-maximisation needs softmax cores, start has free ones")
    check_size("max_sweeps", max_sweeps)
    if not tol >= 0:
        raise ValueError(f"tol must be a non-negative number, got {tol}")
    check_not_nan(start.cores())
    rows = check_rows(index, start.shape)
    shares = _weights(index, weights)
    used = shares > 0
    rows, shares = _distinct(rows[used], shares[used])
    with torch.no_grad():
        impossible = (start.log_prob(rows) == -inf).nonzero()
    if len(impossible):
        sample = rows[impossible[0, 0]].tolist()
        raise ValueError(f"the start gives the sample {sample} no probability: it can't be fitted")
    began, converged = perf_counter(), False
    tensor = deepcopy(start).double()
    counts, value = expected_counts(tensor, rows, shares)
    values = [value]
    with progress_bar("em", max_sweeps, progress) as bar:
        while not converged and len(values) <= max_sweeps:
            _maximize(tensor, counts)
            counts, value = expected_counts(tensor, rows, shares)
            values.append(value)
            converged = values[-1] - values[-2] < tol
            bar.set_postfix_str(f"log-likelihood {value:.6g}", refresh=False)
            bar.update()
    report = LikelihoodReport(tuple(values), converged, perf_counter() - began)
    return tensor.to(start.dtype), report


def expected_counts(tensor: DagTensor, rows: Tensor, shares: Tensor) -> tuple[list[Tensor], float]:
    """The E step: `W dlogL/dW = dlogL/dlogW` for each core, and the log-likelihood `log L`."""
    logits = zip(tensor.parameters(), tensor.structure.operand_shapes, strict=True)
    logs = [
        torch.log_softmax(x.detach(), dim=0).reshape(shape).requires_grad_() for x, shape in logits
    ]
    counts, value = [torch.zeros_like(x) for x in logs], -tensor.structure.log_states
    size, limit = min(len(rows), _PIECE), tensor.memory_limit // tensor.dtype.itemsize
    plan = query_plans.entries(tensor.structure, size, tensor.optimize, limit)
    for part, share in zip(rows.split(_PIECE), shares.split(_PIECE), strict=True):
        with torch.enable_grad():
            log_likelihood = share @ plan(logs, part, semiring=LOG_SUM_EXP)
        for count, grad in zip(counts, torch.autograd.grad(log_likelihood, logs), strict=True):
            count += grad
        value += float(log_likelihood.detach())
    return counts, value


def _maximize(tensor: DagTensor, counts: list[Tensor]) -> None:
    """The M step: logits whose softmax is the shares of the counts over the choices."""
    with torch.no_grad():
        for parameter, count in zip(tensor.parameters(), counts, strict=True):
            count = count.view_as(parameter)
            # A logit stays finite unless the choice is forbidden, and states that no sample was in
            # keep theirs.
            logits = count.clamp_min(torch.finfo(count.dtype).tiny).log()
            kept = (count.sum(0) == 0) | (parameter == -inf)
            parameter.copy_(torch.where(kept, parameter, logits))


def _weights(index: Tensor, weights: Tensor | None) -> Tensor:
    """The weights as shares of their sum."""
    if weights is None:
        weights = torch.ones(index.shape[:-1], device=index.device)
    weights = as_tensor("weights", weights)
    check_values("weights", weights)
    check_real("weights", weights)
    if weights.shape != index.shape[:-1]:
        raise ValueError(
            f"index {tuple(index.shape)} and weights {tuple(weights.shape)} disagree: one weight "
            f"for each sample is needed"
        )
    if bool((weights < 0).any()):
        raise ValueError(f"weights must not be negative, got {float(weights.min())}")
    total = weights.double().sum()
    if not bool(total > 0):
        raise ValueError("there is nothing to fit: no sample has a positive weight")
    return weights.detach().double().flatten() / total


def _distinct(rows: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample once, with the sum of its shares."""
    rows, place = rows.unique(dim=0, return_inverse=True)
    return rows, shares.new_zeros(len(rows)).index_add(0, place, shares)
