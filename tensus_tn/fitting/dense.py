"""Decomposition of a dense tensor into the cores of a network over a DAG."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from tensus_tn.dag import Dag
from tensus_tn.fitting.least_squares import (
    Cores,
    Descent,
    LeastSquares,
    Method,
    others,
    pseudo_inverse,
)
from tensus_tn.fitting.report import Report
from tensus_tn.fitting.restarts import Restarts, best_run, fill, random_starts
from tensus_tn.fitting.values import check_values, to_norm_one
from tensus_tn.network.planner import find_plan
from tensus_tn.network.structure import Rank, Structure, Ties
from tensus_tn.network.tensor import DagTensor

# Entries that the second derivatives of one batch of parameters may take.
_BATCH = 2**24


# The fit differentiates, so it leaves inference mode, and what it returns can be trained.
@torch.inference_mode(False)
def decompose(
    dense: Tensor,
    dag: Dag,
    rank: Rank,
    *,
    method: Method = "als",
    ties: Ties = "node",
    restarts: int = 5,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    seed: int = 0,
    progress: bool | None = None,
) -> tuple[DagTensor, Report]:
    """Approximate a dense tensor by a network with free cores, in the sense of least squares.

    `"als"` solves for one core after the other, exactly, and where that gets slow for all of them
    at once (Levenberg-Marquardt, up to 2000 parameters); `"gradient"` is L-BFGS. The work is done
    in float64. On a path with node ties, a tensor train, both start from the TT-SVD, which is close
    to the best already; otherwise from random cores, several times.

    Args:
        dense: The tensor, one axis for each edge of `dag` in its order; any floating dtype.
        dag: The graph.
        rank: The rank of the inner nodes: a number, or a mapping from every inner node.
        method: `"als"` or `"gradient"`.
        ties: `"node"`, a rank index for each inner node, or `"global"`, one for all (CP).
        restarts: How many random starts to try, fewer if one is exact; the best is kept.
        tol: Stop when sweeps lower the error by less than this share of itself.
        max_sweeps: Stop after so many sweeps from a start.
        seed: The seed of the random starts; the same seed gives the same result.
        progress: Whether to show a progress bar; None: on a terminal. Short runs show none.

    Returns:
        The network, with the dtype and device of `dense`, and the report.

    Raises:
        TypeError: If `dense` is not a floating-point tensor.
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
    descent, starts = Descent(method, tol, max_sweeps), Restarts(restarts, seed, progress)
    check_values("dense", dense)
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
        device=dense.device,
    )
    began, data = perf_counter(), to_norm_one(dense)
    problem = DenseFit(tensor.structure, data.values)
    if is_tensor_train(tensor.structure):
        cores = iter([tt_svd(tensor.structure, data.values)])
    else:
        cores = random_starts(tensor, dense.numel(), starts)
    run, tried = best_run(problem, cores, descent, starts, data.rounding)
    fill(tensor, run, data.norm, dense.dtype)
    return tensor, Report(tuple(run.errors), run.converged, perf_counter() - began, seed, tried)


class DenseFit(LeastSquares):
    """The residual of all entries, by contractions that are planned once.

    With `E_e` the environment of edge `e`, the product of all other cores summed over the ranks
    that `e` does not have, the model is `W_e E_e`, and the best core for the data `T` is
    `(T E_e^T) (E_e E_e^T)^-1`. Neither factor needs `E_e` itself: the first contracts the data
    with the other cores, the second, the Gram matrix, two networks that share their choices.
    """

    def __init__(self, structure: Structure, data: Tensor) -> None:
        self.data = data
        terms, sizes = structure.terms, structure.sizes + structure.ranks
        copies = [
            tuple(len(structure.sizes) + i if i < len(structure.ranks) else i for i in term)
            for term in terms
        ]
        choices = tuple(structure.choice(e) for e in range(len(terms)))
        self.model = find_plan(terms, choices, sizes)
        self.inner_product = find_plan((*terms, *copies), (), sizes)
        self.projections, self.grams = [], []
        for e, term in enumerate(terms):
            rest, rest_copies = others(terms, e, ()), others(copies, e, ())
            self.projections.append(find_plan((choices, *rest), term, sizes))
            ranks = term[1:] + copies[e][1:]
            self.grams.append(find_plan((*rest, *rest_copies), ranks, sizes))

    def residual(self, cores: Cores) -> Tensor:
        """The model less the data, with the shape of the data."""
        return self.model(*cores) - self.data

    def solve(self, cores: Cores, edge: int) -> Tensor:
        """The best core of an edge: the projection of the data times the inverse Gram matrix."""
        rest = others(cores, edge, torch.ones_like(self.data.flatten()[0]))
        states = cores[edge][0].numel()
        projection = self.projections[edge](self.data, *rest).reshape(-1, states)
        gram = self.grams[edge](*rest, *rest).reshape(states, states)
        return (projection @ pseudo_inverse(gram)).view_as(cores[edge])

    def curvature(self, cores: Cores) -> Tensor:
        """`J^T J`: the mixed second derivative of the inner product of two networks."""
        sizes = [core.numel() for core in cores]

        def inner_product(x: Tensor, y: Tensor) -> Any:
            parts = [part for z in (x, y) for part in z.split(sizes)]
            return self.inner_product(
                *(part.view_as(core) for part, core in zip(parts, cores * 2, strict=True))
            )

        point = torch.cat([core.flatten() for core in cores])
        chunk = max(_BATCH // self.inner_product.largest, 1)
        derivative = torch.func.jacrev(torch.func.grad(inner_product), 1, chunk_size=chunk)
        matrix: Tensor = derivative(point, point)
        return matrix


def is_tensor_train(structure: Structure) -> bool:
    """Whether the graph is a path, each inner node with a rank index of its own."""
    dag = structure.dag
    # Every node but the source has an edge in: if that is all there are, none has two, in or out.
    return len(dag.edges) == len(dag.nodes) - 1 and len(structure.ranks) == len(dag.inner)


def tt_svd(structure: Structure, dense: Tensor) -> Cores:
    """The cores of a tensor train by successive SVDs, zero where a rank is not needed."""
    dag, cores = structure.dag, [dense] * dense.ndim
    order = sorted(range(dense.ndim), key=lambda e: dag.nodes.index(dag.edges[e][0]))
    rest, rank = dense.permute(order).reshape(1, -1), 1
    for e in order[:-1]:
        u, s, v = torch.linalg.svd(rest.reshape(rank * dense.shape[e], -1), full_matrices=False)
        tail, rank = rank, structure.core_shape(e)[-1]
        kept = min(rank, len(s))
        core = dense.new_zeros(tail, dense.shape[e], rank)
        core[..., :kept] = u[:, :kept].reshape(tail, -1, kept)
        rest = dense.new_zeros(rank, v.shape[1])
        rest[:kept] = s[:kept, None] * v[:kept]
        cores[e] = core.movedim(1, 0)
    cores[order[-1]] = rest.t()
    shapes = structure.operand_shapes
    return [core.reshape(shape) for core, shape in zip(cores, shapes, strict=True)]
