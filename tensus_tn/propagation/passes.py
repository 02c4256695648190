"""Single passes over some rows of a graph, in plain PyTorch; see `csrc/library.cpp` and `csrc/graph.h`.

The operators `tensus_tn::gather_mix` and `tensus_tn::mix_gather` are for those who put the passes of
a propagation together themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tensus_tn.propagation.reference import Loops, add_up, as_segments, gather, mix
from tensus_tn.propagation.segments import Segments


def gather_mix(
    x: Tensor,
    w: Sequence[Tensor],
    edge_val: Tensor | None,
    seg_val: Tensor | None,
    loop: Tensor | None,
    seg_loop: Tensor | None,
    structure: Sequence[Tensor],
    pairs: Sequence[Tensor],
    rows: Tensor | None,
    out: Sequence[Tensor],
    accumulate: Sequence[int],
    other: Sequence[Tensor],
    dw: Sequence[Tensor],
    from_tail: bool,
) -> None:
    """`y_l[n, q] (+)= sum_{i,p} w_l[i, p, q] (A^i x)[n, p]`, and the gradients of the weights."""
    graph = as_segments(structure, edge_val, seg_val)
    row = _rows(graph, rows)
    there, row = row >= 0, row.clamp(min=0)
    near = x.to(w[0].dtype)
    sums, own = gather(graph, near), near[row]
    loops = _loops(loop, seg_loop, pairs)
    for k, weight in enumerate(w):
        matrix = weight if from_tail else weight.transpose(1, 2)
        if out[k].numel():
            y = add_up(graph, mix(sums, matrix, graph.seg_rel))
            y = y if loops is None else y + loops.apply(own, matrix)
            _write(out[k], row[there], y[there], bool(accumulate[k]))
        if dw:
            far = other[k].to(near.dtype)[row] * there[:, None, None]
            products = torch.bmm(sums, far[graph.seg_row()].transpose(1, 2))
            total = torch.zeros_like(matrix).index_add(0, graph.seg_rel, products)
            total = total if loops is None else total + loops.grad_w(own, far)
            dw[k].copy_(total if from_tail else total.transpose(1, 2))


def mix_gather(
    y: Tensor,
    accumulate: bool,
    w: Sequence[Tensor],
    edge_val: Tensor | None,
    seg_val: Tensor | None,
    loop: Tensor | None,
    seg_loop: Tensor | None,
    structure: Sequence[Tensor],
    pairs: Sequence[Tensor],
    rows: Tensor | None,
    other: Sequence[Tensor],
    from_tail: bool,
) -> None:
    """`y[n, q] (+)= sum_i A^i (sum_l sum_p w_l[i, p, q] x_l[., p])[n]`."""
    graph = as_segments(structure, edge_val, seg_val)
    row, loops = _rows(graph, rows), _loops(loop, seg_loop, pairs)
    there = row >= 0
    total = w[0].new_zeros(len(row), *y.shape[1:])
    for x, weight in zip(other, w, strict=True):
        matrix, far = weight.transpose(1, 2) if from_tail else weight, x.to(weight.dtype)
        total += add_up(graph, mix(gather(graph, far), matrix, graph.seg_rel))
        total = total if loops is None else total + loops.apply(far, matrix)
    _write(y, row[there], total[there], accumulate)


def plan_passes(
    edges: Tensor,
    nodes: int,
    ranks: Sequence[int],
    tails: Sequence[int],
    heads: Sequence[int],
    chosen: Sequence[int] | None,
    backward: bool,
) -> list[int]:
    """No edge of the DAG is mixed first: plain PyTorch gathers, then mixes."""
    return [0] * len(tails)


def empty_state(like: Tensor, nodes: int, rank: int) -> Tensor:
    """Memory for a state of the type and the features of another."""
    return like.new_empty(nodes, rank, like.shape[2])


def _rows(graph: Segments, rows: Tensor | None) -> Tensor:
    return torch.arange(graph.num_rows) if rows is None else rows.long()


def _loops(loop: Tensor | None, seg_loop: Tensor | None, pairs: Sequence[Tensor]) -> Loops | None:
    if loop is None:
        return None
    if seg_loop is None:
        return Loops(loop, None, None)
    row_ptr, seg_rel = pairs
    empty = row_ptr.new_zeros(0)
    return Loops(loop, seg_loop - loop[seg_rel], Segments(row_ptr, seg_rel, empty, empty))


def _write(state: Tensor, rows: Tensor, values: Tensor, accumulate: bool) -> None:
    state[rows] = (values + state[rows] if accumulate else values).to(state.dtype)
