"""Which rows of every state a process has, for some rows of sink and source and some relations.

As `propagation/rows.py` for one process. A row of a state is stored by its owner where a wanted row of
the sink depends on it, and fetched by those who read it: of the halo, only what the links' relations
lead from to rows that matter. Processes find that out together, walking back from the sink; before
that, where the source has a support, from there to all rows that can differ from zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from tensus_tn.distributed.halo import Halo
from tensus_tn.distributed.local_rows import LocalRows, Rows
from tensus_tn.distributed.problem import Problem
from tensus_tn.propagation.segments import Segments

_LEAST = 8  # a copy of the structure pays only if it leaves out one edge in this many


@dataclass(frozen=True, eq=False)
class StateRows:
    """The rows of a state that are here when it is passed on.

    Attributes:
        stored: Which own rows it has, ascending; None: all.
        halo: The foreign rows that are fetched; they are numbered after the own ones.
        place: Where each column of the graph, own rows and those of its halo, stands in the state,
            -1: nowhere. None: all are there, in their order.
        own: How many own rows there are.
    """

    stored: Tensor | None
    halo: Halo
    place: Tensor | None
    own: int

    def find(self, rows: Tensor) -> Tensor:
        """Where some of the own rows, which must be there, stand in the state."""
        return rows if self.stored is None else torch.searchsorted(self.stored, rows)


class PassRows(NamedTuple):
    """What a pass reads of the graph, and where its rows stand in states; see `csrc/library.cpp`."""

    segments: Segments
    pairs: tuple[Tensor, Tensor]
    seg_loop: Tensor | None
    near: Tensor | None
    far: list[Tensor]


@dataclass(eq=False)
class Way:
    """One direction of the graph, with the states of one propagation.

    Attributes:
        graph: All own rows in this direction.
        states: What is here of each state.
        relations: The relations that each link uses, (links, C).
    """

    graph: LocalRows
    states: Sequence[StateRows]
    relations: Tensor
    _passes: dict[tuple[object, ...], tuple[PassRows, ...]] = field(default_factory=dict)

    def gathered(self, near: int, far: Sequence[int], links: Sequence[int]) -> tuple[PassRows, ...]:
        """For a pass that gathers one state: the rows that need no halo, and those that may."""
        key = ("gather", near, *far, *links)
        if key not in self._passes:
            parts = (self.graph.interior, self.graph.boundary)
            self._passes[key] = tuple(self._gathered(rows, near, far, links) for rows in parts)
        return self._passes[key]

    def mixed(self, near: int, far: Sequence[int], links: Sequence[int]) -> PassRows:
        """For a pass that mixes the far states first, and gathers the result into one."""
        key = ("mix", near, *far, *links)
        if key not in self._passes:
            self._passes[key] = (self._mixed(near, far, links),)
        return self._passes[key][0]

    def _gathered(
        self, rows: Rows, near: int, far: Sequence[int], links: Sequence[int]
    ) -> PassRows:
        used = self.relations[list(links)].any(0)
        if self.states[near].place is None and self._have_all(far) and _is_most(rows, used):
            number = [] if rows.number is None else [rows.number] * len(far)
            return PassRows(rows.segments, rows.pairs, rows.seg_loop, rows.number, number)
        own, column, place = rows.own_rows(), self._place(near), [self._place(k) for k in far]
        kept = _any(there[own] >= 0 for there in place).nonzero().flatten()
        own = own[kept]
        segments = _select(rows.segments, kept, used, column)
        return PassRows(
            segments, *rows.loops_of(kept), column[own], [there[own] for there in place]
        )

    def _mixed(self, near: int, far: Sequence[int], links: Sequence[int]) -> PassRows:
        rows, used = self.graph.joined, self.relations[list(links)].any(0)
        whole = all(self.states[state].place is None for state in far)
        if whole and self._have_all([near]) and _is_most(rows, used):
            return PassRows(rows.segments, rows.pairs, rows.seg_loop, rows.number, [])
        receives, place = self._place(near).clone(), [self._place(k) for k in far]
        receives[self.graph.own :] = -1
        met = _any(there >= 0 for there in (receives, *place)).nonzero().flatten()
        column = torch.full_like(receives, -1)
        column[met] = torch.arange(len(met), dtype=column.dtype)
        segments = _select(rows.segments, torch.where(receives[met] >= 0, met, -1), used, column)
        return PassRows(
            segments, *rows.loops_of(met), receives[met], [there[met] for there in place]
        )

    def _have_all(self, states: Iterable[int]) -> bool:
        """Whether all own rows of these states are there."""
        return all(self.states[state].stored is None for state in states)

    def _place(self, state: int) -> Tensor:
        place = self.states[state].place
        index = self.graph.interior.segments.row_ptr.dtype
        return torch.arange(self.graph.columns, dtype=index) if place is None else place


def plan_rows(
    forward: LocalRows,
    backward: LocalRows,
    loop: Tensor,
    problem: Problem,
    rows: Tensor | None,
    support: Tensor | None,
) -> tuple[Way, Way]:
    """Both directions, for some of the own rows of the sink, or for all; processes plan together.

    With a support, own rows of the source, a state between has only what leads from there to the sink.
    """
    relations = problem.relations(len(loop))
    if rows is None and support is None and bool(relations.all()):
        ways = [
            Way(way, [StateRows(None, way.halo, None, way.own)] * len(problem.ranks), relations)
            for way in (forward, backward)
        ]
        return ways[0], ways[1]
    has_loop = _relations_with_loops(forward, loop)
    read = [torch.zeros(forward.columns, dtype=torch.bool) for _ in problem.ranks]
    possible = None
    if support is not None:
        possible = _possible(forward, backward, has_loop, problem, relations, support)
    states: list[StateRows] = []
    for k in reversed(range(len(read))):
        if possible is not None:
            read[k] &= possible[k]
        asked, own = forward.halo.ask(read[k][forward.own :]), read[k][: forward.own]
        own[forward.halo.send[asked]] = True
        if k == problem.last and rows is not None:
            own[rows] = True
        elif k == problem.last or (rows is None and support is None):
            own.fill_(True)
        states.insert(0, _state_rows(forward, read[k], asked))
        for used, tail in ((relations[e], problem.tails[e]) for e in problem.links_into(k)):
            read[tail] |= _columns(forward, own, used)
            read[tail][: forward.own] |= own & bool((used & has_loop).any())
    stored = [columns[: forward.own] for columns in read]
    back = _states_backward(backward, stored, problem, relations)
    return Way(forward, states, relations), Way(backward, back, relations)


def _possible(
    forward: LocalRows,
    backward: LocalRows,
    has_loop: Tensor,
    problem: Problem,
    relations: Tensor,
    support: Tensor,
) -> list[Tensor]:
    """The columns of every state that can differ from zero, where the source does in some own rows."""
    reached = [torch.zeros(backward.columns, dtype=torch.bool) for _ in problem.ranks]
    reached[0][support] = True
    for k, columns in enumerate(reached):
        own = columns[: backward.own]
        own[backward.halo.send[backward.halo.ask(columns[backward.own :])]] = True
        for used, head in ((relations[e], problem.heads[e]) for e in problem.links_from(k)):
            reached[head] |= _columns(backward, own, used)
            reached[head][: backward.own] |= own & bool((used & has_loop).any())
    every = [columns[: backward.own] for columns in reached]
    return [torch.cat([own, forward.halo.tell(own)]) for own in every]


def _states_backward(
    way: LocalRows, stored: Sequence[Tensor], problem: Problem, relations: Tensor
) -> list[StateRows]:
    """The rows of gradients: own ones as of the states, foreign ones that are there and matter."""
    states = []
    for k, own in enumerate(stored):
        columns = torch.zeros(way.columns, dtype=torch.bool)
        for e in problem.links_into(k):
            columns |= _columns(way, stored[problem.tails[e]], relations[e])
        columns[: way.own] = own
        columns[way.own :] &= way.halo.tell(own)
        states.append(_state_rows(way, columns, way.halo.ask(columns[way.own :])))
    return states


def _state_rows(way: LocalRows, there: Tensor, asked: Tensor) -> StateRows:
    """The rows of a state, given which columns are there and which own rows others want."""
    index = way.interior.segments.row_ptr.dtype
    place = torch.where(there, there.cumsum(0) - 1, -1).to(index)
    own, halo = there[: way.own], way.halo.narrowed(there[way.own :], asked, place)
    stored = None if bool(own.all()) else own.nonzero().flatten()
    return StateRows(stored, halo, None if bool(there.all()) else place, int(own.sum()))


def _columns(way: LocalRows, rows: Tensor, used: Tensor) -> Tensor:
    """The columns that some relations lead from to some of the own rows."""
    return _any(
        torch.ops.tensus_tn.mark_columns(
            part.segments.structure()[:4], rows[part.own_rows()], used, way.columns
        )
        for part in (way.interior, way.boundary)
    )


def _relations_with_loops(forward: LocalRows, loop: Tensor) -> Tensor:
    found = loop != 0
    for part in (forward.interior, forward.boundary):
        if part.seg_loop is not None:
            found[part.pairs[1][part.seg_loop != 0].long()] = True
    return found


def _select(segments: Segments, rows: Tensor, used: Tensor, column: Tensor) -> Segments:
    """Some rows, -1 for an empty one, with the edges of used relations from numbered columns."""
    row_ptr, seg_rel, seg_ptr, col, segment, edge = torch.ops.tensus_tn.select_rows(
        segments.structure()[:4], rows, used, column
    )

    def at(values: Tensor | None, index: Tensor) -> Tensor | None:
        return None if values is None else values.index_select(0, index)

    values = at(segments.seg_val, segment), at(segments.edge_val, edge)
    return Segments(row_ptr, seg_rel, seg_ptr, col, *values)


def _is_most(rows: Rows, used: Tensor) -> bool:
    """Whether relations have so many of the edges that a copy without the others does not pay."""
    edges = rows.edges_by_relation
    return bool(_LEAST * edges[~used[: len(edges)]].sum() <= edges.sum())


def _any(masks: Iterable[Tensor]) -> Tensor:
    return reduce(torch.logical_or, masks)
