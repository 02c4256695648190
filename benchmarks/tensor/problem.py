"""The networks that are measured: free cores over a path and over a complete DAG, and entries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import opt_einsum
import torch
from torch import Tensor

from tensus_tn import Dag

CHOICES, RANK = 6, 4


@dataclass(frozen=True)
class Problem:
    """A DAG with a core `(C, d_j, d_k)` for each edge, and indices `(B, M)` to evaluate."""

    name: str
    dag: Dag
    cores: tuple[Tensor, ...]
    index: Tensor

    @cached_property
    def terms(self) -> list[str]:
        """The rank indices of each core as letters; source and sink have none."""
        letter = {node: opt_einsum.get_symbol(n) for n, node in enumerate(self.dag.inner)}
        return ["".join(letter.get(node, "") for node in edge) for edge in self.dag.edges]

    @cached_property
    def choices(self) -> list[str]:
        """The index of the choice of each edge as a letter."""
        return [opt_einsum.get_symbol(len(self.dag.inner) + e) for e in range(len(self.cores))]

    @cached_property
    def batch(self) -> str:
        """The letter of the batch."""
        return opt_einsum.get_symbol(len(self.dag.inner) + len(self.cores))

    @property
    def is_path(self) -> bool:
        return self.dag == Dag.path(len(self.cores))

    def operands(self) -> list[Tensor]:
        """Fresh leaves: the cores without the dimensions of size 1, `(C, ranks ...)`."""
        shapes = ((len(c), *[RANK] * len(t)) for c, t in zip(self.cores, self.terms, strict=True))
        return [
            c.reshape(s).clone().requires_grad_() for c, s in zip(self.cores, shapes, strict=True)
        ]

    def train(self) -> list[Tensor]:
        """Fresh leaves in the layout of tensor trains, `(d_j, C, d_k)`; of a path only."""
        return [core.permute(1, 0, 2).contiguous().requires_grad_() for core in self.cores]

    @cached_property
    def weights(self) -> Tensor:
        """The gradient that a backward pass starts from."""
        return torch.rand(len(self.index), generator=torch.Generator().manual_seed(1)) + 0.5

    @cached_property
    def expected(self) -> dict[str, list[Tensor]]:
        """The judge, in float64: the result and the gradients by the cores, for each task."""
        leaves = [core.double().requires_grad_() for core in self.cores]
        operands = [x.reshape(o.shape) for x, o in zip(leaves, self.operands(), strict=True)]
        columns = self.index.t()
        rows = [x[i] for x, i in zip(operands, columns, strict=True)]
        entries = opt_einsum.contract(
            f"{','.join(self.batch + t for t in self.terms)}->{self.batch}", *rows
        )
        summed = [x.sum(0) for x in operands]
        total = opt_einsum.contract(f"{','.join(self.terms)}->", *summed)
        gradients = torch.autograd.grad(entries, leaves, self.weights.double())
        return {
            "entries": [entries.detach(), *gradients],
            "entry": [entries[0].detach()],
            "sum": [total.detach()],
        }


def make_problem(name: str, dag: Dag, batch: int) -> Problem:
    """Random cores, scaled so that the entries are about 1, and random indices."""
    generator = torch.Generator().manual_seed(0)
    scale = RANK ** (-len(dag.inner) / (2 * len(dag.edges)))
    cores = tuple(
        scale
        * torch.randn(
            CHOICES, *(RANK if node in dag.inner else 1 for node in edge), generator=generator
        )
        for edge in dag.edges
    )
    index = torch.randint(CHOICES, (batch, len(dag.edges)), generator=generator)
    return Problem(name, dag, cores, index)


def problems(batch: int) -> list[Problem]:
    """The path of 8 cores and the complete DAG of 15 edges."""
    return [
        make_problem("path, 8 cores", Dag.path(8), batch),
        make_problem("complete, 15 edges", Dag.complete(5), batch),
    ]
