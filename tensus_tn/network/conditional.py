"""A tensor network with the choices of some edges fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensus_tn.dag import Edge
from tensus_tn.network.queries import Choice, Queries
from tensus_tn.network.structure import Structure

if TYPE_CHECKING:
    from tensus_tn.network.tensor import DagTensor


class Conditional(Queries):
    """A `DagTensor` with the choices of some edges fixed; it answers the same queries.

    It holds the tensor itself, not its values: when the parameters change, so does the conditional.
    """

    def __init__(self, tensor: DagTensor, fixed: dict[int, int]) -> None:
        self.tensor, self.fixed = tensor, fixed
        self.structure: Structure = tensor.structure.fix(frozenset(fixed))
        self.choice_names = tensor.choice_names
        self.optimize, self.memory_limit = tensor.optimize, tensor.memory_limit
        if not self.structure.free:
            raise ValueError("a condition must leave at least one edge free")

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the cores."""
        return self.tensor.dtype

    def _operands(self, *, log: bool = False, dtype: torch.dtype | None = None) -> list[Tensor]:
        """One tensor for each edge, with the indices of `structure.terms`."""
        operands = self.tensor._operands(log=log, dtype=dtype)
        for e, choice in self.fixed.items():
            operands[e] = operands[e][choice]
        return operands

    def condition(self, choices: Mapping[Edge, Choice]) -> Conditional:
        """Fix the choices of some more edges."""
        return Conditional(self.tensor, self.fixed | self._fixed_choices(choices))

    def __repr__(self) -> str:
        fixed = {self.dag.edges[e]: choice for e, choice in self.fixed.items()}
        return f"{self.tensor!r}.condition({fixed})"
