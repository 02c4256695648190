"""Decomposition of a dense tensor into the cores of a network over a DAG."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from tensus_tn.dag import Dag, Edge
from tensus_tn.fitting.dense_fit import DenseFit
from tensus_tn.fitting.observed_fit import ObservedFit
from tensus_tn.fitting.problem import LeastSquares
from tensus_tn.fitting.report import Report
from tensus_tn.fitting.restarts import fit_best
from tensus_tn.fitting.settings import Callback, Method, Settings, fixed_edges
from tensus_tn.fitting.starts import Init, make_starts
from tensus_tn.fitting.values import as_tensor, check_real, check_values, to_norm_one
from tensus_tn.network.queries import wide_dtype
from tensus_tn.network.structure import Rank, Ties
from tensus_tn.network.tensor import DagTensor


# The fit differentiates, so it leaves inference mode, and what it returns can be trained.
@torch.inference_mode(False)
def decompose(
    dense: Tensor | np.ndarray,
    dag: Dag,
    rank: Rank,
    *,
    method: Method = "als",
    ties: Ties = "node",
    init: Init = None,
    mask: Tensor | np.ndarray | None = None,
    fixed: Iterable[Edge] = (),
    nonnegative: bool = False,
    restarts: int = 1,
    tol: float = 1e-8,
    max_sweeps: int = 200,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> tuple[DagTensor, Report]:
    """Approximate a dense tensor by a network with free cores, in the sense of least squares.

    `"als"` solves for one core after the other, exactly, and where that gets slow for all of them
    at once (Levenberg-Marquardt, up to 2000 parameters); `"gradient"` is L-BFGS. The work is done
    in float64, or complex128. On a path with node ties, a tensor train, both start from the TT-SVD,
    which is close to the best already; otherwise from random cores.

    Args:
        dense: The tensor, or a numpy array, with one axis for each edge of `dag` in its order; any
            floating or complex dtype.
        dag: The graph.
        rank: The rank of the inner nodes: a number, a sequence, or a mapping from every inner node.
        method: `"als"` or `"gradient"`.
        ties: `"node"`, a rank index for each inner node, or `"global"`, one for all (CP).
        init: Where to start: `"svd"` (the TT-SVD on a path, leading singular vectors of each
            unfolding elsewhere), `"random"`, or a network like the result. None: `"svd"` on a path,
            `"random"` elsewhere.
        mask: True for the entries that count, as booleans of the shape of `dense`; the others may
            be anything, even NaN. See also `complete`.
        fixed: Edges whose cores stay those of `init`, which is a network then; with several starts
            the other cores are drawn anew.
        nonnegative: Whether no element of a core may be negative. Each core is then found by
            coordinate descent (HALS), with `"als"` only.
        restarts: How many starts to try, those after the first random, fewer if one is exact; the
            best is kept.
        tol: Stop when a sweep lowers the relative error by less than this, as TensorLy does.
        max_sweeps: Stop after so many sweeps from a start.
        seed: The seed of the random starts; the same seed gives the same result.
        callback: Called after every sweep with the network as it is, which the next sweep changes,
            and its relative error; the run stops when it returns True.
        progress: Whether to show a progress bar; None: on a terminal. Short runs show none.

    Returns:
        The network, with the dtype and device of `dense`, and the report, which has the errors of
        all sweeps. `numpy.asarray(network)` is the dense tensor of the network as an array.

    Raises:
        TypeError: If `dense` is not a floating-point or complex tensor or array.
        ValueError: If its order is not the number of edges, or it has NaN or infinity.

    Example:
        >>> x = torch.linspace(0, 1, 8, dtype=torch.float64)
        >>> dense = torch.sin(x[:, None, None] + x[:, None] * x)
        >>> tensor, report = decompose(dense, Dag.path(3), rank=3)
        >>> bool((tensor.to_dense() - dense).norm() < 1e-3 * dense.norm())
        True
        >>> report.converged, report.restarts
        (True, 1)
    """
    settings = Settings(method, restarts, tol, max_sweeps, seed, nonnegative, callback, progress)
    given = as_tensor("dense", dense)
    seen = None if mask is None else _check_mask(mask, given)
    values = given if seen is None else given[seen]
    check_values("dense", values)
    if dense.ndim != len(dag.edges):
        raise ValueError(
            f"dense has order {dense.ndim}, shape {tuple(dense.shape)}, but the Dag has "
            f"{len(dag.edges)} edges: one axis for each is needed"
        )
    if nonnegative:
        check_real("dense", values)
    tensor = DagTensor(
        dag,
        dict(zip(dag.edges, dense.shape, strict=True)),
        rank,
        parametrization="free",
        ties=ties,
        dtype=wide_dtype(values.dtype),
        device=given.device,
    )
    data = to_norm_one(values)
    given_edges = fixed_edges(dag, fixed)
    if seen is None:
        problem: LeastSquares = DenseFit(tensor.structure, data.values, given_edges, nonnegative)
        starts = make_starts(tensor, data.values, data, init, given_edges, settings)
    else:
        problem = ObservedFit(
            seen.nonzero(), tensor.structure, data.values, given_edges, nonnegative
        )
        filled = data.values.new_zeros(dense.shape).masked_scatter(seen, data.values)
        starts = make_starts(tensor, filled, data, init or "random", given_edges, settings)
    return tensor, fit_best(tensor, problem, starts, data, settings)


def _check_mask(mask: Tensor | np.ndarray, dense: Tensor) -> Tensor:
    seen = torch.as_tensor(mask, device=dense.device)
    if seen.dtype != torch.bool or seen.shape != dense.shape:
        raise ValueError(
            f"mask must be booleans of the shape {tuple(dense.shape)} of dense, got {seen.dtype} of "
            f"the shape {tuple(seen.shape)}"
        )
    if not bool(seen.any()):
        raise ValueError("mask leaves no entry to fit")
    return seen
