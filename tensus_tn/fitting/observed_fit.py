"""The least-squares problem of a list of entries, choice by choice."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tensus_tn.fitting.environments import Environments
from tensus_tn.fitting.problem import Cores, Equations, LeastSquares
from tensus_tn.network import query_plans
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

    Args:
        rows: Where the entries are, `(N, M)`.
        structure: The network.
        data: The entries, `(N,)`, of norm one.
        fixed: The edges, by number, whose cores are given.
        nonnegative: Whether no element of a core may be negative.
    """

    solves_exactly = False  # there is the pull

    def __init__(
        self,
        rows: Tensor,
        structure: Structure,
        data: Tensor,
        fixed: frozenset[int] = frozenset(),
        nonnegative: bool = False,
    ) -> None:
        super().__init__(structure, data, fixed, nonnegative)
        self.rows = rows
        self.model = query_plans.entries(structure, len(rows), "auto", _BLOCK)
        batch = len(structure.sizes)
        terms = [(*ranks, batch) for ranks in structure.core_ranks]
        self.environments = Environments(terms, (*structure.sizes, len(rows)), (batch,), batch)
        # The entries of each choice, one choice after the other.
        self.orders = [choice.argsort(stable=True) for choice in rows.t()]
        self.counts = [
            choice.bincount(minlength=size).tolist()
            for choice, size in zip(rows.t(), structure.choices, strict=True)
        ]

    def residual(self, cores: Cores) -> Tensor:
        """The model less the data at the observed entries."""
        return self.model(cores, self.rows) - self.data

    def _environments(self, factors: list[Tensor]) -> Iterator[tuple[int, Tensor]]:
        """The environments `E_e` at the entries of the factors, with the ranks flattened: `(R, B)`."""
        one = torch.ones_like(factors[0].reshape(-1, factors[0].shape[-1])[0])
        for edge, environment in self.environments.visit(factors, one, self.edges):
            yield edge, environment.reshape(-1, len(one))

    def normal_equations(self, cores: Cores) -> Iterator[tuple[int, Equations]]:
        """Equations for each choice of an edge, with a pull to zero while the fit is poor."""
        pull = _PULL * self.error(cores)
        factors = [_at(core, self.rows[:, e]) for e, core in enumerate(cores)]
        for edge, environment in self._environments(factors):
            order, counts = self.orders[edge], self.counts[edge]
            parts = environment[:, order].split(counts, dim=1)
            values = self.data[order].split(counts)
            gram = torch.stack([part @ part.mH for part in parts])
            pairs = zip(values, parts, strict=True)
            projection = torch.stack([value @ part.mH for value, part in pairs])
            diagonal = gram.diagonal(dim1=-2, dim2=-1)
            diagonal += pull * diagonal.mean()
            yield edge, (gram, projection)
            factors[edge] = _at(cores[edge], self.rows[:, edge])

    def linearize(self, cores: Cores) -> tuple[Tensor, Tensor]:
        """The residual `(N,)` and its derivative `(N, P)` by the cores of `edges`."""
        factors = [_at(core, self.rows[:, e]) for e, core in enumerate(cores)]
        blocks = []
        for edge, environment in self._environments(factors):
            factor = factors[edge].reshape(environment.shape)
            model = (factor * environment).sum(0)
            blocks.append(_jacobian(environment, self.rows[:, edge], len(cores[edge])))
        return model - self.data, torch.cat(blocks, dim=1)

    def curvature(self, cores: Cores) -> Tensor:
        """`J^H J`, summed over blocks of rows of `J`.

        The row of entry `n` has `E_e(:, n)` in the columns of `W_e(c, :)`, zeros elsewhere.
        """
        num_parameters = sum(cores[e].numel() for e in self.edges)
        total = self.data.new_zeros(num_parameters, num_parameters)
        for rows in self.rows.split(max(_BLOCK // num_parameters, 1)):
            factors = [_at(core, rows[:, e]) for e, core in enumerate(cores)]
            jacobian = torch.cat(
                [
                    _jacobian(environment, rows[:, e], len(cores[e]))
                    for e, environment in self._environments(factors)
                ],
                dim=1,
            )
            total += jacobian.mH @ jacobian
        return total


def _at(core: Tensor, choice: Tensor) -> Tensor:
    """A core at the choices of some entries, `(d_j, d_k, B)`."""
    return core.movedim(0, -1).index_select(-1, choice)


def _jacobian(environment: Tensor, choice: Tensor, num_choices: int) -> Tensor:
    one_hot = torch.nn.functional.one_hot(choice, num_choices).to(environment)
    return (one_hot[:, :, None] * environment.t()[:, None, :]).flatten(1)
