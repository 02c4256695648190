"""From the edges that each process's nodes receive to the rows of both directions.

A process has the edges into its nodes. The transposed rows of its nodes are complete too, so every
edge goes to the owner of its sending node, once, with its value; under `"sym"` the owner answers with
the column's sum. Values come out as in one process, bit for bit: sums are taken in the same order, and
whether values are kept by segment is decided for the whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from tensus_tn.distributed.handshake import handshake, telling, together
from tensus_tn.distributed.local_rows import find, take_rows
from tensus_tn.distributed.partitioning import Partition
from tensus_tn.distributed.processes import Processes
from tensus_tn.propagation import segments
from tensus_tn.propagation.assembly import (
    Normalize,
    check_names,
    check_values,
    checked_dtype,
    dtype_of_values,
    modes_of,
)
from tensus_tn.propagation.edge_lists import Edges, from_edge_index
from tensus_tn.propagation.node_ids import RelationKey
from tensus_tn.propagation.segments import Segments


class OwnRows(NamedTuple):
    """The rows of the own nodes in both directions, columns by global ids.

    Attributes:
        forward: What the own nodes receive.
        backward: What they send.
        loop: The self-loops of empty rows, (C,).
        relation_names: Of all relations.
        own: The global ids of the own nodes, ascending.
    """

    forward: Segments
    backward: Segments
    loop: Tensor
    relation_names: tuple[str, ...]
    own: Tensor


def from_edges(
    edge_index: Mapping[RelationKey, Tensor],
    edge_weight: Mapping[RelationKey, Tensor],
    partition: Partition,
    processes: Processes,
    *,
    normalize: Normalize = None,
    self_loops: bool = False,
    identity: bool = False,
    zero: bool = False,
    dtype: torch.dtype | None = None,
) -> OwnRows:
    """The own rows of the graph that all processes have the edges of; they call this together."""
    own = partition.own(processes.rank)
    with telling(processes):
        relations, _ = from_edge_index(edge_index, partition.node_counts, edge_weight)
        _check_own(relations, partition, processes.rank)
        dtype = checked_dtype(dtype_of_values(relations) if dtype is None else dtype)
        names = [e.name for e in relations] + ["identity"] * identity + ["zero"] * zero
        check_names(names)
        modes = [*modes_of(normalize, relations), *[None] * (identity + zero)]
    options = (names, modes, self_loops, dtype)
    handshake(processes, {"relations, normalisation, self-loops and dtype": options})
    agreed = _Agreement(processes)

    given = [_Relation(*e.ends(), e.value) for e in relations]
    folded = [False] * len(relations)
    if self_loops:
        folded = _can_fold(given, modes, partition, processes)
        given = [r if fold else r.with_diagonal(own) for r, fold in zip(given, folded, strict=True)]
    added = agreed.any(self_loops and not all(folded))
    loop = torch.tensor([*folded, *[True] * identity, *[False] * zero], dtype=torch.float64)

    forward, places = _assemble([(r.row, r.col) for r in given], own)
    special = {"identity", "zero"} & {e.name for e in relations}
    counted = agreed.all(all(r.value is None for r in given)) and not added
    counted = counted and "sym" not in modes and not special
    repeats = agreed.any(forward.num_edges < sum(len(r.row) for r in given))
    value = torch.zeros(forward.num_edges, dtype=torch.float64)
    value.index_add_(0, places, torch.cat([value[:0], *(r.values() for r in given)]))

    trip = _Trip.of(forward, own, partition, processes)
    if counted:
        scale = segments.count_scale(forward, value, modes, loop)
        value, seg_loop = value * scale[forward.edge_seg()], loop[forward.seg_rel] * scale
    else:
        value, seg_loop = _normalize(forward, value, modes, loop, trip)
    transposed = trip.deliver(value).to(dtype)
    value, seg_loop, loop = value.to(dtype), seg_loop.to(dtype), loop.to(dtype)
    with together(processes):
        check_values(forward, value, seg_loop, loop, names)
    filled, backward = replace(forward, edge_val=value), replace(trip.rows, edge_val=transposed)
    if not (counted and repeats):
        filled = _with_values(forward, value, agreed)
        if agreed.all(bool((value == 1).all())):
            backward = trip.rows
        elif not counted:
            backward = _with_values(trip.rows, transposed, agreed)
    filled = replace(filled, seg_loop=seg_loop)
    if agreed.all(torch.equal(seg_loop, loop[forward.seg_rel])):
        filled = replace(filled, seg_loop=None)
    return OwnRows(filled, backward, loop, tuple(names), own)


class _Relation(NamedTuple):
    """The edges of one relation by global ids; no values stand for ones."""

    row: Tensor
    col: Tensor
    value: Tensor | None

    def values(self) -> Tensor:
        return torch.ones(len(self.row), dtype=torch.float64) if self.value is None else self.value

    def with_diagonal(self, own: Tensor) -> _Relation:
        """`A + I` as ordinary edges."""
        ones = torch.ones(len(own), dtype=torch.float64)
        value = None if self.value is None else torch.cat([self.value, ones])
        return _Relation(torch.cat([self.row, own]), torch.cat([self.col, own]), value)


class _Agreement(NamedTuple):
    """What holds for all processes, or for any."""

    processes: Processes

    def all(self, fact: bool) -> bool:
        return self.processes.extremes(int(fact))[0] == 1

    def any(self, fact: bool) -> bool:
        return self.processes.extremes(int(fact))[1] == 1


def _check_own(relations: Sequence[Edges], partition: Partition, rank: int) -> None:
    """Every edge must lead to an own node."""
    for edges in relations:
        row, _ = edges.ends()
        if len(foreign := row[partition.owner[row] != rank]):
            raise ValueError(
                f"relation {edges.name!r} of process {rank} has an edge into node "
                f"{int(foreign[0])}, which process {int(partition.owner[foreign[0]])} owns"
            )
        if edges.value is not None and edges.value.requires_grad:
            raise ValueError(f"relation {edges.name!r}: values that learn are for one process")


def _can_fold(
    given: Sequence[_Relation],
    modes: Sequence[str | None],
    partition: Partition,
    processes: Processes,
) -> list[bool]:
    """As in one process: under "sym", only where all that send also receive."""
    folded = []
    for relation, mode in zip(given, modes, strict=False):
        if mode != "sym":
            folded.append(True)
            continue
        receives = relation.row.unique()
        senders = relation.col.unique()
        senders = senders[torch.argsort(partition.owner[senders], stable=True)]
        counts = torch.bincount(partition.owner[senders], minlength=processes.size).tolist()
        asked, _ = processes.exchange_lists(senders, counts)
        folded.append(_Agreement(processes).all(bool(find(receives, asked)[1].all())))
    return folded


def _assemble(ends: Sequence[tuple[Tensor, Tensor]], own: Tensor) -> tuple[Segments, Tensor]:
    """Rows of own nodes by lists of (row, col), one a relation; and the place of every edge."""
    universe = torch.cat([own, *(col for _, col in ends)]).unique()
    rows, cols = ([torch.searchsorted(universe, pair[side]) for pair in ends] for side in (0, 1))
    ranges = [0, len(universe), 0, len(universe)] * len(ends)
    structure, _, _, places = segments.assemble(rows, cols, ranges, len(universe), True)
    structure = take_rows(structure, torch.searchsorted(universe, own))
    return replace(structure, col=universe[structure.col.long()]), places.long()


@dataclass
class _Trip:
    """The edges into own nodes on their way to the owners of their columns, and back.

    Attributes:
        order: The edges in the order in which they travel.
        give: How many go to each process.
        rows: The transposed rows of the own nodes, made of what came in.
        places: Where each edge that came in stands in them.
        receive: How many came from each process.
    """

    processes: Processes
    order: Tensor
    give: list[int]
    rows: Segments
    places: Tensor
    receive: list[int]

    @classmethod
    def of(
        cls, forward: Segments, own: Tensor, partition: Partition, processes: Processes
    ) -> _Trip:
        seg = forward.edge_seg()
        owner = partition.owner[forward.col]
        order = torch.argsort(owner, stable=True)
        give = torch.bincount(owner, minlength=processes.size).tolist()
        edges = torch.stack([own[forward.seg_row()[seg]], forward.seg_rel[seg].long(), forward.col])
        came, receive = processes.exchange_lists(edges[:, order].T.contiguous(), give)
        row, rel, col = came.unbind(1)
        by_relation = torch.argsort(rel, stable=True)
        count = int(processes.extremes(int(rel.max()) + 1 if len(rel) else 0)[1])
        sizes = torch.bincount(rel, minlength=count).tolist()
        lists = zip(col[by_relation].split(sizes), row[by_relation].split(sizes), strict=True)
        rows, places = _assemble(list(lists), own)
        at = torch.empty_like(places)
        at[by_relation] = places
        return cls(processes, order, give, rows, at, receive)

    def deliver(self, values: Tensor) -> Tensor:
        """What the forward edges have, in the order of the transposed rows."""
        came, _ = self.processes.exchange_lists(values[self.order], self.give)
        placed = torch.empty_like(came)
        placed[self.places] = came
        return placed

    def answer(self, values: Tensor) -> Tensor:
        """What the transposed edges have, in the order of the forward rows."""
        came, _ = self.processes.exchange_lists(values[self.places], self.receive)
        placed = torch.empty_like(came)
        placed[self.order] = came
        return placed


def _normalize(
    forward: Segments, value: Tensor, modes: Sequence[str | None], loop: Tensor, trip: _Trip
) -> tuple[Tensor, Tensor]:
    """As `segments.normalize`, with the columns' sums from their owners."""
    scale = segments.row_scale(forward, value, modes, loop)
    scaled, seg_loop = value * scale[forward.edge_seg()], loop[forward.seg_rel] * scale
    if "sym" not in modes:
        return scaled, seg_loop
    raw = trip.deliver(value)
    col_scale = segments.column_scale(trip.rows, raw, modes, loop)
    scaled *= trip.answer(col_scale[trip.rows.edge_seg()])
    seg_loop *= segments.at_pairs(trip.rows, col_scale, forward, len(modes))
    return scaled, seg_loop


def _with_values(rows: Segments, value: Tensor, agreed: _Agreement) -> Segments:
    """Values by segment, by edge, or none where all are 1: whatever all processes can do."""
    first = value[rows.seg_ptr[:-1].long()]
    same = torch.equal(value, first[rows.edge_seg()])
    by_segment, unit = agreed.all(same), agreed.all(same and bool((first == 1).all()))
    if not by_segment:
        return replace(rows, edge_val=value)
    return rows if unit else replace(rows, seg_val=first)
