"""The least-squares problem of a list of entries, choice by choice."""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn.fitting.problem import Cores, LeastSquares, others, pseudo_inverse
from tensus_tn.network import query_plans
from tensus_tn.network.planner import find_plan
from tensus_tn.network.structure import Structure

# Entries that a block of rows of the Jacobian, or a tensor of the evaluation, may have.
_BLOCK = 2**24
# Few entries for each parameter let a poor fit run away in directions that they hardly determine:
# a core is pulled to zero by this share of the mean diagonal of its Gram matrices, times the error,
# so that the pull vanishes as the fit gets good.
_PULL = 0.3


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
