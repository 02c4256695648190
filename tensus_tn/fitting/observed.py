"""Completion: the cores of a network over a DAG from some entries of a tensor."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tensus_tn.dag import Dag
from tensus_tn.fitting.least_squares import Cores, LeastSquares, others, pseudo_inverse
from tensus_tn.fitting.report import Report
from tensus_tn.fitting.restarts import fit_best
from tensus_tn.fitting.settings import Callback, Method, Settings
from tensus_tn.fitting.starts import Init, make_starts
from tensus_tn.fitting.values import as_tensor, check_values, to_norm_one
from tensus_tn.network import query_plans
from tensus_tn.network.index import check_rows
from tensus_tn.network.planner import find_plan
from tensus_tn.network.structure import Choices, Rank, Structure, Ties
from tensus_tn.network.tensor import DagTensor

# Entries that a block of rows of the Jacobian, or a tensor of the evaluation, may have.
_BLOCK = 2**24
# Few entries for each parameter let a poor fit run away in directions that they hardly determine:
# a core is pulled to zero by this share of the mean diagonal of its Gram matrices, times the error,
# so that the pull vanishes as the fit gets good.
_PULL = 0.3


# The fit differentiates, so it leaves inference mode, and what it returns can be trained.
@torch.inference_mode(False)
def complete(
    index: Tensor | np.ndarray,
    values: Tensor | np.ndarray,
    dag: Dag,
    choices: Choices,
    rank: Rank,
    *,
    method: Method = "als",
    ties: Ties = "node",
    init: Init = None,
    restarts: int = 10,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> tuple[DagTensor, Report]:
    """Fit a network with free cores to observed entries, in the sense of least squares.

    The methods are those of `e`, and so are the other arguments. A choice
    that was never observed gets the value zero from `"als"`.

    Args:
        index: Where the entries are, `(..., M)` integers in the order of `dag.edges`. An entry
            that is given several times counts as often.
        values: The entries, `(...)`, of any floating dtype.
        dag: The graph.
        choices: How many choices the edges have: a number, a sequence of names, a mapping from
            every edge to one of these, or a sequence of sizes, one for each edge.
        rank: The rank of the inner nodes: a number, a sequence, or a mapping from every inner node.
        method: `"als"` or `"gradient"`.
        ties: `"node"`, a rank index for each inner node, or `"global"`, one for all (CP).
        init: Where to start: `"random"` or a network like the result. None: `"random"`.
        restarts: How many starts to try, those after the first random, fewer if one is exact;
            the best is kept.
        tol: Stop when sweeps lower the error by less than this share of itself.
        max_sweeps: Stop after so many sweeps from a start.
        seed: The seed of the random starts; the same seed gives the same result.
        callback: Called after every sweep with the network as it is, which the next sweep changes,
            and its relative error; the run stops when it returns True.
        progress: Whether to show a progress bar; None: on a terminal. Short runs show none.

    Returns:
        The network, with the dtype and device of `values`, and the report; its errors are those
        at the observed entries.

    Raises:
        TypeError: If `index` has no integers or `values` no floating-point numbers.
        ValueError: If their shapes disagree, an index is out of range, a value is not finite, or
            there are none.

    Example:
        >>> dense = torch.arange(1.0, 6.0)[:, None, None] * torch.ones(5, 5) + torch.arange(5.0)
        >>> seen = torch.rand(5, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.5
        >>> tensor, report = complete(seen.nonzero(), dense[seen], Dag.path(3), choices=5, rank=2)
        >>> bool((tensor.to_dense() - dense).norm() < 1e-3 * dense.norm())
        True
    """
    settings = Settings(method, restarts, tol, max_sweeps, seed, callback, progress)
    where, given = as_tensor("index", index), as_tensor("values", values)
    check_values("values", given)
    tensor = DagTensor(
        dag,
        choices,
        rank,
        parametrization="free",
        ties=ties,
        dtype=torch.float64,
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
    # A copy: an index that was made in inference mode can't be saved for a backward pass.
    problem = ObservedFit(rows.to(given.device, copy=True), tensor.structure, data.values)
    starts = make_starts(tensor, None, data, init, settings)
    return tensor, fit_best(tensor, problem, starts, data, settings)


class ObservedFit(LeastSquares):
    """The residual of a list of entries.

    At entry `n` with the choice `c` of edge `e`, the model is `sum_r W_e(c, r) E_e(r, n)`,
    with `E_e` the environment: the product of all other cores at the entry, summed over the ranks
    that `e` does not have. So each choice of an edge has a least-squares problem of its own.
    """

    solves_exactly = False  # there is the pull

    def __init__(self, rows: Tensor, structure: Structure, data: Tensor) -> None:
        self.rows, self.data = rows, data
        self.model = query_plans.entries(structure, len(rows), "auto", _BLOCK)
        batch = len(structure.sizes)
        sizes = (*structure.sizes, len(rows))
        terms = [(*ranks, batch) for ranks in structure.core_ranks]
        self.environments = [
            find_plan(others(terms, e, (batch,)), term, sizes, batch=batch)
            for e, term in enumerate(terms)
        ]

    def residual(self, cores: Cores) -> Tensor:
        """The model less the data at the observed entries."""
        return self.model(cores, self.rows) - self.data

    def environment(self, cores: Cores, edge: int, rows: Tensor) -> Tensor:
        """The environment `E_e` at some entries, with the ranks flattened: `(R, B)`."""
        factors = [
            core.movedim(0, -1).index_select(-1, rows[:, e])
            for e, core in enumerate(cores)
            if e != edge
        ]
        plan = self.environments[edge]
        result: Tensor = plan(*(factors or [torch.ones_like(rows[:, 0], dtype=torch.float64)]))
        return result.reshape(-1, len(rows))

    def solve(self, cores: Cores, edge: int) -> Tensor:
        """The best core of an edge, choice by choice, with a pull to zero while the fit is poor."""
        environment, core = self.environment(cores, edge, self.rows), cores[edge]
        grams, projections = [], []
        for choice in range(len(core)):
            seen = self.rows[:, edge] == choice
            part = environment[:, seen]
            grams.append(part @ part.t())
            projections.append(part @ self.data[seen])
        gram = torch.stack(grams)
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
        diagonal += _PULL * self.error(cores) * diagonal.mean()
        inverse = pseudo_inverse(gram)
        return (inverse @ torch.stack(projections)[..., None]).view_as(core)

    def curvature(self, cores: Cores) -> Tensor:
        """`J^T J`, summed over blocks of rows of `J`.

        The row of entry `n` has `E_e(:, n)` in the columns of `W_e(c, :)`, zeros elsewhere.
        """
        num_parameters = sum(core.numel() for core in cores)
        total = self.data.new_zeros(num_parameters, num_parameters)
        for rows in self.rows.split(max(_BLOCK // num_parameters, 1)):
            blocks = [
                self._jacobian(self.environment(cores, e, rows), rows[:, e], len(core))
                for e, core in enumerate(cores)
            ]
            jacobian = torch.cat(blocks, dim=1)
            total += jacobian.t() @ jacobian
        return total

    def _jacobian(self, environment: Tensor, choice: Tensor, num_choices: int) -> Tensor:
        one_hot = torch.nn.functional.one_hot(choice, num_choices).to(environment)
        return (one_hot[:, :, None] * environment.t()[:, None, :]).flatten(1)
