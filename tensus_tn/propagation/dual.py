"""The propagation over dual numbers: a state and its tangent side by side, stacked in the rank.

Along a direction `(h', w', a')` of the features, the weights and the edge values,

    [H_k, H_k'] = sum_{j -> k} sum_i A^i [H_j, H_j'] [w  w']  +  A'^i [H_j, H_j'] [0  w]
                                                     [0  w ]                      [0  0]

which is a propagation with twice the ranks and, where the values have a tangent, twice the relations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tensus_tn.propagation.arguments import Arguments, Wanted
from tensus_tn.propagation.segments import index_dtype


class Direction(NamedTuple):
    """A tangent, or a gradient, of `h`, of `w` and of the edge values; None stands for zero."""

    h: Tensor | None
    w: Tensor | None
    values: Tensor | None


class Dual:
    """The problem whose states are those of `given` and, stacked on them, their tangents."""

    def __init__(self, given: Arguments, along: Direction) -> None:
        self.given = given
        self.twice = None if along.values is None else _Twice(given.forward)
        problem = given if along.values is None else self._with_values(along.values)
        self.problem = problem._replace(
            h=stack(given.h, along.h),
            w=self._weights(along.w),
            ranks=[2 * rank for rank in given.ranks],
        )

    def _weights(self, tangent: Tensor | None) -> Tensor:
        w = self.given.w
        tangents = self.given.weights(torch.zeros_like(w) if tangent is None else tangent)
        blocks = []
        for weight, weight_along in zip(self.given.weights(w), tangents, strict=True):
            zero = torch.zeros_like(weight)
            block = _blocks(weight, weight_along, zero, weight)
            if self.twice is not None:
                block = _in_turn(block, _blocks(zero, weight, zero, zero), 1)
            blocks.append(block.flatten(1))
        return torch.cat(blocks, 1).flatten()

    def _with_values(self, tangent: Tensor) -> Arguments:
        """The given problem with every relation twice: with its values, then with their tangents."""
        given, forward = self.given, self.twice
        assert forward is not None
        assert given.edge_val is not None
        backward = _Twice(given.backward)
        values = forward.place(given.edge_val, tangent)
        first, second = forward.at.chunk(2)
        edge_perm = given.backward[4]
        perm = backward.place(first[edge_perm], second[edge_perm])
        return given._replace(
            edge_val=values,
            back_edge_val=values[perm],
            back_seg_val=None,
            loop=None if given.loop is None else _in_turn(given.loop, 0 * given.loop),
            seg_loop=None
            if given.seg_loop is None
            else _in_turn(given.seg_loop, 0 * given.seg_loop),
            forward=forward.structure,
            backward=[*backward.structure, perm.to(backward.structure[3].dtype)],
            chosen=None if given.chosen is None else [flag for flag in given.chosen for _ in "aa"],
            needed=[rows.to(forward.structure[3].dtype) for rows in given.needed],
        )

    def tangents(self, states: Sequence[Tensor]) -> list[Tensor]:
        """The tangents of the given problem's states, from the states of this problem."""
        return [state.chunk(2, 1)[1] for state in states]

    def gradients(self, dh: Tensor, dw: Tensor, dvalues: Tensor, wanted: Wanted) -> Direction:
        """Those of the given problem's arguments, from the gradients of this problem."""
        return Direction(
            dh.chunk(2, 1)[0] if wanted.h else None,
            self._gradient_of_w(dw) if wanted.w else None,
            self._gradient_of_values(dvalues) if wanted.values else None,
        )

    def _gradient_of_w(self, dw: Tensor) -> Tensor:
        """The sum over the places where `w` stands in the weights of this problem."""
        sums = []
        for block, (p, q) in zip(self.problem.weights(dw), self.given.shapes, strict=True):
            plain = block if self.twice is None else block[:, 0::2]
            total = plain[..., :p, :q] + plain[..., p:, q:]
            if self.twice is not None:
                total = total + block[:, 1::2, :p, q:]
            sums.append(total.flatten(1))
        return torch.cat(sums, 1).flatten()

    def _gradient_of_values(self, dvalues: Tensor) -> Tensor:
        return dvalues if self.twice is None else dvalues[self.twice.at.chunk(2)[0]]


def stack(first: Tensor, second: Tensor | None) -> Tensor:
    """A state and its tangent side by side in the rank."""
    return torch.cat([first, torch.zeros_like(first) if second is None else second], 1)


def _blocks(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """The matrices `[[a, b], [c, d]]`."""
    return torch.cat([torch.cat([a, b], -1), torch.cat([c, d], -1)], -2)


def _in_turn(first: Tensor, second: Tensor, axis: int = 0) -> Tensor:
    """The entries along an axis: one of `first`, one of `second`, and so on."""
    return torch.stack([first, second], axis + 1).flatten(axis, axis + 1)


class _Twice:
    """One direction of a graph with every relation `i` twice, as `2 i` and as `2 i + 1`.

    Every segment is followed by a copy of itself. Edge `e` stands at `at[e]`, its copy at
    `at[E + e]`.
    """

    def __init__(self, structure: Sequence[Tensor]) -> None:
        row_ptr, seg_rel, seg_ptr, col = structure[:4]
        edge = torch.arange(len(col), device=col.device)
        seg = torch.searchsorted(seg_ptr, edge.to(seg_ptr.dtype), right=True) - 1
        start, end = seg_ptr[:-1].long(), seg_ptr[1:].long()
        self.at = torch.cat([edge + start[seg], edge + end[seg]])
        dtype = torch.int64 if col.dtype == torch.int64 else index_dtype(len(row_ptr), 2 * len(col))
        self.structure = [
            2 * row_ptr.to(dtype),
            _in_turn(2 * seg_rel, 2 * seg_rel + 1),
            torch.cat([_in_turn(2 * start, start + end), 2 * seg_ptr[-1:].long()]).to(dtype),
            self.place(col, col).to(dtype),
        ]

    def place(self, of_edges: Tensor, of_copies: Tensor) -> Tensor:
        """What belongs to the edges and to their copies, (E,) each, in the order of the graph."""
        both = torch.cat([of_edges, of_copies])
        return torch.empty_like(both).index_copy(0, self.at, both)
