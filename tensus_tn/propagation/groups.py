"""Groups of feature columns, each with weights of its own: heads of a layer, queries of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Groups(NamedTuple):
    """Feature columns in the order of their groups, as the operators take them.

    They are counted by group rather than named one by one: a plan of passes, and a graph of
    `torch.compile`, may depend on a few numbers, but not on thousands, nor on what a tensor holds.

    Attributes:
        sizes: The number of columns of each group; None if there are no groups.
        order: The columns as the groups have them; None if they are in this order already.

    Example:
        >>> Groups.of([1, 0, 1, 1], num_groups=3, num_columns=4)
        Groups(sizes=[1, 3, 0], order=[1, 0, 2, 3])
    """

    sizes: list[int] | None
    order: list[int] | None

    @staticmethod
    def of(
        groups: Tensor | Sequence[int] | None, num_groups: int | None, num_columns: int
    ) -> Groups:
        """The groups (F,) of all columns, in any order, checked."""
        if groups is None or num_groups is None:
            return Groups(None, None)
        ids = _as_list(groups)
        if len(ids) != num_columns:
            raise ValueError(
                f"groups must name the group of each of the {num_columns} columns of h, got {len(ids)}"
            )
        if wrong := [g for g in ids if not 0 <= g < num_groups]:
            raise ValueError(
                f"groups must lie in [0, {num_groups}), the groups of the weights, got {wrong[0]}"
            )
        sizes = [0] * num_groups
        for g in ids:
            sizes[g] += 1
        order = sorted(range(num_columns), key=ids.__getitem__)
        return Groups(sizes, None if order == list(range(num_columns)) else order)

    def sort(self, state: Tensor) -> Tensor:
        """A state (..., F) with its columns by group."""
        return state if self.order is None else _columns(state, self.order)

    def restore(self, state: Tensor) -> Tensor:
        """A state (..., F) with its columns where they were before `sort`."""
        if self.order is None:
            return state
        return _columns(state, sorted(range(len(self.order)), key=self.order.__getitem__))


def _as_list(groups: Tensor | Sequence[int]) -> list[int]:
    if isinstance(groups, Tensor):
        if groups.dtype != torch.int64 or groups.dim() != 1:
            raise TypeError(
                f"groups must be an int64 tensor of shape (F,), got {groups.dtype} of shape "
                f"{tuple(groups.shape)}"
            )
        ids: list[int] = groups.tolist()
        return ids
    if isinstance(groups, str) or not isinstance(groups, Sequence):
        raise TypeError(f"groups must be a tensor or integers, got {type(groups).__name__}")
    if strange := [g for g in groups if isinstance(g, bool) or not isinstance(g, int)]:
        raise TypeError(f"groups must be integers, got {strange[0]!r}")
    return list(groups)


def _columns(state: Tensor, order: list[int]) -> Tensor:
    return state.index_select(-1, torch.tensor(order, device=state.device))
