"""Entries of a large batch: contract groups of cores into tables once, then look rows up.

Evaluating `T` at `B` indices core by core gathers every core `B` times. When `B` is much
larger than the number of combinations of choices of a few edges, it is cheaper to contract those
cores for all their combinations (a table), look up one row for each entry, and contract only what is
left. The groups are chosen by cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

import torch
from torch import Tensor

from tensus_tn.network.plan import Plan
from tensus_tn.network.planner import find_plan
from tensus_tn.network.semiring import SUM_PRODUCT, Semiring
from tensus_tn.network.typing import Indices, Optimize

# Costs in units of one multiply-add in a batched product, forward and backward together; measured on
# the CPU: a looked-up value costs about four of them, a value of a table about eight.
_LOOKUP, _TABLE = 4.0, 8.0
_DIMENSIONS = 60  # of a table; torch has at most 64
_POSITIONS = 2**31 - 1  # in a table; they are computed in 32 bits


@dataclass(frozen=True)
class TablePlan:
    """A compiled evaluation of a batch of entries; call it with the cores and the index.

    Attributes:
        groups: The operands that make up each table, by number.
        tables: The plan of each table; its result has the ranks first, then the choices.
        rows: The contraction of the looked-up rows, batch last.
        columns: The columns of the index that select from each table, with their sizes.
        piece: The number of entries that are evaluated at a time.
    """

    groups: tuple[Indices, ...]
    tables: tuple[Plan, ...]
    rows: Plan
    columns: tuple[tuple[tuple[int, int], ...], ...]
    piece: int

    def __call__(
        self, operands: Sequence[Tensor], index: Tensor, *, semiring: Semiring = SUM_PRODUCT
    ) -> Tensor:
        """Evaluate `index` of shape `(B, M)` to `(B,)`."""
        tables = [
            plan(*[operands[n] for n in group], semiring=semiring).contiguous()
            for plan, group in zip(self.tables, self.groups, strict=True)
        ]
        if len(index) <= self.piece:
            return self._evaluate(tables, index, semiring)
        pieces = index.split(self.piece)
        return torch.cat([self._evaluate(tables, piece, semiring) for piece in pieces])

    def _evaluate(self, tables: list[Tensor], index: Tensor, semiring: Semiring) -> Tensor:
        # Positions are computed in 32 bits along contiguous columns: a third of the time.
        columns = index.t().to(torch.int32, memory_format=torch.contiguous_format)
        rows = [
            _look_up(table, _position(columns, used), len(used)) if used else table
            for table, used in zip(tables, self.columns, strict=True)
        ]
        return self.rows(*rows, semiring=semiring)

    def prepare(self, semiring: Semiring) -> None:
        """Lower all parts now instead of at the first call."""
        for plan in (*self.tables, self.rows):
            plan.prepare(semiring)

    @property
    def equation(self) -> str:
        """The contraction of the looked-up rows."""
        return self.rows.equation

    @property
    def path(self) -> tuple[tuple[int, ...], ...]:
        """The path of the contraction of the looked-up rows."""
        return self.rows.path

    @property
    def flops(self) -> int:
        """The work of the tables and of the batch that was planned for."""
        return self.rows.flops + sum(table.flops for table in self.tables)

    @property
    def largest(self) -> int:
        """Entries of the largest tensor, a table or a product of rows."""
        return max(self.rows.largest, *(table.largest for table in self.tables))

    @property
    def treewidth(self) -> int:
        """The largest treewidth of a part."""
        return max(self.rows.treewidth, *(table.treewidth for table in self.tables))

    def __str__(self) -> str:
        lines = [str(self.rows)]
        for group, table in zip(self.groups, self.tables, strict=True):
            lines.append(f"table of operands {', '.join(map(str, group))}: {table.equation}")
        return "\n".join(lines)


def _position(columns: Tensor, used: tuple[tuple[int, int], ...]) -> Tensor:
    """The row-major position of each entry among the choices of a table."""
    (first, _), *rest = used
    position = columns[first]
    for column, size in rest:
        position = torch.add(columns[column], position, alpha=size)
    return position.long()


def _look_up(table: Tensor, position: Tensor, num_choices: int) -> Tensor:
    """Select from the last `num_choices` dimensions of a table; the batch becomes the last one.

    The lookup is done on a matrix with 64-bit positions: torch has fast kernels for that case only.
    """
    ranks = table.shape[: table.ndim - num_choices]
    matrix = table.reshape(ranks.numel(), -1)
    return matrix.index_select(1, position).reshape(*ranks, -1)


def find_table_plan(
    inputs: Sequence[Indices],
    choices: Sequence[int | None],
    sizes: Sequence[int],
    batch_size: int,
    *,
    optimize: Optimize = "auto",
    limit: int,
) -> TablePlan:
    """Choose the groups for a batch of `batch_size` entries and plan their parts.

    Args:
        inputs: The indices of each operand.
        choices: For each operand the index among `inputs` that the entries fix, or None.
        sizes: The size of each index.
        batch_size: The number of entries to plan for.
        optimize: Passed to `find_plan`.
        limit: The most entries that a tensor may have; larger batches are cut into pieces.
    """
    groups = _group(inputs, choices, sizes, batch_size, min(limit, _POSITIONS))
    batch = len(sizes)
    sizes = (*sizes, batch_size)
    tables, terms, columns = [], [], []
    fixed = [c for c in choices if c is not None]
    for group in groups:
        members = [inputs[n] for n in group]
        others = {i for n, term in enumerate(inputs) if n not in group for i in term}
        ranks = tuple(dict.fromkeys(i for term in members for i in term if i in others))
        picks = tuple(c for n in group if (c := choices[n]) is not None)
        tables.append(find_plan(members, ranks + picks, sizes, optimize=optimize, limit=limit))
        terms.append((*ranks, batch) if picks else ranks)
        columns.append(tuple((fixed.index(c), sizes[c]) for c in picks))
    # The limit holds for one row: more of them are cut into pieces.
    rows = find_plan(
        terms, (batch,), sizes, batch=batch, optimize=optimize, limit=limit * batch_size
    )
    looked_up = [prod(sizes[i] for i in term if i != batch) for term in terms]
    a_row = max(rows.largest // batch_size, *looked_up)
    piece = max(limit // a_row, 1)
    return TablePlan(tuple(groups), tuple(tables), rows, tuple(columns), piece)


@dataclass(frozen=True, eq=False)
class _Group:
    members: Indices
    ranks: frozenset[int]  # those that other groups have too
    combinations: int


def _group(
    inputs: Sequence[Indices],
    choices: Sequence[int | None],
    sizes: Sequence[int],
    batch_size: int,
    limit: int,
) -> list[Indices]:
    """Merge groups greedily while that makes the whole evaluation cheaper.

    A move merges all groups that touch a rank (then the rank is summed in the table), or two of them,
    or any group with one that has no rank. Its gain is what it saves for every entry, less what the
    larger table costs; it does not depend on the other groups, so it is computed once.
    """
    groups = [
        _Group((n,), frozenset(term) - {choice}, sizes[choice] if choice is not None else 1)
        for n, (term, choice) in enumerate(zip(inputs, choices, strict=True))
    ]
    touching: dict[int, set[_Group]] = {}
    for group in groups:
        for rank in group.ranks:
            touching.setdefault(rank, set()).add(group)

    def size(ranks: Iterable[int]) -> int:
        return prod(sizes[rank] for rank in ranks)

    def merged(parts: frozenset[_Group]) -> _Group:
        union = frozenset().union(*(group.ranks for group in parts))
        members = tuple(sorted(n for group in parts for n in group.members))
        shared = frozenset(rank for rank in union if touching[rank] - parts)
        return _Group(members, shared, prod(group.combinations for group in parts))

    def gain(parts: frozenset[_Group]) -> float:
        result, ranks = merged(parts), frozenset().union(*(group.ranks for group in parts))
        union = size(ranks)
        if result.combinations * union > limit or len(result.members) + len(ranks) > _DIMENSIONS:
            return 0.0
        lookups = sum(size(group.ranks) for group in parts) - size(result.ranks)
        saved = _LOOKUP * lookups + union * (len(parts) - 1)
        return batch_size * saved - _TABLE * union * result.combinations

    def moves(group: _Group) -> Iterator[frozenset[_Group]]:
        """The moves that have a part in `group`."""
        for rank in group.ranks:
            yield frozenset(touching[rank])
            yield from (frozenset((group, other)) for other in touching[rank] - {group})
        lone = (other for other in groups if not other.ranks and other is not group)
        yield from (frozenset((group, other)) for other in islice(lone, 1))

    gains = {move: gain(move) for group in groups for move in moves(group) if len(move) > 1}
    while gains:
        best = max(gains, key=lambda move: (gains[move], _order(move)))
        if gains[best] <= 0:
            break
        result = merged(best)
        groups = [group for group in groups if group not in best] + [result]
        for rank in frozenset().union(*(group.ranks for group in best)):
            touching[rank] = touching[rank] - best | ({result} if rank in result.ranks else set())
        gains = {move: value for move, value in gains.items() if not move & best}
        gains.update({move: gain(move) for move in moves(result) if len(move) > 1})
    return [group.members for group in groups]


def _order(move: frozenset[_Group]) -> list[Indices]:
    """Decides between moves of equal gain, the same way in every run."""
    return sorted(group.members for group in move)
