"""Completion: the cores of a network over a DAG from some entries of a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensus_tn.dag import Dag, Edge
from tensus_tn.fitting.observed_fit import ObservedFit
from tensus_tn.fitting.report import Report
from tensus_tn.fitting.restarts import fit_best
from tensus_tn.fitting.settings import Callback, Method, Settings, fixed_edges
from tensus_tn.fitting.starts import Init, make_starts
from tensus_tn.fitting.trials import with_trials
from tensus_tn.fitting.values import (
    as_tensor,
    check_real,
    check_values,
    read_coordinates,
    to_norm_one,
)
from tensus_tn.network.index import check_rows
from tensus_tn.network.queries import wide_dtype
from tensus_tn.network.structure import Choices, Rank, Ties
from tensus_tn.network.tensor import DagTensor


# The fit differentiates, so it leaves inference mode, and what it returns can be trained.
@torch.inference_mode(False)
def complete(
    index: Any,
    values: Tensor | np.ndarray | None = None,
    dag: Dag | None = None,
    choices: Choices | None = None,
    rank: Rank = 1,
    *,
    method: Method = "als",
    ties: Ties = "node",
    init: Init = None,
    fixed: Iterable[Edge] = (),
    nonnegative: bool = False,
    restarts: int = 20,
    tol: float = 1e-8,
    max_sweeps: int = 200,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> tuple[DagTensor, Report]:
    """Fit a network with free cores to observed entries, in the sense of least squares.

    The methods are those of `decompose`, and so are the other arguments. A choice
    that was never observed gets the value zero from `"als"`.

    Args:
        index: Where the entries are, `(..., M)` integers in the order of `dag.edges`. An entry
            that is given several times counts as often. Or a sparse tensor in coordinates, of torch
            (`torch.sparse_coo`) or of the package `sparse`: what it stores was observed, and it
            has the values and the choices too.
        values: The entries, `(...)`, of any floating or complex dtype.
        dag: The graph.
        choices: How many choices the edges have: a number, a sequence of names, a mapping from
            every edge to one of these, or a sequence of sizes, one for each edge. None: the sizes of
            a sparse tensor.
        rank: The rank of the inner nodes: a number, a sequence, or a mapping from every inner node.
        method: `"als"` or `"gradient"`.
        ties: `"node"`, a rank index for each inner node, or `"global"`, one for all (CP).
        init: Where to start: `"random"` or a network like the result. None: `"random"`.
        fixed: Edges whose cores stay those of `init`, which is a network then.
        nonnegative: Whether no element of a core may be negative; with `"als"` only.
        restarts: How many starts to try, fewer if one is exact; the best is kept. With `"als"`, every
            other random start is the best of many (16, then twice as many every time, up to 256),
            which were tried side by side for some steps.
        tol: Stop when sweeps lower the relative error by less than this.
        max_sweeps: Stop after so many sweeps from a start.
        seed: The seed of the random starts; the same seed gives the same result.
        callback: Called after every sweep with the network as it is, which the next sweep changes,
            and its relative error; the run stops when it returns True.
        progress: Whether to show a progress bar; None: on a terminal. Short runs show none.

    Returns:
        The network, with the dtype and device of `values`, and the report; its errors are those
        at the observed entries.

    Raises:
        TypeError: If `index` has no integers or `values` no floating-point or complex numbers.
        ValueError: If their shapes disagree, an index is out of range, a value is not finite, or
            there are none.

    Example:
        >>> dense = torch.arange(1.0, 6.0)[:, None, None] * torch.ones(5, 5) + torch.arange(5.0)
        >>> seen = torch.rand(5, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.5
        >>> tensor, report = complete(seen.nonzero(), dense[seen], Dag.path(3), choices=5, rank=2)
        >>> bool((tensor.to_dense() - dense).norm() < 1e-3 * dense.norm())
        True
        >>> sparse = (dense * seen).to_sparse()
        >>> again, _ = complete(sparse, dag=Dag.path(3), rank=2)
        >>> again.shape
        torch.Size([5, 5, 5])
    """
    settings = Settings(method, restarts, tol, max_sweeps, seed, nonnegative, callback, progress)
    if dag is None:
        raise TypeError("complete needs a Dag: complete(index, values, dag, choices, rank)")
    if values is None:
        index, values, shape = read_coordinates(index)
        choices = shape if choices is None else choices
    if choices is None:
        raise TypeError("complete needs the number of choices, unless it is given a sparse tensor")
    where, given = as_tensor("index", index), as_tensor("values", values)
    check_values("values", given)
    if nonnegative:
        check_real("values", given)
    tensor = DagTensor(
        dag,
        choices,
        rank,
        parametrization="free",
        ties=ties,
        dtype=wide_dtype(given.dtype),
        device=given.device,
    )
    rows = check_rows(where, tensor.shape).long()
    if where.shape[:-1] != given.shape:
        raise ValueError(
            f"index {tuple(index.shape)} and values {tuple(values.shape)} disagree: one value for "
            f"each index of {tensor.ndim} integers is needed"
        )
    if not len(rows):
        raise ValueError("at least one observed entry is needed, got none")
    data = to_norm_one(given.flatten())
    given_edges = fixed_edges(dag, fixed)
    # A copy: an index that was made in inference mode can't be saved for a backward pass.
    problem = ObservedFit(
        rows.to(given.device, copy=True), tensor.structure, data.values, given_edges, nonnegative
    )
    starts = make_starts(tensor, None, data, init, given_edges, settings)
    if init in (None, "random") and method == "als" and not nonnegative:
        starts = with_trials(problem, starts)
    return tensor, fit_best(tensor, problem, starts, data, settings)
