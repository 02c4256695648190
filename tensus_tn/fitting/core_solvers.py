"""The best core of an edge, the others given: any numbers, or none that is negative."""

from __future__ import annotations

import torch
from torch import Tensor

# Below this ratio of its pivots a Gram matrix counts as singular.
_SINGULAR = 1e-6
# Rounds of coordinate descent for a core, and the share of the first change that ends them.
_ROUNDS = 10
_SMALL_CHANGE = 1e-2


def solve_core(gram: Tensor, projection: Tensor) -> Tensor:
    """The matrix `W` with `W G = P`; zero for what the equations do not determine.

    Args:
        gram: `G`, Hermitian and not negative: `(1, R, R)`, or `(C, R, R)` with one for each row.
        projection: `P`, `(C, R)`.

    Returns:
        `W`, `(C, R)`.

    Example:
        >>> gram = torch.tensor([[[4.0, 0.0], [0.0, 0.0]]])
        >>> solve_core(gram, torch.tensor([[8.0, 0.0]])).tolist()
        [[2.0, 0.0]]
    """
    rows = projection if len(gram) == 1 else projection[:, None]
    factor, failed = torch.linalg.cholesky_ex(gram)
    pivots = factor.diagonal(dim1=-2, dim2=-1).real
    if bool(failed.any()) or bool((pivots.amin(-1) < _SINGULAR * pivots.amax(-1)).any()):
        solution = rows @ torch.linalg.pinv(gram, hermitian=True, rtol=1e-14)
    else:
        solution = torch.cholesky_solve(rows.mH, factor).mH
    core: Tensor = solution.reshape(projection.shape)
    return core


def solve_nonnegative_core(gram: Tensor, projection: Tensor, core: Tensor) -> Tensor:
    """The matrix `W >= 0` that minimises `tr(W G W^T) / 2 - tr(P W^T)`, by coordinate descent.

    Column after column is set to its best, the others given (HALS), in rounds:

        W(:, r) <- max(0, W(:, r) + (P(:, r) - W G(:, r)) / G(r, r))

    Args:
        gram: `G`, `(1, R, R)`, or `(C, R, R)` with one for each row.
        projection: `P`, `(C, R)`.
        core: The matrix to start from, `(C, R)`.

    Example:
        >>> gram = torch.tensor([[[2.0, 1.0], [1.0, 2.0]]])
        >>> solve_nonnegative_core(gram, torch.tensor([[2.0, 0.0]]), torch.ones(1, 2)).tolist()
        [[1.0, 0.0]]
    """
    core, first = core.clone(), 0.0
    # Without data a state has neither a slope nor a curvature, and keeps its column.
    curvature = gram.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(gram.dtype).tiny)
    for _ in range(_ROUNDS):
        before = core.clone()
        for r in range(core.shape[1]):
            slope = projection[:, r] - (core * gram[:, :, r]).sum(1)
            core[:, r] = (core[:, r] + slope / curvature[:, r]).clamp_min(0)
        change = float((core - before).norm())
        first = first or change
        if change <= _SMALL_CHANGE * first and change < first:
            break
    return core
