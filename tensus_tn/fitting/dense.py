"""Decomposition of a dense tensor into the cores of a network over a DAG."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensus_tn.dag import Dag
from tensus_tn.fitting.least_squares import Cores, LeastSquares, others, pseudo_inverse
from tensus_tn.fitting.observed import ObservedFit
from tensus_tn.fitting.report import Report
from tensus_tn.fitting.restarts import fit_best
from tensus_tn.fitting.settings import Callback, Method, Settings
from tensus_tn.fitting.starts import Init, make_starts
from tensus_tn.fitting.values import as_tensor, check_values, to_norm_one
from tensus_tn.network.plan import Plan
from tensus_tn.network.planner import find_plan
from tensus_tn.network.structure import Rank, Structure, Ties
from tensus_tn.network.tensor import DagTensor

# Entries that the second derivatives of one batch of parameters may take.
_BATCH = 2**24


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
    restarts: int = 1,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> tuple[DagTensor, Report]:
    """Approximate a dense tensor by a network with free cores, in the sense of least squares.

    `"als"` solves for one core after the other, exactly, and where that gets slow for all of them
    at once (Levenberg-Marquardt, up to 2000 parameters); `"gradient"` is L-BFGS. The work is done
    in float64. On a path with node ties, a tensor train, both start from the TT-SVD, which is close
    to the best already; otherwise from random cores.

    Args:
        dense: The tensor, or a numpy array, with one axis for each edge of `dag` in its order; any
            floating dtype.
        dag: The graph.
        rank: The rank of the inner nodes: a number, a sequence, or a mapping from every inner node.
        method: `"als"` or `"gradient"`.
        ties: `"node"`, a rank index for each inner node, or `"global"`, one for all (CP).
        init: Where to start: `"svd"` (the TT-SVD on a path, leading singular vectors of each
            unfolding elsewhere), `"random"`, or a network like the result. None: `"svd"` on a path,
            `"random"` elsewhere.
        mask: True for the entries that count, as booleans of the shape of `dense`; the others may
            be anything, even NaN. See also `complete`.
        restarts: How many starts to try, those after the first random, fewer if one is exact; the
            best is kept.
        tol: Stop when sweeps lower the error by less than this share of itself.
        max_sweeps: Stop after so many sweeps from a start.
        seed: The seed of the random starts; the same seed gives the same result.
        callback: Called after every sweep with the network as it is, which the next sweep changes,
            and its relative error; the run stops when it returns True.
        progress: Whether to show a progress bar; None: on a terminal. Short runs show none.

    Returns:
        The network, with the dtype and device of `dense`, and the report, which has the errors of
        all sweeps. `numpy.asarray(network)` is the dense tensor of the network as an array.

    Raises:
        TypeError: If `dense` is not a floating-point tensor or array.
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
    settings = Settings(method, restarts, tol, max_sweeps, seed, callback, progress)
    given = as_tensor("dense", dense)
    seen = None if mask is None else _check_mask(mask, given)
    values = given if seen is None else given[seen]
    check_values("dense", values)
    if dense.ndim != len(dag.edges):
        raise ValueError(
            f"dense has order {dense.ndim}, shape {tuple(dense.shape)}, but the Dag has "
            f"{len(dag.edges)} edges: one axis for each is needed"
        )
    tensor = DagTensor(
        dag,
        dict(zip(dag.edges, dense.shape, strict=True)),
        rank,
        parametrization="free",
        ties=ties,
        dtype=torch.float64,
        device=given.device,
    )
    data = to_norm_one(values)
    if seen is None:
        problem: LeastSquares = DenseFit(tensor.structure, data.values)
        starts = make_starts(tensor, data.values, data, init, settings)
    else:
        problem = ObservedFit(seen.nonzero(), tensor.structure, data.values)
        filled = data.values.new_zeros(dense.shape).masked_scatter(seen, data.values)
        starts = make_starts(tensor, filled, data, init or "random", settings)
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


class DenseFit(LeastSquares):
    """The residual of all entries, by contractions that are planned once.

    With `E_e` the environment of edge `e`, the product of all other cores summed over the ranks
    that `e` does not have, the model is `W_e E_e`, and the best core for the data `T` is
    `(T E_e^T) (E_e E_e^T)^-1`. Neither factor needs `E_e` itself: the first contracts the data
    with the other cores, the second, the Gram matrix, two networks that share their choices.
    """

    def __init__(self, structure: Structure, data: Tensor) -> None:
        self.data, self.terms = data, structure.terms
        self.sizes = structure.sizes + structure.ranks
        # The same network again, with ranks of its own and the same choices.
        shift, ranks = len(structure.sizes), len(structure.ranks)
        self.copies = [tuple(i + shift if i < ranks else i for i in t) for t in structure.terms]
        self.choices = tuple(structure.choice(e) for e in range(len(structure.terms)))
        # Each plan is made when it is needed: a fit that starts at its end needs only the first.
        self.model = find_plan(self.terms, self.choices, self.sizes)
        self.projection, self.gram = cache(self._plan_projection), cache(self._plan_gram)
        self.inner_product = cache(self._plan_inner_product)

    def _plan_projection(self, edge: int) -> Plan:
        """The data contracted with all cores but one."""
        rest = others(self.terms, edge, ())
        return find_plan((self.choices, *rest), self.terms[edge], self.sizes)

    def _plan_gram(self, edge: int) -> Plan:
        """The environment of an edge times itself, summed over all choices."""
        rest, copies = others(self.terms, edge, ()), others(self.copies, edge, ())
        ranks = self.terms[edge][1:] + self.copies[edge][1:]
        return find_plan((*rest, *copies), ranks, self.sizes)

    def _plan_inner_product(self) -> Plan:
        """The sum over all entries of the product of two networks."""
        return find_plan((*self.terms, *self.copies), (), self.sizes)

    def residual(self, cores: Cores) -> Tensor:
        """The model less the data, with the shape of the data."""
        return self.model(*cores) - self.data

    def solve(self, cores: Cores, edge: int) -> Tensor:
        """The best core of an edge: the projection of the data times the inverse Gram matrix."""
        rest = others(cores, edge, torch.ones_like(self.data.flatten()[0]))
        states = cores[edge][0].numel()
        projection = self.projection(edge)(self.data, *rest).reshape(-1, states)
        gram = self.gram(edge)(*rest, *rest).reshape(states, states)
        return (projection @ pseudo_inverse(gram)).view_as(cores[edge])

    def curvature(self, cores: Cores) -> Tensor:
        """`J^T J`: the mixed second derivative of the inner product of two networks."""
        sizes, plan = [core.numel() for core in cores], self.inner_product()

        def inner_product(x: Tensor, y: Tensor) -> Any:
            parts = [part for z in (x, y) for part in z.split(sizes)]
            return plan(*(part.view_as(core) for part, core in zip(parts, cores * 2, strict=True)))

        point = torch.cat([core.flatten() for core in cores])
        chunk = max(_BATCH // plan.largest, 1)
        derivative = torch.func.jacrev(torch.func.grad(inner_product), 1, chunk_size=chunk)
        matrix: Tensor = derivative(point, point)
        return matrix
