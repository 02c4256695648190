"""The rows of a graph that one process has, in one direction: own rows by own and foreign columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from tensus_tn.distributed.halo import Halo
from tensus_tn.propagation.segments import Segments


@dataclass(frozen=True, eq=False)
class Rows:
    """Some of the own rows, ready for a pass.

    Attributes:
        segments: Their structure; columns are own rows, then those of the halo.
        pairs: `row_ptr` and `seg_rel` of the segments that have self-loops of their own.
        seg_loop: The weights of these, or None.
        number: Which of the own rows they are; None: all of them.
    """

    segments: Segments
    pairs: tuple[Tensor, Tensor]
    seg_loop: Tensor | None
    number: Tensor | None

    def __len__(self) -> int:
        return self.segments.num_rows

    def own_rows(self) -> Tensor:
        """Which of the own rows they are, as ids."""
        return torch.arange(len(self)) if self.number is None else self.number.long()

    @cached_property
    def edges_by_relation(self) -> Tensor:
        """How many edges each relation has, (C,), up to the last one that has any."""
        segments = self.segments
        return torch.bincount(segments.seg_rel, weights=segments.seg_ptr.diff())

    def loops_of(self, which: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
        """`pairs` and `seg_loop` of some of these rows, ascending."""
        if self.seg_loop is None or len(which) == len(self):
            return self.pairs, self.seg_loop
        empty = self.pairs[0].new_zeros(0)
        taken = take_rows(Segments(*self.pairs, empty, empty, seg_loop=self.seg_loop), which)
        return (taken.row_ptr, taken.seg_rel), taken.seg_loop


@dataclass(frozen=True, eq=False)
class LocalRows:
    """All own rows in one direction: those that need no foreign column, and those that do.

    Attributes:
        interior: The rows whose columns are all own; a pass over them can run while the others
            wait for the halo.
        boundary: The others.
        halo: The foreign columns.
        own: The number of own rows.
    """

    interior: Rows
    boundary: Rows
    halo: Halo
    own: int

    @property
    def columns(self) -> int:
        """Own rows and those of the halo."""
        return self.own + len(self.halo)

    @cached_property
    def joined(self) -> Rows:
        """All rows in their order, then one without edges for every row of the halo."""
        if self.interior.number is None:
            return self.interior
        assert self.boundary.number is not None
        index = self.interior.segments.col.dtype
        place = torch.empty(self.own, dtype=torch.int64)
        place[torch.cat([self.interior.number, self.boundary.number]).long()] = torch.arange(
            self.own
        )
        both = _after(self.interior.segments, self.boundary.segments)
        structure = take_rows(both, place)
        pairs = replace(
            _pairs_after(self.interior, self.boundary),
            seg_val=_cat(self.interior.seg_loop, self.boundary.seg_loop),
        )
        pairs = take_rows(pairs, place)
        number = torch.full((self.columns,), -1, dtype=index)
        number[: self.own] = torch.arange(self.own)
        return Rows(
            replace(structure, row_ptr=self._padded(structure.row_ptr)),
            (self._padded(pairs.row_ptr), pairs.seg_rel),
            pairs.seg_val,
            number,
        )

    def _padded(self, row_ptr: Tensor) -> Tensor:
        return torch.cat([row_ptr, row_ptr[-1:].expand(len(self.halo))])


def split_rows(segments: Segments, pairs: Segments, own: Tensor, halo: Halo) -> LocalRows:
    """Number the columns of own rows, and part the rows in two.

    Args:
        segments: The own rows, their columns by global ids.
        pairs: The own rows of the forward structure: their segments have the self-loops.
        own: The global ids of the own rows, ascending.
        halo: The foreign columns.
    """
    index = segments.seg_ptr.dtype
    here, number = _number_columns(segments.col.long(), own, halo)
    segments = replace(segments, col=number.to(index))
    outside = torch.zeros(segments.num_segments, dtype=torch.bool)
    outside[segments.edge_seg()[~here]] = True
    foreign = torch.zeros(segments.num_rows, dtype=torch.bool)
    foreign[segments.seg_row()[outside]] = True

    def part(which: Tensor) -> Rows:
        of_pairs = take_rows(pairs, which)
        return Rows(
            take_rows(segments, which),
            (of_pairs.row_ptr, of_pairs.seg_rel),
            of_pairs.seg_loop,
            None if len(which) == len(own) and not len(halo) else which.to(index),
        )

    return LocalRows(
        part((~foreign).nonzero().flatten()), part(foreign.nonzero().flatten()), halo, len(own)
    )


def _number_columns(col: Tensor, own: Tensor, halo: Halo) -> tuple[Tensor, Tensor]:
    """Whether each column is own, and its number: own rows first, then the halo."""
    at, here = find(own, col)
    order = torch.argsort(halo.ids)
    foreign, known = find(halo.ids[order], col)
    if not bool((here | known).all()):
        raise ValueError("an edge leads to a node that is neither own nor in the halo")
    number = order[foreign] + len(own) if len(order) else at
    return here, torch.where(here, at, number)


def find(ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Where each wanted id stands among ascending ones, and whether it does."""
    if not len(ids):
        return torch.zeros_like(wanted), torch.zeros(len(wanted), dtype=torch.bool)
    at = torch.searchsorted(ids, wanted).clamp(max=len(ids) - 1)
    return at, ids[at] == wanted


def take_rows(segments: Segments, rows: Tensor) -> Segments:
    """Some rows of a structure, in the order given, with their values."""
    row_ptr, seg = _ranges(segments.row_ptr, rows)
    seg_ptr, edge = _ranges(segments.seg_ptr, seg) if len(segments.seg_ptr) else (row_ptr[:0], None)

    def at(values: Tensor | None, index: Tensor | None) -> Tensor | None:
        return None if values is None or index is None else values[index]

    return Segments(
        row_ptr.to(segments.row_ptr.dtype),
        segments.seg_rel[seg],
        seg_ptr.to(segments.row_ptr.dtype),
        segments.col if edge is None else segments.col[edge],
        seg_val=at(segments.seg_val, seg),
        edge_val=at(segments.edge_val, edge),
        seg_loop=at(segments.seg_loop, seg),
    )


def _ranges(ptr: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
    """The positions in the intervals `ptr[i] .. ptr[i + 1]`, one after the other, and their ends."""
    start = ptr[which].long()
    sizes = ptr[which + 1].long() - start
    ends = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    shift = torch.repeat_interleave(start - ends[:-1], sizes)
    return ends, torch.arange(len(shift)) + shift


def _after(first: Segments, second: Segments) -> Segments:
    """The rows of one structure after those of another."""
    return Segments(
        torch.cat([first.row_ptr, second.row_ptr[1:] + first.num_segments]),
        torch.cat([first.seg_rel, second.seg_rel]),
        torch.cat([first.seg_ptr, second.seg_ptr[1:] + first.num_edges]),
        torch.cat([first.col, second.col]),
        seg_val=_cat(first.seg_val, second.seg_val),
        edge_val=_cat(first.edge_val, second.edge_val),
    )


def _pairs_after(first: Rows, second: Rows) -> Segments:
    row_ptr, seg_rel = first.pairs
    empty = row_ptr.new_zeros(0)
    return Segments(
        torch.cat([row_ptr, second.pairs[0][1:] + len(seg_rel)]),
        torch.cat([seg_rel, second.pairs[1]]),
        empty,
        empty,
    )


def _cat(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat([first, second])
